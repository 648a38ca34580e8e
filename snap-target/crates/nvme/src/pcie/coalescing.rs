//! Interrupt Coalescing and Interrupt Vector Configuration (Base, features 08h and 09h): when the entries of I/O completion queues are told of.

use std::time::Duration;

/// Both features as a host has set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescing {
    /// THR: entries of a vector, zero-based.
    pub threshold_z: u8,
    /// TIME: how long the first of them may wait.
    pub time_100us: u8,
    /// CD by vector, of those that a bit is there for.
    pub disabled: u128,
}

/// What a vector waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// So many entries are told of at once.
    pub entries: u32,
    /// The first waits no longer.
    pub time: Duration,
}

impl Coalescing {
    /// Of an I/O completion queue's vector; none where each batch of entries interrupts at once.
    #[must_use]
    pub fn of(&self, vector: u16) -> Option<Aggregation> {
        let is_disabled = match 1_u128.checked_shl(vector.into()) {
            Some(bit) => self.disabled & bit != 0,
            None => true,
        };
        // TIME = 0: no delay. THR = 0: the first entry is enough.
        if is_disabled || self.time_100us == 0 || self.threshold_z == 0 {
            return None;
        }
        Some(Aggregation {
            entries: u32::from(self.threshold_z) + 1,
            time: Duration::from_micros(100) * u32::from(self.time_100us),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_waits_where_both_numbers_and_its_bit_say_so() {
        let set = Coalescing {
            threshold_z: 7,
            time_100us: 25,
            disabled: 1 << 3 | 1 << 127,
        };
        let waits = Aggregation {
            entries: 8,
            time: Duration::from_micros(2500),
        };
        for (vector, expected) in [
            (0, Some(waits)),
            (2, Some(waits)),
            (3, None),
            (126, Some(waits)),
            (127, None),
            (128, None),
            (u16::MAX, None),
        ] {
            assert_eq!(set.of(vector), expected, "{vector}");
        }
        for (threshold_z, time_100us) in [(0, 25), (7, 0), (0, 0)] {
            let never = Coalescing {
                threshold_z,
                time_100us,
                disabled: 0,
            };
            assert_eq!(never.of(0), None);
        }
    }
}
