//! The target's end of one NVMe/TCP connection, which is one queue.
//!
//! ```text
//!              headers(), payload()                          respond(), request_data()
//!   bytes ------------------------------> Event ---> driver ---------------------------> transmit() -> TxBatch -> bytes
//! ```
//! Concurrency is the queue's depth: a command takes a slot when its capsule arrives and gives it back when its last byte
//! has left ([`Connection::transmitted`]). The slot's index is the TTAG. A host that has more commands outstanding than
//! its queue has entries ends the connection; one that is merely ahead of our sends waits. A command that is answered while the
//! host owes data that an R2T asked for keeps its slot until they have come, and another stands in for it meanwhile.
//!
//! The order for a command: [`Event::Command`]; for data inside the capsule [`Want::Payload`] follows at once (answer before it, and
//! the data are discarded); for other data from the host [`Connection::request_data`], after which they come as
//! [`Want::Payload`]; in both cases [`Event::DataReady`] closes them. Then [`Connection::respond`].
//!
//! One turn of a driver, without its sockets (`received` is what came off one, and it returns what goes out):
//! ```
//! use nvme::digest::crc32c_append;
//! use nvme::queue::{Completion, Transfer};
//! use nvme::tcp::batch::TxBatch;
//! use nvme::tcp::target::{Connection, Event, Want};
//! use nvme::Time;
//! use nvme_spec::{IoOpcode, Status};
//!
//! fn turn(connection: &mut Connection, mut received: &[u8], buffers: &mut [Vec<u8>], batch: &mut TxBatch, now: Time) -> Vec<u8> {
//!     connection.tick(now);
//!     loop {
//!         match connection.want() {
//!             Want::Event => match connection.next_event() {
//!                 // A real driver takes Connect to a `Registry`, admin commands to its `Controller`, and bounds I/O commands by
//!                 // `parse_io` before it gives them memory. This one is always content.
//!                 Some(Event::Connect { .. } | Event::HostTerminated { .. } | Event::Fatal(_) | Event::TimedOut) | None => {}
//!                 Some(Event::Command { slot }) => {
//!                     let transfer = connection.transfer(slot);
//!                     buffers[slot.index()].resize(transfer.bytes() as usize, 0);
//!                     match transfer {
//!                         Transfer::InCapsule { .. } => {}
//!                         Transfer::None | Transfer::InMemory => connection.respond(slot, Completion::SUCCESS, 0),
//!                         Transfer::Refused(status) => connection.respond(slot, status.into(), 0),
//!                         Transfer::Remote { bytes } if connection.command(slot).opcode == IoOpcode::READ.0 => {
//!                             connection.respond(slot, Completion::SUCCESS, bytes);
//!                         }
//!                         Transfer::Remote { .. } => {
//!                             if let Err(status) = connection.request_data(slot, now) {
//!                                 connection.respond(slot, status.into(), 0);
//!                             }
//!                         }
//!                     }
//!                 }
//!                 Some(Event::DataReady { slot }) => connection.respond(slot, Completion::SUCCESS, 0),
//!                 Some(Event::DataCorrupt { slot }) => {
//!                     connection.respond(slot, Status::TRANSIENT_TRANSPORT_ERROR.into(), 0);
//!                 }
//!             },
//!             Want::Closed | Want::Slot => break,
//!             _ if received.is_empty() => break,
//!             Want::Header(_) => {
//!                 let used = connection.headers(received);
//!                 received = &received[used..];
//!             }
//!             // A real driver receives straight into the buffer.
//!             Want::Payload { slot, offset, len, digest } => {
//!                 let (part, rest) = received.split_at(received.len().min(len as usize));
//!                 buffers[slot.index()][offset as usize..][..part.len()].copy_from_slice(part);
//!                 let crc = if digest { crc32c_append(connection.payload_crc(), part) } else { 0 };
//!                 connection.payload(part.len() as u32, crc);
//!                 received = rest;
//!             }
//!             Want::Discard(len) => {
//!                 let dropped = received.len().min(len as usize);
//!                 connection.payload(dropped as u32, 0);
//!                 received = &received[dropped..];
//!             }
//!         }
//!     }
//!     connection.transmit(batch);
//!     let mut out = Vec::new();
//!     for item in batch.items() {
//!         out.extend_from_slice(batch.header(item));
//!         if let Some(part) = item.payload {
//!             out.extend_from_slice(&buffers[part.slot.index()][part.offset as usize..][..part.len as usize]);
//!         }
//!         // Where `item.data_digest()`, `TxBatch::set_data_digest` has been called before.
//!         out.extend_from_slice(batch.digest(item));
//!         if let Some(slot) = item.ends {
//!             connection.transmitted(slot);
//!         }
//!     }
//!     batch.clear();
//!     out
//! }
//! # use nvme::tcp::target::TargetLimits;
//! # let mut connection = Connection::new(&TargetLimits::default(), Time::ZERO);
//! # let mut hello = [0; 128];
//! # (hello[2], hello[4]) = (128, 128);
//! # let out = turn(&mut connection, &hello, &mut [], &mut TxBatch::with_capacity(8), Time::ZERO);
//! # assert_eq!((out.len(), out[0]), (128, 1));
//! ```

