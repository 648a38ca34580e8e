//! A whole remote store over the fabric: its custodian, handles as several reactors have them, work on them, and a model of the disk that whatever
//! they are told must agree with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nvme::Time;
use nvme::simulation::model::{Model, Moment, Span, Use, Value, WriteId};
use nvme::simulation::random::Random;
use nvme::simulation::target::SUBNQN;
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig};
use store::{Completion, ErrorKind, Op, SharedStore, Store, StoreError, Terms, Token};
use store_nvme::{Clock, Custodian, Remote};

use crate::network::{Counts, Network};
use crate::plan::{Plan, UNIT_BYTES};
use crate::transport::SimTransport;

/// The longest step of the clock: what has timers of its own looks at them as often.
const STEP_MAX: Duration = Duration::from_millis(20);
/// An operation ends within its deadline and this, unless its reactor stalls: the store looks at its clock each 100 ms.
const DEADLINE_SLACK: Duration = Duration::from_millis(200);
/// A run that takes longer hangs.
const SIMULATED_TIME_MAX: Duration = Duration::from_secs(3600);
/// So does one that takes more turns.
const TURNS_MAX: u64 = 2_000_000;
/// Once nothing is wrong any more the store works again within that.
const RECOVERY_MAX: Duration = Duration::from_secs(60);
/// Units of one operation.
const UNITS_MAX: u64 = 40;
/// Operations meet here more often than elsewhere.
const HOT_UNITS: u64 = 16;

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub completed: u32,
    pub unreachable: u32,
    pub unsettled: u32,
    pub refused: u32,
    pub cancelled: u32,
    pub busy: u32,
    pub network: Counts,
}

impl Outcome {
    /// Both together.
    pub fn plus(self, other: Outcome) -> Outcome {
        Outcome {
            completed: self.completed + other.completed,
            unreachable: self.unreachable + other.unreachable,
            unsettled: self.unsettled + other.unsettled,
            refused: self.refused + other.refused,
            cancelled: self.cancelled + other.cancelled,
            busy: self.busy + other.busy,
            network: self.network.plus(other.network),
        }
    }

    pub fn failed(self) -> u32 {
        self.unreachable + self.unsettled + self.refused
    }
}

/// A reactor: its handle, and what is in flight there.
struct Reactor {
    store: Box<dyn Store>,
    running: BTreeMap<u64, Running>,
    next_at: Time,
    stalls_until: Time,
}

struct Running {
    op: Op,
    span: Span,
    began: Moment,
    uses: Vec<(Span, Use)>,
    /// Of what changes something.
    write: Option<WriteId>,
    submitted_at: Time,
    /// The time that it has.
    patience: Duration,
    cancelled: bool,
}

/// See the module.
pub struct World {
    plan: Plan,
    pub clock: Clock,
    pub network: Network,
    custodian: Custodian,
    ring: Ring,
    store: Option<SharedStore>,
    reactors: Vec<Reactor>,
    pub model: Model,
    random: Random,
    last_token: u64,
    turns: u64,
    begun: u32,
    outcome: Outcome,
    /// By token.
    results: BTreeMap<u64, Result<(), StoreError>>,
}

impl World {
    /// The store is open and each reactor has its handle.
    pub fn new(plan: Plan) -> World {
        let clock = Clock::stepped();
        let network = Network::new(plan.network.clone(), &plan.ports);
        let remote = Remote {
            name: "nvme-simulated".into(),
            subnqn: SUBNQN.into(),
            addresses: plan.ports.iter().map(|port| port.address).collect(),
            transport: Arc::new(SimTransport::new(&network)),
            options: plan.options.clone(),
            is_writable: true,
        };
        let seed = plan.network.seed;
        let units = plan.network.disk_blocks * (plan.network.lba_bytes / UNIT_BYTES) as usize;
        let mut world = World {
            custodian: Custodian::new(remote, clock.clone(), seed).unwrap(),
            ring: Ring::new(&RingConfig::default()).unwrap(),
            store: None,
            reactors: Vec::new(),
            model: Model::new(units, UNIT_BYTES as usize),
            random: Random::new(seed ^ 0x5EED),
            last_token: 0,
            turns: 0,
            begun: 0,
            outcome: Outcome::default(),
            results: BTreeMap::new(),
            clock,
            network,
            plan,
        };
        world.until(Duration::from_secs(10), |world| {
            world.store = world.custodian.take_store().map(|opened| opened.store);
            world.store.is_some()
        });
        for (at, port, fault) in &world.plan.faults {
            world.network.strike_at(*at, *port, *fault);
        }
        for _ in 0..world.plan.handles {
            let store = world.store.as_ref().unwrap().open_handle(&world.ring);
            world.reactors.push(Reactor {
                store: store.unwrap(),
                running: BTreeMap::new(),
                next_at: Time::ZERO,
                stalls_until: Time::ZERO,
            });
        }
        world
    }

