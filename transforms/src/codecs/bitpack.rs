//! `bitpack:K`: stores each integer in K bits, K in 1..=32. Lossless: a value over K bits, or below zero, is an error.

use crate::TransformError;
use crate::element::{Packing, ValueRange};
use crate::registry::{Descriptor, ElementTransform, Layout, Parameter, Transform, TransformId};

/// The number on the volume.
pub const ID: TransformId = TransformId(2);

/// The widest field.
pub const BITS_MAX: u32 = 32;

/// The step `bitpack:K`; the parameter is K.
pub struct Bitpack;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "bitpack",
    parameter: Parameter::Number {
        range: 1..=BITS_MAX,
        default: None,
    },
    grammar: "bitpack:1..32",
    summary: "stores integers in K bits each, least significant bit first, each value checked",
};

impl Transform for Bitpack {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl ElementTransform for Bitpack {
    fn output(&self, input: &Layout, parameter: u32) -> Result<Layout, TransformError> {
        let refuse = |why| TransformError::Input {
            step: self.format(parameter),
            input: input.packing,
            why,
        };
        if matches!(input.packing, Packing::Bits(_)) {
            return Err(refuse("bitpack is the last element step"));
        }
        let held = input
            .range
            .ok_or_else(|| refuse("only integers are packed in bits"))?;
        Ok(Layout {
            packing: Packing::Bits(parameter),
            range: ValueRange::of_bits(parameter).intersection(&held),
        })
    }
}
