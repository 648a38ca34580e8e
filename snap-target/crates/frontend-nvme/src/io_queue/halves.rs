//! Fused Compare and Write on a queue: two slots, each with its own data and its own answer, and one request to the engine.

use namespace::{Engine, Io, NamespaceError};
use nvme::controller::{Fused, Fusing, IoCommand};
use nvme::queue::{Completion, Slot, Transfer};
use nvme_spec::{Sqe, Status};
use reactor::buf::IoBuf;

use super::IoQueue;
use crate::message::count;
use crate::table::Key;

/// The halves on one queue.
pub(super) struct Halves {
    fusing: Fusing,
    /// A first half waits for its second.
    waits: bool,
    /// By slot; made with the first fused command.
    by_slot: Vec<Option<Half>>,
    slots: u16,
}

#[derive(Clone, Copy)]
struct Half {
    /// The other half's slot, once that is there.
    other: Option<Slot>,
    is_write: bool,
    has_data: bool,
}

impl Halves {
    pub(super) fn new(slots: u16) -> Self {
        Self {
            fusing: Fusing::default(),
            waits: false,
            by_slot: Vec::new(),
            slots,
        }
    }

    /// Whether a command is a half, or stands where one was to be.
    pub(super) fn concerns(&self, sqe: &Sqe) -> bool {
        self.waits || sqe.fuse() != 0
    }

    fn get(&mut self, slot: Slot) -> Option<&mut Half> {
        self.by_slot.get_mut(slot.index())?.as_mut()
    }

    pub(super) fn is_half(&self, slot: Slot) -> bool {
        self.by_slot.get(slot.index()).is_some_and(Option::is_some)
    }

    /// Whether it is a first half whose second has not come: nothing was asked for it.
    pub(super) fn is_alone(&self, slot: Slot) -> bool {
        let half = self.by_slot.get(slot.index()).copied().flatten();
        half.is_some_and(|half| half.other.is_none())
    }

    fn put(&mut self, slot: Slot, half: Half) {
        if self.by_slot.is_empty() {
            self.by_slot.resize(usize::from(self.slots), None);
        }
        if let Some(place) = self.by_slot.get_mut(slot.index()) {
            *place = Some(half);
        }
    }

    /// Forgets a half; its other one's slot, where it has one.
    fn take(&mut self, slot: Slot) -> Option<Half> {
        self.by_slot.get_mut(slot.index())?.take()
    }

    /// Forgets both halves of an operation that the engine has answered under the write's slot; the Compare's slot.
    pub(super) fn take_pair(&mut self, write: Slot) -> Option<Slot> {
        let compare = self.take(write)?.other?;
        self.take(compare);
        Some(compare)
    }
}

impl IoQueue {
    /// Takes a command that is a half, or that comes where a second half was to come.
    pub(super) fn fused(
        &mut self,
        slot: Slot,
        parsed: Result<IoCommand, Status>,
        key: Key,
        engine: &mut Engine,
    ) {
        let sqe = self.link.command(slot);
        let waits = sqe.fuse() == 1;
        let taken = self.halves.fusing.take(slot, sqe, parsed);
        self.halves.waits = waits;
        self.fail_orphan(taken.orphan);
        match taken.command {
            Fused::Alone(parsed) => self.begin(slot, parsed, key, engine),
            Fused::First => self.place_half(slot, None),
            Fused::Pair { compare, .. } => {
                if let Some(first) = self.halves.get(compare) {
                    first.other = Some(slot);
                }
                self.place_half(slot, Some(compare));
                if self.is_remote(slot)
                    && self.permit(slot, engine).is_ok()
                    && let Some(error) = self.refused(slot, engine)
                {
                    self.halves.take_pair(slot);
                    let (first, second) = (self.parsed(compare), self.parsed(slot));
                    return self.fused_failed((compare, first), (slot, second), &error);
                }
                // One of them asks for both, where both are to be asked for.
                for half in [compare, slot] {
                    if self.is_remote(half) && (half == slot || !self.is_remote(slot)) {
                        self.waiting.push_back(half);
                    }
                }
            }
            Fused::Failed { first, second } => {
                if let Some((compare, status)) = first {
                    self.halves.take(compare);
                    self.fail(compare, status, None);
                }
                self.fail(slot, second, None);
            }
        }
    }

    /// A command that cannot be a half came. A first half that waits has no second one: the two must follow each other.
    pub(super) fn end_waiting_half(&mut self) {
        if std::mem::take(&mut self.halves.waits) {
            let orphan = self.halves.fusing.interrupted();
            self.fail_orphan(orphan);
        }
    }