mod receive;
mod slots;
mod transmit;

use crate::Time;
use crate::queue::admission::Stage;
use crate::queue::flow::FlowControl;
use crate::queue::table::{Occupant, slots_of};
use crate::queue::{Completion, Transfer, WireBytes};
use crate::tcp::batch::{Slot, TxBatch};
use crate::tcp::pdu::{FatalError, Framing, HeaderBuffer};
use nvme_spec::tcp::{ADMIN_CAPSULE_DATA_BYTES, MAXH2CDATA_MIN};
use nvme_spec::{Cid, Sqe, Status};
use receive::Rx;
use slots::{Phase, Slots};
use std::collections::VecDeque;
use std::time::Duration;

/// Limits and choices of the target's end. Every connection's memory follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetLimits {
    /// Most entries of a queue (CAP.MQES + 1); [`TargetLimits::slots_max`] follows from it.
    pub queue_entries_max: u16,
    /// In-capsule data that a command may carry; IOCCSZ follows from it.
    pub capsule_data_bytes: u32,
    /// MAXH2CDATA: most data in one H2CData. A multiple of 4, at least 4096.
    pub h2c_data_bytes_max: u32,
    /// Most data that one R2T asks for. A multiple of 4. A longer write takes several R2Ts, one after the other.
    pub r2t_bytes_max: u32,
    /// Most data in one C2HData. A multiple of 4. A longer read takes several.
    pub c2h_data_bytes_max: u32,
    /// Most data of one command, both ways (MDTS).
    pub transfer_bytes_max: u32,
    /// CPDA: the host starts data at multiples of (this + 1) * 4 bytes.
    pub alignment_z: u8,
    /// Header digests are used where the host asks.
    pub header_digest: bool,
    /// Data digests are used where the host asks.
    pub data_digest: bool,
    /// When C2HData stands for the response.
    pub success_flag: SuccessFlag,
    /// From the connection's first moment to the end of Connect, and of authentication where there is one.
    pub connect_timeout: Duration,
    /// From [`Connection::request_data`] to the last byte of the command's data: what an R2T may cost a host that sends nothing, since the
    /// command's memory is held as long. The driver gives a host the same time to take what is sent to it. Below the 30 s after which hosts
    /// give a command up.
    pub data_timeout: Duration,
}

/// The default of [`TargetLimits::data_timeout`].
pub const DATA_TIMEOUT: Duration = Duration::from_secs(20);

impl Default for TargetLimits {
    fn default() -> Self {
        TargetLimits {
            queue_entries_max: 128,
            capsule_data_bytes: ADMIN_CAPSULE_DATA_BYTES,
            h2c_data_bytes_max: 1 << 20,
            r2t_bytes_max: 1 << 20,
            c2h_data_bytes_max: 1 << 20,
            transfer_bytes_max: 1 << 20,
            alignment_z: 0,
            header_digest: true,
            data_digest: true,
            success_flag: SuccessFlag::WithoutFlowControl,
            connect_timeout: Duration::from_secs(10),
            data_timeout: DATA_TIMEOUT,
        }
    }
}

