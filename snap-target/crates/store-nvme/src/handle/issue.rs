//! From operations to commands on queues.

use std::collections::VecDeque;
use std::time::Duration;

use nvme::Time;
use nvme::initiator::nvm;
use reactor::buf::IoBuf;
use store::{Op, StoreError};

use super::flight::{Flight, What};
use super::lane::{Lane, choose};
use super::part::{Part, State};
use super::{Handle, fresh};
use crate::shared::{Admission, Passage};

/// A change or a flush is not sent any more where less is left of its time than this part of the time that a command may take.
const LEFT_SHARE: u32 = 4;

impl Handle {
    /// Begins the parts of the operations that may begin, as far as there is room for parts.
    pub(super) fn feed(&mut self, now: Time) {
        for _ in 0..self.hungry.len() {
            let Some(index) = self.hungry.pop_front() else {
                return;
            };
            if !self.begin_parts(index, now) {
                self.hungry.push_back(index);
            }
            self.finish_if_ended(index);
        }
    }

    /// Begins the parts of one operation; true where none is left to begin.
    fn begin_parts(&mut self, index: u32, now: Time) -> bool {
        let lba_bytes = self.shared.namespace.lba_bytes;
        let Some(flight) = self.flights.get_mut(index) else {
            return true;
        };
        if flight.failure.is_some() {
            return true;
        }
        let permit = &mut flight.permit;
        let enters = || permit.try_enter(|| self.ring.waker());
        match self.shared.fences.admit(&flight.bytes, now, enters) {
            Admission::Begins => {}
            Admission::Waits => return false,
            Admission::Leaves => {
                flight.permit.give_back();
                return false;
            }
        }
        while self.parts.has_room() {
            let Some((what, piece)) = flight.cuts.next(flight.op, lba_bytes) else {
                return true;
            };
            let part = Part {
                flight: index,
                what,
                piece,
                bounce: None,
                state: fresh(),
                avoid: None,
                was_lent: false,
                given_up: 0,
                sent_on: 0,
            };
            if let Ok(part) = self.parts.insert(part) {
                flight.parts += 1;
                let queue = if flight.is_ahead {
                    &mut self.waiting_ahead
                } else {
                    &mut self.waiting
                };
                queue.push_back(part);
            }
        }
        flight.cuts.is_done()
    }

    /// Lets a part wait until it is sent.
    pub(super) fn queue_part(&mut self, index: u32) {
        let flight = self.parts.get(index).map(|part| part.flight);
        let flight = flight.and_then(|flight| self.flights.get(flight));
        let is_ahead = flight.is_some_and(|flight| flight.is_ahead);
        self.waiting_of(is_ahead).push_back(index);
    }

    /// Somebody waits for a read ahead: what of it was not sent stands behind what others wait for. What was sent is with its controller, in its turn.
    pub(super) fn hurry_flight(&mut self, index: u32) {
        let Some(flight) = self.flights.get_mut(index) else {
            return;
        };
        if !std::mem::take(&mut flight.is_ahead) {
            return;
        }
        self.ahead -= 1;
        for _ in 0..self.waiting_ahead.len() {
            let Some(part) = self.waiting_ahead.pop_front() else {
                break;
            };
            let of = self.parts.get(part).map(|part| part.flight);
            self.waiting_of(of != Some(index)).push_back(part);
        }
    }

    fn waiting_of(&mut self, is_ahead: bool) -> &mut VecDeque<u32> {
        if is_ahead {
            &mut self.waiting_ahead
        } else {
            &mut self.waiting
        }
    }

    /// Sends what waits, as far as there are paths with room: what somebody waits for first.
    pub(super) fn issue(&mut self, now: Time) {
        for is_ahead in [false, true] {
            for _ in 0..self.waiting_of(is_ahead).len() {
                let has_room = |lane: &Lane| lane.is_usable() && lane.has_room(is_ahead);
                if !self.lanes.iter().any(has_room) && !self.borrows() {
                    break;
                }
                let Some(index) = self.waiting_of(is_ahead).pop_front() else {
                    break;
                };
                if !self.issue_part(index, is_ahead, now) {
                    self.waiting_of(is_ahead).push_back(index);
                }
            }
        }
    }

