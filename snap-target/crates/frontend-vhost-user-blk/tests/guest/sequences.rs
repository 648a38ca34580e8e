//! Any sequence of messages, in any order, over real memory and real rings, as bytes say: the device answers or ends the connection, keeps no file open, and
//! serves the next monitor. The same body runs under libFuzzer (`fuzz/fuzz_targets/vhost_session.rs`).

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::monitor::{
    F_ALL, GUEST, Guest, MEMORY_BYTES, Monitor, PROTOCOL, RING_BYTES, RawDescriptor, USER, event,
    longs, memory_file, words,
};
use super::served::Served;

const OUT: u32 = 1;
const IN: u32 = 0;
const QUEUES: u32 = 3;
/// Rings lie where `Guest` has them.
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;
/// Steps of a session at most.
const STEPS_MAX: usize = 100;

/// Runs one; it panics where something does not hold.
pub fn session(served: &Served, bytes: &[u8]) {
    let mut world = World::new(served);
    let mut bytes = Bytes { left: bytes };
    for _ in 0..STEPS_MAX {
        if bytes.left.is_empty() {
            break;
        }
        world.step(&mut bytes);
    }
    drop(world);
    works(served);
}

/// A monitor that keeps all rules has a disk that works.
pub fn works(served: &Served) {
    let (mut monitor, mut guest) = (Monitor::connect(&served.path), Guest::new());
    monitor.negotiate();
    monitor.share(&guest);
    monitor.start(0);
    let written = guest.ask(OUT, 0, &[5; 4096], 0);
    let read = guest.ask(IN, 0, &[], 4096);
    monitor.kick();
    guest.wait_used();
    guest.wait_used();
    assert_eq!([guest.status(&written), guest.status(&read)], [0, 0]);
    assert_eq!(guest.get(read.data, 4096), [5; 4096]);
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// No more files are open than there were, but for what a connection has that has ended just now: its end is its thread's, which we are not told of.
pub fn keeps_no_file(served: &Served, files_before: usize) {
    drop(Monitor::connect(&served.path));
    works(served);
    let until = Instant::now() + Duration::from_secs(10);
    while open_files() > files_before + 4 {
        let now = open_files();
        assert!(
            Instant::now() < until,
            "{now} files are open, and {files_before} were"
        );
        std::thread::yield_now();
    }
}

/// Files that are open when a device has served somebody.
pub fn files_of(served: &Served) -> usize {
    works(served);
    open_files()
}

/// What decides; zeros behind its end.
struct Bytes<'b> {
    left: &'b [u8],
}

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.left.split_first() else {
            return 0;
        };
        self.left = rest;
        *first
    }

    fn of(&mut self, count: u32) -> u32 {
        u32::from(self.byte()) % count
    }

    fn flag(&mut self) -> bool {
        self.of(2) == 1
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([(); 4].map(|()| self.byte()))
    }

    fn long(&mut self) -> u64 {
        u64::from_le_bytes([(); 8].map(|()| self.byte()))
    }

    /// As a rule one that is there.
    fn queue(&mut self) -> u32 {
        match self.of(11) {
            0..=7 => self.of(QUEUES),
            8 => 63,
            9 => 64,
            _ => self.word(),
        }
    }

    /// As a rule in the memory, and aligned.
    fn address(&mut self) -> u64 {
        match self.of(5) {
            0..=3 => (u64::from(self.word()) % MEMORY_BYTES) & !0xFF,
            _ => self.long(),
        }
    }

    /// A number that may be a size, or an index.
    fn number(&mut self) -> u32 {
        match self.flag() {
            true => self.of(20),
            false => self.word(),
        }
    }

    fn features(&mut self) -> u64 {
        match self.of(4) {
            0 => F_ALL,
            1 => F_ALL | 1 << 34,
            2 => F_ALL | 1 << 11,
            _ => self.long(),
        }
    }

    fn protocol_features(&mut self) -> u64 {
        match self.flag() {
            true => PROTOCOL,
            false => self.long(),
        }
    }

    /// A record of what is in flight, as a message describes it.
    fn record(&mut self, bytes: u64) -> Vec<u8> {
        let (queues, size) = (self.of(70) as u16, self.of(40) as u16);
        [
            longs(&[bytes, 0]),
            queues.to_le_bytes().to_vec(),
            size.to_le_bytes().to_vec(),
            vec![0; 4],
        ]
        .concat()
    }

    /// Anywhere in the memory and behind it.
    fn descriptor(&mut self) -> RawDescriptor {
        let place = u64::from(self.word()) % (2 * MEMORY_BYTES);
        let bytes = self.word() % 9000;
        (place as usize, bytes, self.of(8) as u16, self.of(20) as u16)
    }
}