// The limits against each other, for the defaults; [`Connection::new`] brings a driver's own into the same order.
const _: () = assert!(MAXH2CDATA_MIN <= 1 << 20 && ADMIN_CAPSULE_DATA_BYTES <= 1 << 20);

/// When the last C2HData of a successful command carries SUCCESS and no CapsuleResp follows (TCP, "C2HData PDU").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuccessFlag {
    /// Never.
    Never,
    /// On queues that run without SQ flow control, where no SQHD is lost by it: what the specification asks for.
    WithoutFlowControl,
    /// Always. SPDK's target does it; the hosts of Linux and SPDK count their commands and do not look at SQHD.
    Always,
}

/// What the connection needs next from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Header bytes, at least this many for the next step; more may be given at once ([`Connection::headers`]).
    Header(usize),
    /// Payload at this place of this slot's buffer ([`Connection::payload`]).
    Payload {
        /// Whose buffer.
        slot: Slot,
        /// Where in the buffer.
        offset: u32,
        /// Bytes.
        len: u32,
        /// The driver computes the CRC-32C, continuing from [`Connection::payload_crc`].
        digest: bool,
    },
    /// Payload of a command that is already answered: drop so many bytes and say so ([`Connection::payload`]).
    Discard(u32),
    /// Nothing, until [`Connection::next_event`] has been asked.
    Event,
    /// Nothing, until [`Connection::transmitted`] frees a slot: the next bytes are a command.
    Slot,
    /// Nothing any more.
    Closed,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The queue's Connect came; its data follow like those of any command.
    Connect {
        /// Its slot.
        slot: Slot,
    },
    /// A command came: [`Connection::command`] and [`Connection::transfer`].
    Command {
        /// Its slot.
        slot: Slot,
    },
    /// All data of this command are in its buffer, digests checked.
    DataReady {
        /// Its slot.
        slot: Slot,
    },
    /// All data came but a data digest did not match: answer with [`Status::TRANSIENT_TRANSPORT_ERROR`] and apply nothing.
    DataCorrupt {
        /// Its slot.
        slot: Slot,
    },
    /// A fatal error: [`Connection::transmit`] yields a C2HTermReq; send it and close. No further byte is looked at.
    Fatal(FatalError),
    /// The host sent H2CTermReq: close.
    HostTerminated {
        /// FES.
        status: nvme_spec::tcp::FatalErrorStatus,
        /// FEI.
        information: u32,
    },
    /// Connect, or data that were asked for, did not come in time: close, as for a host that is gone.
    TimedOut,
}

/// The target's end of one NVMe/TCP connection.
#[derive(Debug)]
pub struct Connection {
    limits: TargetLimits,
    state: State,
    /// For what the host sends.
    rx_framing: Framing,
    /// For what we send.
    tx_framing: Framing,
    header: HeaderBuffer,
    rx: Rx,
    /// The next bytes are a capsule and no slot is free.
    stalled: bool,
    event: Option<Event>,
    slots: Slots,
    /// Slots with something to send, each at most once.
    outgoing: VecDeque<Slot>,
    ic_resp: bool,
    term: Option<transmit::Term>,
    flow_control: FlowControl,
    /// Of Connect.
    connect_by: Option<Time>,
    /// When to look for data that do not come: never later than the first command's time is over.
    data_by: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing but ICReq may come.
    AwaitIcReq,
    /// ICResp is on its way, or has left.
    Open(Stage),
    Closed,
}

impl Connection {
    /// A connection that has just been accepted.
    pub fn new(limits: &TargetLimits, now: Time) -> Connection {
        let limits = limits.in_order();
        Connection {
            limits,
            state: State::AwaitIcReq,
            rx_framing: Framing::default(),
            tx_framing: Framing::default(),
            header: HeaderBuffer::new(),
            rx: Rx::Header,
            stalled: false,
            event: None,
            slots: Slots::with_entries(1),
            outgoing: VecDeque::with_capacity(1),
            ic_resp: false,
            term: None,
            flow_control: FlowControl::new(1, true),
            connect_by: Some(now + limits.connect_timeout),
            data_by: None,
        }
    }

