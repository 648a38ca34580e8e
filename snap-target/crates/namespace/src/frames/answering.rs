//! What becomes of a frame, and who is told.

use std::time::Instant;

use telemetry::NamespaceRow;
use volume::{FrameBuf, FrameId};

use super::link::Answer;
use super::{Frames, Waiter};
use crate::NamespaceError;
use crate::parts::Parts;

impl Frames {
    /// A frame is decoded: it is kept, and everyone who waits for it gets it.
    pub(super) fn finish(
        &mut self,
        parts: &mut Parts,
        row: &NamespaceRow,
        id: FrameId,
        packed: FrameBuf,
    ) {
        if !id.is_plain() {
            row.frames_decoded.add(1);
        }
        let pending = self.pending.get(&id).map(|at| &mut self.waiters[*at]);
        let witnessed = pending.and_then(|pending| Some((pending.witness.take()?, pending)));
        let frame = match witnessed {
            Some((witness, pending)) => {
                let is_late = !pending.is_ahead;
                let position = match pending.was_ahead {
                    true => witness.fetched(packed.len(), is_late),
                    false => 0,
                };
                let cache = &mut parts.cache;
                cache.insert_witnessed(id, packed, witness, position, is_late)
            }
            None => parts.cache.insert_frame(id, packed),
        };
        self.answer_all(id, &Ok(frame));
    }

    /// A frame cannot be had: everyone who waits for it is told why.
    pub(super) fn fail(&mut self, id: FrameId, error: &NamespaceError) {
        let pending = self.pending.get(&id).map(|at| &mut self.waiters[*at]);
        let witness = pending.and_then(|pending| pending.witness.take());
        if let Some(witness) = witness.filter(|_| id.is_plain()) {
            witness.failed(id);
        }
        self.answer_all(id, &Err(error.clone()));
    }

    fn answer_all(&mut self, id: FrameId, result: &Result<volume::Frame, NamespaceError>) {
        let Some(at) = self.pending.remove(&id) else {
            return;
        };
        for n in 0..self.waiters[at].waiters.len() {
            let waiter = self.waiters[at].waiters[n];
            self.answer(waiter, result.clone());
        }
        // Its memory is kept, for the next frame.
        self.waiters[at].waiters.clear();
        self.free_waiters.push(at);
    }

    /// Tells those who wait for a frame and whose time is over. The frame is fetched all the same.
    pub(super) fn give_up(&mut self, at: usize, now: Instant) {
        let nsid = self.waiters[at].nsid;
        let is_over = |waiter: &Waiter| waiter.deadline.is_some_and(|at| at <= now);
        while let Some(n) = self.waiters[at].waiters.iter().position(is_over) {
            let waiter = self.waiters[at].waiters.remove(n);
            self.answer(waiter, Err(NamespaceError::NotInTime { nsid }));
        }
    }

    pub(super) fn answer(&mut self, waiter: Waiter, result: Result<volume::Frame, NamespaceError>) {
        let answer = Answer {
            slot: waiter.slot,
            id: waiter.id,
            home: self.link.reactor,
            result,
        };
        match waiter.reactor == self.link.reactor {
            true => self.answers.push_back(answer),
            false => self.link.send_answer(waiter.reactor, answer),
        }
    }
}
