//! What happened between two snapshots of the counters, by the second.

use std::collections::HashMap;
use std::hash::Hash;

use admin_proto::Timestamp;
use admin_proto::v1::{
    HostStats, LatencyHistogram, NamespaceStats, PrefetchStats, ReactorStats, StatsSnapshot,
    TransformStats, WireBytes,
};
use serde::Serialize;

use crate::text;

/// Rates between two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// When the later one was taken, UTC.
    pub taken_at: String,
    /// Seconds between them.
    pub seconds: f64,
    /// By subsystem, namespace and host.
    pub hosts: Vec<HostRates>,
    /// By subsystem and namespace.
    pub namespaces: Vec<NamespaceRates>,
    /// By reactor.
    pub reactors: Vec<ReactorRates>,
}

/// What one host did on one namespace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostRates {
    pub subsystem_nqn: String,
    /// Empty of commands without an active namespace.
    pub namespace_uuid: String,
    pub nsid: u32,
    /// Empty in the row of all others.
    pub host_nqn: String,
    pub others: bool,
    pub reads_per_second: f64,
    pub read_bytes_per_second: f64,
    /// Half of the reads were answered within this; none where there were none.
    pub read_p50_ns: Option<u64>,
    pub read_p99_ns: Option<u64>,
    pub writes_per_second: f64,
    pub written_bytes_per_second: f64,
    pub write_p50_ns: Option<u64>,
    pub write_p99_ns: Option<u64>,
    /// Commands that are neither reads nor writes.
    pub other_commands_per_second: f64,
    pub errors_per_second: f64,
    /// Commands whose connection ended before their answer.
    pub abandoned_per_second: f64,
    pub in_flight: u32,
}

/// What one namespace took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamespaceRates {
    pub subsystem_nqn: String,
    pub namespace_uuid: String,
    pub nsid: u32,
    pub stored_bytes_per_second: f64,
    /// Of the volume's tables, beside them.
    pub table_bytes_per_second: f64,
    /// What came over the network from its store, headers and digests included; 0 of a local one.
    pub store_wire_received_bytes_per_second: f64,
    /// What went to it.
    pub store_wire_sent_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    pub delivered_bytes_per_second: f64,
    /// What went over the network to its hosts, headers and digests included.
    pub host_wire_sent_bytes_per_second: f64,
    /// What came from them.
    pub host_wire_received_bytes_per_second: f64,
    /// Copies of each delivered byte; none where nothing was delivered.
    pub copies: Option<f64>,
    /// Share of frames that were in the cache, 0 to 1; none where none was asked for.
    pub cache_hit_share: Option<f64>,
    /// Cores that decoding kept busy.
    pub decoding_cores: f64,
    /// Times that a request waited for memory or a place in a store's queue.
    pub parked_per_second: f64,
    pub store_operations: u32,
    /// What was fetched before anybody asked for it; none where the daemon does not say.
    pub prefetch: Option<PrefetchRates>,
    /// By transform.
    pub transforms: Vec<TransformRates>,
}

/// What was fetched before anybody asked for it, in bytes as they are kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrefetchRates {
    pub fetched_bytes_per_second: f64,
    /// Of what was there when it was first read.
    pub hit_bytes_per_second: f64,
    /// Of what was on its way when it was first wanted.
    pub late_bytes_per_second: f64,
    /// Of what left the cache before anybody read it.
    pub wasted_bytes_per_second: f64,
    /// What is in the cache now that nobody has read.
    pub kept_bytes: u64,
}

/// What undoing one transform took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TransformRates {
    pub transform: String,
    /// Bytes that undoing it made.
    pub bytes_per_second: f64,
    /// Cores that undoing it kept busy.
    pub cores: f64,
    /// Bytes that one core makes in a second of work; none where it did nothing.
    pub bytes_per_core_second: Option<f64>,
}

/// What one reactor did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReactorRates {
    pub reactor: u32,
    /// Share of the time at work, 0 to 1. Of one that slept all the time, which it counts when it wakes, 0.
    pub busy_share: f64,
    pub turns_per_second: f64,
    pub connections: u32,
    pub pool_used_bytes: u64,
    pub pool_bytes: u64,
}