    /// Runs the plan to its end: all operations completed, the disk as the model has it, nothing left at either end.
    pub fn run(mut self) -> Outcome {
        while self.begun < self.plan.operations || !self.is_idle() {
            self.work();
            self.turn();
        }
        self.finish()
    }

    /// All is well again: the store works, no ghost comes, and the disk is as the model has it.
    pub fn finish(mut self) -> Outcome {
        self.network.heal(self.clock.now());
        self.plan.stalls_once_in = None;
        self.for_a(self.plan.stall_max);
        self.read_everything();
        let quiet = self.plan.options.keep_alive * 2 + Duration::from_secs(10);
        self.for_a(quiet);
        assert_eq!(self.network.late_writes(), 0);
        self.check_disk();
        self.end();
        self.outcome.network = self.network.counts();
        self.outcome
    }

    fn is_idle(&self) -> bool {
        self.reactors
            .iter()
            .all(|reactor| reactor.running.is_empty())
    }

    /// One turn of everything, and the clock's step to the next thing that happens.
    pub fn turn(&mut self) {
        let now = self.clock.now();
        self.turns += 1;
        let is_endless = now > Time::ZERO + SIMULATED_TIME_MAX || self.turns > TURNS_MAX;
        assert!(
            !is_endless,
            "no end in sight at {now:?}, turn {}",
            self.turns
        );
        self.network.run(now);
        self.custodian.turn(false).unwrap();
        self.ring.turn(reactor::Wait::Poll).unwrap();
        while self.ring.next_ready().is_some() {}
        for index in 0..self.reactors.len() {
            self.poll(index, now);
        }
        let due = self
            .network
            .next_due(now)
            .map_or(STEP_MAX, |due| due.since(now));
        let working = self.reactors.iter().map(|it| it.next_at.since(now));
        let due = working
            .filter(|wait| !wait.is_zero())
            .fold(due, Duration::min);
        self.clock
            .step(due.clamp(Duration::from_micros(1), STEP_MAX));
    }

    pub fn until(&mut self, within: Duration, mut is_so: impl FnMut(&mut World) -> bool) {
        let by = self.clock.now() + within;
        while !is_so(self) {
            assert!(self.clock.now() < by, "not within {within:?}");
            self.turn();
        }
    }

    pub fn for_a(&mut self, while_: Duration) {
        let by = self.clock.now() + while_;
        while self.clock.now() < by {
            self.turn();
        }
    }

    fn poll(&mut self, index: usize, now: Time) {
        let reactor = &mut self.reactors[index];
        if now < reactor.stalls_until {
            return;
        }
        if let Some(times) = self.plan.stalls_once_in
            && self.random.once_in(times)
        {
            reactor.stalls_until = now + self.random.below(self.plan.stall_max);
        }
        let mut completions = Vec::new();
        reactor.store.poll(&mut completions);
        for completion in completions {
            self.completed(index, completion, now);
        }
        // A stall between its deadline and the look at it, and one before its end is polled.
        let slack = DEADLINE_SLACK + self.plan.stall_max * 2;
        for running in self.reactors[index].running.values() {
            let latest = running.patience + slack;
            let waited = now.since(running.submitted_at);
            assert!(waited <= latest, "{:?} after {waited:?}", running.op);
        }
    }

