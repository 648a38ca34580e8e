//! Commands besides Read, Write and Flush of one namespace: from what the parser found to what the engine is asked.

use std::sync::Arc;

use namespace::{Engine, Io, NamespaceKey, Source};
use nvme::controller::{BlockRange, CopyCommand, DatasetManagement, IoCommand};
use nvme::queue::{Completion, Slot};
use nvme_spec::{IoOpcode, Nsid, Status};

use super::IoQueue;
use crate::message::count;
use crate::table::Key;

impl IoQueue {
    /// Begins a command that brings no data, or asks for those that it brings.
    pub(super) fn begin_other(
        &mut self,
        slot: Slot,
        command: IoCommand,
        key: Key,
        engine: &mut Engine,
    ) {
        let (nsid, io) = match command {
            IoCommand::Flush(Nsid::BROADCAST) => return self.flush_all(slot, key, engine),
            IoCommand::Flush(nsid) => (nsid, Io::Flush),
            IoCommand::Verify(blocks) => {
                let (lba, count) = (blocks.lba.0, blocks.blocks);
                (blocks.nsid, Io::Verify { lba, blocks: count })
            }
            IoCommand::WriteUncorrectable(blocks) => {
                let (lba, count) = (blocks.lba.0, blocks.blocks);
                (blocks.nsid, Io::WriteUncorrectable { lba, blocks: count })
            }
            IoCommand::WriteZeroes {
                blocks,
                deallocate,
                force_unit_access,
            } => {
                let io = Io::WriteZeroes {
                    lba: blocks.lba.0,
                    blocks: blocks.blocks,
                    deallocate,
                    durable: force_unit_access,
                };
                (blocks.nsid, io)
            }
            with_data => return self.take_data(slot, with_data.data_bytes(), engine),
        };
        self.submit(slot, nsid.0, io, key, engine);
    }

    /// Flush of every namespace that the host sees (VWC 2:1 = 11b).
    fn flush_all(&mut self, slot: Slot, key: Key, engine: &mut Engine) {
        let namespaces = Arc::clone(&self.namespaces);
        let mut all = namespaces.iter();
        let Some(first) = all.next().map(|info| info.nsid.0) else {
            return self.respond(slot, Completion::SUCCESS, 0);
        };
        let others = all
            .map(|info| NamespaceKey::from_bits(info.handle))
            .collect();
        self.submit(slot, first, Io::FlushAll { others }, key, engine);
    }

    /// A command's data are in its buffer.
    pub(super) fn data_ready(&mut self, slot: Slot, key: Key, engine: &mut Engine) {
        if let Some(status) = self.early_end(slot) {
            return self.fail_with_half(slot, status);
        }
        if self.halves.is_half(slot) {
            return self.half_ready(slot, key, engine);
        }
        match self.parsed(slot) {
            Some(IoCommand::Write(range)) => self.write(slot, range, key, engine),
            Some(IoCommand::Compare(range)) => self.compare(slot, range, key, engine),
            Some(IoCommand::DatasetManagement(command)) => {
                self.dataset_management(slot, command, key, engine);
            }
            Some(IoCommand::Copy(command)) => self.copy(slot, command, key, engine),
            None if self.reservation(slot).is_some() => self.reserve_with_keys(slot, key),
            _ => self.fail(slot, Status::INVALID_FIELD.dnr(), None),
        }
    }

    /// SMART: Compare and Verify are reads; what a Copy moved was counted with its length.
    pub(super) fn count_other(&self, command: IoCommand) {
        match command {
            IoCommand::Compare(range) => {
                count(&self.counters.bytes_read, u64::from(range.bytes));
                count(&self.counters.read_commands, 1);
            }
            IoCommand::Verify(blocks) => {
                let info = self.namespaces.get(blocks.nsid);
                let lba_bytes = info.map_or(0, |info| u64::from(info.lba_bytes));
                count(
                    &self.counters.bytes_read,
                    u64::from(blocks.blocks) * lba_bytes,
                );
                count(&self.counters.read_commands, 1);
            }
            _ => {}
        }
    }

    fn compare(&mut self, slot: Slot, range: BlockRange, key: Key, engine: &mut Engine) {
        let Some(data) = self.link.take_buffer(slot) else {
            return self.fail(slot, Status::INTERNAL_ERROR, None);
        };
        let lba = range.lba.0;
        self.submit(slot, range.nsid.0, Io::Compare { lba, data }, key, engine);
    }

    /// What will be read as a whole is fetched ahead, behind everything that is waited for; other hints are checked, and that is all.
    fn dataset_management(
        &mut self,
        slot: Slot,
        command: DatasetManagement,
        key: Key,
        engine: &mut Engine,
    ) {
        let data = self.list(slot);
        match command.blocks(&data, &self.namespaces) {
            Ok(blocks) if command.deallocate && !blocks.is_empty() => {
                let ranges = blocks
                    .into_iter()
                    .map(|(lba, blocks)| (lba.0, blocks))
                    .collect();
                let io = Io::Deallocate { ranges };
                self.submit(slot, command.nsid.0, io, key, engine);
            }
            Ok(blocks) => {
                let info = self.namespaces.get(command.nsid);
                if let Some(info) = info.filter(|_| command.integral_read) {
                    let handle = NamespaceKey::from_bits(info.handle);
                    let ranges: Vec<_> = blocks.iter().map(|(lba, n)| (lba.0, *n)).collect();
                    engine.hint(handle, &ranges);
                }
                self.respond(slot, Completion::SUCCESS, 0);
            }
            Err(refusal) => self.fail(slot, refusal.status, refusal.at),
        }
    }

    fn copy(&mut self, slot: Slot, command: CopyCommand, key: Key, engine: &mut Engine) {
        let data = self.list(slot);
        let sources = match command.sources(&data, &self.namespaces, &self.copy_formats) {
            Ok(sources) => sources,
            Err(refusal) => return self.fail(slot, refusal.status, refusal.at),
        };
        let mut named = Vec::with_capacity(sources.len());
        let mut bytes = 0;
        for source in sources {
            let Some(info) = self.namespaces.get(source.nsid) else {
                return self.fail(slot, Status::INVALID_NAMESPACE.dnr(), None);
            };
            let handle = info.handle;
            bytes += u64::from(source.blocks) * u64::from(info.lba_bytes);
            named.push(Source {
                key: NamespaceKey::from_bits(handle),
                lba: source.lba.0,
                blocks: source.blocks,
            });
            // The command names its destination alone.
            if let Err(status) = self.pass(handle, IoOpcode::READ, false, engine) {
                return self.fail(slot, status, None);
            }
        }
        self.copying.push((slot, bytes));
        let io = Io::Copy {
            lba: command.lba.0,
            sources: named,
            durable: command.force_unit_access,
        };
        self.submit(slot, command.nsid.0, io, key, engine);
    }

    /// The ranges that a command brought: at most a page.
    fn list(&mut self, slot: Slot) -> Vec<u8> {
        self.link
            .take_buffer(slot)
            .map_or_else(Vec::new, |buf| buf.to_vec())
    }
}
