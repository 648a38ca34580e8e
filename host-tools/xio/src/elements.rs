//! Files that are elements and nothing else.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::anyhow;
use formats::{ByteSource, Format, FormatError};

use crate::failure::Failure;

/// Refuses a file that is of a format: what it says of itself would be rounded with its elements.
///
/// # Errors
/// Reads that fail; the format's name.
pub fn refuse_headers(path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::io("reading", path, error);
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let format = match formats::describe(&Whole { file, bytes }) {
        Ok(description) => description.format,
        Err(FormatError::Read { error, .. }) => return Err(failed(error)),
        // It begins like a format: enough to know that it is no run of elements.
        Err(error) => return Err(Failure::usage(anyhow!("{}: {error}", path.display()))),
    };
    if matches!(format, Format::Unknown | Format::Raw) {
        return Ok(());
    }
    Err(Failure::usage(anyhow!(
        "{} is {}: with --dtype, a chain that rounds takes files of elements alone; without it, --present-as rounds what the file holds",
        path.display(),
        format.name(),
    )))
}

struct Whole {
    file: File,
    bytes: u64,
}

impl ByteSource for Whole {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}
