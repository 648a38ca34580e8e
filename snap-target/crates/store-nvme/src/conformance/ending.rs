//! The end of a connection, from either side and at any moment.

use std::sync::mpsc;
use std::time::Duration;

use nvme_spec::Status;
use reactor::buf::IoBuf;

use super::bench::{
    Bench, admit, flushing, options, pattern, patterned, reading, segmented, writing,
};
use super::{Controller, Port, Rig, TRANSFER_BYTES_MAX};
use crate::queue::{Outcome, QueueError, QueueOptions};

const SENT: Outcome = Outcome::Lost { was_sent: true };
const NOT_SENT: Outcome = Outcome::Lost { was_sent: false };

/// A script that takes commands until the host goes, and answers none.
fn take_all(rig: &dyn Rig, count: usize) -> (Port, mpsc::Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let port = rig.port(Box::new(move |controller| {
        admit(controller);
        for _ in 0..count {
            controller.command().unwrap();
        }
        tell.send(()).unwrap();
        assert!(controller.command().is_none(), "the host goes");
    }));
    (port, told)
}

/// One command of each kind: those that moved, and one that did not leave.
pub(super) fn closing_ends_everything_once(rig: &dyn Rig) {
    let (port, told) = take_all(rig, 4);
    let mut bench = Bench::connected(rig, port.address, &options(rig, 8));
    bench.submit(&reading(1, 64 << 10), Some(patterned(64 << 10, 1)));
    bench.submit(&writing(2, 4096), Some(patterned(4096, 2)));
    bench.submit(
        &writing(3, TRANSFER_BYTES_MAX),
        Some(patterned(TRANSFER_BYTES_MAX, 3)),
    );
    bench.submit(&flushing(), None);
    bench.hear(&told);
    bench.submit(&writing(5, 512), Some(patterned(512, 5)));
    bench.close();
    bench.queue().close();
    assert_eq!(bench.over(), QueueError::Closed { to: port.address });
    let mut lost = bench.lost(5);
    for buf in lost.iter_mut().filter_map(|ended| ended.buf.as_mut()) {
        assert!(buf.exclusive().is_some(), "nothing else refers to it");
    }
    let outcomes: Vec<Outcome> = lost.iter().map(|ended| ended.outcome).collect();
    assert_eq!(outcomes, [SENT, SENT, SENT, SENT, NOT_SENT]);
    let contents: Vec<Option<Vec<u8>>> = lost
        .iter()
        .map(|ended| ended.buf.as_ref().map(IoBuf::to_vec))
        .collect();
    let expected = [(64 << 10, 1), (4096, 2), (TRANSFER_BYTES_MAX, 3)];
    let mut expected: Vec<_> = expected.map(|(len, seed)| Some(pattern(len, seed))).into();
    expected.extend([None, Some(pattern(512, 5))]);
    assert!(contents == expected, "each buffer comes back as it was");
    port.done();
}

/// A receive fills the buffer: it ends before the command does.
pub(super) fn closing_amid_the_data_of_a_read_waits_for_its_buffer(rig: &dyn Rig) {
    let (tell, told) = mpsc::channel();
    let (allow, allowed) = mpsc::channel();
    let port = rig.port(Box::new(move |controller| {
        admit(controller);
        let read = controller.command().unwrap();
        let data = pattern(TRANSFER_BYTES_MAX, 1);
        controller.begin_answer(read.tag, &data, 300_000);
        tell.send(()).unwrap();
        allowed.recv().unwrap();
        controller.finish_answer();
    }));
    let mut bench = Bench::connected(rig, port.address, &options(rig, 8));
    let buf = IoBuf::heap(TRANSFER_BYTES_MAX as usize).unwrap();
    let view = buf.clone();
    bench.submit(&reading(1, TRANSFER_BYTES_MAX), Some(buf));
    let data = pattern(TRANSFER_BYTES_MAX, 1);
    bench.until_holds(rig, &told, &view, (299_000, &data));
    drop(view);
    bench.expect_quiet();
    bench.close();
    assert_eq!(bench.over(), QueueError::Closed { to: port.address });
    let mut lost = bench.lost(1);
    assert_eq!(lost[0].outcome, SENT);
    let buf = lost[0].buf.as_mut().unwrap();
    assert!(buf.exclusive().is_some(), "nothing else refers to it");
    allow.send(()).unwrap();
    port.done();
}

pub(super) fn a_closed_queue_takes_nothing(rig: &dyn Rig) {
    let (port, told) = take_all(rig, 1);
    let mut bench = Bench::connected(rig, port.address, &options(rig, 8));
    let slot = bench.submit(&reading(1, 512), Some(segmented(512, &[512])));
    bench.hear(&told);
    bench.queue().close();
    assert_eq!(bench.queue().room(), 0);
    bench.queue().abandon(slot);
    let now = bench.clock.now();
    let taken = bench
        .queue()
        .submit(&writing(1, 512), Some(patterned(512, 1)), now);
    let buf = taken
        .expect_err("it is closed")
        .expect("the buffer comes back");
    assert_eq!(buf.to_vec(), pattern(512, 1));
    let closed = QueueError::Closed { to: port.address };
    assert_eq!(bench.over(), closed);
    let lost = bench.lost(1);
    assert_eq!((lost[0].slot, lost[0].outcome), (slot, SENT));
    let stays = bench.queue.take().unwrap().part();
    bench.queue = Some(stays.expect_err("it is closed"));
    assert_eq!(bench.queue().deadline(), None);
    port.done();
}

