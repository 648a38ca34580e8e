//! `zstd:LEVEL`: one Zstandard frame (RFC 8878) with its content size, without checksum or dictionary: the volume has its own
//! checksum.

use zstd_safe::{CCtx, CParameter, DCtx};

use crate::TransformError;
use crate::registry::{
    BlockTransform, Descriptor, Geometry, Transform, TransformId, bad_parameter, parse_numbered,
};
use crate::scratch::Contexts;

/// The number on the volume.
pub const ID: TransformId = TransformId(0x103);

/// The levels.
pub const LEVELS: std::ops::RangeInclusive<u32> = 1..=22;

/// The step `zstd:LEVEL`; the parameter is the level.
pub struct Zstd;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "zstd",
    grammar: "zstd:1..22",
    summary: "one Zstandard frame",
};

impl Transform for Zstd {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }

    fn parse(&self, text: &str) -> Option<Result<u32, TransformError>> {
        parse_numbered(&DESCRIPTOR, text, None)
    }

    fn format(&self, parameter: u32) -> String {
        format!("zstd:{parameter}")
    }
}

impl BlockTransform for Zstd {
    fn check(&self, parameter: u32, _packed_bits: u32) -> Result<(), TransformError> {
        if !LEVELS.contains(&parameter) {
            return Err(bad_parameter(&DESCRIPTOR, parameter));
        }
        Ok(())
    }

    fn shrinks(&self) -> bool {
        true
    }

    fn encode(
        &self,
        geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let level = i32::try_from(geometry.parameter)
            .map_err(|_| bad_parameter(&DESCRIPTOR, geometry.parameter))?;
        let context: &mut CCtx<'static> = contexts.get(CCtx::try_create).ok_or(NO_MEMORY)?;
        context
            .set_parameter(CParameter::CompressionLevel(level))
            .map_err(|_| bad_parameter(&DESCRIPTOR, geometry.parameter))?;
        // The one error left is a destination too small: the frame did not shrink.
        Ok(context.compress2(dst, src).ok())
    }

    fn decode(
        &self,
        _geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        let corrupt = |why: String| TransformError::Corrupt {
            step: DESCRIPTOR.name,
            why,
        };
        let name = |code| zstd_safe::get_error_name(code).to_owned();
        let declared = zstd_safe::get_frame_content_size(src)
            .map_err(|_| corrupt("not a Zstandard frame".into()))?
            .ok_or_else(|| corrupt("the frame does not declare its content size".into()))?;
        if declared != dst.len() as u64 {
            return Err(corrupt(format!(
                "the frame declares {declared} bytes where {} belong",
                dst.len()
            )));
        }
        let frame_bytes =
            zstd_safe::find_frame_compressed_size(src).map_err(|code| corrupt(name(code)))?;
        if frame_bytes != src.len() {
            return Err(corrupt(format!(
                "{} bytes behind the frame",
                src.len() - frame_bytes.min(src.len())
            )));
        }
        let context: &mut DCtx<'static> = contexts.get(DCtx::try_create).ok_or(NO_MEMORY)?;
        let written = context
            .decompress(dst, src)
            .map_err(|code| corrupt(name(code)))?;
        if written != dst.len() {
            return Err(corrupt(format!(
                "the frame holds {written} bytes where {} belong",
                dst.len()
            )));
        }
        Ok(())
    }
}

const NO_MEMORY: TransformError = TransformError::Memory {
    step: DESCRIPTOR.name,
};