    /// Begins operations where it is time for them.
    fn work(&mut self) {
        let now = self.clock.now();
        for index in 0..self.reactors.len() {
            let reactor = &self.reactors[index];
            if now < reactor.next_at.max(reactor.stalls_until) {
                continue;
            }
            if let Some(times) = self.plan.cancels_once_in
                && self.random.once_in(times)
            {
                self.cancel_one(index);
            }
            let has_room = self.reactors[index].running.len() < self.plan.depth;
            if has_room && self.begun < self.plan.operations {
                self.submit_one(index, now);
                let pause = self.random.below(self.plan.pause_max);
                self.reactors[index].next_at = now + pause;
            }
        }
    }

    fn cancel_one(&mut self, index: usize) {
        let reactor = &mut self.reactors[index];
        let count = reactor.running.len() as u64;
        if count == 0 {
            return;
        }
        let place = self.random.within(0..count) as usize;
        let (token, running) = reactor.running.iter_mut().nth(place).unwrap();
        running.cancelled = true;
        reactor.store.cancel(Token(*token));
    }

    fn span(&mut self) -> Span {
        let units = self.model.blocks() as u64;
        let end = if self.random.once_in(2) {
            HOT_UNITS
        } else {
            units
        };
        let lba = self.random.within(0..end);
        let most = self.random.of(&[1, 2, 8, UNITS_MAX]).min(units - lba);
        let count = self.random.within(1..most + 1) as u32;
        let lba_units = u64::from(self.plan.network.lba_bytes / UNIT_BYTES);
        if self.random.once_in(2) {
            // Whole blocks of the namespace.
            let lba = lba / lba_units * lba_units;
            let count = count.next_multiple_of(lba_units as u32);
            let count = u64::from(count).min(units - lba) as u32;
            return Span { lba, count };
        }
        Span { lba, count }
    }

    fn submit_one(&mut self, index: usize, now: Time) {
        let span = self.span();
        let offset = span.lba * u64::from(UNIT_BYTES);
        let len = u64::from(span.count) * u64::from(UNIT_BYTES);
        let durable = self.random.once_in(4);
        let overlaps = self.random.once_in(self.plan.overlaps_once_in);
        let op = match self.random.within(0..20) {
            0..9 => Op::Read { offset },
            9..17 => Op::Write { offset, durable },
            17 => Op::Zero {
                offset,
                len,
                durable,
            },
            18 => Op::Discard { offset, len },
            _ => Op::Flush,
        };
        let how = match op {
            Op::Read { .. } | Op::Flush => Use::Read,
            Op::Write { .. } | Op::Zero { .. } => Use::Write,
            // It may leave what there was: that must be known when it begins.
            Op::Discard { .. } => Use::Source,
        };
        let uses = vec![(span, how)];
        if !self.model.claim(&uses, overlaps) {
            return;
        }
        let is_hurried = |random: &mut Random, times| random.once_in(times);
        let within = (self.plan.hurried_once_in)
            .filter(|times| is_hurried(&mut self.random, *times))
            .map(|_| self.random.below(self.plan.options.deadline));
        self.submit_within(index, op, span, uses, now, within);
    }

    fn submit(&mut self, index: usize, op: Op, span: Span, uses: Vec<(Span, Use)>, now: Time) {
        self.submit_within(index, op, span, uses, now, None);
    }

    fn submit_within(
        &mut self,
        index: usize,
        op: Op,
        span: Span,
        uses: Vec<(Span, Use)>,
        now: Time,
        within: Option<Duration>,
    ) {
        let deadline = within.map(|within| self.clock.instant(now + within));
        let patience = self.plan.options.deadline;
        let mut data = None;
        let write = match op {
            Op::Read { .. } => {
                let bytes = vec![0xEE; (span.count * UNIT_BYTES) as usize];
                data = Some(self.scattered(&bytes));
                None
            }
            Op::Flush => None,
            Op::Write { .. } => {
                let (write, bytes) = self.model.write(index, span);
                data = Some(self.scattered(&bytes));
                Some(write)
            }
            Op::Zero { .. } => {
                let write = self.model.begin(index);
                self.model.put(write, index, span, |_| vec![Value::Zeros]);
                Some(write)
            }
            Op::Discard { .. } => {
                let before: BTreeMap<u64, Vec<Value>> = span
                    .blocks()
                    .map(|lba| (lba, self.model.values(lba)))
                    .collect();
                let write = self.model.begin(index);
                self.model.put(write, index, span, |lba| {
                    let mut values = before[&lba].clone();
                    values.push(Value::Zeros);
                    values
                });
                Some(write)
            }
        };
        let began = self.model.tick();
        self.last_token += 1;
        let reactor = &mut self.reactors[index];
        match reactor
            .store
            .submit(op, data, Token(self.last_token), Terms::by(deadline))
        {
            Ok(()) => {
                self.begun += 1;
                let running = Running {
                    op,
                    span,
                    began,
                    uses,
                    write,
                    submitted_at: now,
                    patience: within.map_or(patience, |within| within.min(patience)),
                    cancelled: false,
                };
                reactor.running.insert(self.last_token, running);
            }
            Err(rejected) => {
                assert_eq!(rejected.why, StoreError::Busy);
                self.outcome.busy += 1;
                if let Some(write) = write {
                    self.model.refused(write, span);
                }
                self.model.release(&uses);
            }
        }
    }