    /// What the connection needs next.
    pub fn want(&self) -> Want {
        if self.event.is_some() {
            return Want::Event;
        }
        match self.rx {
            Rx::Closed => Want::Closed,
            Rx::Header if self.stalled => Want::Slot,
            Rx::Header => Want::Header(self.header.missing()),
            Rx::Data(ref data) => data.want(),
            Rx::Digest(ref digest) => Want::Header(digest.missing()),
        }
    }

    /// Takes the pending event, if there is one.
    pub fn next_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// The command in a slot.
    pub fn command(&self, slot: Slot) -> &Sqe {
        self.slots.sqe(slot)
    }

    /// What the command in a slot has cost on the wire so far, and once it is answered, with its whole answer, sent or not; until that has left. Data that
    /// come for it after its answer was given are not in it then.
    pub fn wire(&self, slot: Slot) -> WireBytes {
        let entry = self.slots.get(slot);
        let answer = match entry.phase {
            Phase::Answered | Phase::Sent => self.answer_wire_bytes(slot),
            _ => 0,
        };
        WireBytes {
            sent: entry.wire.sent + answer,
            received: entry.wire.received,
        }
    }

    /// How the command's data travel.
    pub fn transfer(&self, slot: Slot) -> Transfer {
        self.slots.get(slot).transfer
    }

    /// Whether a slot has a command that the host waits for, and that has not been answered.
    pub fn is_outstanding(&self, slot: Slot) -> bool {
        self.slots.get(slot).is_outstanding()
    }

    /// The slot of an outstanding command, for Abort. Linear in the queue's entries.
    pub fn find(&self, cid: Cid) -> Option<Slot> {
        self.slots
            .occupied()
            .find(|&slot| self.slots.get(slot).is_outstanding() && self.command(slot).cid() == cid)
    }

    /// Slots that hold a command or an answer not yet sent: what a driver cleans up after a connection has ended.
    pub fn occupied(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.occupied()
    }

    /// Connect succeeded: the queue has `entries` entries (SQSIZE + 1). Call before [`Connection::respond`] to it. `flow_control` is false where
    /// the host asked for none. What this allows is authentication, in the one slot and the time that the connection has had so far:
    /// [`Connection::authenticated`] allows the rest, and follows at once where none is asked for.
    pub fn established(&mut self, entries: u16, flow_control: bool) {
        let entries = entries.clamp(1, self.limits.queue_entries_max);
        self.flow_control = FlowControl::new(entries, flow_control);
        if self.state == State::Open(Stage::AwaitConnect) {
            self.state = State::Open(Stage::AwaitAuthentication);
        }
    }

    /// The host has shown who it is, or need not: the queue's slots are made, and every command is taken. After [`Connection::established`].
    pub fn authenticated(&mut self) {
        if self.state != State::Open(Stage::AwaitAuthentication) {
            return;
        }
        let entries = self.flow_control.entries;
        self.slots.grow(entries);
        self.outgoing.reserve(usize::from(entries));
        self.connect_by = None;
        self.state = State::Open(Stage::Live);
    }

    /// Asks the host for a command's data: [`Event::DataReady`] follows once they are in the slot's buffer, [`Event::TimedOut`] where they are
    /// not after [`TargetLimits::data_timeout`]. Fails where the command has no such data or they exceed the limit; answer it with that status.
    pub fn request_data(&mut self, slot: Slot, now: Time) -> Result<(), Status> {
        let limit = self.limits.transfer_bytes_max;
        let entry = self.slots.get_mut(slot);
        let Transfer::Remote { bytes } = entry.transfer else {
            return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
        };
        if self.state == State::Closed
            || entry.phase != Phase::Held
            || !entry.host_to_controller
            || bytes > limit
        {
            return Err(Status::INVALID_FIELD.dnr());
        }
        entry.phase = Phase::Receiving;
        entry.asked_at = now;
        self.data_by.get_or_insert(now + self.limits.data_timeout);
        self.outgoing.push_back(slot);
        Ok(())
    }

