//! How decoding of frames scales to the worker pool: one engine reads a volume from the page cache, everything in frames, again and again.
//!
//! `cargo bench -p namespace --bench workers`: the engine decodes by itself, or workers do, 1 and as many as there are processors, by turns. GB (10^9) of presented bytes a
//! second of elapsed time, the median of the rounds and the best, which is what a busy machine can tell. The engine's own thread, which fetches, copies and answers, wants a part of a processor as well.

#![allow(clippy::unwrap_used, reason = "a benchmark: a panic is the report")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use namespace::{
    Asked, Done, Engine, EngineConfig, FrameConfig, FrameWorkers, Io, Namespace, NamespaceKey,
    NamespaceSet,
};
use reactor::{Ring, RingConfig, Wait};

use support::Packed;

const SOURCE_BYTES: usize = 32 << 20;
/// Much less than the source: every frame is decoded each time.
const CACHE_BYTES: usize = 4 << 20;
const LBA_BYTES: u32 = 4096;
const READ_BLOCKS: u32 = 64;
const READS_IN_FLIGHT: usize = 8;
const ROUNDS: usize = 41;

/// A volume of token ids.
fn packed(chain: &str) -> Packed {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures/data");
    let ids = std::fs::read(data.join("r50k-u32.bin")).unwrap();
    let source: Vec<u8> = ids.iter().copied().cycle().take(SOURCE_BYTES).collect();
    Packed::of("workers", chain, &source)
}

/// An engine with its ring, and the workers it has.
struct Reader {
    ring: Ring,
    engine: Engine,
    key: NamespaceKey,
    _workers: Option<FrameWorkers>,
}

impl Reader {
    fn new(packed: &Packed, workers: usize) -> Reader {
        let workers = (workers > 0).then(|| FrameWorkers::start(workers, 1).unwrap());
        let config = EngineConfig {
            cache_bytes: CACHE_BYTES,
            frames: FrameConfig {
                workers: workers.as_ref().map(FrameWorkers::queue),
                // All of them go to the workers, where there are any.
                decode_inline_ns_max: 0,
                ..FrameConfig::default()
            },
            ..EngineConfig::default()
        };
        let namespace = Namespace::of_view(1, packed.volume(), vec![packed.store()]);
        let key = namespace.key;
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let set = NamespaceSet::new(vec![Arc::new(namespace)]);
        let mut engine = Engine::new(&ring, &set, &config).unwrap();
        let peers = [engine.peer()];
        engine.meet(0, &peers);
        Reader {
            ring,
            engine,
            key,
            _workers: workers,
        }
    }

    /// Seconds for all of the source, from the front to the back.
    fn read_all(&mut self) -> f64 {
        let reads = SOURCE_BYTES as u64 / u64::from(READ_BLOCKS * LBA_BYTES);
        let (mut begun, mut answered) = (0, 0);
        let mut done: Vec<Done> = Vec::new();
        let start = Instant::now();
        while answered < reads {
            while begun < reads && begun - answered < READS_IN_FLIGHT as u64 {
                let read = Io::Read {
                    lba: begun * u64::from(READ_BLOCKS),
                    blocks: READ_BLOCKS,
                    into: None,
                };
                done.extend(self.engine.submit(self.key, read, Asked::with(begun)));
                begun += 1;
            }
            let wait = match done.is_empty() && !self.engine.has_work() {
                true => Wait::Block { until: None },
                false => Wait::Poll,
            };
            self.ring.turn(wait).unwrap();
            while self.ring.next_ready().is_some() {}
            self.engine.poll(&mut done);
            for done in done.drain(..) {
                done.result.unwrap();
                answered += 1;
            }
        }
        start.elapsed().as_secs_f64()
    }
}

fn main() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    println!("{processors} processors; {ROUNDS} rounds of each by turns\n");
    println!(
        "{:<12} {:>8} {:>7} {:>13} {:>7} {:>13}",
        "chain", "workers", "median", "x one worker", "best", "x one worker"
    );
    for chain in ["u16+zstd:3", "u16+lz4hc:9"] {
        let packed = packed(chain);
        let counts = [1, processors, 0];
        let mut readers = counts.map(|workers| Reader::new(&packed, workers));
        let mut rates = [const { Vec::new() }; 3];
        for round in 0..=ROUNDS {
            for (reader, rates) in readers.iter_mut().zip(&mut rates) {
                let seconds = reader.read_all();
                // One round for the page cache and the tables.
                if round > 0 {
                    rates.push(SOURCE_BYTES as f64 / 1e9 / seconds);
                }
            }
        }
        for rates in &mut rates {
            rates.sort_by(f64::total_cmp);
        }
        let (median, best) = (
            |rates: &[f64]| rates[ROUNDS / 2],
            |rates: &[f64]| rates[ROUNDS - 1],
        );
        let one = &rates[0];
        for (workers, rates) in counts.iter().zip(&rates) {
            println!(
                "{chain:<12} {workers:>8} {:>7.2} {:>13.2} {:>7.2} {:>13.2}",
                median(rates),
                median(rates) / median(one),
                best(rates),
                best(rates) / best(one),
            );
        }
    }
}
