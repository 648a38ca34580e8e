//! Commands that are answered while the host owes data that an R2T asked for: the identifier is free at once, the TTAG when they have come.

use super::writes::{r2t, status_of};
use super::*;
use crate::tcp::target::DATA_TIMEOUT;
use nvme_spec::Status;
use nvme_spec::tcp::FatalErrorStatus;
use std::time::Duration;

const CID: u16 = 9;

/// A connection whose slot 0 has a write of so many bytes, with its R2T out.
fn asked(dgst: u8, bytes: u32) -> Driver {
    let mut driver = Driver::connected(&TargetLimits::default(), dgst, 8, true);
    ask(&mut driver, dgst, CID, bytes);
    driver
}

/// One more write whose data are asked for: its slot.
fn ask(driver: &mut Driver, dgst: u8, cid: u16, bytes: u32) -> Slot {
    let slot = begin(driver, dgst, cid, bytes);
    driver.connection.request_data(slot, Time::ZERO).unwrap();
    assert_eq!(driver.sent().len(), 1);
    slot
}

fn begin(driver: &mut Driver, dgst: u8, cid: u16, bytes: u32) -> Slot {
    let events = driver.feed(&wire(dgst, &write(cid, bytes)));
    let [Event::Command { slot }] = events[..] else {
        panic!("{events:?}")
    };
    slot
}

fn wire(dgst: u8, plain: &[u8]) -> Vec<u8> {
    match dgst {
        0 => plain.to_vec(),
        _ => digested(plain, true),
    }
}

fn abort(driver: &mut Driver, slot: Slot) {
    let aborted = Completion::of(Status::ABORT_REQUESTED);
    driver.connection.respond(slot, aborted, 0);
    assert_eq!(status_of_wire(&driver.sent()), Status::ABORT_REQUESTED);
    driver.buffers[slot.index()].clear();
}

/// With a header digest or without.
fn status_of_wire(sent: &[Vec<u8>]) -> Status {
    status_of(&[sent.concat()[..24].to_vec()])
}

/// At whatever byte of its data a write is answered: the answer goes at once, the rest is dropped, digests not looked at, and what follows is understood.
#[test]
fn the_answer_goes_at_once_and_the_data_are_dropped_when_they_come() {
    for dgst in [0, 3] {
        let mut stream = wire(dgst, &h2c_data(CID, 0, 0, &[1; 64], 0));
        stream.extend(wire(dgst, &h2c_data(CID, 0, 64, &[2; 64], LAST)));
        for before in 0..stream.len() {
            let mut driver = asked(dgst, 128);
            assert_eq!(driver.feed(&stream[..before]), []);
            abort(&mut driver, Slot(0));
            assert_eq!(driver.connection.find(nvme_spec::Cid(CID)), None);
            let mut rest = stream[before..].to_vec();
            if dgst != 0 && rest.len() >= 4 {
                // The last data digest.
                *rest.last_mut().unwrap() ^= 1;
            }
            assert_eq!(driver.feed(&rest), [], "after {before} bytes");
            assert!(driver.buffers[0].is_empty(), "after {before} bytes");
            // The TTAG is free again.
            assert_eq!(begin(&mut driver, dgst, CID, 512), Slot(0));
        }
    }
}

/// Whether the data come before the answer has left, while it leaves, or behind it.
#[test]
fn the_slot_is_free_when_both_have_gone_their_way() {
    let last = h2c_data(CID, 0, 0, &[1; 64], LAST);
    let mut batch = TxBatch::with_capacity(4);
    for data_at in 0..3 {
        let mut driver = asked(0, 64);
        let slot = Slot(0);
        let aborted = Completion::of(Status::ABORT_REQUESTED);
        driver.connection.respond(slot, aborted, 0);
        for step in 0..3 {
            if step == data_at {
                assert_eq!(driver.feed(&last), []);
            }
            match step {
                0 => driver.connection.transmit(&mut batch),
                1 => {
                    batch.clear();
                    driver.connection.transmitted(slot);
                }
                _ => {}
            }
        }
        assert_eq!(driver.connection.occupied().count(), 0);
        assert_eq!(begin(&mut driver, 0, CID, 64), slot);
    }
}

/// The identifier is the host's again with the answer, and its next command has nothing in common with the one before: another slot, its own data.
#[test]
fn the_identifier_may_be_used_again_at_once() {
    let mut driver = asked(0, 128);
    assert_eq!(driver.feed(&h2c_data(CID, 0, 0, &[1; 64], 0)), []);
    abort(&mut driver, Slot(0));
    let slot = begin(&mut driver, 0, CID, 128);
    assert_eq!(slot, Slot(1), "the TTAG is still the old command's");
    driver.connection.request_data(slot, Time::ZERO).unwrap();
    assert_eq!(driver.sent(), [r2t(CID, 1, 0, 128)]);
    assert_eq!(driver.connection.find(nvme_spec::Cid(CID)), Some(slot));
    assert_eq!(driver.connection.occupied().collect::<Vec<_>>(), [slot]);
    // In turns: those of the old R2T go nowhere, those of the new one to their place.
    assert_eq!(driver.feed(&h2c_data(CID, 1, 0, &[3; 64], 0)), []);
    assert_eq!(driver.feed(&h2c_data(CID, 0, 64, &[2; 64], LAST)), []);
    let ready = driver.feed(&h2c_data(CID, 1, 64, &[4; 64], LAST));
    assert_eq!(ready, [Event::DataReady { slot }]);
    assert!(driver.buffers[0].is_empty());
    assert_eq!(driver.buffers[1], [[3; 64], [4; 64]].concat());
}

