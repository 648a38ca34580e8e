//! What a chain promises of values: all of them back, or how far off they may be.

use crate::element::ElementType;

/// What becomes of a value on its way through a chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contract {
    /// It comes back, bit for bit.
    Lossless,
    /// It is rounded.
    Rounded(Rounding),
}

/// Rounding to nearest, ties to even, to a type: the bounds of IEEE 754-2019, section 4.3.1. For a number `x` that becomes the finite `y`,
/// `|y - x| <= max(relative * |x|, absolute)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rounding {
    /// The type rounded to.
    pub to: ElementType,
    /// Half an ulp over the number: 2^-8 for bf16, 2^-11 for f16, 2^-24 for f32.
    pub relative: f64,
    /// Half the smallest subnormal number: 2^-134, 2^-25, 2^-150.
    pub absolute: f64,
    /// Numbers of this magnitude and larger become infinite: 65,520 for f16.
    pub infinite_from: f64,
}

impl Contract {
    /// Of one conversion.
    pub(crate) fn of(from: ElementType, to: ElementType) -> Contract {
        if from.is_integer() || to.is_integer() || from.bits() <= to.bits() {
            return Contract::Lossless;
        }
        // Bits of precision, and the largest and smallest exponent of a normal number.
        let (precision, largest, smallest) = match to {
            ElementType::F16 => (11, 15, -14),
            ElementType::Bf16 => (8, 127, -126),
            _ => (24, 127, -126),
        };
        let relative = 2f64.powi(-precision);
        Contract::Rounded(Rounding {
            to,
            relative,
            absolute: 2f64.powi(smallest - precision),
            infinite_from: (2.0 - relative) * 2f64.powi(largest),
        })
    }

    /// Whether values may change.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        *self != Contract::Lossless
    }
}
