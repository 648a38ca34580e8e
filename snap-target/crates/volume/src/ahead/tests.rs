use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BUDGET: u64 = 64 * MIB;

/// A machine over a store with a latency of 2 ms that carries 200 MB/s.
fn slow() -> ReadAhead {
    let mut ahead = ReadAhead::new(1 << 40, BUDGET);
    ahead.pace.operation(2_000_000, true);
    let begun = ahead.pace.begin(0);
    ahead.pace.end(begun, 400_000, 2_000_000);
    ahead
}

/// A read that ends at once.
fn read(ahead: &mut ReadAhead, reader: u64, range: Range<u64>) {
    let bytes = range.end - range.start;
    ahead.read(ReaderId(reader), range);
    ahead.read_ended(bytes);
}

fn all(ahead: &mut ReadAhead) -> Vec<Range<u64>> {
    std::iter::from_fn(|| ahead.next_piece()).collect()
}

fn one(range: Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(range).collect()
}

/// What is named together, in order and without a gap.
fn joined(pieces: &[Range<u64>]) -> Range<u64> {
    for pair in pieces.windows(2) {
        assert_eq!(pair[0].end, pair[1].start, "{pieces:?}");
    }
    pieces[0].start..pieces[pieces.len() - 1].end
}

#[test]
fn the_second_read_in_order_begins_to_be_read_ahead_for() {
    let mut ahead = slow();
    read(&mut ahead, 1, 0..MIB);
    assert_eq!(all(&mut ahead), []);
    read(&mut ahead, 1, MIB..2 * MIB);
    // More than twice 200 MB/s times 2 ms, and two reads.
    let window = WINDOW_BYTES_MIN + MIB;
    assert_eq!(all(&mut ahead), one(2 * MIB..2 * MIB + window));
    read(&mut ahead, 1, 2 * MIB..3 * MIB);
    assert_eq!(all(&mut ahead), [], "less than a quarter of the window");
    read(&mut ahead, 1, 3 * MIB..4 * MIB);
    assert_eq!(all(&mut ahead), one(2 * MIB + window..4 * MIB + window));
}

#[test]
fn nothing_is_named_twice_and_nothing_left_out_whatever_the_lengths() {
    let mut ahead = slow();
    let mut at = 0;
    let mut named = Vec::new();
    for n in 0..2000_u64 {
        let len = 4096 * (1 + n * 7 % 60);
        read(&mut ahead, 1, at..at + len);
        at += len;
        named.extend(all(&mut ahead));
        for piece in &named {
            assert!(piece.end - piece.start <= PIECE_BYTES_MAX);
        }
    }
    let joined = joined(&named);
    assert!(
        joined.start < MIB && joined.end >= at + WINDOW_BYTES_MIN - MIB,
        "{joined:?} of {at}"
    );
    assert!(
        joined.end <= at + WINDOW_BYTES_MIN + MIB,
        "{joined:?} of {at}"
    );
}

#[test]
fn a_store_that_answers_at_once_is_not_read_ahead() {
    let mut ahead = ReadAhead::new(1 << 40, BUDGET);
    for n in 0..100 {
        ahead.pace.operation(199_999, true);
        read(&mut ahead, 1, n * MIB..(n + 1) * MIB);
        assert_eq!(all(&mut ahead), []);
    }
}

#[test]
fn random_reads_are_no_stream() {
    let mut ahead = slow();
    let mut state = 1_u64;
    for _ in 0..10_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let at = (state >> 30) % (1 << 22) * 16 * KIB;
        read(&mut ahead, 1, at..at + 16 * KIB);
        assert_eq!(all(&mut ahead), [], "at {at}");
    }
}

