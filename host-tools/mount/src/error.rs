//! Why a disk is not mounted.

use std::io;
use std::path::PathBuf;

use erofs::ErofsError;
use gpt::GptError;

use crate::medium::ReadFailure;

/// Why a disk is not mounted, or a mount ended.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// What is on the disk cannot be read.
    #[error("{0}")]
    Disk(ErofsError),
    /// The partition table on the disk cannot be read.
    #[error("{0}")]
    Table(GptError),
    /// The medium does not read.
    #[error("{0}")]
    Medium(ReadFailure),
    /// No FUSE in this place.
    #[error(
        "there is no /dev/fuse here: load the kernel's module fuse, or start the container with --device /dev/fuse --cap-add SYS_ADMIN"
    )]
    NoDevice,
    /// Neither root nor the helper, or no access to the device.
    #[error(
        "mounting needs the program fusermount3 (package fuse3) or root, and access to /dev/fuse: {0}"
    )]
    NoHelper(io::Error),
    /// There is no folder to mount on.
    #[error("{}: {error}", folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// An earlier mount whose program is gone.
    #[error("{} is a mount whose program has ended; first: fusermount3 -u {}, or as root umount {}", .0.display(), .0.display(), .0.display())]
    Stale(PathBuf),
    /// A mount would hide what is there.
    #[error("{} is not empty, and a mount would hide what is in it", .0.display())]
    NotEmpty(PathBuf),
    /// The system does not mount.
    #[error("mounting on {}: {error}", folder.display())]
    Refused {
        /// Where.
        folder: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Talking to the kernel failed.
    #[error("serving the mount: {0}")]
    Session(io::Error),
}

/// A medium that does not read is told from a disk that is wrong.
impl From<ErofsError> for MountError {
    fn from(error: ErofsError) -> MountError {
        if let ErofsError::Read { error: read, .. } = &error
            && let Some(failure) = read
                .get_ref()
                .and_then(|it| it.downcast_ref::<ReadFailure>())
        {
            return MountError::Medium(failure.clone());
        }
        MountError::Disk(error)
    }
}
