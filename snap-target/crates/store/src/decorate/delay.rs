//! A store that answers later.

use std::time::{Duration, Instant};

use reactor::buf::IoBuf;
use reactor::{Owner, Ring, TimerId};

use crate::contract::{Completion, Limits, Op, Rejected, Store, Terms, Token, WireBytes, check};
use crate::error::StoreError;
use crate::shared::{Backend, SharedStore};

/// Longer delays are mistakes: a host gives up after 30 s.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// How long each kind of operation takes at least, from submit to completion. The operation itself happens at once; its completion is held
/// back, and a cancel ends the wait. There are no leases, so that reads cannot go around the delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Delay {
    /// Reads.
    pub read: Duration,
    /// Writes, discards, zeroing.
    pub change: Duration,
    /// Flushes.
    pub flush: Duration,
}

impl Delay {
    /// Wraps `inner`.
    ///
    /// # Errors
    /// [`StoreError::Decorator`] if nothing would be delayed, a delay is over a minute, or changes of a read-only store are to be delayed.
    pub fn over(self, inner: SharedStore) -> Result<SharedStore, StoreError> {
        let wrong = |why| {
            Err(StoreError::Decorator {
                decorator: "delay",
                store: inner.name().to_owned(),
                why,
            })
        };
        if self == Self::default() {
            return wrong("no delay is set");
        }
        if self.read.max(self.change).max(self.flush) > DELAY_MAX {
            return wrong("a delay is over 60 s");
        }
        if !self.change.is_zero() && !inner.limits().writable {
            return wrong("changes are to be delayed, but the store is read-only");
        }
        let name = format!("delay over {}", inner.name());
        Ok(SharedStore::new(DelayBackend {
            name,
            delay: self,
            inner,
        }))
    }

    fn of(&self, op: &Op) -> Duration {
        match op {
            Op::Read { .. } => self.read,
            Op::Flush => self.flush,
            Op::Write { .. } | Op::Discard { .. } | Op::Zero { .. } => self.change,
        }
    }
}

#[derive(Debug)]
struct DelayBackend {
    name: String,
    delay: Delay,
    inner: SharedStore,
}

impl Backend for DelayBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        let Delay {
            read,
            change,
            flush,
        } = self.delay;
        format!(
            "{}; reads take {read:?}, changes {change:?}, flushes {flush:?} at least",
            self.inner.describe()
        )
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let inner = self.inner.open_handle(ring)?;
        let depth = inner.limits().queue_depth_max as usize;
        let owner = ring.register().map_err(|error| StoreError::Resources {
            store: self.name.clone(),
            why: error.to_string(),
        })?;
        Ok(Box::new(DelayStore {
            inner,
            owner,
            delay: self.delay,
            waits: Vec::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
            alarm: None,
            closed: false,
        }))
    }
}

struct DelayStore {
    inner: Box<dyn Store>,
    owner: Owner,
    delay: Delay,
    /// Every operation in flight, its due time, and its completion once the inner store has answered.
    waits: Vec<WaitFor>,
    /// Scratch for the inner poll.
    arrived: Vec<Completion>,
    /// The timer for the earliest held completion.
    alarm: Option<(Instant, TimerId)>,
    closed: bool,
}

struct WaitFor {
    token: Token,
    due: Instant,
    held: Option<Completion>,
}

impl DelayStore {
    /// Makes sure that the ring wakes us when the next held completion is due.
    fn set_alarm(&mut self) {
        let next = self
            .waits
            .iter()
            .filter(|wait| wait.held.is_some())
            .map(|wait| wait.due)
            .min();
        if self.alarm.map(|(at, _)| at) == next {
            return;
        }
        if let Some((_, timer)) = self.alarm.take() {
            self.owner.ring().cancel_timer(timer);
        }
        let Some(at) = next else { return };
        match self.owner.timer(at, 0) {
            Ok(timer) => self.alarm = Some((at, timer)),
            Err(error) => {
                tracing::warn!(%error, "a delay is cut short");
                self.waits
                    .iter_mut()
                    .for_each(|wait| wait.due = Instant::now());
            }
        }
    }
}

impl Store for DelayStore {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
    ) -> Result<(), Rejected> {
        if self.closed {
            // The inner store says so.
            return self.inner.submit(op, buf, token, terms);
        }
        if self.waits.len() == self.inner.limits().queue_depth_max as usize {
            let why = check(&op, buf.as_ref(), self.inner.limits(), "delay")
                .err()
                .unwrap_or(StoreError::Busy);
            return Err(Rejected { op, buf, why });
        }
        let due = Instant::now() + self.delay.of(&op);
        self.inner.submit(op, buf, token, terms)?;
        self.waits.push(WaitFor {
            token,
            due,
            held: None,
        });
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        while self.owner.next_event().is_some() {
            self.alarm = None;
        }
        self.inner.poll(&mut self.arrived);
        for completion in self.arrived.drain(..) {
            if let Some(wait) = self
                .waits
                .iter_mut()
                .find(|wait| wait.token == completion.token && wait.held.is_none())
            {
                wait.held = Some(completion);
            }
        }
        let now = Instant::now();
        self.waits.retain_mut(|wait| {
            if wait.due <= now
                && let Some(done) = wait.held.take()
            {
                completions.push(done);
                return false;
            }
            true
        });
        self.set_alarm();
    }

    fn close(&mut self) {
        self.closed = true;
        self.inner.close();
        let now = Instant::now();
        for wait in &mut self.waits {
            wait.due = wait.due.min(now);
        }
        self.set_alarm();
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed() && self.waits.is_empty()
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
        let now = Instant::now();
        self.waits
            .iter_mut()
            .filter(|wait| wait.token == token)
            .for_each(|wait| wait.due = wait.due.min(now));
        // What was held already must not wait for the old time.
        self.set_alarm();
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }

    fn wire(&self) -> WireBytes {
        self.inner.wire()
    }
}
