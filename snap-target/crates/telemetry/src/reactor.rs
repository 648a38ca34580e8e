//! What one reactor writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use crate::cell::Counter;
use crate::host_row::{HostKey, HostRow};
use crate::limits::{HOST_ROWS_KEPT, HOST_ROWS_MAX, NAMESPACE_ROWS_MAX, OTHERS};
use crate::namespace_row::{NamespaceCounters, NamespaceRow};
use crate::recorder::{Event, FlightRecorder};
use crate::rows::{Room, Table};
use crate::target::TelemetryConfig;

/// What all reactors of a target share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) started: Instant,
    pub(crate) started_utc: SystemTime,
    pub(crate) hosts: Table<HostRow>,
    pub(crate) namespaces: Table<NamespaceRow>,
    slow_ns: AtomicU64,
}

impl Shared {
    pub(crate) fn new(slow: Duration) -> Self {
        let no_host = HostKey {
            subsystem: OTHERS.to_owned(),
            host: OTHERS.to_owned(),
            nsid: 0,
            uuid: [0; 16],
        };
        let of_hosts = Room {
            max: HOST_ROWS_MAX,
            kept: HOST_ROWS_KEPT,
        };
        let of_namespaces = Room {
            max: NAMESPACE_ROWS_MAX,
            kept: NAMESPACE_ROWS_MAX,
        };
        let shared = Self {
            started: Instant::now(),
            started_utc: SystemTime::now(),
            hosts: Table::new(of_hosts, no_host),
            namespaces: Table::new(of_namespaces, ([0; 16], OTHERS.to_owned())),
            slow_ns: AtomicU64::new(0),
        };
        shared.set_slow(slow);
        shared
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
    shared: Arc<Shared>,
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
    /// Bytes sent to hosts by its I/O queues from their ICResp on, headers and digests included.
    pub wire_sent_bytes: Counter,
    /// Bytes received from hosts by its I/O queues from their ICReq on, headers and digests included.
    pub wire_received_bytes: Counter,
    /// Bytes that its I/O queues copied between the wire's memory and commands' buffers: over RDMA, where these are not registered with the device, or the data came in a capsule.
    pub wire_copied_bytes: Counter,
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
    pub(crate) fn new(number: u16, shared: Arc<Shared>, events: usize) -> Self {
        Self {
            number,
            shared,
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
        let shared = Arc::new(Shared::new(config.slow_command));
        Arc::new(Self::new(0, shared, config.events))
    }

    /// Which reactor.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The moment from which the times of events count.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.shared.started
    }

    /// Nanoseconds from which on a command is slow.
    #[must_use]
    #[inline]
    pub fn slow_ns(&self) -> u64 {
        self.shared.slow_ns()
    }

    /// Keeps an event that happened `at_ns` nanoseconds after [`ReactorTelemetry::started`].
    pub fn record(&self, at_ns: u64, event: &Event) {
        self.recorder.record(at_ns, event);
    }

    /// Keeps an event that happens now.
    pub fn record_now(&self, event: &Event) {
        self.record(self.shared.now_ns(), event);
    }

    /// The row of a host and a namespace of a subsystem; made where there is none. `uuid` is the namespace's, zeros with NSID 0. It keeps its place for as
    /// long as it is held.
    #[must_use]
    pub fn host(&self, subsystem: &str, host: &str, nsid: u32, uuid: [u8; 16]) -> Arc<HostRow> {
        let wanted = (subsystem, host, nsid, uuid);
        let is = |key: &HostKey| (&key.subsystem[..], &key.host[..], key.nsid, key.uuid) == wanted;
        let key = || HostKey {
            subsystem: subsystem.to_owned(),
            host: host.to_owned(),
            nsid,
            uuid,
        };
        let now_ns = self.shared.now_ns();
        let hosts = &self.shared.hosts;
        hosts.row(self.number, &wanted, is, key, now_ns)
    }

    /// The row of a namespace; made where there is none. It keeps its place for as long as it is held.
    #[must_use]
    pub fn namespace(&self, uuid: [u8; 16], name: &str) -> Arc<NamespaceRow> {
        let wanted = (uuid, name);
        let is = |key: &([u8; 16], String)| (key.0, &key.1[..]) == wanted;
        let key = || (uuid, name.to_owned());
        let now_ns = self.shared.now_ns();
        let namespaces = &self.shared.namespaces;
        namespaces.row(self.number, &wanted, is, key, now_ns)
    }

    /// The counters of all namespaces together.
    #[must_use]
    pub fn namespace_counters(&self) -> NamespaceCounters {
        let mut sum = NamespaceCounters::default();
        for place in self.shared.namespaces.places() {
            place.look(|reactor, row| {
                if reactor == self.number {
                    sum.merge(&row.counters());
                }
            });
        }
        sum
    }

    pub(crate) fn recorder(&self) -> &FlightRecorder {
        &self.recorder
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::ReactorTelemetry;
    use crate::limits::{HOST_ROWS_KEPT, OTHERS};
    use crate::{Telemetry, TelemetryConfig};

    #[test]
    fn a_row_goes_by_all_of_its_names() {
        let reactor = ReactorTelemetry::alone();
        let row = || reactor.host("nqn.s", "nqn.h", 1, [7; 16]);
        let first = row();
        assert!(Arc::ptr_eq(&first, &row()));
        for other in [
            reactor.host("nqn.t", "nqn.h", 1, [7; 16]),
            reactor.host("nqn.s", "nqn.i", 1, [7; 16]),
            reactor.host("nqn.s", "nqn.h", 2, [7; 16]),
            reactor.host("nqn.s", "nqn.h", 1, [8; 16]),
        ] {
            assert!(!Arc::ptr_eq(&first, &other), "{other:?}");
        }
    }

    /// As many names as a host may give itself: those that are here are counted, each in one row.
    #[test]
    fn hosts_that_are_gone_leave_their_rows_to_those_that_come() {
        let telemetry = Telemetry::new(&TelemetryConfig {
            reactors: 2,
            ..TelemetryConfig::default()
        });
        let row = |reactor, host: &str| {
            let reactor = telemetry.reactor(reactor).unwrap();
            reactor.host("nqn.s", host, 1, [7; 16])
        };
        let stays = row(0, "nqn.stays");
        for number in 0..HOST_ROWS_KEPT + 200 {
            // The second reactor has had fewer names.
            let reactor = u16::from(number % 3 == 0);
            let host = format!("nqn.gone-{number}");
            assert_eq!(row(reactor, &host).host, host);
        }
        let live = [row(0, "nqn.live"), row(1, "nqn.live")];
        for row in &live {
            row.begun();
        }
        stays.begun();
        let snapshot = telemetry.snapshot();
        assert_eq!(snapshot.hosts.len(), HOST_ROWS_KEPT);
        let here = snapshot.hosts.iter().filter(|row| row.queues > 0);
        let here: Vec<_> = here
            .map(|row| (&row.host[..], row.queues, row.in_flight))
            .collect();
        assert_eq!(here, [("nqn.live", 2, 2), ("nqn.stays", 1, 1)]);
        assert!(snapshot.hosts.iter().all(|row| row.host != OTHERS));
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
