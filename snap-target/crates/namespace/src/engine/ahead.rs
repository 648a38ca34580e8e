//! An engine's reading ahead: it tells each namespace's machine of reads, and has fetched what that names.

use volume::ahead::ReaderId;

use super::Engine;
use crate::raw::check;
use crate::{Io, NamespaceKey};

impl Engine {
    /// A read of a namespace, or of the part of one that has all of its blocks, begins; returns how many bytes are to be told of at its end.
    pub(super) fn note_read(&mut self, index: usize, reader: ReaderId, io: &Io) -> u64 {
        let attached = &mut self.attached[index];
        let lba_bytes = u64::from(attached.shared.lba_bytes);
        if let (Some(ahead), Io::Read { lba, blocks, .. }) = (&mut attached.ahead, io) {
            let (start, bytes) = (lba * lba_bytes, u64::from(*blocks) * lba_bytes);
            ahead.read(reader, start..start + bytes);
            return bytes;
        }
        0
    }

    /// Begins to fetch what is likely to be asked for next.
    pub(super) fn fetch_ahead(&mut self, index: usize) {
        let (attached, parts) = (&mut self.attached[index], &mut self.parts);
        if !self.fetches.begin_all(index, attached, parts) {
            self.fetches.again = true;
        }
    }

    /// Has fetched what was ordered for any namespace, and lets go of what is not waited for any more.
    pub(super) fn fetch_ordered(&mut self) {
        for index in 0..self.attached.places() {
            let attached = self.attached.get_mut(index);
            let Some(ahead) = attached.and_then(|attached| attached.ahead.as_mut()) else {
                continue;
            };
            let let_go = ahead.keep_up(&mut self.parts.cache);
            let has_order = ahead.has_order();
            if let_go {
                self.frames.wake_peers();
            }
            if has_order {
                self.fetch_ahead(index);
            }
        }
    }

    /// A host says that it will read these blocks; first block and number of blocks of each range, all of them inside. It is done as far as the budget
    /// reaches, when nobody waits for anything, and never answered.
    pub fn hint(&mut self, key: NamespaceKey, ranges: &[(u64, u32)]) {
        let Some(index) = self.attached.find(key) else {
            return;
        };
        for &(lba, blocks) in ranges {
            let mut io = Io::Read {
                lba,
                blocks,
                into: None,
            };
            if check(&self.attached[index].shared, &io).is_err() {
                continue;
            }
            let index = self.routed(index, &mut io);
            let Io::Read { lba, blocks, .. } = io else {
                continue;
            };
            let attached = &mut self.attached[index];
            let lba_bytes = u64::from(attached.shared.lba_bytes);
            if let Some(ahead) = &mut attached.ahead {
                let start = lba * lba_bytes;
                ahead.hint(start..start + u64::from(blocks) * lba_bytes);
            }
            self.fetch_ahead(index);
        }
        self.again = true;
    }

    /// Ends the reads that were filled from plain frames, and lets those go on that found no room; true when anything moved.
    pub(super) fn serve_fills(&mut self) -> bool {
        let mut moved = self.parts.fills.ask_stores(&mut self.attached);
        while let Some((index, completion)) = self.parts.fills.next_ended() {
            moved = true;
            self.completed(index, completion);
        }
        moved | self.fetches.retry(&mut self.attached, &mut self.parts)
    }
}
