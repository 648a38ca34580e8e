//! What one client may have mapped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shared::MapError;

/// Bytes that a client may have mapped, and the memory of the largest guest that can be served. Clients share the address space of this process (2^47 bytes): whoever
/// counts how many there may be asserts that all of them leave room in it.
pub const CLIENT_BYTES_MAX: u64 = 3 << 39;

/// Counts what a client has mapped, until it is unmapped: also what waits for that.
#[derive(Debug)]
pub struct Quota {
    mappings_max: u64,
    bytes: Arc<AtomicU64>,
    mappings: Arc<AtomicU64>,
}

/// A mapping that is counted; dropped when it is unmapped ([`crate::Shared::map`]'s keeper).
#[derive(Debug)]
pub struct Charge {
    size: u64,
    bytes: Arc<AtomicU64>,
    mappings: Arc<AtomicU64>,
}

impl Quota {
    /// Of a client with so many mappings at most, of [`CLIENT_BYTES_MAX`] together.
    #[must_use]
    pub fn new(mappings_max: u64) -> Quota {
        Quota {
            mappings_max,
            bytes: Arc::default(),
            mappings: Arc::default(),
        }
    }

    /// Counts one more.
    ///
    /// # Errors
    /// [`MapError::TooMuch`].
    pub fn charge(&self, bytes: u64) -> Result<Charge, MapError> {
        let taken = take(&self.mappings, 1, self.mappings_max)
            && (take(&self.bytes, bytes, CLIENT_BYTES_MAX) || {
                self.mappings.fetch_sub(1, Ordering::AcqRel);
                false
            });
        if !taken {
            return Err(MapError::TooMuch {
                bytes,
                bytes_max: CLIENT_BYTES_MAX,
                mappings_max: self.mappings_max,
            });
        }
        Ok(Charge {
            size: bytes,
            bytes: self.bytes.clone(),
            mappings: self.mappings.clone(),
        })
    }
}

/// Adds, where that leaves no more than `most`.
fn take(count: &AtomicU64, more: u64, most: u64) -> bool {
    let add = |now: u64| now.checked_add(more).filter(|sum| *sum <= most);
    count
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, add)
        .is_ok()
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.size, Ordering::AcqRel);
        self.mappings.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unmapped_is_counted_no_more_and_what_is_refused_never_was() {
        let quota = Quota::new(2);
        let first = quota.charge(CLIENT_BYTES_MAX - 4096).unwrap();
        let refused = MapError::TooMuch {
            bytes: 4097,
            bytes_max: CLIENT_BYTES_MAX,
            mappings_max: 2,
        };
        for _ in 0..3 {
            assert_eq!(quota.charge(4097).unwrap_err(), refused);
        }
        let second = quota.charge(4096).unwrap();
        assert!(quota.charge(0).is_err(), "two mappings");
        drop(first);
        assert!(quota.charge(u64::MAX).is_err());
        let third = quota.charge(CLIENT_BYTES_MAX - 4096).unwrap();
        drop((second, third));
        drop(quota.charge(CLIENT_BYTES_MAX).unwrap());
    }
}
