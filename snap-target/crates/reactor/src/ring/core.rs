//! The loop's inside: starting, submitting, waiting, ending. Everything here runs on the ring's thread.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use nix::errno::Errno;
use nix::libc;

use super::inbox::Inboxes;
use super::op::{Kind, Op, Ops};
use super::recv::RecvPool;
use super::{Event, Fd, OpId, OwnerId, Payload, Turn, Wait, errno};
use crate::config::RingConfig;
use crate::error::ReactorError;
use crate::features::Features;
use crate::stats::RingStats;
use crate::timer::Timers;
use crate::wake::WakeState;

/// Completions of cancel requests: nothing to do.
pub(super) const CANCEL_TOKEN: u64 = u64::MAX;
/// Completions that another ring's message posts here.
pub(super) const WAKE_TOKEN: u64 = u64::MAX - 1;
/// io_uring_enter's flag to run deferred completion work.
const ENTER_GETEVENTS: u32 = 1;

/// An entry that waits for room in the submission ring.
#[derive(Clone, Copy, Debug)]
pub(super) enum Waiting {
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
    pub(super) wake: Arc<WakeState>,
    ring_id: u64,
    ops_max: u32,
    spin: Duration,
    pub(super) last_work: Instant,
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
            inboxes: Inboxes::new(config),
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

    /// Puts an operation in flight, or gives it back when the table is full, or when its owner yields and has to.
    pub(super) fn start(
        &mut self,
        owner: OwnerId,
        tag: u64,
        fd: Option<Fd>,
        kind: Kind,
    ) -> Result<OpId, Kind> {
        if self.inboxes.has_to_yield(owner) {
            return Err(kind);
        }
        let is_awaited = kind.is_awaited();
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
        if is_awaited {
            self.inboxes.op_started(owner);
        }
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

    pub(super) fn enqueue(&mut self, entry: Waiting) {
        self.waiting.push_back(entry);
        self.fill_submissions();
    }

    /// Moves waiting entries into the submission ring while it has room.
    fn fill_submissions(&mut self) {
        while let Some(&next) = self.waiting.front() {
            let entry = match next {
                Waiting::Op(id) => self.ops.entry(id, &self.recv, self.ring_id),
                // An operation that ended meanwhile needs no cancel.
                Waiting::Cancel(id) => self.ops.get_mut(id).map(|_| {
                    let cancel = opcode::AsyncCancel::new(id.to_user_data()).build();
                    cancel.user_data(CANCEL_TOKEN)
                }),
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

    /// See [`super::Ring::has_news`].
    pub(super) fn has_news(&mut self) -> bool {
        !self.uring.completion().is_empty()
            || self.needs_enter()
            || self.wake.is_notified()
            || self.inboxes.waiting() > 0
    }

    fn has_work(&self, turn: &Turn) -> bool {
        turn.events > 0 || turn.notified || self.inboxes.waiting() > 0
    }

    /// One round without waiting: submit, run completion work, take completions, fire timers.
    fn push_and_reap(&mut self, turn: &mut Turn) -> Result<(), ReactorError> {
        loop {
            self.fill_submissions();
            let submitted = self.stats.submitted;
            if self.needs_enter() {
                self.enter()?;
            }
            turn.events += self.reap();
            let all_submitted = self.waiting.is_empty() && self.uring.submission().is_empty();
            // Where the kernel takes no more until inboxes are drained, the rest waits for the next turn.
            if all_submitted || self.stats.submitted == submitted {
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
            // Whoever else could use the core gets it: what is waited for may be theirs to do. Nothing more than a system call where nobody could.
            std::thread::yield_now();
        }
    }

    /// Sleeps in the kernel until a completion, a wake-up or the deadline.
    fn sleep(&mut self, deadline: Option<Instant>, turn: &mut Turn) -> Result<(), ReactorError> {
        let asleep = Instant::now();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(asleep));
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
        let slept_ns = u64::try_from(asleep.elapsed().as_nanos()).unwrap_or(0);
        self.stats.slept_ns += slept_ns;
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

    // ---- ending ----

    /// Cancels every operation of `owner` and waits until the kernel let go of them all. Commands are left to it.
    pub(super) fn close_owner(&mut self, owner: OwnerId) {
        self.timers.cancel_owner(owner);
        self.inboxes.close(owner);
        while self.inboxes.in_flight(owner) > 0 {
            for index in 0..self.ops_max {
                if let Some(id) = self.ops.of_owner(owner, index) {
                    self.cancel(id);
                }
            }
            // Inboxes of others grow over their limit here if they must: waiting for room would wait for ever.
            self.inboxes.lift_limit(true);
            self.fill_submissions();
            self.stats.enters += 1;
            // Cancels that found no room yet must go first, or there is nothing to wait for.
            let want = usize::from(self.waiting.is_empty());
            let result = self.uring.submitter().submit_and_wait(want);
            if let Err(error) = self.entered(result) {
                // The kernel may still write to their memory, which their owner is about to get back: better no process than a
                // corrupted one. It cannot happen while the ring's descriptor is ours.
                tracing::error!(%error, "operations in flight cannot be ended");
                std::process::abort();
            }
            self.reap();
        }
        self.inboxes.lift_limit(false);
        self.inboxes.release(owner);
    }
}
