//! Groups with a scale by their definition: rounding as `gguf` writes it, and the scale's type by the bits.

use super::floats::{converted, converted_all};
use super::reads::expand_exactly;
use super::samples::{Pattern, Source};
use super::{Guarded, oracle};
use crate::ElementType::{F16, F32, F64};
use crate::{
    Chain, Decoder, ElementType, OutSegments, PackedWindow, Packing, TransformError, ViewChain,
};

const GROUP_ELEMENTS: usize = 32;

/// The groups of these elements.
pub(super) fn packed(element: ElementType, elements: &[u8]) -> Vec<u8> {
    let numbers = converted_all(element, F32, elements);
    let numbers: Vec<f32> = numbers.chunks(4).map(number).collect();
    numbers.chunks(GROUP_ELEMENTS).flat_map(group).collect()
}

fn number(bytes: &[u8]) -> f32 {
    f32::from_le_bytes(bytes.try_into().unwrap())
}

fn group(numbers: &[f32]) -> Vec<u8> {
    let largest = numbers.iter().fold(0f32, |one, other| one.max(other.abs()));
    let scale = largest / 127.0;
    let by = match 1.0 / scale {
        by if by.is_infinite() => 0.0,
        by => by,
    };
    let bits = converted(F32, F16, scale.to_bits().into());
    let mut group = bits.to_le_bytes()[..2].to_vec();
    group.resize(2 + GROUP_ELEMENTS, 0);
    for (to, number) in group[2..].iter_mut().zip(numbers) {
        let magnitude = (number * by).abs();
        let floored = magnitude.floor();
        let steps = floored + (2.0 * (magnitude - floored)).floor();
        #[allow(clippy::cast_possible_truncation)] // at most 127
        let steps = steps.copysign(*number) as i8;
        *to = steps.cast_unsigned();
    }
    group
}

/// The numbers of groups, as f32.
pub(super) fn numbers(packed: &[u8]) -> Vec<u8> {
    let numbers = |group: &[u8]| {
        let bits = converted(F16, F32, u64::from(group[0]) | u64::from(group[1]) << 8);
        let scale = f32::from_bits(u32::try_from(bits).unwrap());
        let steps = group[2..]
            .iter()
            .map(|steps| f32::from(steps.cast_signed()));
        steps.map(|steps| steps * scale).collect::<Vec<f32>>()
    };
    let all = packed.chunks(2 + GROUP_ELEMENTS).flat_map(numbers);
    all.flat_map(f32::to_le_bytes).collect()
}

/// Below it numbers have a scale.
pub(super) const UNSCALABLE_FROM: f32 = 8_321_040.0;

/// The same bits, or what is finite and below `limit`: without the highest bit of the exponent.
pub(super) fn scalable(element: ElementType, bits: u64, limit: f32) -> u64 {
    let mask = u64::MAX >> (64 - element.bits());
    let wide = converted(element, F32, bits & mask);
    let number = f32::from_bits(u32::try_from(wide).unwrap());
    if number.abs() < limit {
        bits
    } else {
        bits & !(1 << (element.bits() - 2))
    }
}

/// Numbers without a scale are refused with their place, wherever they stand, and so are stored scales that are no numbers.
pub(super) fn refusals(chain: &crate::Chain, source: &mut super::Source) {
    let mut scratch = crate::Scratch::new();
    let elements = (source.bytes.len() / chain.source().bytes()) as u64;
    let mut stored = vec![0; usize::try_from(chain.stored_bytes_max(elements)).unwrap()];
    let size = chain.source().bytes();
    for wide in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, UNSCALABLE_FROM] {
        let bits = converted(F32, chain.source(), wide.to_bits().into());
        let refused = converted(chain.source(), F32, bits);
        let number = bits.to_le_bytes();
        for index in (0..70).chain([4095, 4096, 4999]) {
            let at = index * size..(index + 1) * size;
            let good = source.bytes[at.clone()].to_vec();
            source.bytes[at.clone()].copy_from_slice(&number[..size]);
            let expected = TransformError::Unscalable {
                index: index as u64,
                bits: u32::try_from(refused).unwrap(),
            };
            let encoded = chain.encode_frame(&source.bytes, &mut scratch, &mut stored);
            assert_eq!(encoded, Err(expected.clone()), "{chain:?}: {wide}");
            let mut read_back = vec![0; source.bytes.len()];
            let read_back = chain.read_back(&source.bytes, &mut read_back);
            assert_eq!(read_back, Err(expected), "{chain:?}: {wide}, read back");
            source.bytes[at].copy_from_slice(&good);
        }
    }
}

