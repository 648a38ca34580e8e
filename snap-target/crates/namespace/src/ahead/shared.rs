//! Which plain frames of a namespace are kept somewhere: what every engine can look up without asking.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use volume::{FrameId, VolumeId};

use super::ledger::Ledger;
use super::order::{Order, OrderEnd, Orders};

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
    orders: Orders,
    /// What was fetched because hosts said that they will read it.
    hints: Ledger,
}

impl Ahead {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            id: VolumeId::next(),
            kept: OnceLock::new(),
            orders: Orders::new(),
            hints: Ledger::default(),
        }))
    }

    pub(super) fn orders(&self) -> &Orders {
        &self.0.orders
    }

    pub(super) fn hints(&self) -> &Ledger {
        &self.0.hints
    }

    /// Whether an order would be carried out: some engine has a budget for this namespace, and nobody may change it.
    #[must_use]
    pub fn is_driven(&self) -> bool {
        self.0.orders.is_driven()
    }

    /// Begins an order of what will be read, in place of the last one. At most `quota_bytes` are kept for it that nobody has read.
    ///
    /// # Errors
    /// The namespace was detached.
    pub fn begin_order(&self, quota_bytes: u64) -> Result<Arc<Order>, OrderEnd> {
        self.0.orders.begin(quota_bytes)
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
