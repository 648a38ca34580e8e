//! A random host and a random device against a model of what each command must lead to.

use super::super::{Connection, Event, Operation, ReceiveId, Request, TargetLimits, Want, Work};
use super::{Answer, REQUEST, connect, flush, inside, keyed, limits, sqe};
use super::{KEYED, KEYED_INVALIDATE, READ, WRITE};
use crate::Time;
use crate::queue::{Completion, Slot, Transfer};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

/// What a host sends, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read(u32),
    Write(u32),
    InCapsule(u16),
    Flush,
}

#[derive(Clone, Debug)]
enum Step {
    /// A command, if the host may send one.
    Send(Kind, bool),
    /// The driver ends the command that has waited longest, or a later one.
    Answer(usize),
    /// The driver aborts one whose data are awaited.
    Abort(usize),
    /// Posts up to so many requests of at most so many bytes each.
    Post(usize, u32),
    /// The completion of the oldest signaled request comes.
    Complete,
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        (1..20_000_u32).prop_map(Kind::Read),
        (1..20_000_u32).prop_map(Kind::Write),
        (1..8192_u16).prop_map(Kind::InCapsule),
        Just(Kind::Flush),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (kinds(), any::<bool>()).prop_map(|(kind, invalidate)| Step::Send(kind, invalidate)),
        3 => (0..4_usize).prop_map(Step::Answer),
        1 => (0..4_usize).prop_map(Step::Abort),
        4 => (1..6_usize, 1..9000_u32).prop_map(|(requests, bytes)| Step::Post(requests, bytes)),
        3 => Just(Step::Complete),
    ];
    prop::collection::vec(step, 1..300)
}

/// A command of the model.
#[derive(Debug)]
struct Command {
    kind: Kind,
    address: u64,
    key: Option<u32>,
    /// Bytes of its data that have been posted so far, in order.
    moved: u32,
    aborted: bool,
    reads_under_way: usize,
}

struct Model {
    connection: Connection,
    reads_max: usize,
    send_requests: usize,
    host_receives: usize,
    next_cid: u16,
    /// By CID: those that the host has no response to.
    commands: BTreeMap<u16, Command>,
    /// With the driver, their data there.
    held: VecDeque<(Slot, u16)>,
    /// Data asked for.
    awaiting: VecDeque<(Slot, u16)>,
    posted: VecDeque<Work>,
    receives_out: usize,
    data_leaving: Vec<Slot>,
}

