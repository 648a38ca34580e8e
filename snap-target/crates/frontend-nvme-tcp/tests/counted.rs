//! What connections cost on the wire, as telemetry has it: exact bytes. What is alike over every transport is in the suite.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use std::time::Duration;

use frontend_nvme::conformance::{Queue, Target, memory};
use support::on;
use support::raw::TcpQueue;
use telemetry::EventKind;

const HOST: &str = "nqn.2026-11.io.example:host";
/// Blocks of the memory store.
const BLOCKS: u64 = 256;

/// An admin queue and an I/O queue.
fn connect(target: &Target, host: &str) -> (Queue, Queue, u16) {
    let (admin, cntlid) = Queue::admin(&target.place, host, Duration::ZERO);
    let io = Queue::io(&target.place, host, cntlid, 1);
    (admin, io, cntlid)
}

#[test]
fn a_reactor_counts_its_connections_turns_and_wire_bytes() {
    let target = Target::start(&on(), memory());
    let (_admin, mut io, _) = connect(&target, HOST);
    for _ in 0..10 {
        io.read(0);
    }
    io.flush();
    // ICReq, Connect with its data, eleven capsules; ICResp, the answers to Connect and Flush, ten reads. The last send may not be counted yet when its
    // bytes are here. The admin queue's are not among them.
    let received = 128 + (72 + 1024) + 11 * 72;
    let sent = 128 + 2 * 24 + 10 * (24 + 4096);
    let reactor = target.reactor_that_has_sent(sent);
    assert_eq!(
        (reactor.wire_received_bytes, reactor.wire_sent_bytes),
        (received, sent)
    );
    assert_eq!(reactor.connections, 1);
    assert!(!reactor.features.is_empty());
    assert!(reactor.turns >= 10 && reactor.busy_ns > 0, "{reactor:?}");
    assert!(reactor.answers.total_bytes > 0, "{reactor:?}");
    drop(io);
    target.events_with(EventKind::QueueClosed);
    let ring = target.telemetry.clone();
    drop(target);
    let reactor = ring.snapshot().reactors.remove(0);
    assert_eq!(reactor.connections, 0);
    assert!(reactor.idle_ns + reactor.busy_ns <= ring.snapshot().uptime_ns);
}

/// Each command counts where it belongs, whatever came of it; what is the connection's own counts with the reactor alone.
#[test]
fn a_row_has_what_its_commands_were_on_the_wire() {
    let target = Target::start(&on(), memory());
    let (_admin, mut io, _) = connect(&target, HOST);
    for lba in 0..3 {
        io.read(lba);
    }
    let reads = target.row(HOST, 1).unwrap();
    assert_eq!(
        (reads.wire_received_bytes, reads.wire_sent_bytes),
        (3 * 72, 3 * (24 + 4096))
    );
    let cid = io.write(0, 0xAA);
    assert_eq!(io.response().cid, cid);
    let cid = io.send_long_write(8, 4);
    let r2t = io.r2t();
    assert_eq!((r2t.cid, r2t.len), (cid, 4 * 4096));
    io.send_data(r2t, 0xBB);
    assert_eq!(io.response().cid, cid);
    io.read_beyond(BLOCKS - 1, 2);
    assert_ne!(io.flush_of(9).status, 0);
    let (one, none) = (target.row(HOST, 1).unwrap(), target.row(HOST, 0).unwrap());
    assert_eq!((none.wire_received_bytes, none.wire_sent_bytes), (72, 24));
    // The connection's own: ICReq, ICResp, Connect and its answer.
    let sent = one.wire_sent_bytes + none.wire_sent_bytes + 128 + 24;
    let received = one.wire_received_bytes + none.wire_received_bytes + 128 + 72 + 1024;
    let reactor = target.reactor_that_has_sent(sent);
    assert_eq!(
        (reactor.wire_received_bytes, reactor.wire_sent_bytes),
        (received, sent)
    );
}
