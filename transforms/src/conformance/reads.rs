//! Reading: every range of bytes, every cut into segments, every view, and what a reader must refuse.

use std::ops::Range;

use super::samples::{Pattern, Source};
use super::{Guarded, decoder, oracle, q8};
use crate::{
    Chain, Decoder, ElementType, OutSegments, PackedWindow, Packing, TransformError, ValueRange,
    ViewChain,
};

pub(super) fn check(chain: &Chain) {
    every_range(chain);
    every_cut(chain);
    small_windows(chain);
    views(chain);
    outside_proven(chain);
}

/// All of a frame, into one segment.
pub(super) fn whole(chain: &Chain, packed: &[u8], presented_bytes: usize) -> Vec<u8> {
    let mut guarded = Guarded::new(presented_bytes);
    let mut out = OutSegments::from_slice(guarded.inner());
    let window = PackedWindow {
        first_byte: 0,
        bytes: packed,
    };
    decoder(chain, None)
        .expand(window, 0..presented_bytes as u64, &mut out)
        .unwrap();
    assert_eq!(out.remaining(), 0, "{chain:?}: left room");
    guarded.check(&format!("{chain:?}: expand"));
    guarded.inner().to_vec()
}

/// Every range of presented bytes, from a window of exactly the packed bytes that it needs.
fn every_range(chain: &Chain) {
    // More than 8, after which fields start at the same bits again.
    let count = if chain.source().bytes() <= 2 { 19 } else { 10 };
    let (source, packed) = sample(chain, count);
    let decoder = decoder(chain, source.range());
    let presented = source.presented(chain);
    for start in 0..=presented.len() {
        for end in start..=presented.len() {
            let range = start as u64..end as u64;
            let mut guarded = Guarded::new(end - start);
            expand_exactly(&decoder, &packed, range, guarded.inner()).unwrap();
            assert_eq!(
                guarded.inner(),
                &presented[start..end],
                "{chain:?}: bytes {start}..{end}"
            );
            guarded.check(&format!("{chain:?}: bytes {start}..{end}"));
        }
    }
}

/// Segments cut at every byte: two of them, with an empty one between, and one for each byte.
fn every_cut(chain: &Chain) {
    let (source, packed) = sample(chain, 41);
    let decoder = decoder(chain, source.range());
    let presented = source.presented(chain);
    let len = presented.len();
    let window = PackedWindow {
        first_byte: 0,
        bytes: &packed,
    };
    for cut in 0..=len {
        let mut out = vec![0; len];
        let (front, back) = out.split_at_mut(cut);
        let mut slices: [&mut [u8]; 3] = [front, &mut [], back];
        let mut segments = OutSegments::from_slices(&mut slices);
        decoder
            .expand(window, 0..len as u64, &mut segments)
            .unwrap();
        assert_eq!(out, presented, "{chain:?}: cut at {cut}");
    }
    let mut out = vec![0; len];
    let mut slices: Vec<&mut [u8]> = out.chunks_mut(1).collect();
    let mut segments = OutSegments::from_slices(&mut slices);
    decoder
        .expand(window, 0..len as u64, &mut segments)
        .unwrap();
    assert_eq!(out, presented, "{chain:?}: a segment for each byte");
}

/// A window or a destination that is a byte short is refused before anything is written.
fn small_windows(chain: &Chain) {
    let (source, packed) = sample(chain, 33);
    let decoder = decoder(chain, None);
    let len = source.bytes.len() as u64;
    let mut out = vec![0; source.bytes.len()];
    let short = [
        PackedWindow {
            first_byte: 0,
            bytes: &packed[..packed.len() - 1],
        },
        PackedWindow {
            first_byte: 1,
            bytes: &packed[1..],
        },
        PackedWindow {
            first_byte: u64::MAX,
            bytes: &packed,
        },
    ];
    for window in short {
        let error = decoder
            .expand(window, 0..len, &mut OutSegments::from_slice(&mut out))
            .unwrap_err();
        assert!(
            matches!(error, TransformError::WindowTooSmall { .. }),
            "{chain:?}: {error}"
        );
    }
    let window = PackedWindow {
        first_byte: 0,
        bytes: &packed,
    };
    // A whole element on, or a group: in the bits that fill up the last byte, or group, there may be room for a field that nobody packed.
    let beyond = len + (chain.packing().unit_elements() * chain.source().bytes() as u64).max(64);
    for far in [beyond..beyond + 1, u64::MAX - 1..u64::MAX] {
        let error = decoder
            .expand(window, far, &mut OutSegments::from_slice(&mut out))
            .unwrap_err();
        assert!(
            matches!(error, TransformError::WindowTooSmall { .. }),
            "{chain:?}: {error}"
        );
    }
    let mut small = OutSegments::from_slice(&mut out).limited_to(source.bytes.len() - 1);
    assert_eq!(
        decoder.expand(window, 0..len, &mut small),
        Err(TransformError::DestinationTooSmall {
            needed: len,
            available: len - 1
        }),
        "{chain:?}"
    );
    assert!(out.iter().all(|byte| *byte == 0), "{chain:?}: wrote");
}

