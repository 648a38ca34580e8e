//! After warm-up, engines that share frames allocate nothing for a read: counted by the allocator itself.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::result_large_err,
    reason = "the error is what is tested, as it comes"
)]

mod support;

#[path = "frames/crew.rs"]
#[allow(dead_code, reason = "a part of it is used here")]
mod crew;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use namespace::{Done, EngineConfig, FrameConfig, FrameWorkers, Identity, Namespace};
use store::{OpenOptions, SharedStore, StoreSpec};

use crew::Crew;
use support::Packed;

struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

// SAFETY: every call goes on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads of several sizes, some of them of the same frames at once, by every engine.
fn round(crew: &mut Crew, done: &mut Vec<Done>) {
    for (n, blocks) in (0..200u64).zip([1, 4, 32].into_iter().cycle()) {
        let lba = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % 200;
        for member in 0..crew.members.len() {
            crew.submit(member, lba, blocks, n);
        }
        let mut answered = 0;
        while answered < crew.members.len() {
            crew.turn_into(done);
            for done in done.drain(..) {
                done.result.unwrap();
                answered += 1;
            }
        }
    }
}

fn allocations_of_a_warm_round(
    name: &str,
    chain: &str,
    config: &EngineConfig,
    served: fn(Namespace) -> Namespace,
) -> u64 {
    let packed = Packed::new(name, chain);
    let namespace = served(Namespace::of_view(1, packed.volume(), vec![packed.store()]));
    let mut crew = Crew::new(2, namespace, config);
    let mut done = Vec::new();
    for _ in 0..3 {
        round(&mut crew, &mut done);
    }
    let before = ALLOCATIONS.get();
    round(&mut crew, &mut done);
    ALLOCATIONS.get() - before
}

/// The first part of a mixed namespace, which the reads stay in.
fn before_memory(view: Namespace) -> Namespace {
    let spec = StoreSpec::Mem { bytes: 1 << 20 };
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    let memory = Namespace::of_store(1, store, Identity::of_raw("test", b"memory"), 4096);
    Namespace::mixed(1, "mix".into(), vec![view, memory]).unwrap()
}

#[test]
fn shared_frames_are_read_without_an_allocation() {
    // A cache that holds a part of the frames: they come and go.
    let here = EngineConfig {
        cache_bytes: 1 << 20,
        ..EngineConfig::default()
    };
    let workers = FrameWorkers::start(1, 2).unwrap();
    let by_worker = EngineConfig {
        frames: FrameConfig {
            workers: Some(workers.queue()),
            decode_inline_ns_max: 0,
            ..FrameConfig::default()
        },
        ..here.clone()
    };
    for (name, chain, config, served) in [
        (
            "none-here",
            "lz4",
            &here,
            (|view| view) as fn(Namespace) -> Namespace,
        ),
        ("none-by-worker", "zstd:1", &by_worker, |view| view),
        ("none-in-a-part", "lz4", &here, before_memory),
    ] {
        assert_eq!(
            allocations_of_a_warm_round(name, chain, config, served),
            0,
            "{name}"
        );
    }
}
