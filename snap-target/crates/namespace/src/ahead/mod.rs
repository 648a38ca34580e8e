//! Reading ahead: what is likely to be asked for next is fetched, and decoded, before anybody asks for it.
//!
//! ```text
//!   reads of hosts --> volume::ahead finds streams --> a piece to fetch
//!                                                        | surveyed like a read that has no destination (fetch)
//!                                                        v
//!                        frames, and plain frames: 64 KiB of a store as they are --> their homes, behind all that hosts wait for
//!   a read of a framed stream finds its frames in their homes' caches, as always;
//!   a read of stored bytes looks first whether plain frames were fetched there (shared), and is filled from them (fill).
//! ```
//! Only what nobody changes is read ahead: views, and stores that were said to be such and take no writes. What cannot be had ahead is as if
//! nobody had tried: the read that wants it meets the error itself.

mod fetch;
mod fill;
mod sample;
mod shared;
mod witness;

use std::sync::Arc;
use std::time::Instant;

use telemetry::NamespaceRow;
use volume::ahead::ReadAhead;
use volume::{PLAIN_FRAME_BYTES, SourceId, StoredFrame};

pub(crate) use fetch::Fetches;
pub(crate) use fill::{Fills, Stored, read_stored};
use sample::Sample;
pub use shared::Ahead;
pub(crate) use witness::AheadWitness;

use crate::{Backing, Namespace};

/// Reading ahead in one namespace on one engine.
pub(crate) struct AheadOf {
    /// What to fetch.
    pub(crate) machine: ReadAhead,
    pub(crate) witness: Arc<AheadWitness>,
    pub(crate) sample: Sample,
    shared: Ahead,
    /// Where each source ends.
    ends: Vec<u64>,
    begun: Instant,
}

impl AheadOf {
    /// None where the namespace may change, or there is no budget.
    pub(crate) fn new(
        namespace: &Namespace,
        row: &Arc<NamespaceRow>,
        budget_bytes: usize,
    ) -> Option<Self> {
        let never_changes = match &namespace.backing {
            Backing::View { .. } => true,
            Backing::Raw(_) => namespace.is_immutable && namespace.write_protected,
            Backing::Mixed(_) => false,
        };
        if !never_changes || budget_bytes == 0 {
            return None;
        }
        let shared = namespace.ahead.clone();
        Some(Self {
            machine: ReadAhead::new(namespace.bytes(), budget_bytes as u64),
            witness: Arc::new(AheadWitness::new(row.clone(), shared.clone())),
            sample: Sample::default(),
            shared,
            ends: namespace
                .stores()
                .iter()
                .map(store::SharedStore::bytes)
                .collect(),
            begun: Instant::now(),
        })
    }

    /// Nanoseconds of the clock that its machine has.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The plain frames that hold `len` bytes of a source from `offset` on.
    pub(crate) fn plain_frames(
        &self,
        source: usize,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = StoredFrame> + use<> {
        let bytes = u64::from(PLAIN_FRAME_BYTES);
        let (of, end) = (
            self.shared.id(),
            self.ends.get(source).copied().unwrap_or(0),
        );
        let source = SourceId(u32::try_from(source).unwrap_or(u32::MAX));
        let numbers = offset / bytes..(offset + len).div_ceil(bytes);
        numbers.filter_map(move |number| StoredFrame::plain(of, source, number, end))
    }

    /// Whether some of these bytes are kept as plain frames, or on their way.
    fn has_some(&self, source: usize, offset: u64, len: u64) -> bool {
        self.shared.has_any()
            && self
                .plain_frames(source, offset, len)
                .any(|frame| self.shared.has(frame.id))
    }
}
