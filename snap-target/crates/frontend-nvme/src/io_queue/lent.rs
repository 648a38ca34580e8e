//! Stores that carry out at once what they take: writes from the host's own memory, and bytes that are fetched into the processor's cache before they are asked for.

use namespace::{Engine, NamespaceKey};
use nvme::controller::{BlockRange, IoCommand};
use nvme::queue::{Slot, Transfer};

use reactor::buf::IoBuf;

use super::{IoQueue, write_of};
use crate::table::Key;

impl IoQueue {
    /// Inlined, so that the range is put where it stays from registers.
    #[inline(always)]
    pub(super) fn begin_write(
        &mut self,
        slot: Slot,
        range: BlockRange,
        transfer: Transfer,
        engine: &mut Engine,
    ) {
        let segments_max = match transfer {
            Transfer::InMemory => self.lent_segments_max(&range, engine),
            _ => 0,
        };
        // What came with its command needs a buffer before the next event.
        if segments_max == 0 {
            return self.take_data(slot, range.bytes, engine);
        }
        self.lent_writes.push_back((slot, range));
        if self.lent_writes.len() == 1 {
            self.expect(self.lent_writes.front(), engine);
        }
    }

    /// Begins writes whose data the store reads where the host has them, once it has taken the request: no copy of ours, and nothing of the host's memory is kept
    /// for long. Where the host names no place that can be read so, they are as others.
    pub(super) fn begin_lent_writes(&mut self, key: Key, engine: &mut Engine) {
        while let Some((slot, range)) = self.lent_writes.pop_front() {
            self.expect(self.lent_writes.front(), engine);
            let segments_max = self.lent_segments_max(&range, engine);
            let mut data = std::mem::take(&mut self.lent);
            let is_lent = self.link.lend(slot, range.bytes, &mut data)
                && data.segments().len() <= segments_max;
            if !is_lent {
                self.take_data(slot, range.bytes, engine);
            } else if !self.write_lent(slot, &range, &data, engine) {
                let data = std::mem::take(&mut data);
                self.submit(slot, range.nsid.0, write_of(&range, data), key, engine);
            }
            data.clear();
            self.lent = data;
        }
    }

    /// A read whose data its store puts where the host wants them, at once: nothing of it is kept meanwhile. False where it is to be asked for as others are.
    pub(super) fn read_placed(
        &mut self,
        slot: Slot,
        range: &BlockRange,
        engine: &mut Engine,
    ) -> bool {
        if range.force_unit_access
            || self.link.placed(slot).is_none()
            || self.lent_segments_max(range, engine) == 0
        {
            return false;
        }
        let Some(key) = self.allowed(slot, range, engine) else {
            return false;
        };
        let (into, blocks) = (self.link.placed(slot), (range.lba.0, range.blocks));
        match into.and_then(|into| engine.read_into(key, blocks, into)) {
            None => return false,
            Some(Ok(())) => {
                self.link.delivered(range.bytes);
                self.was_read(slot, range, 0);
            }
            Some(Err(error)) => self.failed(slot, &error, self.parsed(slot)),
        }
        true
    }

    /// The same of a write.
    fn write_lent(
        &mut self,
        slot: Slot,
        range: &BlockRange,
        data: &IoBuf,
        engine: &mut Engine,
    ) -> bool {
        let Some(key) = self.allowed(slot, range, engine) else {
            return false;
        };
        let blocks = (range.lba.0, range.blocks);
        self.counters.changed.note(range.nsid);
        match engine.write_from(key, blocks, data, range.force_unit_access) {
            None => return false,
            Some(Ok(())) => self.written(slot, range),
            Some(Err(error)) => self.failed(slot, &error, self.parsed(slot)),
        }
        true
    }

    /// The namespace of a command that may be carried out. What may not is asked for all the same, and refused.
    fn allowed(&mut self, slot: Slot, range: &BlockRange, engine: &Engine) -> Option<NamespaceKey> {
        let info = self
            .namespaces
            .get(range.nsid)
            .filter(|info| self.means(slot, info))?;
        let key = NamespaceKey::from_bits(info.handle);
        self.permit(slot, engine).ok()?;
        Some(key)
    }

    /// How many segments a write's data may have for that; 0 where its store does not.
    fn lent_segments_max(&self, range: &BlockRange, engine: &Engine) -> usize {
        let info = self.namespaces.get(range.nsid);
        info.map_or(0, |info| {
            engine.lent_segments_max(NamespaceKey::from_bits(info.handle))
        })
    }

    /// A command that begins soon, the first that waits or the one behind that which begins: its bytes are on their way into the cache meanwhile.
    pub(super) fn expect(&self, next: Option<&(Slot, BlockRange)>, engine: &Engine) {
        if let Some((slot, range)) = next
            && let Some(info) = self.namespaces.get(range.nsid)
        {
            let is_change = matches!(self.parsed(*slot), Some(IoCommand::Write(_)));
            engine.expect(
                NamespaceKey::from_bits(info.handle),
                range.offset_bytes,
                range.bytes,
                is_change,
            );
        }
    }
}
