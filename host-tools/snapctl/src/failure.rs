//! How commands fail: one line for a person, an object for a program, and an exit status for a script.

use std::fmt;
use std::process::ExitCode;

use admin_proto::v1::{ErrorDetail, Reason};
use serde::Serialize;
use tonic::Code;

use crate::text;

/// What kind of failure it is; its number is the exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// A fault of the daemon, or of this program.
    Fault = 1,
    /// The command line is not right.
    Usage = 2,
    /// Something here cannot be read or printed; or the daemon is of another version.
    Here = 3,
    /// What was named is not there.
    NotFound = 4,
    /// It is there already, or cannot be done as things are, or is one too many.
    State = 5,
    /// We may not.
    Denied = 6,
    /// The daemon cannot be reached, does not answer in time, or is at its end.
    Unreachable = 7,
}

impl Exit {
    fn of(code: Code) -> Exit {
        match code {
            Code::InvalidArgument | Code::OutOfRange => Exit::Usage,
            Code::Unimplemented => Exit::Here,
            Code::NotFound => Exit::NotFound,
            Code::AlreadyExists
            | Code::FailedPrecondition
            | Code::ResourceExhausted
            | Code::Aborted => Exit::State,
            Code::PermissionDenied | Code::Unauthenticated => Exit::Denied,
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => Exit::Unreachable,
            Code::Ok | Code::Internal | Code::Unknown | Code::DataLoss => Exit::Fault,
        }
    }
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    /// None where nothing was asked of a daemon, and nothing was wrong with what was to be asked.
    code: Option<Code>,
    detail: ErrorDetail,
    message: String,
}

/// The same for a program.
#[derive(Serialize)]
struct Told<'a> {
    code: &'static str,
    reason: &'static str,
    field: &'a str,
    object_kind: &'static str,
    object_key: &'a str,
    message: &'a str,
    exit_status: u8,
}

impl Failure {
    /// The command line is not right.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::of(Code::InvalidArgument, message)
    }

    /// Something here does not work.
    pub fn here(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Here, None, message)
    }

    /// The daemon cannot be reached.
    pub fn unreachable(message: impl Into<String>) -> Failure {
        Failure::of(Code::Unavailable, message)
    }

    /// A daemon's code, or the one that a daemon would have given.
    pub fn of(code: Code, message: impl Into<String>) -> Failure {
        Failure::new(Exit::of(code), Some(code), message)
    }

    fn new(exit: Exit, code: Option<Code>, message: impl Into<String>) -> Failure {
        // One line, whatever a daemon or a system says: terminal controls do not get through either.
        Failure {
            exit,
            code,
            detail: ErrorDetail::default(),
            message: text::clean(message.into().trim()),
        }
    }

    /// With what the daemon says of it to programs.
    pub fn detailed(self, detail: ErrorDetail) -> Failure {
        Failure { detail, ..self }
    }

    /// Why the daemon refused; unspecified where it did not say, or did not refuse.
    pub fn reason(&self) -> Reason {
        self.detail.reason()
    }

    /// The daemon's detail of it.
    pub fn detail(&self) -> &ErrorDetail {
        &self.detail
    }

    /// Whether the daemon was lost, or was never there: what asking again may mend.
    pub fn is_unreachable(&self) -> bool {
        self.exit == Exit::Unreachable
    }

    /// Prints the failure for a person, or as one JSON object; returns its exit status.
    pub fn report(&self, json: bool) -> ExitCode {
        let exit = self.exit as u8;
        if json {
            let told = Told {
                code: self.code.map_or("", name),
                reason: self.detail.reason().as_str_name(),
                field: &self.detail.field,
                object_kind: self.detail.object_kind().as_str_name(),
                object_key: &self.detail.object_key,
                message: &self.message,
                exit_status: exit,
            };
            // Texts and a number: this cannot fail.
            eprintln!("{}", serde_json::to_string(&told).unwrap_or_default());
        } else {
            printout::stderr::error(self);
        }
        ExitCode::from(exit)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A code as gRPC writes it.
fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
