//! `f16` `bf16` `f32` `f64`: floating point in a narrower or wider type. Narrowing rounds to nearest, ties to even, so it is lossy; widening
//! keeps every bit.
//!
//! The result of narrowing is that of IEEE 754-2019, section 4.3.1 (roundTiesToEven), rounded once: what is too large becomes infinite, subnormal
//! numbers are kept. A NaN keeps its sign and the upper bits of its payload and becomes quiet (section 6.2.3). Widening keeps a NaN's bits, the
//! quiet bit among them.

use crate::codecs::typed::Typed;
use crate::element::{ElementType, Packing};
use crate::registry::{Descriptor, Layout, Parameter, TransformId};

/// The number on the volume.
pub const ID: TransformId = TransformId(3);

/// The step.
pub static FLOAT: Typed = Typed {
    descriptor: &DESCRIPTOR,
    types: &ElementType::FLOATS,
    output,
};

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "float",
    parameter: Parameter::Own,
    grammar: "f16|bf16|f32|f64",
    summary: "rounds floating point to a narrower type, to nearest even; a view may also widen it, exactly",
};

fn output(input: &Layout, element: ElementType) -> Result<Layout, &'static str> {
    match input.packing {
        Packing::Whole(from) if from.is_integer() => Err("integers do not become floating point"),
        Packing::Whole(from) if from != element && from.bits() == element.bits() => {
            Err("neither of f16 and bf16 holds the other's values; f32 holds both")
        }
        Packing::Whole(_) => Ok(Layout {
            packing: Packing::Whole(element),
            range: None,
        }),
        Packing::Bits(_) => Err("bitpack is the last element step"),
        Packing::Q8_0 => Err("q8_0 is the last element step"),
        Packing::Int8 { .. } => Err("int8 is the last element step"),
    }
}
