//! Both ends of NVMe/TCP against each other, without sockets and with a clock that is stepped: bytes arrive in pieces of any
//! length and late, the store answers out of order, connections are reset and go dark at any point, and whatever the host is
//! told must agree with a model of the disk, byte for byte. Up to four associations of two hosts share the namespace: their
//! commands overlap, they reserve it and preempt each other, abort, and are told of what happens.
//!
//! A fixed share of seeds runs in the tests; `XIO_SIM_SEEDS=10000 cargo test -p nvme --test simulation` runs more, and
//! `XIO_SIM_SEED=77` runs one alone, with its plan printed. A million of them: `examples/seeds.rs`.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod client;
mod extras;
mod host;
mod oracle;
mod plan;
mod reservations;
#[path = "../support/mod.rs"]
mod support;
mod workload;
mod world;

use std::time::Duration;

use nvme::simulation::link::LinkShape;
use plan::{Fault, FaultKind, Plan, When};
use world::{Outcome, World};

const SEEDS_DEFAULT: u64 = 300;
const THREADS: u64 = 2;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn run(plan: Plan, seed: u64) -> Outcome {
    let commands = plan.commands;
    let outcome = World::new(plan, seed).run();
    assert_eq!(outcome.completed, commands);
    outcome
}

#[test]
fn whatever_the_host_is_told_agrees_with_the_disk() {
    if let Some(seed) = variable("XIO_SIM_SEED") {
        let plan = Plan::of(seed);
        println!("seed {seed}: {plan:#?}");
        println!("{:?}", run(plan, seed));
        return;
    }
    let seeds = variable("XIO_SIM_SEEDS").unwrap_or(SEEDS_DEFAULT);
    std::thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || (first..seeds).step_by(THREADS as usize).for_each(run_named));
        }
    });
}

fn run_named(seed: u64) {
    let result = std::panic::catch_unwind(|| run(Plan::of(seed), seed));
    assert!(
        result.is_ok(),
        "seed {seed} failed; alone: XIO_SIM_SEED={seed} cargo test -p nvme --test simulation"
    );
}

/// A plan without chance in its outcome.
fn calm() -> Plan {
    Plan {
        clients: 1,
        faults: vec![Vec::new()],
        ..Plan::of(3)
    }
}

#[test]
fn without_faults_one_association_completes_everything() {
    let outcome = run(calm(), 1);
    assert_eq!(outcome.associations, 1);
    assert_eq!(
        (outcome.lost, outcome.host_expired, outcome.target_expired),
        (0, 0, 0)
    );
}

#[test]
fn a_stream_cut_at_every_byte_changes_nothing() {
    let whole = run(calm(), 1);
    let bytewise = Plan {
        shape: LinkShape {
            piece_bytes_max: 1,
            delay_max: Duration::from_nanos(1),
        },
        ..calm()
    };
    let cut = run(bytewise, 1);
    // What commands meet follows from when they arrive.
    let seen = whole.seen;
    assert_eq!(Outcome { seen, ..cut }, whole);
}

/// What a store takes for a write; the host comes back after twenty of them, and its keep alive is four hundred.
const MOMENT: Duration = Duration::from_millis(5);

/// Seeds whose plans are made for one thing: connections end while the store has writes of theirs, and these stay there.
fn with_late_writes(kind: FaultKind, store_latency_max: Duration, late_max: Duration) -> Outcome {
    let mut sum = Outcome::default();
    for seed in 0..30 {
        let plan = Plan {
            faults: vec![vec![after_commands(kind, 10); 3]],
            store_latency_max,
            late_max,
            queues: 2,
            depth: 7,
            disk_blocks: 32,
            ..calm()
        };
        let outcome = run(plan, seed);
        sum = sum.plus(outcome);
    }
    assert!(sum.lost > 0, "no command was under way");
    sum
}

/// A lost connection's writes end before the host's next association begins, and no queue joins their controller meanwhile.
#[test]
fn writes_that_outlive_a_connection_do_not_outlive_its_association() {
    let outcome = with_late_writes(FaultKind::Reset, MOMENT, 60 * MOMENT);
    assert_eq!((outcome.associations, outcome.refused), (30 * 4, 30 * 3));
}

/// Those that a host left by CC.EN=0 end before CSTS.RDY is 0.
#[test]
fn writes_that_outlive_a_queue_do_not_outlive_the_reset() {
    let outcome = with_late_writes(FaultKind::ControllerReset, MOMENT, 60 * MOMENT);
    assert_eq!((outcome.associations, outcome.resets), (30, 30 * 3));
}

/// A controller whose host went silent ends once, however long its writes take.
#[test]
fn a_silent_host_with_writes_under_way_expires_once() {
    let outcome = with_late_writes(FaultKind::Blackout, 600 * MOMENT, 1600 * MOMENT);
    assert_eq!(
        (outcome.associations, outcome.target_expired),
        (30 * 4, 30 * 3)
    );
}

fn after_commands(kind: FaultKind, count: u32) -> Fault {
    Fault {
        kind,
        when: When::Commands(count),
    }
}

#[test]
fn a_reset_costs_one_association_and_loses_nothing_that_was_acknowledged() {
    let faults = vec![vec![after_commands(FaultKind::Reset, 20); 3]];
    let outcome = run(Plan { faults, ..calm() }, 1);
    assert_eq!(outcome.associations, 4);
    assert_eq!((outcome.host_expired, outcome.target_expired), (0, 0));
}

#[test]
fn a_network_gone_dark_is_noticed_by_the_keep_alive_at_both_ends() {
    let faults = vec![vec![after_commands(FaultKind::Blackout, 20)]];
    let outcome = run(Plan { faults, ..calm() }, 1);
    assert_eq!(outcome.associations, 2);
    assert_eq!((outcome.host_expired, outcome.target_expired), (1, 1));
}

#[test]
fn an_idle_association_lives_by_its_keep_alive() {
    let plan = Plan {
        idle: Duration::from_secs(20),
        ..calm()
    };
    let outcome = run(plan, 1);
    assert_eq!(outcome.associations, 1);
    assert_eq!((outcome.host_expired, outcome.target_expired), (0, 0));
}

/// CVE-2023-5178 and CVE-2022-48789: the connection is lost at each step from ICReq to the first commands, and the host
/// begins anew while the target still ends the old association.
#[test]
fn a_reset_at_any_moment_of_attaching_leaves_nothing_behind() {
    for micros in (0..3_000).step_by(10) {
        let faults = vec![vec![Fault {
            kind: FaultKind::Reset,
            when: When::Begun(Duration::from_micros(micros)),
        }]];
        let plan = Plan {
            faults,
            commands: 3,
            ..calm()
        };
        assert_eq!(run(plan, micros).associations, 2, "reset after {micros} us");
    }
}
