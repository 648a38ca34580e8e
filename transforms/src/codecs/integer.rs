//! `u8` .. `i64`: stores integers in a narrower or wider integer type. Lossless: what does not fit is an error.

use crate::TransformError;
use crate::codecs::typed::Typed;
use crate::element::{ElementType, Packing};
use crate::registry::{Descriptor, ElementTransform, Layout, Parameter, Transform, TransformId};

/// The number on the volume.
pub const ID: TransformId = TransformId(1);

/// The step named by its target type; the parameter is the type's code.
pub struct Integer;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "integer",
    parameter: Parameter::Own,
    grammar: "u8|i8|u16|i16|u32|i32|u64|i64",
    summary: "narrows or widens integers, each value checked",
};

static TYPED: Typed = Typed {
    descriptor: &DESCRIPTOR,
    types: &ElementType::INTEGERS,
};

impl Transform for Integer {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn parse(&self, text: &str) -> Option<Result<u32, TransformError>> {
        TYPED.parse(text)
    }

    fn format(&self, parameter: u32) -> String {
        TYPED.format(parameter)
    }
}

impl ElementTransform for Integer {
    fn output(&self, input: &Layout, parameter: u32) -> Result<Layout, TransformError> {
        let element = TYPED.target(parameter)?;
        let refuse = |why| TransformError::Input {
            step: element.name().into(),
            input: input.packing,
            why,
        };
        if matches!(input.packing, Packing::Bits(_)) {
            return Err(refuse("bitpack is the last element step"));
        }
        let held = input
            .range
            .ok_or_else(|| refuse("only integers are narrowed and widened"))?;
        let range = element.range().and_then(|r| r.intersection(&held));
        Ok(Layout {
            packing: Packing::Whole(element),
            range,
        })
    }
}
