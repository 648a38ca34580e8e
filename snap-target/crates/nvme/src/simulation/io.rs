//! The I/O commands of a [`TargetQueue`]: from what the parsers say to what the store is asked, and its answers.

use crate::Time;
use crate::controller::reservation::{HostId, ReservationCommand};
use crate::controller::{Blocks, CopyFormats, Fused, Fusing, IoCommand, parse_io};
use crate::queue::{Completion, Slot};
use nvme_spec::{IoOpcode, Nsid, Sqe, Status};

use super::conduct::IoFault;
use super::store::{Answer, Asker, Io, Request};
use super::target::{MemoryTarget, TargetQueue, takes_data};

/// When a request is due that is not answered while its connection lasts.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// Halves of fused operations on one queue.
#[derive(Default)]
pub struct Halves {
    fusing: Fusing,
    /// A first half waits for its second.
    waits: bool,
    halves: Vec<Half>,
}

struct Half {
    slot: Slot,
    /// The other one, once it is there.
    other: Option<Slot>,
    is_write: bool,
    has_data: bool,
}

impl Halves {
    fn get(&mut self, slot: Slot) -> Option<&mut Half> {
        self.halves.iter_mut().find(|half| half.slot == slot)
    }

    fn take(&mut self, slot: Slot) -> Option<Half> {
        let place = self.halves.iter().position(|half| half.slot == slot)?;
        Some(self.halves.swap_remove(place))
    }
}

impl TargetQueue {
    pub(super) fn io_command(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        if let Some(status) = target.conduct.refuses_io() {
            return self.fail(slot, status);
        }
        let sqe = *self.connection.command(slot);
        let parsed = match self.reservation(slot, target) {
            Some(command) if sqe.fuse() == 0 => {
                self.end_waiting_half();
                return match command {
                    Err(status) => self.fail(slot, status),
                    Ok(ReservationCommand::Change { bytes, .. }) => {
                        self.take_data(slot, bytes, now);
                    }
                    Ok(ReservationCommand::Report { nsid, bytes }) => {
                        self.submit(slot, Io::Report { nsid, bytes }, target, now);
                    }
                };
            }
            Some(_) => Err(Status::INVALID_FIELD.dnr()),
            None => self.parse(slot, target),
        };
        if self.halves.waits || sqe.fuse() != 0 {
            self.fused(slot, &sqe, parsed, target, now);
        } else {
            self.begin(slot, parsed, target, now);
        }
    }

    fn parse(&self, slot: Slot, target: &MemoryTarget) -> Result<IoCommand, Status> {
        let (sqe, transfer) = (
            self.connection.command(slot),
            self.connection.transfer(slot),
        );
        let limit = self.connection.limits().transfer_bytes_max;
        parse_io(sqe, transfer, &target.namespaces, limit)
    }

    fn reservation(
        &self,
        slot: Slot,
        target: &MemoryTarget,
    ) -> Option<Result<ReservationCommand, Status>> {
        let (sqe, transfer) = (
            self.connection.command(slot),
            self.connection.transfer(slot),
        );
        let limit = self.connection.limits().transfer_bytes_max;
        ReservationCommand::of(sqe, transfer, &target.namespaces, limit)
    }

    /// A command that is no half of a fused operation: its data first, where it brings some.
    fn begin(
        &mut self,
        slot: Slot,
        parsed: Result<IoCommand, Status>,
        target: &mut MemoryTarget,
        now: Time,
    ) {
        let transfer = self.connection.transfer(slot);
        let takes_data = takes_data(self.connection.command(slot), transfer);
        match parsed {
            Err(status) => self.fail(slot, status),
            Ok(command) if takes_data => self.take_data(slot, command.data_bytes(), now),
            Ok(command) => {
                self.make_room(slot, command.data_bytes());
                self.execute(slot, target, now);
            }
        }
    }

    pub(super) fn data_ready(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        if self.halves.get(slot).is_some() {
            return self.half_ready(slot, target, now);
        }
        if self.reservation(slot, target).is_some() {
            let sqe = *self.connection.command(slot);
            let keys = std::mem::take(&mut self.buffers[slot.index()]);
            return self.submit(slot, Io::Reserve { sqe, keys }, target, now);
        }
        self.execute(slot, target, now);
    }

