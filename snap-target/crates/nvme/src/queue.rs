//! What queues of every transport share: how a command ended, and how its data travel.

pub(crate) mod admission;
pub(crate) mod cids;
pub(crate) mod flow;
pub(crate) mod table;

use nvme_spec::Status;

/// Queue identifier: 0 is the admin queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u16);

impl QueueId {
    /// The admin queue.
    pub const ADMIN: QueueId = QueueId(0);

    /// True for the admin queue.
    pub fn is_admin(self) -> bool {
        self == QueueId::ADMIN
    }
}

/// Index of a command among a connection's commands: on the target it is also the TTAG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

impl Slot {
    /// For indexing the driver's own tables.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Bytes that a command has cost on the network, headers and digests included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// Target to host.
    pub sent: u64,
    /// Host to target.
    pub received: u64,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Status.
    pub status: Status,
    /// Command specific.
    pub dw0: u32,
    /// Command specific.
    pub dw1: u32,
}

impl Completion {
    /// Success without a result.
    pub const SUCCESS: Completion = Completion {
        status: Status::SUCCESS,
        dw0: 0,
        dw1: 0,
    };

    /// Success with a result in DW0.
    pub const fn result(dw0: u32) -> Completion {
        Completion {
            status: Status::SUCCESS,
            dw0,
            dw1: 0,
        }
    }

    /// An end without a result.
    pub const fn of(status: Status) -> Completion {
        Completion {
            status,
            dw0: 0,
            dw1: 0,
        }
    }
}

impl From<Status> for Completion {
    fn from(status: Status) -> Completion {
        Completion::of(status)
    }
}

/// How a command's data travel, as its SGL descriptor says and the transport has checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// No data.
    None,
    /// Host to controller, inside the capsule.
    InCapsule {
        /// Bytes.
        bytes: u32,
    },
    /// Either way, by the transport's data PDUs. The length is the host's word: nothing has been reserved for it.
    Remote {
        /// Bytes.
        bytes: u32,
    },
    /// In the host's memory, where PRP entries or an SGL say (PCIe): as many bytes as the command says, since PRPs have no length of their own, and an SGL is
    /// not looked at before its data are moved.
    InMemory,
    /// The descriptor is not usable: the command can only be answered with this status.
    Refused(Status),
}

impl Transfer {
    /// Bytes of data, as the descriptor says; 0 where there are none, the descriptor was refused, or it does not say.
    pub fn bytes(self) -> u32 {
        match self {
            Transfer::InCapsule { bytes } | Transfer::Remote { bytes } => bytes,
            Transfer::None | Transfer::InMemory | Transfer::Refused(_) => 0,
        }
    }

    /// True where the data are not there until they are asked for.
    pub fn is_asked_for(self) -> bool {
        matches!(self, Transfer::Remote { .. } | Transfer::InMemory)
    }

    /// True where the descriptor is for exactly so many bytes, which is what SGLS asks of hosts, or does not say.
    pub fn is_for(self, bytes: u32) -> bool {
        self == Transfer::InMemory || self.bytes() == bytes
    }

    /// True where so many bytes fit, as far as the descriptor says.
    pub fn has_room_for(self, bytes: u64) -> bool {
        self == Transfer::InMemory || u64::from(self.bytes()) >= bytes
    }
}

/// What goes to the host for an answer: the completion, and bytes of data. Data go with a success alone, and never more than the host's descriptor has
/// room for.
pub(crate) fn answer(
    transfer: Transfer,
    host_to_controller: bool,
    completion: Completion,
    data_len: u32,
) -> (Completion, u32) {
    if data_len == 0 || completion.status != Status::SUCCESS {
        return (completion, 0);
    }
    match transfer {
        Transfer::Remote { bytes } if bytes >= data_len && !host_to_controller => {
            (completion, data_len)
        }
        _ => (Completion::of(Status::DATA_SGL_LENGTH_INVALID.dnr()), 0),
    }
}
