//! Measures a function: reads or writes at random places in a closed loop on one pair of queues, by a client that never sleeps, as SPDK's.
//!
//! ```text
//! queue_load SOCKET mapped|rung|shadow read|write BYTES DEPTH SECONDS [PAUSE_US]
//! ```
//!
//! `mapped`: doorbells are written into the page that a function with `poll` offers; `rung`: each is a message; `shadow`: they are in the client's memory (Doorbell
//! Buffer Config), and a message where the controller waits for one. Prints commands a second, and how long one took in the mean. With a pause there is
//! one command at a time, and so many microseconds pass before the next: what a target that has gone to sleep takes. Before it begins, every block
//! of the region is written with bytes of its own, and when a run of reads is over, each is read once more and compared.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a tool for measuring"
)]

#[allow(dead_code, reason = "a part of it")]
#[path = "../tests/guest/client.rs"]
mod client;
#[path = "queue_load/guest.rs"]
mod guest;

use std::path::Path;
use std::time::{Duration, Instant};

use guest::{Guest, Mode, Op};

/// The first so many bytes of the namespace are read and written.
const REGION_BYTES: u64 = 256 << 20;
/// Commands between two looks at the clock.
const LOOK_EVERY: u64 = 256;

/// Commands in a closed loop, and where they go.
struct Load {
    guest: Guest,
    op: Op,
    bytes: u64,
    random: u64,
}

impl Load {
    /// The place of the next command, in units of its bytes.
    fn next_place(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % (REGION_BYTES / self.bytes)
    }

    /// So many commands at a time until it is over; how many were answered.
    fn run(&mut self, depth: u16, length: Duration) -> (u64, Duration) {
        let begin = Instant::now();
        for slot in 0..depth {
            let place = self.next_place();
            self.guest.put(slot, self.op, place);
        }
        self.guest.ring_tail();
        let (mut answered, mut outstanding, mut is_over) = (0_u64, u64::from(depth), false);
        let mut look = LOOK_EVERY;
        while outstanding > 0 {
            let mut came = 0;
            while let Some(slot) = self.guest.take() {
                came += 1;
                if !is_over {
                    let place = self.next_place();
                    self.guest.put(slot, self.op, place);
                }
            }
            if came == 0 {
                std::hint::spin_loop();
                continue;
            }
            self.guest.ring_head();
            if is_over {
                outstanding -= came;
            } else {
                self.guest.ring_tail();
            }
            answered += came;
            if answered >= look {
                look = answered + LOOK_EVERY;
                is_over = begin.elapsed() >= length;
            }
        }
        (answered, begin.elapsed())
    }

    /// One command at a time, with a pause before each, until it is over; how many there were, and how long they took together.
    fn run_with_pauses(&mut self, length: Duration, pause: Duration) -> (u64, Duration) {
        let (begin, mut took, mut answered) = (Instant::now(), Duration::ZERO, 0);
        while begin.elapsed() < length {
            let paused = Instant::now();
            while paused.elapsed() < pause {
                std::hint::spin_loop();
            }
            let place = self.next_place();
            let asked = Instant::now();
            self.guest.put(0, self.op, place);
            self.guest.ring_tail();
            while self.guest.take().is_none() {
                std::hint::spin_loop();
            }
            took += asked.elapsed();
            self.guest.ring_head();
            answered += 1;
        }
        (answered, took)
    }

    /// Every place once, one command at a time.
    fn each(&mut self, op: Op, mut then: impl FnMut(&mut Guest, u64)) {
        for place in 0..REGION_BYTES / self.bytes {
            if op == Op::Write {
                self.guest.stamp(0, place);
            }
            self.guest.put(0, op, place);
            self.guest.ring_tail();
            while self.guest.take().is_none() {
                std::hint::spin_loop();
            }
            self.guest.ring_head();
            then(&mut self.guest, place);
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, mode, op, bytes, depth, seconds, pause @ ..] = arguments.as_slice() else {
        panic!("SOCKET mapped|rung|shadow read|write BYTES DEPTH SECONDS [PAUSE_US]");
    };
    let pause = pause
        .first()
        .map(|us| Duration::from_micros(us.parse().unwrap()));
    let mode = match mode.as_str() {
        "mapped" => Mode::Mapped,
        "rung" => Mode::Rung,
        "shadow" => Mode::Shadow,
        other => panic!("{other} is none of mapped, rung, shadow"),
    };
    let op = match op.as_str() {
        "read" => Op::Read,
        "write" => Op::Write,
        other => panic!("{other} is neither read nor write"),
    };
    let (bytes, depth): (u64, u16) = (bytes.parse().unwrap(), depth.parse().unwrap());
    let length = Duration::from_secs_f64(seconds.parse().unwrap());
    let mut load = Load {
        guest: Guest::attach(Path::new(socket), mode, bytes, depth),
        op,
        bytes,
        random: 0x9E37_79B9_7F4A_7C15,
    };
    load.each(Op::Write, |_, _| {});
    // It runs in before it is measured.
    load.run(depth, length / 10);
    println!("begin");
    let (answered, took) = match pause {
        Some(pause) => load.run_with_pauses(length, pause),
        None => load.run(depth, length),
    };
    println!("end");
    let per_second = answered as f64 / took.as_secs_f64();
    let latency_us = f64::from(depth) / per_second * 1e6;
    println!(
        "{answered} commands, {per_second:.0} a second, {:.3} GB/s, {latency_us:.3} us each",
        per_second * bytes as f64 / 1e9
    );
    // A null store has no bytes to compare.
    if op == Op::Read && !load.guest.is_zeros(0) {
        load.each(Op::Read, |guest, place| guest.compare(0, place));
        println!("every block has its bytes");
    }
}
