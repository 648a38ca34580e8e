//! Guests that ask for more than they may hold: of a store that does not answer, so that what is under way stays so.

use std::os::fd::AsFd;

use frontend_nvme::conformance::Gate;

use super::monitor::{DATA, Guest, Monitor, RING_BYTES, longs, words};
use super::served::{Served, file};

const IN: u32 = 0;
const OUT: u32 = 1;
const MIB: u32 = 1 << 20;
/// All requests move the same bytes, from or to the same place.
const HEADER: usize = DATA;
const STATUS: usize = DATA + 0x1000;
const BYTES: usize = DATA + 0x10_0000;
const MEMORY: u64 = 8 << 20;
/// DEVICE_HELD_BYTES_MAX, in pieces.
const PIECES: usize = 16;
/// Answers of a piece that an engine has memory for.
const ANSWERS: usize = 32;

/// A guest with two queues and requests of 4 MiB, which are four pieces each.
struct Greedy {
    reads: bool,
    monitor: Monitor,
    rings: [Guest; 2],
}

impl Greedy {
    fn new(path: &std::path::Path, kind: u32) -> Self {
        let guest = Guest::with_bytes(MEMORY);
        let second = guest.another_ring();
        let rings = [guest, second];
        let mut monitor = Monitor::connect(path);
        monitor.negotiate();
        monitor.share(&rings[0]);
        for queue in 0..2 {
            monitor.start_queue(queue, queue as usize * RING_BYTES, 0);
        }
        rings[0].put(HEADER, &[words(&[kind, 0]), longs(&[0])].concat());
        Self {
            reads: kind == IN,
            monitor,
            rings,
        }
    }

    /// The first queue asks for twenty pieces; when `first` are held, the second one for four, of which it has one, whatever the first one holds.
    fn ask(&mut self, gate: &Gate, held: usize, first: usize) {
        self.ask_on(0, 5);
        gate.wait_held(held + first);
        self.wait_idle();
        assert_eq!(gate.held(), held + first);
        self.ask_on(1, 1);
        gate.wait_held(held + first + 1);
        self.wait_idle();
        assert_eq!(gate.held(), held + first + 1);
    }

    fn ask_on(&mut self, ring: usize, requests: usize) {
        for _ in 0..requests {
            let data = (BYTES, 4 * MIB, self.reads);
            self.rings[ring].chain(&[(HEADER, 16, false), data, (STATUS, 1, true)]);
        }
        self.monitor.kick();
    }

    /// Its reactor has done what there was to do: an order is carried out in a turn, and what that turn begins is begun when the next one is.
    fn wait_idle(&mut self) {
        for _ in 0..64 {
            let call = self.monitor.call.try_clone().unwrap();
            self.monitor.order(13, &longs(&[0]), &[call.as_fd()]);
        }
    }

    fn wait_done(&mut self) {
        for (ring, requests) in self.rings.iter_mut().zip([5, 1]) {
            for _ in 0..requests {
                ring.wait_used();
                assert_eq!(ring.get(STATUS, 1), [0]);
            }
        }
    }
}

#[test]
fn reads_under_way_hold_no_more_than_their_part() {
    let (gate, store) = Gate::over_reads(file(), 1000);
    let served = Served::new(store);
    let (path, _other) = served.another();
    let mut first = Greedy::new(&served.path, IN);
    first.ask(&gate, 0, PIECES);
    // Another guest has half of what is left.
    let mut second = Greedy::new(&path, IN);
    second.ask(&gate, PIECES + 1, (ANSWERS - PIECES - 1).div_ceil(2));
    gate.open();
    first.wait_done();
    second.wait_done();
}

#[test]
fn writes_under_way_hold_no_more_than_their_part() {
    let (gate, store) = Gate::over(file(), 1000);
    let served = Served::new(store);
    let mut guest = Greedy::new(&served.path, OUT);
    guest.ask(&gate, 0, PIECES);
    gate.open();
    guest.wait_done();
}
