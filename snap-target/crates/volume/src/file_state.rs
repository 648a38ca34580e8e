//! What tells that a file is another one than it was, without reading it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

/// Length and time of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileState {
    pub(crate) bytes: u64,
    /// `None`: beyond what the format can say, the years 1677 to 2262.
    pub(crate) modified_ns: Option<i64>,
}

impl FileState {
    /// Of a file or block device as it is now.
    pub(crate) fn of(mut file: &File) -> io::Result<FileState> {
        let metadata = file.metadata()?;
        Ok(FileState {
            // Seeking tells the length of block devices too.
            bytes: file.seek(SeekFrom::End(0))?,
            modified_ns: modified_ns(metadata.mtime(), metadata.mtime_nsec()),
        })
    }
}

fn modified_ns(seconds: i64, nanoseconds: i64) -> Option<i64> {
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(nanoseconds)
        // The least one says that none was recorded.
        .filter(|ns| *ns != i64::MIN)
}
