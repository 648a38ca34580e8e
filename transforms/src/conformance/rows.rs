//! Rows with a scale by their definition, in the words of numpy: `rint(x * (1 / scale))`, and `steps * scale`.

use super::floats::{converted, converted_all};
use crate::ElementType::F32;
use crate::{Chain, ElementType, Packing, Scratch, Table, TableKind, TransformError};

/// The scale of element `index`.
fn scale(chain: &Chain, index: usize) -> f32 {
    let (Packing::Int8 { row_elements }, Some(Table::Scales(scales))) =
        (chain.packing(), chain.table(TableKind::Scales))
    else {
        panic!("{chain:?} has no rows");
    };
    scales.values()[index / row_elements as usize]
}

fn by(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

fn numbers(element: ElementType, elements: &[u8]) -> Vec<f32> {
    let wide = converted_all(element, F32, elements);
    let numbers = wide.chunks(4).map(|it| it.try_into().unwrap());
    numbers.map(f32::from_le_bytes).collect()
}

/// Multiples of the scales, of the first elements of a stream.
pub(super) fn packed(chain: &Chain, elements: &[u8]) -> Vec<u8> {
    let steps = |(index, number): (usize, f32)| {
        let steps = (number * by(scale(chain, index))).round_ties_even();
        assert!(steps.abs() <= 127.0, "{number} does not fit its row");
        #[allow(clippy::cast_possible_truncation)] // asserted
        let steps = steps as i8;
        steps.cast_unsigned()
    };
    let numbers = numbers(chain.source(), elements);
    numbers.into_iter().enumerate().map(steps).collect()
}

/// The numbers of multiples, as f32.
pub(super) fn presented(chain: &Chain, packed: &[u8]) -> Vec<u8> {
    let numbers = packed.iter().enumerate();
    let numbers = numbers.map(|(index, it)| f32::from(it.cast_signed()) * scale(chain, index));
    numbers.flat_map(f32::to_le_bytes).collect()
}

/// The same bits where they are a number that fits its row, else another number that does.
pub(super) fn fitting(chain: &Chain, index: usize, bits: u64) -> u64 {
    let (source, scale) = (chain.source(), scale(chain, index));
    let mask = u64::MAX >> (64 - source.bits());
    let number = |bits| f32::from_bits(u32::try_from(converted(source, F32, bits)).unwrap());
    let fits = |number: f32| {
        let tiny = scale == 0.0 && (number.abs() / 127.0).recip().is_infinite();
        tiny || scale > 0.0 && (number * by(scale)).abs() < 127.5
    };
    if fits(number(bits & mask)) {
        return bits & mask;
    }
    let part = u16::try_from(bits & 0xFFFF).unwrap();
    let other = (f32::from(part) / 65535.0 * 2.0 - 1.0) * 127.0 * scale;
    let bits = converted(F32, source, other.to_bits().into());
    if fits(number(bits)) { bits } else { 0 }
}

/// What is beyond its scale is refused with its place, wherever it stands.
pub(super) fn refusals(chain: &Chain, elements: &mut [u8]) {
    let mut scratch = Scratch::new();
    let size = chain.source().bytes();
    let mut stored = vec![0; elements.len() / size];
    for index in (0..70).chain([4095, 4096, 4999]) {
        let large = 128.0 * scale(chain, index) + 1e-36;
        for wide in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, large, -large] {
            let bits = converted(F32, chain.source(), wide.to_bits().into());
            let refused = u32::try_from(converted(chain.source(), F32, bits)).unwrap();
            if f32::from_bits(refused) == 0.0 {
                continue;
            }
            let at = index * size..(index + 1) * size;
            let good = elements[at.clone()].to_vec();
            elements[at.clone()].copy_from_slice(&bits.to_le_bytes()[..size]);
            let expected = TransformError::BeyondScale {
                index: index as u64,
                bits: refused,
            };
            let encoded = chain.encode_frame(elements, &mut scratch, &mut stored);
            assert_eq!(encoded, Err(expected.clone()), "{chain:?}: {wide}");
            let mut read_back = vec![0; elements.len()];
            let read_back = chain.read_back(elements, &mut read_back);
            assert_eq!(read_back, Err(expected), "{chain:?}: {wide}, read back");
            elements[at].copy_from_slice(&good);
        }
    }
}
