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

/// The steps `lz4`, which takes no parameter, and `lz4hc` or `lz4hc:LEVEL`.
pub struct Lz4 {
    descriptor: &'static Descriptor,
    encoder: Encoder,
}

/// What makes the block.
enum Encoder {
    Fast,
    /// The parameter is its level.
    HighCompression,
}

/// The step `lz4`.
pub static LZ4: Lz4 = Lz4 {
    descriptor: &DESCRIPTOR,
    encoder: Encoder::Fast,
};

/// The step `lz4hc`.
pub static LZ4HC: Lz4 = Lz4 {
    descriptor: &HC_DESCRIPTOR,
    encoder: Encoder::HighCompression,
};

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
        self.descriptor
    }
}

impl BlockTransform for Lz4 {
    fn encode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<Option<usize>, TransformError> {
        let no_memory = TransformError::Memory {
            step: self.descriptor.name,
        };
        match self.encoder {
            Encoder::Fast => {
                let state = contexts.get(FastState::new).ok_or(no_memory)?;
                Ok(state.compress(src, dst))
            }
            Encoder::HighCompression => {
                let level = i32::try_from(geometry.parameter)
                    .map_err(|_| self.descriptor.bad_parameter(geometry.parameter))?;
                let state = contexts.get(HcState::new).ok_or(no_memory)?;
                Ok(state.compress(level, src, dst))
            }
        }
    }

    fn decode(
        &self,
        geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        contexts: &mut Contexts,
    ) -> Result<(), TransformError> {
        let written = self.decode_some(geometry, src, dst, contexts)?;
        if written != dst.len() {
            return Err(TransformError::Corrupt {
                step: self.descriptor.name,
                why: format!("the block holds {written} bytes where {} belong", dst.len()),
            });
        }
        Ok(())
    }

    fn decode_some(
        &self,
        _geometry: Geometry<'_>,
        src: &[u8],
        dst: &mut [u8],
        _contexts: &mut Contexts,
    ) -> Result<usize, TransformError> {
        lz4_ffi::decompress(src, dst).ok_or_else(|| TransformError::Corrupt {
            step: self.descriptor.name,
            why: format!(
                "{} bytes are not an LZ4 block of {} bytes",
                src.len(),
                dst.len()
            ),
        })
    }

    fn tells_length(&self) -> bool {
        true
    }
}
