//! Latencies, counted as fine as fio does: 64 buckets for each power of two, so none is wider than 1/64 of its value.

const STEPS: usize = 64;
const STEPS_LOG2: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = (64 - STEPS_LOG2 as usize + 1) * STEPS;

/// Counted latencies, with exact extremes, mean and deviation.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u64,
    sum_of_squares: u128,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0; BUCKETS],
            total: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
            sum_of_squares: 0,
        }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn add(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count += 1;
        }
        self.total += 1;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.sum_of_squares += u128::from(ns) * u128::from(ns);
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.sum_of_squares += other.sum_of_squares;
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The smallest, exactly; 0 where nothing was counted.
    pub fn min_ns(&self) -> u64 {
        if self.total == 0 { 0 } else { self.min_ns }
    }

    /// The largest, exactly; 0 where nothing was counted.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean; 0 where nothing was counted.
    pub fn mean_ns(&self) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        self.sum_ns as f64 / self.total as f64
    }

    /// The standard deviation of a sample; 0 below two.
    pub fn deviation_ns(&self) -> f64 {
        if self.total < 2 {
            return 0.0;
        }
        let sum = self.sum_ns as f64;
        let squares = self.sum_of_squares as f64 - sum * (sum / self.total as f64);
        (squares.max(0.0) / (self.total - 1) as f64).sqrt()
    }

    /// The middle of the bucket in which the `percent`-th percentile falls, as fio gives it; never beyond the extremes.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        if self.total == 0 {
            return 0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank within total"
        )]
        let rank = (self.total as f64 * percent.clamp(0.0, 100.0) / 100.0).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return middle_ns(index).clamp(self.min_ns, self.max_ns);
            }
        }
        self.max_ns
    }

    /// Each bucket that counted anything: its middle, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (middle_ns(index), *count))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "both are below STEPS and 64"
)]
fn bucket(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - STEPS_LOG2;
    let step = (value >> shift) as usize & (STEPS - 1);
    (shift as usize + 1) * STEPS + step
}

fn middle_ns(index: usize) -> u64 {
    let (row, step) = (index / STEPS, (index % STEPS) as u64);
    match row.checked_sub(1) {
        None => step,
        Some(shift) => ((STEPS as u64 + step) << shift) + ((1u64 << shift) >> 1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_is_no_wider_than_its_sixty_fourth_part(bits in 0u32..64, low: u64) {
            let value = (1u64 << bits) | (low & ((1 << bits) - 1));
            let middle = middle_ns(bucket(value));
            prop_assert!(middle.abs_diff(value) <= value / 128 + 1, "{} counted as {}", value, middle);
        }

        #[test]
        fn figures_are_those_of_the_values(values in prop::collection::vec(0u64..1 << 40, 1..200), cut in 0usize..200) {
            let cut = cut.min(values.len());
            let (mut one, mut other) = (Histogram::default(), Histogram::default());
            values[..cut].iter().for_each(|value| one.add(*value));
            values[cut..].iter().for_each(|value| other.add(*value));
            one.merge(&other);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
            prop_assert_eq!(one.total(), values.len() as u64);
            prop_assert_eq!((one.min_ns(), one.max_ns()), (sorted[0], sorted[sorted.len() - 1]));
            prop_assert!((one.mean_ns() - mean).abs() <= mean * 1e-9);
            for percent in [1.0, 50.0, 99.0, 100.0] {
                let below = |rank: usize| (rank as f64) < values.len() as f64 * percent / 100.0;
                let exact = sorted[(1..values.len()).take_while(|rank| below(*rank)).count()];
                prop_assert!(one.percentile_ns(percent).abs_diff(exact) <= exact / 64 + 1);
            }
        }
    }

    #[test]
    fn the_deviation_of_a_known_sample() {
        let mut histogram = Histogram::default();
        [2, 4, 4, 4, 5, 5, 7, 9]
            .into_iter()
            .for_each(|value| histogram.add(value));
        assert!((histogram.deviation_ns() - (32.0f64 / 7.0).sqrt()).abs() < 1e-9);
        assert_eq!(Histogram::default().percentile_ns(99.0), 0);
        assert_eq!(Histogram::default().min_ns(), 0);
    }
}
