//! A number that one thread writes and all may read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Written by one thread with a plain load and a plain store: no locked instruction. A second writer would lose counts, nothing worse.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    #[inline]
    pub fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// Takes away; stays at 0.
    #[inline]
    pub fn sub(&self, less: u64) {
        self.set(self.get().saturating_sub(less));
    }

    /// Sets.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// What it is now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