    fn execute(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        let id = self.controller();
        let Some(controller) = id.and_then(|id| target.registry.controller_mut(id)) else {
            return self.fail(slot, Status::INTERNAL_ERROR);
        };
        controller.traffic(now);
        let (host, formats) = (controller.reservation_host(), controller.copy_formats());
        let sqe = *self.connection.command(slot);
        let io = self
            .parse(slot, target)
            .and_then(|command| self.io_of(slot, command, target, host, &formats));
        let permitted = io.and_then(|io| permit(target, &sqe, host).map(|()| io));
        match permitted {
            Ok(io) => self.submit(slot, io, target, now),
            Err(status) => self.fail(slot, status),
        }
    }

    fn io_of(
        &mut self,
        slot: Slot,
        command: IoCommand,
        target: &MemoryTarget,
        host: HostId,
        formats: &CopyFormats,
    ) -> Result<Io, Status> {
        let mut data = || self.buffers.get_mut(slot.index()).map(std::mem::take);
        Ok(match command {
            IoCommand::Read(range) => Io::Read(range),
            IoCommand::Write(range) => Io::Write(range, data().unwrap_or_default()),
            IoCommand::Compare(range) => Io::Compare(range, data().unwrap_or_default()),
            IoCommand::Flush(_) => Io::Nothing,
            IoCommand::Verify(blocks) => Io::Verify(blocks),
            IoCommand::WriteZeroes { blocks, .. } => Io::Zero(vec![blocks]),
            IoCommand::WriteUncorrectable(blocks) => Io::Mark(blocks),
            IoCommand::DatasetManagement(command) => {
                let ranges = command.blocks(&data().unwrap_or_default(), &target.namespaces)?;
                if !command.deallocate {
                    return Ok(Io::Nothing);
                }
                let nsid = command.nsid;
                let ranges = ranges.into_iter();
                Io::Zero(
                    ranges
                        .map(|(lba, blocks)| Blocks { nsid, lba, blocks })
                        .collect(),
                )
            }
            IoCommand::Copy(command) => {
                let list = data().unwrap_or_default();
                let sources = command.sources(&list, &target.namespaces, formats)?;
                for source in &sources {
                    // The command names its destination alone.
                    target.store.permit(source.nsid, host, IoOpcode::READ)?;
                }
                let to = Blocks {
                    nsid: command.nsid,
                    lba: command.lba,
                    blocks: sources.iter().map(|source| source.blocks).sum(),
                };
                Io::Copy { to, sources }
            }
        })
    }

    fn submit(&mut self, slot: Slot, io: Io, target: &mut MemoryTarget, now: Time) {
        let Some(admitted) = self.admitted else {
            return self.fail(slot, Status::INTERNAL_ERROR);
        };
        let Some(controller) = target.registry.controller(admitted.controller) else {
            return self.fail(slot, Status::INTERNAL_ERROR);
        };
        let host = controller.reservation_host();
        let (due, fails) = match target.conduct.next_fault() {
            None => (now + target.random.below(target.latency_max), None),
            Some(IoFault::Refuse(status) | IoFault::Fail(status)) => {
                return self.fail(slot, status);
            }
            Some(IoFault::FailDone(status)) => {
                (now + target.random.below(target.latency_max), Some(status))
            }
            Some(IoFault::Silent) => (NEVER, None),
        };
        target.store.submit(Request {
            asker: Asker {
                connection: self.id,
                slot,
            },
            owner: (admitted.controller, admitted.queue),
            host,
            io,
            due,
            fails,
        });
        if target.latency_max.is_zero() {
            target.run(now);
            self.collect(target);
        }
    }

    /// Passes the store's answers on.
    pub(super) fn collect(&mut self, target: &mut MemoryTarget) {
        for (Asker { slot, .. }, answer) in target.store.take(self.id) {
            match answer {
                Answer::Io(Ok(data)) => {
                    let bytes = u32::try_from(data.len()).unwrap();
                    if bytes > 0 {
                        self.make_room(slot, 0);
                        self.buffers[slot.index()] = data;
                    }
                    self.connection.respond(slot, Completion::SUCCESS, bytes);
                }
                Answer::Io(Err(status)) => self.fail(slot, status),
                Answer::Pair { compare, result } => {
                    let (first, second) = match result {
                        Ok(()) => (Status::SUCCESS, Status::SUCCESS),
                        Err(status) => (status, Status::FUSED_FAILED),
                    };
                    self.fail(compare, first);
                    self.fail(slot, second);
                }
                Answer::Abort(aborted) => self.abort_ends(slot, aborted, target),
            }
        }
    }

