//! What becomes of frames that were fetched ahead, counted.

use std::sync::Arc;

use telemetry::NamespaceRow;
use volume::{FrameId, Witness};

use super::Ahead;
use super::ledger::Ledger;
use super::order::{Order, OrderId};

/// What a frame is fetched ahead for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A stream of reads; or nothing: somebody waits for it.
    #[default]
    Stream,
    /// A host said that it will read it.
    Hint,
    /// It was ordered.
    Order(OrderId),
}

/// In whose books it stands.
#[derive(Clone, Debug)]
pub(super) enum Books {
    /// In the namespace's alone.
    Stream,
    /// In those of hints as well.
    Hints,
    /// In those of an order.
    Order(Arc<Order>),
}

/// Told by the cache of one engine about frames of one namespace that have one purpose.
#[derive(Debug)]
pub(crate) struct AheadWitness {
    row: Arc<NamespaceRow>,
    shared: Ahead,
    books: Books,
}

impl AheadWitness {
    pub(super) fn new(row: Arc<NamespaceRow>, shared: Ahead, books: Books) -> Self {
        Self { row, shared, books }
    }

    /// The same, in other books.
    pub(super) fn with(&self, books: Books) -> Self {
        Self::new(self.row.clone(), self.shared.clone(), books)
    }

    /// A plain frame is on its way to this engine.
    pub(crate) fn coming(&self, id: FrameId) {
        self.shared.came(id);
    }

    /// It does not come.
    pub(crate) fn failed(&self, id: FrameId) {
        self.shared.left(id);
    }

    /// A frame that was fetched ahead is there. Where nobody waits for it, its place among those that were kept for its purpose.
    pub(crate) fn fetched(&self, bytes: usize, is_late: bool) -> u64 {
        let bytes = bytes as u64;
        self.row.prefetched_frames.add(1);
        self.row.prefetched_bytes.add(bytes);
        if !is_late {
            self.row.prefetch_kept_bytes.add(bytes);
            return self.ledger().map_or(0, |ledger| ledger.kept(bytes));
        }
        self.row.prefetch_late.add(1);
        self.row.prefetch_late_bytes.add(bytes);
        if let Some(ledger) = self.ledger() {
            ledger.late(bytes);
        }
        self.found();
        0
    }

    /// A frame that was kept for something else is kept for an order from now on; its place among the order's.
    pub(crate) fn takes_over(&self, bytes: usize) -> u64 {
        self.ledger().map_or(0, |ledger| ledger.kept(bytes as u64))
    }

    fn ledger(&self) -> Option<&Ledger> {
        match &self.books {
            Books::Stream => None,
            Books::Hints => Some(self.shared.hints()),
            Books::Order(order) => Some(order.ledger()),
        }
    }

    /// Somebody wanted one of its frames.
    fn found(&self) {
        if let Books::Order(order) = &self.books {
            order.found();
        }
    }
}

impl Witness for AheadWitness {
    fn used(&self, bytes: usize) {
        let bytes = bytes as u64;
        self.row.prefetch_kept_bytes.sub(bytes);
        self.row.prefetch_hits.add(1);
        self.row.prefetch_hit_bytes.add(bytes);
        if let Some(ledger) = self.ledger() {
            ledger.hit(bytes);
        }
        self.found();
    }

    fn left(&self, id: FrameId, bytes: usize, was_used: bool) {
        if id.is_plain() {
            self.shared.left(id);
        }
        if was_used {
            return;
        }
        let bytes = bytes as u64;
        self.row.prefetch_kept_bytes.sub(bytes);
        self.row.prefetch_wasted.add(1);
        self.row.prefetch_wasted_bytes.add(bytes);
        if let Some(ledger) = self.ledger() {
            ledger.wasted(bytes);
        }
        if let Books::Order(order) = &self.books {
            order.wake();
        }
    }

    fn handed_on(&self, bytes: usize) {
        if let Some(ledger) = self.ledger() {
            ledger.handed_on(bytes as u64);
        }
    }

    fn is_given_up(&self, position: u64) -> bool {
        let ledger = self.ledger();
        ledger.is_some_and(|ledger| position < ledger.given_up())
    }
}