    /// True where the part waits no more.
    fn issue_part(&mut self, index: u32, is_ahead: bool, now: Time) -> bool {
        let Some(part) = self.parts.get(index) else {
            return true;
        };
        match part.state {
            State::Waiting { not_before } if now < not_before => return false,
            State::Waiting { .. } => {}
            State::Issued { .. } | State::Lent { .. } | State::Unknown { .. } => return true,
        }
        let options = &self.shared.options;
        let flight = self.flights.get(part.flight);
        let left = flight.map_or(Duration::ZERO, |flight| flight.expires_at.since(now));
        // Its deadline would end the whole association, which has hardly had the time to answer.
        if !part.what.is_abandonable() && left < options.command_timeout / LEFT_SHARE {
            return false;
        }
        let bytes = part.bytes(self.shared.namespace.lba_bytes);
        if part.was_lent && self.shared.fences.passage(&bytes, now) != Passage::Free {
            return false;
        }
        if self.borrows() {
            return self.borrow_for(index);
        }
        let policy = options.policy;
        let Some(lane) = choose(&self.lanes, part.avoid, is_ahead, policy, &mut self.turn) else {
            return false;
        };
        let Some(buf) = self.buffer_of(index) else {
            return false;
        };
        let (Some(part), Some(lane)) = (self.parts.get_mut(index), self.lanes.get_mut(lane)) else {
            return true;
        };
        let Some(flight) = self.flights.get_mut(part.flight) else {
            return true;
        };
        let namespace = &self.shared.namespace;
        let durable = flight.op.is_durable();
        let command = part.command(namespace.nsid, namespace.lba_bytes, durable);
        let of = lane.association;
        match lane.queue.submit(&command, buf.into_option(), now) {
            Ok(slot) => {
                lane.put(slot, index);
                if part.what.takes_its_time() {
                    // Its operation's deadline is looked at here.
                    lane.queue.abandon(slot);
                }
                part.state = State::Issued {
                    of,
                    slot,
                    at: now,
                    abandoned: false,
                };
                true
            }
            Err(_) => false,
        }
    }

    /// What a part's command moves; `None` where there is no memory for it at the moment.
    pub(super) fn buffer_of(&mut self, index: u32) -> Option<Buffer> {
        let lba_bytes = self.shared.namespace.lba_bytes;
        let part = self.parts.get_mut(index)?;
        let flight = self.flights.get(part.flight)?;
        let piece = part.piece;
        Some(match part.what {
            What::Flush | What::Zero => Buffer::None,
            What::Deallocate => {
                let nsid = self.shared.namespace.nsid;
                let (_, list) = nvm::deallocate(nsid, &[(piece.lba, piece.blocks)]);
                Buffer::Some(IoBuf::from_bytes(&list).ok()?)
            }
            What::Read | What::Write if piece.is_whole(lba_bytes) => {
                Buffer::Some(payload(flight, &self.zeros, &piece)?)
            }
            What::Read | What::Write | What::Patch => {
                if part.bounce.is_none() {
                    part.bounce = match self.bounces.pop() {
                        Some(bounce) => Some(bounce),
                        None => IoBuf::heap(lba_bytes as usize).ok(),
                    };
                }
                Buffer::Some(part.bounce.clone()?)
            }
        })
    }

    /// A block was read to be changed in part: puts the new bytes in, so that it can be written.
    pub(super) fn patch(&mut self, index: u32) -> Result<(), StoreError> {
        let wrong = |why| StoreError::Resources {
            store: self.shared.name.clone(),
            why,
        };
        let part = self.parts.get_mut(index);
        let part = part.ok_or_else(|| wrong("a block to patch is gone".to_owned()))?;
        let piece = part.piece;
        let (skip, take) = (piece.skip_bytes as usize, piece.take_bytes as usize);
        let flight = self.flights.get(part.flight);
        let new = flight.and_then(|flight| payload(flight, &self.zeros, &piece));
        let (Some(new), Some(mut block)) = (new, part.bounce.take()) else {
            return Err(wrong("the bytes of a block to patch are gone".to_owned()));
        };
        // The queue has let go of the block, so that nobody else sees it.
        if let Some(bytes) = block.exclusive()
            && let Some(bytes) = bytes.get_mut(skip..skip + take)
        {
            new.copy_to(0, bytes);
            part.bounce = Some(block);
            part.what = What::Write;
            Ok(())
        } else {
            Err(wrong("a block to patch is still in use".to_owned()))
        }
    }
}

/// What a command has to move.
pub(super) enum Buffer {
    None,
    Some(IoBuf),
}

impl Buffer {
    pub fn into_option(self) -> Option<IoBuf> {
        match self {
            Buffer::None => None,
            Buffer::Some(buf) => Some(buf),
        }
    }
}

/// The caller's bytes of a piece; of a zeroing, as many zeros.
fn payload(flight: &Flight, zeros: &IoBuf, piece: &nvme::initiator::Piece) -> Option<IoBuf> {
    let take = piece.take_bytes as usize;
    if let Op::Zero { .. } = flight.op {
        return (take <= zeros.len()).then(|| zeros.slice(0..take));
    }
    let start = usize::try_from(piece.buffer_offset).ok()?;
    let buf = flight.buf.as_ref()?;
    (start + take <= buf.len()).then(|| buf.slice(start..start + take))
}
