//! What one reactor writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::cell::Counter;
use crate::host_row::HostRow;
use crate::limits::{HOST_ROWS_MAX, NAMESPACE_ROWS_MAX, OTHERS};
use crate::namespace_row::{NamespaceCounters, NamespaceRow, found_or_made};
use crate::recorder::{Event, FlightRecorder};
use crate::target::TelemetryConfig;

/// What all reactors of a target share.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) started: Instant,
    pub(crate) started_utc: SystemTime,
    slow_ns: AtomicU64,
}

impl Epoch {
    pub(crate) fn new(slow: Duration) -> Self {
        let epoch = Self {
            started: Instant::now(),
            started_utc: SystemTime::now(),
            slow_ns: AtomicU64::new(0),
        };
        epoch.set_slow(slow);
        epoch
    }

    pub(crate) fn set_slow(&self, slow: Duration) {
        self.slow_ns.store(nanos(slow), Ordering::Relaxed);
    }

    pub(crate) fn slow_ns(&self) -> u64 {
        self.slow_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        nanos(self.started.elapsed())
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// One reactor's numbers and events. It is the only writer.
#[derive(Debug)]
pub struct ReactorTelemetry {
    number: u16,
    epoch: Arc<Epoch>,
    hosts: Mutex<Vec<Arc<HostRow>>>,
    namespaces: Mutex<Vec<Arc<NamespaceRow>>>,
    /// Of the reactor itself.
    pub counters: ReactorCounters,
    recorder: FlightRecorder,
}

/// Numbers of the reactor itself, which it sets once a turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ReactorCounters {
    /// Turns of its loop.
    pub turns: Counter,
    /// Nanoseconds that it was not asleep: working or polling.
    pub busy_ns: Counter,
    /// Nanoseconds that it slept in the kernel.
    pub idle_ns: Counter,
    /// Times it went to sleep.
    pub sleeps: Counter,
    /// System calls `io_uring_enter`.
    pub enters: Counter,
    /// Entries handed to the kernel.
    pub submitted: Counter,
    /// Completions taken from the kernel.
    pub completions: Counter,
    /// I/O queues that it serves now.
    pub connections: Counter,
    /// Bytes sent to hosts by its I/O queues, headers and digests included.
    pub wire_sent_bytes: Counter,
    /// Bytes received from hosts by its I/O queues, headers and digests included.
    pub wire_received_bytes: Counter,
    /// Look-ups in its cache that found their entry.
    pub cache_hits: Counter,
    /// Look-ups in its cache that did not.
    pub cache_misses: Counter,
    /// Entries that left its cache for others.
    pub cache_evictions: Counter,
    /// Bytes in its cache now.
    pub cache_used_bytes: Counter,
    /// Memory of answers to reads.
    pub answers: PoolCounters,
    /// Memory of what hosts send.
    pub incoming: PoolCounters,
    /// Memory of what stores deliver.
    pub staging: PoolCounters,
    /// The io_uring features in use.
    pub features: OnceLock<String>,
}

/// How full a pool is.
#[derive(Debug, Default)]
pub struct PoolCounters {
    /// Bytes in use now.
    pub used_bytes: Counter,
    /// Bytes that it has.
    pub total_bytes: Counter,
    /// Requests for memory that it could not serve.
    pub refusals: Counter,
}

impl ReactorTelemetry {
    pub(crate) fn new(number: u16, epoch: Arc<Epoch>, events: usize) -> Self {
        Self {
            number,
            epoch,
            hosts: Mutex::default(),
            namespaces: Mutex::default(),
            counters: ReactorCounters::default(),
            recorder: FlightRecorder::new(events),
        }
    }

    /// One that belongs to no target: for what runs without one.
    #[must_use]
    pub fn alone() -> Arc<Self> {
        let config = TelemetryConfig {
            events: 1,
            ..TelemetryConfig::default()
        };
        let epoch = Arc::new(Epoch::new(config.slow_command));
        Arc::new(Self::new(0, epoch, config.events))
    }

    /// Which reactor.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The moment from which the times of events count.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.epoch.started
    }

    /// Nanoseconds from which on a command is slow.
    #[must_use]
    #[inline]
    pub fn slow_ns(&self) -> u64 {
        self.epoch.slow_ns()
    }

    /// Keeps an event that happened `at_ns` nanoseconds after [`ReactorTelemetry::started`].
    pub fn record(&self, at_ns: u64, event: &Event) {
        self.recorder.record(at_ns, event);
    }

