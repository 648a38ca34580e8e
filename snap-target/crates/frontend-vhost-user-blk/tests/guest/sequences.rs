//! Any sequence of messages, in any order, over real memory and real rings: the device answers or ends the connection, and serves the next monitor.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::monitor::{
    F_ALL, GUEST, Guest, MEMORY_BYTES, Monitor, PROTOCOL, RING_BYTES, RawDescriptor, USER, event,
    longs, words,
};
use super::served::{Served, memory};

const OUT: u32 = 1;
const IN: u32 = 0;
const QUEUES: u32 = 3;
/// Rings lie where `Guest` has them.
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x2000;

/// What a monitor and its guest do next.
#[derive(Clone, Debug)]
enum Step {
    /// A queue, described and enabled as it should be.
    Start(u32),
    /// One message of such a description, with any number in it.
    Number {
        code: u32,
        queue: u32,
        value: u32,
    },
    Addresses {
        queue: u32,
        flags: u32,
        table: u64,
        used: u64,
        available: u64,
    },
    /// 12: kick, 13: call, 14: error; with a file, or with the flag that there is none.
    Event {
        code: u32,
        queue: u32,
        has_file: bool,
    },
    Features(u64),
    ProtocolFeatures(u64),
    Memory,
    AddMemory(u64),
    RemoveMemory(u64),
    Stop(u32),
    Reset,
    /// A record of what is in flight: made, or given back with other numbers in it.
    MakeRecord {
        queues: u16,
        size: u16,
    },
    GiveRecord {
        bytes: u64,
        queues: u16,
        size: u16,
    },
    ReadConfig {
        offset: u32,
        bytes: u32,
    },
    WriteConfig {
        offset: u32,
        value: u8,
    },
    /// Any message with any body.
    Any {
        code: u32,
        flags: u32,
        body: Vec<u8>,
        has_file: bool,
    },
    /// A chain of any descriptors, the driver's events with it.
    Chain(Vec<RawDescriptor>),
    Request {
        kind: u32,
        sector: u64,
    },
    Reconnect,
}

fn queue() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..QUEUES, 1 => Just(63_u32), 1 => Just(64_u32), 1 => any::<u32>()]
}

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![4 => (0..MEMORY_BYTES).prop_map(|at| at & !0xFF), 1 => any::<u64>()]
}

