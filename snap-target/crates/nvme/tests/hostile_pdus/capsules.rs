//! The bodies of the fuzz targets for NVMe/RDMA: any bytes are a script, and whatever it says the machines stay sound. Capsules are built from the
//! specification's offsets.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nvme::Time;
use nvme::queue::{Completion, QueueId, Slot, Transfer};
use nvme::rdma::host;
use nvme::rdma::target::{
    Connection, Event, Operation, ReceiveId, Request, TargetLimits, Want, Work,
};
use nvme_spec::{Sqe, Status};

use crate::bodies::Script;
use crate::support::memory::most_held;

/// More than a connection of either end takes with all its tables.
const MEMORY_MAX: usize = 1 << 20;
const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
const ENTRIES: u16 = 8;
const SEND_REQUESTS: u16 = 12;
const HOST_RECEIVES: u16 = 5;
const READS_MAX: u8 = 3;
const TRANSFER_BYTES_MAX: u32 = 1 << 16;
const TIMEOUT: Duration = Duration::from_secs(5);

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

/// A controller's acceptance and responses, and the device's completions, in any order.
pub fn rdma_host(data: &[u8]) {
    let held = most_held(|| {
        let mut script = Script(data);
        let crqsize = script.of(&[1, 3, 8]) as u16;
        let mut accept = [0; 32];
        accept[2..4].copy_from_slice(&crqsize.to_le_bytes());
        let mut host = Host {
            connection: host::Connection::new(host::HostOptions {
                qid: QueueId(1),
                cntlid: 1,
                depth: 4,
                in_capsule_bytes_max: 4096,
                command_timeout: TIMEOUT,
            }),
            script,
            now: Time::ZERO,
            receives: crqsize.into(),
            next_key: 0x100,
            flying: Vec::new(),
            ended: false,
        };
        if host.connection.accepted(&accept).is_ok() {
            host.run();
        }
    });
    assert!(held < MEMORY_MAX, "{held} bytes");
}

/// A command that left.
struct Flying {
    slot: Slot,
    cid: u16,
    key: Option<u32>,
    is_sent: bool,
    answer: Option<u32>,
}

struct Host<'a> {
    script: Script<'a>,
    connection: host::Connection,
    now: Time,
    receives: usize,
    next_key: u32,
    flying: Vec<Flying>,
    ended: bool,
}

impl Host<'_> {
    fn run(&mut self) {
        while !self.script.0.is_empty() {
            match self.script.byte() % 7 {
                0 => self.submit(),
                1 => self.send(),
                2 | 3 => self.respond(),
                4 => {
                    let at = usize::from(self.script.byte()) % self.flying.len().max(1);
                    if let Some(flying) = self.flying.get_mut(at) {
                        flying.is_sent = true;
                        self.connection.sent(flying.slot);
                    }
                }
                5 => self.invalidate(),
                _ => {
                    let millis = self.script.of(&[0, 1, 1000, 6000]) % 10_000;
                    self.now = self.now + Duration::from_millis(millis.into());
                    self.connection.tick(self.now);
                }
            }
            self.events();
        }
    }

    fn submit(&mut self) {
        let bytes = self.script.of(&[0, 512, 4096, 8192, 1 << 24]);
        let transfer = match self.script.byte() % 3 {
            0 => nvme::initiator::Transfer::None,
            1 => nvme::initiator::Transfer::In(bytes),
            _ => nvme::initiator::Transfer::Out(bytes),
        };
        let command = nvme::initiator::Command {
            sqe: Sqe::ZERO,
            transfer,
        };
        let before = self.connection.outstanding();
        let taken = self.connection.submit(&command, self.now);
        assert_eq!(
            self.connection.outstanding(),
            before + usize::from(taken.is_ok())
        );
        if self.ended {
            assert_eq!(taken, Err(host::SubmitError::Closed));
        }
        if let Ok(slot) = taken
            && self.script.byte().is_multiple_of(8)
        {
            assert!(self.connection.withdraw(slot));
            assert!(!self.connection.withdraw(slot), "once");
        }
    }

    fn send(&mut self) {
        let Some(next) = self.connection.next_capsule() else {
            return;
        };
        assert!(!self.ended, "{next:?} after the end");
        let is_keyed = matches!(
            next.data,
            host::CapsuleData::Read(_) | host::CapsuleData::Written(_)
        );
        let lasts = match self.script.byte() % 4 {
            0 => host::Lasts::AsTheConnection,
            _ => host::Lasts::AsTheCommand,
        };
        self.next_key += 1;
        let grant = host::Grant {
            address: 0x1000,
            key: self.next_key,
            lasts,
        };
        let sqe = self.connection.send(next.slot, Some(grant)).unwrap();
        let cid = sqe.cid.get();
        assert!(self.flying.iter().all(|flying| flying.cid != cid));
        let is_windowed = is_keyed && lasts == host::Lasts::AsTheCommand;
        self.flying.push(Flying {
            slot: next.slot,
            cid,
            key: is_windowed.then_some(self.next_key),
            is_sent: false,
            answer: None,
        });
        let unanswered = self.flying.iter().filter(|flying| flying.answer.is_none());
        assert!(unanswered.count() <= self.receives);
    }

    /// A response to one of the commands most of the time, with its own key or another's.
    fn respond(&mut self) {
        let at = usize::from(self.script.byte()) % self.flying.len().max(1);
        let result = self.script.word();
        let (own_cid, own_key) = match self.flying.get(at) {
            Some(flying) => (flying.cid, flying.key),
            None => (0, None),
        };
        let cid = match self.script.byte() % 16 {
            0 => self.script.half(),
            _ => own_cid,
        };
        let invalidated = match self.script.byte() % 8 {
            0 => Some(self.script.of(&[self.next_key, 0])),
            1..=3 => None,
            _ => own_key,
        };
        let mut cqe = vec![0; 16];
        cqe[..4].copy_from_slice(&result.to_le_bytes());
        cqe[12..14].copy_from_slice(&cid.to_le_bytes());
        let len = self.script.of(&[16, 16, 16, 16, 15, 0]) as usize % 64;
        cqe.resize(len, 0);
        let is_good = len == 16
            && self.flying.iter().any(|flying| {
                flying.cid == cid
                    && flying.answer.is_none()
                    && (invalidated.is_none() || invalidated == flying.key)
            });
        self.connection.response(&cqe, invalidated);
        if !is_good || self.ended {
            return;
        }
        let flying = self.flying.iter_mut().find(|flying| flying.cid == cid);
        let flying = flying.unwrap();
        flying.answer = Some(result);
        if invalidated.is_some() {
            flying.key = None;
        }
    }

    fn invalidate(&mut self) {
        if let Some((slot, key)) = self.connection.next_invalidation() {
            let flying = self.flying.iter_mut().find(|flying| flying.slot == slot);
            let flying = flying.expect("a command that left");
            assert!(flying.answer.is_some() && flying.key == Some(key));
            flying.key = None;
            self.connection.invalidated(slot);
        }
    }

    fn events(&mut self) {
        while let Some(event) = self.connection.next_event() {
            assert!(!self.ended, "{event:?} after the end");
            match event {
                host::Event::Completed { slot, cqe } => {
                    let Some(at) = self.flying.iter().position(|flying| flying.slot == slot) else {
                        assert_eq!(cqe.status(), Status::HOST_ABORTED, "it never left");
                        continue;
                    };
                    let flying = self.flying.swap_remove(at);
                    assert!(
                        flying.is_sent && flying.key.is_none(),
                        "its memory is reached"
                    );
                    assert_eq!(Some(cqe.dw0.get()), flying.answer, "another's answer");
                }
                host::Event::Fatal(_) => self.ended = true,
            }
        }
        if !self.ended {
            let done =
                |flying: &Flying| flying.is_sent && flying.key.is_none() && flying.answer.is_some();
            assert!(!self.flying.iter().any(done), "it does not end");
        }
    }
}

