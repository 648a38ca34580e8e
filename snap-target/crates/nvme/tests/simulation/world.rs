//! Both ends, the links between them, and the clock: stepped from one thing that happens to the next.

use std::collections::BTreeSet;
use std::time::Duration;

use nvme::Time;
use nvme::controller::{ControllerId, ControllerLimits};
use nvme::initiator::{AttachAdmin, AttachIo, Attached, KeepAlive, KeepAliveStep, command};
use nvme::tcp::host::HostError;
use nvme::tcp::target::TargetLimits;

use crate::client::{Client, Wire};
use crate::extras::{Extra, Extras};
use crate::host::{Progress, Queue};
use crate::oracle::{Oracle, Seen};
use crate::plan::{FaultKind, Plan, When};
use crate::workload::Workload;
use nvme::simulation::link::Link;
use nvme::simulation::model::{Model, Span};
use nvme::simulation::random::Random;
use nvme::simulation::target::{Disk, MemoryTarget};

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
    /// How commands ended.
    pub seen: Seen,
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
            seen: self.seen.plus(other.seen),
        }
    }
}

pub struct World {
    plan: Plan,
    random: Random,
    now: Time,
    target: MemoryTarget,
    oracle: Oracle,
    clients: Vec<Client>,
    expired: BTreeSet<ControllerId>,
    outcome: Outcome,
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
        target.random = Random::new(random.number());
        World {
            oracle: Oracle::new(Model::new(plan.disk_blocks, plan.lba_bytes as usize)),
            clients: (0..plan.clients).map(|it| Client::new(it, &plan)).collect(),
            plan,
            random,
            now: Time::ZERO,
            target,
            expired: BTreeSet::new(),
            outcome: Outcome::default(),
        }
    }

    /// Runs the plan to its end: all commands done, the controllers shut down, the disk as the oracle has it.
    pub fn run(mut self) -> Outcome {
        while self.clients.iter().any(|client| !client.done) {
            let limit = Time::ZERO + SIMULATED_TIME_MAX;
            assert!(
                self.now < limit,
                "no end in sight: {:?}, {:#?}",
                self.outcome,
                self.clients.iter().map(|it| &it.extras).collect::<Vec<_>>()
            );
            self.turn();
            self.advance();
        }
        assert_eq!(
            self.target.late_writes(),
            0,
            "writes of an association before"
        );
        self.check_disk();
        self.outcome.seen = self.oracle.seen;
        self.outcome
    }

    fn check_disk(&mut self) {
        let began = self.oracle.disk.tick();
        let lba_bytes = self.plan.lba_bytes as usize;
        for (lba, data) in (0..).zip(
            self.target.disks.lock().unwrap()[&1]
                .bytes
                .chunks(lba_bytes),
        ) {
            let span = Span { lba, count: 1 };
            if self.target.store.marks.contains(&(1, lba)) {
                assert!(
                    self.oracle.disk.may_be_unreadable(span, began),
                    "block {lba}"
                );
            } else {
                self.oracle.disk.check(span, data, began);
            }
        }
    }

    fn turn(&mut self) {
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            if !client.done && client.wires.is_empty() && self.now >= client.reconnect_at {
                match client.stale.take() {
                    Some(cntlid) => self.connect_stale(at, cntlid),
                    None => self.connect(at),
                }
            }
        }
        self.target.run(self.now);
        self.expire_controllers();
        for at in 0..self.clients.len() {
            self.client_turn(at);
        }
    }

    fn client_turn(&mut self, at: usize) {
        let mut index = 0;
        while index < self.clients[at].wires.len() {
            self.carry(at, index);
            for id in std::mem::take(&mut self.target.resets) {
                self.end_io_queues(at, id);
            }
            // A reset may have closed it.
            if index >= self.clients[at].wires.len() {
                break;
            }
            let (progress, completed) =
                self.clients[at].queue_turn(index, &mut self.oracle, self.now);
            self.outcome.completed += completed;
            self.tell_changes();
            if self.handle(at, progress) {
                return;
            }
            index += 1;
        }
        self.admin_turn(at);
        self.work(at);
        self.strike(at);
    }

    fn carry(&mut self, at: usize, index: usize) {
        let client = &mut self.clients[at];
        let wire = &mut client.wires[index];
        wire.carry(
            &mut self.target,
            self.plan.shape,
            &mut self.random,
            self.now,
        );
        let ended = wire.target.ended;
        let timed_out = Some(nvme::tcp::target::Event::TimedOut);
        let expected = ended.is_none() || client.dark && ended == timed_out;
        assert!(expected, "the target ended the connection: {ended:?}");
    }

    /// All clients hear of changes of reservations.
    fn tell_changes(&mut self) {
        for (asked, effects) in std::mem::take(&mut self.oracle.effects) {
            for client in &mut self.clients {
                let host = client.who.host;
                client
                    .extras
                    .reservations_changed(host, asked, effects.as_ref());
            }
        }
    }

    /// True where the association is over.
    fn handle(&mut self, at: usize, progress: Progress) -> bool {
        let client = &mut self.clients[at];
        match progress {
            Progress::Attached(attached) => self.attached(at, *attached),
            Progress::Connected => client.io_connected += 1,
            Progress::Reset => {
                self.outcome.resets += 1;
                client.resetting = false;
                client.keep_alive = Some(KeepAlive::new(self.plan.keep_alive, self.now));
                self.begin_association(at);
            }
            Progress::Refused => {
                self.outcome.refused += 1;
                self.disconnect(at);
                return true;
            }
            Progress::ShutDown => {
                self.disconnect(at);
                self.clients[at].done = true;
                return true;
            }
            Progress::Ended(error) => {
                let timed_out = matches!(
                    error,
                    HostError::CommandTimeout { .. } | HostError::HandshakeTimeout
                );
                assert!(timed_out && client.dark, "{error}");
                self.outcome.host_expired += 1;
                self.disconnect(at);
                return true;
            }
            Progress::Nothing | Progress::Something => {}
        }
        false
    }

    fn connect(&mut self, at: usize) {
        self.outcome.associations += 1;
        let client = &mut self.clients[at];
        client.begun_at = self.now;
        client.extras = Extras::new(&self.plan);
        let attach = AttachAdmin::new(
            client.association(),
            ADMIN_DEPTH,
            self.plan.keep_alive,
            self.plan.queues,
            self.now,
        );
        let options = client.options(&self.plan, ADMIN_DEPTH, 8192);
        let queue = Queue::admin(client.who, attach.unwrap(), options, self.now);
        self.add_wire(at, queue);
    }

    /// An I/O queue of the association that was lost: whether its controller still ends or is gone, it is not let in.
    fn connect_stale(&mut self, at: usize, cntlid: u16) {
        let client = &self.clients[at];
        let qid = u16::try_from(self.random.within(1..u64::from(self.plan.queues) + 1)).unwrap();
        let attach = AttachIo::new(client.association(), cntlid, qid, self.plan.depth);
        let options = client.options(&self.plan, self.plan.depth, 8192);
        let queue = Queue::stale(client.who, attach, options, self.now);
        self.add_wire(at, queue);
    }

    fn attached(&mut self, at: usize, attached: Attached) {
        assert_eq!(attached.io_queues, self.plan.queues);
        assert_eq!(attached.namespaces.len(), 1);
        let namespace = &attached.namespaces[0];
        assert_eq!(namespace.blocks, self.plan.disk_blocks as u64);
        assert_eq!(namespace.lba_bytes, self.plan.lba_bytes);
        let controller = &attached.controller;
        assert_eq!(controller.transfer_bytes_max, self.plan.transfer_bytes_max);
        let client = &mut self.clients[at];
        client.keep_alive = Some(KeepAlive::new(self.plan.keep_alive, self.now));
        client.attached = Some(attached);
        self.begin_association(at);
    }

    /// The controller is ready: whatever the association or the queues before had under way has ended.
    fn begin_association(&mut self, at: usize) {
        self.oracle.disk.end_writes(at);
        let moment = self.oracle.disk.tick();
        let client = &mut self.clients[at];
        client.extras.begin(moment);
        let attached = client.attached.as_ref().unwrap();
        let controller = &attached.controller;
        let depth = self.plan.depth.min(controller.io_queue_depth_max);
        let options = client.options(&self.plan, depth, controller.in_capsule_bytes_max);
        let cntlid = attached.cntlid;
        for qid in 1..=attached.io_queues {
            let client = &self.clients[at];
            let attach = AttachIo::new(client.association(), cntlid, qid, depth);
            let queue = Queue::io(client.who, attach, options, self.now);
            self.add_wire(at, queue);
        }
    }

    /// The target closes the I/O queues of a controller that its host resets; what is on its way is lost.
    fn end_io_queues(&mut self, at: usize, id: ControllerId) {
        let client = &mut self.clients[at];
        assert_eq!(client.controller(), Some(id));
        for mut wire in client.wires.drain(1..) {
            self.outcome.lost += wire.host.lose(&mut self.oracle);
            wire.target.close(&mut self.target, self.now);
        }
        self.tell_changes();
    }

    fn add_wire(&mut self, at: usize, queue: Queue) {
        let wire = Wire::new(queue, &self.target, self.now);
        self.clients[at].wires.push(wire);
    }

    /// Keep alive, events, and the end once all work is done.
    fn admin_turn(&mut self, at: usize) {
        if !self.keep_alive(at) {
            assert!(
                self.clients[at].dark,
                "no answer to Keep Alive though the links are up"
            );
            self.outcome.host_expired += 1;
            return self.disconnect(at);
        }
        self.clients[at].admin_turn(&mut self.oracle, &mut self.random, self.now);
        let work_left = self.work_left();
        let client = &mut self.clients[at];
        if work_left == 0
            && client.is_running(self.plan.queues)
            && client.is_settled()
            && !client.shutting_down
        {
            client.shutting_down = true;
            client.wires[0].host.shut_down();
        }
    }

    /// Sends a Keep Alive where one is due; false where the controller has not answered the last one in time.
    fn keep_alive(&mut self, at: usize) -> bool {
        let client = &mut self.clients[at];
        // A host that resets asks for CSTS all the time.
        let quiet = client.shutting_down || client.resetting;
        let (Some(admin), Some(timer)) = (client.wires.first_mut(), client.keep_alive.as_mut())
        else {
            return true;
        };
        match timer.step(self.now) {
            _ if quiet => true,
            KeepAliveStep::Expired => false,
            KeepAliveStep::WaitUntil(_) => true,
            KeepAliveStep::Send => {
                let command = command::keep_alive();
                let host = &mut admin.host;
                host.send_extra(Extra::KeepAlive, &command, Vec::new(), self.now);
                timer.sent(self.now);
                true
            }
        }
    }

    /// Commands of the plan that are neither completed nor on their way.
    fn work_left(&self) -> u32 {
        let under_way: u32 = self.clients.iter().map(Client::io_under_way).sum();
        self.plan.commands - self.outcome.completed - under_way
    }

    /// Keeps every I/O queue of a client as full as it goes.
    fn work(&mut self, at: usize) {
        let client = &self.clients[at];
        let idle = self.now.since(client.begun_at) < self.plan.idle;
        if !client.is_running(self.plan.queues) || client.shutting_down || idle {
            return;
        }
        let workload = Workload {
            blocks_max: self.plan.transfer_bytes_max / self.plan.lba_bytes,
            lba_bytes: self.plan.lba_bytes,
            overlaps_once_in: self.plan.overlaps_once_in,
            reserves: self.plan.reserves,
        };
        for index in 1..self.clients[at].wires.len() {
            for _ in 0..self.plan.depth {
                let left = self.work_left();
                let client = &mut self.clients[at];
                let host = &mut client.wires[index].host;
                let submitted =
                    host.submit(&mut self.oracle, workload, &mut self.random, left, self.now);
                client.since_fault += submitted;
                if submitted > 0 {
                    self.change_namespace();
                }
            }
        }
        let client = &mut self.clients[at];
        if let Some(times) = self.plan.aborts_once_in
            && client.io_under_way() > 0
            && self.random.once_in(times)
        {
            client.abort(&mut self.random, self.now);
        }
    }

    fn change_namespace(&mut self) {
        let is_due = self
            .plan
            .changes_once_in
            .is_some_and(|times| self.random.once_in(times));
        if is_due {
            self.target.change_namespaces();
            let moment = self.oracle.disk.tick();
            for client in &mut self.clients {
                client.extras.namespace_changed(moment);
            }
        }
    }

    /// The next fault of a client, when its time has come.
    fn strike(&mut self, at: usize) {
        let client = &mut self.clients[at];
        let Some(&fault) = client.faults.last() else {
            return;
        };
        let due = match fault.when {
            When::Commands(count) => client.since_fault >= count,
            When::Begun(span) => self.now.since(client.begun_at) >= span,
        };
        let can = match fault.kind {
            FaultKind::ControllerReset => {
                client.is_running(self.plan.queues)
                    && !client.shutting_down
                    && client.wires[0].host.is_idle()
            }
            FaultKind::Reset | FaultKind::Blackout => !client.wires.is_empty(),
        };
        if !can || client.dark || client.resetting || !due {
            return;
        }
        client.faults.pop();
        client.since_fault = 0;
        match fault.kind {
            FaultKind::Reset => {
                client.stale = client.attached.as_ref().map(|attached| attached.cntlid);
                self.disconnect(at);
            }
            FaultKind::ControllerReset => {
                client.io_connected = 0;
                client.resetting = true;
                client.extras.reset();
                client.wires[0].host.reset(self.now);
            }
            FaultKind::Blackout => client.stall(),
        }
    }

    /// Controllers whose host went silent.
    fn expire_controllers(&mut self) {
        while let Some(id) = self.target.registry.next_expired(self.now) {
            let mut clients = self.clients.iter_mut();
            let client = clients
                .find(|client| client.controller() == Some(id))
                .unwrap();
            assert!(client.dark, "a controller expired though the links are up");
            assert!(self.expired.insert(id), "a controller expired twice");
            self.outcome.target_expired += 1;
            self.target.registry.end(id);
            for wire in &mut client.wires {
                wire.target.close(&mut self.target, self.now);
            }
        }
    }

    /// Both ends see the connections end; what is on its way is lost.
    fn disconnect(&mut self, at: usize) {
        let client = &mut self.clients[at];
        for mut wire in client.wires.drain(..).rev() {
            self.outcome.lost += wire.host.lose(&mut self.oracle);
            wire.target.close(&mut self.target, self.now);
        }
        client.attached = None;
        client.keep_alive = None;
        client.io_connected = 0;
        client.dark = false;
        client.resetting = false;
        client.shutting_down = false;
        client.reconnect_at = self.now + RECONNECT_DELAY;
        client.extras.reset();
        self.tell_changes();
        if self.target.late_writes() == 0 {
            let there = self.clients.iter().filter_map(Client::controller);
            assert_eq!(self.target.registry.controllers().count(), there.count());
        }
    }

    /// To the next thing that happens; a little further at least.
    fn advance(&mut self) {
        let wires = self.clients.iter().flat_map(|client| &client.wires);
        let links = wires.flat_map(|wire| [&wire.up, &wire.down]);
        // The host's own timers are no events: it gets a turn each millisecond where nothing else happens.
        let idle = self.now + Duration::from_millis(1);
        let store = self.target.next_due().map(|due| due.min(idle));
        let next = links.filter_map(Link::next_due).chain(store).min();
        self.now = match next {
            Some(next) => next.max(self.now + Duration::from_micros(1)),
            None => idle,
        };
    }
}
