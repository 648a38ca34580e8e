//! A mount, from its beginning to its end.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::statvfs::statvfs;

use crate::complaints::Complaints;
use crate::error::MountError;
use crate::files::Content;
use crate::filesystem::DiskFilesystem;
use crate::limits::THREADS_MAX;
use crate::mounts::device_on;

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

/// A mounted disk, which is served until it is unmounted.
#[derive(Debug)]
pub struct Mounted {
    serving: JoinHandle<io::Result<()>>,
}

/// Unmounts, at the latest when it is dropped: this mount, and no other that came to its folder.
#[derive(Debug)]
pub struct Unmounter {
    /// `None`: it was unmounted.
    session: Option<BackgroundSession>,
    /// The session's `/dev/fuse`.
    connection: OwnedFd,
    folder: PathBuf,
    /// The mount's device number, where the system lists mounts.
    device: Option<Vec<u8>>,
}

impl Mounted {
    /// Mounts `content` on the folder `folder`, and serves it. `complain` is told of reads that fail.
    ///
    /// # Errors
    /// The folder cannot be mounted on, or the system does not mount.
    pub fn new(
        content: Content,
        folder: &Path,
        options: &Options,
        complain: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<(Mounted, Unmounter), MountError> {
        check_folder(folder)?;
        let real = folder.canonicalize().map_err(|error| MountError::Folder {
            folder: folder.to_owned(),
            error,
        })?;
        let complaints = Complaints::new(Box::new(complain));
        let filesystem = DiskFilesystem::new(content, complaints);
        let session = Session::new(filesystem, &real, &config(options));
        let session = session.map_err(|error| refused(&real, error))?;
        let device = device_on(&real);
        let connection = session.as_fd().try_clone_to_owned();
        let connection = connection.map_err(MountError::Session)?;
        let mut session = session.spawn().map_err(MountError::Session)?;
        // What unmounts stays with the session, and the end is waited for elsewhere: the session gets another thread to wait for.
        let nothing = thread::Builder::new().spawn(|| Ok(()));
        let serving = mem::replace(&mut session.guard, nothing.map_err(MountError::Session)?);
        let unmounter = Unmounter {
            session: Some(session),
            connection,
            folder: real,
            device,
        };
        Ok((Mounted { serving }, unmounter))
    }

    /// Waits until it is unmounted.
    ///
    /// # Errors
    /// Talking to the kernel failed.
    pub fn ended(self) -> Result<(), MountError> {
        let ended = self.serving.join();
        let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        ended.map_err(MountError::Session)
    }
}

impl Unmounter {
    /// Takes the mount away from its folder, where it still is. What is open goes on as long as it is served.
    ///
    /// # Errors
    /// The system does not unmount.
    pub fn unmount(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        if !self.is_on_its_folder() {
            // fuser unmounts by the folder's path, also when it is dropped: that would be the mount of somebody else.
            mem::forget(session);
            return Ok(());
        }
        match session.umount_and_join() {
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
                Ok(umount2(&self.folder, MntFlags::MNT_DETACH)?)
            }
            result => result,
        }
    }

    /// As long as the connection is there, no other mount gets its device number.
    fn is_on_its_folder(&self) -> bool {
        let mut asked = [PollFd::new(self.connection.as_fd(), PollFlags::empty())];
        let is_cut = poll(&mut asked, PollTimeout::ZERO).is_ok()
            && asked[0]
                .revents()
                .is_some_and(|it| it.contains(PollFlags::POLLERR));
        !is_cut && device_on(&self.folder) == self.device
    }
}

impl Drop for Unmounter {
    fn drop(&mut self) {
        // There is nobody to tell.
        let _ = self.unmount();
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
    // Names may still be there of a mount whose program is gone: the kernel has kept them. This it asks for each time.
    if statvfs(folder) == Err(Errno::ENOTCONN) {
        return Err(MountError::Stale(folder.to_owned()));
    }
    let mut names = fs::read_dir(folder).map_err(failed)?;
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
