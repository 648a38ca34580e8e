//! What the SMART log counts; the frontend feeds it.

use crate::Time;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Totals. Queues on other threads report differences with [`ControllerCounters::add`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerCounters {
    /// Bytes that reads returned.
    pub bytes_read: u128,
    /// Bytes that writes brought.
    pub bytes_written: u128,
    /// Read commands completed.
    pub read_commands: u128,
    /// Write commands completed.
    pub write_commands: u128,
    /// Commands that failed because stored bytes did not match their checksum or could not be read.
    pub media_errors: u128,
    /// Nanoseconds with a command outstanding.
    pub busy_nanos: u128,
    /// Entries that were made in the Error Information logs.
    pub error_log_entries: u64,
}

impl ControllerCounters {
    /// Adds what a queue has counted since it last reported.
    pub fn add(&mut self, more: &ControllerCounters) {
        self.bytes_read = self.bytes_read.saturating_add(more.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(more.bytes_written);
        self.read_commands = self.read_commands.saturating_add(more.read_commands);
        self.write_commands = self.write_commands.saturating_add(more.write_commands);
        self.media_errors = self.media_errors.saturating_add(more.media_errors);
        self.busy_nanos = self.busy_nanos.saturating_add(more.busy_nanos);
        self.error_log_entries = self
            .error_log_entries
            .saturating_add(more.error_log_entries);
    }
}

/// What a subsystem's SMART log tells of its whole life, this process and those before it (Base, "SMART / Health Information": over the life of the
/// controller, retained across power cycles; Error Count of the Error Information log likewise).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Starts, this one included.
    pub power_cycles: u64,
    /// Ends that nobody announced.
    pub unsafe_shutdowns: u64,
    /// How long it was served.
    pub powered: Duration,
    /// What its controllers have counted.
    pub counters: ControllerCounters,
}

impl Default for Lifetime {
    /// The beginning of its first start.
    fn default() -> Lifetime {
        Lifetime {
            power_cycles: 1,
            unsafe_shutdowns: 0,
            powered: Duration::ZERO,
            counters: ControllerCounters::default(),
        }
    }
}

impl Lifetime {
    /// Power On Hours.
    pub fn power_on_hours(&self) -> u64 {
        self.powered.as_secs() / 3600
    }

    /// Whether a host that reads the one and then the other finds something different.
    pub fn shows_the_same(&self, other: &Lifetime) -> bool {
        self.power_on_hours() == other.power_on_hours()
            && *self
                == Lifetime {
                    powered: self.powered,
                    ..*other
                }
    }
}

/// What all controllers of a subsystem count together: a host that comes back finds what it counted before.
#[derive(Debug, Default)]
pub(super) struct Health {
    counters: Mutex<ControllerCounters>,
    life: Mutex<Life>,
}

/// A life as it was when this process came to serve the subsystem, and when that was.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    before: Lifetime,
    since: Time,
}

impl Health {
    pub fn counters(&self) -> MutexGuard<'_, ControllerCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lifetime(&self, now: Time) -> Lifetime {
        let Life { before, since } = *self.life.lock().unwrap_or_else(PoisonError::into_inner);
        Lifetime {
            powered: before.powered.saturating_add(now.since(since)),
            counters: *self.counters(),
            ..before
        }
    }

    /// Its life goes on from here.
    pub fn set_lifetime(&self, before: Lifetime, since: Time) {
        *self.counters() = before.counters;
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = Life { before, since };
    }
}
