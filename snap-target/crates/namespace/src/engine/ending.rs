//! Requests that end early.

use super::Engine;
use super::request::{Work, token_of};
use crate::{HeldFence, NamespaceError, NamespaceKey};

impl Engine {
    /// Asks to end a request early. It is answered all the same, once, when no store can touch its memory any more: as cancelled, or as what it
    /// came to. An unknown token is ignored: the request was answered.
    pub fn cancel(&mut self, token: u64) {
        // The request, and its part that is under way.
        for slot in 0..self.requests.len() {
            let request = &self.requests[slot];
            if request.token == token && request.is_taken() {
                self.cancel_slot(slot);
            }
        }
    }

    /// The host of these requests is gone. What the stores do not have yet is given up; what they have is cancelled, and until they let go of
    /// its writes, no write to the same namespace begins, on any engine. Every request is answered all the same.
    pub fn abandon(&mut self, is_theirs: impl Fn(u64) -> bool) {
        for slot in 0..self.requests.len() {
            let request = &mut self.requests[slot];
            if !request.is_taken() || !is_theirs(request.token) {
                continue;
            }
            if request.is_write && matches!(request.work, Work::Submitted) && !request.is_abandoned
            {
                request.is_abandoned = true;
                self.attached[request.attached].shared.fence.raise();
            }
            self.cancel_slot(slot);
        }
    }

    /// Gives a fence back. Writes that waited for it go on: here with the next poll, elsewhere when they are woken.
    pub fn let_write(&mut self, held: HeldFence) {
        if held.lower() {
            self.again = true;
            self.frames.wake_peers();
        }
    }

    /// Those of these requests that are about a namespace, or a part of it, and have not been answered, by their tokens; one of several parts may come several times.
    pub fn unanswered(
        &self,
        key: NamespaceKey,
        is_theirs: impl Fn(u64) -> bool,
    ) -> impl Iterator<Item = u64> {
        let places: Vec<usize> = self.places_of(key).collect();
        let of_it = self
            .requests
            .iter()
            .filter(move |request| request.is_taken() && places.contains(&request.attached));
        of_it
            .map(|request| request.token)
            .filter(move |token| is_theirs(*token))
    }

    pub(super) fn cancel_slot(&mut self, slot: usize) {
        let index = self.requests[slot].attached;
        let attached = &mut self.attached[index];
        let waited = attached.parked.remove(slot);
        let nsid = attached.shared.nsid;
        match &mut self.requests[slot].work {
            Work::Submitted => {
                attached.cancel(0, token_of(slot, 0));
                self.parts.fills.cancel(index, token_of(slot, 0));
                self.again = true;
            }
            Work::View(read) => {
                read.cancel(attached, &mut self.parts, slot);
                self.again = true;
                if waited {
                    self.advance(slot);
                }
            }
            Work::Raw(_) => self.finish(slot, Err(NamespaceError::Cancelled { nsid })),
            Work::Compound(compound) => {
                let ends = compound.cancel(nsid);
                if ends && !self.ready.contains(&slot) {
                    self.excluding.retain(|waiting| *waiting != slot);
                    self.unsaved.retain(|waiting| *waiting != slot);
                    self.ready.push(slot);
                }
            }
            Work::Free => {}
        }
    }
}
