//! Commands and their data, one at a time and many.

use nvme_spec::{IoOpcode, Status};
use reactor::buf::IoBuf;

use super::bench::{
    Bench, admit, flushing, options, pattern, patterned, reading, segmented, writing,
};
use super::{Arrived, Controller, DEPTH_MAX, IN_CAPSULE_BYTES_MAX, Rig, TRANSFER_BYTES_MAX};

/// Around every edge that a transport may have.
const SIZES: &[u32] = &[
    512,
    4 << 10,
    IN_CAPSULE_BYTES_MAX,
    IN_CAPSULE_BYTES_MAX + 512,
    64 << 10,
    TRANSFER_BYTES_MAX,
];
/// In one piece, in pages, and in pieces that nothing is a multiple of.
const CUTS: &[&[usize]] = &[&[1 << 20], &[4096], &[1, 509, 3, 4097, 70, 2048]];

/// Answers each write with success, having compared what came with the pattern that its LBA names, and each read with that pattern.
fn serve(controller: &mut dyn Controller) {
    admit(controller);
    while let Some(arrived) = controller.command() {
        let data = answer_to(controller, &arrived);
        controller.answer(arrived.tag, Status::SUCCESS, 0, &data);
    }
}

fn answer_to(controller: &mut dyn Controller, arrived: &Arrived) -> Vec<u8> {
    let number = arrived.sqe.slba().0;
    let expected = pattern(arrived.bytes, number);
    if arrived.sqe.opcode == IoOpcode::READ.0 {
        return expected;
    }
    let fits = arrived.bytes <= IN_CAPSULE_BYTES_MAX;
    assert_eq!(arrived.is_in_capsule, fits && arrived.bytes > 0);
    if arrived.bytes > 0 {
        let came = controller.data(arrived.tag).unwrap();
        assert!(
            came == expected,
            "write {number} of {} bytes",
            arrived.bytes
        );
    }
    Vec::new()
}

pub(super) fn every_size_and_cut_is_written(rig: &dyn Rig) {
    let port = rig.port(Box::new(serve));
    let mut bench = Bench::connected(rig, port.address, &options(rig, 4));
    for (number, (&bytes, &cuts)) in (1..).zip(cases()) {
        let mut buf = segmented(bytes, cuts);
        buf.copy_from(0, &pattern(bytes, number));
        let slot = bench.submit(&writing(number, bytes), Some(buf));
        let ended = bench.ended();
        assert_eq!((ended.slot, ended.cqe().status()), (slot, Status::SUCCESS));
        assert!(ended.bytes() == pattern(bytes, number), "as it was");
    }
    bench.submit(&flushing(), None);
    assert_eq!(bench.ended().cqe().status(), Status::SUCCESS);
    drop(bench);
    port.done();
}

pub(super) fn every_size_and_cut_is_read(rig: &dyn Rig) {
    let port = rig.port(Box::new(serve));
    let mut bench = Bench::connected(rig, port.address, &options(rig, 4));
    for (number, (&bytes, &cuts)) in (1..).zip(cases()) {
        let slot = bench.submit(&reading(number, bytes), Some(segmented(bytes, cuts)));
        let ended = bench.ended();
        assert_eq!((ended.slot, ended.cqe().status()), (slot, Status::SUCCESS));
        assert!(
            ended.bytes() == pattern(bytes, number),
            "{bytes} in {cuts:?}"
        );
    }
    drop(bench);
    port.done();
}

fn cases() -> impl Iterator<Item = (&'static u32, &'static &'static [usize])> {
    SIZES
        .iter()
        .flat_map(|bytes| CUTS.iter().map(move |cuts| (bytes, cuts)))
}

pub(super) fn what_the_controller_answers_is_told_as_it_is(rig: &dyn Rig) {
    let refused = Status::LBA_OUT_OF_RANGE.dnr();
    let port = rig.port(Box::new(move |controller| {
        admit(controller);
        for result in [0, 0xFFEE_DDCC_0000_0001] {
            let arrived = controller.command().unwrap();
            controller.answer(arrived.tag, refused, result, &[]);
        }
        // A write that is refused before its data were asked for.
        let arrived = controller.command().unwrap();
        controller.answer(arrived.tag, refused, 0, &[]);
    }));
    let mut bench = Bench::connected(rig, port.address, &options(rig, 4));
    for result in [0, 0xFFEE_DDCC_0000_0001] {
        bench.submit(&reading(1, 4096), Some(patterned(4096, 1)));
        let ended = bench.ended();
        assert_eq!(
            (ended.cqe().status(), ended.cqe().result()),
            (refused, result)
        );
        assert_eq!(ended.buf.unwrap().len(), 4096);
    }
    bench.submit(&writing(1, 64 << 10), Some(patterned(64 << 10, 1)));
    assert_eq!(bench.ended().cqe().status(), refused);
    drop(bench);
    port.done();
}

