//! Which plain frames of a namespace are kept somewhere: what every engine can look up without asking.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use volume::{FrameId, VolumeId};

use super::order::{Order, OrderProgress};

/// Counters of the filter. Plain frames of 64 KiB within the budgets of a few reactors are some thousands.
const COUNTERS: usize = 1 << 13;

/// What the engines share of reading ahead in one namespace. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ahead(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Whose plain frames they are.
    id: VolumeId,
    /// For each hash, how many plain frames are kept or on their way. One that is asked for in vain costs a detour, no wrong byte.
    kept: OnceLock<Box<[AtomicU32]>>,
    order: Order,
}

impl Ahead {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            id: VolumeId::next(),
            kept: OnceLock::new(),
            order: Order::default(),
        }))
    }

    pub(super) fn order(&self) -> &Order {
        &self.0.order
    }

    /// Whether an order would be carried out: some engine has a budget for this namespace, and nobody may change it.
    #[must_use]
    pub fn is_driven(&self) -> bool {
        self.0.order.is_driven()
    }

    /// Begins an order of what will be read, in place of the last one; returns its number. At most `quota_bytes` are kept that nobody has read.
    #[must_use]
    pub fn begin_order(&self, quota_bytes: u64) -> u64 {
        self.0.order.begin(quota_bytes)
    }

    /// Gives ranges of presented bytes in the order in which they will be read, each within the namespace; returns for how many there was room. None
    /// where the order was cancelled, or another one has begun.
    #[must_use]
    pub fn give(&self, order: u64, ranges: &[Range<u64>]) -> Option<usize> {
        self.0.order.give(order, ranges)
    }

    /// Ends an order.
    pub fn cancel_order(&self, order: u64) {
        self.0.order.cancel(order);
    }

    /// How far an order came; none where it is not the last one.
    #[must_use]
    pub fn progress(&self, order: u64) -> Option<OrderProgress> {
        self.0.order.progress(order)
    }

    pub(crate) fn id(&self) -> VolumeId {
        self.0.id
    }

    pub(crate) fn has_any(&self) -> bool {
        self.0.kept.get().is_some()
    }

    pub(crate) fn has(&self, id: FrameId) -> bool {
        let counter = self.0.kept.get().map(|kept| &kept[place(id)]);
        counter.is_some_and(|counter| counter.load(Ordering::Relaxed) > 0)
    }

    /// Its home keeps it from now on, or fetches it.
    pub(crate) fn came(&self, id: FrameId) {
        let all = || (0..COUNTERS).map(|_| AtomicU32::new(0)).collect();
        self.0.kept.get_or_init(all)[place(id)].fetch_add(1, Ordering::Relaxed);
    }

    /// It does not any more.
    pub(crate) fn left(&self, id: FrameId) {
        if let Some(kept) = self.0.kept.get() {
            kept[place(id)].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn place(id: FrameId) -> usize {
    // Below COUNTERS.
    usize::try_from(id.group_hash(1) % COUNTERS as u64).unwrap_or(0)
}
