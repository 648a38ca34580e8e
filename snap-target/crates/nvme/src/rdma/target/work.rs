//! The working half: RDMA READs, RDMA WRITEs and responses for the driver to post, and what their ends lead to.

use super::send_queue::{Done, WorkId};
use super::slots::{Phase, Remote};
use super::{Connection, Event, ReceiveId, State};
use crate::Time;
use crate::queue::Slot;
use nvme_spec::{Cqe, U16, U32};

/// A request for the driver to post to the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Its name; the driver gives it back with the completion.
    pub id: WorkId,
    /// Whether its completion is to be told when it succeeds.
    pub signaled: bool,
    /// Whose it is.
    pub slot: Slot,
    /// What it is.
    pub operation: Operation,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An RDMA READ into the slot's buffer, of at most so many bytes, and at least one.
    Read {
        /// First byte in the buffer.
        offset: u32,
        /// Bytes that are left.
        bytes_max: u32,
        /// Where they are.
        remote: Remote,
    },
    /// An RDMA WRITE out of the slot's buffer, of at most so many bytes, and at least one.
    Write {
        /// First byte in the buffer.
        offset: u32,
        /// Bytes that are left.
        bytes_max: u32,
        /// Where they go.
        remote: Remote,
    },
    /// The response capsule, as a message.
    Respond {
        /// The capsule.
        cqe: Cqe,
        /// The key of the host that is to be invalidated as it arrives.
        invalidate: Option<u32>,
        /// Data went before it: [`Event::DataLeft`] follows.
        with_data: bool,
    },
}

impl Connection {
    /// The next request to post, where there is one and the connection has room for it. It stays the next until [`Connection::posted`].
    ///
    /// RDMA READs come first: they are few at a time, and answers never wait for them behind each other.
    pub fn next_work(&self) -> Option<Work> {
        self.next_read().or_else(|| self.next_answer())
    }

    /// The same past an RDMA READ that the driver has no memory for now: answers do not wait for it.
    pub fn next_answer(&self) -> Option<Work> {
        let &slot = self.answers.front().filter(|_| self.has_room())?;
        let entry = self.slots.get(slot);
        let (done, operation) = if entry.data_sent < entry.data_len {
            let offset = entry.data_sent;
            let operation = Operation::Write {
                offset,
                bytes_max: entry.data_len - offset,
                remote: entry.remote_at(offset),
            };
            (Done::Write, operation)
        } else if self.send_queue.takes_response() {
            let with_data = entry.data_len > 0;
            let done = Done::Response { slot, with_data };
            (done, self.response(slot))
        } else {
            return None;
        };
        Some(Work {
            id: self.send_queue.next_id(),
            signaled: self.send_queue.is_told(done),
            slot,
            operation,
        })
    }

    /// The driver posted that request, for so many bytes (of a response: any number).
    pub fn posted(&mut self, work: &Work, bytes: u32, now: Time) {
        debug_assert_eq!(work.id, self.send_queue.next_id(), "posted() out of order");
        let done = match work.operation {
            Operation::Read { bytes_max, .. } => self.read_posted(work.slot, bytes.min(bytes_max)),
            Operation::Write { bytes_max, .. } => {
                self.slots.get_mut(work.slot).data_sent += bytes.min(bytes_max);
                Done::Write
            }
            Operation::Respond { with_data, .. } => self.response_posted(work.slot, with_data),
        };
        self.send_queue.post(done, now);
        self.look_by.get_or_insert(now + self.limits.data_timeout);
    }

    /// The next receive that the driver may post again: its message has been used. Post it before the next response.
    pub fn next_receive(&mut self) -> Option<ReceiveId> {
        self.returned.pop_front()
    }

    /// The completion of a request came. One that failed is followed by [`Connection::end`].
    pub fn completed(&mut self, id: WorkId) {
        let is_there = self.send_queue.completed(id);
        debug_assert!(is_there, "completed() of a request that is not there");
    }

    fn next_read(&self) -> Option<Work> {
        let &slot = self.reading.front()?;
        if !self.has_room() || !self.send_queue.takes_read() {
            return None;
        }
        let entry = self.slots.get(slot);
        let offset = entry.requested;
        Some(Work {
            id: self.send_queue.next_id(),
            signaled: true,
            slot,
            operation: Operation::Read {
                offset,
                bytes_max: entry.transfer.bytes() - offset,
                remote: entry.remote_at(offset),
            },
        })
    }

    fn has_room(&self) -> bool {
        self.state != State::Closed && self.send_queue.has_room()
    }

    fn response(&self, slot: Slot) -> Operation {
        let entry = self.slots.get(slot);
        let cqe = Cqe {
            dw0: U32::new(entry.completion.dw0),
            dw1: U32::new(entry.completion.dw1),
            sqhd: U16::new(self.flow_control.next()),
            sqid: U16::ZERO,
            cid: entry.sqe.cid,
            status_and_phase: U16::new(entry.completion.status.to_wire()),
        };
        let invalidate = self.limits.invalidate && entry.invalidate;
        Operation::Respond {
            cqe,
            invalidate: invalidate.then_some(entry.remote.key),
            with_data: entry.data_len > 0,
        }
    }

    fn read_posted(&mut self, slot: Slot, bytes: u32) -> Done {
        let entry = self.slots.get_mut(slot);
        entry.requested += bytes;
        entry.reads += 1;
        if entry.requested == entry.transfer.bytes() {
            self.reading.pop_front();
        }
        Done::Read { slot, bytes }
    }

    fn response_posted(&mut self, slot: Slot, with_data: bool) -> Done {
        self.answers.pop_front();
        self.flow_control.advance();
        self.slots.answer_posted(slot);
        Done::Response { slot, with_data }
    }

    /// What the next request that is done leads to.
    pub(super) fn done(&mut self, done: Done) -> Option<Event> {
        match done {
            Done::Read { slot, bytes } => self.read_done(slot, bytes),
            Done::Response {
                slot,
                with_data: true,
            } => {
                self.slots.answer_left(slot);
                Some(Event::DataLeft { slot })
            }
            Done::Write | Done::Response { .. } => None,
        }
    }

    fn read_done(&mut self, slot: Slot, bytes: u32) -> Option<Event> {
        let entry = self.slots.get_mut(slot);
        entry.reads -= 1;
        entry.received += bytes;
        match entry.phase {
            Phase::Receiving if entry.received == entry.transfer.bytes() => {
                entry.phase = Phase::Held;
                Some(Event::DataReady { slot })
            }
            // Its answer has waited for this: the response may invalidate the key that the READ used.
            Phase::Answered if entry.reads == 0 => {
                self.answers.push_back(slot);
                None
            }
            _ => None,
        }
    }
}
