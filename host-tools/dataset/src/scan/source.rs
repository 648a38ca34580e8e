//! The files of a scan: the same when they are read again, or an error.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use erofs::{Attributes, Time};
use formats::ByteSource;

use crate::DatasetError;
use crate::error::Cut;

/// A regular file of the scan. Hard links, and links from outside, are one file.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its modification time.
    pub modified: Time,
    /// Where its bytes come from, where they are no input themselves.
    pub origin: Option<Origin>,
}

/// The input that a file was unzipped from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// From the root on, where the scan had it.
    pub path: Vec<u8>,
    /// Its length.
    pub bytes: u64,
    /// Of its content.
    pub sha256: [u8; 32],
}

impl SourceFile {
    /// The file at `path`, as `about` describes it.
    #[must_use]
    pub fn new(path: &Path, about: &Metadata) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            bytes: about.len(),
            modified: modified(about),
            origin: None,
        }
    }

    /// A file at `path` that was made from an input.
    pub(crate) fn unzipped(path: &Path, origin: Origin) -> Result<SourceFile, DatasetError> {
        let about = fs::metadata(path).map_err(|e| DatasetError::io("reading", path, e))?;
        Ok(SourceFile {
            origin: Some(origin),
            ..SourceFile::new(path, &about)
        })
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`DatasetError::Changed`] where it is not what it was; [`DatasetError::Io`].
    pub fn open(&self) -> Result<OpenFile<'_>, DatasetError> {
        let file =
            File::open(&self.path).map_err(|e| DatasetError::io("opening", &self.path, e))?;
        let open = OpenFile { file, source: self };
        open.check()?;
        Ok(open)
    }
}

/// A file of the scan that is open.
#[derive(Debug)]
pub struct OpenFile<'a> {
    /// For those that read it in other ways.
    pub file: File,
    source: &'a SourceFile,
}

impl OpenFile<'_> {
    /// Whether it is still what it was.
    ///
    /// # Errors
    /// As [`SourceFile::open`].
    pub fn check(&self) -> Result<(), DatasetError> {
        let path = &self.source.path;
        let about = self.file.metadata();
        let about = about.map_err(|error| DatasetError::io("reading", path, error))?;
        if about.len() == self.source.bytes && modified(&about) == self.source.modified {
            return Ok(());
        }
        Err(self.changed(about.len()))
    }

    /// All of it, from its first byte on. It fails where the file ends before it should.
    #[must_use]
    pub fn reader(&self) -> FileReader<'_> {
        FileReader { open: self, at: 0 }
    }

    /// What it is where it has so many bytes now.
    fn changed(&self, bytes: u64) -> DatasetError {
        let expected = self.source.bytes;
        DatasetError::Changed {
            path: self.source.path.clone(),
            cut: (bytes < expected).then_some(Cut { bytes, expected }),
        }
    }

    /// What it is that a file ended before it should.
    fn ended(&self) -> io::Error {
        match self.file.metadata() {
            Ok(about) => io::Error::other(self.changed(about.len())),
            Err(error) => error,
        }
    }
}

/// The bytes of a file, one behind the other.
#[derive(Debug)]
pub struct FileReader<'a> {
    open: &'a OpenFile<'a>,
    at: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.open.file.read_at(into, self.at)?;
        if read == 0 && !into.is_empty() && self.at < self.open.source.bytes {
            return Err(self.open.ended());
        }
        self.at += read as u64;
        Ok(read)
    }
}

impl ByteSource for OpenFile<'_> {
    fn bytes(&self) -> u64 {
        self.source.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.file.read_exact_at(into, offset);
        read.map_err(|error| match error.kind() {
            // What is read lies inside the length that the file had.
            io::ErrorKind::UnexpectedEof => self.ended(),
            _ => error,
        })
    }
}

pub(super) fn attributes(about: &Metadata) -> Attributes {
    Attributes {
        // The mask leaves 12 bits.
        permissions: u16::try_from(about.mode() & 0o7777).unwrap_or_default(),
        uid: about.uid(),
        gid: about.gid(),
        modified: modified(about),
    }
}

fn modified(about: &Metadata) -> Time {
    Time {
        seconds: about.mtime(),
        // Below 10^9.
        nanoseconds: u32::try_from(about.mtime_nsec()).unwrap_or_default(),
    }
}
