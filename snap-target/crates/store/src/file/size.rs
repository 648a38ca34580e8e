//! The size of a file changes. Whoever asked for it is told when it is on stable storage: what was cut off never comes back, and what grew is there.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// What a change of size asks of a file. A trait, so that tests can keep a record of it.
pub(super) trait Extent {
    /// ftruncate(2).
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// fsync(2).
    fn sync(&self) -> io::Result<()>;
}

impl Extent for File {
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

/// Makes a file so many bytes long: what it has more is cut off, what it has less reads as zeros.
///
/// # Errors
/// The system's.
pub fn set_file_size(path: &Path, bytes: u64) -> io::Result<()> {
    resize(&OpenOptions::new().write(true).open(path)?, bytes)
}

/// Makes the size durable that somebody has given a file.
///
/// # Errors
/// The system's.
pub fn settle_file_size(path: &Path) -> io::Result<()> {
    File::open(path)?.sync()
}

/// Where it is that long already, too: a change that was never synced, of a call that failed or a process that was killed, would not outlast power.
pub(super) fn resize(file: &impl Extent, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    file.sync()
}
