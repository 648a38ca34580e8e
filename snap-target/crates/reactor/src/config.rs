//! The named limits of a ring, in one place and checked against each other.

use std::time::Duration;

use crate::error::ReactorError;
use crate::features::Features;

/// Segments one system operation takes; longer lists are continued. A 128 KiB guest request of 4 KiB pages fits with room.
pub(crate) const OP_SEGMENTS_MAX: usize = 64;
/// Completions copied out of the completion ring at a time.
pub(crate) const REAP_BATCH: usize = 64;
/// Kernel's limit on buffers of a receive ring.
pub(crate) const RECV_BUFFERS_MAX: u16 = 1 << 15;
/// Where locked memory ends, a ring is made with fewer entries, down to these.
pub(crate) const SUBMISSIONS_MIN: u32 = 16;
pub(crate) const COMPLETIONS_MIN: u32 = 256;

const _: () = assert!(
    OP_SEGMENTS_MAX >= crate::buf::INLINE_SEGMENTS,
    "a pool buffer goes in one operation"
);
const _: () = assert!(OP_SEGMENTS_MAX <= 1024, "IOV_MAX");

/// Limits and choices of one ring. The defaults serve some hundreds of connections with about 6 MiB.
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// Entries of the submission ring: operations handed over in one system call. A power of two.
    pub submissions: u32,
    /// Operations in flight.
    pub ops_max: u32,
    /// Of these, so many are kept for owners that do not yield ([`crate::Ring::register_yielding`]).
    pub ops_reserved: u32,
    /// Owners registered at a time.
    pub owners_max: u32,
    /// Events waiting in inboxes, over all owners; at least `ops_max`.
    pub events_max: u32,
    /// Timers armed at a time.
    pub timers_max: u32,
    /// Receive buffers shared by all sockets. A power of two, at most 32768.
    pub recv_buffers: u16,
    /// Bytes of a receive buffer.
    pub recv_buffer_bytes: u32,
    /// How long [`crate::Wait::Block`] polls after the last work before it sleeps. 50 to 200 us pays under load.
    pub spin: Duration,
    /// Features that may be used where the kernel has them.
    pub features: Features,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self {
            submissions: 256,
            ops_max: 2048,
            ops_reserved: 0,
            owners_max: 1024,
            events_max: 4096,
            timers_max: 4096,
            recv_buffers: 256,
            recv_buffer_bytes: 16 << 10,
            spin: Duration::from_micros(100),
            features: Features::ALL,
        }
    }
}

impl RingConfig {
    /// The same with some features forbidden.
    #[must_use]
    pub fn mask(mut self, forbidden: Features) -> Self {
        self.features = self.features - forbidden;
        self
    }

    pub(crate) fn check(&self) -> Result<(), ReactorError> {
        let wrong = |what| Err(ReactorError::Config { what });
        if !self.submissions.is_power_of_two() || self.submissions > 32768 {
            return wrong("submissions must be a power of two, at most 32768");
        }
        if !self.recv_buffers.is_power_of_two() || self.recv_buffers > RECV_BUFFERS_MAX {
            return wrong("recv_buffers must be a power of two, at most 32768");
        }
        if self.recv_buffer_bytes == 0 || self.recv_buffer_bytes > 1 << 24 {
            return wrong("recv_buffer_bytes must be 1 to 16 MiB");
        }
        if self.ops_max == 0 || self.ops_max > 32768 {
            return wrong("ops_max must be 1 to 32768");
        }
        if self.ops_reserved >= self.ops_max {
            return wrong("ops_reserved must be below ops_max");
        }
        if self.events_max < self.ops_max || self.events_max > 1 << 20 {
            return wrong("events_max must be at least ops_max and at most 1048576");
        }
        if self.owners_max == 0 || self.owners_max > 1 << 20 {
            return wrong("owners_max must be 1 to 1048576");
        }
        if self.timers_max > 1 << 20 {
            return wrong("timers_max must be at most 1048576");
        }
        Ok(())
    }
}
