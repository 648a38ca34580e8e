//! Nobody waits for ever: neither behind those who wait for something else, nor because others keep coming.

use namespace::{EngineConfig, Io};
use reactor::buf::PoolConfig;

use super::bench::{Bench, LBA_BYTES, buf, config, disk, memory, pattern};
use super::stepped::Steps;

/// Turns in which a request ends that nothing holds up.
const TURNS: usize = 50;
/// Exclusive operations that others may have before one's turn comes.
const PASSED_BY: usize = 8;

/// It finds something else than that.
fn swap() -> Io {
    Io::CompareAndWrite {
        lba: 5,
        expected: Box::new(buf(&pattern(1, 1))),
        data: buf(&pattern(1, 2)),
        durable: false,
    }
}

fn write(lba: u64) -> Io {
    Io::Write {
        lba,
        data: buf(&pattern(1, 3)),
        durable: false,
    }
}

/// A copy has the only answer buffer there is; its write was kept out for a time, behind a read that waits for such a buffer.
#[test]
fn what_has_its_memory_does_not_wait_behind_what_waits_for_some() {
    let one_buffer = EngineConfig {
        pool: PoolConfig {
            slots_4k: 1,
            slots_16k: 0,
            slots_64k: 0,
            slots_128k: 0,
            slots_1m: 0,
            register: false,
        },
        ..config()
    };
    let (steps, store) = Steps::over(memory(64));
    let mut bench = Bench::with(2, vec![disk(1, store)], one_buffer);
    let copy = Io::Copy {
        lba: 8,
        sources: vec![bench.source(1, 0, 1)],
        durable: false,
    };
    let copy = bench.begin(0, 1, copy);
    let exclusive = bench.begin(1, 1, swap());
    let read = Io::Read {
        lba: 0,
        blocks: 1,
        into: None,
    };
    let read = bench.begin(0, 1, read);
    bench.turn();
    assert_eq!(steps.taken(), 2, "the copy and the comparison read");
    // The copy's read happens; its write finds the gate closed.
    steps.allow(1);
    (0..TURNS).for_each(|_| bench.turn());
    assert_eq!(steps.taken(), 2);
    steps.allow(100);
    assert!(bench.end_within(TURNS, 1, exclusive).unwrap().is_err());
    assert!(bench.end_within(TURNS, 0, copy).unwrap().is_ok());
    assert!(bench.end_within(TURNS, 0, read).unwrap().is_ok());
}

/// Exclusive operations on the first reactor without end, two at a time: how many of them end before the request does.
fn passed_by(bench: &mut Bench, on: usize, request: u64) -> usize {
    let mut stream = [bench.begin(0, 1, swap()), bench.begin(0, 1, swap())];
    for passed in 0..10 * PASSED_BY {
        if bench.is_done(on, request) {
            return passed;
        }
        while !bench.is_done(0, stream[0]) {
            bench.turn();
        }
        bench.end(0, stream[0]).unwrap_err();
        stream = [stream[1], bench.begin(0, 1, swap())];
    }
    usize::MAX
}

#[test]
fn exclusive_operations_without_end_let_writes_pass() {
    let mut bench = Bench::new(2, vec![disk(1, memory(64))]);
    for on in [0, 1] {
        // The gate is closed when it comes.
        let first = bench.begin(0, 1, swap());
        let request = bench.begin(on, 1, write(9));
        let passed = passed_by(&mut bench, on, request);
        assert!(passed <= PASSED_BY, "on reactor {on}: {passed}");
        bench.end(on, request).unwrap();
        bench.end(0, first).unwrap_err();
        (0..TURNS).for_each(|_| bench.turn());
        bench.reactors[0].done.clear();
    }
    assert_eq!(bench.read(1, 9, 1).unwrap().len(), LBA_BYTES);
}

#[test]
fn exclusive_operations_without_end_let_those_of_others_pass() {
    let mut bench = Bench::new(2, vec![disk(1, memory(64))]);
    let first = bench.begin(0, 1, swap());
    let second = bench.begin(0, 1, swap());
    let request = bench.begin(1, 1, swap());
    let passed = passed_by(&mut bench, 1, request);
    assert!(passed <= PASSED_BY, "{passed}");
    for (on, token) in [(0, first), (0, second), (1, request)] {
        bench.end(on, token).unwrap_err();
    }
}

/// One that was given up while it waited for its turn holds up nobody.
#[test]
fn who_leaves_the_line_holds_up_nobody() {
    let (steps, store) = Steps::over(memory(64));
    let mut bench = Bench::new(2, vec![disk(1, store)]);
    let before = bench.begin(0, 1, write(1));
    let first = bench.begin(1, 1, swap());
    bench.turn();
    let gone = [bench.begin(0, 1, swap()), bench.begin(0, 1, write(2))];
    let next = bench.begin(1, 1, swap());
    let last = bench.begin(1, 1, write(3));
    bench.turn();
    for token in gone {
        bench.reactors[0].engine.cancel(token);
    }
    steps.allow(100);
    for (on, token, succeeds) in [
        (0, before, true),
        (1, first, false),
        (0, gone[0], false),
        (0, gone[1], false),
        (1, next, false),
        (1, last, true),
    ] {
        let ended = bench.end_within(TURNS, on, token).unwrap();
        assert_eq!(ended.is_ok(), succeeds);
    }
}
