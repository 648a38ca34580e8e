//! The contract between a remote store and what carries its queues: TCP, RDMA, or a simulated fabric.
//!
//! A [`Transport`] connects queues; a [`Queue`] takes commands with their buffers and says how they ended. Queues are brought up on
//! the thread that keeps the association and then move, idle, to the reactor that uses them ([`Queue::part`]).

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use nvme::Time;
use nvme::initiator::Command;
use nvme::queue::{QueueId, Slot};
use nvme_spec::{Cid, Cqe};
use reactor::buf::IoBuf;
use reactor::{Errno, Ring};
use store::WireBytes;

use crate::clock::Clock;

/// What connects queues to controllers.
pub trait Transport: fmt::Debug + Send + Sync {
    /// As URLs and tables name it: `tcp`, `rdma`.
    fn name(&self) -> &'static str;

    /// Begins to connect one queue. Never blocks: that it stands comes as [`QueueEvent::Ready`], that it does not as [`QueueEvent::Over`].
    ///
    /// # Errors
    /// [`QueueError::Resources`], [`QueueError::Connect`] where that is known at once.
    fn connect(
        &self,
        ring: &Ring,
        to: SocketAddr,
        options: &QueueOptions,
        clock: Clock,
    ) -> Result<Box<dyn Queue>, QueueError>;
}

/// What a queue is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// RDMA: which queue it is, as its Connect will say.
    pub qid: QueueId,
    /// RDMA: the controller of an I/O queue; 0 for the admin queue.
    pub cntlid: u16,
    /// The most commands outstanding.
    pub depth: u16,
    /// Writes of up to so many bytes go into the capsule. TCP: fabrics and admin commands may always use 8 KiB; RDMA: those of the admin queue have none.
    pub in_capsule_bytes_max: u32,
    /// TCP: header digests; a controller that does not use them is refused.
    pub header_digest: bool,
    /// TCP: data digests; a controller that does not use them is refused.
    pub data_digest: bool,
    /// From the first packet to [`QueueEvent::Ready`].
    pub connect_timeout: Duration,
    /// A command that is not answered within this time ends the connection, unless it was abandoned.
    pub command_timeout: Duration,
}

/// One queue pair to one controller, on one ring.
///
/// **The caller's duties.** It calls [`Queue::poll`] after every turn of the ring, and [`Queue::settle`] after its last submit, poll or abandon
/// before the ring may block, which it does no longer than [`Queue::deadline`] says. Buffers are as long as the command's transfer says, and
/// nobody else touches their memory until [`QueueEvent::Ended`]; where data digests are computed they are no memory that others change: neither a
/// guest's nor a lease.
///
/// **The queue's duties.** Nothing blocks. Each command that submit took ends exactly once, and from then on nothing touches its buffer: no
/// receive that is under way, no late packet, no peer. Where something is there for poll, the ring wakes. A controller is not trusted: what breaks
/// the protocol ends the connection. Memory is what [`QueueOptions`] ask for.
pub trait Queue: fmt::Debug {
    /// Takes in what the ring has for this queue, looks at the clock, and appends what happened, in the order in which it did.
    fn poll(&mut self, now: Time, events: &mut Vec<QueueEvent>);

    /// Commands that can be submitted now: none before [`QueueEvent::Ready`], none after [`QueueEvent::Over`].
    fn room(&self) -> usize;

    /// Takes a command and its buffer, or gives the buffer back where there is no [`Queue::room`].
    ///
    /// # Errors
    /// The buffer, as given.
    fn submit(
        &mut self,
        command: &Command,
        buf: Option<IoBuf>,
        now: Time,
    ) -> Result<Slot, Option<IoBuf>>;

    /// Gives up a command that reads: it ends as [`Outcome::Lost`] as soon as nothing touches its buffer any more, which does not wait for the
    /// controller; until this one answers, there is less [`Queue::room`]. Any other command only has no timeout any more: nobody knows when an
    /// Asynchronous Event Request is answered, or how long a flush takes. Of a slot that is free nothing happens.
    fn abandon(&mut self, slot: Slot);

    /// Sends what is to be sent, and arms what is to be received.
    fn settle(&mut self);

