//! Commands that end early: by an Abort, or because another host preempted this one.

use namespace::{Engine, NamespaceError};
use nvme::queue::Slot;
use nvme_spec::{Cid, Nsid, Status};

use super::IoQueue;
use crate::message::{AbortId, Message};
use crate::table::Key;

/// Who has a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This queue, or the host, which still sends its data.
    Here,
    /// The engine; whether it may change something.
    Engine { changes: bool },
    /// The desk.
    Desk,
}

/// A command that is to end early, and has not been answered yet.
#[derive(Debug)]
pub(super) struct Ending {
    slot: Slot,
    /// How it is answered, unless it was carried out all the same.
    status: Status,
    /// The Abort that waits for it.
    abort: Option<AbortId>,
}

impl IoQueue {
    /// Ends a command early. The desk is told once it is answered: whether it was this that ended it.
    pub(crate) fn abort(&mut self, cid: Cid, id: AbortId, key: Key, engine: &mut Engine) {
        let found = self.link.find(cid);
        // A reservation command is short, and nothing of it may be half done.
        let Some(slot) = found.filter(|slot| self.place(*slot) != Place::Desk) else {
            return self.messages.push(Message::Aborted(id, false));
        };
        if !self.end_early(slot, Status::ABORT_REQUESTED, Some(id)) {
            engine.cancel(token(key, slot));
        } else if self.early_end(slot).is_some() {
            // Its data are on their way. The host has said that it does not wait for the command, and knows what it still sends of it.
            self.fail_with_half(slot, Status::ABORT_REQUESTED);
        }
        // Before the Abort's own.
        self.link.let_answers_go();
    }

    /// Ends all commands of a namespace whose host was preempted, a flush of all namespaces among them. What the engine has is given back by its token: it ends as soon as the store
    /// has let go of it. What waits for data that were asked for ends when they have come: its host has not asked for the end, and Linux's gives memory free with the answer that
    /// it still sends from.
    pub(crate) fn preempt(&mut self, nsid: Nsid, key: Key) -> Vec<u64> {
        let is_meant = |slot: &Slot| {
            let named = self.link.command(*slot).nsid();
            [nsid, Nsid::BROADCAST].contains(&named) && self.place(*slot) != Place::Desk
        };
        let mut slots = self.link.outstanding();
        slots.retain(is_meant);
        let status = Status::PREEMPTED.dnr();
        slots
            .into_iter()
            .filter(|slot| !self.end_early(*slot, status, None))
            .map(|slot| token(key, slot))
            .collect()
    }

    /// Ends what has not begun; what waits for data that are on their way ends when they are there. False for what the engine has: it is to be cancelled.
    fn end_early(&mut self, slot: Slot, status: Status, abort: Option<AbortId>) -> bool {
        self.endings.push(Ending {
            slot,
            status,
            abort,
        });
        let waited = self.waiting_reads.len() + self.waiting.len();
        self.waiting_reads.retain(|(waiting, _)| *waiting != slot);
        self.waiting.retain(|waiting| *waiting != slot);
        if self.waiting_reads.len() + self.waiting.len() < waited {
            self.fail_with_half(slot, status);
            return true;
        }
        if self.halves.is_alone(slot) {
            self.fail_with_half(slot, status);
            return true;
        }
        // Where its data are on their way, they are dropped when they are there.
        !matches!(self.place(slot), Place::Engine { .. })
    }

    /// How a command ends that is to end early.
    pub(super) fn early_end(&self, slot: Slot) -> Option<Status> {
        let ending = self.endings.iter().find(|ending| ending.slot == slot)?;
        Some(ending.status)
    }

    /// The status of what the engine has given up; of all else, its own.
    pub(super) fn status_of(&self, slot: Slot, error: &NamespaceError, is_write: bool) -> Status {
        let status = error.status(is_write);
        let is_given_up = status.code() == Status::ABORT_REQUESTED;
        match self.early_end(slot) {
            Some(early) if is_given_up => early,
            _ => status,
        }
    }

    /// A command has been answered: whoever wanted it ended hears of it.
    pub(super) fn settle_endings(&mut self, slot: Slot, status: Status) {
        if self.endings.is_empty() {
            return;
        }
        let aborted = status.code() == Status::ABORT_REQUESTED;
        for ending in self.endings.extract_if(.., |ending| ending.slot == slot) {
            if let Some(id) = ending.abort {
                self.messages.push(Message::Aborted(id, aborted));
            }
        }
    }

    /// The queue closes: what was to end early does so without an answer.
    pub(crate) fn take_aborts(&mut self) -> Vec<Message> {
        let mut messages = std::mem::take(&mut self.messages);
        let aborts = self.endings.drain(..).filter_map(|ending| ending.abort);
        messages.extend(aborts.map(|id| Message::Aborted(id, false)));
        messages
    }

    /// Requests, by their tokens, that may still change something when the queue has closed. A read changes nothing, and nobody hears of it any more.
    pub(crate) fn changing(&self, key: Key) -> Vec<u64> {
        let changes =
            |place: &Place| matches!(place, Place::Engine { changes: true } | Place::Desk);
        let slots = (0..).map(Slot).zip(&self.places);
        slots
            .filter(|(_, place)| changes(place))
            .map(|(slot, _)| token(key, slot))
            .collect()
    }

    pub(super) fn place(&self, slot: Slot) -> Place {
        let place = self.places.get(slot.index());
        place.copied().unwrap_or(Place::Here)
    }

    pub(super) fn put(&mut self, slot: Slot, now: Place) {
        if let Some(place) = self.places.get_mut(slot.index()) {
            *place = now;
        }
    }
}

/// What the engine calls a command.
pub(super) fn token(key: Key, slot: Slot) -> u64 {
    key.to_bits() << 16 | u64::from(slot.0)
}
