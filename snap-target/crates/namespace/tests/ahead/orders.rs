//! Orders and hints: what they fetch, how much of it may be unread, and how they end.

use super::*;

const FRAME: u64 = 64 << 10;

/// The n-th 64 KiB of the namespace.
fn frame(n: u64) -> std::ops::Range<u64> {
    n * FRAME..(n + 1) * FRAME
}

impl Bench {
    /// Begins an order of these frames with a quota of so many.
    fn order(&mut self, quota_frames: u64, frames: impl IntoIterator<Item = u64>) -> Arc<Order> {
        let order = self.ahead.begin_order(quota_frames * FRAME).unwrap();
        let ranges: Vec<_> = frames.into_iter().map(frame).collect();
        assert_eq!(order.give(&ranges), Ok(ranges.len()));
        order
    }

    /// Reads a frame of a raw store, and looks at its bytes.
    fn read_frame(&mut self, content: &[u8], n: u64) {
        let found = self.read(n * 16, 16);
        let range = frame(n);
        let place = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        assert!(found == content[place], "frame {n}");
    }
}

/// A little generator, so that an order is the same each time.
fn shuffled(count: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut state = 9_u64;
    for at in (1..order.len()).rev() {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let with = usize::try_from(state >> 33).unwrap() % (at + 1);
        order.swap(at, with);
    }
    order
}

#[test]
fn a_shuffled_order_that_was_given_in_advance_is_there_when_it_is_read() {
    let (mut bench, content) = raw(true, true);
    let ahead = bench.ahead.clone();
    // Samples of a frame each: 128 of them; 1 MiB of quota are 16.
    let samples = shuffled(128);
    let bytes = 64 << 10;
    let order = ahead.begin_order(1 << 20).unwrap();
    let ranges: Vec<_> = samples
        .iter()
        .map(|at| at * bytes..(at + 1) * bytes)
        .collect();
    assert_eq!(order.give(&ranges), Ok(128));
    bench.settle_order(&order, 16 * bytes);
    let progress = order.progress().unwrap();
    assert_eq!(
        (progress.given_ranges, progress.given_bytes),
        (128, 128 * bytes)
    );
    assert_eq!(
        (progress.begun_bytes, progress.fetched_bytes),
        (1 << 20, 1 << 20)
    );
    assert_eq!(
        progress.frames.unread_bytes,
        1 << 20,
        "the quota, and nothing more"
    );
    for (n, at) in samples.iter().enumerate() {
        let found = bench.read(at * 16, 16);
        let start = usize::try_from(at * bytes).unwrap();
        assert!(found == content[start..start + found.len()], "sample {n}");
        let fetched = (17 + n as u64).min(128) * bytes;
        bench.settle_order(&order, fetched);
    }
    let progress = order.progress().unwrap();
    let frames = progress.frames;
    assert_eq!((frames.hits, frames.late, frames.wasted), (128, 0, 0));
    assert_eq!(
        (progress.fetched_bytes, frames.unread_bytes),
        (128 * bytes, 0)
    );
    bench.assert_books();
    let counted = bench.counters();
    assert_eq!(counted.stored_bytes, content.len() as u64, "nothing twice");
}

#[test]
fn an_order_is_cancelled_and_another_takes_its_place() {
    let (mut bench, _) = raw(true, true);
    let ahead = bench.ahead.clone();
    let first = ahead.begin_order(1 << 20).unwrap();
    let ranges: Vec<_> = (0..64).map(|at| at << 16..(at + 1) << 16).collect();
    assert_eq!(first.give(&ranges), Ok(64));
    first.cancel();
    assert_eq!(first.give(&ranges), Err(OrderEnd::Cancelled));
    bench.settle();
    assert_eq!(bench.counters().prefetched_frames, 0);
    let second = ahead.begin_order(1 << 20).unwrap();
    let third = ahead.begin_order(1 << 20).unwrap();
    assert_eq!(second.progress(), Err(OrderEnd::Replaced));
    assert_eq!(third.give(std::slice::from_ref(&ranges[0])), Ok(1));
    bench.settle_order(&third, 1 << 16);
    assert_eq!(bench.counters().prefetched_frames, 1);
}

