//! What a chain promises of values: all of them back, or how far off they may be.

use crate::element::ElementType;
use crate::kernels::q8;

/// What becomes of a value on its way through a chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contract {
    /// It comes back, bit for bit.
    Lossless,
    /// It is rounded.
    Rounded(Rounding),
    /// It is rounded to a whole multiple of a scale, which its group of values has in common.
    Quantized(Quantization),
}

/// Quantization in groups: of a group whose largest magnitude is `a`, a number `x` becomes `y` with
/// `|y - x| <= of_largest * a + absolute`, unless rounding to the source's type makes it infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantization {
    /// Values of a group.
    pub group_elements: u64,
    /// Half a step, what the scale loses as an f16, what arithmetic loses, and what rounding to the source's type does.
    pub of_largest: f64,
    /// What a subnormal scale loses, or one that is 0.
    pub absolute: f64,
    /// Numbers of this magnitude and larger are refused, as are NaNs.
    pub below: f64,
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

    /// Of `q8_0`, read back in the type that it was made of.
    pub(crate) fn of_q8_0(source: ElementType) -> Contract {
        // With d = a / 127: half a step is d / 2; 127 steps of a scale that is off by 2^-11 d, or by 2^-25 where it is subnormal; and five
        // roundings of f32 on the way are less than 2^-21.
        let (relative, absolute) = match Contract::of(ElementType::F32, source) {
            Contract::Rounded(rounding) => (rounding.relative, rounding.absolute),
            _ => (0.0, 0.0),
        };
        let of_largest = 0.5 / 127.0 + 2f64.powi(-11) + 2f64.powi(-21);
        let subnormal = 127.0 * 2f64.powi(-25);
        Contract::Quantized(Quantization {
            group_elements: q8::GROUP_ELEMENTS as u64,
            of_largest: of_largest + relative * (1.0 + of_largest),
            absolute: subnormal * (1.0 + relative) + absolute,
            below: f64::from(q8::UNSCALABLE_FROM),
        })
    }

    /// Of `int8`, read back in the type that it was made of.
    pub(crate) fn of_int8(source: ElementType, row_elements: u32) -> Contract {
        // With d = a / 127: half a step is d / 2, and five roundings of f32 on the way are less than 2^-21.
        let (relative, absolute) = match Contract::of(ElementType::F32, source) {
            Contract::Rounded(rounding) => (rounding.relative, rounding.absolute),
            _ => (0.0, 0.0),
        };
        let of_largest = 0.5 / 127.0 + 2f64.powi(-21);
        // Rows below it have no scale, and are zeros.
        let unscaled = 127.0 * 2f64.powi(-128);
        Contract::Quantized(Quantization {
            group_elements: row_elements.into(),
            of_largest: of_largest + relative * (1.0 + of_largest),
            absolute: unscaled + absolute,
            below: f64::INFINITY,
        })
    }

    /// Whether values may change.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        *self != Contract::Lossless
    }
}
