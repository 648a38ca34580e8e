//! What the kernel says once: that bytes which it had taken are lost.
//!
//! It keeps that note with the descriptor, and the first fsync or durable write that looks takes it away: another one that runs at the same time and
//! looks later is told that all is well, though the lost bytes may be what it was to make durable. So syncs run one at a time, on all handles
//! together, and through the page cache durable writes do, too; direct ones are told of their own bytes. A sync that had to wait is done when one that
//! began after it came has ended well.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use nix::errno::Errno;

use crate::gate::{Gate, Pass, Permit};

/// Of one opened file.
#[derive(Debug, Default)]
pub(super) struct Reports {
    gate: Arc<Gate>,
    /// The errno of the sync that failed; 0 while none did.
    failed: AtomicI32,
    /// Syncs that began, and the number of the last one that ended well.
    begun: AtomicU64,
    ended: AtomicU64,
}

/// What a sync is to cover: all that was there when it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Since(u64);

impl Reports {
    /// For one operation that may take the kernel's note away.
    pub(super) fn permit(&self) -> Permit {
        Permit::new(self.gate.clone(), Pass::Exclusive)
    }

    pub(super) fn now(&self) -> Since {
        Since(self.begun.load(Ordering::SeqCst))
    }

    /// Whether a sync that began later has ended well.
    pub(super) fn covers(&self, since: Since) -> bool {
        self.ended.load(Ordering::SeqCst) > since.0
    }

    /// A sync begins; its permit is held.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// The sync that began last has ended well.
    pub(super) fn ended_well(&self) {
        let last = self.begun.load(Ordering::SeqCst);
        self.ended.store(last, Ordering::SeqCst);
    }

    /// The failure that is final for this opened file.
    pub(super) fn failure(&self) -> Option<Errno> {
        match self.failed.load(Ordering::SeqCst) {
            0 => None,
            code => Some(Errno::from_raw(code)),
        }
    }

    pub(super) fn note_failure(&self, errno: Errno) {
        // The first failure is the one to tell.
        let code = errno as i32;
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        let _known = self.failed.compare_exchange(0, code, set, fetch);
    }
}
