//! The target's end of one NVMe/RDMA connection, which is one queue.
//!
//! ```text
//!                  capsule()                     respond(), request_data()
//!   messages ------------------> Event ---> driver ------------------------> next_work() -> RDMA READ, RDMA WRITE, SEND
//!   completions ---------------> Event                                       next_receive() -> receives to post again
//! ```
//! Before it there is [`Request`]: what the host's connect request says, and what goes back with accept or reject. Concurrency is the queue's depth: a
//! command takes a slot when its capsule arrives and gives it back when its response is posted, or, with data, when they have left. A
//! host that has more commands outstanding than its queue has entries ends the connection.
//!
//! The order for a command: [`Event::Command`]; for data inside the capsule [`Event::CapsuleData`] follows at once (answer before it, and the data are
//! dropped); for other data from the host [`Connection::request_data`], after which RDMA READs are among the work and [`Event::DataReady`] closes them. Then
//! [`Connection::respond`]: the RDMA WRITEs of its data, and behind them on the same queue pair the response, so that the host has the data before the response.
//!
//! What finds no room waits here and is never refused: RDMA READs beyond what the host has room for, requests beyond the send queue, responses beyond the
//! receives that the host has posted. An answer waits for the command's own RDMA READs to end.
//!
//! After the end of a connection nothing is handed out any more. What was posted may still move bytes: buffers are the device's until the queue pair is gone.

mod capsule;
mod negotiation;
mod send_queue;
mod slots;
#[cfg(test)]
mod tests;
mod work;

use crate::Time;
use crate::queue::admission::Stage;
use crate::queue::flow::FlowControl;
use crate::queue::table::{Occupant, slots_of};
use crate::queue::{Completion, Slot, Transfer, WireBytes};
pub use negotiation::{Refusal, Request};
use nvme_spec::{Cid, Cqe, Sqe, Status};
use send_queue::SendQueue;
pub use send_queue::WorkId;
pub use slots::Remote;
use slots::{Phase, Slots};
use std::collections::VecDeque;
use std::time::Duration;
pub use work::{Operation, Work};

/// In-capsule data that a command of the admin queue may carry: Connect's. Linux uses none there.
pub const ADMIN_CAPSULE_DATA_BYTES: u32 = 1024;
/// Fewest requests of a send queue: a data transfer, its response, and one of each beside them.
const SEND_REQUESTS_MIN: u16 = 4;

/// Limits and choices of the target's end. Every connection's memory follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetLimits {
    /// Most entries of a queue (CAP.MQES + 1).
    pub queue_entries_max: u16,
    /// Most data of one command, both ways (MDTS).
    pub transfer_bytes_max: u32,
    /// Most RDMA READs in progress (ORD); what host and device allow may be less.
    pub reads_max: u8,
    /// Requests that the queue pair's send queue holds.
    pub send_requests: u16,
    /// The device can send with invalidation: keys are invalidated where the host asks.
    pub invalidate: bool,
    /// From the connection's first moment to the end of Connect, and of authentication where there is one.
    pub connect_timeout: Duration,
    /// From [`Connection::request_data`] to the last byte of the command's data, and from the moment when anything is posted to its completion: a host that lets
    /// us neither read nor write, or takes no responses, is given up, whatever keep alive it asked for. Below the 30 s after which hosts give a command up.
    pub data_timeout: Duration,
}

impl Default for TargetLimits {
    fn default() -> Self {
        TargetLimits {
            queue_entries_max: 128,
            transfer_bytes_max: 1 << 20,
            reads_max: 16,
            send_requests: 512,
            invalidate: true,
            connect_timeout: Duration::from_secs(10),
            data_timeout: Duration::from_secs(20),
        }
    }
}

impl TargetLimits {
    /// Most slots of a connection: of what a driver keeps by slot.
    pub fn slots_max(&self) -> u16 {
        slots_of(self.queue_entries_max)
    }
}

/// The driver's name of a receive: room for one capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReceiveId(pub u16);

/// What the connection needs next from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// A message ([`Connection::capsule`]), if one has come; and completions at any time.
    Capsule,
    /// Nothing, until [`Connection::next_event`] has been asked.
    Event,
    /// Completions ([`Connection::completed`]): messages wait until one frees a slot.
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
    /// The data of this command lie in a receive: copy them into its buffer now. They are complete then; the receive is among those of
    /// [`Connection::next_receive`].
    CapsuleData {
        /// Its slot.
        slot: Slot,
        /// Where they lie.
        receive: ReceiveId,
        /// Their first byte, behind the submission queue entry.
        offset: u32,
        /// Bytes.
        bytes: u32,
    },
    /// All data of this command are in its buffer.
    DataReady {
        /// Its slot.
        slot: Slot,
    },
    /// The data of this command's answer have left, and so has the response: its buffer is free.
    DataLeft {
        /// Its slot.
        slot: Slot,
    },
    /// A fatal error: disconnect. No further message is looked at.
    Fatal(Violation),
    /// Connect, data that were asked for, or the completion of what was posted did not come in time: disconnect, as for a host that is gone.
    TimedOut,
}

