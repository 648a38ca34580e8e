//! What becomes of frames that were fetched ahead, counted.

use std::sync::Arc;

use telemetry::NamespaceRow;
use volume::{FrameId, Witness};

use super::Ahead;

/// Told by the cache of one engine about the frames of one namespace.
#[derive(Debug)]
pub(crate) struct AheadWitness {
    row: Arc<NamespaceRow>,
    shared: Ahead,
}

impl AheadWitness {
    pub(super) fn new(row: Arc<NamespaceRow>, shared: Ahead) -> Self {
        Self { row, shared }
    }

    /// A plain frame is on its way to this engine.
    pub(crate) fn coming(&self, id: FrameId) {
        self.shared.came(id);
    }

    /// It does not come.
    pub(crate) fn failed(&self, id: FrameId) {
        self.shared.left(id);
    }

    /// A frame was fetched ahead.
    pub(crate) fn fetched(&self, bytes: usize, is_used: bool) {
        if !is_used {
            self.shared.order().kept(bytes as u64);
        }
        self.row.prefetched_frames.add(1);
        self.row.prefetched_bytes.add(bytes as u64);
    }

    /// Somebody came for a frame that was on its way.
    pub(crate) fn late(&self, bytes: u32) {
        self.shared.order().late();
        self.row.prefetch_late.add(1);
        self.row.prefetch_late_bytes.add(u64::from(bytes));
    }
}

impl Witness for AheadWitness {
    fn used(&self, bytes: usize) {
        self.shared.order().ended(bytes as u64, true);
        self.row.prefetch_hits.add(1);
        self.row.prefetch_hit_bytes.add(bytes as u64);
    }

    fn left(&self, id: FrameId, bytes: usize, was_used: bool) {
        if id.is_plain() {
            self.shared.left(id);
        }
        if !was_used {
            self.shared.order().ended(bytes as u64, false);
            self.row.prefetch_wasted.add(1);
            self.row.prefetch_wasted_bytes.add(bytes as u64);
        }
    }
}
