//! What the custodian and the handles tell each other.

use nvme::initiator::AnaState;
use nvme_spec::Cid;
use reactor::Sender;

use crate::lending::Lending;
use crate::queue::Parted;
use crate::shared::AssociationId;

/// Names a handle among those of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HandleId(pub u64);

/// Messages that may wait for one handle, and for the custodian. What finds no room there is said again, or lost with its store.
pub(crate) const MESSAGES_MAX: usize = 1024;
/// Aborts that may wait for the custodian, on a way of their own: they are requests, and must not take the room of what has to be said.
pub(crate) const ABORTS_MAX: usize = 256;

/// To the custodian.
#[derive(Debug)]
pub(crate) enum ToCustodian {
    /// A handle asks for a queue on every path.
    Join {
        handle: HandleId,
        sender: Sender<ToHandle>,
        /// Where other handles ask it for its queues.
        lending: Sender<Lending>,
    },
    /// It is gone, and its queues with it.
    Leave { handle: HandleId },
    /// A connection of an association ended: all of them are to be closed.
    QueueLost {
        association: AssociationId,
        why: String,
    },
    /// The store is gone.
    End,
}

/// To the custodian: a command of a queue is to be aborted, if it still can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abort {
    pub association: AssociationId,
    pub handle: HandleId,
    pub cid: Cid,
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
    /// Whose queues it may use while it has none that leads anywhere.
    Lender(Option<Sender<Lending>>),
}
