//! One association of a host with the target: its queues, the links that they run over, and where it stands.

use nvme::Time;
use nvme::controller::ControllerId;
use nvme::initiator::{Association, Attached, KeepAlive};
use nvme::tcp::host::HostOptions;

use crate::extras::{Extra, Extras};
use crate::host::{Progress, Queue};
use crate::oracle::{Oracle, Who};
use crate::plan::{Fault, HOSTS, Plan};
use crate::reservations::host_id;
use nvme::simulation::link::{Link, LinkShape};
use nvme::simulation::random::Random;
use nvme::simulation::target::{MemoryTarget, SUBNQN, TargetQueue};

/// One connection.
pub struct Wire {
    pub host: Queue,
    pub target: TargetQueue,
    pub up: Link,
    pub down: Link,
}

impl Wire {
    pub fn new(host: Queue, target: &MemoryTarget, now: Time) -> Wire {
        Wire {
            host,
            target: TargetQueue::new(target, now),
            up: Link::default(),
            down: Link::default(),
        }
    }

    /// Bytes up and down, and what they cause at the target.
    pub fn carry(
        &mut self,
        target: &mut MemoryTarget,
        shape: LinkShape,
        random: &mut Random,
        now: Time,
    ) {
        let mut bytes = Vec::new();
        self.host.queue.transmit(&mut bytes);
        self.up.send(&bytes, shape, random, now);
        let queue = &mut self.target;
        self.up
            .deliver(now, |piece| queue.receive(piece, target, now));
        queue.run(target, now);
        bytes.clear();
        queue.transmit(&mut bytes);
        self.down.send(&bytes, shape, random, now);
        let host = &mut self.host;
        self.down.deliver(now, |piece| host.queue.receive(piece));
    }
}

/// See the module.
pub struct Client {
    pub who: Who,
    /// The admin queue's first, then I/O queues in their order.
    pub wires: Vec<Wire>,
    pub attached: Option<Attached>,
    pub keep_alive: Option<KeepAlive>,
    pub io_connected: usize,
    pub begun_at: Time,
    pub reconnect_at: Time,
    pub faults: Vec<Fault>,
    /// Commands submitted since the last fault.
    pub since_fault: u32,
    pub dark: bool,
    pub resetting: bool,
    /// The association that was lost, while the host tries one of its I/O queues before it begins anew.
    pub stale: Option<u16>,
    pub extras: Extras,
    pub shutting_down: bool,
    pub done: bool,
}

impl Client {
    pub fn new(client: usize, plan: &Plan) -> Client {
        Client {
            who: Who {
                client,
                host: client % HOSTS,
            },
            wires: Vec::new(),
            attached: None,
            keep_alive: None,
            io_connected: 0,
            begun_at: Time::ZERO,
            reconnect_at: Time::ZERO,
            faults: plan.faults[client].clone(),
            since_fault: 0,
            dark: false,
            resetting: false,
            stale: None,
            extras: Extras::new(plan),
            shutting_down: false,
            done: false,
        }
    }

    pub fn association(&self) -> Association {
        Association {
            host_id: host_id(self.who.host),
            hostnqn: format!("nqn.2026-11.test:host-{}", self.who.host),
            subnqn: SUBNQN.into(),
        }
    }

    /// All queues are connected, and the controller has its features.
    pub fn is_running(&self, queues: u16) -> bool {
        self.attached.is_some() && self.io_connected == usize::from(queues) && self.extras.is_live()
    }

    pub fn controller(&self) -> Option<ControllerId> {
        self.wires.first()?.target.controller()
    }

    pub fn io_under_way(&self) -> u32 {
        self.wires.iter().map(|wire| wire.host.under_way).sum()
    }

    /// Nothing is outstanding, and nothing is owed.
    pub fn is_settled(&self) -> bool {
        self.wires.iter().all(|wire| wire.host.is_idle()) && self.extras.is_settled()
    }

    /// The host's turn at one of its queues. Says how many I/O commands have completed.
    pub fn queue_turn(&mut self, index: usize, oracle: &mut Oracle, now: Time) -> (Progress, u32) {
        let host = &mut self.wires[index].host;
        let progress = host.turn(oracle, now);
        let completed = std::mem::take(&mut host.completed);
        let reservations_change = oracle.reservations.is_busy();
        for answer in std::mem::take(&mut host.answers) {
            let keep_alive = self.keep_alive.as_mut();
            if let Some((qid, cid, is_aborted)) =
                self.extras
                    .answered(answer, keep_alive, reservations_change, now)
                && let Some(wire) = self.wires.get_mut(usize::from(qid))
            {
                wire.host.abort_answered(cid, is_aborted);
            }
        }
        (progress, completed)
    }

    /// Sends what its admin queue has to send besides tasks.
    pub fn admin_turn(&mut self, oracle: &mut Oracle, random: &mut Random, now: Time) {
        if let Some(admin) = self.wires.first_mut()
            && !self.resetting
            && !self.shutting_down
        {
            let moment = oracle.disk.tick();
            self.extras.turn(&mut admin.host, moment, random, now);
        }
    }

    /// Aborts a command of an I/O queue, or a request for events.
    pub fn abort(&mut self, random: &mut Random, now: Time) {
        let queues = self.wires.len() as u64;
        let Some((admin, io)) = self.wires.split_first_mut() else {
            return;
        };
        if self.resetting || !self.extras.may_abort(&admin.host) {
            return;
        }
        let qid = random.within(0..queues);
        let cid = match qid.checked_sub(1) {
            None => admin.host.outstanding(Extra::Event),
            Some(index) => io[usize::try_from(index).unwrap()].host.name_for_abort(),
        };
        if let Some(cid) = cid {
            let qid = u16::try_from(qid).unwrap();
            self.extras.send_abort(&mut admin.host, qid, cid, now);
        }
    }

    pub fn stall(&mut self) {
        self.dark = true;
        for wire in &mut self.wires {
            wire.up.stalled = true;
            wire.down.stalled = true;
        }
    }

    pub fn options(&self, plan: &Plan, depth: u16, in_capsule_bytes_max: u32) -> HostOptions {
        HostOptions {
            depth,
            header_digest: plan.header_digest,
            data_digest: plan.data_digest,
            in_capsule_bytes_max,
            command_timeout: std::time::Duration::from_secs(30),
        }
    }
}
