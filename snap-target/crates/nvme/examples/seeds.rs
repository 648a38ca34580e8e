//! Simulated seeds in any number: both ends of NVMe/TCP against each other with network faults, as `tests/simulation` runs a fixed share of.
//!
//! ```text
//! cargo run --release -p nvme --example seeds -- --seeds 1000000 --jobs 2
//! cargo run --release -p nvme --example seeds -- --seed 77
//! ```
//! Says how far it is, how fast, and how long it will take. At the first seed that fails it stops, names it and how to run it alone, and ends with 1.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a program that panics has found something"
)]
#![allow(dead_code, reason = "the tests use more of it")]

#[path = "../tests/simulation/client.rs"]
mod client;
#[path = "../tests/simulation/extras.rs"]
mod extras;
#[path = "../tests/simulation/host.rs"]
mod host;
#[path = "../tests/simulation/oracle.rs"]
mod oracle;
#[path = "../tests/simulation/plan.rs"]
mod plan;
#[path = "../tests/simulation/reservations.rs"]
mod reservations;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/simulation/workload.rs"]
mod workload;
#[path = "../tests/simulation/world.rs"]
mod world;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use plan::Plan;
use world::{Outcome, World};

const USAGE: &str =
    "usage: seeds [--seeds COUNT] [--from FIRST] [--jobs THREADS] | seeds --seed SEED";
/// Between two lines of progress, on a terminal and elsewhere.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
const REPORT_INTERVAL_PLAIN: Duration = Duration::from_secs(30);
const BAR_CELLS: u64 = 30;

/// What to run.
struct Ask {
    first: u64,
    seeds: u64,
    jobs: u64,
    /// One alone, with its plan printed.
    alone: Option<u64>,
}

impl Ask {
    fn of(mut arguments: impl Iterator<Item = String>) -> Result<Ask, String> {
        let mut ask = Ask {
            first: 0,
            seeds: 10_000,
            jobs: std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
            alone: None,
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or(format!("{name} needs a number"))?;
            let number: u64 = value
                .replace('_', "")
                .parse()
                .map_err(|_| format!("{name} {value}: not a whole number"))?;
            match name.as_str() {
                "--seeds" => ask.seeds = number,
                "--from" => ask.first = number,
                "--jobs" => ask.jobs = number.max(1),
                "--seed" => ask.alone = Some(number),
                _ => return Err(format!("{name} is not known")),
            }
        }
        Ok(ask)
    }
}

/// What all threads share.
struct Shared {
    next: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<u64>>,
    sum: Mutex<Outcome>,
}

fn main() -> ExitCode {
    let ask = match Ask::of(std::env::args().skip(1)) {
        Ok(ask) => ask,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = ask.alone {
        println!("seed {seed}: {:#?}", Plan::of(seed));
        println!("{:?}", run(seed));
        return ExitCode::SUCCESS;
    }
    run_all(&ask)
}

fn run(seed: u64) -> Outcome {
    let plan = Plan::of(seed);
    let commands = plan.commands;
    let outcome = World::new(plan, seed).run();
    assert_eq!(outcome.completed, commands);
    outcome
}

fn run_all(ask: &Ask) -> ExitCode {
    let end = ask.first.saturating_add(ask.seeds);
    let shared = Shared {
        next: AtomicU64::new(ask.first),
        done: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failed: Mutex::new(None),
        sum: Mutex::new(Outcome::default()),
    };
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..ask.jobs {
            scope.spawn(|| work(&shared, end));
        }
        report(&shared, ask.seeds, start);
    });
    let done = shared.done.load(Ordering::Relaxed);
    if let Some(seed) = *shared.failed.lock().unwrap() {
        eprintln!("seed {seed} failed, after {done} that did not");
        eprintln!("alone: cargo run --release -p nvme --example seeds -- --seed {seed}");
        return ExitCode::FAILURE;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{done} seeds from {} on in {seconds:.0} s: none failed",
        ask.first
    );
    println!("{:?}", shared.sum.lock().unwrap());
    ExitCode::SUCCESS
}

fn work(shared: &Shared, end: u64) {
    let mut sum = Outcome::default();
    while !shared.stop.load(Ordering::Relaxed) {
        let seed = shared.next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            break;
        }
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(outcome) => sum = sum.plus(outcome),
            Err(_) => {
                shared.failed.lock().unwrap().get_or_insert(seed);
                shared.stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        shared.done.fetch_add(1, Ordering::Relaxed);
    }
    let mut total = shared.sum.lock().unwrap();
    *total = total.plus(sum);
}

/// Says how far it is until all is done.
fn report(shared: &Shared, seeds: u64, start: Instant) {
    let is_terminal = std::io::stderr().is_terminal();
    let interval = if is_terminal {
        REPORT_INTERVAL
    } else {
        REPORT_INTERVAL_PLAIN
    };
    let mut said_at = start;
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let done = shared.done.load(Ordering::Relaxed);
        let over = done >= seeds || shared.stop.load(Ordering::Relaxed);
        if over || said_at.elapsed() >= interval {
            said_at = Instant::now();
            let rate = done as f64 / start.elapsed().as_secs_f64();
            let left = (seeds - done) as f64 / rate.max(1e-9);
            let filled = (done * BAR_CELLS / seeds.max(1)) as usize;
            let bar = format!(
                "{}{}",
                "#".repeat(filled),
                "-".repeat(BAR_CELLS as usize - filled)
            );
            let line = format!("[{bar}] {done} of {seeds} seeds, {rate:.0}/s, {left:.0} s left");
            if is_terminal {
                eprint!("\r{line}   ");
                let _flushed = std::io::stderr().flush();
            } else {
                eprintln!("{line}");
            }
        }
        if over {
            if is_terminal {
                eprintln!();
            }
            return;
        }
    }
}
