//! What counting costs: nanoseconds of one command's share, of an event, and of a look at the clock beside them. One core, everything in its cache.
//!
//! `cargo bench -p telemetry --bench cost`. Least and median of some runs.

use std::hint::black_box;
use std::time::Instant;

use nvme_spec::Status;
use telemetry::{
    CommandKind, Ended, Event, EventKind, Histogram, StatusClass, Telemetry, TelemetryConfig,
};

const RUNS: usize = 21;
const COUNT: u64 = 1_000_000;

fn main() {
    let telemetry = Telemetry::new(&TelemetryConfig::default());
    let Some(reactor) = telemetry.reactor(0) else {
        return;
    };
    let row = reactor.host("nqn.s", "nqn.h", 1, [7; 16]);
    measure("a command: begun, ended", |number| {
        row.begun();
        row.ended(&Ended {
            kind: black_box(CommandKind::Read),
            error: StatusClass::of(black_box(Status::SUCCESS)),
            bytes: black_box(4096),
            ns: black_box(20_000 + (number & 0xFFFF)),
            at_ns: black_box(number),
        });
    });
    let histogram = Histogram::default();
    measure("of it: the histogram", |number| {
        histogram.record(black_box(20_000 + (number & 0xFFFF)));
    });
    measure("an event", |number| {
        reactor.record(number, black_box(&Event::new(EventKind::SlowCommand)));
    });
    measure("a look at the clock", |_| {
        black_box(Instant::now());
    });
}

fn measure(what: &str, mut run: impl FnMut(u64)) {
    let mut picoseconds: Vec<u128> = (0..RUNS)
        .map(|_| {
            let begun = Instant::now();
            (0..COUNT).for_each(&mut run);
            begun.elapsed().as_nanos() * 1000 / u128::from(COUNT)
        })
        .collect();
    picoseconds.sort_unstable();
    let ns = |ps: u128| format!("{}.{:02}", ps / 1000, ps % 1000 / 10);
    println!(
        "{what:<28} {:>7} ns, median {:>7} ns",
        ns(picoseconds[0]),
        ns(picoseconds[RUNS / 2])
    );
}
