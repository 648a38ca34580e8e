//! Writes whose host is gone, and that a store may still apply: until it let go of them nobody else's write may begin, or the old one could
//! land behind it (design: "Failure"; what TP4129 lets a host wait for).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The fence of one namespace; every reactor looks at it.
#[derive(Clone, Debug, Default)]
pub struct WriteFence {
    abandoned_writes: Arc<AtomicU32>,
}

impl WriteFence {
    /// Whether writes have to wait.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.abandoned_writes.load(Ordering::Acquire) > 0
    }

    /// One more write has lost its host.
    pub(crate) fn raise(&self) {
        self.abandoned_writes.fetch_add(1, Ordering::AcqRel);
    }

    /// One of them has ended; true when it was the last.
    pub(crate) fn lower(&self) -> bool {
        self.abandoned_writes.fetch_sub(1, Ordering::AcqRel) == 1
    }
}
