//! Every number at about one moment, as plain structures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde::Serialize;

use crate::histogram::HistogramSnapshot;
use crate::host_row::HostRow;
use crate::kind::{CommandKind, StatusClass};
use crate::namespace_row::{NamespaceCounters, NamespaceRow};
use crate::reactor::{PoolCounters, ReactorTelemetry, Shared, nanos};

/// See the module. The rows are those of all reactors together; `reactors` has what is each one's own.
#[derive(Clone, Debug, Serialize)]
pub struct Snapshot {
    /// Nanoseconds since the target started.
    pub uptime_ns: u64,
    /// When it started, in nanoseconds since 1970-01-01 UTC.
    pub started_unix_ns: u64,
    /// By subsystem, host and namespace.
    pub hosts: Vec<HostSnapshot>,
    /// By UUID and name.
    pub namespaces: Vec<NamespaceSnapshot>,
    /// By their number.
    pub reactors: Vec<ReactorSnapshot>,
}

/// What one host did with one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostSnapshot {
    /// The subsystem's NQN.
    pub subsystem: String,
    /// The host's NQN.
    pub host: String,
    /// Namespace identifier; 0: commands that named none, or none that is active.
    pub nsid: u32,
    /// The namespace's UUID, as RFC 9562 writes it; empty with NSID 0.
    pub uuid: String,
    /// When the row began, in nanoseconds after the target's start.
    pub since_ns: u64,
    /// When a command was answered last, on the same clock; 0: none yet.
    pub last_ns: u64,
    /// I/O queues that count in it now; 0: the host is gone, or has not come back to this namespace.
    pub queues: u64,
    /// Commands answered, failed ones included, by [`CommandKind::name`].
    pub commands: BTreeMap<&'static str, u64>,
    /// Commands that failed, by [`StatusClass::name`].
    pub errors: BTreeMap<&'static str, u64>,
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Bytes that writes brought.
    pub bytes_written: u64,
    /// Bytes sent to the host for its commands, headers and digests included.
    pub wire_sent_bytes: u64,
    /// Bytes received from it for them.
    pub wire_received_bytes: u64,
    /// Commands not answered yet.
    pub in_flight: u64,
    /// Commands whose connection ended before their answer.
    pub abandoned: u64,
    /// Times of reads that succeeded.
    pub read_latency: HistogramSnapshot,
    /// Times of writes that succeeded.
    pub write_latency: HistogramSnapshot,
}

/// What went through one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NamespaceSnapshot {
    /// UUID, as RFC 9562 writes it.
    pub uuid: String,
    /// What it is called: its store.
    pub name: String,
    /// When the row began, in nanoseconds after the target's start.
    pub since_ns: u64,
    /// Its counters.
    #[serde(flatten)]
    pub counters: NamespaceCounters,
    /// Operations that its stores have now.
    pub store_operations: u64,
    /// By stored chain.
    pub decoders: Vec<DecodeSnapshot>,
    /// By transform: those that did something.
    pub transforms: Vec<TransformSnapshot>,
}

impl NamespaceSnapshot {
    /// Copies for each delivered byte: 0 where nothing was copied, 1 where everything was once. None before the first byte.
    #[must_use]
    pub fn copies_per_byte(&self) -> Option<f64> {
        let NamespaceCounters {
            copied_bytes,
            delivered_bytes,
            ..
        } = self.counters;
        #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
        (delivered_bytes > 0).then(|| copied_bytes as f64 / delivered_bytes as f64)
    }
}

/// What one stored chain did for one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DecodeSnapshot {
    /// The chain.
    pub chain: String,
    /// Frames decoded.
    pub frames: u64,
    /// What decoding made of them.
    pub packed_bytes: u64,
    /// Nanoseconds that it took.
    pub busy_ns: u64,
}

/// What one transform undid for one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransformSnapshot {
    /// As chains name it.
    pub transform: String,
    /// Bytes that it made.
    pub bytes: u64,
    /// Nanoseconds that it took.
    pub busy_ns: u64,
}

/// What one reactor did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReactorSnapshot {
    /// Its number.
    pub reactor: u16,
    /// The io_uring features in use.
    pub features: String,
    /// Turns of its loop.
    pub turns: u64,
    /// Nanoseconds that it was not asleep: working or polling.
    pub busy_ns: u64,
    /// Nanoseconds that it slept in the kernel. A sleep that has not ended is not counted yet.
    pub idle_ns: u64,
    /// Times it went to sleep.
    pub sleeps: u64,
    /// System calls `io_uring_enter`.
    pub enters: u64,
    /// Entries handed to the kernel.
    pub submitted: u64,
    /// Completions taken from the kernel.
    pub completions: u64,
    /// I/O queues that it serves.
    pub connections: u64,
    /// Bytes sent to hosts.
    pub wire_sent_bytes: u64,
    /// Bytes received from hosts.
    pub wire_received_bytes: u64,
    /// Bytes copied between the wire's memory and commands' buffers.
    pub wire_copied_bytes: u64,
    /// Look-ups in its cache that found their entry.
    pub cache_hits: u64,
    /// Look-ups in its cache that did not.
    pub cache_misses: u64,
    /// Entries that left its cache for others.
    pub cache_evictions: u64,
    /// Bytes in its cache.
    pub cache_used_bytes: u64,
    /// Memory of answers to reads.
    pub answers: PoolSnapshot,
    /// Memory of what hosts send.
    pub incoming: PoolSnapshot,
    /// Memory of what stores deliver.
    pub staging: PoolSnapshot,
}

