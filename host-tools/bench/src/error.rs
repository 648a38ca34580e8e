//! What a run can fail with.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a run failed. [`Error::kind`] says whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option on the command line.
    #[error("--{option}: {why}")]
    Option {
        /// Its name.
        option: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A line of a job file.
    #[error("{}:{line}: {why}", path.display())]
    JobFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Options that do not go together, or with the target.
    #[error("{job}: {why}")]
    Job {
        /// The job's name.
        job: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// Writing there would destroy what this program did not write.
    #[error("{target}: {why}")]
    Refused {
        /// The file, device or namespace.
        target: String,
        /// Why, and the option that lifts it.
        why: String,
    },
    /// The operating system said no.
    #[error("{action} {}: {source}", path.display())]
    Io {
        /// What was done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// io_uring could not be set up as asked.
    #[error("io_uring: {action}: {source}{hint}")]
    Ring {
        /// What was done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
        /// What mends it, where that is known.
        hint: &'static str,
    },
    /// A read, write, trim or flush failed.
    #[error("{what} of {len} bytes at offset {offset} failed: {source}")]
    Command {
        /// The direction.
        what: &'static str,
        /// Where.
        offset: u64,
        /// How much.
        len: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The job's time was over, and the target fell silent.
    #[error(
        "{} had no answer: the target was silent for {} s after the end; what was asked may be done or not",
        commands(*count),
        silence.as_secs()
    )]
    Unanswered {
        /// So many were outstanding.
        count: usize,
        /// For so long nothing was heard.
        silence: Duration,
        /// The end was the user's.
        interrupted: bool,
    },
    /// The user wanted an end before there was anything to report.
    #[error("ended by a signal while connecting to {target}")]
    Interrupted {
        /// The namespace.
        target: String,
    },
    /// The NVMe/TCP connection or a command on it.
    #[error(transparent)]
    Nvme(#[from] initiator::Error),
    /// Data read back are not what was written.
    #[error(transparent)]
    Verify(#[from] crate::verify::Mismatch),
}

/// Whose fault an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The data are wrong.
    Data,
    /// What was asked for cannot be.
    Usage,
    /// The system, the device or the network.
    System,
    /// A signal, before all was done.
    Interrupted,
}

impl Error {
    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Verify(_) => ErrorKind::Data,
            Error::Option { .. }
            | Error::JobFile { .. }
            | Error::Job { .. }
            | Error::Refused { .. } => ErrorKind::Usage,
            Error::Interrupted { .. }
            | Error::Unanswered {
                interrupted: true, ..
            } => ErrorKind::Interrupted,
            // No namespace is named.
            Error::Nvme(initiator::Error::WhichNamespace { .. }) => ErrorKind::Usage,
            Error::Io { .. }
            | Error::Ring { .. }
            | Error::Command { .. }
            | Error::Unanswered { .. }
            | Error::Nvme(_) => ErrorKind::System,
        }
    }

    /// The system's error number; EIO where there is none.
    pub fn errno(&self) -> i32 {
        let source = match self {
            Error::Io { source, .. }
            | Error::Ring { source, .. }
            | Error::Command { source, .. } => source.raw_os_error(),
            Error::Unanswered { .. } => Some(nix::errno::Errno::ETIMEDOUT as i32),
            Error::Interrupted { .. } => Some(nix::errno::Errno::EINTR as i32),
            Error::Verify(_) => Some(nix::errno::Errno::EILSEQ as i32),
            _ => None,
        };
        source.unwrap_or(nix::errno::Errno::EIO as i32)
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Error {
        Error::Io {
            action,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn job(job: &str, why: impl Into<String>) -> Error {
        Error::Job {
            job: job.to_owned(),
            why: why.into(),
        }
    }
}

fn commands(count: usize) -> String {
    match count {
        1 => "1 command".to_owned(),
        count => format!("{count} commands"),
    }
}
