//! Commands that the host gave up, and what a target still sends for them.

use std::time::Duration;

use nvme::Time;
use nvme::initiator::{Blocks, Command, command};
use nvme::tcp::batch::Slot;
use nvme::tcp::host::{Event, HostError, Occupied, Want};
use nvme_spec::{Cid, Lba, Nsid, Status};

use crate::against_host::{Victim, digested};
use crate::wire::*;

const SLOT: Slot = Slot(0);
/// What a buffer holds before anything arrived.
const UNTOUCHED: u8 = 0xEE;

/// One block of namespace 1.
fn reading() -> Command {
    let block = Blocks {
        lba: Lba(0),
        count: 1,
        lba_bytes: 512,
    };
    command::read(Nsid(1), block)
}

impl Victim {
    fn completion(&mut self) -> (Slot, bool, u32) {
        match self.host.next_event() {
            Some(Event::Completed {
                slot,
                cqe,
                received,
            }) => (slot, cqe.status().is_success(), received),
            other => panic!("{other:?}"),
        }
    }
}

/// Late data are dropped at whatever byte the command was given up, digests or not; the completion says when the slot is free.
#[test]
fn late_data_of_a_command_that_was_given_up_go_nowhere() {
    for (before, dgst) in (0..512 + 24 + 8).flat_map(|before| [(before, 0), (before, 3)]) {
        let mut victim = Victim::greeted(dgst);
        let read = victim.read(1);
        let mut stream = c2h_data(LAST_PDU | SUCCESS, read, 0, &[5; 512]);
        if dgst == 3 {
            stream = digested(&stream);
        }
        let (first, rest) = stream.split_at(before.min(stream.len() - 1));
        victim.host.receive(first);
        let arrived = victim.host.buffer(SLOT).to_vec();
        assert!(victim.host.connection.abandon(SLOT));
        assert_eq!(victim.host.receive(rest), rest.len());
        assert_eq!(victim.host.buffer(SLOT), arrived, "after {before} bytes");
        assert_eq!(victim.completion(), (SLOT, true, 0));
        assert_eq!(victim.host.connection.outstanding(), 0);
        // The slot's next command is like any other.
        let read = victim.read(1);
        let mut stream = c2h_data(LAST_PDU | SUCCESS, read, 0, &[6; 512]);
        if dgst == 3 {
            stream = digested(&stream);
        }
        victim.host.receive(&stream);
        assert_eq!(victim.completion(), (SLOT, true, 512));
        assert_eq!(victim.host.buffer(SLOT), [6; 512]);
    }
}

/// Data that were damaged are no news of a command that nobody waits for.
#[test]
fn a_digest_error_of_a_command_that_was_given_up_is_none() {
    let mut victim = Victim::greeted(3);
    let read = victim.read(1);
    let mut stream = digested(&c2h_data(LAST_PDU | SUCCESS, read, 0, &[5; 512]));
    stream[100] ^= 1;
    assert!(victim.host.connection.abandon(SLOT));
    victim.host.receive(&stream);
    assert_eq!(victim.completion(), (SLOT, true, 0));
    assert_eq!(victim.host.connection.data_digest_errors(), 0);
    assert_eq!(victim.host.buffer(SLOT), [UNTOUCHED; 512]);
}

/// A target that asked for data gets them: it holds the command until then.
#[test]
fn a_write_that_was_given_up_still_sends_what_it_is_asked_for() {
    let mut victim = Victim::greeted(0);
    let write = victim.write(8);
    assert!(victim.host.connection.abandon(SLOT));
    victim.host.receive(&r2t(write, 3, 0, 4096));
    let sent = victim.sent();
    assert_eq!((sent.len(), sent[0].pdu_type()), (1, H2C_DATA));
    victim.host.receive(&response(write, 0));
    assert_eq!(victim.completion(), (SLOT, true, 0));
}

/// Nobody waits for it, so it does not end the connection; its neighbour does.
#[test]
fn a_command_that_was_given_up_has_no_timeout() {
    let mut victim = Victim::greeted(0);
    let (_given_up, waited_for) = (victim.read(1), victim.read(1));
    assert!(victim.host.connection.abandon(SLOT));
    let late = Time::ZERO + Duration::from_secs(30);
    victim.host.connection.tick(late);
    let overdue = HostError::CommandTimeout {
        cid: Cid(waited_for),
        after: Duration::from_secs(30),
    };
    assert_eq!(victim.host.next_event(), Some(Event::Fatal(overdue)));
    assert_eq!(victim.host.connection.want(), Want::Closed);
}