    /// Aborts that name commands of this queue.
    pub(super) fn take_aborts(&mut self, target: &mut MemoryTarget) {
        let Some(admitted) = self.admitted else {
            return;
        };
        let ours = (admitted.controller, admitted.queue);
        if !target.aborts.iter().any(|order| order.queue == ours) {
            return;
        }
        let orders = target.aborts.extract_if(.., |order| order.queue == ours);
        for order in orders.collect::<Vec<_>>() {
            let found = self.connection.find(order.cid);
            let Some(slot) = found.filter(|slot| self.halves.get(*slot).is_none()) else {
                target.store.answer(order.asker, Answer::Abort(false));
                continue;
            };
            let asker = Asker {
                connection: self.id,
                slot,
            };
            if target.abort(asker, order.asker) {
                continue;
            }
            // Either it waits for its data, or the store will not give it up.
            let is_held = target.store.has(asker);
            if !is_held {
                self.fail(slot, Status::ABORT_REQUESTED);
            }
            target.store.answer(order.asker, Answer::Abort(!is_held));
        }
    }

    fn fused(
        &mut self,
        slot: Slot,
        sqe: &Sqe,
        parsed: Result<IoCommand, Status>,
        target: &mut MemoryTarget,
        now: Time,
    ) {
        self.halves.waits = sqe.fuse() == 1;
        let taken = self.halves.fusing.take(slot, sqe, parsed);
        self.fail_orphan(taken.orphan);
        match taken.command {
            Fused::Alone(parsed) => self.begin(slot, parsed, target, now),
            Fused::First => self.begin_half(slot, None, now),
            Fused::Pair { compare, .. } => {
                if let Some(first) = self.halves.get(compare) {
                    first.other = Some(slot);
                }
                self.begin_half(slot, Some(compare), now);
            }
            Fused::Failed { first, second } => {
                if let Some((compare, status)) = first {
                    self.halves.take(compare);
                    self.fail(compare, status);
                }
                self.fail(slot, second);
            }
        }
    }

    fn begin_half(&mut self, slot: Slot, other: Option<Slot>, now: Time) {
        self.halves.halves.push(Half {
            slot,
            other,
            is_write: other.is_some(),
            has_data: false,
        });
        let bytes = self.connection.transfer(slot).bytes();
        self.take_data(slot, bytes, now);
    }

    fn half_ready(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        let Some(half) = self.halves.get(slot) else {
            return;
        };
        half.has_data = true;
        let (is_write, Some(other)) = (half.is_write, half.other) else {
            return;
        };
        if !self.halves.get(other).is_some_and(|other| other.has_data) {
            return;
        }
        let (compare, write) = if is_write {
            (other, slot)
        } else {
            (slot, other)
        };
        let id = self.controller();
        let host = id.and_then(|id| Some(target.registry.controller(id)?.reservation_host()));
        let sqe = *self.connection.command(write);
        let permitted = match host {
            Some(host) => permit(target, &sqe, host),
            None => Err(Status::INTERNAL_ERROR),
        };
        let range = match (permitted, self.parse(write, target)) {
            (Ok(()), Ok(IoCommand::Write(range))) => range,
            (Err(status), _) | (_, Err(status)) => return self.fail_with_half(write, status),
            _ => return self.fail_with_half(write, Status::INTERNAL_ERROR),
        };
        self.halves.take(compare);
        self.halves.take(write);
        let [expected, data] =
            [compare, write].map(|half| std::mem::take(&mut self.buffers[half.index()]));
        let io = Io::CompareAndWrite {
            compare,
            range,
            expected,
            data,
        };
        self.submit(write, io, target, now);
    }

    /// A command that cannot be a half came: the two must follow each other.
    fn end_waiting_half(&mut self) {
        self.halves.waits = false;
        let orphan = self.halves.fusing.interrupted();
        self.fail_orphan(orphan);
    }

    fn fail_orphan(&mut self, orphan: Option<Slot>) {
        if let Some(orphan) = orphan {
            self.halves.take(orphan);
            self.fail(orphan, Status::FUSED_MISSING);
        }
    }

    /// Answers a command with an error; where it is a half, the other one fails with it.
    pub(super) fn fail_with_half(&mut self, slot: Slot, status: Status) {
        let half = self.halves.take(slot);
        self.halves.fusing.failed(slot);
        self.fail(slot, status);
        if let Some(other) = half.and_then(|half| half.other) {
            self.halves.take(other);
            self.fail(other, Status::FUSED_FAILED);
        }
    }
}

/// What the reservation of the command's own namespace says.
fn permit(target: &MemoryTarget, sqe: &Sqe, host: HostId) -> Result<(), Status> {
    let opcode = IoOpcode(sqe.opcode);
    let nsid: Nsid = sqe.nsid();
    target.store.permit(nsid, host, opcode)
}
