//! Damage that reads met: stored bytes that are not what was written.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crate::NamespaceError;

/// How many reads of a namespace met damage since it was attached, and the first of them. Shared by all reactors; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Damage(Arc<Met>);

#[derive(Debug, Default)]
struct Met {
    reads: AtomicU64,
    first: OnceLock<FirstDamage>,
}

/// The first damage that a read met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstDamage {
    /// When.
    pub at: SystemTime,
    /// Where, and what was expected and found there: one line.
    pub what: String,
    /// The logical block that could not be read, where it is known.
    pub lba: Option<u64>,
}

impl Damage {
    /// Counts a request that failed, if damage is why.
    pub fn note(&self, error: &NamespaceError, lba_bytes: u32) {
        if !error.is_damage() {
            return;
        }
        self.0.first.get_or_init(|| FirstDamage {
            at: SystemTime::now(),
            what: error.to_string(),
            lba: error.first_lba(lba_bytes),
        });
        self.0.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that met damage.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.0.reads.load(Ordering::Relaxed)
    }

    /// The first; none where there was none.
    #[must_use]
    pub fn first(&self) -> Option<&FirstDamage> {
        self.0.first.get()
    }
}
