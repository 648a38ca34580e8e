//! Doorbells in the guest's memory: commands that no doorbell tells of are carried out, and none waits for ever.

use std::time::{Duration, Instant};

use nvme_spec::Status;

use crate::driver::{BASE, DATA, Guest, MEMORY_BYTES, Machine, places, status, transfer};
use frontend_nvme::conformance::memory;

const SHADOW: u64 = BASE + 0x4_0000;
const EVENTS: u64 = BASE + 0x4_1000;
const PATIENCE: Duration = Duration::from_secs(20);

/// Every command is answered, whether its doorbell was rung or not, with pauses that are shorter and longer than the controller looks; and of the doorbells some need
/// not be rung.
#[test]
fn commands_that_no_doorbell_tells_of() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    guest.share_doorbells(SHADOW, EVENTS).unwrap();
    let until = Instant::now() + PATIENCE;
    for round in 0_u64.. {
        guest.works(1, round);
        std::thread::sleep(Duration::from_micros(round * 37 % 300));
        // A burst.
        let cids: Vec<u16> = (0..40)
            .map(|at| guest.submit(1, transfer(2, at % 16, 1, DATA + at * 4096, 0)))
            .collect();
        let mut came: Vec<u16> = (0..40).map(|_| guest.complete(1).cid.get()).collect();
        came.sort_unstable();
        assert_eq!(came, cids);
        let spared = guest.doorbells.unwrap();
        if round >= 100 && spared.tails_spared > 0 && spared.heads_spared > 0 {
            break;
        }
        assert!(
            Instant::now() < until,
            "every doorbell was rung: {spared:?}"
        );
    }
}

/// Heads tell of nothing that the controller waits for: but for the first, none is rung while there is room.
#[test]
fn heads_are_rung_where_answers_wait_for_room() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    guest.share_doorbells(SHADOW, EVENTS).unwrap();
    for round in 0..200 {
        guest.works(1, round);
    }
    let spared = guest.doorbells.unwrap();
    assert_eq!(spared.heads_spared, 399, "of 400");
    // A queue whose answers do not fit.
    let (sq, cq) = places(2);
    guest.create_cq(2, cq, 4).unwrap();
    guest.create_sq(2, 2, sq, 64).unwrap();
    let cids: Vec<u16> = (0..50)
        .map(|lba| guest.submit(2, transfer(2, lba, 1, DATA + lba * 4096, 0)))
        .collect();
    guest.pairs[2].entries = 4;
    let mut came: Vec<u16> = (0..50).map(|_| guest.complete(2).cid.get()).collect();
    came.sort_unstable();
    assert_eq!(came, cids);
}

/// Queues that are made afterwards, a reset, and doorbells that are told of once more elsewhere.
#[test]
fn doorbells_in_memory_begin_and_end() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    guest.works(1, 1);
    // Whatever is in the pages before.
    guest.put(SHADOW, &[0xEE; 0x2000]);
    guest.share_doorbells(SHADOW, EVENTS).unwrap();
    guest.works(1, 2);
    guest.create_pair(2);
    guest.works(2, 3);
    guest.delete(0x00, 2).unwrap();
    guest.delete(0x04, 2).unwrap();
    guest.create_pair(2);
    guest.works(2, 4);
    // Configured twice.
    guest.put(SHADOW + 0x4000, &[0xEE; 0x2000]);
    guest
        .share_doorbells(SHADOW + 0x4000, EVENTS + 0x4000)
        .unwrap();
    for seed in 5..15 {
        guest.works(1, seed);
        guest.works(2, seed);
    }
    // With a reset they are forgotten.
    guest.disable();
    guest.doorbells = None;
    guest.put(SHADOW + 0x4000, &[0xEE; 0x2000]);
    guest.enable();
    guest.create_pair(1);
    guest.works(1, 20);
    assert_eq!(guest.get(SHADOW + 0x4000, 0x2000), [0xEE; 0x2000]);
}

