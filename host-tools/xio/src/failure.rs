//! What a command can fail with, and the exit status that says so.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use mount::{MountError, ReadFailure};
use volume::write::WriteError;
use volume::{ErrorKind, VolumeError};

/// What kind of thing went wrong: the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The data is not right: a value does not fit, bytes differ, a volume is damaged.
    Data = 1,
    /// The command line is not right.
    Usage = 2,
    /// Something could not be read, written or reached.
    System = 3,
    /// A signal ended it before all was done; as shells have it.
    Interrupted = 130,
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    error: anyhow::Error,
}

impl Failure {
    /// The data is not right.
    pub fn data(error: impl Into<anyhow::Error>) -> Failure {
        Failure {
            kind: Kind::Data,
            error: error.into(),
        }
    }

    /// The command line is not right.
    pub fn usage(error: impl Into<anyhow::Error>) -> Failure {
        Failure {
            kind: Kind::Usage,
            error: error.into(),
        }
    }

    /// Something could not be read, written or reached.
    pub fn system(error: impl Into<anyhow::Error>) -> Failure {
        Failure {
            kind: Kind::System,
            error: error.into(),
        }
    }

    /// A signal ended it before all was done.
    pub fn interrupted(error: impl Into<anyhow::Error>) -> Failure {
        Failure {
            kind: Kind::Interrupted,
            error: error.into(),
        }
    }

    /// What the operating system said of a file.
    pub fn io(action: &str, path: &Path, error: io::Error) -> Failure {
        Failure::system(anyhow!("{action} {}: {error}", path.display()))
    }

    /// Says what the failure is about.
    pub fn about(self, what: impl std::fmt::Display) -> Failure {
        Failure {
            kind: self.kind,
            error: anyhow!("{what}: {self}"),
        }
    }

    /// For a command whose exit status 1 says something else: data that are not right are what cannot be read.
    pub fn not_of_data(self) -> Failure {
        match self.kind {
            Kind::Data => Failure::system(self.error),
            Kind::Usage | Kind::System | Kind::Interrupted => self,
        }
    }

    /// The error that it was made of, if it is of this type.
    pub fn cause<E: std::error::Error + Send + Sync + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    /// Prints the failure for a person, and returns its exit status.
    pub fn report(&self) -> ExitCode {
        printout::stderr::error(self);
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The errors of this project say their causes themselves.
        write!(f, "{}", self.error)
    }
}

impl From<initiator::Error> for Failure {
    fn from(error: initiator::Error) -> Failure {
        match error {
            initiator::Error::WhichNamespace { .. } => Failure::usage(error),
            error => Failure::system(error),
        }
    }
}

impl From<ReadFailure> for Failure {
    fn from(failure: ReadFailure) -> Failure {
        match failure.is_damage {
            true => Failure::data(failure),
            false => Failure::system(failure),
        }
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Failure {
        match error {
            MountError::Disk(_) | MountError::Table(_) => Failure::data(error),
            MountError::Medium(failure) => Failure::from(failure),
            MountError::Folder { .. } | MountError::Stale(_) | MountError::NotEmpty(_) => {
                Failure::usage(error)
            }
            MountError::NoDevice
            | MountError::NoHelper(_)
            | MountError::Refused { .. }
            | MountError::Session(_) => Failure::system(error),
        }
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Failure {
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Unsupported => Failure::data(error),
            ErrorKind::OutOfRange | ErrorKind::Io | ErrorKind::Usage => Failure::system(error),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Failure {
        match error {
            WriteError::PartialElement { .. }
            | WriteError::Encode { .. }
            | WriteError::Changed { .. } => Failure::data(error),
            WriteError::Lender { error } => Failure::from(*error),
            WriteError::Exists { .. }
            | WriteError::NotAFile { .. }
            | WriteError::Refused { .. } => Failure::usage(error),
            _ => Failure::system(error),
        }
    }
}
