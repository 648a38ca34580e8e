//! A whole target without I/O: controllers, disks in memory, and connections driven by bytes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nvme::Time;
use nvme::controller::{
    AdminCommand, Admitted, BlockRange, ConnectContext, Controller, ControllerId, ControllerLimits,
    Effect, HostPolicy, IoCommand, Listener, NamespaceInfo, NamespaceSet, NotAdmitted, Outcome,
    Protection, Registry, Subsystem, Target, Transport, Visibility, buffer_bytes, parse_io,
};
use nvme::digest::{crc32c, crc32c_append};
use nvme::nqn::Nqn;
use nvme::queue::{Completion, QueueId, Transfer};
use nvme::tcp::batch::{Slot, TxBatch};
use nvme::tcp::target::{Connection, Event, TargetLimits, Want};
use nvme_spec::{Nsid, Status};

use super::random::Random;

/// The subsystem that a [`MemoryTarget`] serves.
pub const SUBNQN: &str = "nqn.2026-11.test:memory";

/// A disk to serve.
pub struct Disk {
    pub lba_bytes: u32,
    pub write_protected: bool,
    pub bytes: Vec<u8>,
}

/// Controllers and disks: what all connections share.
pub struct MemoryTarget {
    pub registry: Registry,
    pub disks: BTreeMap<u32, Disk>,
    /// The store answers within this time, each command another.
    pub latency_max: Duration,
    /// Writes that the store has when their connection ends stay with it for up to this time; zero: they are applied then or never.
    pub late_max: Duration,
    pub random: Random,
    /// Controllers whose host cleared CC.EN: their I/O queues' connections are to be closed.
    pub resets: Vec<ControllerId>,
    late: Vec<Late>,
    limits: TargetLimits,
    namespaces: Arc<NamespaceSet>,
    context: ConnectContext,
}

impl MemoryTarget {
    /// Serves the disks as namespaces 1, 2, ...
    pub fn new(
        disks: impl IntoIterator<Item = Disk>,
        controllers: ControllerLimits,
        limits: TargetLimits,
        local: SocketAddr,
    ) -> MemoryTarget {
        let disks: BTreeMap<u32, Disk> = (1..).zip(disks).collect();
        let namespaces = disks.iter().map(|(&nsid, disk)| NamespaceInfo {
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
            volatile_cache: true,
            optimal_boundary_blocks: 0,
            optimal_blocks: 0,
            deallocated_reads_zeros: false,
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
            disks,
            latency_max: Duration::ZERO,
            late_max: Duration::ZERO,
            random: Random::new(1),
            resets: Vec::new(),
            late: Vec::new(),
            limits,
            namespaces,
            context: ConnectContext::tcp(local),
        }
    }

    /// Applies what the store has finished of queues that are gone, and reports each with its last write.
    pub fn run(&mut self, now: Time) {
        let (mut due, later): (Vec<Late>, Vec<Late>) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|late| late.due <= now);
        self.late = later;
        due.sort_by_key(|late| late.due);
        let mut queues: Vec<(ControllerId, QueueId)> = Vec::new();
        for late in due {
            self.write(late.range, &late.data);
            queues.push(late.queue);
        }
        queues.dedup();
        for queue in queues {
            self.close_if_drained(queue);
        }
    }

    /// When [`MemoryTarget::run`] has something to do.
    pub fn next_due(&self) -> Option<Time> {
        self.late.iter().map(|late| late.due).min()
    }

    /// Writes that the store has of queues that are gone.
    pub fn late_writes(&self) -> usize {
        self.late.len()
    }

    fn close_if_drained(&mut self, (controller, queue): (ControllerId, QueueId)) {
        if self
            .late
            .iter()
            .any(|late| late.queue == (controller, queue))
        {
            return;
        }
        self.registry.closed(controller, queue);
        if let Some(controller) = self.registry.controller_mut(controller) {
            finish_reset(controller);
        }
    }

    fn write(&mut self, range: BlockRange, data: &[u8]) {
        self.blocks(range).copy_from_slice(data);
    }

    fn blocks(&mut self, range: BlockRange) -> &mut [u8] {
        let start = usize::try_from(range.offset_bytes).unwrap();
        let disk = self.disks.get_mut(&range.nsid.0).unwrap();
        &mut disk.bytes[start..start + range.bytes as usize]
    }
}

/// A write that the store still has, and whose connection is gone.
#[derive(Debug)]
struct Late {
    queue: (ControllerId, QueueId),
    range: BlockRange,
    data: Vec<u8>,
    due: Time,
}

/// One connection of a target.
pub struct TargetQueue {
    pub connection: Connection,
    admitted: Option<Admitted>,
    buffers: Vec<Vec<u8>>,
    /// I/O commands with the store.
    running: Vec<Running>,
    /// A Connect that waits until the host's last controller has ended.
    waiting: Option<Slot>,
    batch: TxBatch,
    /// Why the connection is over, once it is.
    pub ended: Option<Event>,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    slot: Slot,
    command: IoCommand,
    due: Time,
}

