//! What the ends say to each other while they connect: private data of the connection manager's messages.

use super::TargetLimits;
use crate::queue::QueueId;
use nvme_spec::U16;
use nvme_spec::rdma::{ConnectAccept, ConnectReject, ConnectRequest, RECORD_FORMAT, RejectStatus};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Greatest QID: one is kept free, as FFFFh names no queue.
const QUEUE_ID_MAX: u16 = u16::MAX - 1;

/// What a host asks for, within our limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// QID: the queue that the connection is to carry.
    pub queue: QueueId,
    /// HSQSIZE, one-based: commands that may be on their way to us.
    pub entries: u16,
    /// HRQSIZE: responses that may be on their way to the host.
    pub host_receives: u16,
    /// RDMA READs that may be in progress: what the host has room for, and we allow.
    pub reads_max: u8,
}

impl Request {
    /// Reads the private data of a connect request. `host_reads` is how many RDMA READs the host has room for (its responder resources), `device_reads` what
    /// our device can have in progress.
    ///
    /// # Errors
    /// What goes back with the reject.
    pub fn parse(
        private_data: &[u8],
        host_reads: u8,
        device_reads: u8,
        limits: &TargetLimits,
    ) -> Result<Request, Refusal> {
        // InfiniBand and RoCE pad the field with zeros.
        let (asked, _) = ConnectRequest::read_from_prefix(private_data)
            .map_err(|_| Refusal(RejectStatus::INVALID_LENGTH))?;
        let refuse = |status| Err(Refusal(status));
        if asked.record_format.get() != RECORD_FORMAT {
            return refuse(RejectStatus::INVALID_RECORD_FORMAT);
        }
        if asked.qid.get() > QUEUE_ID_MAX {
            return refuse(RejectStatus::INVALID_QID);
        }
        // A queue has at least two entries (Base, "Connect": SQSIZE 0 is not allowed).
        let entries = match asked.hsqsize_z.get() {
            0 => return refuse(RejectStatus::INVALID_HSQSIZE),
            hsqsize_z if hsqsize_z >= limits.queue_entries_max => {
                return refuse(RejectStatus::INVALID_HSQSIZE);
            }
            hsqsize_z => hsqsize_z + 1,
        };
        if asked.hrqsize.get() == 0 {
            return refuse(RejectStatus::INVALID_HRQSIZE);
        }
        let reads_max = host_reads.min(device_reads).min(limits.reads_max);
        if reads_max == 0 {
            return refuse(RejectStatus::INVALID_IRD);
        }
        Ok(Request {
            queue: QueueId(asked.qid.get()),
            entries,
            host_receives: asked.hrqsize.get(),
            reads_max,
        })
    }

    /// Private data of the accept: receives for each command that may be on its way are posted.
    pub fn accept_data(&self) -> [u8; size_of::<ConnectAccept>()] {
        let mut accept = ConnectAccept::new_zeroed();
        accept.crqsize = U16::new(self.entries);
        zerocopy::transmute!(accept)
    }
}

/// Why a connection is refused, before it has a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct Refusal(pub RejectStatus);

impl Refusal {
    /// Private data of the reject.
    pub fn reject_data(&self) -> [u8; size_of::<ConnectReject>()] {
        let mut reject = ConnectReject::new_zeroed();
        reject.record_format = U16::new(RECORD_FORMAT);
        reject.status = U16::new(self.0.0);
        let mut bytes = [0; size_of::<ConnectReject>()];
        bytes.copy_from_slice(reject.as_bytes());
        bytes
    }

    fn words(self) -> &'static str {
        match self.0 {
            RejectStatus::INVALID_LENGTH => "the private data of the connect request are too short",
            RejectStatus::INVALID_RECORD_FORMAT => "RECFMT of the connect request is not 0",
            RejectStatus::INVALID_QID => "QID of the connect request names no queue",
            RejectStatus::INVALID_HSQSIZE => {
                "HSQSIZE of the connect request is 0, or more than CAP.MQES allows"
            }
            RejectStatus::INVALID_HRQSIZE => "HRQSIZE of the connect request is 0",
            RejectStatus::INVALID_IRD => "the host has no room for RDMA Reads (IRD 0)",
            RejectStatus::NO_RESOURCES => "there are no resources for another connection",
            _ => "the connect request is refused",
        }
    }
}
