//! The contract between the target and what carries its queues to hosts: TCP, RDMA, a PCIe function, or a simulated fabric.
//!
//! A [`Bound`] end becomes a [`Listener`] on the desk's ring; that brings [`Link`]s, each one queue of one host. The desk sees a link through Connect.
//! An admin queue's link stays there; an I/O queue's parts from the desk's ring and joins the ring of its reactor ([`Parted`]). A link that has ended
//! here may leave a [`Farewell`].

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nvme::controller::{Admitted, ControllerLimits, Registers, Transport};
use nvme::nqn::Nqn;
use nvme::pcie::{CompletionQueue, DoorbellBuffers, SubmissionQueue};
use nvme::queue::{Completion, QueueId, Slot, Transfer};
use nvme_spec::register::Cc;
use nvme_spec::{Cid, Sqe, Status};
use reactor::buf::IoBuf;
use reactor::{OwnerId, ReactorError, Ring};

use crate::clock::Clock;

/// How long a last answer may take to leave a connection that ends; how long a [`Farewell`] may take; and how long the system keeps what a host has not
/// taken of a connection that is closed.
pub const LINGER: Duration = Duration::from_secs(2);

/// Operations that a link or a listener may have in flight on its ring, and timers of a link; a farewell has one of each, and a listener one timer.
pub const LINK_OPS_MAX: usize = 2;
/// See [`LINK_OPS_MAX`].
pub const LINK_TIMERS_MAX: usize = 4;

/// What every connection of a target keeps to, whatever carries it: it is made before its subsystem is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLimits {
    /// Most entries of a queue, an admin queue's among them.
    pub queue_entries_max: u16,
    /// In-capsule data that a command of an I/O queue may carry (IOCCSZ). Fabrics and admin commands may always carry 8 KiB.
    pub capsule_data_bytes: u32,
    /// Most data of one command, both ways (MDTS).
    pub transfer_bytes_max: u32,
    /// From the connection's first moment to the end of Connect.
    pub connect_timeout: Duration,
    /// From [`Link::request_data`] to the last byte of the command's data, and for the host to take what is sent to it: meanwhile it holds memory that
    /// all share.
    pub data_timeout: Duration,
}

impl LinkLimits {
    /// Of connections that serve controllers with these limits.
    #[must_use]
    pub fn of(limits: &ControllerLimits) -> Self {
        let limits = limits.connection();
        Self {
            queue_entries_max: limits.queue_entries_max,
            capsule_data_bytes: limits.capsule_data_bytes,
            transfer_bytes_max: limits.transfer_bytes_max,
            connect_timeout: limits.connect_timeout,
            data_timeout: limits.data_timeout,
        }
    }
}

/// A listening end that takes no connections yet, and may go to any thread. Dropped, it is closed.
pub trait Bound: fmt::Debug + Send {
    /// What its connections are carried by.
    fn transport(&self) -> Transport;

    /// Where it listens; the port is the true one.
    fn address(&self) -> SocketAddr;

    /// Where it will say, whoever has it by then, that it takes no connections though it goes on trying; none where that does not happen.
    fn trouble(&self) -> Option<Trouble> {
        None
    }

    /// Begins to take connections, on the desk's ring.
    ///
    /// # Errors
    /// What the ring or the system lacks; the end is closed then.
    fn listen(
        self: Box<Self>,
        ring: &Ring,
        limits: &LinkLimits,
        clock: Clock,
    ) -> Result<Box<dyn Listener>, LinkError>;
}

/// Why a listening end takes no connections at present, though it goes on trying. Cheap to clone; one end says it, and others look.
#[derive(Clone, Debug, Default)]
pub struct Trouble(Arc<Mutex<Option<String>>>);

