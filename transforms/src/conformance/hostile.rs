//! Stored bytes that nobody wrote: an error or a filled destination, never a panic, never a byte outside.

use super::samples::{Numbers, Pattern, Source};
use super::{Guarded, encode, unblock};
use crate::{Chain, Decoder, OutSegments, PackedWindow, Scratch, ViewChain};

/// Elements of the frames that are damaged: enough for a compressor to shrink, few enough to flip every bit.
const ELEMENTS: usize = 150;

pub(super) fn check(chain: &Chain) {
    frames(chain);
    packed(chain);
}

fn frames(chain: &Chain) {
    let mut scratch = Scratch::new();
    let source = Source::new(chain, Pattern::Text, ELEMENTS);
    let (stored, _) = encode(chain, &source.bytes, &mut scratch);
    let packed = unblock(chain, &stored, ELEMENTS, &mut scratch).unwrap();
    let what = format!("{chain:?}");

    // Another length than the frame's: always an error where the length is all there is to see, and no frame of a compressor
    // fills a longer or a shorter destination.
    let other = usize::try_from(chain.whole_elements().max(8)).unwrap();
    for count in [ELEMENTS - other, ELEMENTS + other] {
        let other = unblock(chain, &stored, count, &mut scratch);
        assert!(
            other.is_err(),
            "{what}: {ELEMENTS} elements read as {count}"
        );
    }
    for len in 0..stored.len() {
        let cut = unblock(chain, &stored[..len], ELEMENTS, &mut scratch);
        assert!(
            cut.is_err(),
            "{what}: cut to {len} bytes of {}",
            stored.len()
        );
    }
    for more in 1..4 {
        let mut longer = stored.clone();
        longer.extend(vec![0; more]);
        let longer = unblock(chain, &longer, ELEMENTS, &mut scratch);
        assert!(longer.is_err(), "{what}: {more} bytes longer");
    }

    for bit in 0..stored.len() * 8 {
        let mut flipped = stored.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // Filled or refused: `unblock` checks the guards. What a checksum would catch is not this layer's to see.
        let _ = unblock(chain, &flipped, ELEMENTS, &mut scratch);
    }
    let mut numbers = Numbers::new(7);
    for _ in 0..200 {
        let len = numbers.below(packed.len() + 20);
        let noise: Vec<u8> = (0..len).map(|_| numbers.next().to_le_bytes()[0]).collect();
        let _ = unblock(chain, &noise, ELEMENTS, &mut scratch);
        // The frame's beginning, then noise: gets further into a decoder than noise alone.
        let keep = numbers.below(stored.len());
        let mut spliced = stored[..keep].to_vec();
        spliced.extend(&noise);
        let _ = unblock(chain, &spliced, ELEMENTS, &mut scratch);
    }

    let again = unblock(chain, &stored, ELEMENTS, &mut scratch).unwrap();
    assert_eq!(again, packed, "{what}: the context remembers bad frames");
}

/// Packed bytes without pattern, read in pieces: every piece is presented or refused.
fn packed(chain: &Chain) {
    let mut numbers = Numbers::new(11);
    let decoder = Decoder::new(chain, &ViewChain::identity(), None).unwrap();
    let len = usize::try_from(chain.packed_bytes(300)).unwrap();
    let presented_bytes = 300 * chain.source().bytes();
    for _ in 0..50 {
        let noise: Vec<u8> = (0..len).map(|_| numbers.next().to_le_bytes()[0]).collect();
        let start = numbers.below(presented_bytes);
        let end = start + numbers.below(presented_bytes - start + 1);
        let mut guarded = Guarded::new(end - start);
        let window = PackedWindow {
            first_byte: 0,
            bytes: &noise,
        };
        let range = start as u64..end as u64;
        let mut out = OutSegments::from_slice(guarded.inner());
        let _ = decoder.expand(window, range, &mut out);
        guarded.check(&format!("{chain:?}: noise"));
    }
}