impl HostRates {
    /// Where its row is among the others.
    pub fn place(&self) -> (String, u32, String, String) {
        let (subsystem, disk) = (self.subsystem_nqn.clone(), self.namespace_uuid.clone());
        (subsystem, self.nsid, disk, self.host_nqn.clone())
    }
}

impl NamespaceRates {
    fn place(&self) -> (String, u32, String) {
        let (subsystem, disk) = (self.subsystem_nqn.clone(), self.namespace_uuid.clone());
        (subsystem, self.nsid, disk)
    }
}

impl Rates {
    /// From `old` to `new`; none where they are of two starts of the daemon, or no time lies between them.
    pub fn between(old: &StatsSnapshot, new: &StatsSnapshot) -> Option<Rates> {
        let elapsed_ns = new.monotonic_ns.checked_sub(old.monotonic_ns)?;
        let instance = |snapshot: &StatsSnapshot| Some(snapshot.as_of.clone()?.instance);
        if instance(old) != instance(new) || elapsed_ns == 0 {
            return None;
        }
        let seconds = float(elapsed_ns) / 1e9;
        let mut hosts = rows(&old.hosts, &new.hosts, host_key, |old, new| {
            host_rates(old, new, seconds)
        });
        let mut namespaces = rows(
            &old.namespaces,
            &new.namespaces,
            namespace_key,
            |old, new| namespace_rates(old, new, seconds),
        );
        // As people count: by number, not by disk.
        hosts.sort_by_cached_key(HostRates::place);
        namespaces.sort_by_cached_key(NamespaceRates::place);
        let reactors = rows(
            &old.reactors,
            &new.reactors,
            |row| row.reactor,
            |old, new| reactor_rates(old, new, seconds),
        );
        Some(Rates {
            taken_at: text::when(new.as_of.as_ref().and_then(|as_of| as_of.at.as_ref())),
            seconds,
            hosts,
            namespaces,
            reactors,
        })
    }
}

/// A row of rates for each row of `new`, with its counterpart of `old`, or zeros where it is new.
fn rows<'a, Row: Default, Key: Hash + Eq, Out>(
    old: &'a [Row],
    new: &'a [Row],
    key: impl Fn(&'a Row) -> Key,
    rates: impl Fn(&Row, &Row) -> Out,
) -> Vec<Out> {
    let before: HashMap<Key, &Row> = old.iter().map(|row| (key(row), row)).collect();
    let zeros = Row::default();
    new.iter()
        .map(|row| rates(before.get(&key(row)).copied().unwrap_or(&zeros), row))
        .collect()
}

/// A row that began at another time is another row.
type Since = Option<(i64, i32)>;

fn since(time: Option<&Timestamp>) -> Since {
    time.map(|time| (time.seconds, time.nanos))
}

fn host_key(row: &HostStats) -> (&str, &str, u32, &str, bool, Since) {
    (
        &row.subsystem_nqn,
        &row.namespace_uuid,
        row.nsid,
        &row.host_nqn,
        row.others,
        since(row.row_since.as_ref()),
    )
}

fn namespace_key(row: &NamespaceStats) -> (&str, &str, u32, Since) {
    (
        &row.subsystem_nqn,
        &row.namespace_uuid,
        row.nsid,
        since(row.row_since.as_ref()),
    )
}

#[expect(
    clippy::cast_precision_loss,
    reason = "rates are shown to three digits"
)]
fn float(number: u64) -> f64 {
    number as f64
}

fn per_second(old: u64, new: u64, seconds: f64) -> f64 {
    float(new.saturating_sub(old)) / seconds
}

/// Commands of a kind that ended so far.
pub fn commands(row: &HostStats, kind: &str) -> u64 {
    let of_kind = row.commands.iter().filter(|count| count.kind == kind);
    sum(of_kind.map(|count| count.count))
}

/// Commands that ended so far and are neither reads nor writes.
pub fn other_commands(row: &HostStats) -> u64 {
    let others = row
        .commands
        .iter()
        .filter(|count| !matches!(count.kind.as_str(), "read" | "write"));
    sum(others.map(|count| count.count))
}

/// Commands that failed so far.
pub fn errors(row: &HostStats) -> u64 {
    sum(row.errors.iter().map(|error| error.count))
}

/// A daemon's numbers are not trusted not to overflow.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

