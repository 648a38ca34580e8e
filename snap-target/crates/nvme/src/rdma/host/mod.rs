//! The host's end of one NVMe/RDMA connection: one queue of commands to one controller.
//!
//! Contract, in the manner of [`crate::tcp::host`]: the driver has the queue pair and the memory, the machine has the rules. The connection manager carries
//! [`Connection::request`] and brings [`Connection::accepted`] or [`Connection::rejected`]. Then [`Connection::next_capsule`] says which command leaves next and
//! what memory it needs; [`Connection::send`] turns the memory's key into the entry to send. The driver reports each Send that is done ([`Connection::sent`]), each message
//! ([`Connection::response`]) and each key that it took back itself ([`Connection::invalidated`]), and takes results from [`Connection::next_event`].
//!
//! **A command ends when three things are so**, in whatever order they come: it was answered, its Send is done, so that the device reads nothing of it any more, and its
//! key is dead, so that the controller reaches nothing of it any more. Keys that die with their command ([`Lasts::AsTheCommand`]) are to be invalidated by the controller's
//! response; where they are not, [`Connection::next_invalidation`] asks the driver to.
//!
//! A controller is not trusted: a response that is no response, for no command, or that invalidates what is not its command's key ends the connection, and nothing is
//! interpreted after that. Of data the machine knows nothing: a controller that says success is believed that it wrote them.
//!
//! **Flow control.** As many commands are on their way and not answered as the controller has receives (CRQSIZE), the others wait. SQHD says nothing: the Connect command of
//! [`crate::initiator`] turns submission queue flow control off, and the queue has an entry more than commands.
//!
//! What it does not do: windows, registrations, queue pairs (the driver's), retries, Abort, several descriptors for one command.

mod error;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use nvme_spec::rdma::{
    ConnectAccept, ConnectReject, ConnectRequest, KEYED_BYTES_MAX, KeyedDataBlock, RECORD_FORMAT,
};
use nvme_spec::{Cid, Cqe, SglDescriptor, Sqe, U16};
use zerocopy::FromBytes;

use crate::outstanding::{self, Command, Transfer};
use crate::queue::{QueueId, Slot};
use crate::time::Time;

pub use crate::outstanding::DEPTH_MAX;
pub use error::HostError;

/// PSDT = 01b in FLAGS: SGLs, no metadata.
const PSDT_SGL: u8 = 0b01 << 6;
const PSDT_MASK: u8 = 0b11 << 6;
/// A response capsule is a completion entry.
pub const RESPONSE_BYTES: usize = size_of::<Cqe>();
/// Where in-capsule data begin: behind the entry (ICDOFF 0).
pub const CAPSULE_DATA_AT: usize = size_of::<Sqe>();

/// What a host wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// Which queue the connection is to carry.
    pub qid: QueueId,
    /// The controller of an I/O queue; 0 for the admin queue.
    pub cntlid: u16,
    /// The most commands outstanding: 1 to [`DEPTH_MAX`].
    pub depth: u16,
    /// Writes up to so many bytes go into the capsule (I/O queues: from IOCCSZ). Capsules of the admin queue have no data.
    pub in_capsule_bytes_max: u32,
    /// A command that is not answered within this time ends the connection.
    pub command_timeout: Duration,
}

/// What leaves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capsule {
    /// Whose it is.
    pub slot: Slot,
    /// Its data.
    pub data: CapsuleData,
}

/// Which memory a capsule needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsuleData {
    /// None.
    None,
    /// So many bytes go into the message, from [`CAPSULE_DATA_AT`] on.
    InCapsule(u32),
    /// The controller reads so many bytes from where the key says.
    Read(u32),
    /// The controller writes so many bytes to where the key says.
    Written(u32),
}

/// The memory that a controller is let at for one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its first byte, as the key's memory is addressed.
    pub address: u64,
    /// The remote key.
    pub key: u32,
    /// How long the key is good for.
    pub lasts: Lasts,
}

/// How long a key is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// As long as the connection: a registration's.
    AsTheConnection,
    /// Until the command is answered: a window's. The controller is asked to invalidate it with its response.
    AsTheCommand,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command in `slot` is complete: nothing reaches its memory any more, and the slot may be given to another command.
    Completed {
        /// The command.
        slot: Slot,
        /// Its completion entry.
        cqe: Cqe,
    },
    /// The connection is over and each outstanding command with it; their outcome is unknown. Their memory is the driver's when the queue pair is gone.
    Fatal(HostError),
}

