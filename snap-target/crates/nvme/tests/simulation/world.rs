//! Both ends, the links between them, and the clock: stepped from one thing that happens to the next.

use std::collections::BTreeSet;
use std::time::Duration;

use nvme::Time;
use nvme::controller::{ControllerId, ControllerLimits};
use nvme::initiator::{Association, AttachAdmin, AttachIo, Attached, KeepAlive};
use nvme::tcp::host::{HostError, HostOptions};
use nvme::tcp::target::TargetLimits;
use nvme_spec::Lba;

use crate::host::{Progress, Queue, Workload};
use crate::link::Link;
use crate::model::Model;
use crate::plan::{Fault, FaultKind, Plan, When};
use crate::support::random::Random;
use crate::support::target::{Disk, MemoryTarget, SUBNQN, TargetQueue};

/// SQSIZE of the admin queue.
const ADMIN_DEPTH: u16 = 31;
/// A run that takes longer hangs.
const SIMULATED_TIME_MAX: Duration = Duration::from_secs(600);
/// The host tries again after that.
const RECONNECT_DELAY: Duration = Duration::from_millis(100);

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub completed: u32,
    pub lost: u32,
    pub associations: u32,
    /// Associations that the host gave up since no Keep Alive or command was answered.
    pub host_expired: u32,
    /// Controllers that the target gave up since no Keep Alive came.
    pub target_expired: u32,
    /// Controllers that the host reset.
    pub resets: u32,
    /// I/O queues of associations that were over, none of them let in.
    pub refused: u32,
}

impl Outcome {
    /// Both together.
    pub fn plus(self, other: Outcome) -> Outcome {
        Outcome {
            completed: self.completed + other.completed,
            lost: self.lost + other.lost,
            associations: self.associations + other.associations,
            host_expired: self.host_expired + other.host_expired,
            target_expired: self.target_expired + other.target_expired,
            resets: self.resets + other.resets,
            refused: self.refused + other.refused,
        }
    }
}

/// One connection.
struct Wire {
    host: Queue,
    target: TargetQueue,
    up: Link,
    down: Link,
}

pub struct World {
    plan: Plan,
    random: Random,
    now: Time,
    target: MemoryTarget,
    model: Model,
    /// The admin queue's first.
    wires: Vec<Wire>,
    attached: Option<Attached>,
    keep_alive: Option<KeepAlive>,
    io_connected: usize,
    begun_at: Time,
    reconnect_at: Time,
    faults: Vec<Fault>,
    /// Commands submitted since the last fault.
    since_fault: u32,
    dark: bool,
    resetting: bool,
    /// The association that was lost, while the host tries one of its I/O queues before it begins anew.
    stale: Option<u16>,
    expired: BTreeSet<ControllerId>,
    outcome: Outcome,
    shutting_down: bool,
    done: bool,
}

impl World {
    pub fn new(plan: Plan, seed: u64) -> World {
        let controllers = ControllerLimits {
            queue_entries_max: plan.limits.queue_entries_max,
            transfer_bytes_max: plan.transfer_bytes_max,
            capsule_data_bytes: plan.limits.capsule_data_bytes,
            io_queues_max: plan.queues,
            ..ControllerLimits::default()
        };
        let limits = TargetLimits {
            transfer_bytes_max: plan.transfer_bytes_max,
            ..plan.limits
        };
        let disk = Disk {
            lba_bytes: plan.lba_bytes,
            write_protected: false,
            bytes: vec![0; plan.disk_blocks * plan.lba_bytes as usize],
        };
        let mut random = Random::new(seed ^ 0x5EED);
        let local = ([127, 0, 0, 1], 4420).into();
        let mut target = MemoryTarget::new([disk], controllers, limits, local);
        target.latency_max = plan.store_latency_max;
        target.late_max = plan.late_max;
        target.random = Random::new(random.next());
        World {
            model: Model::new(plan.disk_blocks, plan.lba_bytes as usize),
            faults: plan.faults.clone(),
            plan,
            random,
            now: Time::ZERO,
            target,
            wires: Vec::new(),
            attached: None,
            keep_alive: None,
            io_connected: 0,
            begun_at: Time::ZERO,
            reconnect_at: Time::ZERO,
            since_fault: 0,
            dark: false,
            resetting: false,
            stale: None,
            expired: BTreeSet::new(),
            outcome: Outcome::default(),
            shutting_down: false,
            done: false,
        }
    }

