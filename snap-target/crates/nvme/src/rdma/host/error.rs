//! Why a host's connection ended.

use std::time::Duration;

use nvme_spec::Cid;
use nvme_spec::rdma::RejectStatus;

/// Why a connection ended, or did not begin. The outcome of each outstanding command is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The controller said no, and why.
    #[error("the controller refused the connection: {} (status {})", reject_words(*.0), .0.0)]
    Rejected(RejectStatus),
    /// Something said no without NVMe's private data.
    #[error(
        "the connection was refused without a word of NVMe: does an NVMe/RDMA controller listen there?"
    )]
    RejectedWithoutWord,
    /// The acceptance has no room for NVMe's private data.
    #[error(
        "the controller accepted with {0} bytes of private data, where NVMe/RDMA has 32: is it an NVMe/RDMA port?"
    )]
    AcceptLength(usize),
    /// RECFMT.
    #[error(
        "the controller accepted with private data of format {0}, and this host knows format 0 only"
    )]
    AcceptFormat(u16),
    /// CRQSIZE.
    #[error("the controller accepted with no receive for a command (CRQSIZE 0)")]
    NoReceives,
    /// One request, one acceptance.
    #[error("the connection was accepted twice")]
    AcceptedTwice,
    /// A message that is not a response.
    #[error("the controller sent a message of {0} bytes, and a response has 16")]
    ResponseLength(usize),
    /// A response out of nothing.
    #[error("the controller answered command {:#06x}, which is not outstanding", .0.0)]
    UnknownCommand(Cid),
    /// A response that takes another's key.
    #[error("the answer to command {:#06x} invalidated key {key:#010x}, which is not that command's", .cid.0)]
    ForeignKey {
        /// The command.
        cid: Cid,
        /// The key.
        key: u32,
    },
    /// A command was not answered in time.
    #[error("command {:#06x} was not answered within {after:?}", .cid.0)]
    CommandTimeout {
        /// The command.
        cid: Cid,
        /// The time it had.
        after: Duration,
    },
}

impl HostError {
    /// Of STS as it arrived.
    pub(super) fn of_reject(status: u16) -> HostError {
        HostError::Rejected(RejectStatus(status))
    }
}

fn reject_words(status: RejectStatus) -> &'static str {
    match status {
        RejectStatus::INVALID_LENGTH => "invalid length of the private data",
        RejectStatus::INVALID_RECORD_FORMAT => "invalid record format",
        RejectStatus::INVALID_QID => "invalid queue identifier",
        RejectStatus::INVALID_HSQSIZE => "a submission queue of this size is too large (HSQSIZE)",
        RejectStatus::INVALID_HRQSIZE => "so many receives of the host do not suit it (HRQSIZE)",
        RejectStatus::NO_RESOURCES => "it has no room for another queue",
        RejectStatus::INVALID_IRD => "so many incoming RDMA reads do not suit it (IRD)",
        RejectStatus::INVALID_ORD => "so many outgoing RDMA reads do not suit it (ORD)",
        RejectStatus::INVALID_CNTLID => "it has no such controller (CNTLID)",
        _ => "a reason that the specification does not have",
    }
}
