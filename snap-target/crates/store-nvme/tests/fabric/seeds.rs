//! The whole store, seed by seed.
//!
//! A fixed share of seeds runs in the tests; `XIO_SIM_SEEDS=10000 cargo test -p store-nvme --test fabric` runs more, and `XIO_SIM_SEED=77` runs one
//! alone, with its plan printed.

use crate::plan::Plan;
use crate::world::{Outcome, World};

const SEEDS_DEFAULT: u64 = 200;
const THREADS: u64 = 2;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

fn run(seed: u64) -> Outcome {
    let plan = Plan::of(seed);
    let operations = plan.operations;
    let outcome = World::new(plan).run();
    assert_eq!(outcome.completed, operations);
    outcome
}

#[test]
fn whatever_the_store_says_agrees_with_the_disk() {
    if let Some(seed) = variable("XIO_SIM_SEED") {
        println!("seed {seed}: {:#?}", Plan::of(seed));
        println!("{:?}", run(seed));
        return;
    }
    let seeds = variable("XIO_SIM_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let first = variable("XIO_SIM_FROM").unwrap_or(0);
    let sum = std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            scope.spawn(move || {
                let seeds = (first + thread..first + seeds).step_by(THREADS as usize);
                seeds.map(run_named).fold(Outcome::default(), Outcome::plus)
            })
        });
        let threads: Vec<_> = threads.collect();
        let outcomes = threads.into_iter().map(|thread| thread.join().unwrap());
        outcomes.fold(Outcome::default(), Outcome::plus)
    });
    println!("{sum:?}");
    // Otherwise there were no faults worth the name.
    assert!(
        sum.unreachable > 0 && sum.unsettled > 0 && sum.refused > 0,
        "{sum:?}"
    );
    assert!(
        sum.network.expired > 0 && sum.network.late_bytes > 0,
        "{sum:?}"
    );
}

fn run_named(seed: u64) -> Outcome {
    std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| {
        panic!("seed {seed} failed; alone: XIO_SIM_SEED={seed} cargo test -p store-nvme --test fabric whatever")
    })
}
