//! `lz4` and `lz4hc:LEVEL`: one raw LZ4 block (no frame header, no checksum: the volume has its own). The two differ only in
//! the effort of the encoder.

use crate::TransformError;
use crate::codecs::lz4_ffi::{self, FastState, HcState};
use crate::registry::{BlockTransform, Descriptor, Geometry, Parameter, Transform, TransformId};
use crate::scratch::Contexts;

/// The number of `lz4` on the volume.
pub const ID: TransformId = TransformId(0x101);

/// The number of `lz4hc` on the volume.
pub const HC_ID: TransformId = TransformId(0x102);

/// The level of `lz4hc` without a number.
pub const HC_LEVEL_DEFAULT: u32 = 9;

/// The levels of `lz4hc`.
pub const HC_LEVELS: std::ops::RangeInclusive<u32> = 1..=12;

/// The step `lz4`; it takes no parameter.
pub struct Lz4;

/// The step `lz4hc` or `lz4hc:LEVEL`; the parameter is the level.
pub struct Lz4Hc;

static DESCRIPTOR: Descriptor = Descriptor {
    id: ID,
    version: 1,
    name: "lz4",
    parameter: Parameter::None,
    grammar: "lz4",
    summary: "one raw LZ4 block, fast encoder",
};

static HC_DESCRIPTOR: Descriptor = Descriptor {
    id: HC_ID,
    version: 1,
    name: "lz4hc",
    parameter: Parameter::Number {
        range: HC_LEVELS,
        default: Some(HC_LEVEL_DEFAULT),
    },
    grammar: "lz4hc[:1..12]",
    summary: "one raw LZ4 block, high-compression encoder",
};

impl Transform for Lz4 {
    fn descriptor(&self) -> &'static Descriptor {
        &DESCRIPTOR
    }
}

impl BlockTransform for Lz4 {
    fn encode(
        &self,
        _geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let state = contexts.get(FastState::new).ok_or(TransformError::Memory {
            step: DESCRIPTOR.name,
        })?;
        Ok(state.compress(src, dst))
    }

    fn decode(
        &self,
        _geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        _contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        decode(DESCRIPTOR.name, src, dst)
    }

    fn decode_some(
        &self,
        _geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        _contexts: &mut Contexts,
    ) -> Result<usize, TransformError> {
        decode_some(DESCRIPTOR.name, src, dst)
    }

    fn tells_length(&self) -> bool {
        true
    }
}

impl Transform for Lz4Hc {
    fn descriptor(&self) -> &'static Descriptor {
        &HC_DESCRIPTOR
    }
}

impl BlockTransform for Lz4Hc {
    fn encode(
        &self,
        geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let level = i32::try_from(geometry.parameter)
            .map_err(|_| HC_DESCRIPTOR.bad_parameter(geometry.parameter))?;
        let state = contexts.get(HcState::new).ok_or(TransformError::Memory {
            step: HC_DESCRIPTOR.name,
        })?;
        Ok(state.compress(level, src, dst))
    }

    fn decode(
        &self,
        _geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        _contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        decode(HC_DESCRIPTOR.name, src, dst)
    }

    fn decode_some(
        &self,
        _geometry: Geometry,
        src: &[u8],
        dst: &mut [u8],
        _contexts: &mut Contexts,
    ) -> Result<usize, TransformError> {
        decode_some(HC_DESCRIPTOR.name, src, dst)
    }

    fn tells_length(&self) -> bool {
        true
    }
}

fn decode(step: &'static str, src: &[u8], dst: &mut [u8]) -> Result<(), TransformError> {
    let written = decode_some(step, src, dst)?;
    if written != dst.len() {
        return Err(TransformError::Corrupt {
            step,
            why: format!("the block holds {written} bytes where {} belong", dst.len()),
        });
    }
    Ok(())
}

fn decode_some(step: &'static str, src: &[u8], dst: &mut [u8]) -> Result<usize, TransformError> {
    lz4_ffi::decompress(src, dst).ok_or_else(|| TransformError::Corrupt {
        step,
        why: format!(
            "{} bytes are not an LZ4 block of {} bytes",
            src.len(),
            dst.len()
        ),
    })
}
