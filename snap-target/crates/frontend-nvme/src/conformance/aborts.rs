//! Abort that aborts: what has not begun ends at once, what the store has is cancelled, and the Abort says truly what came of it.

use std::time::{Duration, Instant};

use super::{Gate, On, Queue, Target, disk, memory};

const HOST: &str = "nqn.2026-11.io.example:host";
const NO_KEEP_ALIVE: Duration = Duration::ZERO;
const SUCCESS: u16 = 0;
/// Command Aborted due to Failed Fused Command.
const FUSED_FAILED: u16 = 0x09;
const COMPARE: u8 = 0x05;
const WRITE: u8 = 0x01;
/// Command Abort Requested.
const ABORT_REQUESTED: u16 = 0x07;
/// Abort Command Limit Exceeded, Do Not Retry.
const LIMIT_EXCEEDED: u16 = 0x4103;

/// Two reactors: the admin queue is at the first, the I/O queue of these tests at the second.
fn connect(target: &Target) -> (Queue, Queue) {
    let (admin, cntlid) = Queue::admin(&target.place, HOST, NO_KEEP_ALIVE);
    (admin, Queue::io(&target.place, HOST, cntlid, 2))
}

/// A store that never lets go: the Abort is answered all the same, that the command was not aborted, and the command goes on.
pub(super) fn a_write_that_the_store_keeps_is_not_aborted(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start_many(on, disk(store), 2);
    let (mut admin, mut io) = connect(&target);
    let cid = io.write(3, 0xAA);
    gate.wait_held(1);
    let asked = Instant::now();
    assert!(!admin.abort(2, cid));
    assert!(asked.elapsed() < Duration::from_secs(5));
    gate.open();
    let ended = io.response();
    assert_eq!((ended.cid, ended.status), (cid, SUCCESS));
    assert_eq!(io.read(3), vec![0xAA; 4096]);
}

/// Answered before it came, never there, on no queue of the controller: not aborted, at once.
pub(super) fn what_is_not_there_is_not_aborted(on: &On) {
    let target = Target::start_many(on, disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    let cid = io.write(3, 0xAA);
    assert_eq!(io.response().status, SUCCESS);
    assert!(!admin.abort(2, cid));
    assert!(!admin.abort(1, cid));
    assert!(!admin.abort(9, cid));
    assert_eq!(io.read(3), vec![0xAA; 4096]);
}

/// ACL: four at a time; the place is free again when one is answered. Aborts of one command all hear of its end.
pub(super) fn aborts_are_limited(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start_many(on, disk(store), 2);
    let (mut admin, mut io) = connect(&target);
    let cid = io.write(3, 0xAA);
    gate.wait_held(1);
    let aborts: Vec<u16> = (0..4).map(|_| admin.send_abort(2, cid)).collect();
    admin.send_abort(2, cid);
    assert_eq!(admin.response().status, LIMIT_EXCEEDED);
    gate.open();
    assert_eq!(io.response().status, SUCCESS);
    for abort in aborts {
        let answer = admin.response();
        assert_eq!((answer.cid, answer.status, answer.dw0), (abort, 0, 1));
    }
    assert!(!admin.abort(2, 0xFFF0));
}

/// The queue closes while an Abort waits for a command of it: the Abort is answered.
pub(super) fn an_abort_outlives_the_queue(on: &On) {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start_many(on, disk(store), 2);
    let (mut admin, mut io) = connect(&target);
    let cid = io.write(3, 0xAA);
    gate.wait_held(1);
    let abort = admin.send_abort(2, cid);
    drop(io);
    let answer = admin.response();
    assert_eq!((answer.cid, answer.status, answer.dw0), (abort, 0, 1));
    gate.open();
}

/// A first half that waits for its second one has begun nothing: it ends at once, and its second half fails with it.
pub(super) fn a_first_half_that_waits_is_aborted(on: &On) {
    let target = Target::start_many(on, disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    let first = io.send_half(1, COMPARE, [3, 0, 0], &[0; 4096]);
    let asked = Instant::now();
    // Its reactor may not have it yet.
    while !admin.abort(2, first) {
        assert!(asked.elapsed() < Duration::from_secs(1), "it is not ended");
    }
    let ended = io.response();
    assert_eq!((ended.cid, ended.status), (first, ABORT_REQUESTED));
    let second = io.send_half(2, WRITE, [3, 0, 0], &[0xAA; 4096]);
    let failed = io.response();
    assert_eq!((failed.cid, failed.status), (second, FUSED_FAILED));
    assert_eq!(io.read(3), vec![0; 4096]);
}
