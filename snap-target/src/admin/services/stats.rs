//! StatsService.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admin_proto::Timestamp;
use admin_proto::limits::{STATS_INTERVAL_MS_MAX, STATS_INTERVAL_MS_MIN};
use admin_proto::v1;
use admin_proto::v1::stats_service_server::StatsService;
use nvme::nqn::Nqn;
use telemetry::limits::OTHERS;
use telemetry::{HistogramSnapshot, HostSnapshot, NamespaceSnapshot, ReactorSnapshot, Snapshot};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::super::{Context, convert};
use super::{Answer, of};
use crate::limits::ADMIN_STREAM_MESSAGES;
use crate::manage::{Manager, NamespaceLive};
use crate::text::uuid_text;

/// Which rows are asked for.
#[derive(Clone, Debug, Default)]
struct Filter {
    subsystem: Option<Nqn>,
    host: Option<Nqn>,
    nsid: u32,
    without_latency: bool,
}

/// Namespaces by UUID: telemetry has what its stores took by that, since a restart of a subsystem keeps it.
type ByUuid = HashMap<String, Vec<(String, u32)>>;

impl Filter {
    fn of(asked: Option<v1::StatsFilter>) -> Result<Self, Status> {
        let asked = asked.unwrap_or_default();
        Ok(Self {
            subsystem: convert::optional_nqn("subsystem_nqn", &asked.subsystem_nqn)?,
            host: convert::optional_nqn("host_nqn", &asked.host_nqn)?,
            nsid: asked.nsid,
            without_latency: asked.without_latency,
        })
    }

    fn wants(&self, subsystem: &str, nsid: u32) -> bool {
        self.subsystem
            .as_ref()
            .is_none_or(|nqn| nqn.as_str() == subsystem)
            && (self.nsid == 0 || self.nsid == nsid)
    }
}

impl Context {
    /// That what is asked for is there: empty tables are no answer to a name that is mistyped.
    async fn known(&self, filter: &Filter) -> Result<(), Status> {
        let Some(nqn) = filter.subsystem.clone() else {
            return Ok(());
        };
        let nsid = filter.nsid;
        let known = self.manage.call(move |manager| {
            manager.require_subsystem(&nqn)?;
            if nsid != 0 {
                manager.require_namespace(&nqn, nsid)?;
            }
            Ok(())
        });
        Ok(known.await?)
    }

    async fn snapshot(&self, filter: &Filter) -> Result<v1::StatsSnapshot, Status> {
        let by_uuid = self.manage.call(|manager| Ok(by_uuid(manager))).await?;
        let as_of = self.events.as_of();
        let now = self.telemetry.snapshot();
        Ok(message(as_of, &now, &by_uuid, filter))
    }
}

fn by_uuid(manager: &Manager) -> ByUuid {
    let mut all = ByUuid::new();
    for (nqn, subsystem) in &manager.desired().subsystems {
        for nsid in subsystem.namespaces.keys() {
            if let Some(NamespaceLive::Served(it)) = manager.live_namespace(nqn, *nsid) {
                let uuid = uuid_text(&it.identity.uuid);
                all.entry(uuid).or_default().push((nqn.to_string(), *nsid));
            }
        }
    }
    all
}

fn message(
    as_of: v1::AsOf,
    now: &Snapshot,
    by_uuid: &ByUuid,
    filter: &Filter,
) -> v1::StatsSnapshot {
    let started = UNIX_EPOCH + Duration::from_nanos(now.started_unix_ns);
    let hosts = now.hosts.iter().filter(|row| {
        let is_wanted = filter.wants(&row.subsystem, row.nsid)
            && filter
                .host
                .as_ref()
                .is_none_or(|host| host.as_str() == row.host);
        // Whoever is asked for may have found no row of its own.
        is_wanted || row.host == OTHERS
    });
    let disks = disks(&now.namespaces);
    let host_wire = host_wire(&now.hosts);
    let nobody = [(String::new(), 0)];
    let namespaces = disks.values().flat_map(|row| {
        let names = by_uuid.get(&row.uuid).map_or(&nobody[..], Vec::as_slice);
        names
            .iter()
            .filter(|(nqn, nsid)| filter.wants(nqn, *nsid))
            .map(|(nqn, nsid)| v1::NamespaceStats {
                host_wire: Some(host_wire.get(&row.uuid[..]).copied().unwrap_or_default()),
                ..namespace(row, started, nqn, *nsid)
            })
    });
    let mut namespaces: Vec<v1::NamespaceStats> = namespaces.collect();
    namespaces.sort_by(|a, b| {
        let key = |row: &v1::NamespaceStats| {
            let disk = (row.namespace_uuid.clone(), row.nsid);
            (row.subsystem_nqn.clone(), disk)
        };
        key(a).cmp(&key(b))
    });
    v1::StatsSnapshot {
        as_of: Some(as_of),
        monotonic_ns: now.uptime_ns,
        hosts: hosts
            .map(|row| host(row, started, filter.without_latency))
            .collect(),
        namespaces,
        reactors: now.reactors.iter().map(reactor).collect(),
    }
}

