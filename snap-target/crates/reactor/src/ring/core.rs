//! The loop's inside: submitting, reaping, inboxes. Everything here runs on the ring's thread.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, types};
use nix::errno::Errno;
use nix::libc;

use super::inbox::Inboxes;
use super::op::{Kind, Op, Ops};
use super::recv::RecvPool;
use super::{Event, Fd, OpId, OwnerId, Payload, Turn, Wait, errno};
use crate::config::{REAP_BATCH, RingConfig};
use crate::error::ReactorError;
use crate::features::Features;
use crate::stats::RingStats;
use crate::timer::Timers;
use crate::wake::WakeState;

/// Completions of cancel requests: nothing to do.
const CANCEL_TOKEN: u64 = u64::MAX;
/// Completions that another ring's message posts here.
pub(super) const WAKE_TOKEN: u64 = u64::MAX - 1;
/// io_uring_enter's flag to run deferred completion work.
const ENTER_GETEVENTS: u32 = 1;

/// An entry that waits for room in the submission ring.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    Op(OpId),
    Cancel(OpId),
}

pub(super) struct Core {
    pub(super) uring: IoUring,
    pub(super) features: Features,
    pub(super) ops: Ops,
    pub(super) inboxes: Inboxes,
    pub(super) timers: Timers,
    pub(super) stats: RingStats,
    pub(super) recv: Rc<RecvPool>,
    /// Entries not yet in the submission ring, in order. At most one entry and one cancel for each operation.
    waiting: VecDeque<Waiting>,
    wake: Arc<WakeState>,
    ring_id: u64,
    ops_max: u32,
    spin: Duration,
    last_work: Instant,
}

impl Core {
    pub(super) fn new(
        uring: IoUring,
        features: Features,
        config: &RingConfig,
        recv: Rc<RecvPool>,
        wake: Arc<WakeState>,
        ring_id: u64,
    ) -> Result<Self, ReactorError> {
        let mut core = Self {
            uring,
            features,
            ops: Ops::new(config.ops_max)?,
            inboxes: Inboxes::new(config.owners_max, config.events_max),
            timers: Timers::new(config.timers_max),
            stats: RingStats::default(),
            recv,
            waiting: VecDeque::with_capacity(config.ops_max as usize * 2),
            wake,
            ring_id,
            ops_max: config.ops_max,
            spin: config.spin,
            last_work: Instant::now(),
        };
        core.watch_wake();
        Ok(core)
    }

    // ---- starting and cancelling ----

    /// Puts an operation in flight, or gives it back when the table is full.
    pub(super) fn start(
        &mut self,
        owner: OwnerId,
        tag: u64,
        fd: Option<Fd>,
        kind: Kind,
    ) -> Result<OpId, Kind> {
        if self.ops.is_full() {
            return Err(kind);
        }
        let id = self
            .ops
            .insert(Op {
                owner,
                tag,
                fd,
                kind,
                cancelled: false,
            })
            .map_err(|op| op.kind)?;
        self.inboxes.op_started(owner);
        self.enqueue(Waiting::Op(id));
        Ok(id)
    }

    pub(super) fn ops_max(&self) -> u32 {
        self.ops_max
    }