impl Trouble {
    /// There is some, in words, or none any more.
    pub fn say(&self, why: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// What there is.
    #[must_use]
    pub fn now(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A listening end on the desk's ring. Dropped, it takes no more connections; those that it brought stay.
pub trait Listener: fmt::Debug {
    /// Its name in [`Ring::next_ready`].
    fn owner_id(&self) -> OwnerId;

    /// Takes in what the ring has for it: the next connection, until there is none; that of a function is asked once more when the function has lost its client. Where there is no room for one more, the host is refused in the way of the
    /// transport, and [`LinkError::NoRoom`] says so. An error is one connection's; the listener goes on, after a rest where it must.
    fn next_connection(&mut self, has_room: bool) -> Option<Result<Box<dyn Link>, LinkError>>;
}

/// One queue of one host, on one ring.
///
/// **The caller's duties.** It asks for events until there are none whenever the ring names the link's owner, and calls [`Link::settle`] afterwards and
/// after each call that may have led to something to send. Where a command with data from the host came, it gives the slot its buffer before it asks for
/// data, and for in-capsule data before it asks for the next event; or it answers. The buffer of a read is set before the answer. Each command is
/// answered once.
///
/// **The link's duties.** Nothing blocks, and after Connect nothing is allocated for a command. A command's slot is its own until its answer has left; from the end of the link
/// on (its drop included) nothing touches a buffer: no receive that is under way, no device, no peer. Where something is there for it, or a time is over, its
/// ring wakes. The host is not trusted: what breaks the protocol ends the connection, and what it does not send or take in time does
/// ([`LinkLimits`]). A host that is gone without a word is noticed within half a minute, where the transport lets it.
pub trait Link: fmt::Debug {
    /// Its name in [`Ring::next_ready`]; another one on another ring.
    fn owner_id(&self) -> OwnerId;

    /// What carries it.
    fn transport(&self) -> Transport;

    /// At which of our addresses the host came in.
    fn local(&self) -> SocketAddr;

    /// From where.
    fn peer(&self) -> SocketAddr;

    /// Slots that it ever names: of what is kept by slot.
    fn slots_max(&self) -> u16;

    /// Most data of one command.
    fn transfer_bytes_max(&self) -> u32;

    /// Whether what is sent must not change meanwhile, since a digest goes with it. Known once Connect is there.
    fn needs_snapshots(&self) -> bool;

    /// Bytes that went over the wire since this was last called.
    fn take_wire(&mut self) -> Wire;

    /// What the command in a slot has cost on the wire so far, and once it is answered, with its whole answer, sent or not; until that has left.
    fn wire_of(&self, slot: Slot) -> Wire;

    /// The next thing that happened. Before Connect has succeeded only its command comes.
    fn next_event(&mut self) -> Option<LinkEvent>;

    /// Receives and sends what is due, after all events were answered.
    fn settle(&mut self) -> Health;

    /// Whether the ring's next turn may not wait, and the link is to be asked for events and settled after it, where it [is due](Link::is_due): answers that wait
    /// for others to go with them, completions that are looked for rather than waited for. Asked of I/O queues, and of admin queues of functions.
    fn wants_turn(&self) -> bool {
        false
    }

    /// Of a link that wants turns: whether there is something for it in this one. Asked each turn until there is, so it costs a few loads.
    fn is_due(&self) -> bool {
        true
    }

    /// Whether it waits for one of the ring's receive buffers ([`Ring::recv_buffers_returned`]), and is to be settled when one came back. Asked of I/O queues
    /// only.
    fn is_dry(&self) -> bool {
        false
    }

    /// The command in a slot, until its answer has left.
    fn command(&self, slot: Slot) -> &Sqe;

    /// How the command's data travel.
    fn transfer(&self, slot: Slot) -> Transfer;

    /// The slot of a command that is not answered, for Abort.
    fn find(&self, cid: Cid) -> Option<Slot>;

    /// Every slot with a command that is not answered.
    fn outstanding(&self) -> Vec<Slot>;

    /// Gives a slot its buffer: what will be received into, or sent from.
    fn set_buffer(&mut self, slot: Slot, buf: IoBuf);

    /// Takes a slot's buffer, once its data are there.
    fn take_buffer(&mut self, slot: Slot) -> Option<IoBuf>;

    /// Asks the host for a command's data, which go into the slot's buffer: [`LinkEvent::DataReady`] says that they are there.
    ///
    /// # Errors
    /// The status to answer with: the command has no such data, or too many.
    fn request_data(&mut self, slot: Slot) -> Result<(), Status>;

    /// Bytes of the commands whose data were asked for and are not there.
    fn awaited_bytes(&self) -> u64;

    /// Counts the data that an answer will bring, from now until they have left.
    fn owe(&mut self, slot: Slot, bytes: u32);

    /// Bytes of answers that were begun and have not left.
    fn owed_bytes(&self) -> u64;

    /// Ends a command. With success and `data_bytes` the first so many bytes of the slot's buffer go to the host before the answer; without, the buffer is
    /// let go of as soon as nothing touches it. Data of the command that are still on their way go nowhere; their host may use the command's identifier
    /// at once.
    fn respond(&mut self, slot: Slot, completion: Completion, data_bytes: u32);

    /// Connect has succeeded, and is answered next: from now on every command is taken, as many as the queue has entries.
    fn established(&mut self, admitted: &Admitted);

    /// The link is about to part: nothing more is taken in, so that it becomes idle.
    fn pause(&mut self);

    /// Whether nothing of it is under way on its ring.
    fn is_idle(&self) -> bool;

    /// Takes an idle link off its ring, with a Connect that is not answered; of one that is not idle the connection ends.
    fn part(self: Box<Self>) -> Option<Box<dyn Parted>>;

    /// Ends the connection whatever is under way: [`Link::settle`] says [`Health::Over`] from now on.
    fn end(&mut self);

    /// Before it is dropped, because the connection is over: what is left to do for its host.
    fn let_go(&mut self) -> Option<Box<dyn Farewell>>;

    /// Before a read is begun: looks for where its data are wanted, in a link that can put them there ([`Link::deliver`]).
    ///
    /// # Errors
    /// The status to answer with: the host has named no such place.
    fn place(&mut self, slot: Slot, bytes: u32) -> Result<(), Status> {
        let _ = (slot, bytes);
        Ok(())
    }

    /// Of a read that was placed and has ended: puts its data there, which it is then answered without. False where they are to be set as its buffer.
    fn deliver(&mut self, slot: Slot, data: &IoBuf) -> bool {
        let _ = (slot, data);
        false
    }

    /// Where the data of a read that was placed are wanted, for a store that puts them there itself; it is answered without any then. None where nothing was placed, or the host's memory is
    /// not at hand.
    fn placed(&self, slot: Slot) -> Option<&IoBuf> {
        let _ = slot;
        None
    }

    /// A store has put them there.
    fn delivered(&mut self, bytes: u32) {
        let _ = bytes;
    }

    /// Of a write that begins: its data, where they lie in the host's memory and a store may read them there, put into an empty buffer. False where they are to be
    /// asked for ([`Link::request_data`], which also says what is wrong with the place).
    fn lend(&mut self, slot: Slot, bytes: u32, into: &mut IoBuf) -> bool {
        let _ = (slot, bytes, into);
        false
    }

    /// Lets answers go that wait for others to go with, before [`Link::settle`]: others of this queue may be long.
    fn let_answers_go(&mut self) {}

    /// The PCIe function whose admin queue this is; none of a queue that came over a fabric. A function's controller is made as its link comes in: no
    /// Connect follows.
    fn function(&mut self) -> Option<&mut dyn Function> {
        None
    }
}

/// A PCIe function, as far as it is more than its admin queue.
///
/// **Its duties.** It answers reads of its registers at once, from what it was shown last. It hands out each write of CC as [`LinkEvent::Configured`], and no event
/// behind it before it was shown what came of that. When it is shown that CSTS.RDY went to 0, it forgets its queues and every command of its admin
/// queue: what is answered later goes nowhere.
pub trait Function {
    /// Whose controller it is.
    fn subsystem(&self) -> &Nqn;

    /// What its host goes by, which has told no name: [`Nqn::function_host`].
    fn host(&self) -> &Nqn;

    /// Whether doorbells are looked at where the host writes them: it is offered no Doorbell Buffer Config.
    fn polls_doorbells(&self) -> bool {
        false
    }

    /// The controller's registers are these.
    fn show(&mut self, registers: &Registers);

    /// The NVM subsystem is reset: registers that a reset by CC.EN leaves are as at power-on, CSTS.NSSRO says why.
    fn subsystem_was_reset(&mut self);

    /// Creates an I/O completion queue.
    ///
    /// # Errors
    /// The command's status.
    fn create_completion_queue(&mut self, queue: &CompletionQueue) -> Result<(), Status>;

    /// Deletes one.
    ///
    /// # Errors
    /// The command's status.
    fn delete_completion_queue(&mut self, queue: QueueId) -> Result<(), Status>;

    /// Creates an I/O submission queue: what becomes a link on its reactor.
    ///
    /// # Errors
    /// The command's status.
    fn create_submission_queue(
        &mut self,
        queue: &SubmissionQueue,
    ) -> Result<Box<dyn Parted>, Status>;

    /// Whether there is one.
    fn has_submission_queue(&self, queue: QueueId) -> bool;

    /// Another one whose completions go to the same queue as this one's: both are to be on one reactor.
    fn beside(&self, queue: QueueId) -> Option<QueueId>;

    /// The host's doorbells are to be looked for in its memory from now on, whether they are rung or not.
    ///
    /// # Errors
    /// The command's status; Invalid Command Opcode where the function cannot do without being rung at present.
    fn share_doorbells(&mut self, buffers: DoorbellBuffers) -> Result<(), Status>;

    /// The link of a queue is gone, with its last request.
    fn submission_queue_deleted(&mut self, queue: QueueId);
}

/// A link between two rings.
pub trait Parted: fmt::Debug + Send {
    /// Puts the link on a ring, whose thread has it from now on. [`Link::established`] follows.
    ///
    /// # Errors
    /// What the ring or the system lacks; the connection is closed then.
    fn join(self: Box<Self>, ring: &Ring) -> Result<Box<dyn Link>, LinkError>;
}

/// What is left of a connection that has ended here, until its host knows. Nothing of it is anybody's business any more: its queue has
/// closed, and it holds no memory of others. Dropped, it is cut off.
pub trait Farewell: fmt::Debug {
    /// Begins, once the link is dropped: its name in [`Ring::next_ready`]; none where nothing is left to do.
    fn begin(&mut self) -> Option<OwnerId>;

    /// Takes in what the ring has for it. False once it is over, which it is within [`LINGER`] whatever the host does.
    fn goes_on(&mut self) -> bool;
}

/// What a link has for its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A command came; the first is Connect.
    Command {
        /// Its slot.
        slot: Slot,
    },
    /// All data of a command are in its buffer.
    DataReady {
        /// Its slot.
        slot: Slot,
    },
    /// All data came, and are not what was sent: to be answered with [`Status::TRANSIENT_TRANSPORT_ERROR`].
    DataCorrupt {
        /// Its slot.
        slot: Slot,
    },
    /// A command's data cannot be had: to be answered with this status.
    DataFailed {
        /// Its slot.
        slot: Slot,
        /// What it ends with.
        status: Status,
    },
    /// The host of a PCIe function has written CC.
    Configured(Cc),
    /// The host of a PCIe function resets its NVM subsystem (NSSR).
    SubsystemReset,
    /// The connection ends, once; [`Link::settle`] says when it is over.
    Failed(LinkFailure),
}

/// Why a connection ends, in the words of its transport.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFailure {
    /// The host broke the protocol.
    #[error("{0}")]
    Protocol(String),
    /// The host ended it, since it found that we did.
    #[error("the host ended the connection: {0}")]
    Host(String),
    /// Connect, or data that were asked for, did not come in time.
    #[error("its Connect, or the data of a command, did not come in time")]
    TimedOut,
}

/// How a link stands after some events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It goes on.
    Live,
    /// The connection ended or failed, and its last bytes have left.
    Over,
}

/// Bytes that went over the wire, headers and data. A transport whose device keeps its headers to itself counts what it was handed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wire {
    /// To the host.
    pub sent: u64,
    /// From it.
    pub received: u64,
    /// Bytes that this process copied between what the wire brings or takes and commands' buffers. None where the kernel copies, or the device reads and writes buffers
    /// where they lie.
    pub copied: u64,
}

/// Why there is no listener, or no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// As many connections as there may be have not finished Connect.
    #[error("too many connections that have not finished Connect: one more is closed")]
    NoRoom,
    /// The ring.
    #[error(transparent)]
    Ring(#[from] ReactorError),
    /// The system.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// This machine lacks something else.
    #[error("{0}")]
    Resources(String),
}
