//! A whole target without I/O: controllers, disks in memory, and connections driven by bytes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::Time;
use crate::controller::{
    Admitted, ConnectContext, Controller, ControllerId, ControllerLimits, Effect, HostPolicy,
    Listener, NamespaceInfo, NamespaceSet, Protection, Registry, Subsystem, Target, Transport,
    Visibility,
};
use crate::digest::crc32c_append;
use crate::nqn::Nqn;
use crate::queue::{Completion, QueueId, Slot, Transfer};
use crate::simulation::gather;
use crate::tcp::batch::TxBatch;
use crate::tcp::target::{Connection, Event, TargetLimits, Want};
use nvme_spec::{Nsid, Status};

use super::admin::AbortOrder;
use super::conduct::Conduct;
use super::io::Halves;
use super::random::Random;
use super::store::{ConnectionId, Store};

/// The subsystem that a [`MemoryTarget`] serves.
pub const SUBNQN: &str = "nqn.2026-11.test:memory";

/// A disk to serve.
pub struct Disk {
    pub lba_bytes: u32,
    pub write_protected: bool,
    pub bytes: Vec<u8>,
}

/// Disks by NSID. Several targets may serve the same: they are ports of one subsystem.
pub type Disks = Arc<Mutex<BTreeMap<u32, Disk>>>;

/// Controllers and disks: what all connections share.
pub struct MemoryTarget {
    pub registry: Registry,
    pub disks: Disks,
    /// What it does that its machines do not.
    pub conduct: Conduct,
    /// The store answers within this time, each command another.
    pub latency_max: Duration,
    /// Writes that the store has when their connection ends stay with it for up to this time; zero: they are applied then or never.
    pub late_max: Duration,
    pub random: Random,
    /// Controllers whose host cleared CC.EN: their I/O queues' connections are to be closed.
    pub resets: Vec<ControllerId>,
    pub store: Store,
    /// Aborts on their way to I/O queues.
    pub(super) aborts: Vec<AbortOrder>,
    /// I/O queues whose connections are there.
    pub(super) live: Vec<(ControllerId, QueueId)>,
    pub(super) namespaces: Arc<NamespaceSet>,
    pub(super) context: ConnectContext,
    limits: TargetLimits,
    connections: Cell<u64>,
}

impl MemoryTarget {
    /// Serves the disks as namespaces 1, 2, ...
    pub fn new(
        disks: impl IntoIterator<Item = Disk>,
        controllers: ControllerLimits,
        limits: TargetLimits,
        local: SocketAddr,
    ) -> MemoryTarget {
        let disks = Arc::new(Mutex::new((1..).zip(disks).collect()));
        MemoryTarget::sharing(&disks, controllers, limits, local)
    }

    /// Serves disks that others serve, too.
    pub fn sharing(
        disks: &Disks,
        controllers: ControllerLimits,
        limits: TargetLimits,
        local: SocketAddr,
    ) -> MemoryTarget {
        let served = disks.lock().unwrap();
        let namespaces = served.iter().map(|(&nsid, disk)| NamespaceInfo {
            nsid: Nsid(nsid),
            handle: 0,
            visibility: Visibility::All,
            block_count: disk.bytes.len() as u64 / u64::from(disk.lba_bytes),
            lba_bytes: disk.lba_bytes,
            uuid: [u8::try_from(nsid).unwrap(); 16],
            nguid: [0; 16],
            eui64: None,
            write_protected: disk.write_protected,
            protection: Protection::None,
            keeps_reservations: false,
            optimal_boundary_blocks: 0,
            optimal_blocks: 0,
            deallocated_reads_zeros: true,
            atomic_blocks: 0,
        });
        let namespaces = Arc::new(NamespaceSet::new(1, namespaces).unwrap());
        let nqn = Nqn::parse(SUBNQN).unwrap();
        let subsystem = Subsystem {
            nqn: nqn.clone(),
            serial: "0001".into(),
            model: "memory".into(),
            firmware: "1".into(),
            hosts: HostPolicy::Any,
            limits: controllers,
        };
        let listener = Listener {
            transport: Transport::Tcp,
            address: local,
            port_id: 1,
        };
        let mut registry = Registry::new(Target::new([subsystem], [listener]).unwrap());
        assert!(registry.set_namespaces(&nqn, &namespaces));
        MemoryTarget {
            registry,
            disks: Arc::clone(disks),
            conduct: Conduct::default(),
            latency_max: Duration::ZERO,
            late_max: Duration::ZERO,
            random: Random::new(1),
            resets: Vec::new(),
            store: Store::default(),
            aborts: Vec::new(),
            live: Vec::new(),
            namespaces,
            context: ConnectContext::tcp(local),
            limits,
            connections: Cell::new(0),
        }
    }

