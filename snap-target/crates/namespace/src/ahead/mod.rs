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
mod ledger;
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
use volume::ahead::{ReadAhead, ReaderId};
use volume::{Cache, PLAIN_FRAME_BYTES, SourceId, StoredFrame};

pub(crate) use fetch::Fetches;
pub(crate) use fill::{Fills, Stored, ask_store, read_stored};
pub use ledger::Kept;
pub use order::{ORDER_RANGES_MAX, Order, OrderEnd, OrderProgress};
use order::{frames_bytes, take_first};
use sample::Sample;
pub use shared::Ahead;
use witness::Books;
pub(crate) use witness::{AheadWitness, Purpose};

use crate::Namespace;
use crate::limits::{HINT_SHARES, ORDERED_BYTES_MAX, UNDER_WAY_BYTES_MIN, UNDER_WAY_RATIO_MAX};

/// Reading ahead in one namespace on one engine.
pub(crate) struct AheadOf {
    /// What to fetch.
    pub(crate) machine: ReadAhead,
    /// Told of frames by what they were fetched for.
    witness: Arc<AheadWitness>,
    hint_witness: Arc<AheadWitness>,
    order_witness: Arc<AheadWitness>,
    pub(crate) sample: Sample,
    shared: Ahead,
    /// Where each source ends.
    ends: Vec<u64>,
    begun: Instant,
    budget_bytes: u64,
    /// Where the blocks of tables lie that fetches ahead read.
    pub(crate) blocks_coming: Vec<u64>,
    /// Ranges that hosts said they will read; their frames' bytes are set aside in the books of hints.
    hints: VecDeque<Range<u64>>,
    /// Bytes of hints and of an order that are on their way.
    under_way_bytes: u64,
    /// Of pieces that were fetched: their bytes, and those of the store.
    ratio: Ratio,
    /// This engine takes what is ordered, and has taken this of the last order that it knows.
    drives: bool,
    ordered: VecDeque<Range<u64>>,
    order: Arc<Order>,
    /// What its cache has let go of what was given up: of that order, and of hints.
    dropped: (u64, u64),
}

/// Bytes to be fetched together.
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    /// Set aside for it.
    reserved: u64,
    books: Books,
}

