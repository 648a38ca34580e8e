//! Latencies, counted in buckets that are never wider than 1/32 of their value.

use std::time::Duration;

/// Buckets for each power of two.
const STEPS: usize = 32;
const STEPS_LOG2: u32 = STEPS.trailing_zeros();
const BUCKETS: usize = (64 - STEPS_LOG2 as usize + 1) * STEPS;

/// A latency histogram of fixed size: adding is a few instructions, any quantile is within about 3 %.
#[derive(Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            counts: vec![0; BUCKETS],
            total: 0,
            max_ns: 0,
        }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn add_ns(&mut self, latency_ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(latency_ns)) {
            *count += 1;
        }
        self.total += 1;
        self.max_ns = self.max_ns.max(latency_ns);
    }

    /// Latencies counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The largest latency counted, exactly.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// The latency which a share of `quantile` (0.0 to 1.0) does not exceed; zero where nothing was counted.
    pub fn quantile(&self, quantile: f64) -> Duration {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank within total"
        )]
        let rank = ((self.total as f64) * quantile.clamp(0.0, 1.0)).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank.max(1) {
                return Duration::from_nanos(upper_ns(index).min(self.max_ns));
            }
        }
        self.max()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "below STEPS")]
fn bucket(value: u64) -> usize {
    if value < STEPS as u64 {
        return value as usize & (STEPS - 1);
    }
    let shift = value.ilog2() - STEPS_LOG2;
    let step = (value >> shift) as usize & (STEPS - 1);
    (shift as usize + 1) * STEPS + step
}

/// The largest value that falls into a bucket.
fn upper_ns(index: usize) -> u64 {
    let (row, step) = (index / STEPS, (index % STEPS) as u64);
    if row == 0 {
        return step;
    }
    let shift = row - 1;
    (((STEPS as u64 + step) << shift) - 1).saturating_add(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_no_wider_than_its_thirty_second_part() {
        for value in (0..64).flat_map(|bit| {
            [
                1u64 << bit,
                (1 << bit) + 1,
                (1u64 << bit).wrapping_mul(3) / 2,
            ]
        }) {
            let upper = upper_ns(bucket(value));
            assert!(upper >= value, "{value} is above {upper}");
            assert!(
                upper - value <= value / STEPS as u64,
                "{value} counted as {upper}"
            );
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut histogram = Histogram::default();
        for value in 1..=10_000 {
            histogram.add_ns(value);
        }
        assert_eq!(histogram.total(), 10_000);
        assert_eq!(histogram.max(), Duration::from_nanos(10_000));
        for (quantile, exact) in [(0.5, 5_000.0), (0.99, 9_900.0), (1.0, 10_000.0)] {
            let found = histogram.quantile(quantile).as_nanos() as f64;
            assert!((found - exact).abs() <= exact / 32.0, "{quantile}: {found}");
        }
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
    }
}
