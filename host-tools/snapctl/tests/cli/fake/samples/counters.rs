//! Counters, at three moments.

use admin_proto::v1::*;

use super::objects::{disk, tokens};
use super::{DATA, TRAINER1, as_of, at};

fn histogram(buckets: &[(u64, u64)]) -> LatencyHistogram {
    let count = buckets.iter().map(|(_, count)| count).sum();
    LatencyHistogram {
        buckets: buckets
            .iter()
            .map(|&(upper_ns, count)| LatencyBucket {
                upper_ns,
                count,
                ..LatencyBucket::default()
            })
            .collect(),
        count,
        sum_ns: buckets.iter().map(|(upper, count)| upper * count).sum(),
        min_ns: 40_000,
        max_ns: 9_000_000,
    }
}

/// The counters `round` seconds after the first snapshot.
fn counters(round: u64) -> StatsSnapshot {
    let commands = |reads: u64, writes: u64| {
        let of = |kind: &str, count| CommandCount {
            kind: kind.to_owned(),
            count,
        };
        vec![of("read", reads), of("write", writes)]
    };
    let reader = HostStats {
        subsystem_nqn: DATA.to_owned(),
        host_nqn: TRAINER1.to_owned(),
        nsid: 1,
        namespace_uuid: tokens().uuid,
        others: false,
        row_since: at(1),
        abandoned: 0,
        commands: commands(1_000_000 + round * 25_000, 0),
        read_bytes: (1_000_000 + round * 25_000) * 4096,
        written_bytes: 0,
        errors: Vec::new(),
        in_flight: 32,
        read_latency: Some(histogram(&[
            (90_000, 500_000 + round * 13_000),
            (180_000, 400_000 + round * 11_500),
            (1_500_000, 100_000 + round * 500),
        ])),
        write_latency: None,
    };
    let writer = HostStats {
        nsid: 2,
        namespace_uuid: disk().uuid,
        commands: commands(0, 4000 + round * 200),
        read_bytes: 0,
        written_bytes: (4000 + round * 200) << 20,
        errors: vec![StatusCount {
            class: "media".to_owned(),
            count: round * 3,
        }],
        in_flight: 4,
        read_latency: None,
        write_latency: Some(histogram(&[(2_500_000, 4000 + round * 200)])),
        ..reader.clone()
    };
    let view = NamespaceStats {
        subsystem_nqn: DATA.to_owned(),
        nsid: 1,
        stored_bytes: 500_000_000 + round * 39_321_600,
        namespace_uuid: tokens().uuid,
        row_since: at(0),
        written_bytes: 0,
        delivered_bytes: (1_000_000 + round * 25_000) * 4096,
        copied_bytes: (1_000_000 + round * 25_000) * 4096,
        frame_hits: 900_000 + round * 24_000,
        frame_fetches: 50_000 + round * 500,
        frames_decoded: 100_000 + round * 1000,
        joined_misses: round * 10,
        decoders: vec![DecodeStats {
            chain: "zstd".to_owned(),
            frames: 100_000 + round * 1000,
            packed_bytes: (100_000 + round * 1000) << 16,
            decode_ns: 7_000_000_000 + round * 70_000_000,
        }],
        store_operations: 12,
        parked: 0,
    };
    let raw = NamespaceStats {
        nsid: 2,
        namespace_uuid: disk().uuid,
        stored_bytes: 0,
        written_bytes: (4000 + round * 200) << 20,
        delivered_bytes: 0,
        copied_bytes: 0,
        frame_hits: 0,
        frame_fetches: 0,
        frames_decoded: 0,
        joined_misses: 0,
        decoders: Vec::new(),
        store_operations: 4,
        parked: round,
        ..view.clone()
    };
    StatsSnapshot {
        as_of: as_of(100 + i64::try_from(round).unwrap()),
        monotonic_ns: (100 + round) * 1_000_000_000,
        hosts: vec![reader, writer],
        namespaces: vec![view, raw],
        reactors: vec![ReactorStats {
            reactor: 0,
            turns: 5_000_000 + round * 40_000,
            busy_ns: 60_000_000_000 + round * 620_000_000,
            idle_ns: 40_000_000_000 + round * 380_000_000,
            connections: 9,
            pool_used_bytes: 4 << 20,
            pool_bytes: 64 << 20,
        }],
    }
}

pub fn get_stats(_: GetStatsRequest) -> StatsSnapshot {
    counters(0)
}

pub fn watch_stats(_: WatchStatsRequest) -> Vec<StatsSnapshot> {
    vec![counters(0), counters(1), counters(2)]
}