impl Piece {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// What its frames are fetched for.
    pub(crate) fn purpose(&self) -> Purpose {
        match &self.books {
            Books::Stream => Purpose::Stream,
            Books::Hints => Purpose::Hint,
            Books::Order(order) => Purpose::Order(order.id()),
        }
    }
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
        let order = shared.orders().latest();
        let witness = AheadWitness::new(row.clone(), shared.clone(), Books::Stream);
        Some(Self {
            machine: ReadAhead::new(namespace.bytes(), budget_bytes as u64),
            hint_witness: Arc::new(witness.with(Books::Hints)),
            order_witness: Arc::new(witness.with(Books::Order(order.clone()))),
            witness: Arc::new(witness),
            sample: Sample::default(),
            budget_bytes: budget_bytes as u64,
            blocks_coming: Vec::new(),
            hints: VecDeque::new(),
            under_way_bytes: 0,
            ratio: Ratio::default(),
            drives: shared.orders().is_driven_by(waker),
            ordered: VecDeque::new(),
            order,
            dropped: (0, 0),
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

    /// Who is told what becomes of frames.
    pub(crate) fn witness(&self, purpose: Purpose) -> Arc<AheadWitness> {
        match purpose {
            Purpose::Stream => self.witness.clone(),
            Purpose::Hint => self.hint_witness.clone(),
            Purpose::Order(id) if id == self.order.id() => self.order_witness.clone(),
            // The engine that takes ranges knew of it first; or it is over.
            Purpose::Order(id) => {
                let mut orders = std::iter::successors(self.order.next(), |order| order.next());
                let order = orders.find(|order| order.id() == id);
                order.map_or(self.witness.clone(), |order| {
                    Arc::new(self.witness.with(Books::Order(order.clone())))
                })
            }
        }
    }

    /// Goes on to the last order.
    fn follow(&mut self) {
        let before = self.order.id();
        while let Some(next) = self.order.next().cloned() {
            self.order = next;
        }
        if self.order.id() != before {
            self.ordered.clear();
            self.dropped.0 = 0;
            let books = Books::Order(self.order.clone());
            self.order_witness = Arc::new(self.witness.with(books));
        }
        if !self.order.is_open() {
            self.ordered.clear();
        }
    }

    /// A host reads.
    pub(crate) fn read(&mut self, reader: ReaderId, range: Range<u64>) {
        self.follow();
        // Where what will be read is known, neighbours among it are chance.
        if self.order.is_followed() {
            self.machine.read_in_order(&range);
        } else {
            self.machine.read(reader, range);
        }
        self.order.read();
    }

    /// A host says that it will read this: taken note of where it and all else that was hinted at and is not read yet are within the budget. Where
    /// they are not, the oldest of that makes room for what comes later.
    pub(crate) fn hint(&mut self, range: Range<u64>) {
        let hints = self.shared.hints();
        if hints.reserve(frames_bytes(&range), self.budget_bytes) {
            self.hints.push_back(range);
        } else {
            hints.give_up_oldest(HINT_SHARES);
        }
    }

    /// Goes on to the last order, and has the cache let go of what was given up since this was last done; whether there was anything, so that the
    /// others have to do the same.
    pub(crate) fn keep_up(&mut self, cache: &mut Cache) -> bool {
        self.follow();
        let given_up = (
            self.order.ledger().given_up(),
            self.shared.hints().given_up(),
        );
        let is_behind = given_up != self.dropped;
        if is_behind {
            self.dropped = given_up;
            cache.drop_given_up();
        }
        is_behind
    }

    /// Whether there is an order that this engine has to look at.
    pub(crate) fn has_order(&self) -> bool {
        self.drives && self.order.is_open()
    }

    /// What to fetch next: for streams, then what hosts said, then what was ordered. `Err`: ask again soon.
    pub(crate) fn next_piece(&mut self) -> Result<Option<Piece>, Again> {
        self.follow();
        let streams = !self.order.is_followed();
        if let Some(range) = streams.then(|| self.machine.next_piece()).flatten() {
            return Ok(Some(Piece {
                range,
                reserved: 0,
                books: Books::Stream,
            }));
        }
        // As much as keeps the store busy, and no more: what a host asks for stands behind it in the store's line.
        let carried = 2 * self.machine.pace.carried_bytes();
        if self.under_way_bytes >= carried.max(self.ratio.of_stored(UNDER_WAY_BYTES_MIN)) {
            return Ok(None);
        }
        let piece = match self.next_hint() {
            Some(piece) => Some(piece),
            None => self.next_of_order()?,
        };
        self.under_way_bytes += piece.as_ref().map_or(0, Piece::bytes);
        Ok(piece)
    }

    fn next_of_order(&mut self) -> Result<Option<Piece>, Again> {
        if !self.has_order() {
            return Ok(None);
        }
        if self.ordered.is_empty() && !self.order.take(&mut self.ordered) {
            return Err(Again);
        }
        let begun = self.order.begin(&mut self.ordered, self.budget_bytes);
        Ok(begun.map(|(range, reserved)| Piece {
            range,
            reserved,
            books: Books::Order(self.order.clone()),
        }))
    }

    fn next_hint(&mut self) -> Option<Piece> {
        let first = self.hints.front()?;
        let range = first.start..first.end.min(first.start + ORDERED_BYTES_MAX);
        // What is set aside for the rest stays so.
        let rest = range.end..first.end;
        let of_rest = if rest.is_empty() {
            0
        } else {
            frames_bytes(&rest)
        };
        let reserved = frames_bytes(first) - of_rest;
        take_first(&mut self.hints, range.end);
        Some(Piece {
            range,
            reserved,
            books: Books::Hints,
        })
    }

    /// What a piece wants of the store is known.
    pub(crate) fn named(&mut self, piece_bytes: u64, stored_bytes: u64) {
        self.ratio.add(piece_bytes, stored_bytes);
    }

    /// A piece has been fetched, or will not be.
    pub(crate) fn fetched(&mut self, piece: &Piece) {
        if !matches!(piece.books, Books::Stream) {
            self.under_way_bytes -= piece.bytes();
        }
        match &piece.books {
            Books::Stream => {}
            Books::Hints => self.shared.hints().release(piece.reserved),
            Books::Order(order) => order.fetched(&piece.range, piece.reserved),
        }
    }

    /// The namespace goes: nothing more is fetched, and whoever gave an order hears it.
    pub(crate) fn retire(&mut self) {
        self.shared.orders().detach();
        self.ordered.clear();
        for hint in self.hints.drain(..) {
            self.shared.hints().release(frames_bytes(&hint));
        }
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
        self.shared.has_any() && self.kept_frames(source, offset, len).next().is_some()
    }

    /// Those of the plain frames of these bytes that are kept, or on their way.
    pub(crate) fn kept_frames(
        &self,
        source: usize,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = StoredFrame> {
        let frames = self.plain_frames(source, offset, len);
        frames.filter(|frame| self.shared.has(frame.id))
    }
}

/// How many bytes hosts see for those of the store.
#[derive(Default)]
struct Ratio {
    presented_bytes: u64,
    stored_bytes: u64,
}

impl Ratio {
    /// The newer a piece, the more it counts: a namespace is made of streams of several kinds.
    fn add(&mut self, presented_bytes: u64, stored_bytes: u64) {
        let keep = |known: u64| known - known / 8;
        self.presented_bytes = keep(self.presented_bytes) + presented_bytes;
        self.stored_bytes = keep(self.stored_bytes) + stored_bytes;
    }

    /// What hosts see for so many bytes of the store: no fewer.
    fn of_stored(&self, bytes: u64) -> u64 {
        let seen = u128::from(bytes) * u128::from(self.presented_bytes)
            / u128::from(self.stored_bytes.max(1));
        let most = bytes * UNDER_WAY_RATIO_MAX;
        u64::try_from(seen).unwrap_or(most).clamp(bytes, most)
    }
}

/// Somebody was giving ranges just then.
pub(crate) struct Again;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_see_for_bytes_of_the_store() {
        let mut ratio = Ratio::default();
        assert_eq!(ratio.of_stored(1000), 1000, "nothing is known");
        ratio.add(4 << 20, 1 << 20);
        assert_eq!(ratio.of_stored(1000), 4000);
        for _ in 0..100 {
            ratio.add(1 << 20, 1 << 20);
        }
        assert_eq!(ratio.of_stored(1000), 1000, "the newest count most");
        for _ in 0..100 {
            ratio.add(1 << 20, 2 << 20);
        }
        assert_eq!(ratio.of_stored(1000), 1000, "never fewer");
        for _ in 0..100 {
            ratio.add(1 << 20, 0);
        }
        assert_eq!(ratio.of_stored(1000), 8000, "zeros are free, within bounds");
    }
}