/// Blocks as a view: those of the numbers that are stored, by the definition, whatever they are stored as; read whole, in every range of bytes,
/// cut at every byte. Numbers without a scale are an error of the reads that touch their block, and of no other.
pub(super) fn views(chain: &Chain) {
    let view = ViewChain::parse("q8_0", chain.source());
    if chain.source() == F64 {
        let error = view.unwrap_err();
        assert!(matches!(error, TransformError::Input { .. }), "{error}");
        return;
    }
    let view = view.unwrap();
    assert!(view.contract().is_lossy());
    let decoder = Decoder::new(chain, &view, None).unwrap();
    assert_eq!(decoder.presented(), Packing::Q8_0);
    let blocks = |packed: &[u8], count: usize| match chain.packing() {
        Packing::Q8_0 => packed.to_vec(),
        _ => self::packed(F32, &oracle::presented(chain, packed, F32, count)),
    };
    for pattern in Pattern::ALL {
        for count in [32, 64, 1056, 4544] {
            let source = Source::new(chain, pattern, count).scalable();
            let packed = oracle::packed(chain, &source);
            let expected = blocks(&packed, count);
            let mut guarded = Guarded::new(expected.len());
            let range = 0..expected.len() as u64;
            expand_exactly(&decoder, &packed, range, guarded.inner()).unwrap();
            let what = format!("{chain:?} in blocks, {pattern:?} x{count}");
            assert_eq!(guarded.inner(), expected, "{what}");
            guarded.check(&what);
        }
    }
    let source = Source::new(chain, Pattern::Noise, 96).scalable();
    let packed = oracle::packed(chain, &source);
    let expected = blocks(&packed, 96);
    for start in 0..expected.len() {
        for end in start..=expected.len() {
            let mut out = vec![0; end - start];
            let range = start as u64..end as u64;
            expand_exactly(&decoder, &packed, range, &mut out).unwrap();
            assert_eq!(out, expected[start..end], "{chain:?}: bytes {start}..{end}");
        }
        let mut out = vec![0; expected.len()];
        let (front, back) = out.split_at_mut(start);
        let mut slices: [&mut [u8]; 2] = [front, back];
        let mut segments = OutSegments::from_slices(&mut slices);
        let window = PackedWindow {
            first_byte: 0,
            bytes: &packed,
        };
        decoder
            .expand(window, 0..expected.len() as u64, &mut segments)
            .unwrap();
        assert_eq!(out, expected, "{chain:?}: cut at {start}");
    }
    if chain.packing() == Packing::Whole(chain.source()) {
        unscalable(&decoder, chain.source(), &source.bytes);
    }
}

fn unscalable(decoder: &Decoder, element: ElementType, numbers: &[u8]) {
    let size = element.bytes();
    for index in 0..96 {
        let mut packed = numbers.to_vec();
        let infinite = converted(F32, element, f32::INFINITY.to_bits().into());
        packed[index * size..][..size].copy_from_slice(&infinite.to_le_bytes()[..size]);
        let refused = Err(TransformError::Unscalable {
            index: index as u64,
            bits: f32::INFINITY.to_bits(),
        });
        let block = index as u64 / 32 * 34..(index as u64 / 32 + 1) * 34;
        for (range, expected) in [
            (0..102, refused.clone()),
            (block.start..block.start + 1, refused.clone()),
            (block.end - 1..102, refused),
            (0..block.start, Ok(())),
            (block.end..102, Ok(())),
        ] {
            let mut out = vec![0; usize::try_from(range.end - range.start).unwrap()];
            let read = expand_exactly(decoder, &packed, range.clone(), &mut out);
            assert_eq!(read, expected, "{element}: {index}, read {range:?}");
        }
    }
}