    /// An operator changes something about each namespace that its hosts are told: its optimal size.
    pub fn change_namespaces(&mut self) {
        let changed = self.namespaces.iter().map(|info| NamespaceInfo {
            optimal_blocks: info.optimal_blocks ^ 8,
            ..info.clone()
        });
        let epoch = self.namespaces.epoch() + 1;
        self.namespaces = Arc::new(NamespaceSet::new(epoch, changed).unwrap());
        let nqn = Nqn::parse(SUBNQN).unwrap();
        assert!(self.registry.set_namespaces(&nqn, &self.namespaces));
    }

    /// When [`MemoryTarget::run`] has something to do.
    pub fn next_due(&self) -> Option<Time> {
        self.store.next_due()
    }

    /// Writes that the store has of queues that are gone.
    pub fn late_writes(&self) -> usize {
        self.store.late()
    }

    pub(super) fn close_if_drained(&mut self, (controller, queue): (ControllerId, QueueId)) {
        if self.store.has_any_of((controller, queue)) && !self.conduct.admits_at_once {
            return;
        }
        self.registry.closed(controller, queue);
        if let Some(controller) = self.registry.controller_mut(controller) {
            finish_reset(controller);
        }
    }
}

/// One connection of a target.
pub struct TargetQueue {
    pub connection: Connection,
    pub(super) id: ConnectionId,
    pub(super) admitted: Option<Admitted>,
    pub(super) buffers: Vec<Vec<u8>>,
    pub(super) halves: Halves,
    /// A Connect that waits until the host's last controller has ended.
    pub(super) waiting: Option<Slot>,
    /// Asynchronous Event Requests outstanding, for events that the machines do not know.
    pub(super) event_requests: Vec<Slot>,
    /// Changes of the ANA state that the host was told of, or connected after.
    pub(super) ana_told: u64,
    batch: TxBatch,
    /// Why the connection is over, once it is.
    pub ended: Option<Event>,
}

impl TargetQueue {
    pub fn new(target: &MemoryTarget, now: Time) -> TargetQueue {
        target.connections.set(target.connections.get() + 1);
        TargetQueue {
            connection: Connection::new(&target.limits, now),
            id: ConnectionId(target.connections.get()),
            admitted: None,
            buffers: Vec::new(),
            halves: Halves::default(),
            waiting: None,
            event_requests: Vec::new(),
            ana_told: 0,
            batch: TxBatch::with_capacity(5),
            ended: None,
        }
    }

    /// The controller that the queue belongs to, once connected.
    pub fn controller(&self) -> Option<ControllerId> {
        self.admitted.map(|admitted| admitted.controller)
    }

    /// Whether it is an admin queue, or not connected.
    pub fn is_admin(&self) -> bool {
        self.queue().is_admin()
    }

    /// Bytes of all buffers: what a host made us hold.
    pub fn buffer_bytes(&self) -> usize {
        self.buffers.iter().map(Vec::len).sum()
    }

