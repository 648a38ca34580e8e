use proptest::collection::vec;
use proptest::prelude::*;

use super::{BUCKETS, Histogram, HistogramSnapshot, bucket_of, upper_edge_ns};

/// Every magnitude from 1 ns to 2^40 ns.
fn times() -> impl Strategy<Value = u64> {
    (0u32..40, any::<u64>()).prop_map(|(octave, low)| (1 << octave) | low & ((1 << octave) - 1))
}

fn of(times: &[u64]) -> HistogramSnapshot {
    let histogram = Histogram::default();
    times.iter().for_each(|ns| histogram.record(*ns));
    histogram.snapshot()
}

/// The time of this rank, counted from 1, where `ppm` of a million are not beyond it.
fn exact(sorted: &[u64], ppm: u32) -> u64 {
    let rank = (sorted.len() as u64 * u64::from(ppm))
        .div_ceil(1_000_000)
        .max(1);
    sorted[usize::try_from(rank).unwrap() - 1]
}

#[test]
fn an_upper_edge_is_the_last_of_its_bucket() {
    for bucket in 0..BUCKETS - 1 {
        let edge = upper_edge_ns(bucket);
        assert_eq!(bucket_of(edge), bucket, "{edge} ns");
        assert_eq!(bucket_of(edge + 1), bucket + 1, "{edge} ns and one");
    }
    assert_eq!(upper_edge_ns(0), 1 << 10);
    assert_eq!(upper_edge_ns(BUCKETS - 2), 1 << 36);
    assert_eq!(bucket_of(0), 0);
    assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
}

#[test]
fn an_empty_histogram_says_zero() {
    let empty = of(&[]);
    assert_eq!(empty, HistogramSnapshot::default());
    assert_eq!(empty.percentile_ns(500_000), 0);
}

proptest! {
    #[test]
    fn percentiles_keep_their_error_bound(mut times in vec(times(), 1..400), ppm in 0u32..=1_000_000) {
        let snapshot = of(&times);
        times.sort_unstable();
        let (exact, given) = (exact(&times, ppm), snapshot.percentile_ns(ppm));
        let largest = *times.last().unwrap();
        prop_assert!(given >= exact, "{given} is below {exact}");
        match exact {
            ..=1024 => prop_assert!(given <= 1024),
            1025..=0x10_0000_0000 => prop_assert!(given * 8 < exact * 9, "{given} is too far above {exact}"),
            _ => prop_assert!(given <= largest),
        }
        prop_assert_eq!(snapshot.percentile_ns(1_000_000), largest);
        prop_assert_eq!((snapshot.min_ns, snapshot.max_ns), (times[0], largest));
        prop_assert_eq!(snapshot.sum_ns, times.iter().sum::<u64>());
        prop_assert_eq!(snapshot.count, times.len() as u64);
    }

    #[test]
    fn counts_up_to_an_octave_are_exact(times in vec(times(), 0..200)) {
        let snapshot = of(&times);
        for edge in HistogramSnapshot::octave_edges_ns() {
            let exact = times.iter().filter(|ns| **ns <= edge).count() as u64;
            prop_assert_eq!(snapshot.at_most(edge), exact);
        }
    }

    #[test]
    fn two_merged_are_one_over_both(one in vec(times(), 0..100), two in vec(times(), 0..100)) {
        let mut merged = of(&one);
        merged.merge(&of(&two));
        prop_assert_eq!(merged, of(&[one, two].concat()));
    }

    #[test]
    fn a_difference_is_what_came_between(first in vec(times(), 0..100), later in vec(times(), 1..100)) {
        let both = of(&[&first[..], &later[..]].concat());
        let since = both.since(&of(&first));
        let alone = of(&later);
        prop_assert_eq!(&since.buckets, &alone.buckets);
        prop_assert_eq!((since.count, since.sum_ns), (alone.count, alone.sum_ns));
        // The bounds of the difference hold the exact ones.
        prop_assert!(since.max_ns >= alone.max_ns && since.max_ns <= both.max_ns);
    }
}
