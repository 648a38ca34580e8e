//! What is wrong with a configuration, where, and what to do.

use std::fmt;
use std::path::PathBuf;

/// A place in a file, both counted from 1, as editors do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// Line.
    pub line: usize,
    /// Character of the line.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file.display(), self.line, self.column)
    }
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {why}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What the system said.
        why: String,
    },
    /// It is not TOML.
    #[error("{place}: not TOML: {why}")]
    Syntax {
        /// Where.
        place: Place,
        /// What was expected.
        why: String,
    },
    /// A key that is not known, is missing, or has a value that cannot be used.
    #[error("{place}: {key}: {why}")]
    Key {
        /// Where: of a missing key, its section.
        place: Place,
        /// Section and key.
        key: String,
        /// What is wrong, and what to do.
        why: String,
    },
}
