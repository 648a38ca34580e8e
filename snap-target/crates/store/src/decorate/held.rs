//! A store that holds completions back until they are due; the decorators say when that is.

use std::time::Instant;

use reactor::buf::IoBuf;
use reactor::{Owner, Ring, TimerId};

use crate::contract::{Completion, Limits, Op, Rejected, Store, Terms, Token, WireBytes, check};
use crate::error::StoreError;
use crate::shared::SharedStore;

/// When an operation may complete at the earliest.
pub(super) trait Pace {
    /// Of an operation of `bytes` that the inner store has just taken.
    fn due(&self, op: &Op, bytes: u64, now: Instant) -> Instant;
}

/// What a store with these limits promises whose completions are held back.
pub(super) fn limits_held(of: Limits) -> Limits {
    Limits {
        ends_in_submit: false,
        ..of
    }
}

/// A handle of `inner` whose completions are held back. `name` and `what` are the decorator's, for errors.
pub(super) fn open_held<P: Pace + 'static>(
    name: &str,
    what: &'static str,
    inner: &SharedStore,
    pace: P,
    ring: &Ring,
) -> Result<Box<dyn Store>, StoreError> {
    let inner = inner.open_handle(ring)?;
    let depth = inner.limits().queue_depth_max as usize;
    let owner = ring.register().map_err(|error| StoreError::Resources {
        store: name.to_owned(),
        why: error.to_string(),
    })?;
    Ok(Box::new(HeldStore {
        limits: limits_held(inner.limits().clone()),
        inner,
        owner,
        what,
        pace,
        waits: Vec::with_capacity(depth),
        arrived: Vec::with_capacity(depth),
        alarm: None,
        closed: false,
    }))
}

struct HeldStore<P> {
    limits: Limits,
    inner: Box<dyn Store>,
    owner: Owner,
    what: &'static str,
    pace: P,
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

impl<P: Pace> HeldStore<P> {
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

impl<P: Pace> Store for HeldStore<P> {
    fn limits(&self) -> &Limits {
        &self.limits
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
            let why = check(&op, buf.as_ref(), self.inner.limits(), self.what)
                .err()
                .unwrap_or(StoreError::Busy);
            return Err(Rejected { op, buf, why });
        }
        let bytes = buf.as_ref().map_or(0, IoBuf::len) as u64;
        self.inner.submit(op, buf, token, terms)?;
        let due = self.pace.due(&op, bytes, Instant::now());
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

    fn hurry(&mut self, token: Token) {
        self.inner.hurry(token);
    }

    fn doubt(&mut self, offset: u64, len: u64) -> u32 {
        self.inner.doubt(offset, len)
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }

    fn wire(&self) -> WireBytes {
        self.inner.wire()
    }
}
