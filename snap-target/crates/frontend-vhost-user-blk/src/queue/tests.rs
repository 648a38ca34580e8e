//! A queue, its guest's memory, and an engine without memory: what waits for room, and how long.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

use std::time::Duration;

use frontend_nvme::conformance::disk;
use guest_memory::{Access, Shared, Window};
use namespace::{EngineConfig, NamespaceSet};
use reactor::buf::PoolConfig;
use reactor::{RingConfig, Wait};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use store::{OpenOptions, SharedStore, StoreSpec};
use virtio_ring::{Format, Options};

use super::*;
use crate::limits::REQUEST_PATIENCE;

const GUEST: u64 = 0x10_0000;
const MEMORY_BYTES: u64 = 8 << 20;
const SIZE: u16 = 16;
/// Where in the guest's memory areas and a request lie.
const AVAILABLE: usize = 0x1000;
const USED: usize = 0x2000;
const HEADER: usize = 0x3000;
const STATUS: usize = 0x4000;
const DATA: usize = 0x10_0000;
const DATA_BYTES: u32 = 64 << 10;
const UNTOUCHED: u8 = 0xAA;
const IO_ERROR: u8 = 1;
const PATIENCE: Duration = Duration::from_secs(20);

struct Bench {
    reactor: Reactor,
    engine: Engine,
    queue: Queue,
    memory: Arc<Shared>,
    counters: Arc<Counters>,
    /// All that the engine has.
    taken: Vec<IoBuf>,
    chains: u16,
}

/// A queue, and an engine whose memory somebody else has. Its disk's store takes no guest memory.
fn bench() -> Bench {
    bench_of(false)
}

/// The same, where the store works on the guest's memory if `direct`.
fn bench_of(direct: bool) -> Bench {
    let reactor = Reactor::new(&RingConfig::default()).unwrap();
    let config = EngineConfig {
        pool: PoolConfig {
            slots_1m: 1,
            register: false,
            ..PoolConfig::default()
        },
        ..EngineConfig::default()
    };
    let spec = StoreSpec::Mem {
        bytes: MEMORY_BYTES,
    };
    let namespace = disk(SharedStore::open(&spec, OpenOptions::read_write()).unwrap());
    let set = NamespaceSet::new(vec![Arc::new(namespace.clone())]);
    let engine = Engine::new(&reactor, &set, &config).unwrap();
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, MEMORY_BYTES).unwrap();
    let memory =
        Arc::new(Shared::map(&file, 0, MEMORY_BYTES, Access::BOTH, Arc::default(), ()).unwrap());
    let window = Window {
        address: GUEST,
        size: MEMORY_BYTES,
        access: Access::BOTH,
        memory: Some(memory.clone()),
    };
    let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let counters = Arc::<Counters>::default();
    let start = Start {
        id: QueueId::next(),
        name: "disk/0".to_owned(),
        layout: Layout {
            format: Format::Split,
            size: SIZE,
            descriptors: GUEST,
            driver: GUEST + AVAILABLE as u64,
            device: GUEST + USED as u64,
        },
        options: Options {
            indirect: false,
            event_index: false,
        },
        position: Position(0),
        record: None,
        windows: Arc::new(Windows::default().with(window, 1).unwrap()),
        kick: event(),
        call: Some(event()),
        error: None,
        writeback: true,
        is_foreign: false,
        holds_until: None,
        disk: Arc::new(Disk {
            direct,
            ..Disk::of(&namespace)
        }),
        counters: counters.clone(),
    };
    let make = |_, request| u64::from(request);
    let queue = Queue::new(&reactor, Tokens { make }, start, Held::default()).unwrap();
    let taken = std::iter::from_fn(|| engine.alloc(DATA_BYTES as usize)).collect();
    Bench {
        reactor,
        engine,
        queue,
        memory,
        counters,
        taken,
        chains: 0,
    }
}

impl Bench {
    fn ram(&self) -> guest_memory::Area {
        guest_memory::Area::whole(&self.memory).unwrap()
    }

    /// VIRTIO_BLK_T_OUT.
    fn write(&mut self) {
        // NEXT.
        self.request(1, 1, DATA_BYTES);
    }

    /// VIRTIO_BLK_T_IN.
    fn read(&mut self) {
        // NEXT, WRITE.
        self.request(0, 3, DATA_BYTES);
    }

    /// A request of sector 0, made available; its status lies at a place of its own.
    fn request(&mut self, kind: u32, data_flags: u16, bytes: u32) {
        let ram = self.ram();
        ram.store32(HEADER, kind);
        ram.store64(HEADER + 8, 0);
        let first = self.chains * 3;
        let status = STATUS + usize::from(self.chains);
        ram.store8(status, UNTOUCHED);
        let parts = [
            (HEADER, 16, 1),
            (DATA, bytes, data_flags),
            // WRITE.
            (status, 1, 2),
        ];
        for (number, (place, bytes, flags)) in (first..).zip(parts) {
            let at = 16 * usize::from(number);
            ram.store64(at, GUEST + place as u64);
            ram.store32(at + 8, bytes);
            ram.store16(at + 12, flags);
            ram.store16(at + 14, number + 1);
        }
        ram.store16(AVAILABLE + 4 + 2 * usize::from(self.chains), first);
        self.chains += 1;
        ram.store16(AVAILABLE + 2, self.chains);
        self.queue.is_behind = true;
    }

    /// What a turn of the reactor does for it.
    fn settle(&mut self) {
        self.queue.begin_turn(Turn::new(usize::MAX), Instant::now());
        self.queue.settle(&mut self.engine);
    }

