//! The books of what was fetched ahead for one purpose: every byte that was kept ends as exactly one of hit, late and wasted, or is kept still.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was kept for one purpose, by all engines together. Bytes are those of frames, as they are kept.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Bytes that are being fetched, or wait for it, rounded out to frames.
    reserved_bytes: AtomicU64,
    /// Bytes that are kept and that nobody has read.
    unread_bytes: AtomicU64,
    /// Bytes that were ever kept: where the next frame stands in the order of their coming.
    position: AtomicU64,
    /// Frames before this position are given up, where nobody has read them by now.
    given_up: AtomicU64,
    came_bytes: AtomicU64,
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    late: AtomicU64,
    late_bytes: AtomicU64,
    wasted: AtomicU64,
    wasted_bytes: AtomicU64,
}

/// What a ledger says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Bytes of frames that came: `unread_bytes`, `hit_bytes`, `late_bytes` and `wasted_bytes` together.
    pub came_bytes: u64,
    /// Bytes that are kept and that nobody has read.
    pub unread_bytes: u64,
    /// Frames that were there when they were first read.
    pub hits: u64,
    /// Their bytes.
    pub hit_bytes: u64,
    /// Frames that were on their way when somebody wanted them.
    pub late: u64,
    /// Their bytes.
    pub late_bytes: u64,
    /// Frames that left the cache before anybody read them.
    pub wasted: u64,
    /// Their bytes.
    pub wasted_bytes: u64,
}

impl Ledger {
    /// Sets bytes aside that are to be fetched, where all that is set aside and unread stays within `most`.
    pub(super) fn reserve(&self, bytes: u64, most: u64) -> bool {
        let unread = self.unread_bytes.load(Ordering::SeqCst);
        let more = |reserved: u64| Some(reserved + bytes).filter(|all| all + unread <= most);
        self.reserved_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    /// As [`reserve`](Self::reserve), whatever there is.
    pub(super) fn reserve_over(&self, bytes: u64) {
        self.reserved_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Those were fetched, or will not be.
    pub(super) fn release(&self, bytes: u64) {
        self.reserved_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// Whether nothing is unread or on its way.
    pub(super) fn is_empty(&self) -> bool {
        self.reserved_bytes.load(Ordering::SeqCst) == 0
            && self.unread_bytes.load(Ordering::SeqCst) == 0
    }

    /// A frame is kept that nobody has read; its place in the order of their coming.
    pub(super) fn kept(&self, bytes: u64) -> u64 {
        self.came_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.unread_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.position.fetch_add(bytes, Ordering::Relaxed)
    }

    /// A frame came that somebody waited for.
    pub(super) fn late(&self, bytes: u64) {
        self.came_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.late.fetch_add(1, Ordering::Relaxed);
        self.late_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A frame that was kept was read for the first time.
    pub(super) fn hit(&self, bytes: u64) {
        self.unread_bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.hit_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It left before.
    pub(super) fn wasted(&self, bytes: u64) {
        self.unread_bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.wasted.fetch_add(1, Ordering::Relaxed);
        self.wasted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// It is kept for another purpose from now on: as if it had not come for this one.
    pub(super) fn handed_on(&self, bytes: u64) {
        self.unread_bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.came_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes that have come since the last frame that was given up: all that is unread lies among them.
    fn span(&self) -> u64 {
        let position = self.position.load(Ordering::Relaxed);
        position.saturating_sub(self.given_up.load(Ordering::Relaxed))
    }

    /// Gives up what `most` later bytes have overtaken: its reader has left it out.
    pub(super) fn give_up_behind(&self, most: u64) {
        // In long steps: each is a walk through the caches.
        if self.span() >= most + most / 2 {
            let to = self.position.load(Ordering::Relaxed) - most;
            self.given_up.fetch_max(to, Ordering::Relaxed);
        }
    }

    /// Gives up the oldest part of what may be unread.
    pub(super) fn give_up_oldest(&self, parts: u64) {
        let step = (self.span() / parts).max(1);
        self.given_up.fetch_add(step, Ordering::Relaxed);
    }

    /// Positions before this one are given up.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    pub(super) fn counted(&self) -> Kept {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Kept {
            came_bytes: of(&self.came_bytes),
            unread_bytes: of(&self.unread_bytes),
            hits: of(&self.hits),
            hit_bytes: of(&self.hit_bytes),
            late: of(&self.late),
            late_bytes: of(&self.late_bytes),
            wasted: of(&self.wasted),
            wasted_bytes: of(&self.wasted_bytes),
        }
    }
}
