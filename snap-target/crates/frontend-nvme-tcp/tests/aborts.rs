//! Abort that aborts: what has not begun ends at once, what the store has is cancelled, and the Abort says truly what came of it.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use std::time::{Duration, Instant};

use support::held::Gate;
use support::raw::Queue;
use support::target::{Target, disk, memory};

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
    let (admin, cntlid) = Queue::admin(&target.address, HOST, NO_KEEP_ALIVE);
    (admin, Queue::io(&target.address, HOST, cntlid, 2))
}

/// A write that was asked for its data: they are dropped when they come, and nothing is written.
#[test]
fn a_write_whose_data_are_on_their_way_is_aborted() {
    let target = Target::start_many(disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    let cid = io.send_write(3);
    let r2t = io.r2t();
    let abort = admin.send_abort(2, cid);
    // The Abort is there before the data are: its reactor has it when it has answered a later one, of a command that is not there.
    assert!(!abort_answer(&mut admin, &[abort], 2));
    io.send_data(r2t, 0xAA);
    let ended = io.response();
    assert_eq!((ended.cid, ended.status), (cid, ABORT_REQUESTED));
    let answer = admin.response();
    assert_eq!((answer.cid, answer.status, answer.dw0), (abort, 0, 0));
    assert_eq!(io.read(3), vec![0; 4096]);
}

/// An Abort of a command that is not there: answered after those before it have reached the reactor.
fn abort_answer(admin: &mut Queue, before: &[u16], qid: u16) -> bool {
    let cid = admin.send_abort(qid, 0xFFF0);
    let answer = admin.response();
    assert!(!before.contains(&answer.cid), "not answered yet");
    assert_eq!((answer.cid, answer.status), (cid, 0));
    answer.dw0 == 0
}

/// A store that never lets go: the Abort is answered all the same, that the command was not aborted, and the command goes on.
#[test]
fn a_write_that_the_store_keeps_is_not_aborted() {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start_many(disk(store), 2);
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
#[test]
fn what_is_not_there_is_not_aborted() {
    let target = Target::start_many(disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    let cid = io.write(3, 0xAA);
    assert_eq!(io.response().status, SUCCESS);
    assert!(!admin.abort(2, cid));
    assert!(!admin.abort(1, cid));
    assert!(!admin.abort(9, cid));
    assert_eq!(io.read(3), vec![0xAA; 4096]);
}

/// ACL: four at a time; the place is free again when one is answered. Aborts of one command all hear of its end.
#[test]
fn aborts_are_limited() {
    let target = Target::start_many(disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    let cid = io.send_write(3);
    let r2t = io.r2t();
    let aborts: Vec<u16> = (0..4).map(|_| admin.send_abort(2, cid)).collect();
    admin.send_abort(2, cid);
    assert_eq!(admin.response().status, LIMIT_EXCEEDED);
    io.send_data(r2t, 0xAA);
    assert_eq!(io.response().status, ABORT_REQUESTED);
    for abort in aborts {
        let answer = admin.response();
        assert_eq!((answer.cid, answer.status, answer.dw0), (abort, 0, 0));
    }
    assert!(!admin.abort(2, 0xFFF0));
}

/// The queue closes while an Abort waits for a command of it: the Abort is answered.
#[test]
fn an_abort_outlives_the_queue() {
    let (gate, store) = Gate::over(memory(), 1);
    let target = Target::start_many(disk(store), 2);
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
#[test]
fn a_first_half_that_waits_is_aborted() {
    let target = Target::start_many(disk(memory()), 2);
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

/// The Write of a pair ends with its Compare while its own data are on their way. They are dropped, and nothing of them is held against the queue,
/// which is asked for no more than 2 MiB at a time.
#[test]
fn aborted_pairs_leave_the_queue_as_it_was() {
    let target = Target::start_many(disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    // 32 KiB each.
    for _ in 0..65 {
        let compare = io.send_remote_half(1, COMPARE, 0, 8);
        let write = io.send_remote_half(2, WRITE, 0, 8);
        let (of_compare, of_write) = (io.r2t(), io.r2t());
        assert_eq!((of_compare.cid, of_write.cid), (compare, write));
        let abort = admin.send_abort(2, compare);
        assert!(!abort_answer(&mut admin, &[abort], 2));
        io.send_data(of_compare, 0);
        let ended = io.response();
        assert_eq!((ended.cid, ended.status), (compare, ABORT_REQUESTED));
        io.send_data(of_write, 0xAA);
        let ended = io.response();
        assert_eq!((ended.cid, ended.status), (write, FUSED_FAILED));
        let answer = admin.response();
        assert_eq!((answer.cid, answer.dw0), (abort, 0));
    }
    assert_eq!(io.read(0), vec![0; 4096]);
    let cid = io.write(0, 0x55);
    let ended = io.response();
    assert_eq!((ended.cid, ended.status), (cid, SUCCESS));
}
