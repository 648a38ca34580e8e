//! Data to the host: RDMA WRITEs, then the response.

use super::super::{Event, Operation, Remote, TargetLimits};
use super::{
    Answer, Driver, KEYED, READ, REQUEST, connect, flush, keyed, limits, read, sqe, status,
};
use crate::queue::{Completion, Transfer};
use nvme_spec::Status;

#[test]
fn data_go_before_their_response_and_the_key_is_invalidated() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slot = driver.command(&read(7, 4096));
    assert_eq!(
        driver.connection.transfer(slot),
        Transfer::Remote { bytes: 4096 }
    );
    assert_eq!(driver.connection.next_work(), None);
    driver.connection.respond(slot, Completion::SUCCESS, 4096);
    let write = driver.post(4096);
    let expected = Operation::Write {
        offset: 0,
        bytes_max: 4096,
        remote: Remote {
            address: 0x1_0000,
            key: 0xAB,
        },
    };
    assert_eq!((write.operation, write.signaled), (expected, false));
    let response = driver.post(0);
    let expected = Answer {
        cid: 7,
        status: 0,
        sqhd: 2,
        invalidated: Some(0xAB),
    };
    assert_eq!(Answer::of(response.operation), expected);
    assert!(response.signaled, "its buffer is free only then");
    assert_eq!(driver.connection.occupied().collect::<Vec<_>>(), [slot]);
    assert_eq!(driver.complete(&response), [Event::DataLeft { slot }]);
    assert_eq!(driver.connection.occupied().count(), 0);
}

#[test]
fn pieces_of_any_length_cover_the_data_once() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slot = driver.command(&read(7, 10_000));
    driver.connection.respond(slot, Completion::SUCCESS, 9_000);
    let mut expected = 0;
    for piece in [1, 4_000, 4_999] {
        let work = driver.connection.next_work().unwrap();
        let Operation::Write {
            offset,
            bytes_max,
            remote,
        } = work.operation
        else {
            panic!("{work:?}")
        };
        assert_eq!(work.slot, slot);
        assert_eq!((offset, bytes_max), (expected, 9_000 - expected));
        assert_eq!(remote.address, 0x1_0000 + u64::from(expected));
        // Until it is posted, it is the next.
        assert_eq!(driver.connection.next_work(), Some(work));
        driver.connection.posted(&work, piece, driver.now);
        expected += piece;
    }
    assert_eq!(driver.answer().status, 0);
    assert_eq!(driver.connection.next_work(), None);
}

#[test]
fn no_key_is_invalidated_unasked_or_by_a_device_that_cannot() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slot = driver.command(&sqe(READ, 1, keyed(0, 512, 0xAB, KEYED)));
    driver.connection.respond(slot, Completion::SUCCESS, 512);
    driver.post(512);
    assert_eq!(driver.answer().invalidated, None);

    let cannot = TargetLimits {
        invalidate: false,
        ..limits()
    };
    let mut driver = Driver::live(&cannot, &REQUEST);
    let slot = driver.command(&read(1, 512));
    driver.connection.respond(slot, Completion::SUCCESS, 512);
    driver.post(512);
    assert_eq!(driver.answer().invalidated, None);
}

#[test]
fn a_failed_read_has_no_data_and_its_key_is_invalidated() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let slot = driver.command(&read(1, 512));
    let failure = Completion::of(Status::LBA_OUT_OF_RANGE.dnr());
    driver.connection.respond(slot, failure, 512);
    let answer = driver.answer();
    assert_eq!(answer.status, status(Status::LBA_OUT_OF_RANGE.dnr()));
    assert_eq!(answer.invalidated, Some(0xAB));
}

#[test]
fn no_answer_is_longer_than_the_hosts_memory() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    for (cid, message) in [read(1, 512), flush(2), super::write(3, 512)]
        .iter()
        .enumerate()
    {
        let slot = driver.command(message);
        driver.connection.respond(slot, Completion::SUCCESS, 513);
        let answer = driver.answer();
        assert_eq!(answer.status, status(Status::DATA_SGL_LENGTH_INVALID.dnr()));
        assert_eq!(usize::from(answer.cid), cid + 1);
    }
}

#[test]
fn without_flow_control_sqhd_says_so_and_with_it_wraps() {
    let mut driver = Driver::live(&limits(), &REQUEST);
    let heads: Vec<u16> = (0..9)
        .map(|cid| {
            let slot = driver.command(&flush(cid));
            driver.connection.respond(slot, Completion::SUCCESS, 0);
            let work = driver.post(0);
            driver.complete(&work);
            Answer::of(work.operation).sqhd
        })
        .collect();
    assert_eq!(heads, [2, 3, 4, 5, 6, 7, 0, 1, 2]);

    let mut driver = Driver::new(&limits(), &REQUEST);
    let slot = driver.command(&connect(0, 1, 7));
    driver.connection.established(8, false);
    driver.connection.authenticated();
    driver.connection.respond(slot, Completion::SUCCESS, 0);
    assert_eq!(driver.answer().sqhd, 0xFFFF);
}
