//! A target, and what hosts may send it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nvme::Time;
use nvme::queue::{Completion, QueueId, Slot, Transfer};
use nvme::rdma::target::{
    Connection, Event, Operation, ReceiveId, Request, TargetLimits, Want, Work,
};
use nvme_spec::Status;

use super::{MEMORY_MAX, TIMEOUT};
use crate::bodies::Script;
use crate::support::memory::most_held;

const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
const ENTRIES: u16 = 8;
const SEND_REQUESTS: u16 = 12;
const HOST_RECEIVES: u16 = 5;
const READS_MAX: u8 = 3;
const TRANSFER_BYTES_MAX: u32 = 1 << 16;

/// A host's messages, the device's completions and the driver's answers, in any order.
pub fn rdma_target(data: &[u8]) {
    let held = most_held(|| Target::new(Script(data)).run());
    assert!(held < MEMORY_MAX, "{held} bytes");
}

/// What the host can know of a command: where its data are, and what has been moved of them.
#[derive(Debug)]
struct Asked {
    address: u64,
    key: u32,
    bytes: u32,
    is_write: bool,
    asks_to_invalidate: bool,
    moved: u32,
    reads_under_way: u32,
    is_answered: bool,
}

struct Target<'a> {
    script: Script<'a>,
    connection: Connection,
    now: Time,
    /// By slot: from the event of its command to its response.
    asked: BTreeMap<Slot, Asked>,
    /// With the driver.
    held: Vec<Slot>,
    posted: VecDeque<Work>,
    /// Receives that the device has.
    receives: Vec<ReceiveId>,
    is_over: bool,
}

