//! Engines on threads of their own, with memory and queues for hardly anything, against the source's bytes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use namespace::{
    Asked, Engine, EngineConfig, FrameConfig, FrameWorkers, Io, NamespaceCounters, NamespaceSet,
    Peer,
};
use reactor::buf::PoolConfig;
use reactor::{Wait, Waker};

use crate::crew::Member;
use crate::support::{ELEMENTS, Packed, source};
use crate::{BLOCK, expected, namespace};

/// Requests that each engine has under way.
const DEPTH: u64 = 6;
/// Random runs of blocks that each engine reads, after each block alone.
const RUNS: u64 = 60;
/// A test that takes this long hangs.
const TOO_LONG: Duration = Duration::from_secs(120);

/// Memory for one request at a time, and a cache that holds a part of the frames.
fn tiny() -> EngineConfig {
    EngineConfig {
        pool: PoolConfig {
            slots_4k: 1,
            slots_16k: 1,
            slots_64k: 1,
            slots_128k: 1,
            slots_1m: 1,
            register: false,
        },
        // Raised to the least that a cache has: 1 MiB.
        cache_bytes: 0,
        frames: FrameConfig {
            messages_max: 1,
            jobs_max: 1,
            turn_decode_ns_max: 1,
            ..FrameConfig::default()
        },
        ..EngineConfig::default()
    }
}

/// The reads of one engine: every block alone, in an order of its own, then runs.
struct Reads {
    next: u64,
    blocks: u64,
    state: u64,
}

impl Reads {
    fn random(&mut self, below: u64) -> u64 {
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.state >> 33) % below
    }

    fn next(&mut self) -> Option<(u64, u32)> {
        let n = self.next;
        self.next += 1;
        if n < self.blocks {
            // 131 and the number of blocks have no common divisor: each comes once.
            return Some((n * 131 % self.blocks, 1));
        }
        if n >= self.blocks + RUNS {
            return None;
        }
        let count = 1 + self.random(self.blocks.min(255));
        let lba = self.random(self.blocks - count + 1);
        Some((lba, u32::try_from(count).unwrap()))
    }
}

struct Outcome {
    counters: NamespaceCounters,
    used_bytes_max: usize,
    evictions: u64,
}

struct Crowd {
    set: NamespaceSet,
    config: EngineConfig,
    whole: Vec<u8>,
    finished: AtomicUsize,
    wakers: Mutex<Vec<Waker>>,
    count: usize,
}

impl Crowd {
    /// Reads until everything is read, and serves the others until they have, too.
    fn run(
        &self,
        index: u16,
        known: &mpsc::Sender<(u16, Peer)>,
        peers: &mpsc::Receiver<Vec<Peer>>,
    ) -> Outcome {
        let mut member = Member::new(&self.set, &self.config);
        self.wakers.lock().unwrap().push(member.ring.waker());
        known.send((index, member.engine.peer())).unwrap();
        member.engine.meet(index, &peers.recv().unwrap());
        let (blocks, key) = (self.set.all()[0].blocks, self.set.all()[0].key);
        let mut reads = Reads {
            next: 0,
            blocks,
            state: u64::from(index) + 1,
        };
        let start = Instant::now();
        let (mut under_way, mut has_finished) = (0, false);
        let mut done = Vec::new();
        while self.finished.load(Ordering::SeqCst) < self.count {
            assert!(start.elapsed() < TOO_LONG, "engine {index} hangs");
            while under_way < DEPTH
                && let Some((lba, count)) = reads.next()
            {
                under_way += 1;
                let io = Io::Read {
                    lba,
                    blocks: count,
                    into: None,
                };
                let token = lba << 32 | u64::from(count);
                done.extend(member.engine.submit(key, io, Asked::with(token)));
            }
            member.engine.poll(&mut done);
            let answered = !done.is_empty();
            for done in done.drain(..) {
                under_way -= 1;
                done.result.unwrap();
                let (lba, count) = (done.token >> 32, done.token & 0xFFFF_FFFF);
                assert!(
                    done.buf.unwrap().to_vec() == expected(&self.whole, lba, count),
                    "engine {index}, {count} blocks at {lba}"
                );
            }
            if under_way == 0 && !has_finished && !answered {
                has_finished = true;
                self.finished.fetch_add(1, Ordering::SeqCst);
                for waker in &*self.wakers.lock().unwrap() {
                    waker.wake();
                }
            }
            // It sleeps whenever it may: a wake-up that gets lost is a test that hangs.
            let wait = match answered || member.engine.has_work() {
                true => Wait::Poll,
                false => Wait::Block {
                    until: Some(Instant::now() + TOO_LONG),
                },
            };
            member.ring.turn(wait).unwrap();
            while member.ring.next_ready().is_some() {}
        }
        assert!(!member.engine.is_busy());
        outcome(&member.engine)
    }
}

