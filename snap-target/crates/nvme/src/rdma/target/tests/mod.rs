//! The target's end, message by message. Capsules are built here from the specification's offsets, not from the structures under test.

#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths of test data, all small"
)]

mod hostile;
mod limits;
mod negotiation;
mod random;
mod reads;
mod writes;

use super::{Connection, Event, Operation, ReceiveId, Request, TargetLimits, Want, Work};
use crate::Time;
use crate::queue::{Completion, QueueId, Slot};
use nvme_spec::Status;
use zerocopy::IntoBytes;

pub const FLUSH: u8 = 0;
pub const WRITE: u8 = 1;
pub const READ: u8 = 2;
pub const KEYED: u8 = 0x40;
pub const KEYED_INVALIDATE: u8 = 0x4F;
pub const IN_CAPSULE: u8 = 0x01;

/// A submission queue entry: opcode, PSDT = 01b, CID, NSID 1, and 16 bytes of SGL descriptor.
pub fn sqe(opcode: u8, cid: u16, descriptor: [u8; 16]) -> Vec<u8> {
    let mut sqe = vec![0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[4] = 1;
    sqe[24..40].copy_from_slice(&descriptor);
    sqe
}

/// Keyed SGL Data Block: address 0..8, length 8..11, key 11..15, type and sub type 15.
pub fn keyed(address: u64, bytes: u32, key: u32, id: u8) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&address.to_le_bytes());
    descriptor[8..11].copy_from_slice(&bytes.to_le_bytes()[..3]);
    descriptor[11..15].copy_from_slice(&key.to_le_bytes());
    descriptor[15] = id;
    descriptor
}

/// SGL Data Block with an offset: offset 0..8, length 8..12, type and sub type 15.
pub fn inside(offset: u64, bytes: u32) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&offset.to_le_bytes());
    descriptor[8..12].copy_from_slice(&bytes.to_le_bytes());
    descriptor[15] = IN_CAPSULE;
    descriptor
}

pub fn read(cid: u16, bytes: u32) -> Vec<u8> {
    sqe(READ, cid, keyed(0x1_0000, bytes, 0xAB, KEYED_INVALIDATE))
}

pub fn write(cid: u16, bytes: u32) -> Vec<u8> {
    sqe(WRITE, cid, keyed(0x2_0000, bytes, 0xCD, KEYED_INVALIDATE))
}

pub fn flush(cid: u16) -> Vec<u8> {
    sqe(FLUSH, cid, keyed(0, 0, 0, KEYED))
}

/// Connect of a queue, with its 1024 bytes in the host's memory.
pub fn connect(cid: u16, qid: u16, sqsize_z: u16) -> Vec<u8> {
    let mut connect = sqe(0x7F, cid, keyed(0x3_0000, 1024, 0xEF, KEYED));
    connect[4] = 0x01;
    connect[42..44].copy_from_slice(&qid.to_le_bytes());
    connect[44..46].copy_from_slice(&sqsize_z.to_le_bytes());
    connect
}

pub const REQUEST: Request = Request {
    queue: QueueId(1),
    entries: 8,
    host_receives: 8,
    reads_max: 4,
};

pub fn limits() -> TargetLimits {
    TargetLimits {
        queue_entries_max: 8,
        send_requests: 32,
        ..TargetLimits::default()
    }
}

/// A response as the host gets it: CID, status, SQHD, and the key that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub cid: u16,
    pub status: u16,
    pub sqhd: u16,
    pub invalidated: Option<u32>,
}

impl Answer {
    pub fn of(operation: Operation) -> Answer {
        let Operation::Respond {
            cqe, invalidate, ..
        } = operation
        else {
            panic!("{operation:?} is no response")
        };
        let bytes = cqe.as_bytes();
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Answer {
            cid: word(12),
            status: word(14) >> 1,
            sqhd: word(8),
            invalidated: invalidate,
        }
    }
}

/// A connection that is asked for work one request at a time.
pub struct Driver {
    pub connection: Connection,
    pub now: Time,
    receive: u16,
}

impl Driver {
    pub fn new(limits: &TargetLimits, request: &Request) -> Driver {
        Driver {
            connection: Connection::new(limits, request, Time::ZERO),
            now: Time::ZERO,
            receive: 0,
        }
    }

    /// Connected, with so many entries and flow control.
    pub fn live(limits: &TargetLimits, request: &Request) -> Driver {
        let mut driver = Driver::new(limits, request);
        let entries = request.entries;
        let slot = driver.command(&connect(0, request.queue.0, entries - 1));
        driver.connection.established(entries, true);
        driver.connection.authenticated();
        driver.connection.respond(slot, Completion::SUCCESS, 0);
        let response = driver.post(0);
        assert_eq!(response.slot, slot);
        assert_eq!(driver.complete(&response), []);
        driver
    }

    /// Lets a message arrive.
    pub fn message(&mut self, message: &[u8]) -> ReceiveId {
        assert_eq!(self.connection.want(), Want::Capsule);
        let receive = ReceiveId(self.receive);
        self.receive += 1;
        self.connection.capsule(
            receive,
            &message[..message.len().min(64)],
            message.len() as u32,
        );
        receive
    }

    /// Lets a command arrive that is the driver's to handle.
    pub fn command(&mut self, message: &[u8]) -> Slot {
        self.message(message);
        match self.connection.next_event() {
            Some(Event::Command { slot } | Event::Connect { slot }) => slot,
            other => panic!("{other:?}"),
        }
    }

    /// Posts the next request, of at most so many bytes.
    pub fn post(&mut self, bytes: u32) -> Work {
        let work = self.connection.next_work().expect("work");
        self.connection.posted(&work, bytes, self.now);
        work
    }

    /// Posts the next request, which is a response.
    pub fn answer(&mut self) -> Answer {
        Answer::of(self.post(0).operation)
    }

    /// Ends a request; what that leads to.
    pub fn complete(&mut self, work: &Work) -> Vec<Event> {
        self.connection.completed(work.id);
        std::iter::from_fn(|| self.connection.next_event()).collect()
    }
}

pub fn status(status: Status) -> u16 {
    status.to_wire() >> 1
}