    /// When to call [`Queue::poll`] though the ring has nothing: a timeout is due then. Long ago, where [`Queue::abandon`] or [`Queue::close`] left
    /// something for it.
    fn deadline(&self) -> Option<Time>;

    /// Ends the connection at once. What is outstanding ends as [`Outcome::Lost`]. With commands outstanding nothing that this machine still holds for
    /// the peer may reach it afterwards (TCP: a reset, SO_LINGER 0; RDMA: the queue pair is in error, and destroyed next): a write that the peer gets long after this is what
    /// [`nvme::initiator::path`] does not reckon with.
    fn close(&mut self);

    /// The identifier of a command that is outstanding, to name it in an Abort; none of a slot that is free.
    fn cid(&self, slot: Slot) -> Option<Cid>;

    /// What it has sent and received since it was connected: all that is the queue's own, from its first byte on, headers and digests included. A transport
    /// whose device keeps its headers to itself counts messages and payload.
    fn wire(&self) -> WireBytes;

    /// Whether the connection is over and every command has ended: then the drop waits for nothing.
    fn is_closed(&self) -> bool;

    /// Takes an idle queue (ready, nothing outstanding, nothing on its way) off its ring, to go on on another thread.
    ///
    /// # Errors
    /// The queue, where it is not idle, or not yet: the receive that waits for its peer ends first. Settle, turn the ring, poll, and try again. From
    /// the first try to the next submit it does not notice its peer's end.
    fn part(self: Box<Self>) -> Result<Box<dyn Parted>, Box<dyn Queue>>;
}

/// A queue between two rings.
pub trait Parted: fmt::Debug + Send {
    /// Puts the queue on a ring, whose thread has it from now on.
    ///
    /// # Errors
    /// [`QueueError::Resources`]; the connection is then closed.
    fn join(self: Box<Self>, ring: &Ring) -> Result<Box<dyn Queue>, QueueError>;
}

/// What happened on a queue.
#[derive(Debug)]
pub enum QueueEvent {
    /// The connection stands: commands are taken, Connect first.
    Ready,
    /// A command ended; its buffer is the caller's again, and the slot may be given to another command.
    Ended {
        /// Which.
        slot: Slot,
        /// How.
        outcome: Outcome,
        /// As submitted. Of a read, filled where the answer is success; undefined otherwise.
        buf: Option<IoBuf>,
    },
    /// The connection is over, once. Each outstanding command ends as [`Outcome::Lost`], now or later, as its buffer comes free.
    Over(QueueError),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The controller answered. Of a read with success, every byte is there.
    Answered(Cqe),
    /// It did not, before the connection ended or the command was given up.
    Lost {
        /// A byte of it may have left: the controller may carry it out, or may have. Otherwise it never will.
        was_sent: bool,
    },
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// It could not be made.
    #[error("connecting to {to} failed: {source}")]
    Connect {
        /// Where to.
        to: SocketAddr,
        /// The kernel's or the connection manager's answer.
        source: Errno,
    },
    /// It was made, and does not stand in time.
    #[error("{to} did not answer within {after:?}; is it an NVMe/{transport} port?")]
    NotInTime {
        /// Where to.
        to: SocketAddr,
        /// As a URL names it.
        transport: &'static str,
        /// The time it had.
        after: Duration,
    },
    /// The peer, or the network, ended it.
    #[error("{to} ended the connection: {why}")]
    Ended {
        /// Where to.
        to: SocketAddr,
        /// In the words of the transport.
        why: String,
    },
    /// This end ended it: the peer broke the protocol, or a command was not answered in time.
    #[error("the connection to {to} was given up: {why}")]
    GivenUp {
        /// Where to.
        to: SocketAddr,
        /// In the words of the state machine.
        why: String,
    },
    /// [`Queue::close`] was called.
    #[error("the connection to {to} was closed")]
    Closed {
        /// Where to.
        to: SocketAddr,
    },
    /// This machine lacks something.
    #[error("a connection to {to} could not be set up: {why}")]
    Resources {
        /// Where to.
        to: SocketAddr,
        /// What.
        why: String,
    },
}

impl QueueError {
    /// The ring, a device, or this machine lacks something.
    #[must_use]
    pub fn resources(to: SocketAddr, why: &dyn fmt::Display) -> Self {
        let why = why.to_string();
        Self::Resources { to, why }
    }
}