/// Why a command was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many commands as the depth allows are outstanding, or their completion was not taken yet.
    #[error("the queue is full")]
    Full,
    /// The controller has not accepted the connection yet.
    #[error("the connection is not ready")]
    NotReady,
    /// The connection is over.
    #[error("the connection is closed")]
    Closed,
    /// A keyed data block has no room for the length.
    #[error("a command over RDMA moves at most {KEYED_BYTES_MAX} bytes, not {0}")]
    TooLong(u32),
}

/// What RDMA knows of a command.
#[derive(Clone, Copy, Debug)]
struct Way {
    data: CapsuleData,
    /// The Send is not done.
    sending: bool,
    /// The key that is good until it is invalidated.
    key: Option<u32>,
}

impl Way {
    const NONE: Way = Way {
        data: CapsuleData::None,
        sending: false,
        key: None,
    };

    fn is_through(&self) -> bool {
        !self.sending && self.key.is_none()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Ready,
    Failed,
}

/// One connection of a host.
#[derive(Debug)]
pub struct Connection {
    options: HostOptions,
    phase: Phase,
    slots: outstanding::Table<Way>,
    to_send: VecDeque<Slot>,
    to_invalidate: VecDeque<Slot>,
    /// Commands that are sent and not answered: each holds a receive of the controller.
    unanswered: u16,
    /// CRQSIZE.
    receives: u16,
    events: VecDeque<Event>,
}

impl Connection {
    /// A connection that is about to be asked for.
    pub fn new(options: HostOptions) -> Connection {
        let depth = options.depth.clamp(1, DEPTH_MAX);
        let room = usize::from(depth);
        Connection {
            options: HostOptions { depth, ..options },
            phase: Phase::Connecting,
            slots: outstanding::Table::new(depth, Way::NONE),
            to_send: VecDeque::with_capacity(room),
            to_invalidate: VecDeque::with_capacity(room),
            unanswered: 0,
            receives: 0,
            events: VecDeque::with_capacity(room + 1),
        }
    }

    /// The private data of the connect request. The driver posts as many receives as commands fit, and one for each that it takes.
    pub fn request(&self) -> ConnectRequest {
        let depth = U16::new(self.options.depth);
        ConnectRequest {
            record_format: U16::new(RECORD_FORMAT),
            qid: U16::new(self.options.qid.0),
            hrqsize: depth,
            // An entry more than commands, as in Connect: such a queue is never full.
            hsqsize_z: depth,
            cntlid: U16::new(self.options.cntlid),
            reserved_10: [0; 22],
        }
    }

    /// The controller accepted, with this private data, which may be padded: commands may be submitted.
    ///
    /// # Errors
    /// It is not what NVMe/RDMA says. The connection is then over.
    pub fn accepted(&mut self, private_data: &[u8]) -> Result<(), HostError> {
        if self.phase != Phase::Connecting {
            return Err(self.fail(HostError::AcceptedTwice));
        }
        let accept = match ConnectAccept::read_from_prefix(private_data) {
            Ok((accept, _)) => accept,
            Err(_) => return Err(self.fail(HostError::AcceptLength(private_data.len()))),
        };
        let (format, receives) = (accept.record_format.get(), accept.crqsize.get());
        if format != RECORD_FORMAT {
            return Err(self.fail(HostError::AcceptFormat(format)));
        }
        if receives == 0 {
            return Err(self.fail(HostError::NoReceives));
        }
        self.receives = receives;
        self.phase = Phase::Ready;
        Ok(())
    }

    /// What the controller's refusal says. The connection is over.
    pub fn rejected(&mut self, private_data: &[u8]) -> HostError {
        let error = match ConnectReject::read_from_prefix(private_data) {
            // Zeros are what a refusal without private data is padded with.
            Ok((reject, _))
                if reject.record_format.get() == RECORD_FORMAT && reject.status != 0 =>
            {
                HostError::of_reject(reject.status.get())
            }
            _ => HostError::RejectedWithoutWord,
        };
        self.fail(error)
    }

