//! The packed ring, with indirect descriptors and event indexes: a driver of its own.

use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use frontend_nvme::conformance::Gate;
use store::BlockingStore;

use super::lost::{GONE, share_with_another};
use super::monitor::{DATA, GUEST, Guest, Monitor, SIZE, longs, words};
use super::served::{Served, memory};

const IN: u32 = 0;
const OUT: u32 = 1;
const FEATURES: u64 = 1 << 9 | 1 << 28 | 1 << 29 | 1 << 30 | 1 << 32 | 1 << 34;
/// Both counters of a ring that nobody has used are 1.
const BASE: u32 = 0x8000_8000;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const DRIVER_EVENT: usize = 0x1000;
const PATIENCE: Duration = Duration::from_secs(20);
/// Of a request: its header, its indirect table, its status, its data.
const REQUEST_BYTES: usize = 0x4000;

/// A place in the ring.
#[derive(Clone, Copy)]
struct Place {
    index: u16,
    wrap: bool,
}

impl Place {
    fn advance(&mut self, slots: u16) {
        self.index += slots;
        if self.index >= SIZE {
            self.index -= SIZE;
            self.wrap = !self.wrap;
        }
    }
}

struct Driver {
    guest: Guest,
    available: Place,
    used: Place,
}

/// A request: its identifier, and the slots that it has.
#[derive(Clone, Copy)]
struct Asked {
    id: u16,
    slots: u16,
}

impl Driver {
    fn new() -> Self {
        let first = Place {
            index: 0,
            wrap: true,
        };
        Self {
            guest: Guest::new(),
            available: first,
            used: first,
        }
    }

    fn data_of(id: u16) -> usize {
        DATA + usize::from(id) * REQUEST_BYTES + 0x1000
    }

    /// A request of a block, as a chain of three, or in a table.
    fn ask(&mut self, id: u16, kind: u32, block: u64, indirect: bool) -> Asked {
        let base = DATA + usize::from(id) * REQUEST_BYTES;
        let at = |offset: usize| GUEST + (base + offset) as u64;
        self.guest
            .put(base, &[words(&[kind, 0]), longs(&[block * 8])].concat());
        self.guest.put(base + 0x800, &[0xAA]);
        let into = if kind == IN { WRITE } else { 0 };
        let parts = [
            (at(0), 16, 0),
            (at(0x1000), 4096, into),
            (at(0x800), 1, WRITE),
        ];
        if !indirect {
            self.publish(id, &parts.map(|(at, bytes, flags)| (at, bytes, flags)));
            return Asked { id, slots: 3 };
        }
        for (number, (address, bytes, flags)) in parts.into_iter().enumerate() {
            self.descriptor(base + 0x400 + number * 16, address, bytes, 0, flags);
        }
        self.publish(id, &[(at(0x400), 48, INDIRECT)]);
        Asked { id, slots: 1 }
    }

    fn descriptor(&self, at: usize, address: u64, bytes: u32, id: u16, flags: u16) {
        self.guest.ram.store64(at, address);
        self.guest.ram.store32(at + 8, bytes);
        self.guest.ram.store16(at + 12, id);
        fence(Ordering::SeqCst);
        self.guest.ram.store16(at + 14, flags);
    }

    /// Makes a chain available: the flags of its first descriptor come last.
    fn publish(&mut self, id: u16, parts: &[(u64, u32, u16)]) {
        let mut chain = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let more = if number + 1 < parts.len() { NEXT } else { 0 };
            let round = if self.available.wrap { 1 << 7 } else { 1 << 15 };
            let at = 16 * usize::from(self.available.index);
            chain.push((at, *part, more | round));
            self.available.advance(1);
        }
        for (at, (address, bytes, flags), own) in chain.into_iter().rev() {
            self.descriptor(at, address, bytes, id, flags | own);
        }
    }

    /// The identifier of the next that comes back, of as many slots as it has.
    fn wait_used(&mut self, asked: &[Asked]) -> u16 {
        let at = 16 * usize::from(self.used.index);
        let until = Instant::now() + PATIENCE;
        let both = 1 << 7 | 1 << 15;
        let expected = if self.used.wrap { both } else { 0 };
        while self.guest.ram.load16(at + 14) & both != expected {
            assert!(Instant::now() < until, "nothing came back");
            std::thread::yield_now();
        }
        fence(Ordering::SeqCst);
        let id = self.guest.ram.load16(at + 12);
        let of_it = asked.iter().find(|asked| asked.id == id);
        self.used
            .advance(of_it.expect("what came back was asked").slots);
        id
    }

    fn status(&self, id: u16) -> u8 {
        self.guest
            .get(DATA + usize::from(id) * REQUEST_BYTES + 0x800, 1)[0]
    }

    /// Has the device tell of the next that comes back, by its place.
    fn wants_a_call(&self) {
        let place = self.used.index | u16::from(self.used.wrap) << 15;
        self.guest.ram.store16(DRIVER_EVENT, place);
        fence(Ordering::SeqCst);
        self.guest.ram.store16(DRIVER_EVENT + 2, 2);
    }
}

