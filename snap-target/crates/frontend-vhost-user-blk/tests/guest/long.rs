//! Requests that are longer than SEG_MAX and SIZE_MAX allow, as firmware sends them: over both rings, in one descriptor and in many, in the ring and in a table.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use frontend_nvme::conformance::Gate;
use store::{BlockingStore, OpenOptions, SharedStore, StoreSpec};

use super::monitor::{GUEST, Guest, Monitor, Places, longs, words};
use super::served::{Served, file_of};

const IN: u32 = 0;
const OUT: u32 = 1;
const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const LONG: usize = 16 << 20;
const DISK: u64 = 20 << 20;

const PLACES: Places = Places {
    size: 512,
    table: 0,
    driver: 0x4000,
    device: 0x8000,
};
const TABLE: usize = 0xC000;
const HEADER: usize = 0x1_0000;
const STATUS: usize = 0x1_1000;
const FROM: usize = 0x10_0000;
const INTO: usize = FROM + LONG;
const MEMORY: u64 = (INTO + LONG) as u64;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const PATIENCE: Duration = Duration::from_secs(20);
const SPLIT: u64 = 1 << 9 | 1 << 28 | 1 << 30 | 1 << 32;
const PACKED: u64 = SPLIT | 1 << 34;

/// A driver with one request at a time.
struct Driver {
    guest: Guest,
    monitor: Monitor,
    packed: bool,
    indirect: bool,
    /// Chains that it has made available, of a split ring.
    chains: u16,
    /// The next place of a packed one, and the counter there.
    place: (u16, bool),
}

impl Driver {
    fn new(served: &Served, packed: bool, indirect: bool) -> Self {
        let guest = Guest::with_bytes(MEMORY);
        let mut monitor = Monitor::connect(&served.path);
        monitor.negotiate();
        let features = if packed { PACKED } else { SPLIT };
        monitor.order(2, &longs(&[features]), &[]);
        monitor.share(&guest);
        monitor.start_ring(0, &PLACES, if packed { 0x8000_8000 } else { 0 });
        Self {
            guest,
            monitor,
            packed,
            indirect,
            chains: 0,
            place: (0, true),
        }
    }

    /// Makes a request available, with its data in `parts` descriptors.
    fn ask(&mut self, kind: u32, sector: u64, data: usize, bytes: usize, parts: usize) {
        let header = [words(&[kind, 0]), longs(&[sector])].concat();
        self.guest.put(HEADER, &header);
        self.guest.put(STATUS, &[0xAA]);
        let into = if kind == IN { WRITE } else { 0 };
        let mut chain = vec![(HEADER, 16, 0)];
        let each = bytes / parts;
        for part in 0..parts {
            let rest = if part + 1 == parts { bytes % parts } else { 0 };
            chain.push((data + part * each, each + rest, into));
        }
        chain.push((STATUS, 1, WRITE));
        if self.indirect {
            for (number, part) in chain.iter().enumerate() {
                let more = if number + 1 < chain.len() { NEXT } else { 0 };
                // Of a packed ring's table NEXT is reserved.
                let more = if self.packed { 0 } else { more };
                self.descriptor(TABLE, number, *part, more, number as u16 + 1);
            }
            chain = vec![(TABLE, 16 * chain.len(), INDIRECT)];
        }
        match self.packed {
            true => self.publish_packed(&chain),
            false => self.publish_split(&chain),
        }
        self.monitor.kick();
    }

    fn descriptor(
        &self,
        table: usize,
        number: usize,
        (at, bytes, flags): (usize, usize, u16),
        more: u16,
        next: u16,
    ) {
        let (place, ram) = (table + 16 * number, &self.guest.ram);
        ram.store64(place, GUEST + at as u64);
        ram.store32(place + 8, bytes as u32);
        let (low, high) = match self.packed {
            true => (7, flags | more),
            false => (flags | more, next),
        };
        ram.store16(place + 12, low);
        fence(Ordering::SeqCst);
        ram.store16(place + 14, high);
    }

