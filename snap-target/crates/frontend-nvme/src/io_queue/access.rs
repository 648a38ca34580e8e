//! Reservations at an I/O queue: its commands pass the namespace's gate, and reservation commands go to the desk.

use namespace::{Engine, Found, NamespaceError, NamespaceKey};
use nvme::controller::reservation::{HostId, ReservationCommand};
use nvme::controller::{IoCommand, changes_content};
use nvme::queue::{Completion, Slot};
use nvme_spec::{IoOpcode, Nsid, Status};
use reactor::buf::IoBuf;

use super::IoQueue;
use super::ending::{Place, token};
use crate::message::{Message, Reserve};
use crate::table::Key;

/// Namespaces whose gate a queue remembers: more than a host works with at a time.
const FOUND_MAX: usize = 64;

impl IoQueue {
    /// The status of a command that a reservation or a write protection keeps from being carried out. Without either it costs one atomic load.
    pub(super) fn permit(&mut self, slot: Slot, engine: &Engine) -> Result<(), Status> {
        let sqe = self.link.command(slot);
        let (opcode, nsid) = (IoOpcode(sqe.opcode), sqe.nsid());
        let changes = changes_content(sqe);
        if nsid != Nsid::BROADCAST {
            let handle = self.namespaces.get(nsid).map(|info| info.handle);
            return handle.map_or(Ok(()), |handle| self.pass(handle, opcode, changes, engine));
        }
        // A flush of all: of each of them.
        let handles: Vec<u64> = self.namespaces.iter().map(|info| info.handle).collect();
        handles
            .into_iter()
            .try_for_each(|handle| self.pass(handle, opcode, changes, engine))
    }

    /// The same of one namespace that a command concerns, for the opcode that says how, and whether it changes what is there.
    pub(super) fn pass(
        &mut self,
        handle: u64,
        opcode: IoOpcode,
        changes: bool,
        engine: &Engine,
    ) -> Result<(), Status> {
        let Some(gate) = engine.access(NamespaceKey::from_bits(handle)) else {
            return Ok(());
        };
        if gate.is_open() {
            return Ok(());
        }
        let known = self.found.iter().position(|(of, _)| *of == handle);
        let at = known.unwrap_or_else(|| {
            if self.found.len() >= FOUND_MAX {
                self.found.clear();
            }
            self.found.push((handle, Found::default()));
            self.found.len() - 1
        });
        match self.found.get_mut(at) {
            Some((_, found)) => gate.permit(opcode, changes, self.host, found),
            None => gate.permit(opcode, changes, self.host, &mut Found::default()),
        }
    }

    /// Why a write may not be where it names blocks that nobody may write, as [`IoQueue::submit`] will find: its data are not asked for in vain.
    pub(super) fn refused(&self, slot: Slot, engine: &Engine) -> Option<NamespaceError> {
        let Some(IoCommand::Write(range)) = self.parsed(slot) else {
            return None;
        };
        let key = NamespaceKey::from_bits(self.namespaces.get(range.nsid)?.handle);
        engine.refuses_write(key, range.lba.0, range.blocks)
    }

    /// The slot's command, where it is one for the desk.
    pub(super) fn reservation(&self, slot: Slot) -> Option<Result<ReservationCommand, Status>> {
        ReservationCommand::of(
            self.link.command(slot),
            self.link.transfer(slot),
            &self.namespaces,
            self.transfer_bytes_max,
        )
    }

    /// A reservation command came: its keys are asked for, or it goes to the desk.
    pub(super) fn reserve(
        &mut self,
        slot: Slot,
        command: Result<ReservationCommand, Status>,
        key: Key,
    ) {
        // Base, "Reservations" (CTRATT.RHII).
        let command = match command {
            Ok(_) if self.host == HostId::NONE => Err(Status::HOST_ID_NOT_INITIALIZED.dnr()),
            command => command,
        };
        let bytes = match command {
            Ok(ReservationCommand::Change { bytes, .. }) => bytes as usize,
            Ok(ReservationCommand::Report { .. }) => return self.ask_desk(slot, Vec::new(), key),
            Err(status) => return self.fail(slot, status, None),
        };
        let Ok(buf) = IoBuf::heap(bytes) else {
            return self.fail(slot, Status::INTERNAL_ERROR, None);
        };
        self.link.set_buffer(slot, buf);
        if self.link.transfer(slot).is_asked_for()
            && let Err(status) = self.link.request_data(slot)
        {
            self.fail(slot, status, None);
        }
    }

    /// Its keys are there.
    pub(super) fn reserve_with_keys(&mut self, slot: Slot, key: Key) {
        let nsid = self.link.command(slot).nsid();
        let info = self.namespaces.get(nsid);
        if !info.is_some_and(|info| self.means(slot, info)) {
            return self.fail(slot, Status::INVALID_NAMESPACE.dnr(), None);
        }
        match self.link.take_buffer(slot) {
            Some(keys) => self.ask_desk(slot, keys.to_vec(), key),
            None => self.fail(slot, Status::INTERNAL_ERROR, None),
        }
    }

    fn ask_desk(&mut self, slot: Slot, data: Vec<u8>, key: Key) {
        self.put(slot, Place::Desk);
        self.in_flight += 1;
        self.messages.push(Message::Reserve(Box::new(Reserve {
            controller: self.controller,
            queue: self.queue,
            token: token(key, slot),
            sqe: *self.link.command(slot),
            data,
        })));
    }

    /// The desk has answered.
    pub(crate) fn reserved(&mut self, slot: Slot, status: Status, data: &[u8]) {
        self.in_flight -= 1;
        self.put(slot, Place::Here);
        if !status.is_success() {
            return self.fail(slot, status, None);
        }
        match (IoBuf::from_bytes(data), u32::try_from(data.len())) {
            (Ok(buf), Ok(bytes)) => {
                if bytes > 0 {
                    self.link.set_buffer(slot, buf);
                }
                self.respond(slot, Completion::SUCCESS, bytes);
            }
            _ => self.fail(slot, Status::INTERNAL_ERROR, None),
        }
    }
}
