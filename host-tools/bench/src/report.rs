//! What is shown of what was measured.

pub mod json;
pub mod plot;
pub mod table;

use crate::stats::{SAMPLE_INTERVAL_NS, Sample};

/// The percentiles that fio shows unless told otherwise.
pub const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];

/// Samples that make one of fio's, which are 500 ms apart.
const SAMPLES_TOGETHER: usize = 5;
const _: () = assert!(SAMPLE_INTERVAL_NS * SAMPLES_TOGETHER as u64 == 500_000_000);

/// What is counted, so much a second, in each interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The slowest interval.
    pub min: f64,
    /// The fastest.
    pub max: f64,
    /// Of all.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Intervals.
    pub samples: usize,
}

impl Spread {
    /// Of totals at times, over intervals of half a second.
    pub fn of(samples: &[Sample], total: impl Fn(&Sample) -> u64) -> Spread {
        let rates: Vec<f64> = rates(samples, SAMPLES_TOGETHER, total)
            .map(|(_, rate)| rate)
            .collect();
        if rates.is_empty() {
            return Spread::default();
        }
        let count = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / count;
        let squares = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>();
        Spread {
            min: rates.iter().copied().fold(f64::INFINITY, f64::min),
            max: rates.iter().copied().fold(0.0, f64::max),
            mean,
            deviation: if rates.len() < 2 {
                0.0
            } else {
                (squares / (count - 1.0)).sqrt()
            },
            samples: rates.len(),
        }
    }
}

/// Seconds at the end of each whole interval of `step` samples, and how much was counted in it, a second.
pub fn rates<'a>(
    samples: &'a [Sample],
    step: usize,
    total: impl Fn(&Sample) -> u64 + 'a,
) -> impl Iterator<Item = (f64, f64)> + 'a {
    let mut last = (0, 0);
    samples
        .iter()
        .skip(step - 1)
        .step_by(step)
        .filter_map(move |sample| {
            let now = (sample.at_ns, total(sample));
            let (span_ns, count) = (now.0.saturating_sub(last.0), now.1.saturating_sub(last.1));
            last = now;
            (span_ns > 0).then(|| (now.0 as f64 / 1e9, count as f64 * 1e9 / span_ns as f64))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_between_two_samples() {
        let sample = |tenths: u64, bytes| Sample {
            at_ns: tenths * SAMPLE_INTERVAL_NS,
            bytes: [bytes, 0, 0],
            ios: [0; 3],
        };
        // 100 bytes in each of the first five tenths, 300 in each of the others.
        let samples: Vec<_> = (1..=10)
            .map(|at| {
                sample(
                    at,
                    if at <= 5 {
                        at * 100
                    } else {
                        500 + (at - 5) * 300
                    },
                )
            })
            .collect();
        let spread = Spread::of(&samples, |sample| sample.bytes[0]);
        assert_eq!(
            (spread.min, spread.max, spread.mean, spread.samples),
            (1000.0, 3000.0, 2000.0, 2)
        );
        assert!((spread.deviation - 2_000_000f64.sqrt()).abs() < 1e-6);
        assert_eq!(Spread::of(&[], |_| 1), Spread::default());
    }
}
