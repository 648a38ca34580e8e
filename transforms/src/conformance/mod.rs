//! The conformance suite: what every transform must do, as a library.
//!
//! A transform's test calls [`check_chain`] with each chain that is worth a test: the transform alone, with its smallest and largest
//! parameter, and behind and in front of what it can stand with. The suite panics with what it was about at the first breach.
//!
//! It checks, with the kernels of every instruction set that the machine has: that the packed form is what the definition says (an
//! oracle that works bit by bit), that the source comes back exactly (rounded by the definition, where the chain rounds), whole, cut into segments
//! at every byte, and in every range of bytes; that nothing outside the destination is written, nothing outside the window read; that the range is the values'; that
//! what does not fit is refused with its place and value, when packing and when reading; that the same source always gives the
//! same bytes; and that hostile frames give an error or a filled destination, never a panic.

#![allow(clippy::unwrap_used)] // part of tests: a panic is the report

pub mod floats;
mod hostile;
mod oracle;
mod q8;
mod reads;
mod rows;
mod samples;

use crate::{Chain, Decoder, Isa, Packing, Scratch, TransformError, ViewChain};
use samples::{Pattern, Source};

/// Runs the whole suite on a chain.
///
/// # Panics
/// When the chain breaks its contract.
pub fn check_chain(chain: &Chain) {
    names(chain);
    round_trip(chain);
    for isa in Isa::available() {
        let chain = chain.with_isa(isa);
        bounds(&chain);
        refusals(&chain);
        reads::check(&chain);
        hostile::check(&chain);
    }
}

/// A chain's text and its steps name the same chain, and another version of a step is refused by name.
fn names(chain: &Chain) {
    let (text, source) = (chain.to_string(), chain.source());
    let with_tables = |made: Chain| {
        let tables = chain.tables().cloned();
        tables.fold(made, |made, table| made.with_table(table).unwrap())
    };
    let parsed = Chain::parse(&text, source).unwrap();
    assert_eq!(&with_tables(parsed), chain, "{text}");
    let made = Chain::from_steps(chain.steps(), source).unwrap();
    assert_eq!(&with_tables(made), chain, "{text}");
    for index in 0..chain.steps().len() {
        let mut steps = chain.steps().to_vec();
        steps[index].version += 1;
        let error = Chain::from_steps(&steps, source).unwrap_err();
        assert!(
            matches!(error, TransformError::Version { found: 2, .. }),
            "{text}: a later version of step {index} gave {error}"
        );
    }
}

/// Every count and pattern comes back, by way of exactly the packed bytes that the definition says; the same source gives the same
/// bytes whatever the kernels, and whatever the work memory was used for before.
fn round_trip(chain: &Chain) {
    let mut scratches: Vec<Scratch> = Isa::available().iter().map(|_| Scratch::new()).collect();
    for pattern in Pattern::ALL {
        for count in samples::COUNTS {
            let source = Source::new(chain, pattern, count);
            let expected = oracle::packed(chain, &source);
            let mut first = None;
            for (isa, scratch) in Isa::available().into_iter().zip(&mut scratches) {
                let chain = &chain.with_isa(isa);
                let what = format!("{chain:?} {isa:?} {pattern:?} x{count}");

                let (stored, range) = encode(chain, &source.bytes, scratch);
                assert_eq!(range, source.range(), "{what}: range");
                let first = first.get_or_insert_with(|| stored.clone());
                assert_eq!(&stored, first, "{what}: not the same bytes as before");

                let packed = unblock(chain, &stored, count, scratch).unwrap();
                assert_eq!(packed, expected, "{what}: packed");
                let presented = source.presented(chain);
                let mut read_back = vec![0; source.bytes.len()];
                chain.read_back(&source.bytes, &mut read_back).unwrap();
                assert_eq!(read_back, presented, "{what}: read back");
                let back = reads::whole(chain, &packed, presented.len());
                assert_eq!(back, presented, "{what}: presented");
            }
            // Work memory that has seen nothing yet; now and then, since contexts are large.
            if count == 200 {
                let (fresh, _) = encode(chain, &source.bytes, &mut Scratch::new());
                assert_eq!(Some(fresh), first, "{chain:?}: depends on earlier frames");
            }
        }
    }
}

