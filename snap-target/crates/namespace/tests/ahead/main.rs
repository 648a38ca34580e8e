//! What is fetched ahead: right bytes, exact counts, and nobody waits for it.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::result_large_err,
    reason = "the error is what is tested, as it comes"
)]

mod books;
#[path = "../support/gated.rs"]
mod gated;
mod hurry;
mod orders;
#[path = "../support/mod.rs"]
mod support;
mod waited;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use namespace::{
    Ahead, Asked, Done, Engine, EngineConfig, Identity, Io, Namespace, NamespaceCounters,
    NamespaceKey, NamespaceSet, Order, OrderEnd, ReaderId,
};
use reactor::{Ring, RingConfig, Wait};
use store::decorate::Limit;
use store::{BlockingStore, OpenOptions, SharedStore, StoreSpec};
use support::{Packed, source};

const BLOCK: usize = 4096;

fn config() -> EngineConfig {
    EngineConfig {
        prefetch_bytes: 32 << 20,
        ..EngineConfig::default()
    }
}

/// A store that answers after a millisecond, so that reading ahead is worth it.
fn slow(store: SharedStore) -> SharedStore {
    limited(store, "1GB/s,latency=1ms")
}

fn limited(store: SharedStore, limit: &str) -> SharedStore {
    let limit: Limit = limit.parse().unwrap();
    limit.over(vec![store]).pop().unwrap()
}

struct Bench {
    ring: Ring,
    engine: Engine,
    key: NamespaceKey,
    ahead: Ahead,
    next: u64,
}

impl Bench {
    fn new(namespace: Namespace, config: &EngineConfig) -> Self {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let (key, ahead) = (namespace.key, namespace.ahead.clone());
        let set = NamespaceSet::new(vec![Arc::new(namespace)]);
        let engine = Engine::new(&ring, &set, config).unwrap();
        Self {
            ring,
            engine,
            key,
            ahead,
            next: 0,
        }
    }

    fn begin(&mut self, lba: u64, blocks: u32) -> Option<Done> {
        self.begin_by(ReaderId::default(), lba, blocks)
    }

    fn begin_by(&mut self, reader: ReaderId, lba: u64, blocks: u32) -> Option<Done> {
        let io = Io::Read {
            lba,
            blocks,
            into: None,
        };
        self.next += 1;
        let asked = Asked {
            reader,
            ..Asked::with(self.next)
        };
        self.engine.submit(self.key, io, asked)
    }

    /// Turns the ring until something is so; what ends meanwhile is appended.
    fn until(&mut self, done: &mut Vec<Done>, is_so: impl Fn(&Self, &[Done]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            // What was submitted since the last turn may have ended without an event.
            self.engine.poll(done);
            if is_so(self, done) {
                return;
            }
            assert!(Instant::now() < deadline, "it does not come to that");
            let wait = if self.engine.has_work() {
                Wait::Poll
            } else {
                Wait::Block {
                    until: Some(deadline),
                }
            };
            self.ring.turn(wait).unwrap();
        }
    }

    fn read(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        self.read_by(ReaderId::default(), lba, blocks)
    }

    fn read_by(&mut self, reader: ReaderId, lba: u64, blocks: u32) -> Vec<u8> {
        let mut done: Vec<Done> = self.begin_by(reader, lba, blocks).into_iter().collect();
        self.until(&mut done, |_, done| !done.is_empty());
        let done = done.pop().unwrap();
        done.result.unwrap();
        done.buf.unwrap().to_vec()
    }

    /// Until nothing is fetched any more.
    fn settle(&mut self) {
        self.until(&mut Vec::new(), |it, _| it.engine.is_drained(it.key));
    }

    /// Until so much of an order is fetched and nothing more is.
    fn settle_order(&mut self, order: &Order, bytes: u64) {
        let fetched = || order.progress().unwrap().fetched_bytes;
        self.until(&mut Vec::new(), |_, _| fetched() >= bytes);
        self.settle();
        assert_eq!(fetched(), bytes);
    }

    /// Where nothing moves: every byte that was fetched ahead is exactly one of these.
    fn assert_books(&self) {
        let counted = self.counters();
        assert_eq!(
            counted.prefetched_bytes,
            counted.prefetch_hit_bytes
                + counted.prefetch_late_bytes
                + counted.prefetch_wasted_bytes
                + counted.prefetch_kept_bytes,
            "{counted:?}"
        );
        let unread = self.engine.unread_bytes() as u64;
        assert_eq!(counted.prefetch_kept_bytes, unread, "what the cache has");
    }

    fn counters(&self) -> NamespaceCounters {
        self.engine.counters()
    }
}

/// Reads all blocks in order, some at a time, and looks at every byte.
fn read_in_order(bench: &mut Bench, content: &[u8], blocks: u64, at_a_time: u64) {
    for lba in (0..blocks).step_by(usize::try_from(at_a_time).unwrap()) {
        let count = at_a_time.min(blocks - lba);
        let found = bench.read(lba, u32::try_from(count).unwrap());
        let start = usize::try_from(lba).unwrap() * BLOCK;
        let end = (start + found.len()).min(content.len());
        assert!(
            found[..end - start] == content[start..end],
            "at block {lba}"
        );
        // So that what was named is there before the next read: the counts are exact.
        bench.settle();
    }
}

