//! What can go wrong, told so that a person knows where and what to do.

use std::io;

use thiserror::Error;

use crate::Format;

/// An error of this crate.
#[derive(Debug, Error)]
pub enum FormatError {
    /// The file says that it is of a format, and breaks its rules.
    #[error("not a valid {format} file: at byte {offset}: {why}")]
    Malformed {
        /// What it says it is.
        format: Format,
        /// Where, in bytes from the file's start.
        offset: u64,
        /// The rule.
        why: String,
    },
    /// More of something than is read.
    #[error("{format}: {found} {what}; at most {max} are read")]
    Limit {
        /// The format.
        format: Format,
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// What was asked for cannot be presented; says what can.
    #[error("{name}: {why}")]
    Refused {
        /// The tensor, column or file.
        name: String,
        /// Why, and the way out.
        why: String,
    },
    /// A rule that cannot be read.
    #[error("rule {rule:?}: {why}")]
    Rule {
        /// As it was given.
        rule: String,
        /// What is wrong with it.
        why: String,
    },
    /// The source could not be read.
    #[error("reading at byte {offset}: {error}")]
    Read {
        /// Where.
        offset: u64,
        /// What the system said.
        error: io::Error,
    },
}

impl FormatError {
    pub(crate) fn malformed(format: Format, offset: u64, why: impl Into<String>) -> FormatError {
        FormatError::Malformed {
            format,
            offset,
            why: why.into(),
        }
    }

    pub(crate) fn refused(name: impl Into<String>, why: impl Into<String>) -> FormatError {
        FormatError::Refused {
            name: name.into(),
            why: why.into(),
        }
    }
}
