//! Stores that carry out at once what they take: writes from the host's own memory, and bytes that are fetched into the processor's cache before they are asked for.

use namespace::{Engine, Io, NamespaceKey};
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
            let mut io = write_of(&range, IoBuf::empty());
            let is_lent = match &mut io {
                Io::Write { data, .. } => {
                    self.link.lend(slot, range.bytes, data) && data.segments().len() <= segments_max
                }
                _ => false,
            };
            match is_lent {
                true => self.ask(slot, range.nsid.0, &mut io, key, engine),
                false => self.take_data(slot, range.bytes, engine),
            }
        }
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
