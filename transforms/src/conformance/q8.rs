//! Groups with a scale by their definition: rounding as `gguf` writes it, and the scale's type by the bits.

use super::floats::{converted, converted_all};
use crate::ElementType::{F16, F32};
use crate::{ElementType, TransformError};

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

/// The same bits, or what is finite and has a scale: without the highest bit of the exponent.
pub(super) fn scalable(element: ElementType, bits: u64) -> u64 {
    let mask = u64::MAX >> (64 - element.bits());
    let wide = converted(element, F32, bits & mask);
    let number = f32::from_bits(u32::try_from(wide).unwrap());
    if number.abs() < 8_321_040.0 {
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
    for wide in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 8_321_040.0] {
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