    /// Commands that can be submitted now.
    pub fn room(&self) -> usize {
        match self.phase {
            Phase::Ready => self.slots.free(),
            Phase::Connecting | Phase::Failed => 0,
        }
    }

    /// Commands outstanding, those whose completion event was not taken included.
    pub fn outstanding(&self) -> usize {
        self.slots.used()
    }

    /// The identifier of the command in a slot, to name it in an Abort; none where there is no such slot.
    pub fn cid(&self, slot: Slot) -> Option<Cid> {
        self.slots.get(slot).map(|entry| Cid(entry.cid))
    }

    /// Whether the slot's command was handed out for sending.
    pub fn was_sent(&self, slot: Slot) -> bool {
        self.slots.get(slot).is_some_and(|entry| entry.sent)
    }

    /// Gives one command up: it has no timeout any more. It completes as it would have. False where the slot has none outstanding.
    pub fn abandon(&mut self, slot: Slot) -> bool {
        self.slots.abandon(slot)
    }

    /// Takes a command back that was not handed out yet; false where it was. No byte of it ever leaves, and it completes at once, with
    /// [`HOST_ABORTED`](nvme_spec::Status::HOST_ABORTED).
    pub fn withdraw(&mut self, slot: Slot) -> bool {
        if self.phase != Phase::Ready || !self.slots.withdraw(slot) {
            return false;
        }
        self.to_send.retain(|queued| *queued != slot);
        self.complete_if_done(slot);
        true
    }

    /// Takes a command.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(&mut self, command: &Command, now: Time) -> Result<Slot, SubmitError> {
        match self.phase {
            Phase::Ready => {}
            Phase::Connecting => return Err(SubmitError::NotReady),
            Phase::Failed => return Err(SubmitError::Closed),
        }
        let bytes = command.transfer.bytes();
        if bytes > KEYED_BYTES_MAX {
            return Err(SubmitError::TooLong(bytes));
        }
        let data = match command.transfer {
            Transfer::None => CapsuleData::None,
            Transfer::In(bytes) => CapsuleData::Written(bytes),
            Transfer::Out(bytes) if self.fits_capsule(bytes) => CapsuleData::InCapsule(bytes),
            Transfer::Out(bytes) => CapsuleData::Read(bytes),
        };
        let way = Way { data, ..Way::NONE };
        let taken = self.slots.take(command, way, now);
        let slot = taken.ok_or(SubmitError::Full)?;
        self.to_send.push_back(slot);
        Ok(slot)
    }

    fn fits_capsule(&self, bytes: u32) -> bool {
        !self.options.qid.is_admin() && bytes <= self.options.in_capsule_bytes_max
    }

    /// The command that leaves next, in the order of [`Connection::submit`]; none where none waits or the controller has no receive for it.
    pub fn next_capsule(&self) -> Option<Capsule> {
        if self.phase != Phase::Ready || self.unanswered >= self.receives {
            return None;
        }
        let slot = *self.to_send.front()?;
        let data = self.slots.get(slot)?.way.data;
        Some(Capsule { slot, data })
    }

    /// Hands out the entry of the command that [`Connection::next_capsule`] named, with the memory that the controller is let at. None where that is another one, or where the
    /// memory that it needs is not there: then nothing has changed.
    pub fn send(&mut self, slot: Slot, grant: Option<Grant>) -> Option<Sqe> {
        let next = self.next_capsule().filter(|next| next.slot == slot)?;
        let entry = self.slots.get_mut(slot)?;
        let mut sqe = entry.sqe;
        sqe.dptr = descriptor(next.data, grant)?;
        sqe.flags = sqe.flags & !PSDT_MASK | PSDT_SGL;
        sqe.cid = U16::new(entry.cid);
        entry.sent = true;
        entry.way.sending = true;
        let is_keyed = matches!(next.data, CapsuleData::Read(_) | CapsuleData::Written(_));
        entry.way.key = grant
            .filter(|grant| is_keyed && grant.lasts == Lasts::AsTheCommand)
            .map(|grant| grant.key);
        self.unanswered += 1;
        self.to_send.pop_front();
        Some(sqe)
    }

