//! Time for the machines, which have none of their own.

use std::time::{Duration, Instant};

use nvme::Time;

/// Monotonic time as the machines want it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// One that counts from `start`, as telemetry does.
    pub(crate) fn since(start: Instant) -> Self {
        Self { start }
    }

    /// Now.
    pub(crate) fn now(self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The same moment as the ring's timers count it.
    pub(crate) fn instant(self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.as_nanos())
    }
}