/// Every type as a view: integers in that type, or the first one that does not fit it; floating point apart; nothing from one to the other.
fn views(chain: &Chain) {
    let (refused, why) = if chain.range().is_none() {
        float_views(chain);
        q8::views(chain);
        ("u16", "only integers")
    } else {
        ("f32", "integers do not become")
    };
    let error = ViewChain::parse(refused, chain.source()).unwrap_err();
    assert!(
        matches!(error, TransformError::Input { why: said, .. } if said.starts_with(why)),
        "{error}"
    );
    if chain.range().is_none() {
        return;
    }
    for presented in ElementType::INTEGERS {
        let view = ViewChain::parse(presented.name(), chain.source()).unwrap();
        for pattern in [Pattern::Lowest, Pattern::Highest, Pattern::Noise] {
            let source = Source::new(chain, pattern, 150);
            let packed = oracle::packed(chain, &source);
            let decoder = Decoder::new(chain, &view, None).unwrap();
            assert_eq!(decoder.presented(), Packing::Whole(presented));
            let len = 150 * presented.bytes();
            let mut guarded = Guarded::new(len);
            let result = expand_exactly(&decoder, &packed, 0..len as u64, guarded.inner());
            let what = format!("{chain:?} as {presented}, {pattern:?}");
            guarded.check(&what);
            let held = presented.range().unwrap();
            match source.values.iter().position(|v| !held.contains(*v)) {
                None => {
                    result.unwrap();
                    let expected = oracle::fields(Packing::Whole(presented), &source.values);
                    assert_eq!(guarded.inner(), expected, "{what}");
                }
                Some(index) => assert_eq!(
                    result,
                    Err(TransformError::OutOfRange {
                        index: index as u64,
                        value: source.values[index],
                        target: Packing::Whole(presented)
                    }),
                    "{what}"
                ),
            }
        }
    }
}

/// Every floating-point type as a view: the stored numbers in that type, by the definition, in one rounding; cut at every byte.
fn float_views(chain: &Chain) {
    let from = chain.source();
    for presented in ElementType::FLOATS {
        let view = ViewChain::parse(presented.name(), from);
        if presented != from && presented.bits() == from.bits() {
            let error = view.unwrap_err();
            assert!(matches!(error, TransformError::Input { .. }), "{error}");
            continue;
        }
        let decoder = Decoder::new(chain, &view.unwrap(), None).unwrap();
        assert_eq!(decoder.presented(), Packing::Whole(presented));
        let what = format!("{chain:?} as {presented}");
        for pattern in Pattern::ALL {
            for count in [1, 17, 150, 4500] {
                let source = Source::new(chain, pattern, count);
                let packed = oracle::packed(chain, &source);
                let expected = oracle::presented(chain, &packed, presented, count);
                let mut guarded = Guarded::new(expected.len());
                let range = 0..expected.len() as u64;
                expand_exactly(&decoder, &packed, range, guarded.inner()).unwrap();
                assert_eq!(guarded.inner(), expected, "{what}, {pattern:?} x{count}");
                guarded.check(&what);
            }
        }
        let (_, packed) = sample(chain, 9);
        let expected = oracle::presented(chain, &packed, presented, 9);
        for start in 0..expected.len() {
            for end in start..=expected.len() {
                let mut out = vec![0; end - start];
                let range = start as u64..end as u64;
                expand_exactly(&decoder, &packed, range, &mut out).unwrap();
                assert_eq!(out, expected[start..end], "{what}: bytes {start}..{end}");
            }
        }
    }
}

/// A stored value outside the proven range is refused with its place, in every read that touches it and in no other.
fn outside_proven(chain: &Chain) {
    let decoded = Decoder::new(chain, &ViewChain::identity(), None).unwrap();
    let Some(held) = chain.range() else {
        return;
    };
    if decoded.is_copy() || held.min == held.max {
        return;
    }
    // All values but the largest are proven.
    let proven = ValueRange {
        min: held.min,
        max: held.max - 1,
    };
    let decoder = Decoder::new(chain, &ViewChain::identity(), Some(proven)).unwrap();
    let size = chain.source().bytes();
    let mut source = Source::new(chain, Pattern::Lowest, 4200);
    let mut out = vec![0; source.bytes.len()];
    for index in [0, 1, 8, 63, 64, 4095, 4096, 4199] {
        source.set(index, held.max);
        let packed = oracle::packed(chain, &source);
        source.set(index, held.min);
        let error = TransformError::OutsideProven {
            index: index as u64,
            value: held.max,
            range: proven,
        };
        let place = index * size;
        for (range, expected) in [
            (0..out.len(), Err(error.clone())),
            (place..out.len(), Err(error.clone())),
            (place + size - 1..out.len(), Err(error.clone())),
            (0..place + 1, Err(error.clone())),
            (place..place + 1, Err(error)),
            (0..place, Ok(())),
            (place + size..out.len(), Ok(())),
        ] {
            let range = range.start as u64..range.end as u64;
            let len = usize::try_from(range.end - range.start).unwrap();
            let result = expand_exactly(&decoder, &packed, range.clone(), &mut out[..len]);
            assert_eq!(result, expected, "{chain:?}: {index}, read {range:?}");
        }
    }
}

/// Reads `range` from a window of exactly the packed bytes that the decoder asks for.
pub(super) fn expand_exactly(
    decoder: &Decoder,
    packed: &[u8],
    range: Range<u64>,
    out: &mut [u8],
) -> Result<(), TransformError> {
    let needed = decoder.packed_window(range.clone());
    let start = usize::try_from(needed.start).unwrap();
    let end = usize::try_from(needed.end).unwrap();
    // A copy, so that a byte read outside it is outside an allocation.
    let window = packed[start..end].to_vec();
    let window = PackedWindow {
        first_byte: needed.start,
        bytes: &window,
    };
    decoder.expand(window, range, &mut OutSegments::from_slice(out))
}

/// Elements without pattern, and their packed form.
fn sample(chain: &Chain, count: usize) -> (Source, Vec<u8>) {
    let source = Source::new(chain, Pattern::Noise, count);
    let packed = oracle::packed(chain, &source);
    (source, packed)
}