    /// Takes in bytes, as far as the connection takes them now. Says how many.
    pub fn receive(&mut self, bytes: &[u8], target: &mut MemoryTarget, now: Time) -> usize {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match self.connection.want() {
                Want::Event => self.event(target, now),
                Want::Closed | Want::Slot => return used,
                _ if rest.is_empty() => return used,
                Want::Header(_) => used += self.connection.headers(rest),
                Want::Discard(len) => used += self.discard(rest, len),
                Want::Payload {
                    slot,
                    offset,
                    len,
                    digest,
                } => {
                    let count = rest.len().min(len as usize);
                    let piece = &rest[..count];
                    let start = offset as usize;
                    self.buffers[slot.index()][start..start + count].copy_from_slice(piece);
                    let before = self.connection.payload_crc();
                    let crc = if digest {
                        crc32c_append(before, piece)
                    } else {
                        0
                    };
                    self.connection.payload(u32::try_from(count).unwrap(), crc);
                    used += count;
                }
            }
        }
    }

    fn discard(&mut self, rest: &[u8], len: u32) -> usize {
        let count = rest.len().min(len as usize);
        let crc = crc32c_append(self.connection.payload_crc(), &rest[..count]);
        self.connection.payload(u32::try_from(count).unwrap(), crc);
        count
    }

    /// Answers what the store has finished and what has happened, and lets time pass.
    pub fn run(&mut self, target: &mut MemoryTarget, now: Time) {
        self.connection.tick(now);
        if self.connection.want() == Want::Event {
            self.event(target, now);
        }
        if let Some(slot) = self.waiting.take() {
            self.connect(slot, target, now);
        }
        target.run(now);
        self.collect(target);
        self.take_aborts(target);
        self.collect(target);
        self.answer_events(target);
    }

    /// Appends what is to be sent.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        loop {
            self.connection.transmit(&mut self.batch);
            if self.batch.is_empty() {
                return;
            }
            for slot in gather(&mut self.batch, &self.buffers, out) {
                self.connection.transmitted(slot);
            }
        }
    }

    /// The connection is gone. The queue counts as closed when the store has let go of its last request.
    pub fn close(&mut self, target: &mut MemoryTarget, now: Time) {
        self.waiting = None;
        target.close_connection(self.id, now);
        let Some(admitted) = self.admitted.take() else {
            return;
        };
        let queue = (admitted.controller, admitted.queue);
        target.live.retain(|live| *live != queue);
        target.end_aborts_of(queue);
        target.close_if_drained(queue);
    }

    fn event(&mut self, target: &mut MemoryTarget, now: Time) {
        match self.connection.next_event() {
            Some(Event::Connect { slot }) => {
                let status = Status::DATA_SGL_LENGTH_INVALID.dnr();
                match self.connection.transfer(slot).bytes() {
                    1024 => self.take_data(slot, 1024, now),
                    _ => self.fail(slot, status),
                }
            }
            Some(Event::Command { slot }) if self.is_admin() => {
                self.admin_command(slot, target, now);
            }
            Some(Event::Command { slot }) => self.io_command(slot, target, now),
            Some(Event::DataReady { slot }) if self.admitted.is_none() => {
                self.connect(slot, target, now);
            }
            Some(Event::DataReady { slot }) if self.is_admin() => {
                self.execute_admin(slot, target, now);
            }
            Some(Event::DataReady { slot }) => self.data_ready(slot, target, now),
            Some(Event::DataCorrupt { slot }) => {
                self.fail_with_half(slot, Status::TRANSIENT_TRANSPORT_ERROR);
            }
            Some(end) => self.ended = Some(end),
            None => {}
        }
    }

    pub(super) fn take_data(&mut self, slot: Slot, bytes: u32, now: Time) {
        self.make_room(slot, bytes);
        if matches!(self.connection.transfer(slot), Transfer::Remote { .. })
            && let Err(status) = self.connection.request_data(slot, now)
        {
            self.fail_with_half(slot, status);
        }
    }

    pub(super) fn fail(&mut self, slot: Slot, status: Status) {
        self.connection.respond(slot, Completion::of(status), 0);
    }

    pub(super) fn queue(&self) -> QueueId {
        self.admitted
            .map_or(QueueId::ADMIN, |admitted| admitted.queue)
    }

    pub(super) fn make_room(&mut self, slot: Slot, bytes: u32) {
        if self.buffers.len() <= slot.index() {
            self.buffers.resize(slot.index() + 1, Vec::new());
        }
        let buffer = &mut self.buffers[slot.index()];
        buffer.clear();
        buffer.resize(bytes as usize, 0xDD);
    }
}

/// Completes a reset where no I/O queue is left, and a shutdown that the host asked for with it: there is nothing to make durable.
pub(super) fn finish_reset(controller: &mut Controller) {
    match controller.reset_complete() {
        Effect::Shutdown => controller.shutdown_complete(),
        effect => assert_eq!(effect, Effect::None),
    }
}

pub(super) fn takes_data(sqe: &nvme_spec::Sqe, transfer: Transfer) -> bool {
    sqe.direction() == nvme_spec::Direction::HostToController && transfer.bytes() > 0
}
