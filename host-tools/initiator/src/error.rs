//! What a caller is told.

use std::io;

use nvme::initiator::{ConnectParameter, InitiatorError};
use nvme::tcp::host::HostError;
use nvme_spec::Status;

/// Where a controller's ID stands in the data of Connect (Base, "Connect Command"). Nobody asks for one but by an I/O queue.
const CNTLID_OFFSET: u16 = 16;

/// Why a call failed. [`Error::ends_connection`] says whether another call may follow.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address names no host.
    #[error("cannot resolve '{address}': {source}")]
    Resolve {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// No TCP connection.
    #[error("cannot connect to {address}: {source}; is a target listening there?")]
    Connect {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The system does not have the congestion control that was asked for, or does not allow it.
    #[error(
        "cannot use TCP congestion control '{name}': {source}; the system allows those of /proc/sys/net/ipv4/tcp_allowed_congestion_control"
    )]
    Congestion {
        /// As it was given.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Sending or receiving failed.
    #[error("the connection to {address} failed: {source}")]
    Socket {
        /// The target.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The target closed the connection.
    #[error("{address} closed the connection")]
    Closed {
        /// The target.
        address: String,
    },
    /// The target did not answer while it was shut down.
    #[error("{address} did not answer the shutdown")]
    Silent {
        /// The target.
        address: String,
    },
    /// The connection ended over the protocol, or a timeout.
    #[error("the connection to {address} ended: {source}")]
    Connection {
        /// The target.
        address: String,
        /// Why.
        source: HostError,
    },
    /// An earlier call failed in a way that ended the connection.
    #[error("the connection to {address} is over after an earlier error; connect again")]
    Over {
        /// The target.
        address: String,
    },
    /// The controller cannot be used, or refused what it was asked.
    #[error("{address}: {source}")]
    Controller {
        /// The target.
        address: String,
        /// Why.
        source: InitiatorError,
    },
    /// The subsystem is not for this host.
    #[error(
        "{address}: the host {hostnqn} may not connect to {subnqn}: {status}; let it in with 'snapctl host allow {subnqn} {hostnqn}', or name another with --hostnqn"
    )]
    HostRefused {
        /// The target.
        address: String,
        /// The subsystem.
        subnqn: String,
        /// The host.
        hostnqn: String,
        /// What the target says.
        status: Status,
    },
    /// The subsystem grants no I/O queue: a discovery controller, for one.
    #[error("{address}: '{subnqn}' grants no I/O queue; a discovery subsystem has no namespaces")]
    NoIoQueue {
        /// The target.
        address: String,
        /// The subsystem.
        subnqn: String,
    },
    /// No such namespace.
    #[error("namespace {nsid} is not there; the subsystem has {present:?}")]
    NoNamespace {
        /// Asked for.
        nsid: u32,
        /// Those it has.
        present: Vec<u32>,
    },
    /// None was named, and there is not just one.
    #[error("{}", which(present))]
    WhichNamespace {
        /// Those it has.
        present: Vec<u32>,
    },
    /// A byte range outside of the namespace.
    #[error("bytes {offset}..{} are outside of namespace {nsid}, which has {namespace_bytes} bytes", u128::from(*.offset) + *.len as u128)]
    Range {
        /// The namespace.
        nsid: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: usize,
        /// Bytes of the namespace.
        namespace_bytes: u64,
    },
    /// A command was answered with an error.
    #[error(
        "{command} of {blocks} blocks at LBA {lba} of namespace {nsid} failed with status {}",
        status.of_io()
    )]
    Command {
        /// Read, Write or Flush.
        command: &'static str,
        /// The namespace.
        nsid: u32,
        /// First block; 0 for Flush.
        lba: u64,
        /// Blocks; 0 for Flush.
        blocks: u32,
        /// What the controller says.
        status: Status,
    },
    /// What was read is not what belongs there.
    #[error("namespace {nsid}: byte {offset} is {found:#04x}, expected {expected:#04x}")]
    Mismatch {
        /// The namespace.
        nsid: u32,
        /// The first differing byte.
        offset: u64,
        /// The byte that came.
        found: u8,
        /// The byte that belongs there.
        expected: u8,
    },
    /// What was read twice differs.
    #[error(
        "namespace {nsid}: {len} bytes at {offset} have CRC-32C {found:#010x}, and had {expected:#010x} before"
    )]
    Changed {
        /// The namespace.
        nsid: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u32,
        /// The checksum now.
        found: u32,
        /// The checksum before.
        expected: u32,
    },
    /// A load that cannot be run.
    #[error("this load cannot run: {0}")]
    Load(String),
}

fn which(present: &[u32]) -> String {
    /// More would not be read.
    const LISTED_MAX: usize = 16;
    if present.is_empty() {
        return "the subsystem has no namespace that this host may see".to_owned();
    }
    let listed: Vec<String> = present
        .iter()
        .take(LISTED_MAX)
        .map(u32::to_string)
        .collect();
    let more = match present.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!(
        "the subsystem has namespaces {}{more}; choose one with ?nsid=N behind the NQN",
        listed.join(", ")
    )
}

impl Error {
    /// Whether the target does not have the subsystem, or does not let this host connect to it.
    pub fn is_connect_refused(&self) -> bool {
        matches!(
            self,
            Error::Controller {
                source: InitiatorError::ConnectRefused { .. },
                ..
            }
        ) && !self.is_controller_gone()
    }

    /// Whether the controller went before its I/O queue was connected: its admin connection ended, and the target does not know the ID any more.
    pub fn is_controller_gone(&self) -> bool {
        matches!(
            self,
            Error::Controller {
                source: InitiatorError::ConnectRefused {
                    parameter: Some(ConnectParameter {
                        in_data: true,
                        offset: CNTLID_OFFSET,
                    }),
                    ..
                },
                ..
            }
        )
    }

    /// Whether the connection is over: what was outstanding may or may not have been done, and a new one is needed.
    pub fn ends_connection(&self) -> bool {
        matches!(
            self,
            Error::Socket { .. }
                | Error::Closed { .. }
                | Error::Silent { .. }
                | Error::Connection { .. }
                | Error::Over { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_that_went_is_no_refusal_of_the_subsystem() {
        let refused = |in_data, offset| Error::Controller {
            address: "target:4420".to_owned(),
            source: InitiatorError::ConnectRefused {
                subnqn: "nqn.2026-11.test:one".to_owned(),
                status: Status::CONNECT_INVALID_PARAMETERS,
                parameter: Some(ConnectParameter { in_data, offset }),
            },
        };
        // CNTLID; SUBNQN; HOSTNQN; the same offset of the command.
        for (in_data, offset, is_gone) in [
            (true, 16, true),
            (true, 256, false),
            (true, 512, false),
            (false, 16, false),
        ] {
            let error = refused(in_data, offset);
            assert_eq!(error.is_controller_gone(), is_gone, "{error}");
            assert_eq!(error.is_connect_refused(), !is_gone, "{error}");
        }
    }

    #[test]
    fn who_must_choose_is_told_among_which() {
        let said = |last| {
            let present = (1..=last).collect();
            Error::WhichNamespace { present }.to_string()
        };
        assert_eq!(
            said(0),
            "the subsystem has no namespace that this host may see"
        );
        assert_eq!(
            said(2),
            "the subsystem has namespaces 1, 2; choose one with ?nsid=N behind the NQN"
        );
        let many = said(1024);
        assert!(many.contains(" 15, 16 and 1008 more; choose one"), "{many}");
    }
}
