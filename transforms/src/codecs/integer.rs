//! `u8` .. `i64`: stores integers in a narrower or wider integer type. Lossless: what does not fit is an error.

use crate::codecs::typed::Typed;
use crate::element::{ElementType, Packing};
use crate::registry::{Descriptor, Layout, Parameter, TransformId};

/// The number on the volume.
pub const ID: TransformId = TransformId(1);

/// The step.
pub static INTEGER: Typed = Typed {
    descriptor: &DESCRIPTOR,
    types: &ElementType::INTEGERS,
    output,
};

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "integer",
    parameter: Parameter::Own,
    grammar: "u8|i8|u16|i16|u32|i32|u64|i64",
    summary: "narrows or widens integers, each value checked",
};

fn output(input: &Layout, element: ElementType) -> Result<Layout, &'static str> {
    if matches!(input.packing, Packing::Bits(_)) {
        return Err("bitpack is the last element step");
    }
    let held = input
        .range
        .ok_or("only integers are narrowed and widened")?;
    let range = element.range().and_then(|r| r.intersection(&held));
    Ok(Layout {
        packing: Packing::Whole(element),
        range,
    })
}
