//! How commands and operations end: answered, lost, overdue, cancelled.

use nvme::Time;
use nvme::queue::Slot;
use nvme_spec::{Cqe, Status};
use reactor::buf::IoBuf;
use store::{Completion, Op, StoreError};

use super::Handle;
use super::flight::What;
use super::part::{Part, RETRY_DELAY, State, Verdict, may_have_begun, patience};
use crate::message::Abort;
use crate::queue::Outcome;
use crate::shared::{AssociationId, Unanswered};

/// To a caller whose operation found no path: when to try again.
const RETRY_AFTER_MS: u32 = 1000;
/// Blocks that are kept for pieces that are not whole.
const BOUNCES_KEPT: usize = 64;

impl Handle {
    /// A queue is done with a command.
    pub(super) fn ended(
        &mut self,
        lane: usize,
        slot: Slot,
        outcome: Outcome,
        buf: Option<IoBuf>,
        now: Time,
    ) {
        // A view of what the part and the flight hold.
        drop(buf);
        let Some(lane) = self.lanes.get_mut(lane) else {
            return;
        };
        let of = lane.association;
        if matches!(outcome, Outcome::Answered(_)) {
            lane.is_suspect = false;
            lane.answered_at = Some(now);
            lane.unanswered = None;
        }
        let Some(index) = lane.take(slot) else {
            return;
        };
        if let Some(State::Issued { at, .. }) = self.parts.get(index).map(|part| part.state)
            && matches!(outcome, Outcome::Lost { .. })
            && !lane.ending
        {
            lane.gave_up(at);
        }
        match outcome {
            Outcome::Answered(cqe) => self.answered(index, of, &cqe, now),
            Outcome::Lost { was_sent } => self.lost(index, of, was_sent),
        }
    }

    fn answered(&mut self, index: u32, of: AssociationId, cqe: &Cqe, now: Time) {
        let status = cqe.status();
        if let Some(part) = self.parts.get(index)
            && part.what.is_change()
            && let Some(flight) = self.flights.get_mut(part.flight)
        {
            flight.may_have_begun |= may_have_begun(status);
        }
        match Verdict::of(status) {
            Verdict::Done => self.part_done(index),
            Verdict::Later => self.wait(index, now + RETRY_DELAY),
            Verdict::Elsewhere => {
                let others = |lane: &&super::Lane| lane.association != of && lane.is_usable();
                let paths = 1 + self.lanes.iter().filter(others).count();
                let mut not_before = now + RETRY_DELAY;
                if let Some(part) = self.parts.get_mut(index) {
                    part.avoid = Some(of);
                    part.sent_on += 1;
                    // Each path has had it: it is tried again a little later.
                    if !(part.sent_on as usize).is_multiple_of(paths) {
                        not_before = now;
                    }
                }
                self.wait(index, not_before);
            }
            Verdict::Failed => {
                let Some(flight) = self.parts.get(index).map(|part| part.flight) else {
                    return;
                };
                let error = self.refused(index, status);
                self.fail_at(index, flight, error);
            }
        }
    }

    fn lost(&mut self, index: u32, of: AssociationId, was_sent: bool) {
        let Some(part) = self.parts.get_mut(index) else {
            return;
        };
        part.avoid = Some(of);
        if !(part.what.is_change() && was_sent) {
            return self.wait(index, Time::ZERO);
        }
        part.state = State::Unknown { of };
        let flight = part.flight;
        self.unknown.push(index);
        let Some(flight) = self.flights.get_mut(flight) else {
            return;
        };
        flight.may_have_begun = true;
        if flight.failure.is_some() {
            self.fence_off(index);
        } else {
            self.fail_cancelled(index);
        }
    }

    /// The controller's answer was to decide what a cancelled operation comes to, and there is none: it ends as cancelled.
    fn fail_cancelled(&mut self, index: u32) {
        let Some(part) = self.parts.get(index) else {
            return;
        };
        let flight = part.flight;
        if let Some(it) = self.flights.get(flight)
            && it.cancelled
            && it.failure.is_none()
        {
            let error = self.cancelled(it.op);
            self.fail(flight, error);
        }
    }

    fn cancelled(&self, op: Op) -> StoreError {
        StoreError::Cancelled {
            store: self.shared.name.clone(),
            offset: op.offset(),
        }
    }

    /// A part waits for its next attempt; of an operation that has failed, or is to end, there is none.
    pub(super) fn wait(&mut self, index: u32, not_before: Time) {
        let Some(part) = self.parts.get_mut(index) else {
            return;
        };
        part.state = State::Waiting { not_before };
        self.fail_cancelled(index);
        let Some(part) = self.parts.get(index) else {
            return;
        };
        let flight = self.flights.get(part.flight);
        if flight.is_none_or(|flight| flight.failure.is_some()) {
            self.drop_part(index);
        } else {
            self.queue_part(index);
        }
    }

