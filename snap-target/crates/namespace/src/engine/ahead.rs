//! An engine's reading ahead: it tells each namespace's machine of reads, and has fetched what that names.

use super::Engine;
use crate::Io;

impl Engine {
    /// A read of a namespace, or of the part of one that has all of its blocks, begins.
    pub(super) fn note_read(&mut self, index: usize, io: &Io) {
        let attached = &mut self.attached[index];
        let lba_bytes = u64::from(attached.shared.lba_bytes);
        if let (Some(ahead), Io::Read { lba, blocks, .. }) = (&mut attached.ahead, io) {
            let start = lba * lba_bytes;
            let range = start..start + u64::from(*blocks) * lba_bytes;
            ahead.machine.read(0, range);
        }
    }

    /// Begins to fetch what is likely to be asked for next.
    pub(super) fn fetch_ahead(&mut self, index: usize) {
        let (attached, parts) = (&mut self.attached[index], &mut self.parts);
        self.fetches.begin_all(index, attached, parts);
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