/// What was fetched ahead was read, every frame of it, and nothing was fetched twice.
fn view(name: &str, chain: &str, is_framed: bool) {
    let packed = Packed::new(name, chain);
    let stores = vec![slow(packed.store())];
    let mut bench = Bench::new(Namespace::of_view(1, packed.volume(), stores), &config());
    let content = source();
    let blocks = content.len().div_ceil(BLOCK) as u64;
    read_in_order(&mut bench, &content, blocks, 16);
    let counted = bench.counters();
    assert!(counted.prefetched_frames > 0, "{counted:?}");
    assert_eq!(
        counted.prefetch_hits, counted.prefetched_frames,
        "{counted:?}"
    );
    assert_eq!(counted.prefetch_hit_bytes, counted.prefetched_bytes);
    assert_eq!((counted.prefetch_late, counted.prefetch_wasted), (0, 0));
    assert_eq!(counted.delivered_bytes, blocks * BLOCK as u64);
    let without = without_ahead(&packed, &content, blocks);
    assert_eq!(
        counted.table_bytes, without.table_bytes,
        "no block of a table is read twice"
    );
    let frames = content.len().div_ceil(64 << 10) as u64;
    if !is_framed {
        // But for what the first two reads had of the first 64 KiB that were fetched ahead.
        let twice = counted.stored_bytes - without.stored_bytes;
        assert!(twice < 64 << 10, "{twice} bytes were fetched twice");
    }
    if is_framed {
        // 16 blocks are a frame: all but the two reads that showed the stream were ahead.
        assert_eq!(counted.prefetched_frames, frames - 2);
        assert_eq!(counted.frames_decoded, frames);
    }
}

/// What the same reads cost where nothing is read ahead.
fn without_ahead(packed: &Packed, content: &[u8], blocks: u64) -> NamespaceCounters {
    let stores = vec![slow(packed.store())];
    let config = EngineConfig {
        prefetch_bytes: 0,
        ..config()
    };
    let mut bench = Bench::new(Namespace::of_view(1, packed.volume(), stores), &config);
    read_in_order(&mut bench, content, blocks, 16);
    bench.counters()
}

/// Tables of several blocks: of each the next block is there before the frames that it names are wanted.
#[test]
fn small_frames_in_order() {
    let packed = Packed::with_frames("ahead-small", "u16+lz4", 4096);
    let stores = vec![slow(packed.store())];
    let mut bench = Bench::new(Namespace::of_view(1, packed.volume(), stores), &config());
    let content = source();
    let blocks = content.len().div_ceil(BLOCK) as u64;
    read_in_order(&mut bench, &content, blocks, 16);
    let counted = bench.counters();
    let without = without_ahead(&packed, &content, blocks);
    // A frame of 4 KiB as it is packed is 8 KiB of the disk: 84 of them, 24 bytes each, and more are several blocks.
    assert!(without.table_bytes > 3 * 4096, "{without:?}");
    assert_eq!(counted.table_bytes, without.table_bytes);
    assert_eq!(counted.frames_decoded, without.frames_decoded);
    assert_eq!(counted.prefetch_hits, counted.prefetched_frames);
}

#[test]
fn a_framed_view_in_order() {
    view("ahead-lz4", "u16+lz4", true);
    view("ahead-zstd", "u16+zstd:1", true);
}

#[test]
fn a_view_without_frames_in_order() {
    view("ahead-u16", "u16", false);
    view("ahead-18", "bitpack:18", false);
    view("ahead-none", "none", false);
}

fn raw(is_immutable: bool, write_protected: bool) -> (Bench, Vec<u8>) {
    let (mut namespace, content) = raw_over(slow);
    namespace.is_immutable = is_immutable;
    namespace.write_protected = write_protected;
    (Bench::new(namespace, &config()), content)
}

/// A raw store of 8 MiB that nobody changes, behind what makes it another one.
fn raw_over(other: impl Fn(SharedStore) -> SharedStore) -> (Namespace, Vec<u8>) {
    let (store, content) = filled(8 << 20);
    let mut namespace = Namespace::of_store(1, other(store), Identity { uuid: [1; 16] }, 4096);
    namespace.is_immutable = true;
    namespace.write_protected = true;
    (namespace, content)
}

/// A store in memory, and what is in it.
fn filled(bytes: u64) -> (SharedStore, Vec<u8>) {
    let words = u32::try_from(bytes / 4).unwrap();
    let content: Vec<u8> = (0..words)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let store = SharedStore::open(&StoreSpec::Mem { bytes }, OpenOptions::read_write()).unwrap();
    BlockingStore::new(&store)
        .unwrap()
        .write(0, &content)
        .unwrap();
    (store, content)
}