impl<'a> Target<'a> {
    fn new(mut script: Script<'a>) -> Target<'a> {
        let limits = TargetLimits {
            queue_entries_max: ENTRIES,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            reads_max: READS_MAX,
            send_requests: SEND_REQUESTS,
            invalidate: !script.byte().is_multiple_of(4),
            connect_timeout: TIMEOUT,
            data_timeout: TIMEOUT,
        };
        let request = Request {
            queue: QueueId(1),
            entries: ENTRIES,
            host_receives: HOST_RECEIVES,
            reads_max: READS_MAX,
        };
        Target {
            connection: Connection::new(&limits, &request, Time::ZERO),
            script,
            now: Time::ZERO,
            asked: BTreeMap::new(),
            held: Vec::new(),
            posted: VecDeque::new(),
            receives: (0..ENTRIES).map(ReceiveId).collect(),
            is_over: false,
        }
    }

    fn run(&mut self) {
        if !self.script.byte().is_multiple_of(8) {
            self.message(&connect(), 64);
        }
        while !self.script.0.is_empty() {
            match self.script.byte() % 8 {
                0..=2 => {
                    let (head, bytes) = self.any_message();
                    self.message(&head, bytes);
                }
                3 | 4 => self.post(),
                5 => self.complete(),
                6 => self.answer(),
                _ => {
                    let millis = self.script.of(&[0, 1, 1000, 6000]) % 10_000;
                    self.now = self.now + Duration::from_millis(millis.into());
                    self.connection.tick(self.now);
                    self.events();
                }
            }
            self.check();
        }
    }

    /// A message, near to a command most of the time: what there is of its entry, and its length.
    fn any_message(&mut self) -> (Vec<u8>, u32) {
        let script = &mut self.script;
        if script.byte().is_multiple_of(16) {
            let len = usize::from(script.byte() % 80);
            let bytes = script.bytes(len);
            let whole = script.of(&[u32::try_from(bytes.len()).unwrap(), 64, 0]);
            let there = bytes.len().min(64).min(whole as usize);
            return (bytes[..there].to_vec(), whole);
        }
        if script.byte().is_multiple_of(2) {
            return (good(script), 64);
        }
        let opcode = script.of(&[READ.into(), WRITE.into(), 0]) as u8;
        let cid = script.of(&[1, 2, 3, 4]) as u16;
        let mut sqe = vec![0; 64];
        sqe[0] = opcode;
        sqe[1] = script.of(&[0x40, 0x40, 0x40, 0x40]) as u8;
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        sqe[4] = 1;
        let id = script.of(&[0x40, 0x4F, 0x01, 0x01]) as u8;
        let bytes = script.of(&[512, 4096, TRANSFER_BYTES_MAX, TRANSFER_BYTES_MAX + 1, 0]);
        let extra = script.of(&[0, 512, 4096]) % 0x4000;
        if id == 0x01 {
            let offset = script.of(&[0, 0, 512]);
            sqe[24..28].copy_from_slice(&offset.to_le_bytes());
            sqe[32..36].copy_from_slice(&bytes.to_le_bytes());
        } else {
            let address = u64::from(script.word()) << (script.byte() % 33);
            sqe[24..32].copy_from_slice(&address.to_le_bytes());
            sqe[32..35].copy_from_slice(&bytes.to_le_bytes()[..3]);
            sqe[35..39].copy_from_slice(&script.word().to_le_bytes());
        }
        sqe[39] = id;
        (sqe, 64 + extra)
    }

    fn message(&mut self, head: &[u8], bytes: u32) {
        if self.connection.want() != Want::Capsule {
            return;
        }
        let receive = self.receives.pop();
        let receive = receive.expect("a command more than there are receives is a fatal error");
        self.connection.capsule(receive, head, bytes);
        self.events_of(Some((receive, bytes)));
    }

    fn events(&mut self) {
        self.events_of(None);
    }

    fn events_of(&mut self, came: Option<(ReceiveId, u32)>) {
        while let Some(event) = self.connection.next_event() {
            assert!(!self.is_over, "{event:?} after the end");
            match event {
                Event::Connect { slot } => {
                    self.take(slot);
                    self.connection
                        .established(ENTRIES, !self.script.byte().is_multiple_of(2));
                    self.connection.authenticated();
                    self.held.push(slot);
                }
                Event::Command { slot } => {
                    self.take(slot);
                    let asked = &self.asked[&slot];
                    let is_asked = !self.script.byte().is_multiple_of(4) && asked.is_write;
                    let accepted = is_asked && self.connection.request_data(slot, self.now).is_ok();
                    if accepted {
                        assert!(self.asked[&slot].bytes <= TRANSFER_BYTES_MAX);
                    }
                    self.held.push(slot);
                }
                Event::CapsuleData {
                    slot,
                    receive,
                    offset,
                    bytes,
                } => {
                    let (came_in, len) = came.expect("data of a message that came now");
                    assert_eq!(receive, came_in);
                    let end = 64 + u64::from(offset) + u64::from(bytes);
                    assert!(end <= len.into(), "beyond what came");
                    assert!(self.asked.contains_key(&slot));
                }
                Event::DataReady { slot } => {
                    let asked = &self.asked[&slot];
                    assert_eq!((asked.moved, asked.reads_under_way), (asked.bytes, 0));
                }
                Event::DataLeft { slot } => {
                    let asked = self.asked.remove(&slot);
                    assert!(asked.is_some_and(|asked| asked.is_answered));
                }
                Event::Fatal(_) | Event::TimedOut => self.is_over = true,
            }
        }
    }

    /// Looks at a command that came.
    fn take(&mut self, slot: Slot) {
        let sqe = self.connection.command(slot);
        let dptr: [u8; 16] = zerocopy::transmute!(sqe.dptr);
        let key = u32::from_le_bytes([dptr[11], dptr[12], dptr[13], dptr[14]]);
        let asked = Asked {
            address: u64::from_le_bytes(dptr[..8].try_into().unwrap()),
            key,
            bytes: match self.connection.transfer(slot) {
                Transfer::Remote { bytes } => bytes,
                _ => 0,
            },
            is_write: sqe.opcode & 3 == 1,
            asks_to_invalidate: dptr[15] == 0x4F,
            moved: 0,
            reads_under_way: 0,
            is_answered: false,
        };
        let before = self.asked.insert(slot, asked);
        assert!(before.is_none(), "the slot has a command");
        self.held.retain(|held| *held != slot);
    }

    /// The driver answers one of the commands that it has, at any time.
    fn answer(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = usize::from(self.script.byte()) % self.held.len();
        let slot = self.held.swap_remove(at);
        if self.is_over || !self.connection.is_outstanding(slot) {
            return;
        }
        let asked = &self.asked[&slot];
        let data = match self.script.byte() % 4 {
            0 => None,
            _ if asked.is_write => Some(0),
            _ => Some(asked.bytes.min(TRANSFER_BYTES_MAX)),
        };
        match data {
            None => {
                let failed: Completion = Status::INTERNAL_ERROR.into();
                self.connection.respond(slot, failed, 0);
            }
            Some(bytes) => self.connection.respond(slot, Completion::SUCCESS, bytes),
        }
    }

    fn post(&mut self) {
        let bytes = self.script.of(&[u32::MAX, 4096, 512, 1]).max(1);
        let Some(work) = self.connection.next_work() else {
            return;
        };
        assert!(!self.is_over, "{work:?} after the end");
        if !self.asked.contains_key(&work.slot) {
            // The machine refuses some by itself.
            assert!(
                matches!(work.operation, Operation::Respond { .. }),
                "{work:?}"
            );
            self.take(work.slot);
        }
        let asked = self.asked.get_mut(&work.slot).expect("work of a command");
        match work.operation {
            Operation::Read {
                offset,
                bytes_max,
                remote,
            }
            | Operation::Write {
                offset,
                bytes_max,
                remote,
            } => {
                assert_eq!(offset, asked.moved, "from where it was");
                assert!(
                    bytes_max >= 1 && offset + bytes_max <= asked.bytes,
                    "beyond its descriptor"
                );
                let place = (asked.address.wrapping_add(offset.into()), asked.key);
                assert_eq!((remote.address, remote.key), place);
                asked.moved += bytes.min(bytes_max);
                let is_read = matches!(work.operation, Operation::Read { .. });
                asked.reads_under_way += u32::from(is_read);
                assert_eq!(is_read, asked.is_write);
            }
            Operation::Respond {
                invalidate,
                with_data,
                ..
            } => {
                assert!(!asked.is_answered, "answered twice");
                assert_eq!(asked.reads_under_way, 0, "its key is in use");
                if let Some(key) = invalidate {
                    assert!(asked.asks_to_invalidate && key == asked.key);
                }
                asked.is_answered = true;
                if !with_data {
                    self.asked.remove(&work.slot);
                }
                self.held.retain(|held| *held != work.slot);
            }
        }
        self.connection.posted(&work, bytes, self.now);
        self.posted.push_back(work);
    }

    /// The device says that a request has ended, and with it all before it.
    fn complete(&mut self) {
        let told: Vec<usize> = (0..self.posted.len())
            .filter(|&at| self.posted[at].signaled)
            .collect();
        if told.is_empty() {
            return;
        }
        let at = told[usize::from(self.script.byte()) % told.len()];
        let id = self.posted[at].id;
        for work in self.posted.drain(..=at) {
            if let Operation::Read { .. } = work.operation
                && let Some(asked) = self.asked.get_mut(&work.slot)
            {
                asked.reads_under_way -= 1;
            }
        }
        self.connection.completed(id);
        self.events();
    }

    fn check(&mut self) {
        while let Some(receive) = self.connection.next_receive() {
            assert!(!self.receives.contains(&receive), "given back twice");
            self.receives.push(receive);
        }
        let count = |is: fn(&Operation) -> bool| {
            let such = self.posted.iter().filter(|work| is(&work.operation));
            such.count()
        };
        assert!(self.posted.len() <= SEND_REQUESTS.into());
        assert!(count(|it| matches!(it, Operation::Read { .. })) <= READS_MAX.into());
        assert!(count(|it| matches!(it, Operation::Respond { .. })) <= HOST_RECEIVES.into());
        if self.is_over {
            assert_eq!(self.connection.next_work(), None);
            assert_eq!(self.connection.next_event(), None);
            assert_eq!(self.connection.want(), Want::Closed);
        }
    }
}

/// A read or a write of data in the host's memory, with nothing wrong with it.
fn good(script: &mut Script<'_>) -> Vec<u8> {
    let choice = script.byte();
    let mut sqe = vec![0; 64];
    sqe[0] = [READ, WRITE, WRITE][usize::from(choice % 3)];
    (sqe[1], sqe[2], sqe[4]) = (0x40, choice / 16, 1);
    let bytes = [512, 4096, TRANSFER_BYTES_MAX][usize::from(choice / 3 % 3)];
    sqe[24..28].copy_from_slice(&script.word().to_le_bytes());
    sqe[32..35].copy_from_slice(&bytes.to_le_bytes()[..3]);
    sqe[35] = script.byte();
    sqe[39] = [0x40, 0x4F][usize::from(choice / 9 % 2)];
    sqe
}

/// Connect of queue 1, its data in the host's memory.
fn connect() -> Vec<u8> {
    let mut sqe = vec![0; 64];
    (sqe[0], sqe[1], sqe[2], sqe[4]) = (0x7F, 0x40, 0xFF, 0x01);
    sqe[33] = 4;
    sqe[39] = 0x40;
    sqe[42] = 1;
    sqe[44] = ENTRIES as u8 - 1;
    sqe
}