    fn publish_split(&mut self, chain: &[(usize, usize, u16)]) {
        for (number, part) in chain.iter().enumerate() {
            let more = if number + 1 < chain.len() { NEXT } else { 0 };
            self.descriptor(PLACES.table, number, *part, more, number as u16 + 1);
        }
        let ram = &self.guest.ram;
        let entry = usize::from(self.chains % PLACES.size);
        ram.store16(PLACES.driver + 4 + 2 * entry, 0);
        self.chains = self.chains.wrapping_add(1);
        fence(Ordering::SeqCst);
        ram.store16(PLACES.driver + 2, self.chains);
    }

    fn publish_packed(&mut self, chain: &[(usize, usize, u16)]) {
        let first = self.place;
        let mut written = Vec::new();
        for (number, part) in chain.iter().enumerate() {
            let more = if number + 1 < chain.len() { NEXT } else { 0 };
            let round = if self.place.1 { 1 << 7 } else { 1 << 15 };
            written.push((self.place.0, *part, more | round));
            self.place.0 += 1;
            if self.place.0 == PLACES.size {
                self.place = (0, !self.place.1);
            }
        }
        for (place, part, flags) in written.into_iter().rev() {
            self.descriptor(PLACES.table, usize::from(place), part, flags, 0);
        }
        // What comes back is looked for there.
        self.chains = first.0 | u16::from(first.1) << 15;
    }

    /// Waits for the request to come back: its status, and how many bytes were written.
    fn done(&mut self) -> (u8, u32) {
        let until = Instant::now() + PATIENCE;
        loop {
            let ram = &self.guest.ram;
            let written = match self.packed {
                true => {
                    let (place, wrap) = (self.chains & 0x7FFF, self.chains >> 15 != 0);
                    let at = PLACES.table + 16 * usize::from(place);
                    let expected = if wrap { 1 << 7 | 1 << 15 } else { 0 };
                    let is_back = ram.load16(at + 14) & (1 << 7 | 1 << 15) == expected;
                    is_back.then(|| ram.load32(at + 8))
                }
                false => {
                    let entry = usize::from(self.chains.wrapping_sub(1) % PLACES.size);
                    let is_back = ram.load16(PLACES.device + 2) == self.chains;
                    is_back.then(|| ram.load32(PLACES.device + 8 + 8 * entry))
                }
            };
            if let Some(written) = written {
                return (self.guest.get(STATUS, 1)[0], written);
            }
            assert!(Instant::now() < until, "nothing came back");
            std::thread::yield_now();
        }
    }

    fn fill(&self, at: usize, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            done +=
                rustix::io::pwrite(&self.guest.file, &bytes[done..], (at + done) as u64).unwrap();
        }
    }

    fn bytes(&self, at: usize, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        let mut done = 0;
        while done < bytes {
            let rest = &mut out[done..];
            done += rustix::io::pread(&self.guest.file, rest, (at + done) as u64).unwrap();
        }
        out
    }
}

/// Without a period that a piece, a page or a block could hide.
fn pattern(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut words = Vec::with_capacity(LONG);
    for _ in 0..LONG / 8 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        words.extend_from_slice(&state.to_le_bytes());
    }
    words
}

fn memory() -> SharedStore {
    let spec = StoreSpec::parse(&format!("mem:{DISK}")).unwrap();
    SharedStore::open(&spec, OpenOptions::read_write()).unwrap()
}

fn stored(store: &SharedStore, offset: u64) -> Vec<u8> {
    let mut out = vec![0; LONG];
    let read = BlockingStore::new(store).unwrap().read(offset, &mut out);
    read.unwrap();
    out
}

