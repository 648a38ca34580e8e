//! Runs of missing frames, from the stores.

use std::collections::VecDeque;
use std::time::Instant;

use store::Completion;
use volume::StoredFrame;

use super::run::{Fetched, Run, RunId, later, run_of};
use super::{Frames, Waiter};
use crate::NamespaceError;
use crate::ahead::Purpose;
use crate::attached::Attached;
use crate::attachments::Attachments;
use crate::parts::Parts;

impl Frames {
    /// The run that fetches a frame: the last one, if it still grows, or a new one.
    pub(super) fn run_for(
        &mut self,
        place: usize,
        frame: StoredFrame,
        deadline: Option<Instant>,
        is_ahead: bool,
    ) -> RunId {
        let missing = match is_ahead {
            true => &self.missing_ahead,
            false => &self.missing,
        };
        if let Some(last) = missing.back().copied()
            && self.runs[last].grow(place, frame, deadline)
        {
            return self.id_of(last);
        }
        self.begin_run(place, frame, deadline, is_ahead)
    }

    /// A new run, which may grow.
    fn begin_run(
        &mut self,
        place: usize,
        frame: StoredFrame,
        deadline: Option<Instant>,
        is_ahead: bool,
    ) -> RunId {
        let index = self.free_runs.pop().unwrap_or_else(|| {
            self.runs.push(Run::new());
            self.runs.len() - 1
        });
        self.runs[index].begin(place, frame, deadline);
        self.runs[index].is_ahead = is_ahead;
        match is_ahead {
            true => self.missing_ahead.push_back(index),
            false => self.missing.push_back(index),
        }
        self.id_of(index)
    }

    fn id_of(&self, index: usize) -> RunId {
        let generation = self.runs[index].generation;
        RunId { index, generation }
    }

    /// Somebody waits for a frame that is on its way; whether its store had been asked, on terms of others.
    pub(super) fn joined(
        &mut self,
        at: usize,
        attached: &mut Attachments,
        of: Option<usize>,
        deadline: Option<Instant>,
    ) -> bool {
        if let Some(of) = of {
            attached[of].row.joined_misses.add(1);
        }
        let pending = &mut self.waiters[at];
        let was_ahead = std::mem::take(&mut pending.is_ahead);
        let RunId { index, generation } = pending.run;
        let run = &mut self.runs[index];
        if run.generation != generation {
            // The last of its frames are with the workers.
            return false;
        }
        let has_joined = run.is_waited_for(deadline);
        if was_ahead {
            self.hurry(index, attached);
        }
        has_joined
    }

    /// A frame that is on its way, and that nobody waits for, was ordered meanwhile: it is the order's from now on.
    pub(super) fn handed_on(&mut self, at: usize, of: Option<&Attached>, purpose: Purpose) {
        let pending = &mut self.waiters[at];
        if pending.is_ahead
            && matches!(purpose, Purpose::Order(_))
            && let Some(of) = of
        {
            pending.witness = of.witness(purpose);
        }
    }

    /// A run that nobody waited for comes before the others of its kind, here and in its store.
    fn hurry(&mut self, index: usize, attached: &mut Attachments) {
        let run = &mut self.runs[index];
        if !std::mem::take(&mut run.is_ahead) {
            return;
        }
        // A run whose frames are with the workers may outlive its namespace.
        if let Some(of) = attached.get_mut(run.attached) {
            run.hurry(index, of);
        }
        for (from, to) in [
            (&mut self.missing_ahead, &mut self.missing),
            (&mut self.decoding_ahead, &mut self.decoding),
        ] {
            if let Some(at) = from.iter().position(|queued| *queued == index) {
                from.remove(at);
                to.push_front(index);
            }
        }
    }

    /// Asks the stores for what is missing; for what nobody waits for where nothing else of that namespace is missing.
    pub(super) fn fetch(&mut self, attached: &mut Attachments, parts: &mut Parts) -> bool {
        self.full.clear();
        let mut missing = std::mem::take(&mut self.missing);
        let mut moved = self.fetch_all(&mut missing, attached, parts);
        // What came meanwhile stands behind.
        missing.append(&mut self.missing);
        self.missing = missing;
        let mut missing = std::mem::take(&mut self.missing_ahead);
        moved |= self.fetch_all(&mut missing, attached, parts);
        self.missing_ahead = missing;
        moved
    }

    /// In the order of each namespace: one whose store is full holds up no other.
    fn fetch_all(
        &mut self,
        missing: &mut VecDeque<usize>,
        attached: &mut Attachments,
        parts: &mut Parts,
    ) -> bool {
        let mut moved = false;
        // Once around: what stays keeps its order.
        for _ in 0..missing.len() {
            let Some(index) = missing.pop_front() else {
                break;
            };
            let run = &mut self.runs[index];
            if self.full.contains(&run.attached) {
                missing.push_back(index);
                continue;
            }
            let state = run.fetch(index, &mut attached[run.attached], parts);
            if state == Fetched::NoRoom {
                self.full.push(run.attached);
                missing.push_back(index);
                continue;
            }
            moved = true;
            run.is_queued = false;
            if state == Fetched::Done {
                self.fetched(index);
            }
        }
        moved
    }

