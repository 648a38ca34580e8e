//! How commands fail: one line for a person, and an exit status for a script.

use std::fmt;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use crate::text;

/// What kind of failure it is; its number is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The daemon was asked, and refused.
    Refused = 1,
    /// The command line is not right.
    Usage = 2,
    /// The daemon cannot be reached, does not answer, or is another version; or something here cannot be read or printed.
    Unreachable = 3,
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
}

impl Failure {
    /// The daemon refused.
    pub fn refused(message: impl Into<String>) -> Failure {
        Failure::of(Kind::Refused, message)
    }

    /// The command line is not right.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::of(Kind::Usage, message)
    }

    /// The daemon cannot be reached, or something here does not work.
    pub fn unreachable(message: impl Into<String>) -> Failure {
        Failure::of(Kind::Unreachable, message)
    }

    fn of(kind: Kind, message: impl Into<String>) -> Failure {
        // One line, whatever a daemon or a system says: terminal controls do not get through either.
        Failure {
            kind,
            message: text::clean(message.into().trim()),
        }
    }

    /// Prints the failure for a person, and returns its exit status.
    pub fn report(&self) -> ExitCode {
        let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let (on, off) = if colour {
            ("\x1b[1;31m", "\x1b[0m")
        } else {
            ("", "")
        };
        eprintln!("{on}error:{off} {self}");
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
