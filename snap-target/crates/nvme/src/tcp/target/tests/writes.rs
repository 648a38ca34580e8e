//! Data from the host: in the capsule, and by R2T.

use super::*;
use crate::queue::Transfer;
use nvme_spec::Status;
use std::time::Duration;

pub(super) fn r2t(cid: u16, ttag: u16, offset: u32, len: u32) -> Vec<u8> {
    pdu(9, 0, 24, 0, 24, &h2c_fields(cid, ttag, offset, len))
}

pub(super) fn status_of(sent: &[Vec<u8>]) -> Status {
    let [answer] = sent else {
        panic!("{} PDUs", sent.len())
    };
    assert_eq!(answer[0], 5);
    Status::from_wire(u16::from_le_bytes(answer[22..24].try_into().unwrap()))
}

/// TCP, "In-Capsule Data": with the capsule, before DataReady.
#[test]
fn data_in_the_capsule_go_to_the_commands_buffer() {
    let mut driver = Driver::plain();
    let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
    let events = driver.feed(&capsule(&sqe(WRITE, 1, 1, 8192, IN_CAPSULE), &bytes));
    assert_eq!(
        events,
        [
            Event::Command { slot: Slot(0) },
            Event::DataReady { slot: Slot(0) }
        ]
    );
    assert_eq!(
        driver.connection.transfer(Slot(0)),
        Transfer::InCapsule { bytes: 8192 }
    );
    assert_eq!(driver.buffers[0], bytes);
    assert_eq!(
        driver.connection.request_data(Slot(0), Time::ZERO),
        Err(Status::DATA_SGL_LENGTH_INVALID.dnr())
    );
    driver.connection.respond(Slot(0), Completion::SUCCESS, 0);
    assert_eq!(status_of(&driver.sent()), Status::SUCCESS);
}

/// SGLS bit 20: an offset in the capsule is taken. What is before it goes nowhere, and the digest is over all.
#[test]
fn data_in_the_capsule_may_begin_at_an_offset() {
    let bytes: Vec<u8> = (0..=255).cycle().take(8192).collect();
    for (offset, digests) in [(1, 0), (4096, 0), (4096, 3), (8000, 0), (8191, 3)] {
        let mut entry = sqe(WRITE, 1, 1, 8192 - offset, IN_CAPSULE);
        entry[24..28].copy_from_slice(&offset.to_le_bytes());
        let plain = capsule(&entry, &bytes);
        let wire = match digests {
            0 => plain,
            _ => digested(&plain, true),
        };
        for piece in [wire.len(), 100] {
            let mut driver = Driver::connected(&TargetLimits::default(), digests, 8, true);
            let events = wire.chunks(piece).flat_map(|part| driver.feed(part));
            let slot = Slot(0);
            let wanted = [Event::Command { slot }, Event::DataReady { slot }];
            assert_eq!(events.collect::<Vec<_>>(), wanted);
            let bytes_wanted = 8192 - offset;
            let transfer = Transfer::InCapsule {
                bytes: bytes_wanted,
            };
            assert_eq!(driver.connection.transfer(slot), transfer);
            assert!(driver.buffers[0] == bytes[offset as usize..], "{offset}");
            driver.connection.respond(slot, Completion::SUCCESS, 0);
            assert_eq!(status_of(&driver.sent()), Status::SUCCESS);
        }
    }
}

/// TCP, "R2T", "H2CData": one R2T, several H2CData.
#[test]
fn an_r2t_brings_the_data_in_any_number_of_pdus() {
    let mut driver = Driver::plain();
    assert_eq!(
        driver.feed(&write(0x77, 6000)),
        [Event::Command { slot: Slot(0) }]
    );
    driver.connection.request_data(Slot(0), Time::ZERO).unwrap();
    assert_eq!(driver.sent(), [r2t(0x77, 0, 0, 6000)]);
    assert_eq!(driver.feed(&h2c_data(0x77, 0, 0, &[1; 4000], 0)), []);
    assert_eq!(
        driver.feed(&flush(0x78)),
        [Event::Command { slot: Slot(1) }]
    );
    assert_eq!(
        driver.feed(&h2c_data(0x77, 0, 4000, &[2; 2000], LAST)),
        [Event::DataReady { slot: Slot(0) }]
    );
    assert_eq!(driver.buffers[0][..4000], [1; 4000]);
    assert_eq!(driver.buffers[0][4000..], [2; 2000]);
    driver.connection.respond(Slot(0), Completion::SUCCESS, 0);
    assert_eq!(status_of(&driver.sent()), Status::SUCCESS);
}

