//! A queue over a file in the driver's place: descriptors at its beginning, data of requests where the driver has them. It takes no commands, so tests say
//! which requests begin.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use namespace::{EngineConfig, NamespaceSet};
use reactor::buf::PoolConfig;
use reactor::{RingConfig, Wait};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
/// Writes of 1 MiB: one after the other.
const SECTORS: u32 = 2048;

struct Bench {
    ring: Ring,
    engine: Engine,
    queue: Queue,
}

/// A queue of two writes, an engine that has memory for one, and no namespace.
fn bench() -> Bench {
    let ring = Ring::new(&RingConfig::default()).unwrap();
    let pool = PoolConfig {
        slots_1m: 1,
        register: false,
        ..PoolConfig::default()
    };
    let config = EngineConfig {
        pool,
        ..EngineConfig::default()
    };
    let engine = Engine::new(&ring, &NamespaceSet::new(Vec::new()), &config).unwrap();
    let file = tempfile::tempfile().unwrap();
    // Sparse: as far as the data of the second request.
    file.set_len(copy_offset(0, 2, 0)).unwrap();
    for tag in 0..2_u32 {
        let mut descriptor = [0; 24];
        // UBLK_IO_OP_WRITE.
        descriptor[0] = 1;
        descriptor[4..8].copy_from_slice(&SECTORS.to_le_bytes());
        descriptor[8..16].copy_from_slice(&u64::from(tag * SECTORS).to_le_bytes());
        file.write_all_at(&descriptor, u64::from(tag) * 24).unwrap();
    }
    let start = Start {
        id: QueueId::next(),
        name: "ublkb0/0".to_owned(),
        number: 0,
        depth: 2,
        descriptors: Descriptors::map(file.as_fd(), 0, 2).unwrap(),
        file: file.into(),
        disk: Arc::new(crate::disk::tests::disk()),
    };
    let make = |_, tag| u64::from(tag);
    let queue = Queue::new(&ring, Tokens { make }, start).unwrap();
    Bench {
        ring,
        engine,
        queue,
    }
}

impl Bench {
    /// Both writes come: the second finds no memory.
    fn begin(&mut self) {
        self.queue.begin(0, &mut self.engine);
        self.queue.begin(1, &mut self.engine);
        assert_eq!(self.queue.starved, [1]);
    }

    /// Turns until a write has its data.
    fn copy(&mut self) {
        let until = Instant::now() + PATIENCE;
        while self.queue.ready.is_empty() {
            assert!(Instant::now() < until, "no data");
            self.ring.turn(Wait::Block { until: Some(until) }).unwrap();
            while self.ring.next_ready().is_some() {}
            self.queue.ready(&mut self.engine);
        }
    }
}

#[test]
fn a_write_that_waits_for_its_namespace_leaves_its_memory_to_others() {
    let mut bench = bench();
    bench.begin();
    bench.copy();
    bench.queue.settle(&mut bench.engine);
    assert_eq!(bench.queue.detached, [0]);
    assert!(!bench.queue.is_starved(), "the second has what it had");
    assert!(bench.queue.has_freed());

    // Another namespace takes the place: the first is staged again, behind the second.
    bench.queue.set_disk(Arc::new(crate::disk::tests::disk()));
    bench.queue.settle(&mut bench.engine);
    assert_eq!(bench.queue.starved, [0]);
    // That one is gone as well.
    bench.copy();
    bench.queue.settle(&mut bench.engine);
    assert_eq!(bench.queue.detached, [1]);
    assert!(!bench.queue.is_starved());
    bench.copy();
    assert_eq!(bench.queue.ready, [0], "with its data");
    assert_eq!(bench.queue.begun, 2, "none has ended");
}

#[test]
fn what_fails_at_its_namespace_gives_way_to_what_waits_for_memory_in_the_same_turn() {
    let mut bench = bench();
    bench.begin();
    bench.copy();
    // The wait for a namespace is over.
    bench.queue.detached_until = Some(Instant::now());
    bench.queue.settle(&mut bench.engine);
    assert_eq!(bench.queue.begun, 1, "the first has failed");
    assert!(!bench.queue.is_starved());
    assert!(bench.queue.has_freed());
    bench.queue.settle(&mut bench.engine);
    assert!(!bench.queue.has_freed(), "told once");
}

#[test]
fn a_write_without_memory_fails_at_its_deadline_and_a_timer_comes_by_then() {
    let mut bench = bench();
    bench.begin();
    bench.queue.settle(&mut bench.engine);
    assert_eq!(bench.queue.starved, [1]);
    assert_eq!(bench.queue.starved_until, bench.queue.tags[1].deadline);
    assert!(bench.queue.starved_until.is_some());

    bench.queue.tags[1].deadline = Some(Instant::now());
    bench.queue.settle(&mut bench.engine);
    assert!(!bench.queue.is_starved());
    assert_eq!(bench.queue.begun, 1, "the first goes on");
}
