//! Of what goes on: counters, events, the recorder.

use admin_proto::v1::*;

use super::{Case, case};
use crate::fake::samples::{DATA, FIRST, TRAINER1};

pub(super) fn watching_cases() -> Vec<Case> {
    let narrow = StatsFilter {
        subsystem_nqn: DATA.to_owned(),
        host_nqn: TRAINER1.to_owned(),
        nsid: 2,
        without_latency: false,
    };
    let watch = |filter: &StatsFilter, interval_ms| WatchStatsRequest {
        filter: Some(filter.clone()),
        interval_ms,
    };
    let totals = GetStatsRequest {
        filter: Some(StatsFilter::default()),
    };
    // Topics are chosen here where nothing is followed: see the source.
    let events = |from_sequence, from_announcement| SubscribeRequest {
        topics: Vec::new(),
        from_sequence,
        instance: FIRST.instance.to_owned(),
        from_announcement,
    };
    vec![
        case("stat", &[], &watch(&StatsFilter::default(), 1000)),
        case(
            "stat",
            &[
                "--interval",
                "0.5",
                "--count",
                "2",
                "--subsystem",
                DATA,
                "--host",
                TRAINER1,
                "--nsid",
                "2",
            ],
            &watch(&narrow, 500),
        ),
        case("stat", &["--totals"], &totals),
        case("stat", &["--totals", "--transforms"], &totals),
        case("stat", &["--totals", "--hops"], &totals),
        case("stat", &["--totals", "--prefetch"], &totals),
        case("events", &[], &events(1, 1)).after(&GetInfoRequest {}),
        case(
            "events",
            &[
                "--topic",
                "host",
                "--topic",
                "health",
                "--since",
                "6f9619ff8b86d011b42d00cf4fc964ff:102:3",
            ],
            &events(103, 4),
        ),
        // As an answer's as_of has it.
        case(
            "events",
            &["--since", "6f9619ff8b86d011b42d00cf4fc964ff:102"],
            &events(103, 0),
        ),
        case("recorder dump", &[], &DumpRecorderRequest { last: 0 }),
        case(
            "recorder dump",
            &["--last", "5"],
            &DumpRecorderRequest { last: 5 },
        ),
    ]
}