impl Model {
    fn new(limits: &TargetLimits, request: &Request) -> Model {
        let mut connection = Connection::new(limits, request, Time::ZERO);
        connection.capsule(ReceiveId(0), &connect(0xFFFF, 1, request.entries - 1), 64);
        let Some(Event::Connect { slot }) = connection.next_event() else {
            panic!("no Connect")
        };
        connection.established(request.entries, false);
        connection.authenticated();
        connection.respond(slot, Completion::SUCCESS, 0);
        let work = connection.next_work().unwrap();
        connection.posted(&work, 0, Time::ZERO);
        Model {
            connection,
            reads_max: usize::from(request.reads_max),
            send_requests: usize::from(limits.send_requests),
            host_receives: usize::from(request.host_receives),
            next_cid: 0,
            commands: BTreeMap::new(),
            held: VecDeque::new(),
            awaiting: VecDeque::new(),
            posted: VecDeque::from([work]),
            receives_out: 1,
            data_leaving: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step, entries: usize) {
        match *step {
            Step::Send(kind, invalidate) => {
                if self.commands.len() < entries && self.connection.want() == Want::Capsule {
                    self.send(kind, invalidate);
                }
            }
            Step::Answer(nth) => self.answer(nth),
            Step::Abort(nth) => self.abort(nth),
            Step::Post(requests, bytes) => {
                for _ in 0..requests {
                    self.post(bytes);
                }
            }
            Step::Complete => self.complete(),
        }
        while self.connection.next_receive().is_some() {
            self.receives_out -= 1;
        }
        assert!(self.receives_out <= entries);
    }

    fn send(&mut self, kind: Kind, invalidate: bool) {
        let cid = self.next_cid;
        self.next_cid = (cid + 1) % 0x8000;
        let id = if invalidate { KEYED_INVALIDATE } else { KEYED };
        let (address, rkey) = (u64::from(cid) << 20, 0x1000 + u32::from(cid));
        let message = match kind {
            Kind::Read(bytes) => sqe(READ, cid, keyed(address, bytes, rkey, id)),
            Kind::Write(bytes) => sqe(WRITE, cid, keyed(address, bytes, rkey, id)),
            Kind::InCapsule(bytes) => sqe(WRITE, cid, inside(0, bytes.into())),
            Kind::Flush => flush(cid),
        };
        let extra = match kind {
            Kind::InCapsule(bytes) => u32::from(bytes),
            _ => 0,
        };
        let keyed = matches!(kind, Kind::Read(_) | Kind::Write(_));
        let command = Command {
            kind,
            address,
            key: (keyed && invalidate).then_some(rkey),
            moved: 0,
            aborted: false,
            reads_under_way: 0,
        };
        self.commands.insert(cid, command);
        self.receives_out += 1;
        self.connection
            .capsule(ReceiveId(cid), &message, 64 + extra);
        let Some(Event::Command { slot }) = self.connection.next_event() else {
            panic!("no command")
        };
        assert!(
            !self.data_leaving.contains(&slot),
            "its buffer is the device's"
        );
        match self.connection.transfer(slot) {
            Transfer::Remote { .. } if matches!(kind, Kind::Write(_)) => {
                self.connection.request_data(slot, Time::ZERO).unwrap();
                self.awaiting.push_back((slot, cid));
            }
            Transfer::InCapsule { .. } => {
                let data = self.connection.next_event();
                assert!(matches!(data, Some(Event::CapsuleData { .. })), "{data:?}");
                self.held.push_back((slot, cid));
            }
            _ => self.held.push_back((slot, cid)),
        }
    }

    fn answer(&mut self, nth: usize) {
        let Some((slot, cid)) = self.held.remove(nth.min(self.held.len().saturating_sub(1))) else {
            return;
        };
        let data_len = match self.commands[&cid].kind {
            Kind::Read(bytes) => bytes,
            _ => 0,
        };
        self.connection.respond(slot, Completion::SUCCESS, data_len);
        if data_len > 0 {
            self.data_leaving.push(slot);
        }
    }

    fn abort(&mut self, nth: usize) {
        if let Some((slot, cid)) = self.awaiting.remove(nth) {
            let aborted = nvme_spec::Status::ABORT_REQUESTED.into();
            self.connection.respond(slot, aborted, 0);
            self.commands.get_mut(&cid).unwrap().aborted = true;
        }
    }

    fn post(&mut self, bytes: u32) {
        let Some(work) = self.connection.next_work() else {
            return;
        };
        let cid = match work.operation {
            Operation::Respond { cqe, .. } => cqe.cid().0,
            _ => self.connection.command(work.slot).cid().0,
        };
        let command = self.commands.get_mut(&cid).expect("a command that waits");
        match work.operation {
            Operation::Read {
                offset,
                bytes_max,
                remote,
            } => {
                assert!(!command.aborted);
                assert_eq!(
                    (offset, remote.address),
                    (command.moved, command.address + u64::from(offset))
                );
                let Kind::Write(total) = command.kind else {
                    panic!("{command:?}")
                };
                assert_eq!(bytes_max, total - offset);
                command.moved += bytes.min(bytes_max);
                command.reads_under_way += 1;
            }
            Operation::Write {
                offset,
                bytes_max,
                remote,
            } => {
                assert_eq!(
                    (offset, remote.address),
                    (command.moved, command.address + u64::from(offset))
                );
                let Kind::Read(total) = command.kind else {
                    panic!("{command:?}")
                };
                assert_eq!(bytes_max, total - offset);
                command.moved += bytes.min(bytes_max);
            }
            Operation::Respond { .. } => {
                let command = self.commands.remove(&cid).unwrap();
                let answer = Answer::of(work.operation);
                assert_eq!(answer.status == 0, !command.aborted);
                assert_eq!(answer.invalidated, command.key);
                assert_eq!(command.reads_under_way, 0, "its key is in use");
                if let (Kind::Read(bytes) | Kind::Write(bytes), false) =
                    (command.kind, command.aborted)
                {
                    assert_eq!(command.moved, bytes, "answered before its data");
                }
            }
        }
        self.connection.posted(&work, bytes, Time::ZERO);
        self.posted.push_back(work);
        self.check_room();
    }

    fn check_room(&self) {
        assert!(self.posted.len() <= self.send_requests);
        let count = |is: fn(&Operation) -> bool| {
            self.posted
                .iter()
                .filter(|work| is(&work.operation))
                .count()
        };
        assert!(count(|it| matches!(it, Operation::Read { .. })) <= self.reads_max);
        assert!(count(|it| matches!(it, Operation::Respond { .. })) <= self.host_receives);
    }

    fn complete(&mut self) {
        let Some(at) = self.posted.iter().position(|work| work.signaled) else {
            return;
        };
        let done: Vec<Work> = self.posted.drain(..=at).collect();
        for work in &done {
            if let Operation::Read { .. } = work.operation {
                let cid = self.connection.command(work.slot).cid().0;
                self.commands.get_mut(&cid).unwrap().reads_under_way -= 1;
            }
        }
        self.connection.completed(done[at].id);
        while let Some(event) = self.connection.next_event() {
            match event {
                Event::DataReady { slot } => {
                    let at = self.awaiting.iter().position(|waiting| waiting.0 == slot);
                    let ready = self.awaiting.remove(at.expect("data that were asked for"));
                    self.held.extend(ready);
                }
                Event::DataLeft { slot } => {
                    let at = self
                        .data_leaving
                        .iter()
                        .position(|leaving| *leaving == slot);
                    self.data_leaving.remove(at.expect("data of an answer"));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Everything ends when nothing new comes.
    fn wind_down(&mut self) {
        for _ in 0..10_000 {
            if self.commands.is_empty() && self.data_leaving.is_empty() {
                return;
            }
            self.answer(0);
            self.post(4096);
            self.complete();
        }
        panic!(
            "{:?} are left, {:?} leaving",
            self.commands, self.data_leaving
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn each_command_is_answered_once_after_its_data(
        steps in steps(),
        send_requests in 4..40_u16,
        host_receives in 1..12_u16,
        reads_max in 1..6_u8,
        entries in 2..9_u16,
    ) {
        let limits = TargetLimits { send_requests, ..limits() };
        let reads_max = reads_max.min((send_requests / 2) as u8);
        let request = Request { entries, host_receives, reads_max, ..REQUEST };
        let mut model = Model::new(&limits, &request);
        for step in &steps {
            model.step(step, usize::from(entries));
        }
        model.wind_down();
        prop_assert_eq!(model.connection.occupied().count(), 0);
    }
}

/// What a hostile host sends, in what order; and what the device says.
#[derive(Clone, Debug)]
enum Hostile {
    /// A message of any bytes, near to a command or far from it.
    Message(Vec<u8>, u32),
    Near(u8, u8, u8, u32, u16),
    Post(u32),
    Complete(usize),
    Tick(u32),
}

fn hostile() -> impl Strategy<Value = Vec<Hostile>> {
    let step = prop_oneof![
        1 => (prop::collection::vec(any::<u8>(), 0..80), any::<u32>()).prop_map(|(bytes, len)| Hostile::Message(bytes, len)),
        6 => (0..4_u8, any::<u8>(), prop_oneof![Just(KEYED), Just(KEYED_INVALIDATE), Just(1), any::<u8>()], any::<u32>(), 0..12_u16)
            .prop_map(|(opcode, flags, id, len, cid)| Hostile::Near(opcode, flags, id, len, cid)),
        5 => (0..70_000_u32).prop_map(Hostile::Post),
        3 => (0..40_usize).prop_map(Hostile::Complete),
        1 => any::<u32>().prop_map(Hostile::Tick),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// Whatever comes, nothing panics, no limit is passed, and work names only commands that are there.
    #[test]
    fn nothing_that_a_host_sends_passes_a_limit(steps in hostile(), is_live in any::<bool>()) {
        let limits = TargetLimits { send_requests: 8, ..limits() };
        let mut connection = Connection::new(&limits, &REQUEST, Time::ZERO);
        if is_live {
            connection.capsule(ReceiveId(0), &connect(0xFFFF, 1, 7), 64);
            let Some(Event::Connect { slot }) = connection.next_event() else { panic!("no Connect") };
            connection.established(8, true);
            connection.authenticated();
            connection.respond(slot, Completion::SUCCESS, 0);
        }
        let mut posted: VecDeque<Work> = VecDeque::new();
        let mut came = 0;
        for step in steps {
            let message = match step {
                Hostile::Message(ref bytes, len) => Some((bytes.clone(), len)),
                Hostile::Near(opcode, flags, id, len, cid) => {
                    let mut bytes = sqe(opcode, cid, keyed(u64::from(len) << 40, len, 7, id));
                    bytes[1] = if flags & 7 == 0 { flags } else { 0x40 };
                    Some((bytes, 64 + (len & 0x3FFF)))
                }
                _ => None,
            };
            match step {
                Hostile::Post(bytes) => {
                    if let Some(work) = connection.next_work() {
                        let is_there = connection.occupied().any(|slot| slot == work.slot);
                        prop_assert!(is_there);
                        connection.posted(&work, bytes.max(1), Time::ZERO);
                        posted.push_back(work);
                    }
                }
                Hostile::Complete(nth) => {
                    if let Some(work) = posted.get(nth % posted.len().max(1)).copied() {
                        posted.retain(|other| other.id > work.id);
                        connection.completed(work.id);
                    }
                }
                Hostile::Tick(micros) => connection.tick(Time::from_nanos(u64::from(micros) * 1000)),
                _ => {}
            }
            if let Some((bytes, len)) = message
                && connection.want() == Want::Capsule
            {
                connection.capsule(ReceiveId(0), &bytes[..bytes.len().min(64)], len);
                came = len;
            }
            while let Some(event) = connection.next_event() {
                match event {
                    Event::Connect { slot } | Event::Command { slot } => {
                        let asked = connection.request_data(slot, Time::ZERO);
                        let bytes = connection.transfer(slot).bytes();
                        if asked.is_err() && !matches!(connection.transfer(slot), Transfer::InCapsule { .. }) {
                            connection.respond(slot, Completion::SUCCESS, bytes);
                        }
                    }
                    Event::CapsuleData { slot, offset, bytes, .. } => {
                        prop_assert!(u64::from(offset) + u64::from(bytes) + 64 <= u64::from(came), "beyond what came");
                        connection.respond(slot, Completion::SUCCESS, 0);
                    }
                    Event::DataReady { slot } => connection.respond(slot, Completion::SUCCESS, 0),
                    _ => {}
                }
            }
            prop_assert!(posted.len() <= 8);
            prop_assert!(connection.occupied().count() <= 16);
            if connection.want() == Want::Closed {
                prop_assert_eq!(connection.next_work(), None);
            }
        }
    }
}