impl TargetQueue {
    pub fn new(target: &MemoryTarget, now: Time) -> TargetQueue {
        TargetQueue {
            connection: Connection::new(&target.limits, now),
            admitted: None,
            buffers: Vec::new(),
            running: Vec::new(),
            waiting: None,
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

    /// Completes what the store has finished, and lets time pass.
    pub fn run(&mut self, target: &mut MemoryTarget, now: Time) {
        self.connection.tick(now);
        if self.connection.want() == Want::Event {
            self.event(target, now);
        }
        if let Some(slot) = self.waiting.take() {
            self.connect(slot, target, now);
        }
        let (due, later) = self.running.iter().partition(|running| running.due <= now);
        self.running = later;
        let due: Vec<Running> = due;
        for running in due {
            self.finish(running, target);
        }
    }

    /// When [`TargetQueue::run`] has something to do.
    pub fn next_due(&self) -> Option<Time> {
        self.running.iter().map(|running| running.due).min()
    }

    /// Appends what is to be sent.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        loop {
            self.connection.transmit(&mut self.batch);
            if self.batch.is_empty() {
                return;
            }
            for index in 0..self.batch.items().len() {
                let item = self.batch.items()[index].clone();
                let payload: &[u8] = item.payload.map_or(&[], |payload| {
                    let start = payload.offset as usize;
                    &self.buffers[payload.slot.index()][start..start + payload.len as usize]
                });
                self.batch.set_data_digest(index, crc32c(payload));
                out.extend_from_slice(self.batch.header(&item));
                out.extend_from_slice(payload);
                out.extend_from_slice(self.batch.digest(&item));
                if let Some(slot) = item.ends {
                    self.connection.transmitted(slot);
                }
            }
            self.batch.clear();
        }
    }

    /// The connection is gone. Of the writes that the store had, some are never applied, and the others late, or at once where nothing is
    /// ever late. The queue counts as closed when the last has ended.
    pub fn close(&mut self, target: &mut MemoryTarget, now: Time) {
        self.waiting = None;
        let running = std::mem::take(&mut self.running);
        let Some(admitted) = self.admitted.take() else {
            return;
        };
        let queue = (admitted.controller, admitted.queue);
        for Running { slot, command, .. } in running {
            let IoCommand::Write(range) = command else {
                continue;
            };
            let data = std::mem::take(&mut self.buffers[slot.index()]);
            if target.late_max.is_zero() {
                if target.random.once_in(2) {
                    target.write(range, &data);
                }
            } else if !target.random.once_in(4) {
                let due = now + target.random.below(target.late_max);
                target.late.push(Late {
                    queue,
                    range,
                    data,
                    due,
                });
            }
        }
        target.close_if_drained(queue);
    }

    fn event(&mut self, target: &mut MemoryTarget, now: Time) {
        match self.connection.next_event() {
            Some(Event::Connect { slot }) => {
                let status = Status::DATA_SGL_LENGTH_INVALID.dnr();
                match self.connection.transfer(slot).bytes() {
                    1024 => self.take_data(slot, 1024, now),
                    _ => self.connection.respond(slot, Completion::of(status), 0),
                }
            }
            Some(Event::Command { slot }) => self.command(slot, target, now),
            Some(Event::DataReady { slot }) if self.admitted.is_none() => {
                self.connect(slot, target, now);
            }
            Some(Event::DataReady { slot }) => self.execute(slot, target, now),
            Some(Event::DataCorrupt { slot }) => {
                let status = Completion::of(Status::TRANSIENT_TRANSPORT_ERROR);
                self.connection.respond(slot, status, 0);
            }
            Some(end) => self.ended = Some(end),
            None => {}
        }
    }

    fn connect(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        let sqe = *self.connection.command(slot);
        let data = &self.buffers[slot.index()];
        match target.registry.connect(&sqe, data, &target.context, now) {
            Ok(admitted) => {
                self.connection
                    .established(admitted.entries, admitted.flow_control);
                self.connection.authenticated();
                self.connection.respond(slot, admitted.completion, 0);
                self.admitted = Some(admitted);
            }
            Err(NotAdmitted::Refused(refusal)) => self.connection.respond(slot, refusal, 0),
            Err(NotAdmitted::Later) => self.waiting = Some(slot),
        }
    }