/// A long write is asked for no more.
#[test]
fn there_is_no_r2t_behind_the_answer() {
    let limits = TargetLimits {
        r2t_bytes_max: 4096,
        ..TargetLimits::default()
    };
    let mut driver = Driver::connected(&limits, 0, 8, true);
    let slot = ask(&mut driver, 0, CID, 10_000);
    abort(&mut driver, slot);
    assert_eq!(driver.feed(&h2c_data(CID, 0, 0, &[1; 4096], LAST)), []);
    assert_eq!(driver.sent(), Vec::<Vec<u8>>::new());
    // Before an R2T has left, the answer takes its place, and nothing is owed.
    let slot = begin(&mut driver, 0, CID, 8192);
    driver.connection.request_data(slot, Time::ZERO).unwrap();
    abort(&mut driver, slot);
    assert_eq!(begin(&mut driver, 0, CID, 8192), slot);
}

/// What is dropped is checked like what is kept (CVE-2023-6356, -6535, -6536), and nothing of it may come twice.
#[test]
fn owed_data_are_checked() {
    let cases: [(Vec<u8>, FatalErrorStatus); 6] = [
        (
            h2c_data(CID, 0, 64, &[1; 64], LAST),
            FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE,
        ),
        (
            h2c_data(CID, 0, 0, &[1; 192], LAST),
            FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE,
        ),
        (
            h2c_data(CID, 0, 0, &[1; 64], LAST),
            FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
        ),
        (
            h2c_data(CID, 0, 0, &[1; 128], 0),
            FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
        ),
        (
            h2c_data(CID + 1, 0, 0, &[1; 128], LAST),
            FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
        ),
        (
            [
                h2c_data(CID, 0, 0, &[1; 128], LAST),
                h2c_data(CID, 0, 0, &[1; 128], LAST),
            ]
            .concat(),
            FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
        ),
    ];
    for (bytes, status) in cases {
        let mut driver = asked(0, 128);
        abort(&mut driver, Slot(0));
        assert_eq!(fatal(&driver.feed(&bytes)).status, status);
    }
}

/// The time for the data is that of the R2T, answered or not; data that came leave no deadline.
#[test]
fn owed_data_have_the_time_that_they_had() {
    for comes in [false, true] {
        let mut driver = asked(0, 64);
        abort(&mut driver, Slot(0));
        let at = Time::ZERO + DATA_TIMEOUT;
        assert_eq!(driver.connection.deadline(), Some(at));
        driver
            .connection
            .tick(Time::ZERO + (DATA_TIMEOUT - Duration::from_nanos(1)));
        assert_eq!(driver.connection.next_event(), None);
        if comes {
            driver.feed(&h2c_data(CID, 0, 0, &[1; 64], LAST));
        }
        driver.connection.tick(at);
        let ended = driver.connection.next_event();
        assert_eq!(ended, (!comes).then_some(Event::TimedOut));
        if comes {
            assert_eq!(driver.connection.deadline(), None);
        }
    }
}

/// A host that fills its queue again before it sends what it owes is within its rights once; it cannot go on like that.
#[test]
fn owed_data_take_no_place_in_the_queue_and_are_bounded() {
    let mut driver = Driver::connected(&TargetLimits::default(), 0, 4, true);
    let first: Vec<Slot> = (0..4).map(|cid| ask(&mut driver, 0, cid, 64)).collect();
    for slot in first {
        abort(&mut driver, slot);
    }
    let second: Vec<Slot> = (0..4).map(|cid| ask(&mut driver, 0, cid, 64)).collect();
    assert_eq!(second, [4, 5, 6, 7].map(Slot));
    // The queue is full of commands that wait for data.
    let mut full = driver;
    let over = [h2c_data(0, 0, 0, &[1; 64], LAST), write(4, 64)].concat();
    let error = fatal(&full.feed(&over));
    assert_eq!(error.status, FatalErrorStatus::PDU_SEQUENCE_ERROR);

    let mut driver = Driver::connected(&TargetLimits::default(), 0, 4, true);
    for cid in 0..8 {
        let slot = ask(&mut driver, 0, cid, 64);
        abort(&mut driver, slot);
    }
    // What was owed comes, and the slots are there again, in any order.
    let mut paid = Driver::connected(&TargetLimits::default(), 0, 4, true);
    std::mem::swap(&mut paid, &mut driver);
    for ttag in [3, 7, 0, 5] {
        assert_eq!(paid.feed(&h2c_data(ttag, ttag, 0, &[1; 64], LAST)), []);
    }
    let again: Vec<Slot> = (0..4).map(|cid| ask(&mut paid, 0, cid, 64)).collect();
    assert_eq!(again, [5, 0, 7, 3].map(Slot));

    for cid in 0..8 {
        let slot = ask(&mut driver, 0, cid, 64);
        abort(&mut driver, slot);
    }
    let error = fatal(&driver.feed(&write(8, 64)));
    assert_eq!(error.status, FatalErrorStatus::PDU_SEQUENCE_ERROR);
}

/// A host that is merely ahead of our sends waits for them, whatever it owes.
#[test]
fn a_full_queue_waits_for_an_answer_that_leaves() {
    let mut driver = Driver::connected(&TargetLimits::default(), 0, 1, true);
    let slot = ask(&mut driver, 0, CID, 64);
    let aborted = Completion::of(Status::ABORT_REQUESTED);
    driver.connection.respond(slot, aborted, 0);
    let next = write(CID, 64);
    let mut events = Vec::new();
    assert_eq!(driver.feed_some(&next, &mut events), 0);
    assert_eq!(driver.connection.want(), Want::Slot);
    driver.sent();
    assert_eq!(driver.feed(&next), [Event::Command { slot: Slot(1) }]);
}
