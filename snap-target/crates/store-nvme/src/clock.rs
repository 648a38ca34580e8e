//! Time for the machines, which have none of their own.

use std::time::{Duration, Instant};

use nvme::Time;

/// Monotonic time as the machines want it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// One that counts from `start`.
    #[must_use]
    pub fn since(start: Instant) -> Self {
        Self { start }
    }

    /// Now.
    #[must_use]
    pub fn now(self) -> Time {
        let since = self.start.elapsed();
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// A moment as the ring's timers count it.
    #[must_use]
    pub fn instant(self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.as_nanos())
    }
}