    /// Runs the plan to its end: all commands done, the controller shut down, the disk as the model has it.
    pub fn run(mut self) -> Outcome {
        while !self.done {
            let limit = Time::ZERO + SIMULATED_TIME_MAX;
            assert!(self.now < limit, "no end in sight: {:?}", self.outcome);
            self.turn();
            self.advance();
        }
        assert_eq!(
            self.target.late_writes(),
            0,
            "writes of an association before"
        );
        self.model.check(Lba(0), &self.target.disks[&1].bytes);
        self.outcome
    }

    fn turn(&mut self) {
        if self.wires.is_empty() && self.now >= self.reconnect_at {
            match self.stale.take() {
                Some(cntlid) => self.connect_stale(cntlid),
                None => self.connect(),
            }
        }
        self.target.run(self.now);
        self.expire_controllers();
        let mut index = 0;
        while index < self.wires.len() && !self.done {
            self.carry(index);
            for id in std::mem::take(&mut self.target.resets) {
                self.end_io_queues(id);
            }
            let progress = self.host_turn(index);
            if self.handle(progress) {
                return;
            }
            index += 1;
        }
        self.admin_turn();
        self.work();
        self.strike();
    }

    /// Bytes up and down one connection, and what they cause at the target.
    fn carry(&mut self, index: usize) {
        let (now, shape) = (self.now, self.plan.shape);
        let Wire {
            host,
            target,
            up,
            down,
        } = &mut self.wires[index];
        let mut bytes = Vec::new();
        host.queue.transmit(&mut bytes);
        up.send(&bytes, shape, &mut self.random, now);
        up.deliver(now, |piece| target.receive(piece, &mut self.target, now));
        target.run(&mut self.target, now);
        bytes.clear();
        target.transmit(&mut bytes);
        down.send(&bytes, shape, &mut self.random, now);
        down.deliver(now, |piece| host.queue.receive(piece));
        let timed_out = Some(nvme::tcp::target::Event::TimedOut);
        let expected = target.ended.is_none() || self.dark && target.ended == timed_out;
        assert!(
            expected,
            "the target ended the connection: {:?}",
            target.ended
        );
    }

    fn host_turn(&mut self, index: usize) -> Progress {
        let host = &mut self.wires[index].host;
        let progress = host.turn(&mut self.model, &mut self.keep_alive, self.now);
        self.outcome.completed += std::mem::take(&mut host.completed);
        progress
    }

    /// True where the association is over.
    fn handle(&mut self, progress: Progress) -> bool {
        match progress {
            Progress::Attached(attached) => self.attached(*attached),
            Progress::Connected => self.io_connected += 1,
            Progress::Reset => {
                self.outcome.resets += 1;
                self.resetting = false;
                self.keep_alive = Some(KeepAlive::new(self.plan.keep_alive, self.now));
                self.connect_io();
            }
            Progress::Refused => {
                self.outcome.refused += 1;
                self.disconnect();
                return true;
            }
            Progress::ShutDown => self.done = true,
            Progress::Ended(error) => {
                let timed_out = matches!(
                    error,
                    HostError::CommandTimeout { .. } | HostError::HandshakeTimeout
                );
                assert!(timed_out && self.dark, "{error}");
                self.outcome.host_expired += 1;
                self.disconnect();
                return true;
            }
            Progress::Nothing | Progress::Something => {}
        }
        false
    }