    pub(super) fn part_done(&mut self, index: u32) {
        let Some(part) = self.parts.get(index) else {
            return;
        };
        let (what, piece, flight) = (part.what, part.piece, part.flight);
        let lba_bytes = self.shared.namespace.lba_bytes;
        if what == What::Patch {
            match self.patch(index) {
                Ok(()) => self.wait(index, Time::ZERO),
                Err(error) => self.fail_at(index, flight, error),
            }
            return;
        }
        if what == What::Read && !piece.is_whole(lba_bytes) && !self.deliver(index) {
            let error = StoreError::Resources {
                store: self.shared.name.clone(),
                why: "a block that was read has no bytes to hand over".to_owned(),
            };
            return self.fail_at(index, flight, error);
        }
        self.drop_part(index);
    }

    /// Hands the bytes of a block that was read for them to the operation, all of them; false where they cannot be had.
    fn deliver(&mut self, index: u32) -> bool {
        let Some(part) = self.parts.get_mut(index) else {
            return false;
        };
        let (skip, take) = (
            part.piece.skip_bytes as usize,
            part.piece.take_bytes as usize,
        );
        let at = usize::try_from(part.piece.buffer_offset).unwrap_or(usize::MAX);
        if let Some(block) = &mut part.bounce
            && let Some(bytes) = block.exclusive()
            && let Some(bytes) = bytes.get(skip..skip + take)
            && let Some(flight) = self.flights.get_mut(part.flight)
            && let Some(buf) = &mut flight.buf
        {
            return buf.copy_from(at, bytes) == take;
        }
        false
    }

    fn drop_part(&mut self, index: u32) {
        let Some(part) = self.parts.remove(index) else {
            return;
        };
        if let Some(bounce) = part.bounce
            && self.bounces.len() < BOUNCES_KEPT
        {
            self.bounces.push(bounce);
        }
        if let Some(flight) = self.flights.get_mut(part.flight) {
            flight.parts -= 1;
            self.finish_if_ended(part.flight);
        }
    }

    /// Completes an operation of which nothing is left.
    pub(super) fn finish_if_ended(&mut self, index: u32) {
        if !self
            .flights
            .get(index)
            .is_some_and(super::Flight::has_ended)
        {
            return;
        }
        let Some(flight) = self.flights.remove(index) else {
            return;
        };
        if flight.failure.is_some() {
            self.hungry.retain(|other| *other != index);
        }
        self.ahead -= u32::from(flight.is_ahead);
        let moved = match flight.op {
            Op::Read { .. } | Op::Write { .. } => flight.buf.as_ref().map_or(0, IoBuf::len),
            _ => 0,
        };
        let result = match flight.failure {
            Some(error) => Err(error),
            None => Ok(u32::try_from(moved).unwrap_or(u32::MAX)),
        };
        if let Some(debt) = flight.debt {
            let read = flight.buf.filter(|_| matches!(flight.op, Op::Read { .. }));
            debt.repay(result.map(|_| read.map_or_else(Vec::new, |buf| buf.to_vec())));
        } else {
            self.done.push_back(Completion {
                token: flight.token,
                buf: flight.buf,
                result,
            });
        }
        if self.closed && self.flights.is_empty() {
            self.let_lanes_go();
        }
    }

    /// An operation fails because of a part that no queue has any more.
    pub(super) fn fail_at(&mut self, index: u32, flight: u32, error: StoreError) {
        if let Some(part) = self.parts.get_mut(index) {
            part.state = super::fresh();
        }
        if self
            .flights
            .get(flight)
            .is_some_and(|flight| flight.failure.is_some())
        {
            self.drop_part(index);
        } else {
            self.fail(flight, error);
        }
    }

    /// An operation fails: nothing more of it is begun, what waits is dropped, reads are given up, and changes that a controller has are waited for.
    pub(super) fn fail(&mut self, flight: u32, error: StoreError) {
        let Some(failing) = self.flights.get_mut(flight) else {
            return;
        };
        if failing.failure.is_some() {
            return;
        }
        failing.failure = Some(error);
        let parts = self.parts_of(flight);
        for index in parts {
            match self.parts.get(index).map(|part| (part.state, part.what)) {
                Some((State::Waiting { .. }, _)) => {
                    self.waiting.retain(|other| *other != index);
                    self.waiting_ahead.retain(|other| *other != index);
                    self.drop_part(index);
                }
                Some((State::Unknown { .. }, _)) => self.fence_off(index),
                // Its bytes would come as a copy: nothing touches its buffer.
                Some((State::Lent { .. }, what)) if what.is_abandonable() => self.drop_part(index),
                Some((State::Issued { .. }, what)) if what.is_abandonable() => self.abandon(index),
                _ => {}
            }
        }
        self.finish_if_ended(flight);
    }

