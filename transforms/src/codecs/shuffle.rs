//! `shuffle`: gathers byte 0 of every element, then byte 1 of every element, and so on, so that a compressor finds like beside
//! like. As long as its input.

use crate::TransformError;
use crate::element::Packing;
use crate::kernels::transpose;
use crate::registry::{BlockTransform, Descriptor, Geometry, Parameter, Transform, TransformId};
use crate::scratch::Contexts;

/// The number on the volume.
pub const ID: TransformId = TransformId(0x100);

/// The step `shuffle`; it takes no parameter: the width is the packed element's.
pub struct Shuffle;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "shuffle",
    parameter: Parameter::None,
    grammar: "shuffle",
    summary: "splits elements into planes of their bytes, for a compressor behind it",
};

impl Transform for Shuffle {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl BlockTransform for Shuffle {
    fn check(&self, input: Packing, _reordered: bool) -> Result<(), TransformError> {
        let packed_bits = input.bits();
        if input == Packing::Q8_0 || !packed_bits.is_multiple_of(8) || packed_bits < 16 {
            return Err(TransformError::Input {
                step: DESCRIPTOR.name.into(),
                input,
                why: "elements must be two or more whole bytes",
            });
        }
        Ok(())
    }

    fn shrinks(&self) -> bool {
        false
    }

    fn encode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        _contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let Some(dst) = dst.get_mut(..src.len()) else {
            return Ok(None);
        };
        transpose::split(geometry.isa, width_bytes(geometry), src, dst);
        Ok(Some(src.len()))
    }

    fn decode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        _contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        if src.len() != dst.len() {
            return Err(TransformError::Corrupt {
                step: DESCRIPTOR.name,
                why: format!("{} bytes where {} belong", src.len(), dst.len()),
            });
        }
        transpose::join(geometry.isa, width_bytes(geometry), src, dst);
        Ok(())
    }
}

fn width_bytes(geometry: Geometry<'_>) -> usize {
    (geometry.packed_bits / 8) as usize
}
