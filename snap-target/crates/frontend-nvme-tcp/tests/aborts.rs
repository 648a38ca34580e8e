//! Aborts of writes whose data were asked for and have not all come. What is alike over every transport is in the suite.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use std::time::Duration;

use frontend_nvme::conformance::{Queue, Target, disk, memory};
use support::on;
use support::raw::TcpQueue;

const HOST: &str = "nqn.2026-11.io.example:host";
const NO_KEEP_ALIVE: Duration = Duration::ZERO;
const SUCCESS: u16 = 0;
/// Command Aborted due to Failed Fused Command.
const FUSED_FAILED: u16 = 0x09;
const COMPARE: u8 = 0x05;
const WRITE: u8 = 0x01;
/// Command Abort Requested.
const ABORT_REQUESTED: u16 = 0x07;
/// FES: Data Transfer Out of Range.
const OUT_OF_RANGE: u16 = 4;

/// Two reactors: the admin queue is at the first, the I/O queue of these tests at the second.
fn connect(target: &Target) -> (Queue, Queue) {
    let (admin, cntlid) = Queue::admin(&target.place, HOST, NO_KEEP_ALIVE);
    (admin, Queue::io(&target.place, HOST, cntlid, 2))
}

/// A write that was asked for its data is ended at once, whatever of them has come. The rest is dropped when it comes: nothing is written of it, and nothing of
/// it goes into the command that has the identifier next.
#[test]
fn a_write_whose_data_are_on_their_way_is_aborted() {
    let target = Target::start_many(&on(), disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    for (before, fill) in [(0, 0x50), (1, 0x51), (2, 0x52)] {
        let cid = io.send_long_write(0, 3);
        let old = io.r2t();
        for part in 0..before {
            io.send_part(old, part, 0xAA);
        }
        assert!(admin.abort(2, cid));
        let ended = io.response();
        assert_eq!((ended.cid, ended.status), (cid, ABORT_REQUESTED));
        io.use_cid(cid);
        assert_eq!(io.send_long_write(8, 3), cid);
        let new = io.r2t();
        assert_eq!((new.cid, new.offset), (cid, 0));
        for part in 0..3 {
            io.send_part(new, part, fill);
            if part >= before {
                io.send_part(old, part, 0xAA);
            }
        }
        let ended = io.response();
        assert_eq!((ended.cid, ended.status), (cid, SUCCESS));
        for block in 0..3 {
            assert_eq!(io.read(block), vec![0; 4096]);
            assert_eq!(io.read(8 + block), vec![fill; 4096]);
        }
    }
}

/// The last of the data and the Abort cross each other: either is first, and both answers say the same.
#[test]
fn an_abort_beside_the_last_data_says_what_came_of_the_write() {
    let target = Target::start_many(&on(), disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    for round in 0..100 {
        let cid = io.send_write(round);
        let r2t = io.r2t();
        let abort = admin.send_abort(2, cid);
        io.send_data(r2t, 0xAA);
        let (ended, answer) = (io.response(), admin.response());
        assert_eq!(
            (ended.cid, answer.cid, answer.status),
            (cid, abort, SUCCESS)
        );
        let (status, fill) = match answer.dw0 {
            0 => (ABORT_REQUESTED, 0),
            _ => (SUCCESS, 0xAA),
        };
        assert_eq!(ended.status, status);
        assert_eq!(io.read(round), vec![fill; 4096]);
    }
}

/// What was held for the data is there for others at once: the host is asked for the data of further writes, of which 2 MiB may be on their way.
#[test]
fn memory_of_an_aborted_write_is_given_back_before_its_data_come() {
    let target = Target::start_many(&on(), disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    let mut owed = Vec::new();
    for _ in 0..4 {
        let cids = [io.send_long_write(0, 256), io.send_long_write(0, 256)];
        for cid in cids {
            let r2t = io.r2t();
            assert_eq!((r2t.cid, r2t.len), (cid, 1 << 20));
            owed.push(r2t);
        }
        for cid in cids {
            assert!(admin.abort(2, cid));
            assert_eq!(io.response().status, ABORT_REQUESTED);
        }
    }
    for r2t in owed {
        io.send_data(r2t, 0xAA);
    }
    assert_eq!(io.read(0), vec![0; 4096]);
    let cid = io.write(0, 0x55);
    let ended = io.response();
    assert_eq!((ended.cid, ended.status), (cid, SUCCESS));
}

/// More than was asked for is fatal, also where it would be dropped.
#[test]
fn data_beyond_what_an_aborted_write_owes_end_the_connection() {
    let target = Target::start_many(&on(), disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    let cid = io.send_long_write(0, 3);
    let r2t = io.r2t();
    assert!(admin.abort(2, cid));
    assert_eq!(io.response().status, ABORT_REQUESTED);
    let more = io.data_pdu(r2t, 0, &[0xAA; 4 * 4096]);
    io.send_bytes(&more);
    assert_eq!(io.fatal_error_status(), OUT_OF_RANGE);
    io.wait_closed();
}

/// The Write of a pair ends with its Compare while the data of both are on their way. They are dropped, and nothing of them is held against the queue,
/// which is asked for no more than 2 MiB at a time.
#[test]
fn aborted_pairs_leave_the_queue_as_it_was() {
    let target = Target::start_many(&on(), disk(memory()), 2);
    let (mut admin, mut io) = connect(&target);
    // 32 KiB each.
    for _ in 0..65 {
        let compare = io.send_remote_half(1, COMPARE, 0, 8);
        let write = io.send_remote_half(2, WRITE, 0, 8);
        let (of_compare, of_write) = (io.r2t(), io.r2t());
        assert_eq!((of_compare.cid, of_write.cid), (compare, write));
        assert!(admin.abort(2, compare));
        let ended = io.response();
        assert_eq!((ended.cid, ended.status), (compare, ABORT_REQUESTED));
        let ended = io.response();
        assert_eq!((ended.cid, ended.status), (write, FUSED_FAILED));
        io.send_data(of_write, 0xAA);
        io.send_data(of_compare, 0);
    }
    assert_eq!(io.read(0), vec![0; 4096]);
    let cid = io.write(0, 0x55);
    let ended = io.response();
    assert_eq!((ended.cid, ended.status), (cid, SUCCESS));
}
