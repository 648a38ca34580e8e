//! Where a volume is written, and how it appears there whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::linkat;

use super::WriteError;

/// What `st_blocks` counts (stat(3type)).
const ST_BLOCK_BYTES: u64 = 512;

/// A place for the bytes of a volume. The writer calls it from one thread.
pub trait Output {
    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// What the system says; the volume is then given up.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError>;

    /// Returns when everything written so far survives a loss of power.
    ///
    /// # Errors
    /// What the system says; the volume is then given up, since nobody knows what was lost.
    fn sync(&mut self) -> Result<(), WriteError>;

    /// Makes the finished volume visible under its name, in one step. Called once, after the last [`sync`](Self::sync).
    ///
    /// # Errors
    /// The name was taken meanwhile, or what the system says.
    fn publish(&mut self) -> Result<(), WriteError>;

    /// A file for table entries that do not fit into memory; it is gone when it is closed.
    ///
    /// # Errors
    /// What the system says.
    fn scratch_file(&self) -> Result<File, WriteError>;

    /// The error for what the system said, with the name of this output. `action`: what was being done to it ("writing").
    fn failed(&self, action: &'static str, error: io::Error) -> WriteError;
}

/// A file that has no name until it is finished, so that a killed writer leaves nothing.
///
/// On filesystems without nameless files (`O_TMPFILE`) it is called `.NAME.PID.partial` meanwhile. A writer killed with SIGKILL
/// leaves that behind; it has no superblock until everything else in it is durable.
#[derive(Debug)]
pub struct FileOutput {
    file: File,
    path: PathBuf,
    replace: bool,
    /// The name that the file has before its own; removed on drop.
    partial: Option<PathBuf>,
}

impl FileOutput {
    /// Prepares `path`. With `replace`, a regular file of that name is replaced at [`publish`](Output::publish) and untouched before.
    ///
    /// # Errors
    /// The name is taken or not a file's, or nothing can be written there.
    pub fn create(path: &Path, replace: bool) -> Result<FileOutput, WriteError> {
        check_name(path, replace)?;
        let (file, partial) = match nameless_file(folder_of(path)) {
            Ok(file) if can_be_linked(&file) => (file, None),
            Ok(_) => named_file(path)?,
            Err(error) if is_unsupported(&error) => named_file(path)?,
            Err(error) => return Err(output_error("creating a file for", path, error)),
        };
        Ok(FileOutput {
            file,
            path: path.to_owned(),
            replace,
            partial,
        })
    }

    /// As [`create`](Self::create) where there are no nameless files.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_named(path: &Path, replace: bool) -> Result<FileOutput, WriteError> {
        check_name(path, replace)?;
        let (file, partial) = named_file(path)?;
        Ok(FileOutput {
            file,
            path: path.to_owned(),
            replace,
            partial,
        })
    }

    /// The file, for those who write it in another order, or from several threads.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The name that the file has until it has its own, where it needs one: what is to be removed if the process is ended.
    #[must_use]
    pub fn partial(&self) -> Option<&Path> {
        self.partial.as_deref()
    }

    /// How many bytes the file system has for it: those that the file has already, and those that are free.
    fn room(&self) -> io::Result<u64> {
        let free = fstatvfs(&self.file)?;
        let free = free.blocks_available().saturating_mul(free.fragment_size());
        let own = self
            .file
            .metadata()?
            .blocks()
            .saturating_mul(ST_BLOCK_BYTES);
        Ok(free.saturating_add(own))
    }

    /// Gives the nameless file the name `name`, which must be free.
    fn link(&self, name: &Path) -> io::Result<()> {
        let descriptor = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        linkat(
            AT_FDCWD,
            &descriptor,
            AT_FDCWD,
            name,
            AtFlags::AT_SYMLINK_FOLLOW,
        )
        .map_err(io::Error::from)
    }
}

impl Output for FileOutput {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let written = self.file.write_all_at(bytes, offset);
        let bytes = offset.saturating_add(bytes.len() as u64);
        written.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull => WriteError::Full {
                path: self.path.clone(),
                bytes,
                room: self.room().ok(),
                error,
            },
            io::ErrorKind::FileTooLarge => WriteError::TooLarge {
                path: self.path.clone(),
                bytes,
                error,
            },
            _ => self.failed("writing", error),
        })
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.file
            .sync_all()
            .map_err(|error| self.failed("making durable", error))
    }

    fn publish(&mut self) -> Result<(), WriteError> {
        // Checked again: packing may have taken hours.
        check_name(&self.path, self.replace)?;
        if self.partial.is_none() {
            let name = if self.replace {
                partial_path(&self.path)
            } else {
                self.path.clone()
            };
            self.link(&name).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists if !self.replace => WriteError::Exists {
                    path: self.path.clone(),
                },
                _ => self.failed("naming", error),
            })?;
            self.partial = self.replace.then_some(name);
        }
        if let Some(partial) = &self.partial {
            fs::rename(partial, &self.path).map_err(|error| self.failed("naming", error))?;
            self.partial = None;
        }
        File::open(folder_of(&self.path))
            .and_then(|folder| folder.sync_all())
            .map_err(|error| self.failed("making the name durable of", error))
    }

    fn scratch_file(&self) -> Result<File, WriteError> {
        let failed = |error| self.failed("creating a file for the tables of", error);
        match nameless_file(folder_of(&self.path)) {
            Err(error) if is_unsupported(&error) => {
                let path = suffixed(&self.path, "tables");
                let file = create_new(&path).map_err(failed)?;
                fs::remove_file(&path).map_err(failed)?;
                Ok(file)
            }
            result => result.map_err(failed),
        }
    }

    fn failed(&self, action: &'static str, error: io::Error) -> WriteError {
        output_error(action, &self.path, error)
    }
}

impl Drop for FileOutput {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // Nothing is left to tell if this fails: the error that led here is being reported.
            let _ = fs::remove_file(partial);
        }
    }
}

fn check_name(path: &Path, replace: bool) -> Result<(), WriteError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(WriteError::NotAFile {
            path: path.to_owned(),
        }),
        Ok(_) if !replace => Err(WriteError::Exists {
            path: path.to_owned(),
        }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(output_error("looking at", path, error))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn nameless_file(folder: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_TMPFILE.bits())
        .open(folder)
}

/// What filesystems and kernels without `O_TMPFILE` answer (open(2)).
fn is_unsupported(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(
        code,
        Some(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL)
    )
}

/// A nameless file gets its name through /proc, which a container may lack.
fn can_be_linked(file: &File) -> bool {
    fs::metadata(format!("/proc/self/fd/{}", file.as_raw_fd())).is_ok()
}

fn named_file(path: &Path) -> Result<(File, Option<PathBuf>), WriteError> {
    let partial = partial_path(path);
    let file = create_new(&partial).map_err(|error| output_error("creating", &partial, error))?;
    Ok((file, Some(partial)))
}

fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
}

fn partial_path(path: &Path) -> PathBuf {
    suffixed(path, "partial")
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.{suffix}", process::id()));
    folder_of(path).join(name)
}

fn output_error(action: &'static str, path: &Path, error: io::Error) -> WriteError {
    WriteError::Output {
        action,
        path: path.to_owned(),
        error,
    }
}
