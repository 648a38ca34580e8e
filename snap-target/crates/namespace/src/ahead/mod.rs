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
mod order;
mod sample;
mod shared;
mod witness;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use reactor::Waker;
use telemetry::NamespaceRow;
use volume::ahead::ReadAhead;
use volume::{PLAIN_FRAME_BYTES, SourceId, StoredFrame};

pub(crate) use fetch::Fetches;
pub(crate) use fill::{Fills, Stored, read_stored};
pub use order::{ORDER_RANGES_MAX, OrderProgress};
use sample::Sample;
pub use shared::Ahead;
pub(crate) use witness::AheadWitness;

use crate::Namespace;
use crate::limits::ORDERED_BYTES_MAX;

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
    budget_bytes: u64,
    /// Ranges that hosts said they will read, and how many bytes they have.
    hints: VecDeque<Range<u64>>,
    hinted_bytes: u64,
    /// This engine takes what is ordered, and has taken this.
    drives: bool,
    ordered: VecDeque<Range<u64>>,
    /// Bytes of orders that are being fetched.
    pub(crate) ordered_under_way: u64,
}

/// Bytes to be fetched together.
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    /// An order named them.
    pub(crate) is_ordered: bool,
}

impl AheadOf {
    /// None where the namespace may change, or there is no budget.
    pub(crate) fn new(
        namespace: &Namespace,
        row: &Arc<NamespaceRow>,
        budget_bytes: usize,
        waker: Waker,
    ) -> Option<Self> {
        if !namespace.never_changes() || budget_bytes == 0 {
            return None;
        }
        let shared = namespace.ahead.clone();
        Some(Self {
            machine: ReadAhead::new(namespace.bytes(), budget_bytes as u64),
            witness: Arc::new(AheadWitness::new(row.clone(), shared.clone())),
            sample: Sample::default(),
            budget_bytes: budget_bytes as u64,
            hints: VecDeque::new(),
            hinted_bytes: 0,
            drives: shared.order().is_driven_by(waker),
            ordered: VecDeque::new(),
            ordered_under_way: 0,
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

    /// A host reads.
    pub(crate) fn read(&mut self, range: Range<u64>) {
        self.machine.read(0, range);
        self.shared.order().read();
    }

    /// A host says that it will read this: taken note of as far as the budget reaches.
    pub(crate) fn hint(&mut self, range: Range<u64>) {
        let bytes = range.end - range.start;
        if self.hinted_bytes + bytes <= self.budget_bytes {
            self.hinted_bytes += bytes;
            self.hints.push_back(range);
        }
    }

    /// Whether there is an order that this engine has to look at.
    pub(crate) fn has_order(&self) -> bool {
        self.drives && self.shared.order().is_there()
    }

    /// What to fetch next: for streams, then what hosts said, then what was ordered. `Err`: ask again soon.
    pub(crate) fn next_piece(&mut self) -> Result<Option<Piece>, Again> {
        // Where what will be read is known, neighbours among it are chance.
        let streams = !self.shared.order().is_there();
        if let Some(range) = streams.then(|| self.machine.next_piece()).flatten() {
            let is_ordered = false;
            return Ok(Some(Piece { range, is_ordered }));
        }
        if let Some(range) = first_of(&mut self.hints) {
            self.hinted_bytes -= range.end - range.start;
            let is_ordered = false;
            return Ok(Some(Piece { range, is_ordered }));
        }
        if !self.drives || !self.shared.order().is_there() {
            self.ordered.clear();
            return Ok(None);
        }
        let order = self.shared.order();
        if self.ordered.is_empty() && !order.take(&mut self.ordered) {
            return Err(Again);
        }
        if self.ordered.is_empty() || !order.has_room(self.ordered_under_way, self.budget_bytes) {
            return Ok(None);
        }
        let piece = first_of(&mut self.ordered).map(|range| {
            let bytes = range.end - range.start;
            order.begun(bytes);
            self.ordered_under_way += bytes;
            Piece {
                range,
                is_ordered: true,
            }
        });
        Ok(piece)
    }

    /// A piece of an order has been fetched.
    pub(crate) fn fetched(&mut self, bytes: u64) {
        self.ordered_under_way -= bytes;
        self.shared.order().fetched(bytes);
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

/// Somebody was giving ranges just then.
pub(crate) struct Again;

/// The first bytes that are to be fetched, as many as go together.
fn first_of(ranges: &mut VecDeque<Range<u64>>) -> Option<Range<u64>> {
    let first = ranges.front_mut()?;
    let end = first.end.min(first.start + ORDERED_BYTES_MAX);
    let piece = first.start..end;
    first.start = end;
    if first.is_empty() {
        ranges.pop_front();
    }
    Some(piece)
}