#[test]
fn sixteen_mebibytes_in_one_request() {
    let mut seed = 1;
    for copies in [false, true] {
        for (packed, indirect, parts) in [
            (false, false, 1),
            (false, true, 1),
            (false, false, 500),
            (false, true, 1000),
            (true, false, 1),
            (true, true, 1),
            (true, false, 500),
            (true, true, 1000),
        ] {
            let what =
                format!("copies {copies}, packed {packed}, indirect {indirect}, {parts} parts");
            let store = if copies { file_of(DISK).1 } else { memory() };
            let served = Served::new(store);
            let mut driver = Driver::new(&served, packed, indirect);
            seed += 1;
            let data = pattern(seed);
            driver.fill(FROM, &data);
            driver.ask(OUT, 16, FROM, LONG, parts);
            assert_eq!(driver.done(), (OK, 1), "{what}");
            assert!(stored(&served.store, 16 * 512) == data, "{what}");
            driver.ask(IN, 16, INTO, LONG, parts);
            assert_eq!(driver.done(), (OK, LONG as u32 + 1), "{what}");
            assert!(driver.bytes(INTO, LONG) == data, "{what}");
        }
    }
}

#[test]
fn a_long_write_has_four_pieces_under_way() {
    let (gate, store) = Gate::over(file_of(DISK).1, 16);
    let served = Served::new(store);
    let mut driver = Driver::new(&served, false, false);
    let data = pattern(9);
    driver.fill(FROM, &data);
    driver.ask(OUT, 0, FROM, LONG, 1);
    gate.wait_held(4);
    // The reactor has gone on since.
    for _ in 0..3 {
        let call = driver.monitor.call.try_clone().unwrap();
        driver.monitor.order(13, &longs(&[0]), &[call.as_fd()]);
    }
    assert_eq!(gate.held(), 4);
    gate.open();
    assert_eq!(driver.done(), (OK, 1));
    assert!(stored(&served.store, 0) == data);
}

#[test]
fn a_read_that_fails_has_written_what_came_before() {
    let (file, store) = file_of(DISK);
    let served = Served::new(store);
    for (packed, indirect) in [(false, false), (true, true)] {
        let mut driver = Driver::new(&served, packed, indirect);
        let data = pattern(5);
        driver.fill(FROM, &data);
        driver.ask(OUT, 0, FROM, LONG, 1);
        assert_eq!(driver.done(), (OK, 1));
        // What is missing cannot be read: the sixth of its pieces fails.
        cut(&file, (5 << 20) + 4096);
        driver.ask(IN, 0, INTO, LONG, 7);
        assert_eq!(driver.done(), (IO_ERROR, 5 << 20));
        assert!(driver.bytes(INTO, 5 << 20) == data[..5 << 20]);
        cut(&file, 0);
        driver.ask(IN, 0, INTO, LONG, 1);
        assert_eq!(driver.done(), (IO_ERROR, 0));
        cut(&file, DISK);
    }
}

fn cut(file: &OwnedFd, bytes: u64) {
    rustix::fs::ftruncate(file, bytes).unwrap();
}

#[test]
fn a_request_is_no_longer_than_a_chain_may_be() {
    let spec = StoreSpec::parse("null:8GiB").unwrap();
    let null = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    // Beyond the end of the disk, and beyond all that a chain may have: 300 times 16 MiB. On a disk that is large enough, a block more than a request may have.
    let most = frontend_vhost_user_blk::REQUEST_BYTES_MAX as usize;
    for (store, bytes) in [(memory(), 300 * LONG), (null, most + 4096)] {
        let served = Served::new(store);
        let mut driver = Driver::new(&served, false, true);
        let header = [words(&[IN, 0]), longs(&[0])].concat();
        driver.guest.put(HEADER, &header);
        driver.guest.put(STATUS, &[0xAA]);
        driver.descriptor(TABLE, 0, (HEADER, 16, 0), NEXT, 1);
        let parts = bytes.div_ceil(LONG);
        for number in 1..=parts {
            let part = LONG.min(bytes - (number - 1) * LONG);
            driver.descriptor(TABLE, number, (INTO, part, WRITE), NEXT, number as u16 + 1);
        }
        driver.descriptor(TABLE, parts + 1, (STATUS, 1, WRITE), 0, 0);
        driver.publish_split(&[(TABLE, 16 * (parts + 2), INDIRECT)]);
        driver.monitor.kick();
        assert_eq!(driver.done(), (IO_ERROR, 0), "{bytes} bytes");
    }
}
