//! Counters, at three moments.

use admin_proto::v1::*;

use super::objects::{disk, tokens};
use super::{DATA, Start, TRAINER1, at};

fn histogram(buckets: &[(u64, u64)]) -> LatencyHistogram {
    let count = buckets.iter().map(|(_, count)| count).sum();
    LatencyHistogram {
        buckets: buckets
            .iter()
            .map(|&(upper_ns, count)| LatencyBucket {
                lower_ns: 0,
                upper_ns,
                count,
            })
            .collect(),
        count,
        sum_ns: buckets.iter().map(|(upper, count)| upper * count).sum(),
        min_ns: 40_000,
        max_ns: 9_000_000,
    }
}

/// The counters `round` seconds after the first snapshot.
fn counters(start: &Start, round: u64) -> StatsSnapshot {
    let commands = |reads: u64, writes: u64| {
        let of = |kind: &str, count| CommandCount {
            kind: kind.to_owned(),
            count,
        };
        vec![of("read", reads), of("write", writes)]
    };
    let reader = HostStats {
        subsystem_nqn: DATA.to_owned(),
        namespace_uuid: tokens().uuid,
        nsid: 1,
        host_nqn: TRAINER1.to_owned(),
        others: false,
        row_since: at(5),
        commands: commands(1_000_000 + round * 25_000, 0),
        read_bytes: (1_000_000 + round * 25_000) * 4096,
        written_bytes: 0,
        errors: Vec::new(),
        in_flight: 32,
        abandoned: 0,
        read_latency: Some(histogram(&[
            (90_000, 500_000 + round * 13_000),
            (180_000, 400_000 + round * 11_500),
            (1_500_000, 100_000 + round * 500),
        ])),
        write_latency: None,
        queues: Some(4),
        wire: None,
    };
    let gone = HostStats {
        host_nqn: "nqn.2026-11.org.example:gone".to_owned(),
        in_flight: 0,
        queues: Some(0),
        ..reader.clone()
    };
    let writer = HostStats {
        namespace_uuid: disk().uuid,
        nsid: 2,
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
        namespace_uuid: tokens().uuid,
        nsid: 1,
        row_since: at(5),
        stored_bytes: 500_000_000 + round * 39_321_600,
        written_bytes: 0,
        delivered_bytes: (1_000_000 + round * 25_000) * 4096,
        copied_bytes: (1_000_000 + round * 25_000) * 4096,
        frame_fetches: 10_000 + round * 250,
        frames_decoded: 100_000 + round * 990,
        frame_hits: 900_000 + round * 24_000,
        joined_misses: round * 10,
        parked: 0,
        decoders: vec![DecodeStats {
            chain: "u16+zstd".to_owned(),
            frames: 100_000 + round * 990,
            packed_bytes: 500_000_000 + round * 39_321_600,
            decode_ns: 7_000_000_000 + round * 70_000_000,
        }],
        store_operations: 12,
        table_bytes: 65_536 + round * 4096,
        store_wire: Some(WireBytes {
            sent_bytes: 900_000 + round * 18_000,
            received_bytes: 501_000_000 + round * 39_400_000,
        }),
        host_wire: Some(WireBytes {
            sent_bytes: (1_000_000 + round * 25_000) * 4120,
            received_bytes: (1_000_000 + round * 25_000) * 72,
        }),
        prefetch: Some(PrefetchStats {
            fetched: 1000 + round * 160,
            fetched_bytes: (1000 + round * 160) << 16,
            hits: 900 + round * 150,
            hit_bytes: (900 + round * 150) << 16,
            late: 10 + round * 4,
            late_bytes: (10 + round * 4) << 16,
            wasted: 20 + round,
            wasted_bytes: (20 + round) << 16,
            kept_bytes: (70 + round * 5) << 16,
        }),
        transforms: vec![
            TransformStats {
                transform: "u16".to_owned(),
                bytes: 2_000_000_000 + round * 102_400_000,
                undo_ns: 400_000_000 + round * 20_480_000,
            },
            TransformStats {
                transform: "zstd".to_owned(),
                bytes: 1_000_000_000 + round * 51_200_000,
                undo_ns: 6_000_000_000 + round * 51_200_000,
            },
        ],
    };
    let raw = NamespaceStats {
        namespace_uuid: disk().uuid,
        nsid: 2,
        stored_bytes: 0,
        written_bytes: (4000 + round * 200) << 20,
        delivered_bytes: 0,
        copied_bytes: 0,
        frame_fetches: 0,
        frames_decoded: 0,
        frame_hits: 0,
        joined_misses: 0,
        parked: round,
        decoders: Vec::new(),
        store_operations: 4,
        table_bytes: 0,
        store_wire: None,
        host_wire: None,
        prefetch: None,
        transforms: Vec::new(),
        ..view.clone()
    };
    let detached = NamespaceStats {
        subsystem_nqn: String::new(),
        nsid: 0,
        ..raw.clone()
    };
    StatsSnapshot {
        as_of: Some(AsOf {
            at: at(100 + i64::try_from(round).unwrap()),
            ..start.as_of(104).unwrap()
        }),
        monotonic_ns: (100 + round) * 1_000_000_000,
        hosts: vec![reader, gone, writer],
        namespaces: vec![view, raw, detached],
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

pub fn get_stats(start: &Start, _: GetStatsRequest) -> StatsSnapshot {
    counters(start, 0)
}

pub fn watch_stats(start: &Start, _: WatchStatsRequest) -> Vec<StatsSnapshot> {
    vec![counters(start, 0), counters(start, 1), counters(start, 2)]
}