    fn connect(&mut self) {
        self.outcome.associations += 1;
        self.begun_at = self.now;
        let attach = AttachAdmin::new(
            association(),
            ADMIN_DEPTH,
            self.plan.keep_alive,
            self.plan.queues,
            self.now,
        );
        let options = self.options(ADMIN_DEPTH, 8192);
        let host = Queue::admin(attach.unwrap(), options, self.now);
        self.add_wire(host);
    }

    /// An I/O queue of the association that was lost: whether its controller still ends or is gone, it is not let in.
    fn connect_stale(&mut self, cntlid: u16) {
        let qid = u16::try_from(self.random.within(1..u64::from(self.plan.queues) + 1)).unwrap();
        let attach = AttachIo::new(association(), cntlid, qid, self.plan.depth);
        let options = self.options(self.plan.depth, 8192);
        self.add_wire(Queue::stale(attach, options, self.now));
    }

    fn attached(&mut self, attached: Attached) {
        assert_eq!(attached.io_queues, self.plan.queues);
        assert_eq!(attached.namespaces.len(), 1);
        let namespace = &attached.namespaces[0];
        assert_eq!(namespace.blocks, self.plan.disk_blocks as u64);
        assert_eq!(namespace.lba_bytes, self.plan.lba_bytes);
        let controller = &attached.controller;
        assert_eq!(controller.transfer_bytes_max, self.plan.transfer_bytes_max);
        self.keep_alive = Some(KeepAlive::new(self.plan.keep_alive, self.now));
        self.attached = Some(attached);
        self.connect_io();
    }

    fn connect_io(&mut self) {
        let attached = self.attached.as_ref().unwrap();
        let controller = &attached.controller;
        let depth = self.plan.depth.min(controller.io_queue_depth_max);
        let options = self.options(depth, controller.in_capsule_bytes_max);
        let cntlid = attached.cntlid;
        for qid in 1..=attached.io_queues {
            let attach = AttachIo::new(association(), cntlid, qid, depth);
            let host = Queue::io(attach, options, self.now);
            self.add_wire(host);
        }
    }

    /// The target closes the I/O queues of a controller that its host resets; what is on its way is lost.
    fn end_io_queues(&mut self, id: ControllerId) {
        assert_eq!(self.wires[0].target.controller(), Some(id));
        for mut wire in self.wires.drain(1..) {
            self.outcome.lost += u32::try_from(wire.host.lose(&mut self.model)).unwrap();
            wire.target.close(&mut self.target, self.now);
        }
    }

    fn add_wire(&mut self, host: Queue) {
        let target = TargetQueue::new(&self.target, self.now);
        self.wires.push(Wire {
            host,
            target,
            up: Link::default(),
            down: Link::default(),
        });
    }

    fn options(&self, depth: u16, in_capsule_bytes_max: u32) -> HostOptions {
        HostOptions {
            depth,
            header_digest: self.plan.header_digest,
            data_digest: self.plan.data_digest,
            in_capsule_bytes_max,
            command_timeout: Duration::from_secs(30),
        }
    }

    fn is_running(&self) -> bool {
        self.attached.is_some() && self.io_connected == usize::from(self.plan.queues)
    }

    /// Keep alive, and the end once all work is done.
    fn admin_turn(&mut self) {
        let Some(admin) = self.wires.first_mut() else {
            return;
        };
        // A host that resets asks for CSTS all the time.
        let quiet = self.shutting_down || self.resetting;
        if let Some(timer) = self.keep_alive.as_mut().filter(|_| !quiet)
            && !admin.host.keep_alive(timer, self.now)
        {
            assert!(self.dark, "no answer to Keep Alive though the links are up");
            self.outcome.host_expired += 1;
            return self.disconnect();
        }
        let idle = self.wires.iter().all(|wire| wire.host.is_idle());
        if self.is_running() && self.work_left() == 0 && idle && !self.shutting_down {
            self.shutting_down = true;
            self.wires[0].host.shut_down();
        }
    }

    /// Commands of the plan that are neither completed nor on their way.
    fn work_left(&self) -> u32 {
        let io = self.wires.iter().skip(1);
        let running: usize = io
            .map(|wire| wire.host.queue.connection.outstanding())
            .sum();
        self.plan.commands - self.outcome.completed - u32::try_from(running).unwrap()
    }