/// Destinations that are a byte too small are refused, and say how large they should be.
fn bounds(chain: &Chain) {
    let source = Source::new(chain, Pattern::Noise, 100);
    let mut scratch = Scratch::new();
    let needed = chain.stored_bytes_max(100);
    let mut small = vec![0; usize::try_from(needed).unwrap() - 1];
    assert_eq!(
        chain.encode_frame(&source.bytes, &mut scratch, &mut small),
        Err(TransformError::DestinationTooSmall {
            needed,
            available: needed - 1
        }),
        "{chain:?}"
    );
    let element_bytes = chain.source().bytes();
    if element_bytes > 1 {
        let cut = &source.bytes[..source.bytes.len() - 1];
        let mut room = vec![0; small.len() + 1];
        assert_eq!(
            chain.encode_frame(cut, &mut scratch, &mut room),
            Err(TransformError::PartialElement {
                bytes: cut.len(),
                element: chain.source()
            }),
            "{chain:?}"
        );
    }
}

/// A value that the chain does not hold is refused with its place and value, wherever it stands.
fn refusals(chain: &Chain) {
    if chain.packing() == Packing::Q8_0 {
        q8::refusals(chain, &mut Source::new(chain, Pattern::Noise, 5000));
        return;
    }
    if matches!(chain.packing(), Packing::Int8 { .. }) {
        rows::refusals(chain, &mut Source::new(chain, Pattern::Noise, 5000).bytes);
        return;
    }
    let (Some(held), Some(possible)) = (chain.range(), chain.source().range()) else {
        return;
    };
    let mut scratch = Scratch::new();
    let mut stored = vec![0; usize::try_from(chain.stored_bytes_max(5000)).unwrap()];
    let mut source = Source::new(chain, Pattern::Noise, 5000);
    for value in [held.min - 1, held.max + 1, possible.min, possible.max] {
        if held.contains(value) || !possible.contains(value) {
            continue;
        }
        // One behind all others, so that the first has to be found.
        source.set(4999, value);
        for index in (0..70).chain([4095, 4096, 4999]) {
            let good = source.values[index];
            source.set(index, value);
            let error = chain
                .encode_frame(&source.bytes, &mut scratch, &mut stored)
                .unwrap_err();
            let place = index as u64;
            assert!(
                matches!(
                    error,
                    TransformError::OutOfRange { index, value: found, .. } if index == place && found == value
                ),
                "{chain:?}: {value} at {place} gave {error}"
            );
            source.set(index, good);
        }
    }
}

/// Encodes into a destination of exactly the bound, with guards around it.
fn encode(
    chain: &Chain,
    source: &[u8],
    scratch: &mut Scratch,
) -> (Vec<u8>, Option<crate::ValueRange>) {
    let elements = (source.len() / chain.source().bytes()) as u64;
    let bound = usize::try_from(chain.stored_bytes_max(elements)).unwrap();
    let mut guarded = Guarded::new(bound);
    let encoded = chain
        .encode_frame(source, scratch, guarded.inner())
        .unwrap();
    guarded.check(&format!("{chain:?}: encode"));
    assert!(encoded.stored_bytes <= bound, "{chain:?}: over the bound");
    (
        guarded.inner()[..encoded.stored_bytes].to_vec(),
        encoded.range,
    )
}

/// Undoes the block steps into a destination with guards around it.
fn unblock(
    chain: &Chain,
    stored: &[u8],
    count: usize,
    scratch: &mut Scratch,
) -> Result<Vec<u8>, TransformError> {
    let packed = usize::try_from(chain.packed_bytes(count as u64)).unwrap();
    let mut guarded = Guarded::new(packed);
    let result = chain.unblock(stored, scratch, guarded.inner());
    guarded.check(&format!("{chain:?}: unblock"));
    result.map(|()| guarded.inner().to_vec())
}

fn decoder(chain: &Chain, range: Option<crate::ValueRange>) -> Decoder {
    Decoder::new(chain, &ViewChain::identity(), range).unwrap()
}

/// A destination between two guards.
struct Guarded {
    bytes: Vec<u8>,
}

impl Guarded {
    const GUARD: u8 = 0xC5;
    const GUARD_BYTES: usize = 64;

    fn new(len: usize) -> Guarded {
        Guarded {
            bytes: vec![Self::GUARD; len + 2 * Self::GUARD_BYTES],
        }
    }

    fn inner(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - Self::GUARD_BYTES;
        &mut self.bytes[Self::GUARD_BYTES..end]
    }

    fn check(&self, what: &str) {
        let (front, rest) = self.bytes.split_at(Self::GUARD_BYTES);
        let back = &rest[rest.len() - Self::GUARD_BYTES..];
        let untouched = |guard: &[u8]| guard.iter().all(|byte| *byte == Self::GUARD);
        assert!(
            untouched(front),
            "{what}: wrote in front of the destination"
        );
        assert!(untouched(back), "{what}: wrote behind the destination");
    }
}
