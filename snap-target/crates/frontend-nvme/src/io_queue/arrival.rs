//! A command that has come: parsed, and begun.

use namespace::Engine;
use nvme::controller::{IoCommand, parse_io};
use nvme::queue::{Slot, Transfer};
use nvme_spec::Status;

use super::IoQueue;
use crate::table::Key;

impl IoQueue {
    /// Inlined as [`parse_io`] is.
    #[inline(always)]
    fn parse(&self, slot: Slot, transfer: Transfer) -> Result<IoCommand, Status> {
        parse_io(
            self.link.command(slot),
            transfer,
            &self.namespaces,
            self.transfer_bytes_max,
        )
    }

    /// The slot's command, as [`IoQueue::command`] found it.
    pub(super) fn parsed(&self, slot: Slot) -> Option<IoCommand> {
        self.commands.get(slot.index()).copied().flatten()
    }

    fn keep(&mut self, slot: Slot, command: Option<IoCommand>) {
        if let Some(place) = self.commands.get_mut(slot.index()) {
            *place = command;
        }
    }

    pub(super) fn command(&mut self, slot: Slot, key: Key, engine: &mut Engine) {
        let sqe = self.link.command(slot);
        self.meter.begin(slot, sqe, &self.namespaces);
        self.share.begun(self.meter.now_ns());
        self.outstanding += 1;
        let named = self.namespaces.get(sqe.nsid()).map(|info| info.uuid);
        if let Some(place) = self.named.get_mut(slot.index()) {
            *place = named;
        }
        let is_half = self.halves.concerns(sqe);
        // Reads and writes by their fields: a command that is copied as a whole is read wider than it was written, and waits there for every store before it.
        // So the others, which are, are parsed once more.
        let transfer = self.link.transfer(slot);
        match self.parse(slot, transfer) {
            Ok(IoCommand::Read(range)) if !is_half => {
                self.keep(slot, Some(IoCommand::Read(range)));
                self.begin_read(slot, range, transfer, key, engine);
            }
            Ok(IoCommand::Write(range)) if !is_half => {
                self.keep(slot, Some(IoCommand::Write(range)));
                self.begin_write(slot, range, transfer, engine);
            }
            _ => self.command_apart(slot, is_half, key, engine),
        }
    }

    /// A command that is no read or write, or may be a half of a fused operation.
    #[inline(never)]
    fn command_apart(&mut self, slot: Slot, is_half: bool, key: Key, engine: &mut Engine) {
        let parsed = match self.reservation(slot) {
            Some(command) if self.link.command(slot).fuse() == 0 => {
                self.keep(slot, None);
                self.end_waiting_half();
                return self.reserve(slot, command, key);
            }
            // No reservation command is a half; where one says so, it stands for it.
            Some(_) => Err(Status::INVALID_FIELD.dnr()),
            None => self.parse(slot, self.link.transfer(slot)),
        };
        self.keep(slot, parsed.ok());
        if is_half {
            self.fused(slot, parsed, key, engine);
        } else {
            self.begin(slot, parsed, key, engine);
        }
    }

    /// Begins a command that is no half of a fused operation.
    pub(super) fn begin(
        &mut self,
        slot: Slot,
        parsed: Result<IoCommand, Status>,
        key: Key,
        engine: &mut Engine,
    ) {
        let transfer = self.link.transfer(slot);
        match parsed {
            Ok(IoCommand::Read(range)) => self.begin_read(slot, range, transfer, key, engine),
            Ok(IoCommand::Write(range)) => self.begin_write(slot, range, transfer, engine),
            Ok(command) => self.begin_other(slot, command, key, engine),
            Err(status) => self.fail(slot, status, None),
        }
    }
}