/// How full a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PoolSnapshot {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that it has.
    pub total_bytes: u64,
    /// Requests for memory that it could not serve.
    pub refusals: u64,
}

pub(crate) fn of(shared: &Shared, reactors: &[Arc<ReactorTelemetry>]) -> Snapshot {
    let uptime_ns = shared.now_ns();
    let mut hosts = BTreeMap::new();
    for place in shared.hosts.places() {
        let mut sum = None;
        let queues = place.look(|_, row| add_host(sum.get_or_insert_with(|| begun(row)), row));
        if let Some(mut sum) = sum {
            sum.queues = u64::try_from(queues).unwrap_or(u64::MAX);
            hosts.insert(place.key.clone(), sum);
        }
    }
    let mut namespaces = BTreeMap::new();
    for place in shared.namespaces.places() {
        place.look(|_, row| {
            let begun = || NamespaceSnapshot {
                since_ns: row.since_ns,
                ..NamespaceSnapshot::default()
            };
            add_namespace(
                namespaces.entry(place.key.clone()).or_insert_with(begun),
                row,
            );
        });
    }
    Snapshot {
        uptime_ns,
        started_unix_ns: nanos(
            shared
                .started_utc
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        ),
        hosts: hosts.into_values().collect(),
        namespaces: namespaces.into_values().collect(),
        reactors: reactors.iter().map(|reactor| of_reactor(reactor)).collect(),
    }
}

/// A row without its numbers.
fn begun(row: &HostRow) -> HostSnapshot {
    let uuid = match row.nsid {
        0 => String::new(),
        _ => uuid_text(&row.uuid),
    };
    HostSnapshot {
        subsystem: row.subsystem.clone(),
        host: row.host.clone(),
        nsid: row.nsid,
        uuid,
        since_ns: row.since_ns,
        ..HostSnapshot::default()
    }
}

fn add_host(sum: &mut HostSnapshot, row: &HostRow) {
    sum.since_ns = sum.since_ns.min(row.since_ns);
    sum.last_ns = sum.last_ns.max(row.last_ns.get());
    for (kind, commands) in CommandKind::ALL.into_iter().zip(&row.commands) {
        *sum.commands.entry(kind.name()).or_default() += commands.get();
    }
    for (class, errors) in StatusClass::ALL.into_iter().zip(&row.errors) {
        *sum.errors.entry(class.name()).or_default() += errors.get();
    }
    sum.bytes_read += row.bytes_read.get();
    sum.bytes_written += row.bytes_written.get();
    sum.wire_sent_bytes += row.wire_sent_bytes.get();
    sum.wire_received_bytes += row.wire_received_bytes.get();
    sum.in_flight += row.in_flight.get();
    sum.abandoned += row.abandoned.get();
    sum.read_latency.merge(&row.read.snapshot());
    sum.write_latency.merge(&row.write.snapshot());
}

fn add_namespace(sum: &mut NamespaceSnapshot, row: &NamespaceRow) {
    sum.uuid = uuid_text(&row.uuid);
    sum.name.clone_from(&row.name);
    sum.since_ns = sum.since_ns.min(row.since_ns);
    sum.counters.merge(&row.counters());
    sum.store_operations += row.store_operations.get();
    for decoder in row.decoders() {
        let known = sum
            .decoders
            .iter_mut()
            .find(|known| known.chain == decoder.chain);
        let more = DecodeSnapshot {
            chain: decoder.chain.clone(),
            frames: decoder.frames.get(),
            packed_bytes: decoder.packed_bytes.get(),
            busy_ns: decoder.busy_ns.get(),
        };
        match known {
            Some(known) => {
                known.frames += more.frames;
                known.packed_bytes += more.packed_bytes;
                known.busy_ns += more.busy_ns;
            }
            None => sum.decoders.push(more),
        }
    }
    sum.decoders.sort_by(|a, b| a.chain.cmp(&b.chain));
    for row in row.transforms() {
        let (bytes, busy_ns) = (row.bytes.get(), row.busy_ns.get());
        let mut known = sum.transforms.iter_mut();
        match known.find(|known| known.transform == row.transform) {
            Some(known) => {
                known.bytes += bytes;
                known.busy_ns += busy_ns;
            }
            None if bytes > 0 => sum.transforms.push(TransformSnapshot {
                transform: row.transform.clone(),
                bytes,
                busy_ns,
            }),
            None => {}
        }
    }
    sum.transforms.sort_by(|a, b| a.transform.cmp(&b.transform));
}