/// A moment on the clock of the counters.
fn at(started: SystemTime, ns: u64) -> Timestamp {
    (started + Duration::from_nanos(ns)).into()
}

fn host(row: &HostSnapshot, started: SystemTime, without_latency: bool) -> v1::HostStats {
    let others = row.host == OTHERS;
    let latency = |histogram| (!without_latency).then(|| latency(histogram));
    v1::HostStats {
        subsystem_nqn: row.subsystem.clone(),
        namespace_uuid: row.uuid.clone(),
        nsid: row.nsid,
        host_nqn: if others {
            String::new()
        } else {
            row.host.clone()
        },
        row_since: Some(at(started, row.since_ns)),
        others,
        commands: row
            .commands
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(kind, count)| v1::CommandCount {
                kind: (*kind).to_owned(),
                count: *count,
            })
            .collect(),
        read_bytes: row.bytes_read,
        written_bytes: row.bytes_written,
        errors: row
            .errors
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(class, count)| v1::StatusCount {
                class: (*class).to_owned(),
                count: *count,
            })
            .collect(),
        in_flight: small(row.in_flight),
        abandoned: row.abandoned,
        read_latency: latency(&row.read_latency),
        write_latency: latency(&row.write_latency),
        queues: Some(small(row.queues)),
        wire: Some(v1::WireBytes {
            sent_bytes: row.wire_sent_bytes,
            received_bytes: row.wire_received_bytes,
        }),
    }
}

/// By UUID: what crossed the network between hosts and a disk.
fn host_wire(rows: &[HostSnapshot]) -> BTreeMap<&str, v1::WireBytes> {
    let mut disks: BTreeMap<&str, v1::WireBytes> = BTreeMap::new();
    for row in rows {
        let disk = disks.entry(&row.uuid).or_default();
        disk.sent_bytes += row.wire_sent_bytes;
        disk.received_bytes += row.wire_received_bytes;
    }
    disks
}

/// By UUID: a disk that was named otherwise before is one row.
fn disks(rows: &[NamespaceSnapshot]) -> BTreeMap<&str, NamespaceSnapshot> {
    let mut disks: BTreeMap<&str, NamespaceSnapshot> = BTreeMap::new();
    for row in rows {
        let Some(disk) = disks.get_mut(&row.uuid[..]) else {
            disks.insert(&row.uuid, row.clone());
            continue;
        };
        disk.since_ns = disk.since_ns.min(row.since_ns);
        disk.counters.merge(&row.counters);
        disk.store_operations += row.store_operations;
        for more in &row.decoders {
            let known = disk.decoders.iter_mut().find(|it| it.chain == more.chain);
            match known {
                Some(known) => {
                    known.frames += more.frames;
                    known.packed_bytes += more.packed_bytes;
                    known.busy_ns += more.busy_ns;
                }
                None => disk.decoders.push(more.clone()),
            }
        }
        for more in &row.transforms {
            let mut known = disk.transforms.iter_mut();
            match known.find(|it| it.transform == more.transform) {
                Some(known) => {
                    known.bytes += more.bytes;
                    known.busy_ns += more.busy_ns;
                }
                None => disk.transforms.push(more.clone()),
            }
        }
    }
    disks
}

fn latency(histogram: &HistogramSnapshot) -> v1::LatencyHistogram {
    v1::LatencyHistogram {
        buckets: histogram
            .buckets
            .iter()
            .map(|(upper_ns, count)| v1::LatencyBucket {
                lower_ns: HistogramSnapshot::lower_edge_ns(*upper_ns),
                upper_ns: *upper_ns,
                count: *count,
            })
            .collect(),
        count: histogram.count,
        sum_ns: histogram.sum_ns,
        min_ns: histogram.min_ns,
        max_ns: histogram.max_ns,
    }
}

