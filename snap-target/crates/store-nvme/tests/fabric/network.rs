//! The network between a host and the ports of a subsystem, and what stands behind each port: all of it steps with one clock, and chance follows
//! from one seed.
//!
//! A port has a target of its own ([`MemoryTarget`]): controllers, their keep alives, what they still have to write. All ports serve the same
//! disks.
//!
//! **How late a write may be.** The network keeps bytes of a connection that the host closed for [`NetworkConfig::held_max`]; then they are lost. A command
//! that reached its target is carried out, where its connection ended, at any moment until its controller's keep alive has run out and CQT has
//! passed.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nvme::Time;
use nvme::controller::{ControllerId, ControllerLimits};
use nvme::initiator::AnaState;
use nvme::simulation::conduct::IoFault;
use nvme::simulation::link::LinkShape;
use nvme::simulation::random::Random;
use nvme::simulation::target::{Disk, Disks, MemoryTarget, TargetQueue};
use nvme::tcp::target::TargetLimits;
use nvme_spec::Status;

use crate::wire::{Direction, Garble, HostSees, Way, Wire};

/// A SYN that was not answered is sent again after that.
const SYN_AGAIN: Duration = Duration::from_millis(200);
/// A host's end is lost so often where nothing is wrong.
const END_LOST_ONCE_IN: u64 = 8;
/// CQT where the port says none of its own: what the machines report.
const QUIESCE_DEFAULT: Duration = Duration::from_secs(1);

/// The network.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    pub seed: u64,
    /// Pieces and delays while nothing is wrong.
    pub shape: LinkShape,
    /// The longest that the network keeps bytes of a host that closed its end.
    pub held_max: Duration,
    pub disk_blocks: usize,
    pub lba_bytes: u32,
}

/// A port of the subsystem, and the target behind it.
#[derive(Clone, Debug)]
pub struct PortConfig {
    pub address: SocketAddr,
    pub controllers: ControllerLimits,
    pub limits: TargetLimits,
    /// CQT, where it is not the machines' own.
    pub quiesce: Option<Duration>,
    /// Reports ANA, and this state.
    pub ana: Option<AnaState>,
    pub latency_max: Duration,
    /// A new association of a host does not wait for the writes of the last one.
    pub admits_at_once: bool,
}

/// What goes wrong, or right again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// One direction of a port's way.
    Way(Direction, Way),
    /// The target ends all connections.
    Reset,
    /// The target is gone, with its controllers and all that they had not written. With `says` its machine still answers, with resets.
    Kill { says: bool },
    /// It is there again, and knows nobody.
    Start,
    /// The next bytes that way arrive as others.
    Garble(Direction, Garble),
    /// Of the next I/O command.
    Io(IoFault),
    /// The state changes, with an event.
    Ana(AnaState),
    /// Of the next Connect.
    RefuseConnect(Status),
    /// Of the next Connect of an I/O queue.
    RefuseQueue(Status),
    /// Each command takes up to so long.
    Latency(Duration),
    /// Something about the namespaces changes that hosts are told of.
    ChangeNamespaces,
}

/// A connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireId(u64);

/// Names a port by its place.
pub type PortIndex = usize;

struct Port {
    config: PortConfig,
    /// None: it was killed.
    target: Option<MemoryTarget>,
    /// A killed target's machine answers.
    says: bool,
    ways: [Way; 2],
    garbles: [Option<Garble>; 2],
}

/// See the module. Shared by all who hold it.
#[derive(Clone)]
pub struct Network(Arc<Mutex<Inner>>);

struct Inner {
    config: NetworkConfig,
    random: Random,
    disks: Disks,
    ports: Vec<Port>,
    wires: BTreeMap<WireId, Wire>,
    last: u64,
    /// Sorted by time, the next one last.
    schedule: Vec<(Time, PortIndex, Fault)>,
    counts: Counts,
    /// Bytes were sent, or taken, since somebody asked: the next ones may follow at once.
    is_busy: bool,
}

/// What has happened in a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub connections: u32,
    /// Controllers whose keep alive ran out.
    pub expired: u32,
    /// Bytes that arrived at a target after their host had closed its end.
    pub late_bytes: u64,
    pub faults: u32,
}