/// Samples of a small dataset are neighbours now and then.
#[test]
fn what_has_been_read_little_is_read_ahead_for_little() {
    let mut ahead = slow();
    let len = 16 * KIB;
    read(&mut ahead, 1, 0..len);
    let mut end = len;
    for read_bytes in (2..)
        .map(|reads| reads * len)
        .take_while(|it| *it < 2 * MIB)
    {
        read(&mut ahead, 1, end..end + len);
        end += len;
        let named = all(&mut ahead);
        let ahead_by = named.last().map_or(0, |piece| piece.end - end);
        let window = WINDOW_BYTES_MIN + len;
        let most = (8 * read_bytes).min(window);
        assert!(ahead_by <= most, "{ahead_by} ahead of {read_bytes}");
        // Less than a quarter of a window, or a MiB, is not worth a fetch.
        assert!(
            named.is_empty() || ahead_by == most,
            "{ahead_by} ahead of {read_bytes}"
        );
    }
    // Then nothing holds it back.
    read(&mut ahead, 1, end..end + 2 * MIB);
    let window = WINDOW_BYTES_MIN + 2 * MIB;
    assert_eq!(joined(&all(&mut ahead)).end, end + 2 * MIB + window);
}

#[test]
fn strided_reads_are_named_one_by_one() {
    let mut ahead = slow();
    let nth = |n: u64| n * 10 * MIB..n * 10 * MIB + 512 * KIB;
    read(&mut ahead, 1, nth(0));
    read(&mut ahead, 1, nth(1));
    assert_eq!(all(&mut ahead), [], "two reads have a distance by chance");
    read(&mut ahead, 1, nth(2));
    let window = (WINDOW_BYTES_MIN + 512 * KIB) / (512 * KIB);
    assert_eq!(
        all(&mut ahead),
        (3..=2 + window).map(nth).collect::<Vec<_>>()
    );
    read(&mut ahead, 1, nth(3));
    assert_eq!(all(&mut ahead), [nth(3 + window)]);
}

/// A header and then a record here and there: what is left out is not fetched, or soon no more.
#[test]
fn reads_that_leave_out_most_are_not_sequential() {
    let mut ahead = slow();
    let len = 128 * KIB;
    let nth = |n: u64| n * MIB..n * MIB + len;
    let mut named: Vec<Range<u64>> = Vec::new();
    read(&mut ahead, 1, nth(0));
    read(&mut ahead, 1, len..2 * len);
    for n in 1..200 {
        read(&mut ahead, 1, nth(n));
        named.extend(all(&mut ahead));
        let at_last = named.iter().skip_while(|piece| piece.start < 20 * MIB);
        for piece in at_last {
            assert_eq!(*piece, nth(piece.start / MIB), "read {n}");
        }
    }
    assert!(named.contains(&nth(199)), "it is a strided stream");
    // Now here, now there, never as far as before.
    let mut ahead = slow();
    let (mut at, mut bytes, mut state) = (0, 0, 1_u64);
    for n in 0..2000 {
        read(&mut ahead, 1, at..at + len);
        let pieces = all(&mut ahead);
        bytes += pieces.iter().map(|it| it.end - it.start).sum::<u64>();
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        at += if n == 0 {
            len
        } else {
            4 * len + (state >> 30) % (4 * len)
        };
    }
    assert!(bytes < 32 * MIB, "{bytes} of {at}");
}

#[test]
fn interleaved_streams_of_two_readers_are_told_apart() {
    let mut ahead = slow();
    let mut named = [Vec::new(), Vec::new()];
    let at = [0, 1 << 30];
    for n in 0..32 {
        for reader in [0, 1] {
            let start = at[reader] + n * 128 * KIB;
            read(&mut ahead, reader as u64, start..start + 128 * KIB);
            named[reader].extend(all(&mut ahead));
        }
    }
    for reader in [0, 1] {
        let joined = joined(&named[reader]);
        assert_eq!(joined.start, at[reader] + 256 * KIB);
        assert!(joined.end > at[reader] + 5 * MIB, "{joined:?}");
    }
}

#[test]
fn interleaved_strides_of_two_readers_are_told_apart() {
    let nth = |reader: u64, n: u64| {
        let start = (reader << 30) + n * 10 * MIB;
        start..start + 512 * KIB
    };
    let mut ahead = slow();
    for n in 0..3 {
        for reader in [0, 1] {
            read(&mut ahead, reader, nth(reader, n));
        }
    }
    let window = (WINDOW_BYTES_MIN + 512 * KIB) / (512 * KIB);
    let named: Vec<_> = (3..=2 + window).map(|n| nth(1, n)).collect();
    assert_eq!(all(&mut ahead), named);
    read(&mut ahead, 0, nth(0, 3));
    let named: Vec<_> = (4..=3 + window).map(|n| nth(0, n)).collect();
    assert_eq!(all(&mut ahead), named);
}

