//! The state folder: what was made while serving, and what namespaces must remember, through restarts and power loss.
//!
//! Contract: each file is replaced as a whole; after a crash at any moment it is the last one whose saving was reported, or a later one. A file that is
//! damaged is refused with the way out, never taken for an empty one; one that only counts ([`life`]) is set aside. One daemon at a time has a folder.

mod device;
mod disk;
mod json;
mod keeper;
mod life;
mod overlay;
mod record;
#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::limits::RECORD_BYTES_MAX;
#[cfg(test)]
pub use disk::{Disk, Folder};

pub use keeper::Keepers;
pub use life::{LifeFiles, LifeRecord};
pub use overlay::Overlay;

/// The file of what the admin plane changed.
const CHANGES_FILE: &str = "changes";
/// What is said of a folder that cannot be written.
const CANNOT_SAVE: &str = "the changes cannot be saved";
/// Held by the daemon that has the folder.
const LOCK_FILE: &str = "lock";
/// Longest text of the changes: with its first line it is a record that can be read again.
const CHANGES_BYTES_MAX: u64 = RECORD_BYTES_MAX - record::LINE_BYTES_MAX as u64;
/// What the record of the changes is called.
const CHANGES_KIND: &str = "changes";

/// A state folder that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Another daemon has it.
    #[error(
        "the state folder {folder} is in use by another snap-target; end that one, or name another folder"
    )]
    InUse {
        /// Which folder.
        folder: String,
    },
    /// Its file system, or the quota of the daemon's user, has no room.
    #[error("the state folder {folder}: {what}: {why}; make room in its file system and try again")]
    Full {
        /// Which folder.
        folder: String,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: String,
    },
    /// Nothing may be written.
    #[error(
        "the state folder {folder}: {what}: {why}; make it writable to the daemon's user and try again"
    )]
    ReadOnly {
        /// Which folder.
        folder: String,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: String,
    },
    /// The system refused something.
    #[error("the state folder {folder}: {what}: {why}")]
    System {
        /// Which folder.
        folder: String,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: String,
    },
    /// A file was changed by something else, or its medium failed.
    #[error(
        "{file} is damaged: {why}; put a copy of it back, or move it away to go on without what it kept"
    )]
    Damaged {
        /// Which file.
        file: String,
        /// How that shows.
        why: String,
    },
    /// More than a start would read again.
    #[error(
        "{file} would be longer than {CHANGES_BYTES_MAX} bytes; put what is made while serving into the configuration file, or name fewer hosts"
    )]
    TooLong {
        /// Which file.
        file: String,
    },
    /// A file of a newer daemon.
    #[error(
        "{file} was written by a newer snap-target; start that one, or move the file away to go on without what it kept"
    )]
    Version {
        /// Which file.
        file: String,
    },
}

impl StateError {
    /// What the system refused.
    fn refused(folder: &Path, what: &'static str, error: &io::Error) -> Self {
        let (folder, why) = (folder.display().to_string(), error.to_string());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { folder, what, why }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { folder, what, why }
            }
            _ => Self::System { folder, what, why },
        }
    }
}

/// The folder, held against other daemons.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    disk: Box<dyn disk::Disk>,
    sequence: u64,
    /// What is known to be saved.
    saved: Option<Overlay>,
    _locks: Vec<Flock<File>>,
}

