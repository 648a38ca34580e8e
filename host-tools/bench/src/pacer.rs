//! Rates: when the next command is due. No clock of its own, so that a test can count the time.

/// A limit in bytes or commands a second. What was late is caught up, as fio does: the average is what is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    per_second: u64,
    issued: u64,
}

const NANOS: u128 = 1_000_000_000;

impl Pacer {
    /// So many in a second.
    pub fn new(per_second: u64) -> Pacer {
        Pacer {
            per_second,
            issued: 0,
        }
    }

    /// When the next command may go, in nanoseconds from the start: the first that had time for all that were issued.
    pub fn due_ns(&self) -> u64 {
        let due = (u128::from(self.issued) * NANOS).div_ceil(u128::from(self.per_second.max(1)));
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// Counts what was issued.
    pub fn issue(&mut self, amount: u64) {
        self.issued = self.issued.saturating_add(amount);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// On a clock that a test steps: after any time, what was issued is the rate times the time, to one block.
        #[test]
        fn the_rate_is_exact_over_counted_time(blocks_per_second in 1u64..1000, part in 0u64..512, block in 512u64..1 << 20, seconds in 1u64..20) {
            let per_second = blocks_per_second * block + part;
            let mut pacer = Pacer::new(per_second);
            let end_ns = seconds * 1_000_000_000;
            let mut issued = 0;
            while pacer.due_ns() < end_ns {
                pacer.issue(block);
                issued += block;
            }
            let exact = per_second * seconds;
            prop_assert!(issued >= exact && issued < exact + block, "{} of {}", issued, exact);
        }
    }

    #[test]
    fn a_late_command_is_caught_up() {
        let mut pacer = Pacer::new(1000);
        assert_eq!(pacer.due_ns(), 0);
        pacer.issue(1);
        assert_eq!(pacer.due_ns(), 1_000_000);
        // Ten were due at 10 ms; at that time all of them may go at once.
        for _ in 0..9 {
            assert!(pacer.due_ns() <= 10_000_000);
            pacer.issue(1);
        }
        assert_eq!(pacer.due_ns(), 10_000_000);
    }
}
