//! `zstd-dict:LEVEL`: one Zstandard frame (RFC 8878) by a dictionary that the volume has, for frames so small that they have little to refer to in
//! themselves. As `zstd` has it, with its content size and without checksum; and without the dictionary's id, since the chain says which it is.

use zstd_safe::{CCtx, DCtx};

use super::zstd::LEVELS;
use super::zstd_frame::{DESTINATION_TOO_SMALL, Frames};
use crate::TransformError;
use crate::dictionary::Dictionary;
use crate::registry::{BlockTransform, Descriptor, Geometry, Parameter, Transform, TransformId};
use crate::scratch::Contexts;
use crate::table::TableKind;

/// The number on the volume.
pub const ID: TransformId = TransformId(0x105);

/// The step `zstd-dict:LEVEL`; the parameter is the level.
pub struct ZstdDict;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "zstd-dict",
    parameter: Parameter::Number {
        range: LEVELS,
        default: None,
    },
    grammar: "zstd-dict:1..22",
    summary: "one Zstandard frame, by a dictionary of the volume",
};

const FRAMES: Frames = Frames {
    step: DESCRIPTOR.name,
};

/// Contexts of their own: those of `zstd` never meet a dictionary.
struct Encoding(CCtx<'static>);
struct Decoding(DCtx<'static>);

impl Transform for ZstdDict {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl BlockTransform for ZstdDict {
    fn encode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let dictionary = dictionary(geometry)?;
        let prepared =
            dictionary
                .encoding(geometry.parameter)
                .ok_or_else(|| TransformError::Dictionary {
                    why: format!("it cannot be written by at level {}", geometry.parameter),
                })?;
        let Encoding(context) = contexts
            .get(|| CCtx::try_create().map(Encoding))
            .ok_or(NO_MEMORY)?;
        match context.compress_using_cdict(dst, src, prepared) {
            Ok(written) => Ok(Some(written)),
            Err(code) if code == DESTINATION_TOO_SMALL => Ok(None),
            // What remains is memory.
            Err(_) => Err(NO_MEMORY),
        }
    }

    fn decode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        FRAMES.check(src, dst.len())?;
        let dictionary = dictionary(geometry)?;
        if let Some(named) = zstd_safe::get_dict_id_from_frame(src)
            && named != dictionary.id()
        {
            return Err(FRAMES.corrupt(format!(
                "the frame names dictionary {named}, and the chain has {}",
                dictionary.id()
            )));
        }
        let Decoding(context) = contexts
            .get(|| DCtx::try_create().map(Decoding))
            .ok_or(NO_MEMORY)?;
        let written = context
            .decompress_using_ddict(dst, src, dictionary.decoding())
            .map_err(|code| FRAMES.corrupt_by(code))?;
        FRAMES.filled(written, dst.len())
    }

    fn front<'a>(&self, src: &[u8], dst: &'a mut [u8]) -> Result<&'a mut [u8], TransformError> {
        FRAMES.front(src, dst)
    }

    fn tells_length(&self) -> bool {
        true
    }
}

/// The chain has it, or does not come here.
fn dictionary(geometry: Geometry<'_>) -> Result<&Dictionary, TransformError> {
    // Its text is made where there is none: this is called for each frame.
    let needed = || TransformError::TableNeeded {
        chain: DESCRIPTOR.name.into(),
        why: TableKind::Dictionary.not_here(),
    };
    geometry.dictionary.ok_or_else(needed)
}

const NO_MEMORY: TransformError = TransformError::Memory {
    step: DESCRIPTOR.name,
};
