//! Requests of several parts that are given up: each is answered once, and begins nothing more.

use namespace::{Io, NamespaceError};
use nvme_spec::Status;

use super::bench::{Bench, buf, disk, memory, pattern};
use super::stepped::Steps;

fn turns(bench: &mut Bench) {
    for _ in 0..20 {
        bench.turn();
    }
}

fn is_cancelled(error: &NamespaceError) -> bool {
    error.status(true).code() == Status::ABORT_REQUESTED
}

#[test]
fn a_cancel_ends_the_part_under_way_and_begins_no_more() {
    let (steps, store) = Steps::over(memory(4096));
    let mut bench = Bench::new(1, vec![disk(1, store)]);
    let verify = bench.begin(
        0,
        1,
        Io::Verify {
            lba: 0,
            blocks: 4096,
        },
    );
    steps.allow(2);
    turns(&mut bench);
    assert_eq!(steps.taken(), 3);
    bench.reactors[0].engine.cancel(verify);
    assert!(is_cancelled(&bench.end(0, verify).unwrap_err()));
    assert_eq!(steps.taken(), 3);
    assert!(!bench.reactors[0].engine.is_busy());
}

/// The store does not listen: the piece that it has keeps others' writes back until it has ended.
#[test]
fn an_abandoned_zeroing_holds_writes_back_until_its_piece_has_ended() {
    let (steps, store) = Steps::over(memory(8192));
    let mut bench = Bench::new(2, vec![disk(1, store)]);
    let zeroes = Io::WriteZeroes {
        lba: 0,
        blocks: 8192,
        deallocate: false,
        durable: false,
    };
    let lost = bench.begin(0, 1, zeroes);
    steps.allow(1);
    turns(&mut bench);
    assert_eq!(steps.taken(), 2, "the second piece is with the store");
    bench.reactors[0].engine.abandon(|token| token == lost);
    let write = Io::Write {
        lba: 0,
        data: buf(&pattern(1, 1)),
        durable: false,
    };
    let write = bench.begin(1, 1, write);
    turns(&mut bench);
    assert_eq!(steps.taken(), 2, "the write waits");
    steps.allow(100);
    bench.end(1, write).unwrap();
    assert!(is_cancelled(&bench.end(0, lost).unwrap_err()));
    assert_eq!(steps.taken(), 3, "no third piece");
    assert!(!bench.reactors.iter().any(|each| each.engine.is_busy()));
}

#[test]
fn an_exclusive_request_that_is_given_up_lets_others_in() {
    let (steps, store) = Steps::over(memory(64));
    let mut bench = Bench::new(2, vec![disk(1, store)]);
    let write = || Io::Write {
        lba: 0,
        data: buf(&pattern(1, 1)),
        durable: false,
    };
    let swap = || Io::CompareAndWrite {
        lba: 0,
        expected: Box::new(buf(&pattern(1, 1))),
        data: buf(&pattern(1, 2)),
        durable: false,
    };
    // While it waits for a write that is under way.
    let before = bench.begin(0, 1, write());
    let exclusive = bench.begin(1, 1, swap());
    let after = bench.begin(1, 1, write());
    turns(&mut bench);
    assert_eq!(steps.taken(), 1);
    bench.reactors[1].engine.cancel(exclusive);
    assert!(is_cancelled(&bench.end(1, exclusive).unwrap_err()));
    turns(&mut bench);
    assert_eq!(steps.taken(), 2, "the write behind it has begun");
    steps.allow(2);
    bench.end(0, before).unwrap();
    bench.end(1, after).unwrap();

    // While its comparison reads.
    let exclusive = bench.begin(1, 1, swap());
    turns(&mut bench);
    assert_eq!(steps.taken(), 3);
    let after = bench.begin(0, 1, write());
    bench.reactors[1].engine.abandon(|token| token == exclusive);
    assert!(is_cancelled(&bench.end(1, exclusive).unwrap_err()));
    steps.allow(1);
    bench.end(0, after).unwrap();
    assert!(!bench.reactors.iter().any(|each| each.engine.is_busy()));
}