struct World<'s> {
    served: &'s Served,
    monitor: Monitor,
    rings: Vec<Guest>,
    record: Option<OwnedFd>,
}

impl<'s> World<'s> {
    fn new(served: &'s Served) -> Self {
        let mut rings = vec![Guest::new()];
        for _ in 1..QUEUES {
            rings.push(rings.last().unwrap().another_ring());
        }
        let mut world = Self {
            served,
            monitor: Monitor::connect(&served.path),
            rings,
            record: None,
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        self.monitor = Monitor::connect(&self.served.path);
        self.monitor.negotiate();
    }

    /// Sends a message, and takes what it is answered with.
    fn send(&mut self, code: u32, body: &[u8], files: &[OwnedFd]) {
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        self.monitor.send(code, 1 | 8, body, &files);
        self.take_answers();
    }

    /// Whether a message is answered depends on what was negotiated; a question that always is tells. Where the device ends the connection, another one is there.
    fn take_answers(&mut self) {
        self.monitor.send(1, 1, &[], &[]);
        while let Some((answered, _)) = self.monitor.receive() {
            if answered == 1 {
                return;
            }
        }
        self.connect();
    }

    fn memory(&self) -> OwnedFd {
        self.rings[0].file.try_clone().unwrap()
    }

    /// What a monitor and its guest do next: as a rule what makes sense, so that sequences go on.
    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.of(40) {
            0..=5 => self.start(bytes.queue()),
            6..=8 => {
                let code = [8, 10, 18][bytes.of(3) as usize];
                self.send(code, &words(&[bytes.queue(), bytes.number()]), &[]);
            }
            9..=10 => self.describe(bytes),
            11..=12 => {
                let code = 12 + bytes.of(3);
                self.event(code, bytes.queue(), bytes.flag());
            }
            13..=14 => self.send(2, &longs(&[bytes.features()]), &[]),
            15 => self.send(16, &longs(&[bytes.protocol_features()]), &[]),
            16..=21 => self.change_memory(bytes),
            22..=23 => self.send(11, &words(&[bytes.queue(), 0]), &[]),
            24 => self.send(34, &[], &[]),
            25..=26 => self.send(31, &bytes.record(0), &[]),
            27..=28 => self.give_record(bytes),
            29 => {
                let (offset, count) = (bytes.word() % 300, bytes.word() % 300);
                let body = [words(&[offset, count, 0]), vec![0; count as usize]].concat();
                self.send(24, &body, &[]);
            }
            30 => {
                let body = [words(&[bytes.of(64), 1, 0]), vec![bytes.byte()]].concat();
                self.send(25, &body, &[]);
            }
            31 => self.any_message(bytes),
            32..=34 => {
                let parts: Vec<_> = (0..=bytes.of(5)).map(|_| bytes.descriptor()).collect();
                self.rings[0].restart_chain();
                self.rings[0].raw_chain(&parts);
                self.monitor.kick();
            }
            35..=38 => self.ask(bytes),
            _ => self.connect(),
        }
    }

    fn ask(&mut self, bytes: &mut Bytes<'_>) {
        let kind = match bytes.of(5) {
            0 => IN,
            1 => OUT,
            2 => 4,
            3 => 8,
            _ => bytes.word(),
        };
        let sector = match bytes.flag() {
            true => u64::from(bytes.word() % 4096),
            false => bytes.long(),
        };
        self.rings[1].restart_chain();
        self.rings[1].take_back_data();
        self.rings[1].ask(kind, sector, &[7; 512], 0);
        self.monitor.kick();
    }

