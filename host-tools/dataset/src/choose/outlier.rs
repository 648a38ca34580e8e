//! A value that alone keeps elements from being narrowed: what data often has for "none", as padding of -1 or 2^32 - 1.

use transforms::{ElementType, ValueRange, range_of};

use super::Wish;
use super::candidates::candidates;
use crate::survey::union;

/// Such a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlier {
    /// The smallest of all elements, or the largest that their type has.
    pub value: i128,
    /// The range of the others, of those in the sample.
    pub others: ValueRange,
}

impl Outlier {
    /// The one of elements that have this range, by their sample: without it there are chains to try that there are not with it.
    pub(super) fn find(
        element: ElementType,
        range: Option<ValueRange>,
        sample: &[Vec<u8>],
    ) -> Option<Outlier> {
        let range = range.filter(|_| element.is_integer())?;
        let largest = element.range()?.max;
        let value = match range.min < 0 {
            true => range.min,
            false => Some(range.max).filter(|max| *max == largest)?,
        };
        let others = sample.iter().map(|piece| without(element, value, piece));
        let others = others.fold(None, |all, piece| union(all, range_of(element, &piece)))?;
        let chains = |range| candidates(element, Some(range), &Wish::default()).len();
        (chains(others) > chains(range)).then_some(Outlier { value, others })
    }
}

/// The elements that are not `value`.
fn without(element: ElementType, value: i128, piece: &[u8]) -> Vec<u8> {
    // Little-endian, and a value of the type: its lower bytes.
    let bytes = value.to_le_bytes();
    let value = &bytes[..element.bytes()];
    let others = piece.chunks_exact(element.bytes());
    others
        .filter(|it| *it != value)
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const N: usize>(element: ElementType, values: &[[u8; N]]) -> Option<(i128, i128, i128)> {
        let sample = [values[..2].concat(), values[2..].concat()];
        let range = range_of(element, &values.concat());
        let found = Outlier::find(element, range, &sample)?;
        Some((found.value, found.others.min, found.others.max))
    }

    #[test]
    fn one_value_that_stands_for_none_is_told_from_values() {
        use ElementType::{I8, I32, U16, U32};
        let padded = [5, u32::MAX, 40_000, u32::MAX, 1].map(u32::to_le_bytes);
        assert_eq!(of(U32, &padded), Some((u32::MAX.into(), 1, 40_000)));
        let ignored = [5, -100, 40_000, -100, 1].map(i32::to_le_bytes);
        assert_eq!(of(I32, &ignored), Some((-100, 1, 40_000)));

        let ids = [5u32, 70_000, 40_000, 3].map(u32::to_le_bytes);
        assert_eq!(of(U32, &ids), None, "an id like others");
        let signed = [-128i8, 127, -127, 3].map(i8::to_le_bytes);
        assert_eq!(of(I8, &signed), None);
        let one = [7u16, 7, 7].map(u16::to_le_bytes);
        assert_eq!(of(U16, &one), None, "no others");
        assert_eq!(Outlier::find(ElementType::F32, None, &[vec![0; 8]]), None);
    }
}
