//! The folder's files, changed so that a crash at any moment leaves each either as it was or as it is to be.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::limits::RECORD_BYTES_MAX;

/// What changing a file needs of a file system; tests have one that loses power.
pub trait Disk: std::fmt::Debug + Send {
    /// Makes a file with these bytes, in place of one of that name that a crash left.
    fn write_new(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Puts the bytes of the file that was written last on stable storage.
    fn sync_written(&mut self) -> io::Result<()>;
    /// Gives a file another name, in place of the one that has it.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Takes a file away, if it is there.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Puts the names on stable storage.
    fn sync_names(&mut self) -> io::Result<()>;
    /// Finds out whether anything can be written, and leaves nothing behind.
    fn try_write(&self) -> io::Result<()>;
    /// The bytes of a file; none if there is none.
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>>;
}

/// Made and removed to see whether that is possible.
const TRIED_FILE: &str = "tried";

/// What a file is called until it is whole.
pub fn unfinished(name: &str) -> String {
    format!("{name}.new")
}

/// Replaces a file. An error leaves the old one, or the new one, whole; each attempt has a descriptor of its own, so that none is used after its
/// fsync failed: a kernel that could not write a page forgets that it did not.
pub fn replace(disk: &mut dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = unfinished(name);
    disk.write_new(&new, bytes)?;
    disk.sync_written()?;
    disk.rename(&new, name)?;
    disk.sync_names()
}

/// A folder of a file system.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Holds the names.
    descriptor: File,
    written: Option<File>,
}

impl Folder {
    /// Opens a folder that is there.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            descriptor: File::open(path)?,
            written: None,
        })
    }
}

impl Disk for Folder {
    fn write_new(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        file.write_all(bytes)?;
        self.written = Some(file);
        Ok(())
    }

    fn sync_written(&mut self) -> io::Result<()> {
        match self.written.take() {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.descriptor.sync_all()
    }

    fn try_write(&self) -> io::Result<()> {
        let path = self.path.join(TRIED_FILE);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        // A full file system says so when a block is asked for, some not before it is written out.
        let written = file.write_all(&[0; 4096]).and_then(|()| file.sync_data());
        std::fs::remove_file(&path)?;
        written
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut options = OpenOptions::new();
        // The end of a pipe would otherwise be opened when somebody writes to it.
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::libc::O_NONBLOCK);
        let file = match options.read(true).open(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if !file.metadata()?.is_file() {
            let why = format!("{name} is no regular file");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut bytes = Vec::new();
        file.take(RECORD_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }
}
