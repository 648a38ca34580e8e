//! Why a host's connection ended.

use std::time::Duration;

use nvme_spec::Cid;
use nvme_spec::tcp::FatalErrorStatus;

use crate::tcp::pdu::FatalError;

/// Why a connection ended. Whatever it was, the outcome of each outstanding command is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The controller broke the protocol; it was told so.
    #[error("the controller broke the protocol: {0}")]
    Protocol(FatalError),
    /// The controller ended the connection with a TermReq PDU.
    #[error("the controller ended the connection: {status:?}, FEI {information:#x}")]
    Terminated {
        /// FES.
        status: FatalErrorStatus,
        /// FEI.
        information: u32,
    },
    /// The controller does not use a digest that this host insists on.
    #[error(
        "the controller does not use {0} digests; connect without, or enable them at the target"
    )]
    DigestRefused(&'static str),
    /// No ICResp in time.
    #[error(
        "the target did not answer the connection request (ICReq) within 10 s; is it an NVMe/TCP port?"
    )]
    HandshakeTimeout,
    /// A command was not answered in time.
    #[error("command {:#06x} was not answered within {after:?}", .cid.0)]
    CommandTimeout {
        /// The command.
        cid: Cid,
        /// The time it had.
        after: Duration,
    },
}

impl From<FatalError> for HostError {
    fn from(error: FatalError) -> HostError {
        HostError::Protocol(error)
    }
}