/// Where a controller goes.
#[derive(Clone, Copy, Debug)]
enum Step {
    AtOnce,
    AfterConnect,
    WithACommandOfEachKind,
    AmidTheDataOfARead,
    AfterItAskedForData,
}

pub(super) fn a_peer_that_goes_ends_everything_once(rig: &dyn Rig) {
    for step in [
        Step::AtOnce,
        Step::AfterConnect,
        Step::WithACommandOfEachKind,
        Step::AmidTheDataOfARead,
        Step::AfterItAskedForData,
    ] {
        let port = rig.port(Box::new(move |controller| go_at(controller, step)));
        let to = port.address;
        let mut bench = Bench::connecting(rig, to, &options(rig, 8)).unwrap();
        bench.expect_ready();
        bench.send_connect(8);
        let mut expected = 1;
        if !matches!(step, Step::AtOnce) {
            assert_eq!(bench.ended().cqe().status(), Status::SUCCESS);
            expected = 0;
        }
        if !matches!(step, Step::AtOnce | Step::AfterConnect) {
            expected = 3;
            let bytes = TRANSFER_BYTES_MAX;
            bench.submit(&reading(1, bytes), Some(segmented(bytes, &[4096])));
            bench.submit(&writing(2, bytes), Some(patterned(bytes, 2)));
            bench.submit(&flushing(), None);
        }
        match bench.over() {
            QueueError::Ended { to: named, .. } => assert_eq!(named, to, "{step:?}"),
            other => panic!("{step:?}: the peer ended it: {other:?}"),
        }
        for mut ended in bench.lost(expected) {
            assert_eq!(ended.outcome, SENT, "{step:?}");
            if let Some(buf) = &mut ended.buf {
                let len = buf.len();
                assert_eq!(buf.fill(0, len, 1), len, "it is the caller's");
            }
        }
        port.done();
    }
}

fn go_at(controller: &mut dyn Controller, step: Step) {
    if matches!(step, Step::AtOnce) {
        controller.command().unwrap();
        return;
    }
    admit(controller);
    if matches!(step, Step::AfterConnect) {
        return;
    }
    let [read, write, _flush] = [(); 3].map(|()| controller.command().unwrap());
    match step {
        Step::AmidTheDataOfARead => {
            controller.begin_answer(read.tag, &pattern(TRANSFER_BYTES_MAX, 1), 200_000);
        }
        Step::AfterItAskedForData => controller.ask(write.tag),
        _ => {}
    }
}

pub(super) fn a_command_without_an_answer_ends_the_connection_in_time(rig: &dyn Rig) {
    let (port, told) = take_all(rig, 2);
    let timeout = Duration::from_secs(60);
    let options = QueueOptions {
        command_timeout: timeout,
        ..options(rig, 8)
    };
    let mut bench = Bench::connected(rig, port.address, &options);
    let submitted = bench.clock.now();
    bench.submit(&reading(1, 4096), Some(segmented(4096, &[4096])));
    bench.submit(&writing(2, 4096), Some(patterned(4096, 2)));
    bench.hear(&told);
    let due = bench.queue().deadline().expect("commands have a timeout");
    assert!(due <= bench.clock.now() + timeout);
    bench.poll_at(submitted + (timeout - Duration::from_nanos(1)));
    bench.expect_quiet();
    let at = bench.clock.now() + timeout;
    bench.poll_at(at);
    match bench.over() {
        QueueError::GivenUp { to, why } => {
            assert_eq!(to, port.address);
            assert!(why.contains("within 60s"), "{why}");
        }
        other => panic!("this end gave it up: {other:?}"),
    }
    for ended in bench.lost(2) {
        assert_eq!(ended.outcome, SENT);
    }
    port.done();
}

/// A process that ends drops queues as they are: memory is let go of before.
pub(super) fn dropping_a_queue_lets_go_of_every_buffer(rig: &dyn Rig) {
    let (tell, told) = mpsc::channel();
    let (allow, allowed) = mpsc::channel();
    let port = rig.port(Box::new(move |controller| {
        admit(controller);
        let read = controller.command().unwrap();
        let bytes = TRANSFER_BYTES_MAX;
        controller.begin_answer(read.tag, &pattern(bytes, 1), 1000);
        tell.send(()).unwrap();
        allowed.recv().unwrap();
    }));
    let mut bench = Bench::connected(rig, port.address, &options(rig, 8));
    let mut buf = IoBuf::heap(TRANSFER_BYTES_MAX as usize).unwrap();
    let view = buf.slice(0..TRANSFER_BYTES_MAX as usize);
    assert!(buf.exclusive().is_none(), "the view shares it");
    bench.submit(&reading(1, TRANSFER_BYTES_MAX), Some(buf));
    bench.hear(&told);
    bench.queue = None;
    let mut view = view;
    assert!(view.exclusive().is_some(), "nothing else refers to it");
    allow.send(()).unwrap();
    port.done();
}
