//! The host's side above the transport: what to send to bring a controller up, to learn its namespaces, to read a discovery
//! log and to leave, and what the answers mean. No I/O, and the clock is passed in.
//!
//! Contract: a [`Sequence`] says what to do next ([`Step`]); its driver sends the command on the queue the sequence is for,
//! brings back the completion with the data, and asks again. One command of a sequence is outstanding at a time. Whatever
//! a controller answers ends in a step, a result or an [`InitiatorError`]; sequences have a bounded number of steps.
//!
//! [`path::Path`] puts the sequences together: one way to a subsystem, brought up, watched, lost, and brought up again.
//!
//! What it does not do: authentication, TLS, Abort, reservations. Which commands are tried again, and on which path, belongs to the
//! driver, which owns the queues and the buffers.

mod ana;
mod attach;
pub mod command;
mod discovery;
mod identity;
mod keep_alive;
pub mod nvm;
pub mod path;
mod shutdown;
mod split;
#[cfg(test)]
mod tests;

use std::time::Duration;

use nvme_spec::{Cqe, Status};

use crate::Time;

pub use crate::outstanding::{Command, Transfer};
pub use ana::{ANA_GROUPS_MAX, AnaState};
pub use attach::{AttachAdmin, AttachIo, Attached};
pub use command::{Association, Blocks};
pub use discovery::{DISCOVERY_RECORDS_MAX, DiscoveryRecord, ReadDiscoveryLog};
pub use identity::{ControllerInfo, NamespaceIds, NamespaceInfo, TRANSFER_BYTES_MAX, Uuid};
pub use keep_alive::{KeepAlive, KeepAliveStep};
pub use shutdown::Shutdown;
pub use split::{Geometry, Piece, Split};

/// A piece of a host's conversation with a controller, driven one command at a time.
pub trait Sequence {
    /// What to do next. The same answer again, until [`Sequence::answered`] was called or the time came.
    fn step(&mut self, now: Time) -> Result<Step, InitiatorError>;

    /// The completion of the command that the last step issued, and the data that came with it. After an error there is no
    /// result.
    fn answered(&mut self, now: Time, cqe: &Cqe, data: &[u8]) -> Result<(), InitiatorError>;
}

/// What a sequence needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this command; `data_out` are its data where the transfer is outward, empty otherwise.
    Issue {
        /// The command.
        command: Command,
        /// Its outgoing data.
        data_out: Vec<u8>,
    },
    /// Ask again at that time.
    WaitUntil(Time),
    /// The sequence has its result.
    Done,
}

impl Step {
    fn issue(command: Command) -> Step {
        Step::Issue {
            command,
            data_out: Vec::new(),
        }
    }
}

/// What went wrong between a host and a controller, above the transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitiatorError {
    /// The controller refused Connect.
    #[error("the target refused to connect to {subnqn}: {status}{}", .parameter.map(|p| format!(" ({p})")).unwrap_or_default())]
    ConnectRefused {
        /// The subsystem asked for.
        subnqn: String,
        /// The status.
        status: Status,
        /// The parameter that the target names, where it names one.
        parameter: Option<ConnectParameter>,
    },
    /// The controller answered another command of a sequence with an error.
    #[error("the controller answered {command} with status {status}")]
    Refused {
        /// The command.
        command: &'static str,
        /// The status.
        status: Status,
    },
    /// The controller asks for authentication.
    #[error("the controller asks for DH-HMAC-CHAP authentication, which this host does not have")]
    AuthenticationRequired,
    /// A field of the controller's data cannot be true, or is beyond what we work with.
    #[error("the controller's {what} is {found}; expected {expected}")]
    Malformed {
        /// The field, by the specification's name.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What was expected.
        expected: &'static str,
    },
    /// CSTS.CFS is set.
    #[error("the controller reports a fatal status (CSTS.CFS); it needs a reset at its side")]
    ControllerFatal,
    /// CSTS did not change in time.
    #[error("the controller did not {action} within {after:?}")]
    NotInTime {
        /// "become ready" or "shut down".
        action: &'static str,
        /// How long the host waited.
        after: Duration,
    },
    /// More of something than the host is willing to hold.
    #[error("the controller lists {found} {what}; this host takes up to {limit}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there are, or were when the limit was passed.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The discovery log kept changing while it was read.
    #[error("the discovery log changed {0} times while it was read; try again later")]
    DiscoveryUnstable(u32),
    /// An NQN that no field holds.
    #[error("'{0}' is no NQN: it needs 1 to 223 bytes")]
    Nqn(String),
}

/// Which parameter a target names as invalid (Base, "Connect Response": IPO and IATTR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectParameter {
    /// Whether the offset counts in the data, or in the entry.
    pub in_data: bool,
    /// The byte offset.
    pub offset: u16,
}

impl std::fmt::Display for ConnectParameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.in_data { "data" } else { "command" };
        write!(f, "byte {} of the Connect {place}", self.offset)?;
        // Fabrics 1.1, figure 22: SUBNQN and HOSTNQN.
        match (self.in_data, self.offset) {
            (true, 256) => f.write_str(
                ", the subsystem's NQN: name one that the target has, as its discovery service lists them",
            ),
            (true, 512) => f.write_str(", this host's NQN: let the target admit it"),
            _ => Ok(()),
        }
    }
}

fn expect_success(command: &'static str, cqe: &Cqe) -> Result<(), InitiatorError> {
    let status = cqe.status();
    if status.is_success() {
        Ok(())
    } else {
        Err(InitiatorError::Refused { command, status })
    }
}
