//! What reactors tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use namespace::{Namespace, NamespaceKey};
use nvme::controller::reservation::HostId;
use nvme::controller::{
    Admitted, CommandError, Controller, ControllerId, ControllerLimits, CopyFormats,
    NamespaceSet as NamespaceInfos,
};
use nvme::queue::{QueueId, Slot};
use nvme_spec::{Cid, Nsid, Sqe, Status};
use reactor::Sender;

use crate::admin::Request;
use crate::link::Parted;
use crate::meter::QueueNames;

/// What the desk tells all reactors.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Close the queues of this controller.
    CloseQueues(ControllerId),
    /// Close this one of them.
    CloseQueue(ControllerId, QueueId),
    /// The queues of this controller see these namespaces from now on.
    Namespaces(ControllerId, Arc<NamespaceInfos>),
    /// Take this namespace in, and say so.
    Attach(ChangeId, Arc<Namespace>),
    /// Take no more requests for these, and say when none is left.
    Retire(ChangeId, Arc<[NamespaceKey]>),
    /// End the requests for these early.
    Cancel(Arc<[NamespaceKey]>),
    /// Say when none of the requests that these controllers have for this is left.
    Await(ChangeId, NamespaceKey, Arc<[ControllerId]>),
    /// Say when none of the requests that you have for this is left, whoever has them.
    Settle(ProtectionId, NamespaceKey),
    /// Let go of these, and say when nothing of them is left.
    Detach(ChangeId, Arc<[NamespaceKey]>),
    /// Say that you have come so far.
    Pass(ChangeId),
    /// End the commands that these controllers have on this namespace, and say when none is left.
    Preempt(PreemptId, Nsid, Arc<[ControllerId]>),
}

/// Names an Abort until its outcome is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AbortId(pub(crate) u64);

/// Names a Preempt and Abort until every reactor has ended the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PreemptId(pub(crate) u64);

/// Names a write protection until every reactor has come to the end of what it let in before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProtectionId(pub(crate) u64);

/// A command of an I/O queue that is to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abort {
    pub(crate) id: AbortId,
    pub(crate) controller: ControllerId,
    pub(crate) queue: QueueId,
    pub(crate) cid: Cid,
}

/// A reservation command, with its data.
#[derive(Debug)]
pub(crate) struct Reserve {
    pub(crate) controller: ControllerId,
    pub(crate) queue: QueueId,
    /// The queue's own name for it; comes back with the answer.
    pub(crate) token: u64,
    pub(crate) sqe: Sqe,
    pub(crate) data: Vec<u8>,
}

/// The answer to a [`Reserve`].
#[derive(Debug)]
pub(crate) struct Reserved {
    pub(crate) token: u64,
    pub(crate) status: Status,
    pub(crate) data: Vec<u8>,
}

/// Names a change of what is served while it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ChangeId(pub(crate) u64);

/// From one reactor to another.
#[derive(Debug)]
pub(crate) enum Message {
    /// From an operator's thread to the desk.
    Request(Box<Request>),
    /// From the desk to every reactor.
    Order(Order),
    /// To the desk: this reactor has done what an order of the change said, or why it cannot.
    Carried(ChangeId, u16, Result<(), String>),
    /// To an I/O reactor: this queue is yours for life.
    Adopt(Box<Adoption>),
    /// To the desk: this queue's requests have ended and its connection is closed.
    QueueClosed(ControllerId, QueueId),
    /// To the desk: a command failed; for the Error Information log.
    Failed(ControllerId, CommandError),
    /// To an I/O reactor: end this command.
    Abort(Abort),
    /// To the desk: whether an Abort ended its command.
    Aborted(AbortId, bool),
    /// To the desk: a reservation command.
    Reserve(Box<Reserve>),
    /// To the reactor that it came from: its answer.
    Reserved(Box<Reserved>),
    /// To the desk: from here on nothing that those who were preempted had begun here lands behind somebody else's write.
    Fenced(PreemptId),
    /// To the desk: the commands of those who were preempted have ended here.
    Preempted(PreemptId),
    /// To the desk: the requests that were let in here before a write protection have ended.
    Settled(ProtectionId),
    /// To the desk: a record was kept, or could not be.
    Kept,
    /// To any: end.
    Stop,
}

