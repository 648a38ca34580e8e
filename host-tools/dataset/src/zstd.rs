//! Zstandard frames, one behind another, read as they are decompressed (RFC 8878).

use std::io::{self, Read};

use zstd_safe::{DCtx, InBuffer, OutBuffer};

/// What is read of the compressed side at a time.
const INPUT_BYTES: usize = 128 << 10;

/// Decompresses what it reads. A frame that is cut off is an error.
pub(crate) struct ZstdReader<R> {
    source: R,
    context: DCtx<'static>,
    input: Vec<u8>,
    /// What of `input` is not decompressed yet.
    left: std::ops::Range<usize>,
    /// Whether a frame has begun and not ended.
    is_inside: bool,
}

impl<R: Read> ZstdReader<R> {
    pub(crate) fn new(source: R) -> io::Result<ZstdReader<R>> {
        Ok(ZstdReader {
            source,
            context: DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?,
            input: vec![0; INPUT_BYTES],
            left: 0..0,
            is_inside: false,
        })
    }
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            let mut ended = false;
            if self.left.is_empty() {
                self.left = 0..self.source.read(&mut self.input)?;
                ended = self.left.is_empty();
            }
            let mut output = OutBuffer::around(&mut *into);
            let mut input = InBuffer::around(self.input.get(self.left.clone()).unwrap_or_default());
            let hint = self.context.decompress_stream(&mut output, &mut input);
            let hint = hint.map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
            let (taken, made) = (input.pos(), output.pos());
            self.left.start += taken;
            if taken > 0 || made > 0 {
                self.is_inside = hint != 0;
            }
            if made > 0 {
                return Ok(made);
            }
            if ended {
                let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "a frame is cut off");
                return if self.is_inside { Err(cut) } else { Ok(0) };
            }
        }
    }
}
