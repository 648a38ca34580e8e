//! Data from the host: RDMA READs, and data in the capsule.

use super::super::{Event, Operation, ReceiveId};
use super::{Driver, IN_CAPSULE, REQUEST, WRITE, flush, inside, limits, sqe, status, write};
use crate::queue::{Completion, Slot, Transfer};
use nvme_spec::{Cid, Status};

/// What a request reads: slot, offset, bytes left, address.
fn reading(work: &super::Work) -> (Slot, u32, u32, u64) {
    match work.operation {
        Operation::Read {
            offset,
            bytes_max,
            remote,
        } => {
            assert_eq!(remote.key, 0xCD);
            assert!(work.signaled);
            (work.slot, offset, bytes_max, remote.address)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_are_ready_when_every_piece_has_come() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slot = driver.command(&write(5, 8192));
    driver.connection.request_data(slot, driver.now).unwrap();
    let first = driver.post(3000);
    let second = driver.post(8192);
    assert_eq!(reading(&first), (slot, 0, 8192, 0x2_0000));
    assert_eq!(reading(&second), (slot, 3000, 5192, 0x2_0000 + 3000));
    assert_eq!(driver.connection.next_work(), None);
    assert_eq!(driver.complete(&first), []);
    assert_eq!(driver.complete(&second), [Event::DataReady { slot }]);
    driver.connection.respond(slot, Completion::SUCCESS, 0);
    let answer = driver.answer();
    assert_eq!((answer.status, answer.invalidated), (0, Some(0xCD)));
    assert_eq!(driver.connection.occupied().count(), 0);
}

#[test]
fn reads_beyond_the_hosts_room_wait_and_answers_do_not_wait_for_them() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slots: Vec<Slot> = (0..6)
        .map(|cid| {
            let slot = driver.command(&write(cid, 512));
            driver.connection.request_data(slot, driver.now).unwrap();
            slot
        })
        .collect();
    let posted: Vec<_> = (0..4).map(|_| driver.post(512)).collect();
    assert_eq!(driver.connection.next_work(), None);
    let other = driver.command(&flush(9));
    driver.connection.respond(other, Completion::SUCCESS, 0);
    assert_eq!(driver.answer().cid, 9);
    assert_eq!(
        driver.complete(&posted[0]),
        [Event::DataReady { slot: slots[0] }]
    );
    assert_eq!(reading(&driver.post(512)).0, slots[4]);
    assert_eq!(driver.connection.next_work(), None);
    // One completion tells of all before it.
    let ready: Vec<_> = slots[1..4]
        .iter()
        .map(|&slot| Event::DataReady { slot })
        .collect();
    assert_eq!(driver.complete(&posted[3]), ready);
}

#[test]
fn an_abort_waits_for_the_reads_under_way_and_begins_no_more() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slot = driver.command(&write(5, 8192));
    driver.connection.request_data(slot, driver.now).unwrap();
    let first = driver.post(4096);
    assert_eq!(driver.connection.find(Cid(5)), Some(slot));
    driver
        .connection
        .respond(slot, Status::ABORT_REQUESTED.into(), 0);
    assert_eq!(driver.connection.find(Cid(5)), None);
    assert!(driver.connection.is_read_into(slot));
    assert_eq!(
        driver.connection.next_work(),
        None,
        "neither a READ nor the answer"
    );
    assert_eq!(driver.complete(&first), []);
    assert!(!driver.connection.is_read_into(slot));
    assert_eq!(driver.answer().status, status(Status::ABORT_REQUESTED));
    // The slot is the next command's, and its data are read from their beginning.
    let again = driver.command(&write(5, 512));
    assert_eq!(again, slot);
    driver.connection.request_data(again, driver.now).unwrap();
    assert_eq!(reading(&driver.post(512)), (slot, 0, 512, 0x2_0000));
}

#[test]
fn an_abort_before_the_first_read_is_answered_at_once() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slot = driver.command(&write(5, 8192));
    driver.connection.request_data(slot, driver.now).unwrap();
    driver
        .connection
        .respond(slot, Status::ABORT_REQUESTED.into(), 0);
    assert_eq!(driver.answer().cid, 5);
    let again = driver.command(&write(6, 512));
    assert_eq!(again, slot);
    assert_eq!(
        driver.connection.next_work(),
        None,
        "nobody has asked for its data"
    );
}

#[test]
fn data_in_the_capsule_follow_their_command_and_give_the_receive_back() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    while driver.connection.next_receive().is_some() {}
    let mut message = sqe(WRITE, 5, inside(100, 512));
    message.resize(64 + 700, 0xEE);
    let receive = driver.message(&message);
    let Some(Event::Command { slot }) = driver.connection.next_event() else {
        panic!("no command")
    };
    assert_eq!(
        driver.connection.transfer(slot),
        Transfer::InCapsule { bytes: 512 }
    );
    assert_eq!(driver.connection.next_receive(), None);
    let data = Event::CapsuleData {
        slot,
        receive,
        offset: 100,
        bytes: 512,
    };
    assert_eq!(driver.connection.next_event(), Some(data));
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.connection.next_receive(), Some(receive));
    driver.connection.respond(slot, Completion::SUCCESS, 0);
    let answer = driver.answer();
    assert_eq!((answer.cid, answer.invalidated), (5, None));
}

#[test]
fn data_in_the_capsule_of_an_answered_command_are_dropped() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    while driver.connection.next_receive().is_some() {}
    let mut message = sqe(WRITE, 5, inside(0, 512));
    message.resize(64 + 512, 0xEE);
    let receive = driver.message(&message);
    let Some(Event::Command { slot }) = driver.connection.next_event() else {
        panic!("no command")
    };
    let failure = Status::NAMESPACE_WRITE_PROTECTED.dnr();
    driver.connection.respond(slot, failure.into(), 0);
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.connection.next_receive(), Some(receive));
    assert_eq!(driver.answer().status, status(failure));
}

#[test]
fn a_receive_without_data_is_free_at_once() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    assert_eq!(
        driver.connection.next_receive(),
        Some(ReceiveId(0)),
        "Connect's"
    );
    let receive = driver.message(&flush(1));
    assert_eq!(driver.connection.next_receive(), Some(receive));
}

#[test]
fn only_data_that_are_there_to_ask_for_are_asked_for() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let invalid = Err(Status::INVALID_FIELD.dnr());
    let none = Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    let now = driver.now;
    let slot = driver.command(&super::read(1, 512));
    assert_eq!(driver.connection.request_data(slot, now), invalid);
    let slot = driver.command(&flush(2));
    assert_eq!(driver.connection.request_data(slot, now), none);
    let slot = driver.command(&write(3, (1 << 20) + 1));
    assert_eq!(driver.connection.request_data(slot, now), invalid);
    let slot = driver.command(&write(4, 512));
    assert_eq!(driver.connection.request_data(slot, now), Ok(()));
    assert_eq!(driver.connection.request_data(slot, now), invalid);
    let work = driver.post(512);
    driver.complete(&work);
    assert_eq!(driver.connection.request_data(slot, now), invalid);
    assert_eq!(driver.connection.request_data(Slot(999), now), none);
    let mut message = sqe(WRITE, 5, inside(0, 16));
    message.resize(80, 0);
    assert_eq!(message[39], IN_CAPSULE);
    let slot = driver.command(&message);
    assert_eq!(driver.connection.request_data(slot, now), none);
}