    /// Ends a command. With `data_len > 0` and success the first `data_len` bytes of the slot's buffer go to the host; the
    /// buffer must live until [`Connection::transmitted`]. Data of the command that are still on their way in are discarded when they come. The answer does
    /// not wait for them, and the host may use the command's identifier again at once: the slot is kept, and with it the TTAG, until all have come.
    pub fn respond(&mut self, slot: Slot, completion: Completion, data_len: u32) {
        if self.state == State::Closed {
            return;
        }
        let entry = self.slots.get_mut(slot);
        debug_assert!(
            entry.is_outstanding(),
            "respond() to a slot without a command"
        );
        if !entry.is_outstanding() {
            return;
        }
        entry.answer(completion, data_len);
        // Where the next R2T waits in the outgoing queue, the answer takes its place.
        let is_queued = entry.phase == Phase::Receiving && !entry.owes_data();
        self.slots.answered(slot);
        if !is_queued {
            self.discard_payload_of(slot);
            self.outgoing.push_back(slot);
        }
    }

    /// True while [`Connection::transmit`] has something to hand out.
    pub fn has_outgoing(&self) -> bool {
        self.term.is_some() || self.ic_resp || !self.outgoing.is_empty()
    }

    /// Appends PDUs to the batch, as many as fit.
    pub fn transmit(&mut self, batch: &mut TxBatch) {
        self.fill(batch);
    }

    /// The last byte of the item that `ends` this slot has left: its buffer is free, and so is the slot where the host owes no data.
    pub fn transmitted(&mut self, slot: Slot) {
        if self.slots.get(slot).phase == Phase::Sent {
            self.slots.answer_left(slot);
            self.stalled = false;
        }
    }

    /// When [`Connection::tick`] is next due. It may find nothing to do then, and another time.
    pub fn deadline(&self) -> Option<Time> {
        match (self.connect_by, self.data_by) {
            (Some(connect_by), Some(data_by)) => Some(connect_by.min(data_by)),
            (connect_by, data_by) => connect_by.or(data_by),
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Time) {
        let is_over = |by: Option<Time>| by.is_some_and(|by| by <= now);
        if is_over(self.data_by) {
            // The command that it was set for may have its data by now.
            let oldest = self.slots.oldest_request();
            self.data_by = oldest.map(|asked_at| asked_at + self.limits.data_timeout);
        }
        if is_over(self.connect_by) || is_over(self.data_by) {
            self.close(Event::TimedOut);
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> &TargetLimits {
        &self.limits
    }

    /// Header and data digest as negotiated.
    pub fn digests(&self) -> (bool, bool) {
        (self.tx_framing.header_digest, self.tx_framing.data_digest)
    }

    fn close(&mut self, event: Event) {
        self.state = State::Closed;
        self.rx = Rx::Closed;
        self.event = Some(event);
        self.connect_by = None;
        self.data_by = None;
        self.ic_resp = false;
        self.outgoing.clear();
    }
}

impl TargetLimits {
    /// Most slots of a connection: of what a driver keeps by slot.
    pub fn slots_max(&self) -> u16 {
        slots_of(self.queue_entries_max)
    }

    /// The same limits with their order restored: whatever a configuration says, no field contradicts the wire.
    fn in_order(self) -> TargetLimits {
        let dwords = |bytes: u32| (bytes & !3).max(MAXH2CDATA_MIN);
        TargetLimits {
            queue_entries_max: self.queue_entries_max.max(2),
            h2c_data_bytes_max: dwords(self.h2c_data_bytes_max),
            r2t_bytes_max: dwords(self.r2t_bytes_max),
            c2h_data_bytes_max: dwords(self.c2h_data_bytes_max),
            alignment_z: self.alignment_z.min(nvme_spec::tcp::PDA_MAX),
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