    fn parts_of(&self, flight: u32) -> Vec<u32> {
        let of = |index: &u32| self.parts.get(*index).is_some_and(|it| it.flight == flight);
        self.parts.indices().filter(of).collect()
    }

    /// A part of a failed operation may still take effect: what comes later on its range waits until it cannot.
    fn fence_off(&mut self, index: u32) {
        if let Some(part) = self.parts.get(index)
            && let State::Unknown { of } = part.state
        {
            let bytes = part.bytes(self.shared.namespace.lba_bytes);
            self.shared.fences.raise(bytes, of);
        }
        self.unknown.retain(|other| *other != index);
        self.drop_part(index);
    }

    fn abandon(&mut self, index: u32) {
        if let Some(part) = self.parts.get_mut(index)
            && let State::Issued {
                of,
                slot,
                abandoned,
                ..
            } = &mut part.state
            && !std::mem::replace(abandoned, true)
        {
            let (of, slot) = (*of, *slot);
            if let Some(lane) = self.lane_mut(of) {
                lane.queue.abandon(slot);
            }
        }
    }

    /// Sends changes again whose old controller is dead.
    pub(super) fn look_at_unknown(&mut self, now: Time) {
        for index in std::mem::take(&mut self.unknown) {
            let of = match self.parts.get(index).map(|part| part.state) {
                Some(State::Unknown { of }) => of,
                _ => continue,
            };
            match self.shared.fences.dead_at(of) {
                Some(at) if at <= now => self.wait(index, now),
                _ => self.unknown.push(index),
            }
        }
    }

    /// Gives up reads that another path may answer sooner.
    pub(super) fn look_at_reads(&mut self, now: Time) {
        let after = self.shared.options.failover_after;
        let paths = self.lanes.iter().filter(|lane| lane.is_usable()).count();
        if paths < 2 {
            return;
        }
        let paths = u32::try_from(paths).unwrap_or(u32::MAX);
        let overdue = |index: &u32| {
            let part = self.parts.get(*index);
            part.is_some_and(|part| {
                matches!(part.state, State::Issued { at, abandoned: false, .. } if part.what.is_abandonable() && now.since(at) >= patience(part.given_up, after, paths))
            })
        };
        let overdue: Vec<u32> = self.parts.indices().filter(overdue).collect();
        for index in overdue {
            let Some(State::Issued { of, .. }) = self.parts.get(index).map(|part| part.state)
            else {
                continue;
            };
            if let Some(lane) = self.lane_mut(of) {
                lane.is_suspect = true;
            }
            if let Some(part) = self.parts.get_mut(index) {
                part.given_up += 1;
            }
            self.abandon(index);
        }
    }

    /// Says of which associations there is no answer: none since the oldest read or write that it has was sent, for as long as a read waits before another
    /// path is asked.
    pub(super) fn look_at_answers(&mut self, now: Time) {
        let after = self.shared.options.failover_after;
        for lane in &mut self.lanes {
            let sent_at = |index: u32| match self.parts.get(index) {
                Some(Part {
                    what,
                    state: State::Issued { of, at, .. },
                    ..
                }) if *of == lane.association && !what.takes_its_time() => Some(*at),
                _ => None,
            };
            let oldest = self.parts.indices().filter_map(sent_at).min();
            let oldest = oldest.into_iter().chain(lane.unanswered_since()).min();
            let is_late = oldest.is_some_and(|sent_at| {
                let since = lane.answered_at.map_or(sent_at, |at| at.max(sent_at));
                now.since(since) >= after
            });
            if !is_late || lane.ending {
                lane.unanswered = None;
            } else if lane.unanswered.is_none() {
                let path = lane.association.path;
                lane.unanswered = Some(Unanswered::new(&self.shared, path));
            }
        }
    }

    /// Ends associations that do not answer what was given up: it would take their room away for good.
    pub(super) fn look_at_lanes(&mut self, now: Time) {
        let after = self.shared.options.command_timeout;
        let mut silent = Vec::new();
        for lane in self.lanes.iter_mut().filter(|lane| !lane.ending) {
            let since = lane.unanswered_since();
            if since.is_some_and(|since| now.since(since) >= after) {
                silent.push(lane.association);
            }
        }
        for association in silent {
            self.end_lane(association, "it does not answer reads");
        }
    }

    fn end_lane(&mut self, association: AssociationId, why: &str) {
        if self.close_lane(association, self.shared.clock.now()) {
            self.tell_lost(association, why.to_owned());
        }
    }