#[test]
fn a_raw_store_that_nobody_changes_in_order() {
    let (mut bench, content) = raw(true, true);
    let blocks = (content.len() / BLOCK) as u64;
    read_in_order(&mut bench, &content, blocks, 32);
    let counted = bench.counters();
    // Two reads of 128 KiB showed the stream.
    let ahead = content.len() as u64 - (256 << 10);
    assert_eq!(counted.prefetched_bytes, ahead);
    assert_eq!(counted.prefetch_hit_bytes, ahead);
    assert_eq!(counted.stored_bytes, content.len() as u64, "nothing twice");
    assert_eq!((counted.prefetch_late, counted.prefetch_wasted), (0, 0));
}

/// The reads of two hosts in turns: neither is a stream with those of the other between, and each is one for itself.
#[test]
fn streams_are_found_for_each_reader() {
    let (mut bench, content) = raw(true, true);
    // 64 KiB of each 256 KiB; one host in the first half of the disk, the other in the second and between what the first's strides would be there.
    let (blocks, stride, half) = (16_u32, 64_u64, 1024_u64);
    for n in 0..half / stride {
        for (reader, first) in [(1, 0), (2, half + stride / 2)] {
            let lba = first + n * stride;
            let found = bench.read_by(ReaderId(reader), lba, blocks);
            let start = usize::try_from(lba).unwrap() * BLOCK;
            assert!(found[..] == content[start..start + found.len()], "{lba}");
            bench.settle();
        }
    }
    let counted = bench.counters();
    // But for the three reads of each that showed the stream.
    let reads = 2 * (half / stride - 3);
    assert_eq!(counted.prefetch_hit_bytes, reads * 16 * BLOCK as u64);
}

#[test]
fn a_raw_store_that_may_change_is_not_read_ahead() {
    for (is_immutable, write_protected) in [(false, false), (false, true), (true, false)] {
        let (mut bench, content) = raw(is_immutable, write_protected);
        read_in_order(&mut bench, &content, 512, 32);
        assert_eq!(bench.counters().prefetched_frames, 0);
    }
}

#[test]
fn without_a_budget_nothing_is_read_ahead() {
    let packed = Packed::new("ahead-off", "u16+lz4");
    let config = EngineConfig {
        prefetch_bytes: 0,
        ..config()
    };
    let stores = vec![slow(packed.store())];
    let mut bench = Bench::new(Namespace::of_view(1, packed.volume(), stores), &config);
    read_in_order(&mut bench, &source(), 200, 16);
    assert_eq!(bench.counters().prefetched_frames, 0);
}

#[test]
fn a_fast_store_is_not_read_ahead() {
    let packed = Packed::new("ahead-fast", "u16+lz4");
    let mem = SharedStore::open(
        &StoreSpec::Mem {
            bytes: packed.store().bytes(),
        },
        OpenOptions::read_write(),
    )
    .unwrap();
    let mut bytes = vec![0; usize::try_from(mem.bytes()).unwrap()];
    BlockingStore::new(&packed.store())
        .unwrap()
        .read(0, &mut bytes)
        .unwrap();
    BlockingStore::new(&mem).unwrap().write(0, &bytes).unwrap();
    let namespace = Namespace::of_view(1, packed.volume(), vec![mem]);
    let mut bench = Bench::new(namespace, &config());
    read_in_order(&mut bench, &source(), 200, 16);
    assert_eq!(bench.counters().prefetched_frames, 0);
}

#[test]
fn what_nobody_reads_is_counted_as_wasted_when_it_leaves() {
    let (mut bench, content) = raw(true, true);
    read_in_order(&mut bench, &content, 96, 32);
    let fetched = bench.counters().prefetched_bytes;
    let hit = bench.counters().prefetch_hit_bytes;
    assert!(fetched > hit);
    bench.engine.retire(bench.key);
    bench.engine.detach(bench.key);
    bench.until(&mut Vec::new(), |it, _| !it.engine.is_attached(it.key));
    let counted = bench.counters();
    assert_eq!(counted.prefetch_wasted_bytes, fetched - hit);
    assert_eq!(
        counted.prefetched_frames,
        counted.prefetch_hits + counted.prefetch_wasted
    );
    assert_eq!(counted.prefetch_kept_bytes, 0);
    bench.assert_books();
}

#[test]
fn a_read_of_what_is_on_its_way_waits_for_it_and_is_late() {
    let (mut bench, content) = raw(true, true);
    bench.read(0, 32);
    // The second read names what follows, and the third wants the first two frames of that.
    assert!(bench.begin(32, 32).is_none());
    assert!(bench.begin(64, 32).is_none());
    let mut done = Vec::new();
    bench.until(&mut done, |_, done| done.len() == 2);
    let third = done.into_iter().find(|done| done.token == 3).unwrap();
    let found = third.buf.unwrap().to_vec();
    assert!(found == content[64 * BLOCK..96 * BLOCK]);
    bench.settle();
    let counted = bench.counters();
    assert_eq!((counted.prefetch_late, counted.prefetch_hits), (2, 0));
    assert_eq!(counted.prefetch_late_bytes, 128 << 10);
    bench.assert_books();
}