    /// A command came: room for its data, then its data, then its execution.
    fn command(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        let sqe = *self.connection.command(slot);
        let transfer = self.connection.transfer(slot);
        let is_admin = self.queue().is_admin();
        let limit = self.connection.limits().transfer_bytes_max;
        let bytes = if is_admin {
            buffer_bytes(&sqe, transfer, limit)
        } else {
            parse_io(&sqe, transfer, &target.namespaces, limit).and_then(|command| match command {
                IoCommand::Read(_) | IoCommand::Write(_) | IoCommand::Flush(_) => {
                    Ok(command.data_bytes())
                }
                _ => Err(Status::INVALID_OPCODE.dnr()),
            })
        };
        match bytes {
            Err(status) => self.connection.respond(slot, Completion::of(status), 0),
            Ok(bytes) if takes_data(&sqe, transfer) => self.take_data(slot, bytes, now),
            Ok(bytes) => {
                self.make_room(slot, bytes);
                self.execute(slot, target, now);
            }
        }
    }

    fn take_data(&mut self, slot: Slot, bytes: u32, now: Time) {
        self.make_room(slot, bytes);
        if matches!(self.connection.transfer(slot), Transfer::Remote { .. })
            && let Err(status) = self.connection.request_data(slot, now)
        {
            self.connection.respond(slot, Completion::of(status), 0);
        }
    }

    fn execute(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        if self.queue().is_admin() {
            return self.execute_admin(slot, target, now);
        }
        let sqe = *self.connection.command(slot);
        let transfer = self.connection.transfer(slot);
        let limit = self.connection.limits().transfer_bytes_max;
        if let Some(controller) = self
            .controller()
            .and_then(|id| target.registry.controller_mut(id))
        {
            controller.traffic(now);
        }
        let command = parse_io(&sqe, transfer, &target.namespaces, limit).unwrap();
        let running = Running {
            slot,
            command,
            due: now + target.random.below(target.latency_max),
        };
        if target.latency_max.is_zero() {
            self.finish(running, target);
        } else {
            self.running.push(running);
        }
    }

    fn execute_admin(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        let sqe = *self.connection.command(slot);
        let transfer = self.connection.transfer(slot);
        let id = self.controller();
        let Some(controller) = id.and_then(|id| target.registry.controller_mut(id)) else {
            let status = Status::INTERNAL_ERROR;
            return self.connection.respond(slot, Completion::of(status), 0);
        };
        let buffer = std::mem::take(&mut self.buffers[slot.index()]);
        let mut out = vec![0; buffer.len()];
        let command = AdminCommand {
            sqe: &sqe,
            slot,
            transfer,
            data: &buffer,
        };
        match controller.execute(&command, &mut out, now) {
            Outcome::Done {
                completion,
                data_bytes,
                effect,
            } => {
                match effect {
                    Effect::None => {}
                    Effect::Shutdown => controller.shutdown_complete(),
                    Effect::Reset => {
                        finish_reset(controller);
                        target.resets.extend(id);
                    }
                }
                self.buffers[slot.index()] = out;
                self.connection.respond(slot, completion, data_bytes);
            }
            Outcome::Pending => {}
            // Nothing here is kept, and nobody asks.
            Outcome::OfNamespace(_) => {
                let completion = Completion::of(Status::FEATURE_NOT_CHANGEABLE.dnr());
                self.connection.respond(slot, completion, 0);
            }
            Outcome::Abort { .. } => {
                let completion = controller.abort_finished(false);
                self.connection.respond(slot, completion, 0);
            }
        }
    }

    fn finish(&mut self, running: Running, target: &mut MemoryTarget) {
        let data_len = self.apply(running, target);
        self.connection
            .respond(running.slot, Completion::SUCCESS, data_len);
    }

    /// Moves the data between the slot's buffer and the disk; says how many go to the host.
    fn apply(&mut self, running: Running, target: &mut MemoryTarget) -> u32 {
        let (range, is_read) = match running.command {
            IoCommand::Read(range) => (range, true),
            IoCommand::Write(range) => (range, false),
            _ => return 0,
        };
        let disk = target.blocks(range);
        let buffer = &mut self.buffers[running.slot.index()];
        if is_read {
            buffer.copy_from_slice(disk);
            range.bytes
        } else {
            disk.copy_from_slice(buffer);
            0
        }
    }

    fn queue(&self) -> QueueId {
        self.admitted
            .map_or(QueueId::ADMIN, |admitted| admitted.queue)
    }

    fn make_room(&mut self, slot: Slot, bytes: u32) {
        if self.buffers.len() <= slot.index() {
            self.buffers.resize(slot.index() + 1, Vec::new());
        }
        let buffer = &mut self.buffers[slot.index()];
        buffer.clear();
        buffer.resize(bytes as usize, 0xDD);
    }
}

/// Completes a reset where no I/O queue is left, and a shutdown that the host asked for with it: there is nothing to make durable.
fn finish_reset(controller: &mut Controller) {
    match controller.reset_complete() {
        Effect::Shutdown => controller.shutdown_complete(),
        effect => assert_eq!(effect, Effect::None),
    }
}

fn takes_data(sqe: &nvme_spec::Sqe, transfer: Transfer) -> bool {
    sqe.direction() == nvme_spec::Direction::HostToController && transfer.bytes() > 0
}
