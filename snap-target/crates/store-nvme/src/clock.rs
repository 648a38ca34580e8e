//! Time for the machines, which have none of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nvme::Time;

/// Monotonic time as the machines want it.
#[derive(Clone, Debug)]
pub struct Clock {
    start: Instant,
    /// Nanoseconds, where a test steps the time.
    stepped_ns: Option<Arc<AtomicU64>>,
}

impl Clock {
    /// The system's, counted from `start`.
    #[must_use]
    pub fn since(start: Instant) -> Self {
        Self {
            start,
            stepped_ns: None,
        }
    }

    /// One that stands still until it is stepped.
    #[must_use]
    pub fn stepped() -> Self {
        Self {
            start: Instant::now(),
            stepped_ns: Some(Arc::default()),
        }
    }

    /// Moves a clock of [`Clock::stepped`] on; of any other nothing happens.
    pub fn step(&self, by: Duration) {
        if let Some(ns) = &self.stepped_ns {
            let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
            ns.fetch_add(by, Ordering::SeqCst);
        }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Time {
        if let Some(ns) = &self.stepped_ns {
            return Time::from_nanos(ns.load(Ordering::SeqCst));
        }
        let since = self.start.elapsed();
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// A moment of the ring's timers; one before the start is the start.
    #[must_use]
    pub fn time(&self, moment: Instant) -> Time {
        let since = moment.saturating_duration_since(self.start);
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// A moment as the ring's timers count it.
    #[must_use]
    pub fn instant(&self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.as_nanos())
    }
}