/// TCP, "R2T": several for one command, one outstanding at a time, whatever MAXR2T says.
#[test]
fn long_writes_take_several_r2ts() {
    let limits = TargetLimits {
        r2t_bytes_max: 4096,
        ..TargetLimits::default()
    };
    let mut driver = Driver::connected(&limits, 0, 8, true);
    driver.feed(&write(9, 10_000));
    driver.connection.request_data(Slot(0), Time::ZERO).unwrap();
    assert_eq!(driver.sent(), [r2t(9, 0, 0, 4096)]);
    assert_eq!(driver.feed(&h2c_data(9, 0, 0, &[1; 4096], LAST)), []);
    assert_eq!(driver.sent(), [r2t(9, 0, 4096, 4096)]);
    assert_eq!(driver.feed(&h2c_data(9, 0, 4096, &[2; 4096], LAST)), []);
    assert_eq!(driver.sent(), [r2t(9, 0, 8192, 1808)]);
    assert_eq!(
        driver.feed(&h2c_data(9, 0, 8192, &[3; 1808], LAST)),
        [Event::DataReady { slot: Slot(0) }]
    );
}

/// TCP, "Data Digest Error": not fatal; the command ends with Transient Transport Error.
#[test]
fn a_wrong_data_digest_fails_the_command_alone() {
    let mut driver = Driver::connected(&TargetLimits::default(), 3, 8, true);
    let mut bytes = digested(&capsule(&sqe(WRITE, 1, 1, 64, IN_CAPSULE), &[7; 64]), true);
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(
        driver.feed(&bytes),
        [
            Event::Command { slot: Slot(0) },
            Event::DataCorrupt { slot: Slot(0) }
        ]
    );
    driver.connection.respond(
        Slot(0),
        Completion::of(Status::TRANSIENT_TRANSPORT_ERROR),
        0,
    );
    driver.sent();

    // By H2CData: the rest of the data is taken before the command ends.
    driver.feed(&digested(&write(2, 128), true));
    driver.connection.request_data(Slot(0), Time::ZERO).unwrap();
    driver.sent();
    let mut first = digested(&h2c_data(2, 0, 0, &[7; 64], 0), true);
    first[40] ^= 0x10;
    assert_eq!(driver.feed(&first), []);
    assert_eq!(
        driver.feed(&digested(&h2c_data(2, 0, 64, &[7; 64], LAST), true)),
        [Event::DataCorrupt { slot: Slot(0) }]
    );
    driver.connection.respond(
        Slot(0),
        Completion::of(Status::TRANSIENT_TRANSPORT_ERROR),
        0,
    );
    driver.sent();

    // The slot does not remember.
    let whole = digested(&capsule(&sqe(WRITE, 3, 1, 64, IN_CAPSULE), &[7; 64]), true);
    assert_eq!(
        driver.feed(&whole),
        [
            Event::Command { slot: Slot(0) },
            Event::DataReady { slot: Slot(0) }
        ]
    );
}

/// An answer given before the capsule's data came: they are dropped, the stream goes on.
#[test]
fn data_of_an_answered_command_are_dropped() {
    for dgst in [0, 3] {
        let mut driver = Driver::connected(&TargetLimits::default(), dgst, 8, true);
        let mut bytes = capsule(&sqe(WRITE, 1, 9, 64, IN_CAPSULE), &[7; 64]);
        if dgst != 0 {
            bytes = digested(&bytes, true);
            // Nobody looks at the digest of dropped data.
            *bytes.last_mut().unwrap() ^= 1;
        }
        let used = driver.connection.headers(&bytes);
        assert_eq!(
            driver.connection.next_event(),
            Some(Event::Command { slot: Slot(0) })
        );
        driver
            .connection
            .respond(Slot(0), Completion::of(Status::INVALID_NAMESPACE.dnr()), 0);
        assert_eq!(driver.connection.want(), Want::Discard(64));
        assert_eq!(status_of(&driver.sent()), Status::INVALID_NAMESPACE.dnr());
        assert_eq!(driver.feed(&bytes[used..]), []);
        assert!(driver.buffers[0].is_empty());
        let next = if dgst == 0 {
            flush(2)
        } else {
            digested(&flush(2), true)
        };
        assert_eq!(driver.feed(&next), [Event::Command { slot: Slot(0) }]);
    }
}