impl Counts {
    /// Both together.
    pub fn plus(self, other: Counts) -> Counts {
        Counts {
            connections: self.connections + other.connections,
            expired: self.expired + other.expired,
            late_bytes: self.late_bytes + other.late_bytes,
            faults: self.faults + other.faults,
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

impl Network {
    pub fn new(config: NetworkConfig, ports: &[PortConfig]) -> Network {
        let bytes = vec![0; config.disk_blocks * config.lba_bytes as usize];
        let disk = Disk {
            lba_bytes: config.lba_bytes,
            write_protected: false,
            bytes,
        };
        let disks: Disks = Arc::new(Mutex::new(BTreeMap::from([(1, disk)])));
        let mut random = Random::new(config.seed ^ 0xFAB);
        let ports = ports.iter().map(|config| Port {
            config: config.clone(),
            target: Some(start(config, &disks, &mut random)),
            says: true,
            ways: [Way::Open; 2],
            garbles: [None; 2],
        });
        let ports = ports.collect();
        Network(Arc::new(Mutex::new(Inner {
            config,
            random,
            disks,
            ports,
            wires: BTreeMap::new(),
            last: 0,
            schedule: Vec::new(),
            counts: Counts::default(),
            is_busy: false,
        })))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A test that panics drops its queues, which close.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something happens now.
    pub fn strike(&self, port: PortIndex, fault: Fault, now: Time) {
        self.inner().strike(port, fault, now);
    }

    /// Something is to happen.
    pub fn strike_at(&self, at: Time, port: PortIndex, fault: Fault) {
        let schedule = &mut self.inner().schedule;
        schedule.push((at, port, fault));
        schedule.sort_by_key(|(at, ..)| Reverse(*at));
    }

    /// Nothing is to go wrong any more, and what is wrong is put right.
    pub fn heal(&self, now: Time) {
        let mut inner = self.inner();
        inner.schedule.clear();
        for port in 0..inner.ports.len() {
            for direction in [Direction::Up, Direction::Down] {
                inner.strike(port, Fault::Way(direction, Way::Open), now);
            }
            if inner.ports[port].target.is_none() {
                inner.strike(port, Fault::Start, now);
            }
            let port = &mut inner.ports[port];
            port.garbles = [None; 2];
            if let Some(target) = &mut port.target {
                target.conduct.io_faults.clear();
                target.conduct.refused_connects.clear();
                if target.conduct.ana().is_some() {
                    target.conduct.set_ana(AnaState::Optimized);
                }
                target.latency_max = port.config.latency_max;
            }
        }
    }

    /// Lets happen what is due.
    pub fn run(&self, now: Time) {
        self.inner().run(now);
    }

    /// When the next thing happens: at once where bytes have moved since this was asked last.
    pub fn next_due(&self, now: Time) -> Option<Time> {
        let mut inner = self.inner();
        if std::mem::take(&mut inner.is_busy) {
            return Some(now);
        }
        inner.next_due(now)
    }

    /// The disk's bytes.
    pub fn disk(&self) -> Vec<u8> {
        let disks = Arc::clone(&self.inner().disks);
        let disks = disks.lock().unwrap();
        disks[&1].bytes.clone()
    }

    pub fn counts(&self) -> Counts {
        self.inner().counts
    }

    /// Writes that targets have of connections that are gone.
    pub fn late_writes(&self) -> usize {
        let inner = self.inner();
        let targets = inner.ports.iter().filter_map(|port| port.target.as_ref());
        targets.map(MemoryTarget::late_writes).sum()
    }

    /// Controllers behind a port.
    pub fn controllers(&self, port: PortIndex) -> usize {
        let inner = self.inner();
        let target = inner.ports[port].target.as_ref();
        target.map_or(0, |target| target.registry.controllers().count())
    }

    /// Whether a port's target has an I/O queue.
    pub fn io_queue_stands(&self, port: PortIndex) -> bool {
        let inner = self.inner();
        let of_port = inner.wires.values().filter(|wire| wire.port == port);
        let mut queues = of_port.filter_map(|wire| wire.target.as_ref());
        queues.any(|queue| queue.controller().is_some() && !queue.is_admin())
    }

    /// I/O queues that a port's target has.
    pub fn io_queues(&self, port: PortIndex) -> usize {
        let inner = self.inner();
        let of_port = inner.wires.values().filter(|wire| wire.port == port);
        let queues = of_port.filter_map(|wire| wire.target.as_ref());
        let is_io = |queue: &&TargetQueue| queue.controller().is_some() && !queue.is_admin();
        queues.filter(is_io).count()
    }

    /// Whether the faults of I/O commands that a port was given have all struck.
    pub fn io_faults_are_over(&self, port: PortIndex) -> bool {
        let inner = self.inner();
        let target = inner.ports[port].target.as_ref();
        target.is_some_and(|target| target.conduct.io_faults.is_empty())
    }

    /// A host connects.
    pub fn connect(&self, to: SocketAddr, now: Time) -> Option<WireId> {
        let mut inner = self.inner();
        let at_port = |port: &Port| port.config.address == to;
        let port = inner.ports.iter().position(at_port)?;
        inner.last += 1;
        inner.counts.connections += 1;
        let id = WireId(inner.last);
        let delay_max = inner.config.shape.delay_max;
        let due = now + inner.random.below(delay_max);
        inner.wires.insert(id, Wire::new(port, due));
        Some(id)
    }

    pub fn seen_by_host(&self, id: WireId) -> HostSees {
        let inner = self.inner();
        inner.wires.get(&id).map_or(HostSees::Ended, |wire| {
            wire.host_sees(inner.ports[wire.port].ways[Direction::Down as usize])
        })
    }

    /// The host sends.
    pub fn send(&self, id: WireId, bytes: &[u8], now: Time) {
        let mut inner = self.inner();
        inner.is_busy |= !bytes.is_empty();
        let Inner {
            wires,
            ports,
            random,
            config,
            ..
        } = &mut *inner;
        if let Some(wire) = wires.get_mut(&id) {
            let port = &mut ports[wire.port];
            let garble = port.garbles[Direction::Up as usize].take_if(|_| !bytes.is_empty());
            wire.send(Direction::Up, bytes, garble, config.shape, random, now);
        }
    }

    /// The host takes what has arrived.
    pub fn receive(&self, id: WireId, now: Time, mut take: impl FnMut(&[u8]) -> usize) {
        let mut inner = self.inner();
        let Inner {
            wires,
            ports,
            is_busy,
            ..
        } = &mut *inner;
        if let Some(wire) = wires.get_mut(&id) {
            wire.down.stalled = ports[wire.port].ways[Direction::Down as usize] != Way::Open;
            wire.down.deliver(now, |piece| {
                *is_busy = true;
                take(piece)
            });
        }
    }

    /// The host closes its end, so that nothing is left in its machine.
    pub fn close(&self, id: WireId, now: Time) {
        let mut inner = self.inner();
        let Inner {
            wires,
            ports,
            random,
            config,
            ..
        } = &mut *inner;
        if let Some(wire) = wires.get_mut(&id) {
            let way = ports[wire.port].ways[Direction::Up as usize];
            // A reset is sent once.
            let is_lost = random.once_in(if way == Way::Open {
                END_LOST_ONCE_IN
            } else {
                2
            });
            let arrives = now + random.below(config.shape.delay_max);
            let arrives = (!is_lost).then_some(arrives);
            wire.host_closes(way, now, arrives, now + config.held_max);
        }
    }
}

fn start(config: &PortConfig, disks: &Disks, random: &mut Random) -> MemoryTarget {
    let mut target =
        MemoryTarget::sharing(disks, config.controllers, config.limits, config.address);
    target.random = Random::new(random.number());
    target.latency_max = config.latency_max;
    target.conduct.quiesce = config.quiesce;
    target.conduct.admits_at_once = config.admits_at_once;
    if let Some(state) = config.ana {
        target.conduct.set_ana(state);
    }
    target
}

impl Inner {
    fn strike(&mut self, index: PortIndex, fault: Fault, now: Time) {
        self.counts.faults += 1;
        let port = &mut self.ports[index];
        match fault {
            Fault::Way(direction, way) => port.ways[direction as usize] = way,
            Fault::Garble(direction, how) => port.garbles[direction as usize] = Some(how),
            Fault::Reset => {
                for id in self.wires_of(index) {
                    self.target_closes(id, now);
                    self.tell_host_at_once(id);
                }
            }
            Fault::Kill { says } => {
                (port.target, port.says) = (None, says);
                for id in self.wires_of(index) {
                    if let Some(wire) = self.wires.get_mut(&id) {
                        wire.target = None;
                    }
                    if says {
                        self.tell_host_at_once(id);
                    }
                }
            }
            Fault::Start => {
                port.says = true;
                if port.target.is_none() {
                    port.target = Some(start(&port.config, &self.disks, &mut self.random));
                }
            }
            Fault::Io(_)
            | Fault::Ana(_)
            | Fault::RefuseConnect(_)
            | Fault::RefuseQueue(_)
            | Fault::Latency(_)
            | Fault::ChangeNamespaces => {
                if let Some(target) = &mut port.target {
                    change_conduct(target, fault);
                }
            }
        }
    }

    fn wires_of(&self, port: PortIndex) -> Vec<WireId> {
        let wires = self.wires.iter().filter(|(_, wire)| wire.port == port);
        wires.map(|(id, _)| *id).collect()
    }

    fn tell_host_at_once(&mut self, id: WireId) {
        if let Some(wire) = self.wires.get_mut(&id) {
            wire.reset_host(self.ports[wire.port].ways[Direction::Down as usize]);
        }
    }

    fn run(&mut self, now: Time) {
        while let Some((_, port, fault)) = self.schedule.pop_if(|(at, ..)| *at <= now) {
            self.strike(port, fault, now);
        }
        for id in self.wires.keys().copied().collect::<Vec<_>>() {
            self.turn(id, now);
        }
        for port in 0..self.ports.len() {
            self.expire(port, now);
            self.end_reset_queues(port, now);
            if let Some(target) = &mut self.ports[port].target {
                target.run(now);
            }
        }
        self.wires.retain(|_, wire| !wire.is_over());
    }

    fn turn(&mut self, id: WireId, now: Time) {
        let Inner {
            wires,
            ports,
            random,
            config,
            counts,
            is_busy,
            ..
        } = self;
        let Some(wire) = wires.get_mut(&id) else {
            return;
        };
        let port = &mut ports[wire.port];
        wire.up.stalled = port.ways[Direction::Up as usize] != Way::Open;
        wire.down.stalled = port.ways[Direction::Down as usize] != Way::Open;
        let is_open = port.ways == [Way::Open; 2];
        match (&mut port.target, wire.connecting(now)) {
            (_, false) => {}
            (Some(target), true) if is_open => wire.connected(TargetQueue::new(target, now)),
            (None, true) if is_open && port.says => wire.refused(),
            (_, true) => wire.connects_again(now + SYN_AGAIN),
        }
        wire.lose_what_is_too_old(now);
        let mut is_ended = wire.end_has_arrived(now);
        if let (Some(queue), Some(target)) = (&mut wire.target, &mut port.target) {
            let is_late = wire.host_closed_at.is_some();
            wire.up.deliver(now, |piece| {
                let used = queue.receive(piece, target, now);
                counts.late_bytes += if is_late { used as u64 } else { 0 };
                *is_busy |= used > 0;
                used
            });
            queue.run(target, now);
            let mut bytes = Vec::new();
            queue.transmit(&mut bytes);
            *is_busy |= !bytes.is_empty();
            is_ended |= queue.ended.is_some();
            let garble = port.garbles[Direction::Down as usize].take_if(|_| !bytes.is_empty());
            wire.send(Direction::Down, &bytes, garble, config.shape, random, now);
        } else if port.says && wire.is_addressed_in_vain(now) {
            wire.reset_host(port.ways[Direction::Down as usize]);
        }
        if is_ended {
            self.target_closes(id, now);
        }
    }

    /// The target closes its end of a connection; with an admin queue's, its controller's other ones.
    fn target_closes(&mut self, id: WireId, now: Time) {
        let Some(wire) = self.wires.get(&id) else {
            return;
        };
        let Some(queue) = &wire.target else { return };
        let (port, controller) = (wire.port, queue.controller());
        let late_max = self.late_max(port, controller, now);
        match controller.filter(|_| queue.is_admin()) {
            Some(controller) => self.end_controller(port, controller, late_max, now),
            None => self.close_wire(id, late_max, now),
        }
    }

    /// The loosest that the specification allows: the controller learns of the loss from its keep alive.
    fn late_max(&self, port: PortIndex, id: Option<ControllerId>, now: Time) -> Duration {
        let port = &self.ports[port];
        let target = port.target.as_ref();
        let deadline = target.zip(id).and_then(|(target, id)| {
            let controller = target.registry.controller(id)?;
            controller.keep_alive_deadline()
        });
        let left = deadline.map_or(Duration::ZERO, |deadline| deadline.since(now));
        left + port.config.quiesce.unwrap_or(QUIESCE_DEFAULT)
    }

    fn end_controller(&mut self, port: PortIndex, id: ControllerId, late: Duration, now: Time) {
        // The admin queue's connection is the oldest of an association.
        for wire in self.wires_of(port).into_iter().rev() {
            let queue = self.wires.get(&wire).and_then(|it| it.target.as_ref());
            if queue.and_then(TargetQueue::controller) == Some(id) {
                self.close_wire(wire, late, now);
            }
        }
    }

    fn close_wire(&mut self, id: WireId, late_max: Duration, now: Time) {
        let Some(wire) = self.wires.get_mut(&id) else {
            return;
        };
        let Some(target) = &mut self.ports[wire.port].target else {
            return;
        };
        if let Some(mut queue) = wire.target.take() {
            target.late_max = late_max;
            queue.close(target, now);
        }
        wire.target_closed();
    }

    fn expire(&mut self, port: PortIndex, now: Time) {
        let quiesce = self.ports[port].config.quiesce.unwrap_or(QUIESCE_DEFAULT);
        while let Some(target) = &mut self.ports[port].target
            && let Some(id) = target.registry.next_expired(now)
        {
            target.registry.end(id);
            self.counts.expired += 1;
            self.end_controller(port, id, quiesce, now);
        }
    }

    /// A host cleared CC.EN.
    fn end_reset_queues(&mut self, port: PortIndex, now: Time) {
        let Some(target) = &mut self.ports[port].target else {
            return;
        };
        for controller in std::mem::take(&mut target.resets) {
            let late_max = self.late_max(port, Some(controller), now);
            for id in self.wires_of(port) {
                let queue = self.wires.get(&id).and_then(|wire| wire.target.as_ref());
                let is_its = |queue: &&TargetQueue| {
                    queue.controller() == Some(controller) && !queue.is_admin()
                };
                if queue.is_some_and(|queue| is_its(&queue)) {
                    self.close_wire(id, late_max, now);
                }
            }
        }
    }

    /// What was due and did not happen waits for something else.
    fn next_due(&self, now: Time) -> Option<Time> {
        let scheduled = self.schedule.last().map(|(at, ..)| *at);
        let wires = self.wires.values();
        let wires = wires.filter_map(|wire| wire.next_due(self.ports[wire.port].ways));
        let targets = self.ports.iter().filter_map(|port| port.target.as_ref());
        let targets = targets.flat_map(|target| [target.next_due(), target.registry.deadline()]);
        wires
            .chain(targets.flatten())
            .chain(scheduled)
            .filter(|due| *due > now)
            .min()
    }
}

fn change_conduct(target: &mut MemoryTarget, fault: Fault) {
    match fault {
        Fault::Io(fault) => target.conduct.io_faults.push_back(fault),
        Fault::RefuseConnect(status) => target.conduct.refused_connects.push_back(status),
        Fault::RefuseQueue(status) => target.conduct.refused_queues.push_back(status),
        Fault::Latency(max) => target.latency_max = max,
        Fault::ChangeNamespaces => target.change_namespaces(),
        // One that does not report ANA has no state.
        Fault::Ana(state) if target.conduct.ana().is_some() => target.conduct.set_ana(state),
        _ => {}
    }
}