#[test]
fn a_reader_that_leaves_ranges_out_is_followed() {
    let (mut bench, _) = raw(true, true);
    let ahead = bench.ahead.clone();
    let order = ahead.begin_order(128 << 10).unwrap();
    let ranges: Vec<_> = (0..64).map(|at| at << 16..(at + 1) << 16).collect();
    assert_eq!(order.give(&ranges), Ok(64));
    bench.settle_order(&order, 128 << 10);
    // Reads of what nobody named, backwards, so that they are no stream.
    for at in (1000..1066).rev() {
        bench.read(at, 1);
    }
    bench.settle_order(&order, 192 << 10);
}

#[test]
fn what_a_host_says_that_it_will_read_is_fetched_in_any_order() {
    let (mut bench, content) = raw(true, true);
    let key = bench.key;
    bench
        .engine
        .hint(key, &[(1600, 16), (16, 16), (1 << 40, 1), (320, 1)]);
    bench.settle();
    assert_eq!(bench.counters().prefetched_frames, 3);
    bench.assert_books();
    for (lba, blocks) in [(16, 16), (320, 1), (1600, 16)] {
        let found = bench.read(lba, blocks);
        let start = usize::try_from(lba).unwrap() * BLOCK;
        assert!(found == content[start..start + found.len()]);
    }
    let counted = bench.counters();
    assert_eq!((counted.prefetch_hits, counted.prefetch_late), (3, 0));
    bench.assert_books();
}

#[test]
fn hints_that_are_not_read_and_hints_that_wait_are_within_the_budget_together() {
    let (namespace, content) = raw_over(slow);
    let config = EngineConfig {
        prefetch_bytes: 1 << 20,
        ..config()
    };
    let mut bench = Bench::new(namespace, &config);
    let key = bench.key;
    let kept = |bench: &Bench| bench.counters().prefetch_kept_bytes / FRAME;
    // 12 frames, then 8: those do not fit, and a quarter of the 12 makes room for what comes next.
    bench.engine.hint(key, &[(0, 12 * 16)]);
    bench.settle();
    assert_eq!(kept(&bench), 12);
    bench.engine.hint(key, &[(1024, 8 * 16)]);
    bench.settle();
    assert_eq!(kept(&bench), 9, "the oldest are given up");
    assert_eq!(bench.counters().prefetch_wasted, 3);
    bench.engine.hint(key, &[(1024, 7 * 16)]);
    bench.settle();
    assert_eq!(kept(&bench), 16, "the budget");
    assert_eq!(bench.counters().prefetched_frames, 19);
    // What is read makes room as well; backwards, so that it is no stream.
    for n in (3..12).rev() {
        bench.read_frame(&content, n);
    }
    bench.engine.hint(key, &[(512, 9 * 16)]);
    bench.settle();
    assert_eq!(kept(&bench), 16);
    assert_eq!(bench.counters().prefetch_wasted, 3);
    bench.assert_books();
}

#[test]
fn what_is_left_of_an_order_takes_no_room_from_the_next_and_is_not_counted_there() {
    let (mut bench, content) = raw(true, true);
    let first = bench.order(8, 0..64);
    bench.settle_order(&first, 8 * FRAME);
    // Frames 6 and 7 lie there already, the others do not.
    let second = bench.order(8, 6..64);
    bench.settle_order(&second, 8 * FRAME);
    let ordered = second.progress().unwrap().frames;
    assert_eq!(
        (ordered.came_bytes, ordered.unread_bytes),
        (8 * FRAME, 8 * FRAME)
    );
    assert_eq!(first.progress(), Err(OrderEnd::Replaced));
    let left = first.last_progress();
    assert_eq!(left.frames.unread_bytes, 6 * FRAME, "two were handed on");
    assert_eq!(left.fetched_bytes, 8 * FRAME);
    let counted = bench.counters();
    assert_eq!(counted.prefetched_frames, 14, "nothing twice");
    assert_eq!(counted.stored_bytes, 14 * FRAME);
    // The first order's are no hits of the second.
    bench.read_frame(&content, 0);
    assert_eq!(second.progress().unwrap().frames.hits, 0);
    assert_eq!(first.last_progress().frames.hits, 1);
    bench.read_frame(&content, 6);
    assert_eq!(second.progress().unwrap().frames.hits, 1);
    bench.assert_books();
}