    /// Keeps every I/O queue as full as it goes.
    fn work(&mut self) {
        let idle = self.now.since(self.begun_at) < self.plan.idle;
        if !self.is_running() || self.shutting_down || idle {
            return;
        }
        let workload = Workload {
            blocks_max: self.plan.transfer_bytes_max / self.plan.lba_bytes,
            lba_bytes: self.plan.lba_bytes,
        };
        for index in 1..self.wires.len() {
            for _ in 0..u32::from(self.plan.depth).min(self.work_left()) {
                let host = &mut self.wires[index].host;
                let submitted = host.submit(&mut self.model, workload, &mut self.random, self.now);
                self.since_fault += u32::from(submitted);
            }
        }
    }

    /// The next fault, when its time has come.
    fn strike(&mut self) {
        let Some(&fault) = self.faults.last() else {
            return;
        };
        let due = match fault.when {
            When::Commands(count) => self.since_fault >= count,
            When::Begun(span) => self.now.since(self.begun_at) >= span,
        };
        let can = match fault.kind {
            FaultKind::ControllerReset => self.is_running() && !self.shutting_down,
            FaultKind::Reset | FaultKind::Blackout => !self.wires.is_empty(),
        };
        if !can || self.dark || !due {
            return;
        }
        self.faults.pop();
        self.since_fault = 0;
        match fault.kind {
            FaultKind::Reset => {
                self.stale = self.attached.as_ref().map(|attached| attached.cntlid);
                self.disconnect();
            }
            FaultKind::ControllerReset => {
                self.io_connected = 0;
                self.resetting = true;
                self.wires[0].host.reset(self.now);
            }
            FaultKind::Blackout => {
                self.dark = true;
                for wire in &mut self.wires {
                    wire.up.stalled = true;
                    wire.down.stalled = true;
                }
            }
        }
    }

    /// Controllers whose host went silent.
    fn expire_controllers(&mut self) {
        while let Some(id) = self.target.registry.next_expired(self.now) {
            assert!(self.dark, "a controller expired though the links are up");
            assert!(self.expired.insert(id), "a controller expired twice");
            self.outcome.target_expired += 1;
            self.target.registry.end(id);
            for wire in &mut self.wires {
                if wire.target.controller() == Some(id) {
                    wire.target.close(&mut self.target, self.now);
                }
            }
        }
    }

    /// Both ends see the connections end; what is on its way is lost.
    fn disconnect(&mut self) {
        for mut wire in self.wires.drain(..).rev() {
            self.outcome.lost += u32::try_from(wire.host.lose(&mut self.model)).unwrap();
            wire.target.close(&mut self.target, self.now);
        }
        if self.target.late_writes() == 0 {
            assert_eq!(self.target.registry.controllers().count(), 0);
        }
        self.attached = None;
        self.keep_alive = None;
        self.io_connected = 0;
        self.dark = false;
        self.resetting = false;
        self.shutting_down = false;
        self.reconnect_at = self.now + RECONNECT_DELAY;
    }

    /// To the next thing that happens; a little further at least.
    fn advance(&mut self) {
        let links = self.wires.iter().flat_map(|wire| [&wire.up, &wire.down]);
        let store = self.wires.iter().filter_map(|wire| wire.target.next_due());
        // The host's own timers are no events: it gets a turn each millisecond where nothing else happens.
        let idle = self.now + Duration::from_millis(1);
        let store = store.chain(self.target.next_due()).map(|due| due.min(idle));
        let next = links.filter_map(Link::next_due).chain(store).min();
        self.now = match next {
            Some(next) => next.max(self.now + Duration::from_micros(1)),
            None => idle,
        };
    }
}

fn association() -> Association {
    Association {
        host_id: [9; 16],
        hostnqn: "nqn.2026-11.test:host".into(),
        subnqn: SUBNQN.into(),
    }
}