    /// A script's operation; its token.
    pub fn submit_op(&mut self, index: usize, op: Op, span: Span) -> u64 {
        let how = if op.is_change() {
            Use::Write
        } else {
            Use::Read
        };
        let uses = vec![(span, how)];
        assert!(self.model.claim(&uses, true));
        self.submit(index, op, span, uses, self.clock.now());
        self.last_token
    }

    /// The same with less time than the store's own.
    pub fn submit_by(&mut self, index: usize, op: Op, span: Span, within: Duration) -> u64 {
        let how = if op.is_change() {
            Use::Write
        } else {
            Use::Read
        };
        let uses = vec![(span, how)];
        assert!(self.model.claim(&uses, true));
        self.submit_within(index, op, span, uses, self.clock.now(), Some(within));
        self.last_token
    }

    /// What the store says of its paths.
    pub fn problems(&self) -> Vec<String> {
        let problems = self.store.as_ref().unwrap().problems();
        problems.into_iter().map(|problem| problem.text).collect()
    }

    /// A handle that the world does not turn.
    pub fn handle(&self) -> Box<dyn Store> {
        let store = self.store.as_ref().unwrap().open_handle(&self.ring);
        store.unwrap()
    }

    /// A reactor closes its handle and has no other.
    pub fn close(&mut self, index: usize) {
        self.reactors[index].store.close();
        self.until(Duration::from_secs(1), |world| {
            world.reactors[index].store.is_closed()
        });
        self.reactors.remove(index);
    }

    /// A reactor is gone without a word, with nothing of its own under way.
    pub fn leave(&mut self, index: usize) {
        assert!(self.reactors.remove(index).running.is_empty());
    }

    /// What an operation came to, once it has.
    pub fn result(&self, token: u64) -> Option<Result<(), StoreError>> {
        self.results.get(&token).cloned()
    }

    /// Begins an operation on the first reactor and waits for its end.
    pub fn done(&mut self, op: Op, span: Span) -> Result<(), StoreError> {
        let token = self.submit_op(0, op, span);
        let within = self.plan.options.deadline + DEADLINE_SLACK;
        self.until(within, |world| world.results.contains_key(&token));
        self.results[&token].clone()
    }

    /// A reactor does something else for a while.
    pub fn sleep(&mut self, index: usize, for_: Duration) {
        self.reactors[index].stalls_until = self.clock.now() + for_;
    }

    pub fn cancel(&mut self, index: usize, token: u64) {
        let reactor = &mut self.reactors[index];
        reactor.running.get_mut(&token).unwrap().cancelled = true;
        reactor.store.cancel(Token(token));
    }

    /// Memory in pieces of any length.
    fn scattered(&mut self, bytes: &[u8]) -> IoBuf {
        let mut buf = IoBuf::empty();
        let mut rest = bytes;
        while !rest.is_empty() {
            let len = match self.random.once_in(3) {
                true => self.random.within(1..rest.len() as u64 + 1) as usize,
                false => rest.len(),
            };
            buf.append(IoBuf::from_bytes(&rest[..len]).unwrap());
            rest = &rest[len..];
        }
        buf
    }

