//! Queues that go from one ring to another.

use std::sync::mpsc;

use nvme_spec::Status;

use super::bench::{Bench, admit, options, pattern, reading, segmented, writing};
use super::{Controller, Rig};
use crate::queue::{Parted, QueueError};

/// Reads and writes a little, so that every part of the queue is used.
fn work(bench: &mut Bench, first: u64) {
    for number in first..first + 4 {
        let bytes = 512 << (3 * (number % 4));
        bench.submit(&reading(number, bytes), Some(segmented(bytes, &[4096])));
        assert!(bench.ended().bytes() == pattern(bytes, number));
        let mut buf = segmented(bytes, &[1000]);
        buf.copy_from(0, &pattern(bytes, number));
        bench.submit(&writing(number, bytes), Some(buf));
        assert_eq!(bench.ended().cqe().status(), Status::SUCCESS);
    }
}

fn serve(controller: &mut dyn Controller) {
    admit(controller);
    while let Some(arrived) = controller.command() {
        let expected = pattern(arrived.bytes, arrived.sqe.slba().0);
        if arrived.sqe.opcode == nvme_spec::IoOpcode::READ.0 {
            controller.answer(arrived.tag, Status::SUCCESS, 0, &expected);
        } else {
            assert!(controller.data(arrived.tag).unwrap() == expected);
            controller.answer(arrived.tag, Status::SUCCESS, 0, &[]);
        }
    }
}

pub(super) fn an_idle_queue_moves_to_another_thread_and_back(rig: &dyn Rig) {
    let port = rig.port(Box::new(serve));
    let mut here = Bench::connected(rig, port.address, &options(rig, 8));
    for round in 0..3 {
        // Once right after Connect, and then after work.
        if round > 0 {
            work(&mut here, 100 * round);
        }
        let clock = here.clock.clone();
        let parted = here.part();
        let moved = std::thread::spawn(move || {
            let mut there = Bench::empty(clock);
            there.queue = Some(parted.join(&there.ring).unwrap());
            assert_eq!(there.queue().room(), 8);
            work(&mut there, 100 * round + 50);
            there.part()
        });
        let back = moved.join().unwrap();
        here.queue = Some(back.join(&here.ring).unwrap());
    }
    work(&mut here, 1000);
    drop(here);
    port.done();
}

/// Headers of a command's data and its answer, where they go in few pieces.
const HEADERS_BYTES_MAX: u64 = 1 << 10;
/// And where the controller sends data in many: of so many bytes, one is a header's.
const HEADERS_SHARE: u64 = 32;

pub(super) fn what_crossed_the_network_is_counted_wherever_the_queue_is(rig: &dyn Rig) {
    let port = rig.port(Box::new(serve));
    let mut here = Bench::connected(rig, port.address, &options(rig, 8));
    let is_about = |counted: u64, bytes: u32| {
        let bytes = u64::from(bytes);
        (bytes..bytes + bytes / HEADERS_SHARE + HEADERS_BYTES_MAX).contains(&counted)
    };
    here.until("Connect is counted", |bench| {
        bench.queue().wire().sent >= 1024
    });
    for bytes in [4 << 10, 256 << 10] {
        let before = here.queue().wire();
        here.submit(&reading(1, bytes), Some(segmented(bytes, &[4096])));
        assert!(here.ended().bytes() == pattern(bytes, 1));
        let received = here.queue().wire().received - before.received;
        assert!(is_about(received, bytes), "{received} of {bytes}");
        let mut buf = segmented(bytes, &[1000]);
        buf.copy_from(0, &pattern(bytes, 1));
        here.submit(&writing(1, bytes), Some(buf));
        assert_eq!(here.ended().cqe().status(), Status::SUCCESS);
        // The command of the read is in it as well.
        here.until("the write is counted", |bench| {
            is_about(bench.queue().wire().sent - before.sent, bytes)
        });
        let counted = here.queue().wire();
        let parted = here.part();
        here.queue = Some(parted.join(&here.ring).unwrap());
        assert_eq!(here.queue().wire(), counted);
    }
    drop(here);
    port.done();
}

pub(super) fn a_queue_with_something_outstanding_stays(rig: &dyn Rig) {
    let (allow, allowed) = mpsc::channel();
    let port = rig.port(Box::new(move |controller| {
        admit(controller);
        let arrived = controller.command().unwrap();
        allowed.recv().unwrap();
        controller.answer(arrived.tag, Status::SUCCESS, 0, &pattern(512, 1));
        assert!(controller.command().is_none());
    }));
    let mut bench = Bench::connected(rig, port.address, &options(rig, 8));
    bench.submit(&reading(1, 512), Some(segmented(512, &[512])));
    for _ in 0..3 {
        let stays = bench.queue.take().unwrap().part();
        bench.queue = Some(stays.expect_err("a command is outstanding"));
        bench.expect_quiet();
    }
    allow.send(()).unwrap();
    assert_eq!(bench.ended().bytes(), pattern(512, 1));
    drop(bench.part());
    port.done();
}

pub(super) fn what_the_peer_did_meanwhile_is_found_after_a_move(rig: &dyn Rig) {
    let (allow, allowed) = mpsc::channel();
    let port = rig.port(Box::new(move |controller| {
        admit(controller);
        allowed.recv().unwrap();
    }));
    let to = port.address;
    let mut bench = Bench::connected(rig, to, &options(rig, 8));
    let parted: Box<dyn Parted> = bench.part();
    allow.send(()).unwrap();
    port.done();
    bench.queue = Some(parted.join(&bench.ring).unwrap());
    match bench.over() {
        QueueError::Ended { to: named, .. } => assert_eq!(named, to),
        other => panic!("the peer ended it: {other:?}"),
    }
    bench.lost(0);
}