    /// The statuses, and how many chains came back.
    fn told(&self) -> (Vec<u8>, u16) {
        let ram = self.ram();
        let statuses = (0..usize::from(self.chains)).map(|chain| ram.load8(STATUS + chain));
        (statuses.collect(), ram.load16(USED + 2))
    }
}

/// No event tells of an answer that came at once: what waited for the next turn would wait for ever, if looking for more chains has ended meanwhile.
#[test]
fn a_read_that_is_answered_at_once_is_given_back_in_its_turn() {
    let mut bench = bench();
    bench.read();
    bench.read();
    bench.settle();
    assert_eq!(bench.told(), (vec![0, 0], 2));
}

/// A driver that looks for itself finds answers before the turn is over: it waits for no more bytes than a few small requests move.
#[test]
fn answers_wait_for_few_bytes_of_others() {
    for (requests, before_the_end) in [
        (&[4096; 5][..], 4),
        (&[4096, 1 << 20], 1),
        (&[128 << 10, 4096], 1),
        (&[4096; 3], 0),
    ] {
        let mut bench = bench_of(true);
        for bytes in requests {
            bench.request(0, 3, *bytes);
        }
        bench
            .queue
            .begin_turn(Turn::new(usize::MAX), Instant::now());
        bench.queue.serve(&mut bench.engine);
        assert_eq!(bench.told().1, before_the_end, "{requests:?}");
        bench.queue.settle(&mut bench.engine);
        let all = u16::try_from(requests.len()).unwrap();
        assert_eq!(bench.told(), (vec![0; requests.len()], all));
    }
}

#[test]
fn a_request_that_finds_no_room_has_twenty_five_seconds() {
    assert_eq!(REQUEST_PATIENCE, Duration::from_secs(25));
    let mut bench = bench();
    let begun = Instant::now();
    bench.write();
    bench.settle();
    let taken_in = Instant::now();
    // It looks for more chains, so that a turn follows.
    bench.settle();
    assert!(bench.queue.is_starved());
    let deadline = bench.queue.slots[0].deadline.unwrap();
    assert!(deadline >= begun + REQUEST_PATIENCE && deadline <= taken_in + REQUEST_PATIENCE);
    assert_eq!(
        bench.queue.starved_until,
        Some(deadline),
        "a timer comes by then"
    );
    assert_eq!(bench.told(), (vec![UNTOUCHED], 0));
}

/// No event comes but the timer: the first fails by it, and the second, whose time has not come, waits on by another.
#[test]
fn a_request_without_room_fails_at_its_deadline_by_a_timer() {
    let mut bench = bench();
    bench.write();
    bench.write();
    bench
        .queue
        .begin_turn(Turn::new(usize::MAX), Instant::now());
    bench.queue.serve(&mut bench.engine);
    assert_eq!(bench.queue.waiting, [0, 1]);
    let later = bench.queue.slots[1].deadline;
    bench.queue.slots[0].deadline = Some(Instant::now() + Duration::from_millis(1));
    bench.queue.look_at_starved();
    let until = Instant::now() + PATIENCE;
    while bench.told().1 == 0 {
        assert!(Instant::now() < until, "no timer came");
        bench
            .reactor
            .turn(Wait::Block { until: Some(until) })
            .unwrap();
        while bench.reactor.next_ready().is_some() {}
        bench.queue.kicked();
        bench.settle();
    }
    assert_eq!(bench.told(), (vec![IO_ERROR, UNTOUCHED], 1));
    assert_eq!(bench.queue.waiting, [1]);
    assert_eq!(bench.queue.starved_until, later);
    let did = bench.counters.read();
    assert_eq!((did.errors, did.in_flight), (1, 1));
}

/// Memory that comes in time is the request's, in the turn in which it is there.
#[test]
fn a_request_that_waits_for_room_goes_on_when_there_is_some() {
    let mut bench = bench();
    bench.write();
    bench.settle();
    assert!(bench.queue.is_starved());
    bench.taken.clear();
    bench.settle();
    assert!(!bench.queue.is_starved());
    let until = Instant::now() + PATIENCE;
    let mut done = Vec::new();
    while bench.told().1 == 0 {
        assert!(Instant::now() < until, "no answer came");
        bench.engine.poll(&mut done);
        for answer in done.drain(..) {
            bench.queue.answered(0, answer);
        }
        bench.settle();
    }
    assert_eq!(bench.told(), (vec![0], 1));
}

/// A write of three pieces, each of which is carried out as soon as it begins, one a turn: it waits for the next once, and ends once, though its time is over before there
/// was memory for it.
#[test]
fn a_long_write_ends_once() {
    for has_room in [true, false] {
        let mut bench = bench();
        bench.taken.clear();
        bench.request(1, 1, 3 << 20);
        bench.settle();
        assert_eq!(bench.queue.waiting, [0]);
        let slot = bench.queue.waiting[0];
        if has_room {
            for _ in 0..3 {
                bench.settle();
            }
        } else {
            bench.taken = std::iter::from_fn(|| bench.engine.alloc(1 << 20)).collect();
            bench.settle();
            assert_eq!(bench.queue.waiting, [slot]);
            bench.queue.slots[usize::from(slot)].deadline = Some(Instant::now());
            bench.settle();
        }
        let status = if has_room { 0 } else { IO_ERROR };
        assert_eq!(bench.told(), (vec![status], 1));
        assert!(bench.queue.waiting.is_empty());
        let mut free = bench.queue.free.clone();
        free.sort_unstable();
        assert_eq!(free, (0..SIZE).collect::<Vec<_>>());
        let did = bench.counters.read();
        assert_eq!(
            (did.writes, did.errors, did.in_flight),
            (u64::from(has_room), u64::from(!has_room), 0)
        );
    }
}