fn step() -> impl Strategy<Value = Step> {
    let number = (
        prop_oneof![Just(8_u32), Just(10), Just(18)],
        queue(),
        prop_oneof![0_u32..20, any::<u32>()],
    );
    let addresses = (
        queue(),
        prop_oneof![9 => Just(0_u32), 1 => any::<u32>()],
        address(),
        address(),
        address(),
    );
    let descriptor = (
        0..2 * MEMORY_BYTES as usize,
        0_u32..9000,
        0_u16..8,
        0_u16..20,
    );
    prop_oneof![
        6 => queue().prop_map(Step::Start),
        3 => number.prop_map(|(code, queue, value)| Step::Number { code, queue, value }),
        2 => addresses.prop_map(|(queue, flags, table, used, available)| Step::Addresses {
            queue, flags, table: table.wrapping_add(USER), used: used.wrapping_add(USER), available: available.wrapping_add(USER),
        }),
        2 => (12_u32..15, queue(), any::<bool>()).prop_map(|(code, queue, has_file)| Step::Event { code, queue, has_file }),
        2 => prop_oneof![Just(F_ALL), Just(F_ALL | 1 << 34), Just(F_ALL | 1 << 11), any::<u64>()].prop_map(Step::Features),
        1 => prop_oneof![Just(PROTOCOL), any::<u64>()].prop_map(Step::ProtocolFeatures),
        4 => Just(Step::Memory),
        1 => address().prop_map(Step::AddMemory),
        1 => address().prop_map(Step::RemoveMemory),
        2 => queue().prop_map(Step::Stop),
        1 => Just(Step::Reset),
        2 => (0_u16..70, 0_u16..40).prop_map(|(queues, size)| Step::MakeRecord { queues, size }),
        2 => (prop_oneof![0_u64..9000, any::<u64>()], 0_u16..70, 0_u16..40).prop_map(|(bytes, queues, size)| Step::GiveRecord { bytes, queues, size }),
        1 => (0_u32..300, 0_u32..300).prop_map(|(offset, bytes)| Step::ReadConfig { offset, bytes }),
        1 => (0_u32..64, any::<u8>()).prop_map(|(offset, value)| Step::WriteConfig { offset, value }),
        1 => (0_u32..45, prop_oneof![Just(1_u32), Just(9), any::<u32>()], vec(any::<u8>(), 0..64), any::<bool>())
            .prop_map(|(code, flags, body, has_file)| Step::Any { code, flags, body, has_file }),
        3 => vec(descriptor, 1..6).prop_map(Step::Chain),
        4 => (prop_oneof![Just(IN), Just(OUT), Just(4_u32), Just(8), any::<u32>()], prop_oneof![0_u64..4096, any::<u64>()])
            .prop_map(|(kind, sector)| Step::Request { kind, sector }),
        1 => Just(Step::Reconnect),
    ]
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

    /// Sends a message, and takes what it is answered with; where the device ends the connection, another one is there.
    fn send(&mut self, code: u32, body: &[u8], files: &[OwnedFd]) {
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        self.monitor.send(code, 1 | 8, body, &files);
        if self.monitor.receive().is_none() {
            self.connect();
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Start(queue) => self.start(*queue),
            Step::Number { code, queue, value } => self.send(*code, &words(&[*queue, *value]), &[]),
            Step::Addresses {
                queue,
                flags,
                table,
                used,
                available,
            } => {
                let body = [
                    words(&[*queue, *flags]),
                    longs(&[*table, *used, *available, 0]),
                ]
                .concat();
                self.send(9, &body, &[]);
            }
            Step::Event {
                code,
                queue,
                has_file,
            } => self.event(*code, *queue, *has_file),
            Step::Features(features) => self.send(2, &longs(&[*features]), &[]),
            Step::ProtocolFeatures(features) => self.send(16, &longs(&[*features]), &[]),
            Step::Memory => {
                let table = [words(&[1, 0]), longs(&[GUEST, MEMORY_BYTES, USER, 0])].concat();
                let file = self.rings[0].file.try_clone().unwrap();
                self.send(5, &table, &[file]);
            }
            Step::AddMemory(at) => {
                let file = self.rings[0].file.try_clone().unwrap();
                let region = longs(&[
                    0,
                    GUEST.wrapping_add(MEMORY_BYTES).wrapping_add(*at),
                    0x1000,
                    USER.wrapping_add(*at),
                    0,
                ]);
                self.send(37, &region, &[file]);
            }
            Step::RemoveMemory(at) => self.send(
                38,
                &longs(&[0, GUEST.wrapping_add(*at), MEMORY_BYTES, USER, 0]),
                &[],
            ),
            Step::Stop(queue) => self.send(11, &words(&[*queue, 0]), &[]),
            Step::Reset => self.send(34, &[], &[]),
            Step::MakeRecord { queues, size } => {
                let body = [
                    longs(&[0, 0]),
                    queues.to_le_bytes().to_vec(),
                    size.to_le_bytes().to_vec(),
                    vec![0; 4],
                ]
                .concat();
                self.send(31, &body, &[]);
            }
            Step::GiveRecord {
                bytes,
                queues,
                size,
            } => {
                let record = self
                    .record
                    .get_or_insert_with(|| super::monitor::memory_file(9000));
                let file = record.try_clone().unwrap();
                let body = [
                    longs(&[*bytes, 0]),
                    queues.to_le_bytes().to_vec(),
                    size.to_le_bytes().to_vec(),
                    vec![0; 4],
                ]
                .concat();
                self.send(32, &body, &[file]);
            }
            Step::ReadConfig { offset, bytes } => {
                let body = [words(&[*offset, *bytes, 0]), vec![0; *bytes as usize]].concat();
                self.send(24, &body, &[]);
            }
            Step::WriteConfig { offset, value } => {
                self.send(25, &[words(&[*offset, 1, 0]), vec![*value]].concat(), &[])
            }
            Step::Any {
                code,
                flags,
                body,
                has_file,
            } => {
                let file = event();
                let files: Vec<_> = has_file.then(|| file.as_fd()).into_iter().collect();
                self.monitor.send(*code, *flags, body, &files);
                // Whether it is answered depends on it; a question that always is tells.
                self.monitor.send(1, 1, &[], &[]);
                while let Some((answered, _)) = self.monitor.receive() {
                    if answered == 1 {
                        return;
                    }
                }
                self.connect();
            }
            Step::Chain(parts) => {
                self.rings[0].restart_chain();
                self.rings[0].raw_chain(parts);
                self.monitor.kick();
            }
            Step::Request { kind, sector } => {
                self.rings[1].restart_chain();
                self.rings[1].take_back_data();
                self.rings[1].ask(*kind, *sector, &[7; 512], 0);
                self.monitor.kick();
            }
            Step::Reconnect => self.connect(),
        }
    }

    fn start(&mut self, queue: u32) {
        let at = USER + u64::from(queue % QUEUES) * RING_BYTES as u64;
        self.send(8, &words(&[queue, 16]), &[]);
        self.send(10, &words(&[queue, 0]), &[]);
        self.send(
            9,
            &[
                words(&[queue, 0]),
                longs(&[at, at + USED, at + AVAILABLE, 0]),
            ]
            .concat(),
            &[],
        );
        self.event(12, queue, true);
        self.event(13, queue, true);
        self.send(18, &words(&[queue, 1]), &[]);
    }

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

/// A monitor that keeps all rules has a disk that works.
fn works(served: &Served) {
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

#[test]
fn any_sequence_of_messages_leaves_a_device_that_works() {
    let served = Served::new(memory());
    works(&served);
    let files = open_files();
    let mut runner = TestRunner::new(Config {
        cases: std::env::var("PROPTEST_CASES")
            .ok()
            .and_then(|cases| cases.parse().ok())
            .unwrap_or(96),
        failure_persistence: None,
        ..Config::default()
    });
    let ran = runner.run(&vec(step(), 1..48), |steps| {
        let mut world = World::new(&served);
        for step in &steps {
            world.step(step);
        }
        drop(world);
        works(&served);
        Ok(())
    });
    ran.unwrap();
    drop(Monitor::connect(&served.path));
    works(&served);
    // The last connection's end is its thread's, which we are not told of.
    let until = Instant::now() + Duration::from_secs(10);
    while open_files() > files + 4 {
        assert!(
            Instant::now() < until,
            "{} files are open, and {files} were",
            open_files()
        );
        std::thread::yield_now();
    }
}