/// An I/O queue that was let in, on its way to its reactor.
#[derive(Debug)]
pub(crate) struct Adoption {
    pub(crate) link: Box<dyn Parted>,
    pub(crate) admitted: Admitted,
    /// The Connect command, still to be answered; none of a PCIe function's queue.
    pub(crate) connect: Option<Slot>,
    pub(crate) counters: Arc<QueueCounters>,
    pub(crate) names: QueueNames,
    /// What its controller sees.
    pub(crate) namespaces: Arc<NamespaceInfos>,
    /// What its host has enabled.
    pub(crate) copy_formats: CopyFormats,
    /// Who its host is to reservations.
    pub(crate) host: HostId,
    pub(crate) limits: ControllerLimits,
}

impl Adoption {
    /// Of a queue that its controller has let in.
    pub(crate) fn new(
        link: Box<dyn Parted>,
        admitted: Admitted,
        connect: Option<Slot>,
        counters: Arc<QueueCounters>,
        names: QueueNames,
        controller: &Controller,
    ) -> Self {
        Self {
            link,
            admitted,
            connect,
            counters,
            names,
            namespaces: Arc::clone(controller.namespaces()),
            copy_formats: controller.copy_formats(),
            host: controller.reservation_host(),
            limits: *controller.limits(),
        }
    }
}

/// Reaches a frontend from any thread.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) sender: Sender<Message>,
    /// The frontend has had its last turn.
    over: Arc<AtomicBool>,
}

impl Control {
    /// Asks the frontend to end.
    pub fn stop(&self) {
        self.send(Message::Stop);
    }

    pub(crate) fn new(sender: Sender<Message>) -> Self {
        Self {
            sender,
            over: Arc::default(),
        }
    }

    /// Sends from a thread that may wait: a full channel is being drained by a live reactor, and one that has ended needs no message.
    pub(crate) fn send(&self, message: Message) {
        let mut message = message;
        while let Err(reactor::Full(back)) = self.sender.send(message) {
            if self.is_over() {
                return;
            }
            message = back;
            std::thread::yield_now();
        }
    }

    /// Whether the frontend has had its last turn.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }
}

/// Which namespaces the host of a controller has changed since it connected, a bit each by the end of its NSID: what a shutdown makes durable. Two that
/// share a bit are both flushed.
#[derive(Debug, Default)]
pub(crate) struct Changed(AtomicU64);

impl Changed {
    pub(crate) fn note(&self, nsid: Nsid) {
        let bit = Self::bit(nsid);
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Release);
        }
    }

    /// What was answered to the host before it asked for the shutdown is in it.
    pub(crate) fn has(&self, nsid: Nsid) -> bool {
        self.0.load(Ordering::Acquire) & Self::bit(nsid) != 0
    }

    fn bit(nsid: Nsid) -> u64 {
        1 << (nsid.0 % u64::BITS)
    }
}

/// What a queue has done; written by its reactor alone, read by the desk for the SMART log.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct QueueCounters {
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) read_commands: AtomicU64,
    pub(crate) write_commands: AtomicU64,
    pub(crate) media_errors: AtomicU64,
    /// Time with a command of the host outstanding: the union of its queues on one reactor, which the sum over reactors may exceed.
    pub(crate) busy_nanos: AtomicU64,
    /// Shared by the queues of a controller.
    pub(crate) changed: Arc<Changed>,
    /// The other way: ACRE, the host honours the retry delay of a status.
    pub(crate) honours_retry_delay: AtomicBool,
}

/// Adds to a counter that only this thread writes: a plain store, no locked instruction.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}