    /// Asks the kernel to cancel; the operation's last event still comes.
    pub(super) fn cancel(&mut self, id: OpId) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        if !op.cancelled {
            op.cancelled = true;
            self.enqueue(Waiting::Cancel(id));
        }
    }

    fn enqueue(&mut self, entry: Waiting) {
        self.waiting.push_back(entry);
        self.fill_submissions();
    }

    /// Moves waiting entries into the submission ring while it has room.
    fn fill_submissions(&mut self) {
        while let Some(&next) = self.waiting.front() {
            let entry = match next {
                Waiting::Op(id) => self.ops.entry(id, &self.recv, self.ring_id),
                Waiting::Cancel(id) => Some(
                    opcode::AsyncCancel::new(id.to_user_data())
                        .build()
                        .user_data(CANCEL_TOKEN),
                ),
            };
            if let Some(entry) = entry {
                // SAFETY: everything the entry points at is owned by the operation's slot (buffers, descriptor, batch) or lies in the
                // args mapping; the slot is emptied only by the operation's last completion.
                if unsafe { self.uring.submission().push(&entry) }.is_err() {
                    return;
                }
            }
            self.waiting.pop_front();
        }
    }

    // ---- the turn ----

    pub(super) fn turn(&mut self, wait: Wait) -> Result<Turn, ReactorError> {
        self.stats.turns += 1;
        let mut turn = Turn::default();
        self.push_and_reap(&mut turn)?;
        if let Wait::Block { until } = wait
            && !self.has_work(&turn)
        {
            let deadline = [until, self.timers.next()].into_iter().flatten().min();
            if !self.spin_for_work(deadline) {
                self.sleep(deadline, &mut turn)?;
            }
            self.push_and_reap(&mut turn)?;
        }
        if turn.events > 0 || turn.notified {
            self.last_work = Instant::now();
        }
        Ok(turn)
    }

    fn has_work(&self, turn: &Turn) -> bool {
        turn.events > 0 || turn.notified || self.inboxes.waiting() > 0
    }

    /// One round without waiting: submit, run completion work, take completions, fire timers.
    fn push_and_reap(&mut self, turn: &mut Turn) -> Result<(), ReactorError> {
        loop {
            self.fill_submissions();
            if self.needs_enter() {
                self.enter()?;
            }
            turn.events += self.reap();
            if self.waiting.is_empty() && self.uring.submission().is_empty() {
                break;
            }
        }
        turn.events += self.fire_timers();
        if self.wake.take() {
            self.stats.wakeups += 1;
            turn.notified = true;
        }
        Ok(())
    }

    /// A system call pays only if there is something to hand over, or completion work waits for us inside the kernel.
    fn needs_enter(&mut self) -> bool {
        let queue = self.uring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn enter(&mut self) -> Result<(), ReactorError> {
        let pending = self.uring.submission().len();
        self.stats.enters += 1;
        // SAFETY: no argument structure is passed; entries in the ring are covered by fill_submissions.
        let result = unsafe {
            self.uring.submitter().enter::<libc::sigset_t>(
                u32::try_from(pending).unwrap_or(u32::MAX),
                0,
                ENTER_GETEVENTS,
                None,
            )
        };
        self.entered(result)
    }

    /// Counts what was handed over, and tells a passing shortage from a broken ring.
    fn entered(&mut self, result: std::io::Result<usize>) -> Result<(), ReactorError> {
        match result {
            Ok(count) => {
                self.stats.submitted += count as u64;
                Ok(())
            }
            Err(error) => match errno(&error) {
                // Interrupted, timed out, or the kernel is short of something until completions were taken.
                Errno::EINTR | Errno::ETIME | Errno::EAGAIN | Errno::EBUSY => Ok(()),
                source => Err(ReactorError::Enter { source }),
            },
        }
    }

    /// Polls memory until there is work (true), or the spin time or the deadline is over.
    fn spin_for_work(&mut self, deadline: Option<Instant>) -> bool {
        let end = self.last_work + self.spin;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        if self.spin.is_zero() || Instant::now() >= end {
            return false;
        }
        self.stats.spins += 1;
        loop {
            for _ in 0..32 {
                if !self.uring.completion().is_empty()
                    || self.needs_enter()
                    || self.wake.is_notified()
                {
                    return true;
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= end {
                return deadline.is_some_and(|deadline| deadline <= end);
            }
        }
    }

    /// Sleeps in the kernel until a completion, a wake-up or the deadline.
    fn sleep(&mut self, deadline: Option<Instant>, turn: &mut Turn) -> Result<(), ReactorError> {
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if timeout == Some(Duration::ZERO) || !self.wake.fall_asleep() {
            return Ok(());
        }
        self.stats.blocks += 1;
        self.stats.enters += 1;
        turn.blocked = true;
        let result = match timeout {
            Some(timeout) => {
                let timespec = types::Timespec::from(timeout);
                self.uring
                    .submitter()
                    .submit_with_args(1, &types::SubmitArgs::new().timespec(&timespec))
            }
            None => self.uring.submitter().submit_and_wait(1),
        };
        self.wake.awake();
        self.entered(result)
    }

    fn fire_timers(&mut self) -> u32 {
        if self.timers.next().is_none() {
            return 0;
        }
        let now = Instant::now();
        let mut fired = 0;
        while self.inboxes.has_room()
            && let Some((owner, tag)) = self.timers.pop_due(now)
        {
            let event = Event {
                tag,
                op: OpId::NONE,
                result: Ok(0),
                more: false,
                payload: Payload::Timer,
            };
            self.inboxes.deliver(owner, event);
            self.stats.timers += 1;
            fired += 1;
        }
        fired
    }

    // ---- completions ----

    /// Takes completions while inboxes have room; returns how many events were delivered.
    fn reap(&mut self) -> u32 {
        let mut delivered = 0;
        let mut batch: [MaybeUninit<cqueue::Entry>; REAP_BATCH] =
            [const { MaybeUninit::uninit() }; REAP_BATCH];
        loop {
            let room = self.inboxes.room().min(REAP_BATCH);
            let entries = self.uring.completion().fill(&mut batch[..room]);
            if entries.is_empty() {
                return delivered;
            }
            self.stats.completions += entries.len() as u64;
            for entry in entries {
                delivered += u32::from(self.complete(entry));
            }
        }
    }

    /// Routes one completion; true if an event was delivered.
    fn complete(&mut self, entry: &cqueue::Entry) -> bool {
        match entry.user_data() {
            CANCEL_TOKEN | WAKE_TOKEN => return false,
            _ => {}
        }
        let id = OpId::from_user_data(entry.user_data());
        let Some(op) = self.ops.get_mut(id) else {
            return false;
        };
        let result = match entry.result() {
            code if code < 0 => Err(Errno::from_raw(-code)),
            count => Ok(count.cast_unsigned()),
        };
        let more = cqueue::more(entry.flags());
        if !more && continues(op, result) {
            self.stats.continued += 1;
            self.enqueue(Waiting::Op(id));
            return false;
        }
        let (owner, tag) = (op.owner, op.tag);
        let payload = if more {
            self.partial_payload(id, entry, result)
        } else {
            self.final_payload(id, entry, result)
        };
        let (result, payload) = match payload {
            Some(done) => done,
            None => return false,
        };
        if !more {
            self.inboxes.op_ended(owner);
        }
        self.inboxes.deliver(
            owner,
            Event {
                tag,
                op: id,
                result,
                more,
                payload,
            },
        )
    }

    /// What a completion of a multishot operation brings while the operation goes on.
    fn partial_payload(
        &mut self,
        id: OpId,
        entry: &cqueue::Entry,
        result: Outcome,
    ) -> Option<(Outcome, Payload)> {
        let op = self.ops.get_mut(id)?;
        match &op.kind {
            Kind::Poll { .. } if op.owner == OwnerId::RING => {
                self.wake.drain();
                None
            }
            Kind::Accept { .. } => Some((result, accepted(result))),
            Kind::Recv { .. } => Some((result, received(&self.recv, entry, result))),
            _ => Some((result, Payload::None)),
        }
    }

    /// What the last completion of an operation brings: its resources come back.
    fn final_payload(
        &mut self,
        id: OpId,
        entry: &cqueue::Entry,
        result: Outcome,
    ) -> Option<(Outcome, Payload)> {
        let op = self.ops.remove(id)?;
        Some(match op.kind {
            Kind::Poll { .. } | Kind::Message { .. } if op.owner == OwnerId::RING => {
                self.inboxes.op_ended(OwnerId::RING);
                self.ring_op_ended(op.kind, result);
                return None;
            }
            Kind::Accept { .. } => (result, accepted(result)),
            Kind::Recv { .. } => (result, received(&self.recv, entry, result)),
            Kind::RecvOwned { id } => match result {
                Ok(len) if len > 0 => (result, Payload::Chunk(self.recv.chunk(id, len))),
                _ => {
                    self.recv.give_back(id);
                    (result, Payload::None)
                }
            },
            Kind::RecvInto { buf, done } => (result.map(|last| add(done, last)), Payload::Buf(buf)),
            Kind::Send { batch } => {
                let sent = batch.len() - batch.remaining();
                (result.map(|last| add(sent, last)), Payload::Sent(batch))
            }
            Kind::Read { buf, .. } | Kind::Write { buf, .. } => (result, Payload::Buf(buf)),
            Kind::Fsync { .. }
            | Kind::Allocate { .. }
            | Kind::Poll { .. }
            | Kind::Message { .. } => (result, Payload::None),
        })
    }

    /// The ring's own operations: the watch on the eventfd, and messages to other rings.
    fn ring_op_ended(&mut self, kind: Kind, result: Outcome) {
        match kind {
            Kind::Poll { .. } if result != Err(Errno::ECANCELED) => {
                self.wake.drain();
                self.watch_wake();
            }
            // The other ring did not take the message: it may be closing, or lack the feature. Its eventfd always works.
            Kind::Message { to } if result.is_err() => to.signal(),
            _ => {}
        }
    }

    /// Keeps a poll on the eventfd in flight.
    fn watch_wake(&mut self) {
        let fd = Fd::borrowed(self.wake.event_fd());
        let kind = Kind::Poll {
            events: libc::POLLIN.cast_unsigned().into(),
            multishot: true,
        };
        if self.start(OwnerId::RING, 0, Some(fd), kind).is_err() {
            tracing::error!("no operation slot for the wake-up watch");
        }
    }

    // ---- ending ----

    /// Cancels every operation of `owner` and waits until the kernel let go of them all.
    pub(super) fn close_owner(&mut self, owner: OwnerId) {
        self.timers.cancel_owner(owner);
        self.inboxes.close(owner);
        while self.inboxes.in_flight(owner) > 0 {
            let ids: Vec<OpId> = self.ops.of_owner(owner).collect();
            for id in ids {
                self.cancel(id);
            }
            // Inboxes of others grow over their limit here if they must: waiting for room would wait for ever.
            self.inboxes.lift_limit(true);
            self.fill_submissions();
            self.stats.enters += 1;
            let result = self.uring.submitter().submit_and_wait(1);
            if let Err(error) = self.entered(result) {
                tracing::error!(%error, "waiting for cancelled operations failed");
            }
            self.reap();
        }
        self.inboxes.lift_limit(false);
        self.inboxes.release(owner);
    }
}

type Outcome = Result<u32, Errno>;

/// Whether a short transfer goes on; updates what is left.
fn continues(op: &mut Op, result: Outcome) -> bool {
    let Ok(count @ 1..) = result else {
        return false;
    };
    let count = count as usize;
    if op.cancelled {
        return false;
    }
    match &mut op.kind {
        Kind::RecvInto { buf, done } if *done + count < buf.len() => {
            *done += count;
            true
        }
        Kind::Send { batch } if count < batch.remaining() => {
            batch.advance(count);
            true
        }
        _ => false,
    }
}

fn add(before: usize, last: u32) -> u32 {
    u32::try_from(before)
        .unwrap_or(u32::MAX)
        .saturating_add(last)
}

fn accepted(result: Outcome) -> Payload {
    match result {
        // SAFETY: a successful accept returns a fresh descriptor that nobody else owns.
        Ok(fd) => Payload::Socket(unsafe { OwnedFd::from_raw_fd(fd.cast_signed()) }),
        Err(_) => Payload::None,
    }
}

fn received(pool: &Rc<RecvPool>, entry: &cqueue::Entry, result: Outcome) -> Payload {
    match (cqueue::buffer_select(entry.flags()), result) {
        (Some(id), Ok(len)) if len > 0 => Payload::Chunk(pool.chunk(id, len)),
        (Some(id), _) => {
            pool.give_back(id);
            Payload::None
        }
        (None, _) => Payload::None,
    }
}
