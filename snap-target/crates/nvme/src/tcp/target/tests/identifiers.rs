//! Command identifiers: one that is in use is refused, and the command that has it goes on; one that was answered is the host's again.

use super::writes::{r2t, status_of};
use super::*;
use nvme_spec::{Cid, Status};
use proptest::prelude::*;

const CID: u16 = 9;

fn conflict() -> Status {
    Status::COMMAND_ID_CONFLICT.dnr()
}

fn begun(events: &[Event]) -> Slot {
    let [Event::Command { slot }, ..] = *events else {
        panic!("{events:?}")
    };
    slot
}

/// Whatever the first is and wherever it stands, the second is refused without an event, its data are dropped, and the first comes to its end.
#[test]
fn an_identifier_in_use_is_refused_and_its_command_goes_on() {
    let seconds = [
        flush(CID),
        read(CID, 64),
        write(CID, 64),
        capsule(&sqe(WRITE, CID, 1, 64, IN_CAPSULE), &[7; 64]),
    ];
    for second in seconds {
        let mut driver = Driver::plain();
        let slot = begun(&driver.feed(&write(CID, 128)));
        let refuse = |driver: &mut Driver| {
            assert_eq!(driver.feed(&second), [], "{second:?}");
            assert_eq!(status_of(&driver.sent()), conflict());
            assert_eq!(driver.connection.find(Cid(CID)), Some(slot));
            assert_eq!(driver.connection.occupied().collect::<Vec<_>>(), [slot]);
        };
        refuse(&mut driver);
        driver.connection.request_data(slot, Time::ZERO).unwrap();
        assert_eq!(driver.sent(), [r2t(CID, slot.0, 0, 128)]);
        refuse(&mut driver);
        assert_eq!(driver.feed(&h2c_data(CID, slot.0, 0, &[1; 64], 0)), []);
        refuse(&mut driver);
        let ready = driver.feed(&h2c_data(CID, slot.0, 64, &[2; 64], LAST));
        assert_eq!(ready, [Event::DataReady { slot }]);
        assert_eq!(driver.buffers[slot.index()], [[1; 64], [2; 64]].concat());
        refuse(&mut driver);
        driver.connection.respond(slot, Completion::SUCCESS, 0);
        assert_eq!(status_of(&driver.sent()), Status::SUCCESS);
        begun(&driver.feed(&second));
    }
}

/// A refused command does not give the identifier free, however often it comes.
#[test]
fn a_command_is_answered_once_however_often_its_identifier_comes() {
    let mut driver = Driver::plain();
    let slot = begun(&driver.feed(&flush(CID)));
    for _ in 0..1000 {
        assert_eq!(driver.feed(&flush(CID)), []);
        assert_eq!(status_of(&driver.sent()), conflict());
    }
    // Its low bits are those of another.
    begun(&driver.feed(&flush(CID + 4096)));
    driver.connection.respond(slot, Completion::SUCCESS, 0);
    assert_eq!(status_of(&driver.sent()), Status::SUCCESS);
    begun(&driver.feed(&flush(CID)));
}

/// SPDK's host detaches so: its Asynchronous Event Request waits here still when it asks for CC by the same identifier.
#[test]
fn a_property_is_read_and_written_whatever_waits_under_its_identifier() {
    let mut driver = Driver::plain();
    let request = capsule(&sqe(0x0C, CID, 0, 0, TRANSPORT), &[]);
    let waiting = begun(&driver.feed(&request));
    for fctype in [0x04, 0x00] {
        let mut property = sqe(0x7F, CID, 0, 0, TRANSPORT);
        property[4] = fctype;
        let slot = begun(&driver.feed(&capsule(&property, &[])));
        assert_ne!(slot, waiting);
        driver.connection.respond(slot, Completion::SUCCESS, 0);
        assert_eq!(status_of(&driver.sent()), Status::SUCCESS);
    }
    // All else is refused as before, and the first is answered.
    for other in [flush(CID), request] {
        assert_eq!(driver.feed(&other), []);
        assert_eq!(status_of(&driver.sent()), conflict());
    }
    driver.connection.respond(waiting, Completion::SUCCESS, 0);
    assert_eq!(status_of(&driver.sent()), Status::SUCCESS);
    begun(&driver.feed(&flush(CID)));
}

proptest! {
    /// Identifiers whose low bits meet and that repeat, answered in any order, against a list of those in use.
    #[test]
    fn identifiers_are_refused_while_they_are_in_use_and_no_longer(steps in prop::collection::vec((any::<bool>(), 0..4u16, 0..3u16, any::<usize>()), 1..200)) {
        let mut driver = Driver::plain();
        let mut in_use: Vec<(u16, Slot)> = Vec::new();
        for (begins, low, high, which) in steps {
            if begins && in_use.len() < 7 {
                let cid = low | high << 12;
                let events = driver.feed(&flush(cid));
                if in_use.iter().any(|(other, _)| *other == cid) {
                    prop_assert_eq!(events, []);
                    prop_assert_eq!(status_of(&driver.sent()), conflict());
                } else {
                    in_use.push((cid, begun(&events)));
                }
            } else if !in_use.is_empty() {
                let (_, slot) = in_use.remove(which % in_use.len());
                driver.connection.respond(slot, Completion::SUCCESS, 0);
                prop_assert_eq!(status_of(&driver.sent()), Status::SUCCESS);
            }
            for (cid, slot) in &in_use {
                prop_assert_eq!(driver.connection.find(Cid(*cid)), Some(*slot));
            }
        }
    }
}
