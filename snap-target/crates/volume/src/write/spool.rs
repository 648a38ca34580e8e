//! Table entries on their way to the end of the volume. The tables come behind the payload, and those of a large volume do not fit
//! into memory: the 4 KiB checksums of 500 GB are 500 MB.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::{Output, WriteError};

/// Bytes held in memory before they go to a file.
const MEMORY_BYTES_MAX: usize = 8 << 20;

/// Bytes that [`SpoolReader`] takes from the file at a time.
const READ_BYTES: usize = 256 << 10;

/// An append-only run of bytes, in memory as long as it is short.
#[derive(Debug, Default)]
pub(super) struct Spool {
    /// What is not in the file yet.
    memory: Vec<u8>,
    file: Option<File>,
    file_bytes: u64,
}

impl Spool {
    /// Bytes appended so far.
    pub(super) fn len(&self) -> u64 {
        self.file_bytes + self.memory.len() as u64
    }

    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.memory.extend_from_slice(bytes);
    }

    /// Moves what is in memory to a scratch file of `output` once it is much.
    pub(super) fn spill_if_full(&mut self, output: &impl Output) -> Result<(), WriteError> {
        if self.memory.len() < MEMORY_BYTES_MAX {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => self.file.insert(file),
            None => self.file.insert(output.scratch_file()?),
        };
        file.write_all_at(&self.memory, self.file_bytes)
            .map_err(|error| output.failed("writing the tables of", error))?;
        self.file_bytes += self.memory.len() as u64;
        self.memory.clear();
        Ok(())
    }

    /// Reads from `offset` on, in order.
    pub(super) fn reader(&self, offset: u64) -> SpoolReader<'_> {
        SpoolReader {
            spool: self,
            offset,
            buffer: Vec::new(),
            taken: 0,
        }
    }

    /// Fills the front of `bytes` with what is at `offset`; returns how much that is.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let available = self.len().saturating_sub(offset);
        let wanted = bytes
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        let Some(in_memory) = offset.checked_sub(self.file_bytes) else {
            let in_file = usize::try_from(self.file_bytes - offset).unwrap_or(usize::MAX);
            let wanted = wanted.min(in_file);
            if let Some(file) = &self.file {
                file.read_exact_at(&mut bytes[..wanted], offset)?;
            }
            return Ok(wanted);
        };
        let from = usize::try_from(in_memory).unwrap_or(usize::MAX);
        bytes[..wanted].copy_from_slice(&self.memory[from..from + wanted]);
        Ok(wanted)
    }
}

/// A cursor over a spool.
pub(super) struct SpoolReader<'a> {
    spool: &'a Spool,
    /// Where the byte after `buffer` is.
    offset: u64,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were handed out.
    taken: usize,
}

impl SpoolReader<'_> {
    /// The next `N` bytes, which were appended.
    pub(super) fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut taken = [0; N];
        let mut filled = 0;
        while filled < N {
            if self.taken == self.buffer.len() {
                self.buffer.resize(READ_BYTES, 0);
                let read = self.spool.read_at(self.offset, &mut self.buffer)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.buffer.truncate(read);
                self.offset += read as u64;
                self.taken = 0;
            }
            let run = (N - filled).min(self.buffer.len() - self.taken);
            taken[filled..filled + run].copy_from_slice(&self.buffer[self.taken..self.taken + run]);
            filled += run;
            self.taken += run;
        }
        Ok(taken)
    }
}