    fn fail_orphan(&mut self, orphan: Option<Slot>) {
        if let Some(orphan) = orphan {
            self.halves.take(orphan);
            self.fail(orphan, Status::FUSED_MISSING, None);
        }
    }

    /// Data that come with the capsule get memory that nobody waits for.
    fn place_half(&mut self, slot: Slot, other: Option<Slot>) {
        let half = Half {
            other,
            is_write: other.is_some(),
            has_data: false,
        };
        self.halves.put(slot, half);
        if let Transfer::InCapsule { bytes } = self.link.transfer(slot) {
            match IoBuf::heap(bytes as usize) {
                Ok(buf) => self.link.set_buffer(slot, buf),
                Err(_) => self.fail_with_half(slot, Status::INTERNAL_ERROR),
            }
        }
    }

    fn is_remote(&self, slot: Slot) -> bool {
        self.link.transfer(slot).is_asked_for()
    }

    /// The Compare of this Write, where the data of both have to be asked for.
    pub(super) fn other_remote_half(&mut self, slot: Slot) -> Option<Slot> {
        let half = *self.halves.get(slot)?;
        half.other
            .filter(|&other| half.is_write && self.is_remote(other) && self.is_remote(slot))
    }

    /// The data of a half are there; when both are, the engine is asked.
    pub(super) fn half_ready(&mut self, slot: Slot, key: Key, engine: &mut Engine) {
        let Some(half) = self.halves.get(slot) else {
            return;
        };
        half.has_data = true;
        let half = *half;
        let Some(other) = half.other else { return };
        if !self.halves.get(other).is_some_and(|other| other.has_data) {
            return;
        }
        let (compare, write) = if half.is_write {
            (other, slot)
        } else {
            (slot, other)
        };
        if self
            .namespaces
            .get(self.link.command(write).nsid())
            .is_none()
        {
            return self.fail_with_half(write, Status::INVALID_NAMESPACE.dnr());
        }
        let (expected, data) = (self.link.take_buffer(compare), self.link.take_buffer(write));
        let (Some(expected), Some(data), Some(IoCommand::Write(range))) =
            (expected, data, self.parsed(write))
        else {
            return self.fail_with_half(slot, Status::INTERNAL_ERROR);
        };
        let io = Io::CompareAndWrite {
            lba: range.lba.0,
            expected: Box::new(expected),
            data,
            durable: range.force_unit_access,
        };
        self.submit(write, range.nsid.0, io, key, engine);
    }

    /// The engine has carried both out, or failed at one.
    pub(super) fn fused_done(
        &mut self,
        compare: Slot,
        write: Slot,
        result: Result<(), NamespaceError>,
    ) {
        let (first, second) = (self.parsed(compare), self.parsed(write));
        match result {
            Ok(()) => {
                if let Some(command) = second {
                    count(
                        &self.counters.bytes_written,
                        u64::from(command.data_bytes()),
                    );
                    count(&self.counters.write_commands, 1);
                }
                self.compared(compare, first);
                self.respond(write, Completion::SUCCESS, 0);
            }
            Err(error @ NamespaceError::InPart { is_write: true, .. }) => {
                self.compared(compare, first);
                self.failed(write, &error, second);
            }
            Err(error) => self.fused_failed((compare, first), (write, second), &error),
        }
    }

    /// Nothing of either half was done: the one that the error is about has it for its status.
    fn fused_failed(
        &mut self,
        compare: (Slot, Option<IoCommand>),
        write: (Slot, Option<IoCommand>),
        error: &NamespaceError,
    ) {
        let ((failed, command), (other, _)) = match error {
            NamespaceError::ReadOnlyRange { .. } => (write, compare),
            _ => (compare, write),
        };
        self.failed(failed, error, command);
        self.fail(other, Status::FUSED_FAILED, None);
    }

    fn compared(&mut self, compare: Slot, command: Option<IoCommand>) {
        let bytes = command.map_or(0, |command| command.data_bytes());
        count(&self.counters.bytes_read, u64::from(bytes));
        count(&self.counters.read_commands, 1);
        self.respond(compare, Completion::SUCCESS, 0);
    }

    /// Answers a command with an error; where it is a half, the other one fails with it.
    pub(super) fn fail_with_half(&mut self, slot: Slot, status: Status) {
        let half = self.halves.take(slot);
        self.halves.fusing.failed(slot);
        self.fail(slot, status, None);
        let Some(half) = half else { return };
        self.waiting.retain(|waiting| *waiting != slot);
        if let Some(other) = half.other {
            self.halves.take(other);
            self.waiting.retain(|waiting| *waiting != other);
            self.fail(other, Status::FUSED_FAILED, None);
        }
    }
}