/// How a host broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message is no command capsule.
    #[error("a message of {bytes} bytes: a command capsule has 64 at least")]
    ShortCapsule {
        /// Its length.
        bytes: u32,
    },
    /// The host sent more than it may.
    #[error("more commands are outstanding than the queue has entries")]
    Overrun,
}

/// The target's end of one NVMe/RDMA connection.
#[derive(Debug)]
pub struct Connection {
    limits: TargetLimits,
    request: Request,
    state: State,
    event: Option<Event>,
    /// A command that was handed out with data in its capsule: they are next.
    in_capsule: Option<Slot>,
    slots: Slots,
    /// Slots whose data are to be read, each at most once.
    reading: VecDeque<Slot>,
    /// Slots with an answer to post, each at most once.
    answers: VecDeque<Slot>,
    /// Receives whose message has been used.
    returned: VecDeque<ReceiveId>,
    send_queue: SendQueue,
    flow_control: FlowControl,
    /// Of Connect.
    connect_by: Option<Time>,
    /// When to look for what does not end: never later than the first one's time is over.
    look_by: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open(Stage),
    Closed,
}

impl Connection {
    /// A connection that is about to be accepted.
    pub fn new(limits: &TargetLimits, request: &Request, now: Time) -> Connection {
        let limits = TargetLimits {
            send_requests: limits.send_requests.max(SEND_REQUESTS_MIN),
            ..*limits
        };
        // RDMA READs come before answers, and must leave them room.
        let reads_max = u16::from(request.reads_max).min(limits.send_requests / 2);
        let reads_max = u8::try_from(reads_max).unwrap_or(u8::MAX).max(1);
        Connection {
            limits,
            request: *request,
            state: State::Open(Stage::AwaitConnect),
            event: None,
            in_capsule: None,
            slots: Slots::with_entries(1),
            reading: VecDeque::with_capacity(1),
            answers: VecDeque::with_capacity(1),
            returned: VecDeque::with_capacity(usize::from(request.entries)),
            send_queue: SendQueue::new(limits.send_requests, reads_max, request.host_receives),
            flow_control: FlowControl::new(1, true),
            connect_by: Some(now + limits.connect_timeout),
            look_by: None,
        }
    }

    /// What the connection needs next.
    pub fn want(&self) -> Want {
        match self.state {
            _ if self.event.is_some() || self.in_capsule.is_some() => Want::Event,
            State::Closed => Want::Closed,
            _ if self.send_queue.has_done() => Want::Event,
            _ if self.takes_capsule() => Want::Capsule,
            _ => Want::Slot,
        }
    }