fn connect(served: &Served, driver: &Driver) -> Monitor {
    let mut monitor = Monitor::connect(&served.path);
    monitor.negotiate();
    monitor.order(2, &longs(&[FEATURES]), &[]);
    monitor.share(&driver.guest);
    monitor
}

fn stored(served: &Served, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    BlockingStore::new(&served.store)
        .unwrap()
        .read(block * 4096, &mut bytes)
        .unwrap();
    bytes
}

#[test]
fn a_packed_ring_goes_round() {
    let served = Served::new(memory());
    let mut driver = Driver::new();
    let mut monitor = connect(&served, &driver);
    monitor.start(BASE);
    // Four at a time in a ring of sixteen: chains of three lie across its end.
    for round in 0..50_u64 {
        for kind in [OUT, IN] {
            let mut asked = Vec::new();
            for id in 0..4_u16 {
                let block = round * 4 + u64::from(id);
                let data = Driver::data_of(id);
                let fill = if kind == OUT { block as u8 } else { 0xEE };
                driver.guest.put(data, &[fill; 4096]);
                asked.push(driver.ask(id, kind, block, (round + u64::from(id)) % 3 == 0));
            }
            driver.wants_a_call();
            monitor.kick();
            for _ in 0..4 {
                let id = driver.wait_used(&asked);
                let block = round * 4 + u64::from(id);
                assert_eq!(driver.status(id), 0);
                let expected = vec![block as u8; 4096];
                assert_eq!(driver.guest.get(Driver::data_of(id), 4096), expected);
                assert_eq!(stored(&served, block), expected);
            }
        }
    }
    let mut calls = [0; 8];
    rustix::io::read(&monitor.call, &mut calls).expect("the driver was told");
}

#[test]
fn what_a_packed_ring_has_in_flight_is_done_again() {
    let (gate, store) = Gate::over(memory(), 3);
    let served = Served::new(store);
    let mut driver = Driver::new();
    let mut monitor = connect(&served, &driver);
    let (about, records) = monitor.inflight();
    monitor.start(BASE);
    let asked = [(0, false), (1, true), (2, false)].map(|(id, indirect)| {
        driver.guest.put(Driver::data_of(id), &[id as u8 + 1; 4096]);
        driver.ask(id, OUT, u64::from(id), indirect)
    });
    monitor.kick();
    gate.wait_held(3);
    let kick = monitor.kick.try_clone().unwrap();
    drop(monitor);
    gate.open();
    let mut next = connect(&served, &driver);
    next.kick = kick;
    next.order(32, &about, &[records.as_fd()]);
    // Its monitor does not know where the last one was.
    next.start(BASE);
    let came: Vec<u16> = (0..3).map(|_| driver.wait_used(&asked)).collect();
    assert_eq!(came, [0, 1, 2], "in the order in which they came");
    for id in 0..3_u16 {
        assert_eq!(driver.status(id), 0);
        assert_eq!(stored(&served, id.into()), [id as u8 + 1; 4096]);
    }
    // Once, and the ring goes on behind them.
    let fourth = driver.ask(3, IN, 1, false);
    next.kick();
    assert_eq!(driver.wait_used(&[fourth]), 3);
    assert_eq!(driver.guest.get(Driver::data_of(3), 4096), [2; 4096]);
}

/// As of a split ring (`lost`): a packed one publishes each answer when it is given back.
#[test]
fn nothing_is_given_back_in_memory_that_is_there() {
    for kind in [IN, OUT] {
        let served = Served::new(memory());
        let mut driver = Driver::new();
        let mut monitor = Monitor::connect(&served.path);
        monitor.negotiate();
        monitor.order(2, &longs(&[FEATURES]), &[]);
        let _apart = share_with_another(&mut monitor, &driver.guest);
        monitor.start(BASE);
        driver
            .guest
            .put(DATA, &[words(&[kind, 0]), longs(&[8])].concat());
        driver.guest.ram.store8(DATA + 0x800, 0);
        let at = |offset: usize| GUEST + (DATA + offset) as u64;
        let into = if kind == IN { WRITE } else { 0 };
        let chain = [(at(0), 16, 0), (GONE, 4096, into), (at(0x800), 1, WRITE)];
        driver.publish(0, &chain);
        monitor.kick();
        while monitor.receive().is_some() {}
        assert!(monitor.is_over());
        let is_used = driver.guest.ram.load16(14) & (1 << 15) != 0;
        assert!(!is_used, "kind {kind}");
    }
}