impl StateFolder {
    /// Opens a folder; makes it where it is not there.
    ///
    /// # Errors
    /// [`StateError::InUse`], [`StateError::System`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let refused = |what, error: io::Error| StateError::refused(path, what, &error);
        make_folder(path).map_err(|error| refused("it cannot be made", error))?;
        let locks = lock(path)?;
        let disk =
            disk::Folder::open(path).map_err(|error| refused("it cannot be opened", error))?;
        Ok(Self {
            path: path.to_owned(),
            disk: Box::new(disk),
            sequence: 0,
            saved: None,
            _locks: locks,
        })
    }

    /// The same folder with a disk of a test's own.
    #[cfg(test)]
    pub fn on(self, disk: impl disk::Disk + 'static) -> Self {
        Self {
            disk: Box::new(disk),
            ..self
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the admin plane changed, as it was saved last.
    ///
    /// # Errors
    /// [`StateError`]: the daemon must not go on as if there were nothing.
    pub fn load(&mut self) -> Result<Overlay, StateError> {
        let (overlay, sequence) = load(&*self.disk, &self.path)?;
        self.sequence = sequence;
        self.saved = Some(overlay.clone());
        Ok(overlay)
    }

    /// Whether changes can be saved, as far as that is known without saving one.
    ///
    /// # Errors
    /// [`StateError::Full`], [`StateError::ReadOnly`], [`StateError::System`].
    pub fn check_writable(&self) -> Result<(), StateError> {
        let tried = self.disk.try_write();
        tried.map_err(|error| StateError::refused(&self.path, CANNOT_SAVE, &error))
    }

    /// Saves what the admin plane changed, unless that is what is saved already.
    ///
    /// # Errors
    /// As [`StateFolder::check_writable`]: what is saved is what was saved before, unless that could not be written again either.
    pub fn save(&mut self, overlay: &Overlay) -> Result<(), StateError> {
        if self.saved.as_ref() == Some(overlay) {
            return Ok(());
        }
        let refused = |path: &Path, error| StateError::refused(path, CANNOT_SAVE, &error);
        let bytes = bytes_of(overlay).map_err(|error| refused(&self.path, error))?;
        if bytes.len() as u64 > CHANGES_BYTES_MAX {
            let file = self.path.join(CHANGES_FILE).display().to_string();
            return Err(StateError::TooLong { file });
        }
        let before = self.saved.take();
        match self.write(&bytes) {
            Ok(()) => {
                self.saved = Some(overlay.clone());
                Ok(())
            }
            Err(error) => {
                // What failed may have been the last step: then the new file has the name already.
                let is_written = |before: &Overlay| {
                    let bytes = bytes_of(before);
                    bytes.and_then(|bytes| self.write(&bytes)).is_ok()
                };
                let before = before.filter(is_written);
                self.saved = before;
                Err(refused(&self.path, error))
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sequence += 1;
        save(&mut *self.disk, self.sequence, bytes)
    }
}

/// The folder itself, and a file in it: not every file system locks folders, and a full or read-only one makes no file. Whoever has one of them has
/// the folder.
fn lock(path: &Path) -> Result<Vec<Flock<File>>, StateError> {
    let mut locks = Vec::new();
    let mut refused = None;
    for opened in [File::open(path), lock_file(path)] {
        let locked = opened.and_then(|file| {
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno.into())
        });
        match locked {
            Ok(lock) => locks.push(lock),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let folder = path.display().to_string();
                return Err(StateError::InUse { folder });
            }
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) if locks.is_empty() => {
            Err(StateError::refused(path, "it cannot be locked", &error))
        }
        _ => Ok(locks),
    }
}

fn lock_file(folder: &Path) -> io::Result<File> {
    let path = folder.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(&path).or_else(|_| File::open(&path))
}

/// Makes the last part of the path, for its owner alone.
fn make_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
        // The folder's own name must survive, too.
        Ok(()) => match path.parent() {
            Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        },
    }
}

fn load(disk: &dyn disk::Disk, folder: &Path) -> Result<(Overlay, u64), StateError> {
    let file = folder.join(CHANGES_FILE).display().to_string();
    let record = disk
        .read(CHANGES_FILE)
        .map_err(|error| StateError::refused(folder, "the changes cannot be read", &error))?;
    let Some(record) = record else {
        return Ok((Overlay::default(), 0));
    };
    let (sequence, bytes) = record::unseal(CHANGES_KIND, &record, &file)?;
    let overlay = json::read(bytes).map_err(|why| StateError::Damaged { file, why })?;
    Ok((overlay, sequence))
}

fn bytes_of(overlay: &Overlay) -> io::Result<Vec<u8>> {
    json::write(overlay).map_err(io::Error::other)
}

fn save(disk: &mut dyn disk::Disk, sequence: u64, bytes: &[u8]) -> io::Result<()> {
    disk::replace(
        disk,
        CHANGES_FILE,
        &record::seal(CHANGES_KIND, sequence, bytes),
    )
}