fn of_reactor(reactor: &ReactorTelemetry) -> ReactorSnapshot {
    let counters = &reactor.counters;
    ReactorSnapshot {
        reactor: reactor.number(),
        features: counters.features.get().cloned().unwrap_or_default(),
        turns: counters.turns.get(),
        busy_ns: counters.busy_ns.get(),
        idle_ns: counters.idle_ns.get(),
        sleeps: counters.sleeps.get(),
        enters: counters.enters.get(),
        submitted: counters.submitted.get(),
        completions: counters.completions.get(),
        connections: counters.connections.get(),
        wire_sent_bytes: counters.wire_sent_bytes.get(),
        wire_received_bytes: counters.wire_received_bytes.get(),
        wire_copied_bytes: counters.wire_copied_bytes.get(),
        cache_hits: counters.cache_hits.get(),
        cache_misses: counters.cache_misses.get(),
        cache_evictions: counters.cache_evictions.get(),
        cache_used_bytes: counters.cache_used_bytes.get(),
        answers: of_pool(&counters.answers),
        incoming: of_pool(&counters.incoming),
        staging: of_pool(&counters.staging),
    }
}

fn of_pool(pool: &PoolCounters) -> PoolSnapshot {
    PoolSnapshot {
        used_bytes: pool.used_bytes.get(),
        total_bytes: pool.total_bytes.get(),
        refusals: pool.refusals.get(),
    }
}

/// RFC 9562 text.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0xF] {
            text.extend(char::from_digit(u32::from(digit), 16));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use nvme_spec::Status;

    use crate::{CommandKind, Ended, StatusClass, Telemetry, TelemetryConfig};

    #[test]
    fn rows_of_the_reactors_are_added_up() {
        let telemetry = Telemetry::new(&TelemetryConfig {
            reactors: 2,
            ..TelemetryConfig::default()
        });
        for (number, ns) in [(0, 2_000), (1, 50_000)] {
            let reactor = telemetry.reactor(number).unwrap();
            let row = reactor.host("nqn.s", "nqn.h", 1, [0x22; 16]);
            for _ in 0..4 {
                row.begun();
            }
            let read = Ended {
                kind: CommandKind::Read,
                error: None,
                bytes: 4096,
                ns,
                at_ns: ns + 7,
            };
            row.ended(&read);
            row.ended(&Ended {
                error: StatusClass::of(Status::UNRECOVERED_READ_ERROR),
                ..read
            });
            row.abandon(1);
            let namespace = reactor.namespace([0x11; 16], "file:/a");
            namespace.delivered_bytes.add(8192);
            namespace.copied_bytes.add(4096);
            namespace.decoder("u16+lz4").decoded(65_536, 30_000);
            namespace.transform("lz4").undone(65_536, 20_000);
            namespace.transform("u16").undone(131_072, 5_000);
            let _never_used = namespace.transform("shuffle");
            reactor.counters.turns.set(u64::from(number) + 1);
        }
        assert!(telemetry.reactor(2).is_none());
        let snapshot = telemetry.snapshot();
        let [host] = &snapshot.hosts[..] else {
            panic!("one row: {:?}", snapshot.hosts)
        };
        assert_eq!((&host.host[..], host.nsid), ("nqn.h", 1));
        assert_eq!(host.uuid, "22222222-2222-2222-2222-222222222222");
        assert_eq!(host.last_ns, 50_007);
        assert!(host.since_ns > 0 && host.since_ns <= snapshot.uptime_ns);
        assert_eq!((host.commands["read"], host.commands["write"]), (4, 0));
        assert_eq!((host.errors["media"], host.errors["generic"]), (2, 0));
        assert_eq!((host.in_flight, host.abandoned), (2, 2));
        assert_eq!((host.bytes_read, host.bytes_written), (8192, 0));
        let latency = &host.read_latency;
        assert_eq!((latency.count, latency.sum_ns), (2, 52_000));
        assert_eq!((latency.min_ns, latency.max_ns), (2_000, 50_000));
        let [namespace] = &snapshot.namespaces[..] else {
            panic!("one row: {:?}", snapshot.namespaces)
        };
        assert_eq!(namespace.uuid, "11111111-1111-1111-1111-111111111111");
        assert_eq!(namespace.copies_per_byte(), Some(0.5));
        let decoder = &namespace.decoders[0];
        assert_eq!((decoder.frames, decoder.busy_ns), (2, 60_000));
        let transforms = namespace.transforms.iter();
        let transforms: Vec<_> = transforms
            .map(|it| (&it.transform[..], it.bytes, it.busy_ns))
            .collect();
        assert_eq!(
            transforms,
            [("lz4", 131_072, 40_000), ("u16", 262_144, 10_000)]
        );
        assert_eq!(
            [snapshot.reactors[0].turns, snapshot.reactors[1].turns],
            [1, 2]
        );
        let json = serde_json::to_value(&snapshot).unwrap();
        assert_eq!(json["namespaces"][0]["delivered_bytes"], 16_384);
    }
}