    /// The next thing that happened.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.event.take() {
            if let Event::Command { slot } | Event::Connect { slot } = event
                && self.slots.get(slot).phase == Phase::Capsule
            {
                self.in_capsule = Some(slot);
            }
            return Some(event);
        }
        if let Some(slot) = self.in_capsule.take()
            && let Some(event) = self.capsule_data(slot)
        {
            return Some(event);
        }
        while let Some(done) = self.send_queue.next_done() {
            if self.state != State::Closed
                && let Some(event) = self.done(done)
            {
                return Some(event);
            }
        }
        None
    }

    fn capsule_data(&mut self, slot: Slot) -> Option<Event> {
        let entry = self.slots.get_mut(slot);
        if entry.phase != Phase::Capsule {
            return None;
        }
        entry.phase = Phase::Held;
        self.returned.push_back(entry.receive);
        Some(Event::CapsuleData {
            slot,
            receive: entry.receive,
            offset: entry.capsule_offset,
            bytes: entry.transfer.bytes(),
        })
    }

    /// The command in a slot, until its answer has left.
    pub fn command(&self, slot: Slot) -> &Sqe {
        &self.slots.get(slot).sqe
    }

    /// How the command's data travel.
    pub fn transfer(&self, slot: Slot) -> Transfer {
        self.slots.get(slot).transfer
    }

    /// What the command in a slot has cost so far in messages and payload, and once it is answered, with its whole answer; until that has left. The
    /// transport's own headers are the device's.
    pub fn wire(&self, slot: Slot) -> WireBytes {
        let entry = self.slots.get(slot);
        let in_capsule = match entry.transfer {
            Transfer::InCapsule { bytes } => bytes,
            _ => 0,
        };
        let answer = match entry.phase {
            Phase::Answered | Phase::Sent => size_of::<Cqe>() as u64 + u64::from(entry.data_len),
            _ => 0,
        };
        WireBytes {
            sent: answer,
            received: size_of::<Sqe>() as u64 + u64::from(in_capsule) + u64::from(entry.received),
        }
    }

    /// Whether a slot has a command that the host waits for, and that has not been answered.
    pub fn is_outstanding(&self, slot: Slot) -> bool {
        self.slots.get(slot).is_outstanding()
    }

    /// The slot of an outstanding command, for Abort. Linear in the queue's entries.
    pub fn find(&self, cid: Cid) -> Option<Slot> {
        self.slots
            .occupied()
            .find(|(_, entry)| entry.is_outstanding() && entry.cid() == cid)
            .map(|(slot, _)| slot)
    }

    /// Slots that hold a command, or an answer whose data have not left.
    pub fn occupied(&self) -> impl Iterator<Item = Slot> + '_ {
        self.slots.occupied().map(|(slot, _)| slot)
    }

    /// Connect succeeded: the queue has `entries` entries (SQSIZE + 1). Call before [`Connection::respond`] to it. `flow_control` is false where
    /// the host asked for none. What this allows is authentication, in the one slot and the time that the connection has had so far:
    /// [`Connection::authenticated`] allows the rest, and follows at once where none is asked for.
    pub fn established(&mut self, entries: u16, flow_control: bool) {
        let entries = entries.clamp(1, self.request.entries);
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
        self.reading.reserve(usize::from(entries));
        self.answers.reserve(usize::from(slots_of(entries)));
        self.connect_by = None;
        self.state = State::Open(Stage::Live);
    }

    /// Asks for a command's data: [`Event::DataReady`] follows once they are in the slot's buffer, [`Event::TimedOut`] where they are
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
            || entry.received > 0
            || bytes > limit
        {
            return Err(Status::INVALID_FIELD.dnr());
        }
        entry.phase = Phase::Receiving;
        entry.asked_at = now;
        self.look_by.get_or_insert(now + self.limits.data_timeout);
        self.reading.push_back(slot);
        Ok(())
    }

    /// Ends a command. With `data_len > 0` and success the first `data_len` bytes of the slot's buffer go to the host; the buffer must live until
    /// [`Event::DataLeft`]. The answer to a command whose data are being read goes out when the RDMA READs under way have ended, no further one is begun, and
    /// its buffer must live until [`Connection::is_read_into`] says that none is left.
    pub fn respond(&mut self, slot: Slot, completion: Completion, data_len: u32) {
        if self.state == State::Closed {
            return;
        }
        let entry = self.slots.get_mut(slot);
        debug_assert!(
            entry.is_outstanding(),
            "respond() to a slot without a command"
        );
        let phase = entry.phase;
        if !entry.is_outstanding() {
            return;
        }
        entry.answer(completion, data_len);
        let (receive, waits) = (entry.receive, entry.reads > 0);
        self.slots.answered(slot);
        match phase {
            Phase::Capsule => self.returned.push_back(receive),
            Phase::Receiving => self.reading.retain(|&reading| reading != slot),
            _ => {}
        }
        if !waits {
            self.answers.push_back(slot);
        }
    }

    /// Whether anything is posted whose completion has not come, so that the device may touch buffers.
    pub fn has_posted(&self) -> bool {
        !self.send_queue.is_empty()
    }

    /// Whether RDMA READs into the slot's buffer are under way.
    pub fn is_read_into(&self, slot: Slot) -> bool {
        self.slots.get(slot).reads > 0
    }

    /// The connection is over, by a failure of the device or of the connection, or because the driver ends it: nothing is handed out any more.
    pub fn end(&mut self) {
        self.state = State::Closed;
        self.event = None;
        self.in_capsule = None;
        self.connect_by = None;
        self.look_by = None;
        self.reading.clear();
        self.answers.clear();
        self.returned.clear();
    }

    fn close(&mut self, event: Event) {
        self.end();
        self.event = Some(event);
    }

    /// When [`Connection::tick`] is next due. It may find nothing to do then, and another time.
    pub fn deadline(&self) -> Option<Time> {
        match (self.connect_by, self.look_by) {
            (Some(connect_by), Some(look_by)) => Some(connect_by.min(look_by)),
            (connect_by, look_by) => connect_by.or(look_by),
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Time) {
        let is_over = |by: Option<Time>| by.is_some_and(|by| by <= now);
        if is_over(self.look_by) {
            // What it was set for may have ended by now.
            let read = self.slots.oldest_request();
            let posted = self.send_queue.oldest();
            let oldest = match (read, posted) {
                (Some(read), Some(posted)) => Some(read.min(posted)),
                (read, posted) => read.or(posted),
            };
            self.look_by = oldest.map(|at| at + self.limits.data_timeout);
        }
        if is_over(self.connect_by) || is_over(self.look_by) {
            self.close(Event::TimedOut);
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> &TargetLimits {
        &self.limits
    }

    /// What the host asked for when it connected.
    pub fn request(&self) -> &Request {
        &self.request
    }
}
