//! `zstd:LEVEL`: one Zstandard frame (RFC 8878) with its content size, without checksum or dictionary: the volume has its own
//! checksum.

use zstd_safe::{CCtx, CParameter, DCtx};

use super::zstd_frame::{DESTINATION_TOO_SMALL, Frames};
use crate::TransformError;
use crate::chain::FRAME_BYTES_MAX;
use crate::registry::{BlockTransform, Descriptor, Geometry, Parameter, Transform, TransformId};
use crate::scratch::Contexts;

/// The number on the volume.
pub const ID: TransformId = TransformId(0x103);

/// The levels.
pub const LEVELS: std::ops::RangeInclusive<u32> = 1..=22;

/// The largest window that is decoded. No frame is longer than this, so that no window need be.
pub const WINDOW_BYTES_MAX: u64 = FRAME_BYTES_MAX;

/// The step `zstd:LEVEL`; the parameter is the level.
pub struct Zstd;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "zstd",
    parameter: Parameter::Number {
        range: LEVELS,
        default: None,
    },
    grammar: "zstd:1..22",
    summary: "one Zstandard frame",
};

const FRAMES: Frames = Frames {
    step: DESCRIPTOR.name,
};

impl Transform for Zstd {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl BlockTransform for Zstd {
    fn encode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let level = i32::try_from(geometry.parameter)
            .map_err(|_| DESCRIPTOR.bad_parameter(geometry.parameter))?;
        let context: &mut CCtx<'static> = contexts.get(CCtx::try_create).ok_or(NO_MEMORY)?;
        context
            .set_parameter(CParameter::CompressionLevel(level))
            .map_err(|_| DESCRIPTOR.bad_parameter(geometry.parameter))?;
        match context.compress2(dst, src) {
            Ok(written) => Ok(Some(written)),
            // What remains, with parameters that were accepted and whole input, is memory.
            Err(code) if code == DESTINATION_TOO_SMALL => Ok(None),
            Err(_) => Err(NO_MEMORY),
        }
    }

    fn decode(
        &self,
        _geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        FRAMES.check(src, dst.len())?;
        let context: &mut DCtx<'static> = contexts.get(DCtx::try_create).ok_or(NO_MEMORY)?;
        let written = context
            .decompress(dst, src)
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

const NO_MEMORY: TransformError = TransformError::Memory {
    step: DESCRIPTOR.name,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(src: &[u8], dst: &mut [u8]) -> Result<(), String> {
        let geometry = Geometry {
            parameter: 3,
            packed_bits: 8,
            isa: crate::Isa::Portable,
            dictionary: None,
        };
        Zstd.decode(geometry, src, dst, &mut Contexts::default())
            .map_err(|error| error.to_string())
    }

    /// A frame of one run-length block: `bytes` times 7. Descriptor: 4-byte content size, and a window descriptor or none.
    fn run_frame(bytes: u32, window: Option<u8>) -> Vec<u8> {
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD];
        frame.push(if window.is_some() { 0x80 } else { 0xA0 });
        frame.extend(window);
        frame.extend(bytes.to_le_bytes());
        // Block header: last block, type 1 (RLE), size.
        frame.extend(&(1 | (1 << 1) | (bytes << 3)).to_le_bytes()[..3]);
        frame.push(7);
        frame
    }

    #[test]
    fn a_frame_of_another_encoder_is_read() {
        let mut out = [0; 100];
        decode(&run_frame(100, None), &mut out).unwrap();
        assert_eq!(out, [7; 100]);
        // 16 MiB, the largest window.
        decode(&run_frame(100, Some(14 << 3)), &mut out).unwrap();
    }

    #[test]
    fn a_window_over_the_limit_is_refused() {
        let error = decode(&run_frame(100, Some((14 << 3) | 1)), &mut [0; 100]).unwrap_err();
        assert_eq!(
            error,
            "zstd: corrupt frame: the frame asks for a window of 18874368 bytes; at most 16777216 are allowed"
        );
    }

    #[test]
    fn another_length_than_asked_for_is_refused() {
        let error = decode(&run_frame(100, None), &mut [0; 99]).unwrap_err();
        assert_eq!(
            error,
            "zstd: corrupt frame: the frame declares 100 bytes where 99 belong"
        );
        let mut longer = run_frame(100, None);
        longer.push(0);
        let error = decode(&longer, &mut [0; 100]).unwrap_err();
        assert_eq!(error, "zstd: corrupt frame: 1 bytes behind the frame");
    }
}
