//! A store that answers later.

use std::time::{Duration, Instant};

use reactor::Ring;

use super::held::{Pace, limits_held, open_held};
use crate::contract::{Limits, Op, Store};
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

impl Pace for Delay {
    fn due(&self, op: &Op, _bytes: u64, now: Instant) -> Instant {
        now + self.of(op)
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

    fn instance(&self) -> u64 {
        self.inner.instance()
    }

    fn limits(&self) -> Limits {
        limits_held(self.inner.limits())
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        open_held(&self.name, "delay", &self.inner, self.delay, ring)
    }
}