fn host_rates(old: &HostStats, new: &HostStats, seconds: f64) -> HostRates {
    let rate = |count: &dyn Fn(&HostStats) -> u64| per_second(count(old), count(new), seconds);
    let read = Latencies::between(old.read_latency.as_ref(), new.read_latency.as_ref());
    let write = Latencies::between(old.write_latency.as_ref(), new.write_latency.as_ref());
    HostRates {
        subsystem_nqn: new.subsystem_nqn.clone(),
        namespace_uuid: new.namespace_uuid.clone(),
        nsid: new.nsid,
        host_nqn: new.host_nqn.clone(),
        others: new.others,
        reads_per_second: rate(&|row| commands(row, "read")),
        read_bytes_per_second: rate(&|row| row.read_bytes),
        read_p50_ns: read.quantile(50),
        read_p99_ns: read.quantile(99),
        writes_per_second: rate(&|row| commands(row, "write")),
        written_bytes_per_second: rate(&|row| row.written_bytes),
        write_p50_ns: write.quantile(50),
        write_p99_ns: write.quantile(99),
        other_commands_per_second: rate(&other_commands),
        errors_per_second: rate(&errors),
        abandoned_per_second: rate(&|row| row.abandoned),
        in_flight: new.in_flight,
    }
}

fn namespace_rates(old: &NamespaceStats, new: &NamespaceStats, seconds: f64) -> NamespaceRates {
    let rate = |count: &dyn Fn(&NamespaceStats) -> u64| per_second(count(old), count(new), seconds);
    let decode_ns =
        |row: &NamespaceStats| sum(row.decoders.iter().map(|decoder| decoder.decode_ns));
    let delivered = rate(&|row| row.delivered_bytes);
    let copied = rate(&|row| row.copied_bytes);
    let hits = rate(&|row| row.frame_hits);
    // What was neither there nor on its way was fetched and decoded.
    let asked = hits + rate(&|row| row.joined_misses) + rate(&|row| row.frames_decoded);
    NamespaceRates {
        subsystem_nqn: new.subsystem_nqn.clone(),
        namespace_uuid: new.namespace_uuid.clone(),
        nsid: new.nsid,
        stored_bytes_per_second: rate(&|row| row.stored_bytes),
        table_bytes_per_second: rate(&|row| row.table_bytes),
        store_wire_received_bytes_per_second: rate(&|row| received(row.store_wire)),
        store_wire_sent_bytes_per_second: rate(&|row| sent(row.store_wire)),
        written_bytes_per_second: rate(&|row| row.written_bytes),
        delivered_bytes_per_second: delivered,
        host_wire_sent_bytes_per_second: rate(&|row| sent(row.host_wire)),
        host_wire_received_bytes_per_second: rate(&|row| received(row.host_wire)),
        copies: share(copied, delivered),
        cache_hit_share: share(hits, asked),
        decoding_cores: rate(&decode_ns) / 1e9,
        parked_per_second: rate(&|row| row.parked),
        store_operations: new.store_operations,
        prefetch: new
            .prefetch
            .map(|new| prefetch_rates(old.prefetch.unwrap_or_default(), new, seconds)),
        transforms: new
            .transforms
            .iter()
            .map(|new| {
                let mut before = old.transforms.iter();
                let old = before.find(|old| old.transform == new.transform);
                transform_rates(old.unwrap_or(&TransformStats::default()), new, seconds)
            })
            .collect(),
    }
}

fn prefetch_rates(old: PrefetchStats, new: PrefetchStats, seconds: f64) -> PrefetchRates {
    PrefetchRates {
        fetched_bytes_per_second: per_second(old.fetched_bytes, new.fetched_bytes, seconds),
        hit_bytes_per_second: per_second(old.hit_bytes, new.hit_bytes, seconds),
        late_bytes_per_second: per_second(old.late_bytes, new.late_bytes, seconds),
        wasted_bytes_per_second: per_second(old.wasted_bytes, new.wasted_bytes, seconds),
        kept_bytes: new.kept_bytes,
    }
}

fn sent(wire: Option<WireBytes>) -> u64 {
    wire.map_or(0, |wire| wire.sent_bytes)
}

fn received(wire: Option<WireBytes>) -> u64 {
    wire.map_or(0, |wire| wire.received_bytes)
}

