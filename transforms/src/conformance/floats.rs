//! Conversions of floating point by their definition, in whole numbers, apart from every kernel.

use crate::ElementType;

/// A binary format of IEEE 754-2019, section 3.3 (bf16 is one of its kind).
#[derive(Clone, Copy)]
struct Shape {
    /// Bits behind the point.
    fraction: u32,
    exponent: u32,
}

impl Shape {
    fn of(element: ElementType) -> Shape {
        let (fraction, exponent) = match element {
            ElementType::F16 => (10, 5),
            ElementType::Bf16 => (7, 8),
            ElementType::F32 => (23, 8),
            ElementType::F64 => (52, 11),
            _ => panic!("{element} is no floating point"),
        };
        Shape { fraction, exponent }
    }

    fn exponent_max(self) -> u64 {
        (1 << self.exponent) - 1
    }

    /// The exponent of the last place of the smallest numbers.
    fn last_place(self) -> i64 {
        let bias = i64::try_from(self.exponent_max() / 2).unwrap();
        1 - bias - i64::from(self.fraction)
    }
}

/// The bits of `bits`, a number of type `from`, in type `to`: rounded once, to nearest, ties to even. A NaN keeps its sign and as much of its
/// payload as there is room for; it becomes quiet unless the type holds all that the other does.
///
/// # Panics
/// When a type is no floating point.
#[must_use]
pub fn converted(from: ElementType, to: ElementType, bits: u64) -> u64 {
    let (source, target) = (Shape::of(from), Shape::of(to));
    let sign = bits >> (source.fraction + source.exponent) & 1;
    let exponent = bits >> source.fraction & source.exponent_max();
    let fraction = bits & ((1 << source.fraction) - 1);
    let infinite = target.exponent_max() << target.fraction;
    let magnitude = if exponent < source.exponent_max() {
        let hidden = u64::from(exponent > 0) << source.fraction;
        let power = source.last_place() + i64::try_from(exponent.max(1) - 1).unwrap();
        rounded(target, hidden | fraction, power).min(infinite)
    } else if fraction == 0 {
        infinite
    } else {
        let payload = if target.fraction >= source.fraction {
            fraction << (target.fraction - source.fraction)
        } else {
            fraction >> (source.fraction - target.fraction)
        };
        let keeps_all = from == to || to.bits() > from.bits();
        let quiet = u64::from(!keeps_all) << (target.fraction - 1);
        infinite | quiet | payload
    };
    sign << (target.fraction + target.exponent) | magnitude
}

/// `digits * 2^power` in a format, without a sign. What is too large comes out larger than infinity.
fn rounded(target: Shape, digits: u64, power: i64) -> u64 {
    if digits == 0 {
        return 0;
    }
    let leading = power + i64::from(digits.ilog2());
    let last_place = (leading - i64::from(target.fraction)).max(target.last_place());
    let kept = match u32::try_from(last_place - power) {
        Err(_) => digits << (power - last_place),
        // Less than half of the last place.
        Ok(dropped) if dropped > 63 => 0,
        Ok(0) => digits,
        Ok(dropped) => {
            let (floor, rest) = (digits >> dropped, digits & ((1 << dropped) - 1));
            let half = 1 << (dropped - 1);
            floor + u64::from(rest > half || (rest == half && floor % 2 == 1))
        }
    };
    // The first digit is the least bit of the exponent, so that a carry raises it.
    let exponent = u64::try_from(last_place - target.last_place()).unwrap();
    (exponent << target.fraction) + kept
}

/// Elements one after the other, converted.
pub(super) fn converted_all(from: ElementType, to: ElementType, elements: &[u8]) -> Vec<u8> {
    let element = |bytes: &[u8]| {
        let mut bits = [0; 8];
        bits[..bytes.len()].copy_from_slice(bytes);
        let converted = converted(from, to, u64::from_le_bytes(bits));
        converted.to_le_bytes()[..to.bytes()].to_vec()
    };
    elements.chunks(from.bytes()).flat_map(element).collect()
}
