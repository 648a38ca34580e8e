//! What the custodian and the handles tell each other.

use nvme::initiator::AnaState;
use nvme_spec::Cid;
use reactor::Sender;

use crate::queue::Parted;
use crate::shared::AssociationId;

/// Names a handle among those of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HandleId(pub u64);

/// Messages that may wait for one handle, and for the custodian.
pub(crate) const MESSAGES_MAX: usize = 1024;

/// To the custodian.
#[derive(Debug)]
pub(crate) enum ToCustodian {
    /// A handle asks for a queue on every path.
    Join {
        handle: HandleId,
        sender: Sender<ToHandle>,
    },
    /// It is gone, and its queues with it.
    Leave { handle: HandleId },
    /// A connection of an association ended: all of them are to be closed.
    QueueLost {
        association: AssociationId,
        why: String,
    },
    /// A command of a queue is to be aborted, if it still can be.
    Abort {
        association: AssociationId,
        handle: HandleId,
        cid: Cid,
    },
    /// The store is gone.
    End,
}

/// To a handle.
#[derive(Debug)]
pub(crate) enum ToHandle {
    /// A queue, connected and ready.
    QueueUp {
        association: AssociationId,
        queue: Box<dyn Parted>,
        ana: AnaState,
    },
    /// The way through an association became better or worse.
    Ana {
        association: AssociationId,
        ana: AnaState,
    },
    /// An association was lost: its queues are to be closed. When its controller is dead is to be asked of the fences.
    Lost { association: AssociationId },
}