/// Base, "SGL"; TCP, "Data Transfers": descriptors that cannot be used, each with its status; the capsule's data are dropped.
#[test]
fn unusable_descriptors_are_refused_by_name() {
    let refused = |entry: [u8; 64], data: &[u8]| {
        let mut driver = Driver::plain();
        assert_eq!(
            driver.feed(&capsule(&entry, data)),
            [Event::Command { slot: Slot(0) }]
        );
        assert!(driver.buffers[0].is_empty());
        let Transfer::Refused(status) = driver.connection.transfer(Slot(0)) else {
            panic!("taken")
        };
        driver.connection.respond(Slot(0), status.into(), 0);
        assert_eq!(status_of(&driver.sent()), status);
        assert_eq!(driver.feed(&flush(2)), [Event::Command { slot: Slot(0) }]);
        status
    };
    let data = [5; 64];
    let length = Status::DATA_SGL_LENGTH_INVALID.dnr();
    assert_eq!(refused(sqe(WRITE, 1, 1, 63, IN_CAPSULE), &data), length);
    assert_eq!(refused(sqe(WRITE, 1, 1, 65, IN_CAPSULE), &data), length);
    assert_eq!(refused(sqe(WRITE, 1, 1, 64, IN_CAPSULE), &[]), length);
    assert_eq!(refused(sqe(WRITE, 1, 1, 64, TRANSPORT), &data), length);
    assert_eq!(refused(sqe(FLUSH, 1, 1, 0, TRANSPORT), &data), length);
    assert_eq!(
        refused(sqe(READ, 1, 1, 64, IN_CAPSULE), &[]),
        Status::SGL_TYPE_INVALID.dnr()
    );
    assert_eq!(
        refused(sqe(READ, 1, 1, 64, 0x40), &[]),
        Status::SGL_TYPE_INVALID.dnr()
    );
    assert_eq!(
        refused(sqe(WRITE, 1, 1, 64, 0x00), &data),
        Status::SGL_TYPE_INVALID.dnr()
    );
    let at = |offset: u64, bytes: u32| {
        let mut sqe = sqe(WRITE, 1, 1, bytes, IN_CAPSULE);
        sqe[24..32].copy_from_slice(&offset.to_le_bytes());
        sqe
    };
    let outside = Status::SGL_OFFSET_INVALID.dnr();
    assert_eq!(refused(at(65, 0), &data), outside);
    assert_eq!(refused(at(u64::MAX, 64), &data), outside);
    assert_eq!(refused(at(4, 64), &data), length);
    assert_eq!(refused(at(4, 59), &data), length);
    assert_eq!(refused(at(64, 0), &data), length);
    let mut prp = sqe(WRITE, 1, 1, 64, IN_CAPSULE);
    prp[1] = 0;
    assert_eq!(refused(prp, &data), Status::INVALID_FIELD.dnr());
}

/// An R2T that a host leaves open holds memory: the connection ends when the first of them has had its time, and not before.
#[test]
fn data_that_do_not_come_end_the_connection() {
    let limits = TargetLimits {
        data_timeout: Duration::from_secs(20),
        ..TargetLimits::default()
    };
    let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let mut driver = Driver::connected(&limits, 0, 8, true);
    assert_eq!(driver.connection.deadline(), None);
    for (cid, asked_at) in [(1, at(5)), (2, at(10))] {
        let events = driver.feed(&write(cid, 4096));
        let [Event::Command { slot }] = events[..] else {
            panic!("{events:?}")
        };
        driver.connection.request_data(slot, asked_at).unwrap();
    }
    assert_eq!(driver.sent().len(), 2);
    assert_eq!(driver.connection.deadline(), Some(at(25)));
    driver
        .connection
        .tick(Time::from_nanos(at(25).as_nanos() - 1));
    assert_eq!(driver.connection.next_event(), None);

    // The first command's data come at the last moment; the second is answered early, and its data are owed all the same.
    let ready = driver.feed(&h2c_data(1, 0, 0, &[7; 4096], LAST));
    assert_eq!(ready, [Event::DataReady { slot: Slot(0) }]);
    let aborted = Completion::of(Status::ABORT_REQUESTED);
    driver.connection.respond(Slot(1), aborted, 0);
    assert_eq!(status_of(&driver.sent()), Status::ABORT_REQUESTED);
    driver.connection.tick(at(25));
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.connection.deadline(), Some(at(30)));
    driver.connection.tick(at(30));
    assert_eq!(driver.connection.next_event(), Some(Event::TimedOut));
    driver.assert_deaf();
}

/// Where every command has its data there is nothing to wait for.
#[test]
fn data_that_came_leave_no_deadline() {
    let mut driver = Driver::plain();
    driver.feed(&write(1, 512));
    driver.connection.request_data(Slot(0), Time::ZERO).unwrap();
    driver.sent();
    driver.feed(&h2c_data(1, 0, 0, &[7; 512], LAST));
    driver
        .connection
        .tick(Time::ZERO + crate::tcp::target::DATA_TIMEOUT);
    assert_eq!(driver.connection.next_event(), None);
    assert_eq!(driver.connection.deadline(), None);
}
