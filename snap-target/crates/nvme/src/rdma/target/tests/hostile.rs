//! What hosts should not send.

use super::super::{Event, Violation, Want};
use super::{
    Driver, FLUSH, IN_CAPSULE, KEYED, KEYED_INVALIDATE, READ, REQUEST, WRITE, connect, flush,
    inside, keyed, limits, read, sqe, status, write,
};
use crate::queue::{Completion, Transfer};
use nvme_spec::Status;

#[test]
fn every_message_shorter_than_a_capsule_ends_the_connection() {
    let message = flush(1);
    for len in 0..64 {
        let mut driver = Driver::live(&limits(), &REQUEST);
        driver.message(&message[..len]);
        let bytes = len as u32;
        let fatal = Event::Fatal(Violation::ShortCapsule { bytes });
        assert_eq!(driver.connection.next_event(), Some(fatal));
        assert_eq!(driver.connection.want(), Want::Closed);
        assert_eq!(driver.connection.next_work(), None);
    }
}

/// SGL descriptor types and sub types, all 256, for each direction.
#[test]
fn only_keyed_blocks_and_offsets_into_the_capsule_are_taken() {
    for opcode in [READ, WRITE, FLUSH] {
        for id in 0..=0xFF {
            let mut driver = Driver::live(&limits(), &REQUEST);
            let descriptor = match id {
                IN_CAPSULE => inside(0, 512),
                _ => keyed(0x1000, 512, 9, id),
            };
            let mut message = sqe(opcode, 1, descriptor);
            message.resize(64 + 512, 0);
            let slot = driver.command(&message);
            let refused = Transfer::Refused(Status::SGL_TYPE_INVALID.dnr());
            let expected = match (opcode, id) {
                (FLUSH, _) => Transfer::None,
                (_, KEYED | KEYED_INVALIDATE) => Transfer::Remote { bytes: 512 },
                (WRITE, IN_CAPSULE) => Transfer::InCapsule { bytes: 512 },
                _ => refused,
            };
            assert_eq!(
                driver.connection.transfer(slot),
                expected,
                "{opcode} {id:#x}"
            );
            let status = Completion::of(Status::INVALID_FIELD);
            driver.connection.respond(slot, status, 0);
            let invalidated = driver.answer().invalidated;
            let is_asked = opcode != FLUSH && id == KEYED_INVALIDATE;
            assert_eq!(invalidated, is_asked.then_some(9));
        }
    }
}

/// Offsets and lengths around every edge.
#[test]
fn cve_2026_72129_data_in_the_capsule_lie_in_the_bytes_that_came() {
    let edges = [0_u64, 1, 511, 512, 513, 8191, 8192, 1 << 31, (1 << 32) - 1];
    let offsets = edges
        .iter()
        .copied()
        .chain([1 << 32, u64::MAX - 1, u64::MAX]);
    for came in [0_u32, 1, 512, 8192] {
        for offset in offsets.clone() {
            for bytes in edges {
                let mut driver = Driver::live(&limits(), &REQUEST);
                let bytes = bytes as u32;
                let mut message = sqe(WRITE, 1, inside(offset, bytes));
                message.resize(64 + came as usize, 0);
                let slot = driver.command(&message);
                let expected = if offset > u64::from(came) {
                    Transfer::Refused(Status::SGL_OFFSET_INVALID.dnr())
                } else if offset + u64::from(bytes) > u64::from(came) {
                    Transfer::Refused(Status::DATA_SGL_LENGTH_INVALID.dnr())
                } else if bytes == 0 {
                    Transfer::None
                } else {
                    Transfer::InCapsule { bytes }
                };
                let found = driver.connection.transfer(slot);
                assert_eq!(found, expected, "{offset} + {bytes} of {came}");
            }
        }
    }
}

#[test]
fn memory_that_wraps_around_is_refused() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slot = driver.command(&sqe(READ, 1, keyed(u64::MAX - 511, 512, 9, KEYED)));
    let refused = Transfer::Refused(Status::DATA_SGL_LENGTH_INVALID.dnr());
    assert_eq!(driver.connection.transfer(slot), refused);
    let slot = driver.command(&sqe(READ, 2, keyed(u64::MAX - 512, 512, 9, KEYED)));
    let remote = Transfer::Remote { bytes: 512 };
    assert_eq!(driver.connection.transfer(slot), remote);
}

