//! An output that is written from front to back.

use super::{Output, WriteError};
use crate::format::raw::BLOCK_BYTES;

/// Bytes gathered before they go to the output: table blocks are small.
const BUFFER_BYTES: usize = 1 << 20;

const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Appends to an output.
pub(super) struct Appender<O> {
    pub(super) output: O,
    /// Where `buffer` belongs.
    offset: u64,
    buffer: Vec<u8>,
}

impl<O: Output> Appender<O> {
    pub(super) fn new(output: O, offset: u64) -> Appender<O> {
        Appender {
            output,
            offset,
            buffer: Vec::with_capacity(BUFFER_BYTES),
        }
    }

    /// Where the next byte goes.
    pub(super) fn position(&self) -> u64 {
        self.offset + self.buffer.len() as u64
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= BUFFER_BYTES / 4 && self.buffer.is_empty() {
            self.output.write_at(self.offset, bytes)?;
            self.offset += bytes.len() as u64;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Leaves `bytes` out, for an output that keeps nothing.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), WriteError> {
        self.flush()?;
        self.offset += bytes;
        Ok(())
    }

    /// Fills the block that was begun with zeros: padding is zeros everywhere in a volume.
    pub(super) fn align(&mut self) -> Result<(), WriteError> {
        let begun = self.position() % BLOCK_BYTES as u64;
        match usize::try_from(begun) {
            Ok(begun) if begun > 0 => self.append(&ZEROS[begun..]),
            _ => Ok(()),
        }
    }

    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        if !self.buffer.is_empty() {
            self.output.write_at(self.offset, &self.buffer)?;
            self.offset += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}
