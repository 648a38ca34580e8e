//! Commands that the caller gives up.

use std::sync::mpsc;
use std::time::Duration;

use nvme_spec::{IoOpcode, Status};
use reactor::buf::IoBuf;

use super::bench::{
    Bench, admit, flushing, options, pattern, patterned, reading, segmented, writing,
};
use super::{Rig, TRANSFER_BYTES_MAX};
use crate::queue::{Outcome, QueueError, QueueOptions};

/// What the caller puts into a buffer that is its own again.
const MINE: u8 = 0xA7;

fn make_mine(buf: &mut IoBuf) {
    let len = buf.len();
    assert_eq!(buf.fill(0, len, MINE), len);
}

fn is_mine(buf: &IoBuf) -> bool {
    buf.to_vec().iter().all(|byte| *byte == MINE)
}

pub(super) fn a_read_that_did_not_leave_never_does(rig: &dyn Rig) {
    let port = rig.port(Box::new(|controller| {
        admit(controller);
        for number in [1, 3] {
            let arrived = controller.command().unwrap();
            assert_eq!(arrived.sqe.slba().0, number);
            controller.answer(arrived.tag, Status::SUCCESS, 0, &pattern(512, number));
        }
        assert!(controller.command().is_none());
    }));
    let mut bench = Bench::connected(rig, port.address, &options(rig, 2));
    let sent = bench.submit(&reading(1, 512), Some(segmented(512, &[512])));
    bench.queue().settle();
    let unsent = bench.submit(&reading(2, 512), Some(segmented(512, &[512])));
    bench.queue().abandon(unsent);
    bench.queue().abandon(unsent);
    assert_eq!(bench.queue().room(), 0, "until its end is told");
    let given_up = bench.ended();
    assert_eq!(given_up.slot, unsent);
    assert_eq!(given_up.outcome, Outcome::Lost { was_sent: false });
    assert_eq!(given_up.buf.unwrap().len(), 512);
    let answered = bench.ended();
    assert_eq!((answered.slot, answered.bytes()), (sent, pattern(512, 1)));
    assert_eq!(bench.queue().room(), 2);
    bench.submit(&reading(3, 512), Some(segmented(512, &[512])));
    assert_eq!(bench.ended().bytes(), pattern(512, 3));
    drop(bench);
    port.done();
}

/// Its end waits for nobody; its data come when the buffer has another use.
pub(super) fn a_read_ends_before_its_answer_and_late_data_go_nowhere(rig: &dyn Rig) {
    for bytes in [512, 64 << 10, TRANSFER_BYTES_MAX] {
        let (tell, told) = mpsc::channel();
        let (allow, allowed) = mpsc::channel();
        let port = rig.port(Box::new(move |controller| {
            admit(controller);
            let first = controller.command().unwrap();
            tell.send(()).unwrap();
            allowed.recv().unwrap();
            controller.answer(first.tag, Status::SUCCESS, 0, &pattern(bytes, 1));
            let second = controller.command().unwrap();
            controller.answer(second.tag, Status::SUCCESS, 0, &pattern(bytes, 2));
        }));
        let mut bench = Bench::connected(rig, port.address, &options(rig, 2));
        let slot = bench.submit(&reading(1, bytes), Some(segmented(bytes, &[4096])));
        bench.hear(&told);
        bench.queue().abandon(slot);
        let given_up = bench.ended();
        assert_eq!(given_up.slot, slot);
        assert_eq!(given_up.outcome, Outcome::Lost { was_sent: true });
        let mut buf = given_up.buf.unwrap();
        make_mine(&mut buf);
        bench.queue().abandon(slot);
        assert_eq!(bench.queue().room(), 1, "its slot is the controller's");
        allow.send(()).unwrap();
        bench.until("the slot free", |bench| bench.queue().room() == 2);
        bench.submit(&reading(2, bytes), Some(segmented(bytes, &[4096])));
        assert!(bench.ended().bytes() == pattern(bytes, 2));
        assert!(
            is_mine(&buf),
            "late data reached a buffer that was given back"
        );
        drop(bench);
        port.done();
    }
}