fn transform_rates(old: &TransformStats, new: &TransformStats, seconds: f64) -> TransformRates {
    let bytes_per_second = per_second(old.bytes, new.bytes, seconds);
    let cores = per_second(old.undo_ns, new.undo_ns, seconds) / 1e9;
    TransformRates {
        transform: new.transform.clone(),
        bytes_per_second,
        cores,
        bytes_per_core_second: share(bytes_per_second, cores),
    }
}

fn reactor_rates(old: &ReactorStats, new: &ReactorStats, seconds: f64) -> ReactorRates {
    let busy = per_second(old.busy_ns, new.busy_ns, seconds);
    let idle = per_second(old.idle_ns, new.idle_ns, seconds);
    ReactorRates {
        reactor: new.reactor,
        busy_share: share(busy, busy + idle).unwrap_or(0.0),
        turns_per_second: per_second(old.turns, new.turns, seconds),
        connections: new.connections,
        pool_used_bytes: new.pool_used_bytes,
        pool_bytes: new.pool_bytes,
    }
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Latencies between two snapshots, by bucket.
struct Latencies {
    /// Upper end in nanoseconds, and how many; ascending.
    buckets: Vec<(u64, u64)>,
    max_ns: u64,
}

impl Latencies {
    fn between(old: Option<&LatencyHistogram>, new: Option<&LatencyHistogram>) -> Latencies {
        let before: HashMap<u64, u64> = old
            .iter()
            .flat_map(|histogram| &histogram.buckets)
            .map(|bucket| (bucket.upper_ns, bucket.count))
            .collect();
        let mut buckets: Vec<(u64, u64)> = new
            .iter()
            .flat_map(|histogram| &histogram.buckets)
            .map(|bucket| {
                let old = before.get(&bucket.upper_ns).copied().unwrap_or(0);
                (bucket.upper_ns, bucket.count.saturating_sub(old))
            })
            .collect();
        buckets.sort_unstable();
        Latencies {
            buckets,
            max_ns: new.map_or(u64::MAX, |histogram| histogram.max_ns),
        }
    }

    /// The upper end of the bucket that holds this percentile, but never more than the largest that was ever seen.
    fn quantile(&self, percent: u64) -> Option<u64> {
        let count = u128::from(sum(self.buckets.iter().map(|(_, count)| *count)));
        if count == 0 {
            return None;
        }
        let rank = (count * u128::from(percent)).div_ceil(100);
        let mut seen = 0_u128;
        for (upper_ns, count) in &self.buckets {
            seen += u128::from(*count);
            if seen >= rank {
                return Some((*upper_ns).min(self.max_ns));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use admin_proto::v1::{AsOf, CommandCount, LatencyBucket};

    use super::*;

    fn histogram(buckets: &[(u64, u64)], max_ns: u64) -> LatencyHistogram {
        LatencyHistogram {
            buckets: buckets
                .iter()
                .map(|&(upper_ns, count)| LatencyBucket {
                    upper_ns,
                    count,
                    ..LatencyBucket::default()
                })
                .collect(),
            max_ns,
            ..LatencyHistogram::default()
        }
    }

    #[test]
    fn quantiles_are_of_what_came_between_and_round_up() {
        let old = histogram(&[(100, 50), (400, 1)], 390);
        let new = histogram(&[(100, 99), (200, 50), (400, 2), (u64::MAX, 1)], 777);
        let between = Latencies::between(Some(&old), Some(&new));
        // 49 up to 100, 50 up to 200, 1 up to 400, 1 beyond: 101 of them.
        assert_eq!(between.quantile(48), Some(100));
        assert_eq!(between.quantile(49), Some(200));
        assert_eq!(between.quantile(50), Some(200));
        assert_eq!(between.quantile(98), Some(200));
        assert_eq!(between.quantile(99), Some(400));
        assert_eq!(between.quantile(100), Some(777));
        assert_eq!(
            Latencies::between(Some(&new), Some(&new)).quantile(50),
            None
        );
        assert_eq!(Latencies::between(None, None).quantile(99), None);
    }

    fn snapshot(instance: &str, monotonic_ns: u64, reads: u64) -> StatsSnapshot {
        let row = HostStats {
            nsid: 1,
            commands: vec![CommandCount {
                kind: "read".to_owned(),
                count: reads,
            }],
            read_bytes: reads * 4096,
            ..HostStats::default()
        };
        StatsSnapshot {
            as_of: Some(AsOf {
                instance: instance.to_owned(),
                ..AsOf::default()
            }),
            monotonic_ns,
            hosts: vec![row],
            ..StatsSnapshot::default()
        }
    }

    #[test]
    fn rates_are_by_the_clock_of_the_daemon_and_of_one_start_of_it() {
        let old = snapshot("a", 1_000_000_000, 100);
        let new = snapshot("a", 3_500_000_000, 350);
        let rates = Rates::between(&old, &new).unwrap();
        assert_eq!(rates.seconds, 2.5);
        assert_eq!(rates.hosts[0].reads_per_second, 100.0);
        assert_eq!(rates.hosts[0].read_bytes_per_second, 409_600.0);
        assert_eq!(rates.hosts[0].read_p99_ns, None);
        assert_eq!(
            Rates::between(&old, &snapshot("b", 3_500_000_000, 350)),
            None
        );
        assert_eq!(Rates::between(&old, &old), None);
        assert_eq!(Rates::between(&new, &old), None);
    }

    #[test]
    fn a_row_that_is_new_counts_from_zero_and_one_that_fell_counts_nothing() {
        let mut old = snapshot("a", 0, 100);
        let new = snapshot("a", 1_000_000_000, 40);
        assert_eq!(
            Rates::between(&old, &new).unwrap().hosts[0].reads_per_second,
            0.0
        );
        old.hosts.clear();
        assert_eq!(
            Rates::between(&old, &new).unwrap().hosts[0].reads_per_second,
            40.0
        );
    }

    #[test]
    fn transforms_are_told_apart_by_their_names() {
        let stats = |transforms: &[(&str, u64, u64)]| {
            let transforms = transforms
                .iter()
                .map(|&(name, bytes, undo_ns)| TransformStats {
                    transform: name.to_owned(),
                    bytes,
                    undo_ns,
                });
            NamespaceStats {
                transforms: transforms.collect(),
                ..NamespaceStats::default()
            }
        };
        let old = stats(&[("lz4", 1000, 500_000_000)]);
        let new = stats(&[("lz4", 5000, 1_500_000_000), ("u16", 800, 0)]);
        let rates = namespace_rates(&old, &new, 2.0).transforms;
        let lz4 = TransformRates {
            transform: "lz4".to_owned(),
            bytes_per_second: 2000.0,
            cores: 0.5,
            bytes_per_core_second: Some(4000.0),
        };
        assert_eq!(rates[0], lz4);
        assert_eq!(
            (rates[1].bytes_per_second, rates[1].bytes_per_core_second),
            (400.0, None)
        );
    }

    /// A reactor that sleeps counts its sleep when it wakes.
    #[test]
    fn a_reactor_that_slept_all_the_time_was_not_busy() {
        let stats = |busy_ns, idle_ns| ReactorStats {
            busy_ns,
            idle_ns,
            ..ReactorStats::default()
        };
        let asleep = reactor_rates(&stats(7, 9), &stats(7, 9), 1.0);
        assert_eq!(asleep.busy_share, 0.0);
        let at_work = reactor_rates(&stats(7, 9), &stats(8, 12), 1.0);
        assert_eq!(at_work.busy_share, 0.25);
    }

    #[test]
    fn another_disk_under_the_same_number_is_another_row() {
        let (mut old, mut new) = (snapshot("a", 0, 100), snapshot("a", 1_000_000_000, 130));
        let reads = |old: &StatsSnapshot, new: &StatsSnapshot| {
            Rates::between(old, new).unwrap().hosts[0].reads_per_second
        };
        assert_eq!(reads(&old, &new), 30.0);
        new.hosts[0].namespace_uuid = "5f1a".to_owned();
        assert_eq!(reads(&old, &new), 130.0);
        old.hosts[0].namespace_uuid = "5f1a".to_owned();
        assert_eq!(reads(&old, &new), 30.0);
        // The same disk, detached and attached again: its row began anew.
        let since = |seconds| Some(Timestamp { seconds, nanos: 0 });
        (old.hosts[0].row_since, new.hosts[0].row_since) = (since(7), since(9));
        assert_eq!(reads(&old, &new), 130.0);
    }
}