#[test]
fn prps_are_refused() {
    for psdt in [0b00, 0b10, 0b11] {
        let mut driver = Driver::live(&limits(), &REQUEST);
        let mut message = read(1, 512);
        message[1] = psdt << 6;
        let slot = driver.command(&message);
        let refused = Transfer::Refused(Status::INVALID_FIELD.dnr());
        assert_eq!(driver.connection.transfer(slot), refused);
    }
}

#[test]
fn an_identifier_in_use_is_refused_and_the_first_command_goes_on() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let first = driver.command(&write(7, 512));
    driver.connection.request_data(first, driver.now).unwrap();
    driver.message(&read(7, 512));
    assert_eq!(driver.connection.next_event(), None);
    // The READ of the first one's data goes on.
    let work = driver.post(512);
    assert_eq!(work.slot, first);
    let answer = driver.answer();
    assert_eq!(answer.status, status(Status::COMMAND_ID_CONFLICT.dnr()));
    assert_eq!(driver.complete(&work), [Event::DataReady { slot: first }]);
}

#[test]
fn nothing_is_taken_before_connect_and_no_second_connect() {
    let mut driver = Driver::new(&limits(), &REQUEST);
    driver.message(&read(1, 512));
    assert_eq!(driver.connection.next_event(), None);
    let sequence = status(Status::COMMAND_SEQUENCE_ERROR.dnr());
    assert_eq!(driver.answer().status, sequence);

    let mut driver = Driver::live(&limits(), &REQUEST);
    driver.message(&connect(1, 1, 7));
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.answer().status, sequence);
}

#[test]
fn nothing_but_authentication_comes_between_connect_and_its_end() {
    let mut driver = Driver::new(&limits(), &REQUEST);
    let slot = driver.command(&connect(0, 1, 7));
    driver.connection.established(8, true);
    driver.connection.respond(slot, Completion::SUCCESS, 0);
    driver.post(0);
    driver.message(&read(1, 512));
    assert_eq!(driver.connection.next_event(), None);
    let required = status(Status::AUTHENTICATION_REQUIRED.dnr());
    assert_eq!(driver.answer().status, required);
    let mut send = sqe(0x7F, 2, keyed(0, 16, 1, KEYED));
    send[4] = 0x05;
    driver.command(&send);
}

#[test]
fn a_second_command_before_connect_is_answered_is_one_too_many() {
    let mut driver = Driver::new(&limits(), &REQUEST);
    driver.command(&connect(0, 1, 7));
    driver.message(&read(1, 512));
    let fatal = Event::Fatal(Violation::Overrun);
    assert_eq!(driver.connection.next_event(), Some(fatal));
}

#[test]
fn connect_says_what_the_connect_request_said() {
    for (qid, sqsize_z, offset) in [(2, 7, 42), (0, 7, 42), (1, 8, 44), (1, 0xFFFF, 44)] {
        let mut driver = Driver::new(&limits(), &REQUEST);
        driver.message(&connect(0, qid, sqsize_z));
        assert_eq!(driver.connection.next_event(), None);
        let work = driver.connection.next_work().unwrap();
        let super::super::Operation::Respond { cqe, .. } = work.operation else {
            panic!("{work:?}")
        };
        assert_eq!(cqe.status(), Status::CONNECT_INVALID_PARAMETERS.dnr());
        assert_eq!(cqe.dw0.get(), offset);
    }
    let mut driver = Driver::new(&limits(), &REQUEST);
    driver.command(&connect(0, 1, 3));
}

#[test]
fn after_the_end_nothing_is_handed_out() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let reading = driver.command(&write(1, 512));
    driver.connection.request_data(reading, driver.now).unwrap();
    let answered = driver.command(&read(2, 512));
    driver
        .connection
        .respond(answered, Completion::SUCCESS, 512);
    let mut message = sqe(WRITE, 3, inside(0, 8));
    message.resize(72, 0);
    driver.command(&message);
    driver.connection.end();
    assert_eq!(driver.connection.want(), Want::Closed);
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.connection.next_work(), None);
    assert_eq!(driver.connection.next_receive(), None);
    assert_eq!(driver.connection.deadline(), None);
    driver.connection.respond(reading, Completion::SUCCESS, 0);
    assert_eq!(driver.connection.next_work(), None);
}