/// No byte of it leaves, and its slot is free at once.
#[test]
fn a_command_that_was_taken_back_before_it_left_never_does() {
    let mut victim = Victim::greeted(0);
    let waited_for = victim.read(1);
    let connection = &mut victim.host.connection;
    let unsent = connection.submit(&reading(), Time::ZERO).unwrap();
    assert!(connection.was_sent(SLOT) && !connection.was_sent(unsent));
    assert!(!connection.withdraw(SLOT), "it is on its way");
    assert!(connection.withdraw(unsent));
    assert!(!connection.withdraw(unsent), "it is complete");
    assert_eq!(victim.sent(), []);
    match victim.host.next_event() {
        Some(Event::Completed {
            slot,
            cqe,
            received,
        }) => {
            assert_eq!(
                (slot, cqe.status(), received),
                (unsent, Status::HOST_ABORTED, 0)
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(victim.host.connection.outstanding(), 1);
    victim
        .host
        .receive(&c2h_data(LAST_PDU | SUCCESS, waited_for, 0, &[5; 512]));
    assert_eq!(victim.completion(), (SLOT, true, 512));
}

/// The deadline is that of the oldest command that somebody waits for.
#[test]
fn the_deadline_is_the_oldest_command_s() {
    let mut victim = Victim::greeted(0);
    let second = Duration::from_secs(1);
    let connection = &mut victim.host.connection;
    assert_eq!(connection.deadline(), None);
    let first = connection.submit(&reading(), Time::ZERO + second).unwrap();
    connection
        .submit(&reading(), Time::ZERO + 2 * second)
        .unwrap();
    assert_eq!(connection.deadline(), Some(Time::ZERO + 31 * second));
    victim.sent();
    assert!(victim.host.connection.abandon(first));
    let connection = &mut victim.host.connection;
    assert_eq!(connection.deadline(), Some(Time::ZERO + 32 * second));
    connection.tick(Time::ZERO + 32 * second);
    assert_eq!(connection.deadline(), None, "it is over");
}

/// Only what is outstanding can be given up.
#[test]
fn nothing_else_is_given_up() {
    let mut victim = Victim::greeted(0);
    assert!(!victim.host.connection.abandon(SLOT));
    assert!(!victim.host.connection.abandon(Slot(4)));
    assert!(!victim.host.connection.abandon(Slot(u16::MAX)));
    let read = victim.read(1);
    victim
        .host
        .receive(&c2h_data(LAST_PDU | SUCCESS, read, 0, &[5; 512]));
    assert!(!victim.host.connection.abandon(SLOT), "it is complete");
    assert_eq!(victim.completion(), (SLOT, true, 512));
    assert!(!victim.host.connection.abandon(SLOT));
}

/// After the end a driver learns which buffers are its own: those that no batch reads.
#[test]
fn a_connection_that_ended_says_which_buffers_are_read() {
    use nvme::tcp::batch::TxBatch;
    let mut victim = Victim::greeted(0);
    victim.read(1);
    let block = Blocks {
        lba: Lba(0),
        count: 1,
        lba_bytes: 512,
    };
    let write = command::write(Nsid(1), block);
    let connection = &mut victim.host.connection;
    let lent = connection.submit(&write, Time::ZERO).unwrap();
    let mut batch = TxBatch::with_capacity(4);
    connection.transmit(&mut batch);
    connection.headers(&pdu(0x0F, 0, 24, 0, &[0; 16]));
    assert!(matches!(connection.next_event(), Some(Event::Fatal(_))));
    let occupied = |slot, is_lent| Occupied { slot, is_lent };
    let found: Vec<Occupied> = connection.occupied().collect();
    assert_eq!(found, [occupied(SLOT, false), occupied(lent, true)]);
    connection.transmitted(lent);
    let found: Vec<Occupied> = connection.occupied().collect();
    assert_eq!(found, [occupied(SLOT, false), occupied(lent, false)]);
}
