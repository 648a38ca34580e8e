//! A mount, from its beginning to its end.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::complaints::Complaints;
use crate::error::MountError;
use crate::files::Content;
use crate::filesystem::DiskFilesystem;
use crate::limits::THREADS_MAX;

const DEVICE: &str = "/dev/fuse";
/// What the mount's source is called in the list of mounts, at most.
const SOURCE_CHARS_MAX: usize = 200;

/// How a disk is mounted.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is mounted, for the list of mounts.
    pub source: String,
    /// Other users may read it, as far as modes and owners allow; otherwise whoever mounts it reads everything, and nobody else anything.
    pub allow_other: bool,
    /// Reads that are worked on at once: 1 to 64.
    pub threads: usize,
}

/// A mounted disk, which is served from [`run`](Mounted::run) on.
pub struct Mounted {
    session: Session<DiskFilesystem>,
    folder: PathBuf,
}

/// Unmounts from another thread.
#[derive(Debug)]
pub struct Unmounter {
    unmounter: SessionUnmounter,
    folder: PathBuf,
}

impl Mounted {
    /// Mounts `content` on the folder `folder`. `complain` is told of reads that fail.
    ///
    /// # Errors
    /// The folder cannot be mounted on, or the system does not mount.
    pub fn new(
        content: Content,
        folder: &Path,
        options: &Options,
        complain: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Mounted, MountError> {
        check_folder(folder)?;
        let real = folder.canonicalize().map_err(|error| MountError::Folder {
            folder: folder.to_owned(),
            error,
        })?;
        let complaints = Complaints::new(Box::new(complain));
        let filesystem = DiskFilesystem::new(content, complaints);
        let session = Session::new(filesystem, &real, &config(options));
        let session = session.map_err(|error| refused(&real, error))?;
        Ok(Mounted {
            session,
            folder: real,
        })
    }

    /// To end it while it is served.
    pub fn unmounter(&mut self) -> Unmounter {
        Unmounter {
            unmounter: self.session.unmount_callable(),
            folder: self.folder.clone(),
        }
    }

    /// Serves it until it is unmounted.
    ///
    /// # Errors
    /// Talking to the kernel failed.
    pub fn run(self) -> Result<(), MountError> {
        self.session.run().map_err(MountError::Session)
    }
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mounted on {}", self.folder.display())
    }
}

impl Unmounter {
    /// Takes the mount away from its folder. What is open goes on as long as it is served.
    ///
    /// # Errors
    /// The system does not unmount.
    pub fn unmount(&mut self) -> io::Result<()> {
        match self.unmounter.unmount() {
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
                Ok(umount2(&self.folder, MntFlags::MNT_DETACH)?)
            }
            result => result,
        }
    }
}

fn config(options: &Options) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::FSName(source_name(&options.source)),
        MountOption::Subtype("xio".to_owned()),
    ];
    if options.allow_other {
        config.acl = SessionACL::All;
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    config.n_threads = Some(options.threads.clamp(1, THREADS_MAX));
    config
}

/// The helper takes options with commas between them, and a source must not become one.
fn source_name(source: &str) -> String {
    let plain = |c: char| match c {
        ',' | '\\' => '_',
        c if c.is_control() => '_',
        c => c,
    };
    source.chars().take(SOURCE_CHARS_MAX).map(plain).collect()
}

fn check_folder(folder: &Path) -> Result<(), MountError> {
    let failed = |error| MountError::Folder {
        folder: folder.to_owned(),
        error,
    };
    let mut names = fs::read_dir(folder).map_err(|error| {
        if error.raw_os_error() == Some(Errno::ENOTCONN as i32) {
            return MountError::Stale(folder.to_owned());
        }
        failed(error)
    })?;
    match names.next() {
        None => Ok(()),
        Some(Ok(_)) => Err(MountError::NotEmpty(folder.to_owned())),
        Some(Err(error)) => Err(failed(error)),
    }
}

fn refused(folder: &Path, error: io::Error) -> MountError {
    if !Path::new(DEVICE).exists() {
        return MountError::NoDevice;
    }
    if matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    ) {
        return MountError::NoHelper(error);
    }
    MountError::Refused {
        folder: folder.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_no_option() {
        assert_eq!(source_name("a,allow_other\\\n"), "a_allow_other__");
        assert_eq!(source_name(&"x".repeat(500)).len(), SOURCE_CHARS_MAX);
        let url = "nvme+tcp://[::1]:4420/nqn.2026-11.io.xio:tokens?nsid=1";
        assert_eq!(source_name(url), url);
    }
}
