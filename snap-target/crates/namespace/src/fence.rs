//! Writes whose host is gone or was preempted, and that a store may still apply: until it let go of them nobody else's write may begin, or the old one
//! could land behind it (design: "Failure"; what TP4129 lets a host wait for).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The fence of one namespace; every reactor looks at it.
#[derive(Clone, Debug, Default)]
pub struct WriteFence {
    /// Writes that lost their host, and holders.
    reasons: Arc<AtomicU32>,
}

/// Keeps the writes of one namespace from beginning, on every engine, until [`Engine::let_write`](crate::Engine::let_write).
#[derive(Debug)]
#[must_use = "no write begins until it is given back"]
pub struct HeldFence(WriteFence);

impl WriteFence {
    /// Whether writes have to wait.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.reasons.load(Ordering::Acquire) > 0
    }

    /// Puts it up before it is known which writes there are.
    pub fn hold(&self) -> HeldFence {
        self.raise();
        HeldFence(self.clone())
    }

    /// One more write has lost its host.
    pub(crate) fn raise(&self) {
        self.reasons.fetch_add(1, Ordering::AcqRel);
    }

    /// One reason less; true when it was the last.
    pub(crate) fn lower(&self) -> bool {
        self.reasons.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl HeldFence {
    /// As [`WriteFence::lower`].
    pub(crate) fn lower(self) -> bool {
        self.0.lower()
    }
}