/// The private data of connect requests, acceptances and refusals, of any length.
pub fn rdma_private_data(data: &[u8]) {
    let limits = TargetLimits::default();
    let parsed = Request::parse(data, 4, 2, &limits);
    let half = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
    let expected = (data.len() >= 32
        && half(0) == 0
        && half(6) > 0
        && half(6) < limits.queue_entries_max
        && half(4) > 0
        && half(2) < u16::MAX)
        .then(|| (half(2), half(6) + 1, half(4), 2));
    match parsed {
        Ok(request) => {
            let found = (
                request.queue.0,
                request.entries,
                request.host_receives,
                request.reads_max,
            );
            assert_eq!(Some(found), expected);
            assert_eq!(request.accept_data()[2..4], request.entries.to_le_bytes());
        }
        Err(refusal) => {
            assert_eq!(expected, None, "{refusal}");
            assert_ne!(refusal.reject_data()[2..4], [0, 0]);
        }
    }
    let fresh = || {
        host::Connection::new(host::HostOptions {
            qid: QueueId(0),
            cntlid: 0,
            depth: 4,
            in_capsule_bytes_max: 0,
            command_timeout: TIMEOUT,
        })
    };
    let mut accepted = fresh();
    let is_good = data.len() >= 32 && half(0) == 0 && half(2) > 0;
    assert_eq!(accepted.accepted(data).is_ok(), is_good);
    assert_eq!(accepted.room() > 0, is_good);
    let mut rejected = fresh();
    assert!(!rejected.rejected(data).to_string().is_empty());
    assert_eq!(rejected.room(), 0);
    assert!(matches!(rejected.next_event(), Some(host::Event::Fatal(_))));
}

/// The same as properties, and over fixed seeds.
#[cfg(test)]
mod properties {
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Bytes that follow from a seed: xorshift.
    fn script(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    #[test]
    fn two_thousand_seeds_leave_both_ends_sound() {
        for seed in 0..2000 {
            let script = script(seed, 50 + seed as usize % 1500);
            super::rdma_target(&script);
            super::rdma_host(&script);
        }
    }

    proptest! {
        // 256 scripts each; PROPTEST_CASES says otherwise.
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_capsules_in_any_order_leave_the_target_sound(script in vec(any::<u8>(), 0..3000)) {
            super::rdma_target(&script);
        }

        #[test]
        fn any_responses_in_any_order_leave_the_host_sound(script in vec(any::<u8>(), 0..3000)) {
            super::rdma_host(&script);
        }

        #[test]
        fn any_private_data_are_taken_or_refused(format in 0..2_u16, data in vec(any::<u8>(), 0..60)) {
            super::rdma_private_data(&data);
            let mut near = format.to_le_bytes().to_vec();
            near.extend(data.iter().map(|byte| byte % 3));
            super::rdma_private_data(&near);
        }
    }
}
