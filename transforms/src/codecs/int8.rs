//! `int8:ROW`: numbers in rows of so many elements, each in 8 bits as a multiple of its row's scale. The scales are the volume's, as f32. Lossy.
//!
//! A row is what a weight matrix has of one output channel, and what an embedding table has of one token: the last axis of what lies row by row. The
//! scale is the largest magnitude of the row divided by 127; a multiple is rounded to nearest, ties to even, as numpy's `rint`.

use crate::TransformError;
use crate::element::{ElementType, Packing};
use crate::registry::{Descriptor, ElementTransform, Layout, Parameter, Transform, TransformId};

/// The number on the volume.
pub const ID: TransformId = TransformId(5);

/// The step `int8:ROW`; its parameter is the elements of a row.
pub struct Int8;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "int8",
    parameter: Parameter::Number {
        range: 1..=u32::MAX,
        default: None,
    },
    grammar: "int8:ROW (elements of a row, which has a scale: 1 to 4294967295)",
    summary: "quantizes floating point to 8 bits, with a scale of the volume for each row",
};

impl Transform for Int8 {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl ElementTransform for Int8 {
    fn output(&self, input: &Layout, parameter: u32) -> Result<Layout, TransformError> {
        match input.packing {
            Packing::Whole(ElementType::F32 | ElementType::Bf16 | ElementType::F16) => Ok(Layout {
                packing: Packing::Int8 {
                    row_elements: parameter,
                },
                range: None,
            }),
            input => Err(TransformError::Input {
                step: self.format(parameter),
                input,
                why: "it takes f32, bf16 and f16",
            }),
        }
    }
}
