//! Why a device cannot be made, found, or changed.

use std::time::Duration;

use nix::errno::Errno;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum UblkError {
    /// The driver is not there.
    #[error(
        "this kernel has no ublk ({path}: {source}): load its driver with `modprobe ublk_drv`; Linux 6.5 or later has what is needed, in a container the device must be handed in"
    )]
    NoDriver {
        /// What was opened.
        path: String,
        /// Why it could not be.
        source: Errno,
    },
    /// Not allowed.
    #[error("{what}: {source}: ublk devices need CAP_SYS_ADMIN; start the daemon as root")]
    NotPermitted {
        /// What was tried.
        what: String,
        /// What the system says.
        source: Errno,
    },
    /// The driver refused.
    #[error("{what}: {source}")]
    Refused {
        /// What was tried.
        what: String,
        /// What it says.
        source: Errno,
    },
    /// The driver did not answer in time.
    #[error("{what}: the kernel has not answered within {patience:?}")]
    NotInTime {
        /// What was tried.
        what: String,
        /// How long.
        patience: Duration,
    },
}

impl UblkError {
    pub(crate) fn of(what: String, source: Errno) -> Self {
        match source {
            Errno::EPERM | Errno::EACCES => Self::NotPermitted { what, source },
            source => Self::Refused { what, source },
        }
    }

    /// What the driver said, where it said no.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::NoDriver { source, .. }
            | Self::NotPermitted { source, .. }
            | Self::Refused { source, .. } => Some(*source),
            Self::NotInTime { .. } => None,
        }
    }
}
