//! What can be wrong with a dataset, and where.

use std::io;
use std::path::{Path, PathBuf};

use erofs::ErofsError;
use formats::FormatError;
use thiserror::Error;
use volume::VolumeError;
use volume::write::WriteError;

/// An error, with the file that it is about.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The operating system refused.
    #[error("{action} {}: {error}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },

    /// A file is not what it was when the folder was read.
    #[error("{}: it was changed meanwhile{}; try again when nothing writes to it", path.display(), told(*cut))]
    Changed {
        /// Which.
        path: PathBuf,
        /// Where it ends now, if it became shorter.
        cut: Option<Cut>,
    },

    /// Something that no disk holds, or a wish that cannot be met.
    #[error("{what} {why}")]
    Refused {
        /// The file, or the option.
        what: String,
        /// Why, and what to do.
        why: String,
    },

    /// The data cannot be what they are asked to be.
    #[error("{what} {why}")]
    Data {
        /// The file, and the place in it.
        what: String,
        /// Why, and what to do.
        why: String,
    },

    /// Files whose formats do not have the type that is asked for.
    #[error("{}", said.join("; "))]
    NoSuchType {
        /// For each reason the files, and the way out.
        said: Vec<String>,
    },

    /// A file breaks the rules of its format, or cannot be presented as asked.
    #[error("{}: {error}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: FormatError,
    },

    /// The filesystem cannot hold it.
    #[error(transparent)]
    Erofs(#[from] ErofsError),

    /// The partition table cannot hold it.
    #[error(transparent)]
    Gpt(#[from] gpt::GptError),

    /// A volume whose content is to be presented cannot be read.
    #[error("{}: {error}", path.display())]
    Volume {
        /// Which.
        path: PathBuf,
        /// Why.
        error: Box<VolumeError>,
    },

    /// The volume could not be written.
    #[error("{}{error}", about.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default())]
    Write {
        /// The file that it came from.
        about: Option<PathBuf>,
        /// What the writer says.
        error: WriteError,
    },
}

/// A file that became shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Its length now.
    pub bytes: u64,
    /// Its length when it was looked at.
    pub expected: u64,
}

fn told(cut: Option<Cut>) -> String {
    cut.map_or_else(String::new, |Cut { bytes, expected }| {
        format!(": it ends at byte {bytes}, and had {expected} bytes")
    })
}

/// An error of this crate that the writer met in its input is itself.
impl From<WriteError> for DatasetError {
    fn from(error: WriteError) -> DatasetError {
        let error = match error {
            WriteError::Input { offset, error } => match error.downcast() {
                Ok(own) => return own,
                Err(error) => WriteError::Input { offset, error },
            },
            error => error,
        };
        DatasetError::Write { about: None, error }
    }
}

impl DatasetError {
    /// What a reader says; an error of this crate that came through it is itself.
    #[must_use]
    pub fn io(action: &'static str, path: &Path, error: io::Error) -> DatasetError {
        let error = match error.downcast() {
            Ok(own) => return own,
            Err(error) => error,
        };
        let path = path.to_owned();
        // What is read lies inside the length that the file had.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return DatasetError::Changed { path, cut: None };
        }
        DatasetError::Io {
            action,
            path,
            error,
        }
    }

    pub(crate) fn volume(path: &Path, error: VolumeError) -> DatasetError {
        let path = path.to_owned();
        let error = Box::new(error);
        DatasetError::Volume { path, error }
    }

    pub(crate) fn refused(what: impl ToString, why: impl Into<String>) -> DatasetError {
        DatasetError::Refused {
            what: what.to_string(),
            why: why.into(),
        }
    }

    pub(crate) fn data(what: impl ToString, why: impl Into<String>) -> DatasetError {
        DatasetError::Data {
            what: what.to_string(),
            why: why.into(),
        }
    }

    pub(crate) fn format(path: &Path, error: FormatError) -> DatasetError {
        let error = match error {
            FormatError::Read { error, .. } => return DatasetError::io("reading", path, error),
            error => error,
        };
        DatasetError::Format {
            path: path.to_owned(),
            error,
        }
    }
}