    fn completed(&mut self, index: usize, completion: Completion, now: Time) {
        let Completion { token, buf, result } = completion;
        let running = self.reactors[index].running.remove(&token.0);
        let running = running.expect("an operation completed twice, or was never taken");
        let Running {
            op, span, began, ..
        } = running;
        self.outcome.completed += 1;
        assert_eq!(buf.is_some(), op.takes_buffer());
        let bytes = buf.as_ref().map_or(0, IoBuf::len);
        self.results.insert(token.0, result.clone().map(|_| ()));
        match result {
            Ok(moved) => {
                assert_eq!(moved as usize, bytes, "{op:?} in part");
                match running.write {
                    Some(write) => self.model.written(write, span, |_| false),
                    None if op != Op::Flush => {
                        self.model.check(span, &buf.unwrap().to_vec(), began);
                    }
                    None => {}
                }
            }
            Err(error) => self.failed(&running, &error, now),
        }
        self.model.release(&running.uses);
    }

    fn failed(&mut self, running: &Running, error: &StoreError, now: Time) {
        let op = running.op;
        match error {
            StoreError::Cancelled { .. } => {
                assert!(running.cancelled, "cancelled, and nobody asked: {op:?}");
                self.outcome.cancelled += 1;
            }
            StoreError::Unreachable { .. } | StoreError::Unsettled { .. } => {
                let waited = now.since(running.submitted_at);
                let least = running.patience;
                assert!(waited >= least, "{error} after {waited:?}: {op:?}");
                match error.kind() {
                    ErrorKind::Unreachable => self.outcome.unreachable += 1,
                    _ => self.outcome.unsettled += 1,
                }
            }
            StoreError::Controller { .. } | StoreError::NoSpace { .. } => self.outcome.refused += 1,
            _ => panic!("{op:?}: {error}"),
        }
        // A reactor that sleeps through a deadline has troubles of its own.
        let is_troubled = self.network.counts().faults > 0
            || self.plan.stalls_once_in.is_some()
            || running.patience < self.plan.options.deadline;
        assert!(running.cancelled || is_troubled, "{op:?}: {error}");
        match (running.write, error.kind()) {
            (Some(write), ErrorKind::Unreachable) => self.model.refused(write, running.span),
            (Some(write), _) => self.model.unknown(write, running.span),
            (None, _) => {}
        }
    }

    /// All is well again: each reactor reads the whole disk, and what it finds stays so.
    fn read_everything(&mut self) {
        let units = self.model.blocks() as u64;
        let before = self.outcome;
        for index in 0..self.reactors.len() {
            let by = self.clock.now() + RECOVERY_MAX;
            for lba in (0..units).step_by(HOT_UNITS as usize) {
                let count = HOT_UNITS.min(units - lba) as u32;
                let span = Span { lba, count };
                loop {
                    assert!(self.clock.now() < by, "{span:?} cannot be read");
                    let failed = self.outcome.failed();
                    let uses = vec![(span, Use::Read)];
                    assert!(self.model.claim(&uses, true));
                    let offset = lba * u64::from(UNIT_BYTES);
                    let now = self.clock.now();
                    self.submit(index, Op::Read { offset }, span, uses, now);
                    while !self.is_idle() {
                        self.turn();
                    }
                    if self.outcome.failed() == failed {
                        break;
                    }
                }
            }
        }
        self.outcome = before;
    }

    fn check_disk(&mut self) {
        let disk = self.network.disk();
        let began = self.model.tick();
        for (lba, unit) in (0..).zip(disk.chunks(UNIT_BYTES as usize)) {
            self.model.check(Span { lba, count: 1 }, unit, began);
        }
    }

    /// The handles are closed, the store goes, and nothing stays behind at the targets.
    fn end(&mut self) {
        for reactor in &mut self.reactors {
            reactor.store.close();
        }
        self.until(Duration::from_secs(1), |world| {
            world.reactors.iter().all(|it| it.store.is_closed())
        });
        self.reactors.clear();
        self.store = None;
        self.until(Duration::from_secs(3), |world| world.custodian.has_ended());
        let ports = self.plan.ports.len();
        self.until(self.plan.options.keep_alive * 2, |world| {
            (0..ports).all(|port| world.network.controllers(port) == 0)
        });
    }
}
