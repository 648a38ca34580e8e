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
}

impl ControllerCounters {
    /// Adds what a queue has counted since it last reported.
    pub fn add(&mut self, more: &ControllerCounters) {
        self.bytes_read += more.bytes_read;
        self.bytes_written += more.bytes_written;
        self.read_commands += more.read_commands;
        self.write_commands += more.write_commands;
        self.media_errors += more.media_errors;
        self.busy_nanos += more.busy_nanos;
    }
}

/// What a subsystem remembers of its life before this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Starts, this one included.
    pub power_cycles: u64,
    /// Ends that nobody announced.
    pub unsafe_shutdowns: u64,
    /// How long it was served before.
    pub powered_before: Duration,
}

impl Default for Lifetime {
    /// Its first start.
    fn default() -> Lifetime {
        Lifetime {
            power_cycles: 1,
            unsafe_shutdowns: 0,
            powered_before: Duration::ZERO,
        }
    }
}

/// What all controllers of a subsystem count together: a host that comes back finds what it counted before.
#[derive(Debug, Default)]
pub(super) struct Health {
    counters: Mutex<ControllerCounters>,
    lifetime: Mutex<Lifetime>,
}

impl Health {
    pub fn counters(&self) -> MutexGuard<'_, ControllerCounters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lifetime(&self) -> Lifetime {
        *self.lifetime.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_lifetime(&self, lifetime: Lifetime) {
        *self.lifetime.lock().unwrap_or_else(PoisonError::into_inner) = lifetime;
    }

    /// Power On Hours: the clock begins with the process.
    pub fn power_on_hours(&self, now: Time) -> u64 {
        let powered = self.lifetime().powered_before + now.since(Time::ZERO);
        powered.as_secs() / 3600
    }
}
