//! A histogram of times with a bounded relative error, in fixed memory.
//!
//! Log-linear: each octave from 1.024 us to 68.7 s (2^10 to 2^36 ns) has 8 buckets of the same width; one bucket lies below and one above. A bucket holds
//! its upper edge and not its lower one, as Prometheus' `le` counts.
//!
//! **Error.** A percentile is given as the upper edge of its bucket, and never beyond the largest time: it is at least the exact one, and, from 1.024 us to 68.7 s,
//! less than 9/8 of it. Below it is at most 1.024 us; above it is at most the largest time.

use std::sync::OnceLock;

use serde::Serialize;

use crate::cell::Counter;

/// Buckets of an octave, as a power of two.
const SUB_BITS: u32 = 3;
/// The first octave begins at 2^10 ns.
const FIRST_OCTAVE: u32 = 10;
/// The last one ends at 2^36 ns.
const END_OCTAVE: u32 = 36;
/// One below and one above.
const BUCKETS: usize = ((END_OCTAVE - FIRST_OCTAVE) << SUB_BITS) as usize + 2;

/// Times in nanoseconds; written by one thread.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum_ns: Counter,
    /// Of the least time, less one: 0 says that there was none.
    not_min_ns: Counter,
    max_ns: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum_ns: Counter::default(),
            not_min_ns: Counter::default(),
            max_ns: Counter::default(),
        }
    }
}

/// A histogram whose memory is taken with its first time: most rows have no writes.
#[derive(Debug, Default)]
pub(crate) struct LazyHistogram(OnceLock<Box<Histogram>>);

impl LazyHistogram {
    /// Counts a time.
    #[inline]
    pub(crate) fn record(&self, ns: u64) {
        self.0.get_or_init(Box::default).record(ns);
    }

    /// A copy for readers.
    pub(crate) fn snapshot(&self) -> HistogramSnapshot {
        let counted = self.0.get().map(|histogram| histogram.snapshot());
        counted.unwrap_or_default()
    }
}

impl Histogram {
    /// Counts a time.
    #[inline]
    pub fn record(&self, ns: u64) {
        if let Some(bucket) = self.buckets.get(bucket_of(ns)) {
            bucket.add(1);
        }
        self.sum_ns.add(ns);
        // Kept inverted, so that a new histogram needs no special case.
        if !ns > self.not_min_ns.get() {
            self.not_min_ns.set(!ns);
        }
        if ns > self.max_ns.get() {
            self.max_ns.set(ns);
        }
    }

    /// A copy for readers.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts = self.buckets.iter().map(Counter::get);
        let buckets: Vec<(u64, u64)> = counts
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (upper_edge_ns(bucket), count))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        HistogramSnapshot {
            count,
            sum_ns: self.sum_ns.get(),
            min_ns: if count == 0 {
                0
            } else {
                !self.not_min_ns.get()
            },
            max_ns: self.max_ns.get(),
            buckets,
        }
    }
}

#[inline]
fn bucket_of(ns: u64) -> usize {
    // The upper edge belongs to the bucket.
    let ns = ns.saturating_sub(1);
    let octave = ns.checked_ilog2().unwrap_or(0);
    match octave {
        ..FIRST_OCTAVE => 0,
        END_OCTAVE.. => BUCKETS - 1,
        _ => {
            let sub = (ns >> (octave - SUB_BITS)) & ((1 << SUB_BITS) - 1);
            // Below 2^SUB_BITS.
            1 + ((octave - FIRST_OCTAVE) << SUB_BITS) as usize + usize::try_from(sub).unwrap_or(0)
        }
    }
}

/// The largest time of a bucket; that of the last has no end.
fn upper_edge_ns(bucket: usize) -> u64 {
    if bucket + 1 >= BUCKETS {
        return u64::MAX;
    }
    let Some(bucket) = bucket.checked_sub(1) else {
        return 1 << FIRST_OCTAVE;
    };
    let (octave, sub) = (bucket >> SUB_BITS, bucket & ((1 << SUB_BITS) - 1));
    ((1 << SUB_BITS) + sub as u64 + 1) << (octave + (FIRST_OCTAVE - SUB_BITS) as usize)
}

/// A histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HistogramSnapshot {
    /// Times counted.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
    /// The least, in nanoseconds; 0 where none was counted.
    pub min_ns: u64,
    /// The largest, in nanoseconds.
    pub max_ns: u64,
    /// Buckets that are not empty, ascending: their upper edge in nanoseconds (the last one's is `u64::MAX`), and how many times lie in them.
    pub buckets: Vec<(u64, u64)>,
}

impl HistogramSnapshot {
    /// The lower edge of the bucket with this upper one, in nanoseconds; it belongs to the bucket below. 0 of the first, which holds 0 too.
    #[must_use]
    pub fn lower_edge_ns(upper_ns: u64) -> u64 {
        bucket_of(upper_ns).checked_sub(1).map_or(0, upper_edge_ns)
    }

    /// The time that `ppm` of a million times do not exceed (500,000: the median); see the module for its error. 0 where none was counted.
    #[must_use]
    pub fn percentile_ns(&self, ppm: u32) -> u64 {
        let rank = (u128::from(self.count) * u128::from(ppm)).div_ceil(1_000_000);
        let rank = u64::try_from(rank).unwrap_or(u64::MAX).max(1);
        let mut below = 0;
        for (edge_ns, count) in &self.buckets {
            below += count;
            if below >= rank {
                return (*edge_ns).clamp(self.min_ns, self.max_ns);
            }
        }
        self.max_ns
    }

    /// How many times are at most `edge_ns`, which is an edge of a bucket.
    #[must_use]
    pub fn at_most(&self, edge_ns: u64) -> u64 {
        let within = self.buckets.iter().take_while(|(edge, _)| *edge <= edge_ns);
        within.map(|(_, count)| count).sum()
    }

    /// The edges of the octaves, which are edges of buckets: 1.024 us and its doubles, to 68.7 s.
    pub fn octave_edges_ns() -> impl Iterator<Item = u64> {
        (FIRST_OCTAVE..=END_OCTAVE).map(|octave| 1 << octave)
    }

    /// Adds what another histogram has counted.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min_ns = match self.count {
            0 => other.min_ns,
            _ => self.min_ns.min(other.min_ns),
        };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        for (edge_ns, count) in &other.buckets {
            match self
                .buckets
                .binary_search_by_key(edge_ns, |(edge, _)| *edge)
            {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (*edge_ns, *count)),
            }
        }
    }

    /// What was counted since `earlier`, a snapshot of the same histogram. The least and the largest time are then known to their buckets only.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |edge_ns: u64| {
            let found = earlier
                .buckets
                .binary_search_by_key(&edge_ns, |(edge, _)| *edge);
            found.map_or(0, |at| earlier.buckets[at].1)
        };
        let buckets: Vec<(u64, u64)> = self
            .buckets
            .iter()
            .map(|(edge, count)| (*edge, count.saturating_sub(before(*edge))))
            .filter(|(_, count)| *count > 0)
            .collect();
        let edge = |bucket: Option<&(u64, u64)>| bucket.map_or(0, |(edge, _)| *edge);
        Self {
            count: buckets.iter().map(|(_, count)| count).sum(),
            sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns),
            min_ns: self.min_ns.min(edge(buckets.first())),
            max_ns: self.max_ns.min(edge(buckets.last())),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests;