    /// Keeps an event that happens now.
    pub fn record_now(&self, event: &Event) {
        self.record(self.epoch.now_ns(), event);
    }

    /// The row of a host and a namespace of a subsystem; made where there is none. `uuid` is the namespace's, zeros with NSID 0.
    #[must_use]
    pub fn host(&self, subsystem: &str, host: &str, nsid: u32, uuid: [u8; 16]) -> Arc<HostRow> {
        let wanted = |others| match others {
            true => (OTHERS, OTHERS, 0, [0; 16]),
            false => (subsystem, host, nsid, uuid),
        };
        found_or_made(
            &mut self.hosts.lock().unwrap_or_else(PoisonError::into_inner),
            HOST_ROWS_MAX,
            |row, others| {
                let key = (&row.subsystem[..], &row.host[..], row.nsid, row.uuid);
                key == wanted(others)
            },
            |others| {
                let (subsystem, host, nsid, uuid) = wanted(others);
                HostRow::new(subsystem, host, nsid, uuid, self.epoch.now_ns())
            },
        )
    }

    /// The row of a namespace; made where there is none.
    #[must_use]
    pub fn namespace(&self, uuid: [u8; 16], name: &str) -> Arc<NamespaceRow> {
        let wanted = |others| match others {
            true => ([0; 16], OTHERS),
            false => (uuid, name),
        };
        let mut rows = self
            .namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        found_or_made(
            &mut rows,
            NAMESPACE_ROWS_MAX,
            |row, others| (row.uuid, &row.name[..]) == wanted(others),
            |others| {
                let (uuid, name) = wanted(others);
                NamespaceRow::new(uuid, name, self.epoch.now_ns())
            },
        )
    }

    /// The counters of all namespaces together.
    #[must_use]
    pub fn namespace_counters(&self) -> NamespaceCounters {
        let mut sum = NamespaceCounters::default();
        for row in self.namespaces() {
            sum.merge(&row.counters());
        }
        sum
    }

    pub(crate) fn recorder(&self) -> &FlightRecorder {
        &self.recorder
    }

    pub(crate) fn hosts(&self) -> Vec<Arc<HostRow>> {
        self.hosts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn namespaces(&self) -> Vec<Arc<NamespaceRow>> {
        self.namespaces
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::ReactorTelemetry;
    use crate::limits::{HOST_ROWS_MAX, OTHERS};

    #[test]
    fn a_row_is_found_again_and_what_finds_no_place_shares_one() {
        let reactor = ReactorTelemetry::alone();
        let first = reactor.host("nqn.s", "nqn.h", 1, [7; 16]);
        let other_disk = reactor.host("nqn.s", "nqn.h", 1, [8; 16]);
        assert!(
            !Arc::ptr_eq(&first, &other_disk),
            "another disk under its number"
        );
        assert!(Arc::ptr_eq(
            &first,
            &reactor.host("nqn.s", "nqn.h", 1, [7; 16])
        ));
        for nsid in 3..=u32::try_from(HOST_ROWS_MAX).unwrap() {
            assert_eq!(reactor.host("nqn.s", "nqn.h", nsid, [7; 16]).nsid, nsid);
        }
        let others = reactor.host("nqn.s", "nqn.other", 1, [7; 16]);
        assert_eq!((&others.host[..], others.nsid), (OTHERS, 0));
        assert!(Arc::ptr_eq(
            &others,
            &reactor.host("nqn.t", "nqn.another", 7, [7; 16])
        ));
        assert!(Arc::ptr_eq(
            &first,
            &reactor.host("nqn.s", "nqn.h", 1, [7; 16])
        ));
        assert_eq!(reactor.hosts().len(), HOST_ROWS_MAX + 1);
    }

    #[test]
    fn a_namespace_goes_by_uuid_and_name() {
        let reactor = ReactorTelemetry::alone();
        let one = reactor.namespace([1; 16], "file:/a");
        assert!(Arc::ptr_eq(&one, &reactor.namespace([1; 16], "file:/a")));
        assert!(!Arc::ptr_eq(&one, &reactor.namespace([2; 16], "file:/a")));
        let chain = one.decoder("u16+lz4");
        assert!(Arc::ptr_eq(&chain, &one.decoder("u16+lz4")));
        assert!(!Arc::ptr_eq(&chain, &one.decoder("u16")));
    }
}
