//! Time for the machines, which have none of their own.

use std::time::{Duration, Instant};

use nvme::Time;

/// Monotonic time as the machines want it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// One that counts from `start`, as telemetry does.
    #[must_use]
    pub fn since(start: Instant) -> Self {
        Self { start }
    }

    /// Now.
    #[must_use]
    pub fn now(self) -> Time {
        self.at(Instant::now())
    }

    /// A moment as the machines want it.
    #[must_use]
    pub fn at(self, moment: Instant) -> Time {
        let since = moment.saturating_duration_since(self.start);
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The same moment as the ring's timers count it.
    #[must_use]
    pub fn instant(self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.as_nanos())
    }
}