    /// Tells those whose time is over, and ends the fetches that wait for memory or for room in a store's queue, and that nobody waits for any more.
    pub(crate) fn end_overdue(&mut self, attached: &Attachments, now: Instant) {
        for at in 0..self.waiters.len() {
            self.give_up(at, now);
        }
        for _ in 0..self.missing.len() {
            let Some(index) = self.missing.pop_front() else {
                break;
            };
            let run = &mut self.runs[index];
            if run.deadline.is_none_or(|at| at > now) {
                self.missing.push_back(index);
                continue;
            }
            run.is_queued = false;
            let nsid = attached[run.attached].shared.nsid;
            if run.fail(NamespaceError::NotInTime { nsid }) == Fetched::Done {
                self.fetched(index);
            }
        }
    }

    /// A namespace goes: fetches of its frames that nobody waits for are given up, and the store is asked to end those that it has.
    pub(crate) fn cancel_ahead(&mut self, attached: &mut Attached) {
        let place = attached.place;
        let key = attached.whole;
        for _ in 0..self.missing_ahead.len() {
            let Some(index) = self.missing_ahead.pop_front() else {
                break;
            };
            let run = &mut self.runs[index];
            if run.attached != place {
                self.missing_ahead.push_back(index);
                continue;
            }
            run.is_queued = false;
            if run.fail(NamespaceError::Detached { key }) == Fetched::Done {
                self.fetched(index);
            }
        }
        for (index, run) in self.runs.iter().enumerate() {
            if run.attached == place && run.is_ahead {
                run.cancel(index, attached);
            }
        }
    }

    /// Takes the end of a store's operation, if it is about frames; gives it back if not.
    pub(crate) fn completed(
        &mut self,
        attached: &Attached,
        completion: Completion,
    ) -> Option<Completion> {
        let Some(index) = run_of(completion.token) else {
            return Some(completion);
        };
        let run = &mut self.runs[index];
        let state = run.completed(attached.shared.nsid, completion);
        if state == Fetched::Done && !run.is_queued {
            self.fetched(index);
        }
        None
    }

    /// Whether a fetch or decode under way is of this namespace.
    pub(crate) fn uses(&self, attached: usize) -> bool {
        self.missing
            .iter()
            .chain(&self.missing_ahead)
            .chain(&self.decoding)
            .chain(&self.decoding_ahead)
            .any(|index| self.runs[*index].attached == attached)
    }

    /// A run's stored bytes are here, or cannot be had.
    fn fetched(&mut self, index: usize) {
        let Some(error) = self.runs[index].failed.take() else {
            match self.runs[index].is_ahead {
                true => self.decoding_ahead.push_back(index),
                false => self.decoding.push_back(index),
            }
            return;
        };
        let is_alone = self.runs[index].frames.len() == 1;
        for at in 0..self.runs[index].frames.len() {
            let frame = self.runs[index].frames[at];
            if !frame.id.is_plain() {
                self.tell_or_ask_again(index, frame, is_alone, &error);
            } else {
                // Whoever waits for it asks the store.
                self.fail(frame.id, &error);
            }
        }
        self.release(index);
    }

    /// A frame's run has failed. Those who wait for it are told, but for whom that may be about something else: about another frame of the run
    /// (`is_alone`: there is none), or about terms on which the store was asked before they came. For them it is fetched once more, alone.
    fn tell_or_ask_again(
        &mut self,
        index: usize,
        frame: StoredFrame,
        is_alone: bool,
        error: &NamespaceError,
    ) {
        let Some(at) = self.pending.get(&frame.id).copied() else {
            return;
        };
        let is_told = |waiter: &Waiter| waiter.is_ahead() || (is_alone && !waiter.has_joined);
        while let Some(n) = self.waiters[at].waiters.iter().position(is_told) {
            let waiter = self.waiters[at].waiters.remove(n);
            self.answer(waiter, Err(error.clone()));
        }
        let pending = &mut self.waiters[at];
        for waiter in &mut pending.waiters {
            waiter.has_joined = false;
        }
        let deadlines = pending.waiters.iter().map(|waiter| waiter.deadline);
        let Some(deadline) = deadlines.reduce(later) else {
            return self.fail(frame.id, error);
        };
        // It was not fetched ahead.
        pending.was_ahead = false;
        pending.witness = None;
        let run = self.begin_run(self.runs[index].attached, frame, deadline, false);
        self.runs[run.index].is_alone = true;
        self.waiters[at].run = run;
    }

    /// Has a frame fetched once more whose stored bytes were not what was written; false where that was done often enough, or nobody waits.
    pub(super) fn read_again(&mut self, of: &mut Attached, frame: StoredFrame) -> bool {
        let Some(at) = self.pending.get(&frame.id).copied() else {
            return false;
        };
        let pending = &mut self.waiters[at];
        let deadlines = pending.waiters.iter().map(|waiter| waiter.deadline);
        let Some(deadline) = deadlines.reduce(later) else {
            return false;
        };
        let (source, blocks) = (frame.source.0 as usize, frame.blocks());
        let len = blocks.end - blocks.start;
        if !of.reads_again(source, blocks.start, len, pending.reads_again) {
            return false;
        }
        pending.reads_again += 1;
        let is_ahead = pending.is_ahead;
        let run = self.run_for(of.place, frame, deadline, is_ahead);
        self.waiters[at].run = run;
        true
    }

    pub(super) fn release(&mut self, index: usize) {
        self.runs[index].buf = None;
        self.free_runs.push(index);
    }
}