fn namespace(
    row: &NamespaceSnapshot,
    started: SystemTime,
    nqn: &str,
    nsid: u32,
) -> v1::NamespaceStats {
    let counters = &row.counters;
    v1::NamespaceStats {
        subsystem_nqn: nqn.to_owned(),
        namespace_uuid: row.uuid.clone(),
        nsid,
        row_since: Some(at(started, row.since_ns)),
        stored_bytes: counters.stored_bytes,
        written_bytes: counters.written_bytes,
        delivered_bytes: counters.delivered_bytes,
        copied_bytes: counters.copied_bytes,
        frame_fetches: counters.frame_fetches,
        frames_decoded: counters.frames_decoded,
        frame_hits: counters.frame_hits,
        joined_misses: counters.joined_misses,
        parked: counters.parked,
        decoders: row
            .decoders
            .iter()
            .map(|it| v1::DecodeStats {
                chain: it.chain.clone(),
                frames: it.frames,
                packed_bytes: it.packed_bytes,
                decode_ns: it.busy_ns,
            })
            .collect(),
        store_operations: small(row.store_operations),
        table_bytes: counters.table_bytes,
        store_wire: Some(v1::WireBytes {
            sent_bytes: counters.store_wire_sent_bytes,
            received_bytes: counters.store_wire_received_bytes,
        }),
        host_wire: None,
        prefetch: Some(v1::PrefetchStats {
            fetched: counters.prefetched_frames,
            fetched_bytes: counters.prefetched_bytes,
            hits: counters.prefetch_hits,
            hit_bytes: counters.prefetch_hit_bytes,
            late: counters.prefetch_late,
            late_bytes: counters.prefetch_late_bytes,
            wasted: counters.prefetch_wasted,
            wasted_bytes: counters.prefetch_wasted_bytes,
            kept_bytes: counters.prefetch_kept_bytes,
        }),
        transforms: row
            .transforms
            .iter()
            .map(|it| v1::TransformStats {
                transform: it.transform.clone(),
                bytes: it.bytes,
                undo_ns: it.busy_ns,
            })
            .collect(),
    }
}

fn reactor(row: &ReactorSnapshot) -> v1::ReactorStats {
    let pools = [&row.answers, &row.incoming, &row.staging];
    v1::ReactorStats {
        reactor: row.reactor.into(),
        turns: row.turns,
        busy_ns: row.busy_ns,
        idle_ns: row.idle_ns,
        connections: small(row.connections),
        pool_used_bytes: pools.iter().map(|pool| pool.used_bytes).sum(),
        pool_bytes: pools.iter().map(|pool| pool.total_bytes).sum(),
    }
}

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[tonic::async_trait]
impl StatsService for Context {
    type WatchStatsStream = ReceiverStream<Result<v1::StatsSnapshot, Status>>;

    async fn get_stats(&self, request: Request<v1::GetStatsRequest>) -> Answer<v1::StatsSnapshot> {
        let filter = Filter::of(of(request).filter)?;
        self.known(&filter).await?;
        Ok(Response::new(self.snapshot(&filter).await?))
    }

    async fn watch_stats(
        &self,
        request: Request<v1::WatchStatsRequest>,
    ) -> Answer<Self::WatchStatsStream> {
        let place = self.stream_place(&request)?;
        let asked = of(request);
        let filter = Filter::of(asked.filter)?;
        let interval_ms = asked.interval_ms;
        if !(STATS_INTERVAL_MS_MIN..=STATS_INTERVAL_MS_MAX).contains(&interval_ms) {
            let why =
                format!("{interval_ms}; it is {STATS_INTERVAL_MS_MIN} to {STATS_INTERVAL_MS_MAX}");
            return Err(convert::invalid("interval_ms", why).into());
        }
        self.known(&filter).await?;
        let (out, stream) = mpsc::channel(ADMIN_STREAM_MESSAGES);
        let context = self.clone();
        tokio::spawn(async move {
            let _place = place;
            let mut ticks = tokio::time::interval(Duration::from_millis(interval_ms.into()));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = out.closed() => return,
                }
                let snapshot = context.snapshot(&filter).await;
                let ended = snapshot.is_err();
                // A client that does not take them loses snapshots: none is made while one waits.
                if out.send(snapshot).await.is_err() || ended {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

#[cfg(test)]
mod tests {
    use nvme::nqn::Nqn;
    use telemetry::limits::HOST_ROWS_MAX;
    use telemetry::{Telemetry, TelemetryConfig};

    use super::{ByUuid, Filter, message, v1};

    /// A host that found no row is not told apart from one that did nothing, unless the row of the others is there too.
    #[test]
    fn the_row_of_the_others_is_in_narrow_answers() {
        let telemetry = Telemetry::new(&TelemetryConfig::default());
        let reactor = telemetry.reactor(0).unwrap();
        let rows = |filter: &Filter| {
            let snapshot = telemetry.snapshot();
            let answer = message(v1::AsOf::default(), &snapshot, &ByUuid::new(), filter);
            let rows = answer.hosts.into_iter();
            rows.map(|row| (row.host_nqn, row.others, row.queues))
                .collect::<Vec<_>>()
        };
        let row = |host: &str| reactor.host("nqn.s", host, 1, [7; 16]);
        let mut held: Vec<_> = (1..HOST_ROWS_MAX)
            .map(|number| row(&format!("nqn.{number}")))
            .collect();
        held.push(row("nqn.last"));
        let filter = Filter {
            host: Some(Nqn::parse("nqn.last").unwrap()),
            ..Filter::default()
        };
        let last = ("nqn.last".to_owned(), false, Some(1));
        assert_eq!(rows(&filter), std::slice::from_ref(&last));
        held.push(row("nqn.more"));
        let mut found = rows(&filter);
        found.sort();
        assert_eq!(found, [(String::new(), true, Some(1)), last]);
    }
}