    /// Ends operations whose time is over.
    pub(super) fn look_at_deadlines(&mut self, now: Time) {
        let over = |index: &u32| {
            let flight = self.flights.get(*index);
            flight.is_some_and(|it| now >= it.expires_at)
        };
        let over: Vec<u32> = self.flights.indices().filter(over).collect();
        for flight in over {
            // Who has a change of it knows what it comes to, and has the same deadline.
            let is_lent = |index: &u32| {
                let part = self.parts.get(*index);
                part.is_some_and(|it| {
                    matches!(it.state, State::Lent { .. }) && !it.what.is_abandonable()
                })
            };
            if self.parts_of(flight).iter().any(is_lent) {
                continue;
            }
            // What a controller has of a change, or of a flush, can be settled only by the end of its association.
            let mut changes = false;
            for index in self.parts_of(flight) {
                if let Some(part) = self.parts.get(index)
                    && !part.what.is_abandonable()
                    && let State::Issued { of, .. } = part.state
                {
                    changes |= part.what.is_change();
                    self.end_lane(of, "a change or flush was not answered by its deadline");
                }
            }
            if let Some(error) = self.overdue(flight, changes) {
                self.fail(flight, error);
            }
        }
    }

    pub(super) fn overdue(&self, flight: u32, is_issued: bool) -> Option<StoreError> {
        let flight = self.flights.get(flight)?;
        let store = self.shared.name.clone();
        let (what, offset) = (flight.op.what(), flight.op.offset());
        let deadline = self.shared.options.deadline;
        Some(if flight.may_have_begun || is_issued {
            StoreError::Unsettled {
                store,
                what,
                offset,
                after_ms: u32::try_from(deadline.as_millis()).unwrap_or(u32::MAX),
            }
        } else {
            StoreError::Unreachable {
                store,
                what,
                offset,
                retry_after_ms: Some(RETRY_AFTER_MS),
            }
        })
    }

    fn refused(&self, index: u32, status: Status) -> StoreError {
        let part = self.parts.get(index);
        let flight = part.and_then(|part| self.flights.get(part.flight));
        let store = self.shared.name.clone();
        let what = flight.map_or("the operation", |flight| flight.op.what());
        let lba_bytes = self.shared.namespace.lba_bytes;
        let offset = part.map_or(0, |part| part.bytes(lba_bytes).start);
        if flight.is_some_and(|it| it.cancelled) && status.code() == Status::ABORT_REQUESTED {
            return StoreError::Cancelled { store, offset };
        }
        if status.code() == Status::CAPACITY_EXCEEDED {
            return StoreError::NoSpace {
                store,
                what,
                offset,
                source: nix::errno::Errno::ENOSPC,
            };
        }
        StoreError::Controller {
            store,
            what,
            offset,
            status: status.to_string(),
        }
    }

    /// Ends an operation early, as far as that is safe: reads and what was not sent at once, changes that a controller has with its answer to an
    /// Abort.
    pub(super) fn cancel_flight(&mut self, index: u32) {
        let Some(flight) = self.flights.get_mut(index) else {
            return;
        };
        if std::mem::replace(&mut flight.cancelled, true) {
            return;
        }
        let op = flight.op;
        let error = self.cancelled(op);
        let issued: Vec<(AssociationId, Slot)> = self
            .parts_of(index)
            .into_iter()
            .filter_map(|part| match self.parts.get(part) {
                Some(part) if !part.what.is_abandonable() => match part.state {
                    State::Issued { of, slot, .. } => Some((of, slot)),
                    _ => None,
                },
                _ => None,
            })
            .collect();
        for (association, slot) in &issued {
            let cid = self
                .lane_mut(*association)
                .and_then(|lane| lane.queue.cid(*slot));
            if let Some(cid) = cid {
                let abort = Abort {
                    association: *association,
                    handle: self.id,
                    cid,
                };
                // It is a request: without room for it the command ends as it would.
                let _ = self.life.aborts.send(abort);
            }
        }
        // What is complete is complete: where such commands are out and nothing else is left, their answers decide.
        let is_decided_there = self.flights.get(index).is_some_and(|flight| {
            !issued.is_empty() && flight.cuts.is_done() && flight.parts as usize == issued.len()
        });
        if !is_decided_there {
            self.fail(index, error);
        }
    }

    pub(super) fn close_lanes(&mut self) {
        let now = self.shared.clock.now();
        let lanes: Vec<AssociationId> = self.lanes.iter().map(|lane| lane.association).collect();
        for association in lanes {
            self.close_lane(association, now);
        }
    }

    /// The handle is closed and nothing is in flight: its queues end.
    pub(super) fn let_lanes_go(&mut self) {
        self.close_lanes();
        self.leave();
    }
}
