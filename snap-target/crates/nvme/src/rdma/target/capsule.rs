//! The receiving half: command capsules, in the order in which the state allows them.

use super::slots::{Entry, Phase, Remote};
use super::{Connection, Event, ReceiveId, State, Violation};
use crate::queue::admission::{Admission, admit};
use crate::queue::table::Occupant;
use crate::queue::{Completion, Slot, Transfer};
use nvme_spec::command::{SQE_BYTES, SglId};
use nvme_spec::fabrics::{ConnectSqe, connect_offset};
use nvme_spec::rdma::KeyedDataBlock;
use nvme_spec::{Direction, Sqe, Status};
use zerocopy::FromBytes;

/// Bytes of a capsule before its data.
const ENTRY_BYTES: u32 = 64;
const _: () = assert!(ENTRY_BYTES as usize == SQE_BYTES);

impl Connection {
    /// Takes a message that came into `receive`: its first bytes (64 of them, where there are so many), and how many it has in all. Only where
    /// [`super::Want::Capsule`]; otherwise the message stays with the driver.
    pub fn capsule(&mut self, receive: ReceiveId, head: &[u8], bytes: u32) {
        if self.state == State::Closed || self.event.is_some() {
            debug_assert!(false, "capsule() where none was wanted");
            return;
        }
        let Ok((sqe, _)) = Sqe::read_from_prefix(head) else {
            return self.close(Event::Fatal(Violation::ShortCapsule { bytes }));
        };
        if self.slots.is_at_limit() {
            return self.close(Event::Fatal(Violation::Overrun));
        }
        let in_capsule = bytes.saturating_sub(ENTRY_BYTES);
        let entry = command(&sqe, in_capsule, receive);
        let holds_receive = entry.phase == Phase::Capsule;
        let Some(slot) = self.slots.take(entry) else {
            debug_assert!(false, "capsule() without a free slot");
            return self.close(Event::Fatal(Violation::Overrun));
        };
        if !holds_receive {
            self.returned.push_back(receive);
        }
        self.command_arrived(slot, &sqe);
    }

    /// Tells the driver, or answers for it what no state but a live one allows.
    fn command_arrived(&mut self, slot: Slot, sqe: &Sqe) {
        let State::Open(stage) = self.state else {
            return;
        };
        match admit(stage, sqe, || self.slots.is_taken_twice(slot)) {
            Admission::Connect => match self.contradiction(sqe) {
                Some(refusal) => self.respond(slot, refusal, 0),
                None => self.event = Some(Event::Connect { slot }),
            },
            Admission::Command => self.event = Some(Event::Command { slot }),
            Admission::Refused(status) => self.respond(slot, Completion::of(status), 0),
        }
    }

    /// Where Connect says something else than the connect request did: another queue, or more entries than there are receives for.
    fn contradiction(&self, sqe: &Sqe) -> Option<Completion> {
        let connect = ConnectSqe::of(sqe);
        let parameter = if connect.qid.get() != self.request.queue.0 {
            connect_offset::sqe::QID
        } else if connect.sqsize_z.get() >= self.request.entries {
            connect_offset::sqe::SQSIZE
        } else {
            return None;
        };
        Some(Completion {
            status: Status::CONNECT_INVALID_PARAMETERS.dnr(),
            dw0: parameter.into(),
            dw1: 0,
        })
    }

    /// Whether the next command may come now.
    pub(super) fn takes_capsule(&self) -> bool {
        // One that is too many ends the connection, and so needs no slot.
        self.slots.has_free() || self.slots.is_at_limit()
    }
}

/// A command as it came, with so many bytes behind its entry.
fn command(sqe: &Sqe, capsule_bytes: u32, receive: ReceiveId) -> Entry {
    let direction = sqe.direction();
    let mut entry = Entry {
        sqe: *sqe,
        phase: Phase::Held,
        host_to_controller: direction == Direction::HostToController,
        ..Entry::EMPTY
    };
    if matches!(
        direction,
        Direction::HostToController | Direction::ControllerToHost
    ) {
        entry.transfer = match sqe.psdt() {
            0b01 => locate(&mut entry, capsule_bytes, receive),
            // Base, "PSDT": fabrics commands use SGLs, with a contiguous metadata buffer.
            _ => Transfer::Refused(Status::INVALID_FIELD.dnr()),
        };
    }
    entry
}

/// Reads the SGL descriptor of a command (RDMA, "SGL Descriptors": keyed data blocks, and data in the capsule). Bytes of the capsule that no descriptor is about
/// mean nothing.
fn locate(entry: &mut Entry, capsule_bytes: u32, receive: ReceiveId) -> Transfer {
    let refused = |status: Status| Transfer::Refused(status.dnr());
    let descriptor = &entry.sqe.dptr;
    match descriptor.id() {
        SglId::KEYED_DATA_BLOCK | SglId::KEYED_DATA_BLOCK_INVALIDATE => {
            let block: &KeyedDataBlock = zerocopy::transmute_ref!(descriptor);
            let bytes = block.bytes();
            if bytes == 0 {
                return Transfer::None;
            }
            if block.address.get().checked_add(bytes.into()).is_none() {
                return refused(Status::DATA_SGL_LENGTH_INVALID);
            }
            entry.invalidate = block.invalidates();
            entry.remote = Remote {
                address: block.address.get(),
                key: block.key(),
            };
            Transfer::Remote { bytes }
        }
        SglId::IN_CAPSULE_OFFSET if !entry.host_to_controller => refused(Status::SGL_TYPE_INVALID),
        SglId::IN_CAPSULE_OFFSET => {
            let (offset, bytes) = (descriptor.address.get(), descriptor.length.get());
            let Some(offset) = u32::try_from(offset)
                .ok()
                .filter(|&offset| offset <= capsule_bytes)
            else {
                return refused(Status::SGL_OFFSET_INVALID);
            };
            if bytes > capsule_bytes - offset {
                return refused(Status::DATA_SGL_LENGTH_INVALID);
            }
            if bytes == 0 {
                return Transfer::None;
            }
            entry.phase = Phase::Capsule;
            entry.receive = receive;
            entry.capsule_offset = offset;
            Transfer::InCapsule { bytes }
        }
        _ => refused(Status::SGL_TYPE_INVALID),
    }
}