#[test]
fn what_comes_over_two_queues_out_of_order_goes_on() {
    let mut ahead = slow();
    let mut named = Vec::new();
    for n in [0, 1, 3, 2, 5, 4, 6, 8, 7, 10, 9, 11_u64] {
        read(&mut ahead, 1, n * MIB..(n + 1) * MIB);
        named.extend(all(&mut ahead));
    }
    assert!(joined(&named).end >= 12 * MIB + WINDOW_BYTES_MIN);
}

#[test]
fn nothing_is_named_beyond_the_end_or_the_budget() {
    let mut ahead = ReadAhead::new(3 * MIB + 5, MIB);
    ahead.pace.operation(10_000_000, true);
    read(&mut ahead, 1, 0..MIB);
    read(&mut ahead, 1, MIB..2 * MIB);
    assert_eq!(all(&mut ahead), one(2 * MIB..3 * MIB), "the budget");
    read(&mut ahead, 1, 2 * MIB..3 * MIB);
    assert_eq!(all(&mut ahead), one(3 * MIB..3 * MIB + 5), "the end");
    read(&mut ahead, 1, 3 * MIB..3 * MIB + 5);
    assert_eq!(all(&mut ahead), []);
}

#[test]
fn a_wide_line_takes_twice_what_it_carries_and_two_reads() {
    let mut ahead = slow();
    let begun = ahead.pace.begin(0);
    ahead.pace.end(begun, 8_000_000, 4_000_000);
    read(&mut ahead, 1, 0..MIB);
    read(&mut ahead, 1, MIB..2 * MIB);
    // 2 GB/s for 2 ms.
    let window = 2 * 4_000_000 + 2 * MIB;
    assert_eq!(joined(&all(&mut ahead)), 2 * MIB..2 * MIB + window);
}

#[test]
fn who_asks_for_much_at_a_time_keeps_the_store_busy_himself() {
    let mut ahead = slow();
    for n in 0..16 {
        ahead.read(ReaderId(1), n * MIB..(n + 1) * MIB);
        // Two reads under way leave three of the window of five.
        match n {
            1 => assert_eq!(joined(&all(&mut ahead)), 2 * MIB..5 * MIB),
            _ => assert_eq!(all(&mut ahead), [], "read {n}"),
        }
    }
    for _ in 0..15 {
        ahead.read_ended(MIB);
    }
    assert_eq!(
        joined(&all(&mut ahead)),
        16 * MIB..20 * MIB,
        "one is under way"
    );
}

#[test]
fn the_latency_is_that_of_an_operation_which_the_store_has_alone() {
    let mut pace = Pace::default();
    pace.operation(300_000, true);
    for _ in 0..1000 {
        pace.operation(5_000_000, false);
    }
    let begun = pace.begin(0);
    pace.end(begun, 1_000_000, 1_000_000);
    assert_eq!(
        pace.carried_bytes(),
        300_000,
        "1 GB/s for 0.3 ms: a queue is no latency"
    );
    pace.operation(100_000, false);
    assert!(
        !pace.is_slow(),
        "it cannot take longer than one that had others before it"
    );
    for _ in 0..20 {
        pace.operation(5_000_000, true);
    }
    assert!(pace.is_slow(), "and it may become slower");
}

#[test]
fn what_came_from_the_cache_is_no_bandwidth() {
    let mut ahead = slow();
    let carried = ahead.pace.carried_bytes();
    assert_eq!(carried, 400_000);
    let begun = ahead.pace.begin(10);
    ahead.pace.end(begun, 64 * MIB, 1_000_000);
    assert_eq!(
        ahead.pace.carried_bytes(),
        carried,
        "less than an operation takes"
    );
}