/// A part of the data is there, and more may be on its way into the buffer.
pub(super) fn a_read_whose_data_arrive_lets_its_buffer_go(rig: &dyn Rig) {
    let cases = [(4096, 100), (64 << 10, 1000), (TRANSFER_BYTES_MAX, 300_000)];
    for ((bytes, part), is_filled) in cases.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let (tell, told) = mpsc::channel();
        let (allow, allowed) = mpsc::channel();
        let port = rig.port(Box::new(move |controller| {
            admit(controller);
            let first = controller.command().unwrap();
            controller.begin_answer(first.tag, &pattern(bytes, 1), part);
            tell.send(()).unwrap();
            allowed.recv().unwrap();
            controller.finish_answer();
            let second = controller.command().unwrap();
            controller.answer(second.tag, Status::SUCCESS, 0, &pattern(bytes, 2));
        }));
        let mut bench = Bench::connected(rig, port.address, &options(rig, 2));
        let mut buf = segmented(bytes, &[4096, 100]);
        make_mine(&mut buf);
        let view = buf.clone();
        let slot = bench.submit(&reading(1, bytes), Some(buf));
        let data = pattern(bytes, 1);
        bench.until_holds(rig, &told, &view, (part - 8, &data));
        if is_filled {
            // What comes next is being received.
            bench.expect_quiet();
        }
        bench.queue().abandon(slot);
        let given_up = bench.ended();
        assert_eq!(given_up.slot, slot);
        assert_eq!(given_up.outcome, Outcome::Lost { was_sent: true });
        let mut buf = given_up.buf.unwrap();
        assert_eq!(buf.len(), bytes as usize);
        make_mine(&mut buf);
        allow.send(()).unwrap();
        bench.until("the slot free", |bench| bench.queue().room() == 2);
        assert!(is_mine(&buf), "data reached a buffer that was given back");
        bench.submit(&reading(2, bytes), Some(segmented(bytes, &[4096])));
        assert!(bench.ended().bytes() == pattern(bytes, 2));
        assert!(is_mine(&buf));
        drop(bench);
        port.done();
    }
}

pub(super) fn slots_of_commands_that_were_given_up_are_not_room(rig: &dyn Rig) {
    const DEPTH: u16 = 4;
    let (tell, told) = mpsc::channel();
    let (allow, allowed) = mpsc::channel();
    let port = rig.port(Box::new(move |controller| {
        admit(controller);
        let all: Vec<_> = (0..DEPTH).map(|_| controller.command().unwrap()).collect();
        tell.send(()).unwrap();
        allowed.recv().unwrap();
        for arrived in all {
            let data = pattern(arrived.bytes, arrived.sqe.slba().0);
            controller.answer(arrived.tag, Status::SUCCESS, 0, &data);
        }
        assert!(controller.command().is_none());
    }));
    let mut bench = Bench::connected(rig, port.address, &options(rig, DEPTH));
    for number in 0..u64::from(DEPTH) {
        bench.submit(&reading(number, 4096), Some(segmented(4096, &[4096])));
    }
    bench.hear(&told);
    for index in 0..DEPTH {
        bench.queue().abandon(nvme::queue::Slot(index));
    }
    for _ in 0..DEPTH {
        assert_eq!(bench.ended().outcome, Outcome::Lost { was_sent: true });
    }
    assert_eq!(bench.queue().room(), 0, "the controller has them all");
    let stays = bench.queue.take().unwrap().part();
    bench.queue = Some(stays.expect_err("the controller has commands"));
    allow.send(()).unwrap();
    bench.until("room", |bench| bench.queue().room() == usize::from(DEPTH));
    bench.expect_quiet();
    bench.queue().close();
    bench.over();
    bench.lost(0);
    port.done();
}

pub(super) fn what_does_not_read_goes_on_without_a_timeout(rig: &dyn Rig) {
    let (allow, allowed) = mpsc::channel();
    let port = rig.port(Box::new(move |controller| {
        admit(controller);
        let write = controller.command().unwrap();
        assert_eq!(write.sqe.opcode, IoOpcode::WRITE.0);
        assert!(controller.data(write.tag).unwrap() == pattern(64 << 10, 1));
        allowed.recv().unwrap();
        controller.answer(write.tag, Status::SUCCESS, 0, &[]);
        let event = controller.command().unwrap();
        allowed.recv().unwrap();
        controller.answer(event.tag, Status::SUCCESS, 5, &[]);
        controller.command().unwrap();
        assert!(controller.command().is_none());
    }));
    let timeout = Duration::from_secs(60);
    let options = QueueOptions {
        command_timeout: timeout,
        ..options(rig, 4)
    };
    let mut bench = Bench::connected(rig, port.address, &options);
    let slot = bench.submit(&writing(1, 64 << 10), Some(patterned(64 << 10, 1)));
    bench.queue().settle();
    bench.queue().abandon(slot);
    let late = bench.clock.now() + 2 * timeout;
    bench.poll_at(late);
    bench.expect_quiet();
    allow.send(()).unwrap();
    assert_eq!(bench.ended().cqe().status(), Status::SUCCESS);
    let slot = bench.submit(&flushing(), None);
    bench.queue().settle();
    bench.queue().abandon(slot);
    let late = bench.clock.now() + 2 * timeout;
    bench.poll_at(late);
    bench.expect_quiet();
    allow.send(()).unwrap();
    let answered = bench.ended();
    assert_eq!((answered.slot, answered.cqe().result()), (slot, 5));
    // The same command, waited for.
    bench.submit(&flushing(), None);
    bench.queue().settle();
    bench.expect_quiet();
    let late = bench.clock.now() + 2 * timeout;
    bench.poll_at(late);
    assert!(matches!(bench.over(), QueueError::GivenUp { .. }));
    bench.lost(1);
    port.done();
}