fn outcome(engine: &Engine) -> Outcome {
    Outcome {
        counters: engine.counters(),
        used_bytes_max: engine.cache_counters().used_bytes_max,
        evictions: engine.cache_counters().evictions,
    }
}

fn crowd(name: &str, chain: &str, count: u16, config: EngineConfig) -> Vec<Outcome> {
    let outcomes = read_by_crowd(&Packed::new(name, chain), count, config);
    for outcome in &outcomes {
        assert!(
            outcome.used_bytes_max <= volume::limits::CACHE_BYTES_MIN,
            "{} bytes of cache were used",
            outcome.used_bytes_max
        );
    }
    outcomes
}

fn read_by_crowd(packed: &Packed, count: u16, config: EngineConfig) -> Vec<Outcome> {
    let crowd = Arc::new(Crowd {
        set: NamespaceSet::new(vec![Arc::new(namespace(packed))]),
        config,
        whole: source(),
        finished: AtomicUsize::new(0),
        wakers: Mutex::new(Vec::new()),
        count: usize::from(count),
    });
    assert_ne!(crowd.set.all()[0].blocks % 131, 0);
    let (known_to, known) = mpsc::channel();
    let mut introductions = Vec::new();
    let mut threads = Vec::new();
    for index in 0..count {
        let (peers_to, peers) = mpsc::channel();
        introductions.push(peers_to);
        let (crowd, known_to) = (crowd.clone(), known_to.clone());
        threads.push(std::thread::spawn(move || {
            crowd.run(index, &known_to, &peers)
        }));
    }
    let mut peers: Vec<_> = (0..count).map(|_| known.recv().unwrap()).collect();
    peers.sort_by_key(|(index, _)| *index);
    let peers: Vec<_> = peers.into_iter().map(|(_, peer)| peer).collect();
    for introduction in introductions {
        introduction.send(peers.clone()).unwrap();
    }
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect()
}

fn sum(outcomes: &[Outcome], counter: impl Fn(NamespaceCounters) -> u64) -> u64 {
    outcomes
        .iter()
        .map(|outcome| counter(outcome.counters))
        .sum()
}

#[test]
fn one_place_of_everything_is_enough_for_engines_that_need_each_other() {
    for count in [2, 3] {
        let outcomes = crowd(&format!("crowd-{count}"), "u16+lz4", count, tiny());
        assert!(sum(&outcomes, |counters| counters.cross_reactor_wants) > 0);
        assert!(sum(&outcomes, |counters| counters.parked) > 0);
    }
}

#[test]
fn one_worker_with_one_place_is_enough() {
    for count in [1, 2, 3] {
        let workers = FrameWorkers::with_capacity(1, 1).unwrap();
        let mut config = tiny();
        config.frames.workers = Some(workers.queue());
        config.frames.decode_inline_ns_max = 0;
        let outcomes = crowd(
            &format!("crowd-by-worker-{count}"),
            "u16+zstd:1",
            count,
            config,
        );
        let decoded = sum(&outcomes, |counters| counters.frames_decoded);
        assert_eq!(
            sum(&outcomes, |counters| counters.frames_decoded_by_workers),
            decoded
        );
        drop(workers);
    }
}

#[test]
fn a_cache_that_holds_a_part_of_the_frames_is_enough() {
    let outcomes = crowd("crowd-evicted", "lz4", 1, tiny());
    assert!(
        outcomes[0].evictions > 0,
        "1.2 MB of frames in a cache of 1 MiB"
    );
    crowd("crowd-evicted-3", "lz4", 3, tiny());
}

/// One frame holds everything: it is longer than a fetch, than all staging, and than the cache, which holds it alone.
#[test]
fn a_frame_longer_than_a_fetch_comes_in_parts() {
    let workers = FrameWorkers::with_capacity(1, 1).unwrap();
    let mut by_worker = tiny();
    by_worker.frames.workers = Some(workers.queue());
    by_worker.frames.decode_inline_ns_max = 0;
    for (name, config) in [("long", tiny()), ("long-by-worker", by_worker)] {
        let packed = Packed::with_frames(name, "shuffle", 4 << 20);
        let bytes = u64::from(ELEMENTS) * 4;
        for outcome in read_by_crowd(&packed, 2, config) {
            let counters = outcome.counters;
            assert!(outcome.used_bytes_max < 2 * 1_200_000);
            assert_eq!(counters.frame_fetches, 2 * counters.frames_decoded);
            let fetched = counters.frames_decoded * bytes.next_multiple_of(BLOCK);
            assert!(
                counters.stored_bytes == fetched,
                "nothing else is fetched as data"
            );
        }
    }
}
