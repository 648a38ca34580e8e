//! What a stored Zstandard frame must be before any of it is decoded: of the length that belongs, in a window that is bounded, and alone.

use crate::TransformError;
use crate::codecs::zstd::WINDOW_BYTES_MAX;

/// The frames of a step, by whose name they are refused.
pub(crate) struct Frames {
    pub(crate) step: &'static str,
}

impl Frames {
    /// The content size that a frame declares.
    pub(crate) fn declared_bytes(&self, src: &[u8]) -> Result<u64, TransformError> {
        zstd_safe::get_frame_content_size(src)
            .map_err(|_| self.corrupt("not a Zstandard frame".into()))?
            .ok_or_else(|| self.corrupt("the frame does not declare its content size".into()))
    }

    /// The front of `dst` that a frame declares to fill.
    pub(super) fn front<'a>(
        &self,
        src: &[u8],
        dst: &'a mut [u8],
    ) -> Result<&'a mut [u8], TransformError> {
        let declared = self.declared_bytes(src)?;
        let available = dst.len();
        let len = usize::try_from(declared).ok();
        len.and_then(|len| dst.get_mut(..len)).ok_or_else(|| {
            self.corrupt(format!(
                "the frame declares {declared} bytes where at most {available} belong"
            ))
        })
    }

    /// Whether `src` is one frame of `len` bytes and nothing else.
    pub(crate) fn check(&self, src: &[u8], len: usize) -> Result<(), TransformError> {
        let declared = self.declared_bytes(src)?;
        if declared != len as u64 {
            return Err(self.corrupt(format!(
                "the frame declares {declared} bytes where {len} belong"
            )));
        }
        let window = window_bytes(src).unwrap_or(declared);
        if window > WINDOW_BYTES_MAX {
            return Err(self.corrupt(format!(
                "the frame asks for a window of {window} bytes; at most {WINDOW_BYTES_MAX} are allowed"
            )));
        }
        let frame_bytes =
            zstd_safe::find_frame_compressed_size(src).map_err(|code| self.corrupt_by(code))?;
        if frame_bytes != src.len() {
            let behind = src.len().saturating_sub(frame_bytes);
            return Err(self.corrupt(format!("{behind} bytes behind the frame")));
        }
        Ok(())
    }

    /// That `written` bytes were decoded where `len` belong.
    pub(crate) fn filled(&self, written: usize, len: usize) -> Result<(), TransformError> {
        match written == len {
            true => Ok(()),
            false => Err(self.corrupt(format!(
                "the frame holds {written} bytes where {len} belong"
            ))),
        }
    }

    pub(crate) fn corrupt(&self, why: String) -> TransformError {
        TransformError::Corrupt {
            step: self.step,
            why,
        }
    }

    /// The library's error, in its words.
    pub(crate) fn corrupt_by(&self, code: usize) -> TransformError {
        self.corrupt(zstd_safe::get_error_name(code).to_lowercase())
    }
}

/// The library returns its errors as negative numbers.
pub(super) const DESTINATION_TOO_SMALL: usize =
    0usize.wrapping_sub(zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize);

/// The window that a frame header declares (RFC 8878, 3.1.1.1.2); `None` for a single segment, whose window is its content.
fn window_bytes(frame: &[u8]) -> Option<u64> {
    /// `Single_Segment_Flag` of the frame header descriptor, which comes behind the magic number.
    const SINGLE_SEGMENT: u8 = 1 << 5;
    let [_, _, _, _, descriptor, window, ..] = frame else {
        return None;
    };
    if descriptor & SINGLE_SEGMENT != 0 {
        return None;
    }
    let base = 1u64 << (10 + (window >> 3));
    Some(base + base / 8 * u64::from(window & 7))
}
