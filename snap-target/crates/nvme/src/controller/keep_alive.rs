//! The keep alive timer (Base, "Keep Alive").

use crate::Time;
use std::time::Duration;

/// KAS: the timer's granularity.
pub(super) const GRANULARITY: Duration = Duration::from_millis(1000);
/// The same as Identify Controller tells it.
pub(super) const KAS_100MS: u16 = 10;
const _: () = assert!(KAS_100MS as u128 * 100 == GRANULARITY.as_millis());

/// A timer that a host keeps from expiring.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeepAlive {
    /// KATO, rounded up to the granularity; zero = no timer of the host's.
    timeout: Duration,
    /// What holds where the host set none.
    idle: Option<Duration>,
    last: Time,
}

impl KeepAlive {
    pub fn new(kato_ms: u32, idle: Option<Duration>, now: Time) -> KeepAlive {
        let mut timer = KeepAlive {
            timeout: Duration::ZERO,
            idle,
            last: now,
        };
        timer.set(kato_ms, now);
        timer
    }

    pub fn set(&mut self, kato_ms: u32, now: Time) {
        let granularity_ms = u32::from(KAS_100MS) * 100;
        let rounded_ms = kato_ms
            .div_ceil(granularity_ms)
            .saturating_mul(granularity_ms);
        self.timeout = Duration::from_millis(u64::from(rounded_ms));
        self.last = now;
    }

    /// KATO in force, in milliseconds.
    pub fn kato_ms(&self) -> u32 {
        u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX)
    }

    pub fn restart(&mut self, now: Time) {
        self.last = self.last.max(now);
    }

    pub fn deadline(&self) -> Option<Time> {
        if self.timeout.is_zero() {
            self.idle.map(|idle| self.last + idle)
        } else {
            Some(self.last + self.timeout)
        }
    }
}