/// Queues that were deleted, or that a reset ended, have no doorbells any more, and interrupt nobody: not a byte of theirs is written where a guest keeps its
/// doorbells next.
#[test]
fn queues_that_are_gone_have_no_doorbells_in_memory() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    for ends_by_reset in [false, true] {
        guest.create_pair(2);
        for queue in [1, 2] {
            guest.works(queue, 5);
        }
        // Of the second one an answer lies there that nobody takes.
        guest.submit(2, transfer(2, 0, 1, DATA, 0));
        while guest.peek(2).is_none() {
            std::thread::yield_now();
        }
        if ends_by_reset {
            guest.disable();
            guest.enable();
            guest.create_pair(1);
        } else {
            guest.delete(0x00, 2).unwrap();
            guest.delete(0x04, 2).unwrap();
        }
        // The first one has no interrupt of this number.
        let vector = guest.vector(2);
        assert_eq!(reactor::peer_event::take(&vector), 0);
        guest.put(SHADOW, &[0xEE; 0x2000]);
        guest.share_doorbells(SHADOW, EVENTS).unwrap();
        for page in [SHADOW, EVENTS] {
            // Those of queue 2: 10h and 14h.
            assert_eq!(guest.get(page + 0x10, 8), [0xEE; 8]);
        }
        guest.works(1, 6);
        guest.disable();
        guest.doorbells = None;
        guest.enable();
        guest.create_pair(1);
    }
}

/// Pages that are not there, values that name nothing, pages that go: the function goes on.
#[test]
fn doorbells_in_memory_that_mean_harm() {
    let machine = Machine::start(memory(), 2);
    let mut guest = machine.running();
    let end = BASE + MEMORY_BYTES;
    for (shadow, events, refusal) in [
        (SHADOW + 4, EVENTS, Status::PRP_OFFSET_INVALID),
        (SHADOW, EVENTS + 0x800, Status::PRP_OFFSET_INVALID),
        (end, EVENTS, Status::INVALID_FIELD),
        (SHADOW, end, Status::INVALID_FIELD),
        (SHADOW, u64::MAX - 0xFFF, Status::INVALID_FIELD),
        (0, 0, Status::INVALID_FIELD),
    ] {
        let refused = guest.share_doorbells(shadow, events);
        assert_eq!(refused, Err(refusal), "{shadow:#x} {events:#x}");
    }
    // Both in one page, and that the completion queue's own.
    let (_, cq) = places(1);
    guest.share_doorbells(cq, cq).unwrap();
    guest.ring(0x1008, 5);
    guest.doorbells = None;
    guest.disable();
    guest.enable();
    guest.create_pair(1);
    // Numbers beyond the queue, by memory and by doorbell.
    let apart = end;
    guest.map(apart, 0x2000, SHADOW - BASE, 3).unwrap();
    guest.share_doorbells(apart, apart + 0x1000).unwrap();
    guest.doorbells = Some(crate::driver::Shadow {
        shadow: SHADOW,
        events: EVENTS,
        tails_spared: 0,
        heads_spared: 0,
    });
    guest.works(1, 1);
    let good = guest.get(SHADOW, 0x1000);
    guest.put(SHADOW, &[0xFF; 0x1000]);
    for value in [1, 64, 0xFFFF, u32::MAX] {
        guest.ring(0x1008, value);
        guest.ring(0x100C, value);
    }
    assert_eq!(guest.csts(), 1);
    guest.put(SHADOW, &good);
    guest.works(1, 2);
    // The pages go, and come back.
    let body = Guest::unmap_body(apart, 0x2000);
    assert_eq!(guest.client.call(3, &body, &[]), Ok(body.clone()));
    guest.submit(1, transfer(2, 1, 1, DATA, 0));
    guest.map(apart, 0x2000, SHADOW - BASE, 3).unwrap();
    assert_eq!(status(&guest.complete(1)), Status::SUCCESS);
    guest.works(1, 3);
}