#[test]
fn pieces_of_an_order_that_was_replaced_are_its_own() {
    let (namespace, _) = raw_over(|store| limited(store, "1GB/s,latency=50ms"));
    let mut bench = Bench::new(namespace, &config());
    let first = bench.order(4, 0..4);
    bench.engine.poll(&mut Vec::new());
    assert_eq!(first.progress().unwrap().begun_bytes, 4 * FRAME);
    let second = bench.order(4, 10..12);
    bench.settle_order(&second, 2 * FRAME);
    let progress = second.progress().unwrap();
    assert_eq!(
        (progress.begun_bytes, progress.frames.came_bytes),
        (2 * FRAME, 2 * FRAME)
    );
    let left = first.last_progress();
    assert_eq!(
        (left.begun_bytes, left.fetched_bytes),
        (4 * FRAME, 4 * FRAME)
    );
    assert_eq!(left.frames.came_bytes, 4 * FRAME);
    bench.assert_books();
}

#[test]
fn an_order_that_is_cancelled_midway_ends_what_is_under_way_and_begins_nothing() {
    let (mut bench, content) = raw(true, true);
    let order = bench.order(4, 0..64);
    bench.settle_order(&order, 4 * FRAME);
    order.cancel();
    for n in 0..4 {
        bench.read_frame(&content, n);
    }
    bench.settle();
    let last = order.last_progress();
    assert_eq!(
        (last.begun_bytes, last.fetched_bytes),
        (4 * FRAME, 4 * FRAME)
    );
    assert_eq!((last.frames.hits, last.frames.unread_bytes), (4, 0));
    assert_eq!(order.progress(), Err(OrderEnd::Cancelled));
    bench.assert_books();
}

/// 10 of 64 frames are left out, spread over the order: with a quota of four the others would stand still after a few.
#[test]
fn a_reader_that_leaves_some_out_is_followed_within_the_quota() {
    let (mut bench, content) = raw(true, true);
    let frames = shuffled(128);
    let order = bench.order(8, frames.iter().copied());
    bench.settle_order(&order, 8 * FRAME);
    let mut hits = 0;
    for (at, n) in frames.iter().enumerate() {
        if at % 6 == 3 {
            continue;
        }
        bench.read_frame(&content, *n);
        bench.settle();
        let progress = order.progress().unwrap();
        assert!(progress.frames.unread_bytes <= 8 * FRAME, "{progress:?}");
        hits = progress.frames.hits;
    }
    // Every frame that was read was there before.
    assert_eq!(hits, 128 - 21);
    let progress = order.progress().unwrap();
    assert_eq!(progress.fetched_bytes, 128 * FRAME);
    let frames = progress.frames;
    assert_eq!(frames.wasted * FRAME + frames.unread_bytes, 21 * FRAME);
    bench.assert_books();
}

#[test]
fn streams_are_looked_for_again_while_an_order_is_idle() {
    let (mut bench, content) = raw(true, true);
    // All that was given is read.
    let order = bench.order(8, 100..104);
    bench.settle_order(&order, 4 * FRAME);
    for n in 0..4 {
        bench.read_frame(&content, n);
        bench.settle();
    }
    assert_eq!(
        bench.counters().prefetched_frames,
        4,
        "none while it is followed"
    );
    for n in 100..104 {
        bench.read_frame(&content, n);
    }
    bench.settle();
    for n in 40..43 {
        bench.read_frame(&content, n);
        bench.settle();
    }
    let counted = bench.counters();
    assert!(counted.prefetched_frames > 4, "{counted:?}");
    assert_eq!(
        order.progress().unwrap().frames.came_bytes,
        4 * FRAME,
        "not the order's"
    );
    bench.assert_books();
}