    fn change_memory(&mut self, bytes: &mut Bytes<'_>) {
        let file = self.memory();
        match bytes.of(6) {
            0..=3 => {
                let table = [words(&[1, 0]), longs(&[GUEST, MEMORY_BYTES, USER, 0])].concat();
                self.send(5, &table, &[file]);
            }
            4 => {
                let at = bytes.address();
                let address = GUEST.wrapping_add(MEMORY_BYTES).wrapping_add(at);
                let region = [0, address, 0x1000, USER.wrapping_add(at), 0];
                self.send(37, &longs(&region), &[file]);
            }
            _ => {
                let address = GUEST.wrapping_add(bytes.address());
                self.send(38, &longs(&[0, address, MEMORY_BYTES, USER, 0]), &[]);
            }
        }
    }

    fn give_record(&mut self, bytes: &mut Bytes<'_>) {
        let record = self.record.get_or_insert_with(|| memory_file(9000));
        let file = record.try_clone().unwrap();
        let length = match bytes.flag() {
            true => u64::from(bytes.word() % 9000),
            false => bytes.long(),
        };
        self.send(32, &bytes.record(length), &[file]);
    }

    /// Any message with any body.
    fn any_message(&mut self, bytes: &mut Bytes<'_>) {
        let code = bytes.of(45);
        let flags = match bytes.of(3) {
            0 => 1,
            1 => 9,
            _ => bytes.word(),
        };
        let file = event();
        let files: Vec<_> = bytes.flag().then(|| file.as_fd()).into_iter().collect();
        let body: Vec<u8> = (0..bytes.of(64)).map(|_| bytes.byte()).collect();
        self.monitor.send(code, flags, &body, &files);
        self.take_answers();
    }

    /// Where a queue's areas lie.
    fn describe(&mut self, bytes: &mut Bytes<'_>) {
        let queue = bytes.queue();
        let flags = match bytes.of(10) {
            0 => bytes.word(),
            _ => 0,
        };
        let areas = [(); 3].map(|()| bytes.address().wrapping_add(USER));
        let body = [words(&[queue, flags]), longs(&areas), longs(&[0])].concat();
        self.send(9, &body, &[]);
    }

    /// A queue, described and enabled as it should be.
    fn start(&mut self, queue: u32) {
        let at = USER + u64::from(queue % QUEUES) * RING_BYTES as u64;
        self.send(8, &words(&[queue, 16]), &[]);
        self.send(10, &words(&[queue, 0]), &[]);
        let areas = longs(&[at, at + USED, at + AVAILABLE, 0]);
        self.send(9, &[words(&[queue, 0]), areas].concat(), &[]);
        self.event(12, queue, true);
        self.event(13, queue, true);
        self.send(18, &words(&[queue, 1]), &[]);
    }

    /// 12: kick, 13: call, 14: error; with a file, or with the flag that there is none.
    fn event(&mut self, code: u32, queue: u32, has_file: bool) {
        let file = match code {
            12 => self.monitor.kick.try_clone().unwrap(),
            _ => event(),
        };
        match has_file {
            true => self.send(code, &longs(&[u64::from(queue) & 0xFF]), &[file]),
            false => self.send(code, &longs(&[u64::from(queue) & 0xFF | 0x100]), &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::test_runner::{Config, TestRunner};

    use super::*;
    use crate::served::memory;

    #[test]
    fn any_sequence_of_messages_leaves_a_device_that_works() {
        let served = Served::new(memory());
        let files = files_of(&served);
        let cases = std::env::var("PROPTEST_CASES").ok();
        let mut runner = TestRunner::new(Config {
            cases: cases.and_then(|cases| cases.parse().ok()).unwrap_or(96),
            failure_persistence: None,
            ..Config::default()
        });
        let ran = runner.run(&vec(any::<u8>(), 1..600), |bytes| {
            session(&served, &bytes);
            Ok(())
        });
        ran.unwrap();
        keeps_no_file(&served, files);
    }
}