    /// The Send of a command is done: the device reads nothing of its capsule any more.
    pub fn sent(&mut self, slot: Slot) {
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.way.sending = false;
        }
        self.complete_if_done(slot);
    }

    /// A message came, which is to be a response, and invalidated a key of ours or none.
    pub fn response(&mut self, message: &[u8], invalidated: Option<u32>) {
        if self.phase != Phase::Ready {
            return;
        }
        if let Err(error) = self.take_response(message, invalidated) {
            self.fail(error);
        }
    }

    fn take_response(&mut self, message: &[u8], invalidated: Option<u32>) -> Result<(), HostError> {
        let cqe =
            Cqe::read_from_bytes(message).map_err(|_| HostError::ResponseLength(message.len()))?;
        let cid = cqe.cid.get();
        let found = self.slots.find(cid);
        let (slot, entry) = found.ok_or(HostError::UnknownCommand(Cid(cid)))?;
        match (entry.way.key, invalidated) {
            (Some(_), None) => self.to_invalidate.push_back(slot),
            (None, None) => {}
            (key, Some(invalidated)) if key == Some(invalidated) => entry.way.key = None,
            (_, Some(key)) => return Err(HostError::ForeignKey { cid: Cid(cid), key }),
        }
        self.unanswered -= 1;
        self.slots.respond(slot, cqe);
        self.complete_if_done(slot);
        Ok(())
    }

    /// A key that the driver is to invalidate, since the response of its command did not.
    pub fn next_invalidation(&mut self) -> Option<(Slot, u32)> {
        let slot = self.to_invalidate.pop_front()?;
        let key = self.slots.get(slot)?.way.key?;
        Some((slot, key))
    }

    /// That is done: the key is dead.
    pub fn invalidated(&mut self, slot: Slot) {
        if let Some(entry) = self.slots.get_mut(slot) {
            entry.way.key = None;
        }
        self.complete_if_done(slot);
    }

    /// The next event, oldest first.
    pub fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Completed { slot, .. } = event {
            self.slots.release(slot);
        }
        Some(event)
    }

    /// The answer to a command that only waits for its Send or its key. Once the queue pair is gone, both are done with.
    pub fn answer(&self, slot: Slot) -> Option<Cqe> {
        self.slots.get(slot).filter(|entry| entry.sent)?.response
    }

    /// When the command that was submitted first, of those that have a timeout, has had its time.
    pub fn deadline(&self) -> Option<Time> {
        let oldest = self.slots.oldest().filter(|_| self.phase == Phase::Ready)?;
        Some(oldest + self.options.command_timeout)
    }

    /// Checks the timeouts.
    pub fn tick(&mut self, now: Time) {
        let after = self.options.command_timeout;
        if self.phase == Phase::Ready
            && let Some(cid) = self.slots.overdue(now, after)
        {
            self.fail(HostError::CommandTimeout { cid, after });
        }
    }

    fn complete_if_done(&mut self, slot: Slot) {
        if self.phase != Phase::Ready {
            return;
        }
        if let Some((_, cqe)) = self.slots.complete(slot, Way::is_through) {
            self.events.push_back(Event::Completed { slot, cqe });
        }
    }

    fn fail(&mut self, error: HostError) -> HostError {
        if self.phase != Phase::Failed {
            self.phase = Phase::Failed;
            self.events.push_back(Event::Fatal(error));
        }
        error
    }
}

/// The data pointer of a capsule; none where the memory that it needs is not there.
fn descriptor(data: CapsuleData, grant: Option<Grant>) -> Option<SglDescriptor> {
    let (bytes, grant) = match data {
        // A keyed block of length 0, as Linux sends: the direction bits of some opcodes promise data, so that the descriptor is looked at.
        CapsuleData::None => {
            let nowhere = Grant {
                address: 0,
                key: 0,
                lasts: Lasts::AsTheConnection,
            };
            (0, nowhere)
        }
        CapsuleData::InCapsule(bytes) => return Some(SglDescriptor::in_capsule(0, bytes)),
        CapsuleData::Read(bytes) | CapsuleData::Written(bytes) => (bytes, grant?),
    };
    let invalidate = grant.lasts == Lasts::AsTheCommand;
    let block = KeyedDataBlock::new(grant.address, bytes, grant.key, invalidate)?;
    Some(zerocopy::transmute!(block))
}
