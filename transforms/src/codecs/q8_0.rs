//! `q8_0`: numbers in groups of 32, each in 8 bits as a multiple of the group's scale: the blocks of GGUF's type Q8_0, byte for byte. Lossy.
//!
//! The scale is the largest magnitude divided by 127, kept as an f16; a multiple is rounded to nearest, half away from zero, by the scale before it
//! became an f16. So do `ggml` and the PyPI package `gguf` (`gguf.quants.Q8_0`), with which every byte agrees. What they leave to the machine is
//! settled here: numbers that are not finite or whose scale would not be are refused, and groups whose scale has no reciprocal in f32 (all below
//! 2^-120) are zeros.

use crate::TransformError;
use crate::element::{ElementType, Packing};
use crate::registry::{Descriptor, ElementTransform, Layout, Parameter, Transform, TransformId};

/// The number on the volume.
pub const ID: TransformId = TransformId(4);

/// The step `q8_0`; it takes no parameter.
pub struct Q8_0;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "q8_0",
    parameter: Parameter::None,
    grammar: "q8_0",
    summary: "quantizes floating point to 8 bits, with a scale for each 32 numbers, as GGUF's Q8_0",
};

impl Transform for Q8_0 {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl ElementTransform for Q8_0 {
    fn output(&self, input: &Layout, parameter: u32) -> Result<Layout, TransformError> {
        match input.packing {
            Packing::Whole(ElementType::F32 | ElementType::Bf16 | ElementType::F16) => Ok(Layout {
                packing: Packing::Q8_0,
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