/// All was given and fetched, so whoever gave the order is through; its reader is not. Neighbours in what is left are chance, as they were before.
#[test]
fn what_is_left_of_an_order_that_is_through_is_no_stream() {
    let ends: [fn(&Order); 2] = [Order::cancel, |_| {}];
    for end in ends {
        let (mut bench, content) = raw(true, true);
        let frames = [9, 30, 31, 32, 70, 33, 34, 12, 35, 36];
        let order = bench.order(16, frames);
        bench.settle_order(&order, 10 * FRAME);
        end(&order);
        for n in frames {
            bench.read_frame(&content, n);
            bench.settle();
        }
        let counted = bench.counters();
        assert_eq!(
            (counted.prefetched_frames, counted.prefetch_hits),
            (10, 10),
            "nothing that was not ordered"
        );
        assert_eq!(counted.stored_bytes, 10 * FRAME);
        // Nor is what comes after it one with its last reads.
        bench.read_frame(&content, 37);
        bench.settle();
        assert_eq!(bench.counters().prefetched_frames, 10);
        bench.read_frame(&content, 38);
        bench.settle();
        assert!(bench.counters().prefetched_frames > 10);
        bench.assert_books();
    }
}

#[test]
fn streams_are_looked_for_again_where_an_orders_reader_is_elsewhere() {
    let (mut bench, content) = raw(true, true);
    let order = bench.order(4, 100..104);
    bench.settle_order(&order, 4 * FRAME);
    for n in 0..63 {
        bench.read_frame(&content, n);
    }
    bench.settle();
    assert_eq!(bench.counters().prefetched_frames, 4);
    for n in 63..66 {
        bench.read_frame(&content, n);
        bench.settle();
    }
    assert!(bench.counters().prefetched_frames > 4);
    bench.assert_books();
}

#[test]
fn a_namespace_that_goes_ends_its_order_and_gives_up_what_nobody_waits_for() {
    // A store that stands still: only what is cancelled ends soon.
    let begun = Instant::now();
    let (namespace, _) = raw_over(|store| limited(store, "1GB/s,latency=10s"));
    let mut bench = Bench::new(namespace, &config());
    let (key, ahead) = (bench.key, bench.ahead.clone());
    let order = bench.order(8, 0..64);
    bench.engine.hint(key, &[(1024, 256)]);
    bench.engine.poll(&mut Vec::new());
    assert!(!bench.engine.is_drained(key));
    assert_eq!(order.progress().unwrap().begun_bytes, 8 * FRAME);
    bench.engine.retire(key);
    assert_eq!(order.progress(), Err(OrderEnd::Detached));
    assert_eq!(order.give(&[frame(0)]), Err(OrderEnd::Detached));
    assert_eq!(ahead.begin_order(1).unwrap_err(), OrderEnd::Detached);
    bench.until(&mut Vec::new(), |it, _| it.engine.is_drained(it.key));
    bench.engine.detach(key);
    bench.until(&mut Vec::new(), |it, _| !it.engine.is_attached(it.key));
    let last = order.last_progress();
    assert_eq!(
        (last.begun_bytes, last.fetched_bytes),
        (8 * FRAME, 8 * FRAME)
    );
    assert_eq!((last.frames.unread_bytes, last.frames.hits), (0, 0));
    bench.assert_books();
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "before the store answers"
    );
}

/// A view reads tables first: those are given up as well.
#[test]
fn a_view_that_goes_gives_up_the_tables_that_nobody_waits_for() {
    let begun = Instant::now();
    let packed = Packed::new("ahead-goes", "u16+lz4");
    let store = limited(packed.store(), "1GB/s,latency=10s");
    let mut bench = Bench::new(
        Namespace::of_view(1, packed.volume(), vec![store]),
        &config(),
    );
    let order = bench.order(8, 0..8);
    bench.engine.poll(&mut Vec::new());
    bench.engine.retire(bench.key);
    bench.until(&mut Vec::new(), |it, _| it.engine.is_drained(it.key));
    assert_eq!(order.last_progress().frames.came_bytes, 0);
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "before the store answers"
    );
}
