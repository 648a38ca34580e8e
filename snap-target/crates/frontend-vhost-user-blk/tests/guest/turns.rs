//! What queues of one reactor do in its turns, turn by turn: the test is the reactor.

use std::os::fd::AsFd;
use std::sync::Arc;

use frontend_vhost_user_blk::{Device, Disk};
use reactor::Wait;

use super::monitor::{DATA, F_ALL, GUEST, Guest, Monitor, Places, RING_BYTES, longs, words};
use super::served::{Reactor, memory, namespace_of, socket_path};

const IN: u32 = 0;
const PIECE: u32 = 1 << 20;
const F_INDIRECT_DESC: u64 = 1 << 28;
/// All requests read the same into the same place.
const HEADER: usize = DATA;
const STATUS: usize = DATA + 0x1000;
const INTO: usize = DATA + 0x10_0000;

struct Stepped {
    // In the order in which they end.
    device: Option<Device>,
    reactor: Reactor,
    monitor: Monitor,
    rings: Vec<Guest>,
}

impl Stepped {
    /// A device with so many queues, all on one reactor.
    fn new(queues: u32) -> Self {
        Self::of_rings(queues, None)
    }

    /// The same; the first queue's ring has other places, and indirect descriptors.
    fn of_rings(queues: u32, first: Option<Places>) -> Self {
        let namespace = namespace_of(&memory());
        let disk = Disk::of(&namespace);
        let (mut reactor, door) = Reactor::new(Arc::new(namespace));
        let path = socket_path();
        let device = Device::listen(&path, disk, vec![door]).unwrap();
        let guest = Guest::new();
        let mut rings = vec![guest];
        for _ in 1..queues {
            rings.push(rings.last().unwrap().another_ring());
        }
        // Queues start while the reactor turns.
        let monitor = std::thread::scope(|scope| {
            let (file, bytes) = (rings[0].file.try_clone().unwrap(), rings[0].bytes);
            let started = scope.spawn(move || {
                let mut monitor = Monitor::connect(&path);
                monitor.negotiate();
                monitor.share_file(file.as_fd(), bytes);
                if let Some(places) = first {
                    let features = F_ALL | F_INDIRECT_DESC;
                    monitor.order(2, &longs(&[features]), &[]);
                    monitor.start_ring(0, &places, 0);
                }
                for queue in u32::from(first.is_some())..queues {
                    monitor.start_queue(queue, queue as usize * RING_BYTES, 0);
                }
                monitor
            });
            while !started.is_finished() {
                reactor.turn(Wait::Poll);
            }
            started.join().unwrap()
        });
        rings[0].put(HEADER, &[words(&[IN, 0]), longs(&[0])].concat());
        Self {
            device: Some(device),
            reactor,
            monitor,
            rings,
        }
    }

    /// Makes requests of so many bytes available on a queue.
    fn ask(&mut self, queue: usize, count: usize, bytes: u32) {
        for _ in 0..count {
            self.rings[queue].chain(&[(HEADER, 16, false), (INTO, bytes, true), (STATUS, 1, true)]);
        }
    }

    /// How many requests of each queue have come back after each turn in which one has, until as many have as there are to be.
    fn steps(&mut self, until: &[u16]) -> Vec<Vec<u16>> {
        self.monitor.kick();
        let mut steps = Vec::new();
        let mut last = vec![0; self.rings.len()];
        for _ in 0..1000 {
            self.reactor.turn(Wait::Poll);
            let now: Vec<u16> = self.rings.iter().map(Guest::used_index).collect();
            if now != last {
                steps.push(now.clone());
            }
            last = now;
            if last == until {
                return steps;
            }
        }
        panic!("{last:?} after {steps:?}, not {until:?}");
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        // Its queues end while the reactor turns.
        let device = self.device.take();
        std::thread::scope(|scope| {
            let ended = scope.spawn(move || drop(device));
            while !ended.is_finished() {
                self.reactor.turn(Wait::Poll);
            }
        });
    }
}

#[test]
fn a_small_queue_beside_one_of_long_requests_has_each_turn() {
    let mut stepped = Stepped::new(2);
    stepped.ask(0, 4, PIECE);
    stepped.ask(1, 4, 4096);
    let steps = stepped.steps(&[4, 4]);
    assert_eq!(steps, [[1, 4], [2, 4], [3, 4], [4, 4]]);
}

#[test]
fn queues_that_the_turn_has_no_room_for_are_the_first_of_the_next() {
    let mut stepped = Stepped::new(6);
    for queue in 0..6 {
        stepped.ask(queue, 2, PIECE);
    }
    let steps = stepped.steps(&[2; 6]);
    let expected = [[1, 1, 1, 1, 0, 0], [2, 2, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2]];
    assert_eq!(steps, expected);
}

#[test]
fn a_long_request_is_done_over_several_turns() {
    let mut stepped = Stepped::new(2);
    // Two pieces in one request: the second waits for its turn, and the other queue does not wait for it.
    stepped.ask(0, 1, 2 * PIECE);
    stepped.ask(1, 2, PIECE);
    let steps = stepped.steps(&[1, 2]);
    assert_eq!(steps, [[0, 1], [1, 2]]);
}

/// Small requests, of which a turn has time for many: others wait for so many and no more.
#[test]
fn a_turn_takes_sixty_four_chains_of_a_queue() {
    const TABLE: usize = 0x3000;
    let places = Places {
        size: 256,
        table: 0,
        driver: 0x1000,
        device: 0x2000,
    };
    let mut stepped = Stepped::of_rings(1, Some(places));
    let ram = &stepped.rings[0].ram;
    let descriptor = |at: usize, to: usize, bytes: u32, flags: u16, next: u16| {
        ram.store64(at, GUEST + to as u64);
        ram.store32(at + 8, bytes);
        ram.store16(at + 12, flags);
        ram.store16(at + 14, next);
    };
    // One table for all: NEXT is 1, WRITE 2, INDIRECT 4.
    descriptor(TABLE, HEADER, 16, 1, 1);
    descriptor(TABLE + 16, INTO, 4096, 1 | 2, 2);
    descriptor(TABLE + 32, STATUS, 1, 2, 0);
    for chain in 0..130_u16 {
        descriptor(16 * usize::from(chain), TABLE, 48, 4, 0);
        ram.store16(places.driver + 4 + 2 * usize::from(chain), chain);
    }
    ram.store16(places.driver + 2, 130);
    assert_eq!(stepped.steps(&[130]), [[64], [128], [130]]);
}