/// The controller takes all of a full queue before it answers any, the last one first; answers are told in that order.
pub(super) fn a_full_queue_takes_no_more_and_loses_nothing(rig: &dyn Rig) {
    for depth in [1, 7, DEPTH_MAX] {
        let port = rig.port(Box::new(move |controller| {
            admit(controller);
            for _round in 0..3 {
                let mut all: Vec<Arrived> =
                    (0..depth).map(|_| controller.command().unwrap()).collect();
                let numbers: Vec<u64> = all.iter().map(|it| it.sqe.slba().0).collect();
                assert!(numbers.is_sorted(), "as submitted: {numbers:?}");
                while let Some(arrived) = all.pop() {
                    let data = answer_to(controller, &arrived);
                    controller.answer(arrived.tag, Status::SUCCESS, 0, &data);
                }
            }
            assert!(controller.command().is_none(), "the host goes");
        }));
        let mut bench = Bench::connected(rig, port.address, &options(rig, depth));
        for round in 0..3 {
            fill_and_drain(&mut bench, depth, round * u64::from(depth));
        }
        drop(bench);
        port.done();
    }
}

fn fill_and_drain(bench: &mut Bench, depth: u16, first: u64) {
    let numbers = first..first + u64::from(depth);
    let slots: Vec<_> = numbers
        .map(|number| {
            let (bytes, is_write) = (512 << (number % 5), number % 3 == 0);
            let slot = if is_write {
                bench.submit(&writing(number, bytes), Some(patterned(bytes, number)))
            } else {
                bench.submit(
                    &reading(number, bytes),
                    Some(IoBuf::heap(bytes as usize).unwrap()),
                )
            };
            (number, slot)
        })
        .collect();
    assert_eq!(bench.queue().room(), 0, "it is full");
    let now = bench.clock.now();
    let more = bench
        .queue()
        .submit(&writing(0, 512), Some(patterned(512, 99)), now);
    let buf = more
        .expect_err("it is full")
        .expect("the buffer comes back");
    assert_eq!(buf.to_vec(), pattern(512, 99));
    for (number, slot) in slots.into_iter().rev() {
        let ended = bench.ended();
        assert_eq!((ended.slot, ended.cqe().status()), (slot, Status::SUCCESS));
        assert!(
            ended.bytes() == pattern(512 << (number % 5), number),
            "command {number}"
        );
    }
    assert_eq!(bench.queue().room(), usize::from(depth));
}

/// Reads and writes of every size at once, a new one for each that ends.
pub(super) fn what_is_outstanding_together_does_not_mix(rig: &dyn Rig) {
    const DEPTH: u16 = 32;
    const COMMANDS: u64 = 300;
    let port = rig.port(Box::new(serve));
    let mut bench = Bench::connected(rig, port.address, &options(rig, DEPTH));
    let mut running: Vec<Option<(u64, u32)>> = vec![None; usize::from(DEPTH)];
    let (mut submitted, mut ended) = (0, 0);
    while ended < COMMANDS {
        while submitted < COMMANDS && bench.queue().room() > 0 {
            submitted += 1;
            let bytes = SIZES[usize::try_from(submitted * 7 % 11).unwrap() % SIZES.len()];
            let cuts = CUTS[usize::try_from(submitted % 3).unwrap()];
            let mut buf = segmented(bytes, cuts);
            let slot = if submitted % 2 == 0 {
                buf.copy_from(0, &pattern(bytes, submitted));
                bench.submit(&writing(submitted, bytes), Some(buf))
            } else {
                bench.submit(&reading(submitted, bytes), Some(buf))
            };
            let there = running[slot.index()].replace((submitted, bytes));
            assert_eq!(there, None, "{slot:?} is given to one command at a time");
        }
        // All of a poll's: a slot that it told of is free.
        loop {
            let end = bench.ended();
            ended += 1;
            let command = running[end.slot.index()].take();
            let (number, bytes) = command.expect("one that is there");
            assert_eq!(end.cqe().status(), Status::SUCCESS);
            assert!(end.bytes() == pattern(bytes, number), "command {number}");
            if !bench.has_event() {
                break;
            }
        }
    }
    drop(bench);
    port.done();
}
