use super::*;
use crate::format::StreamIndex;
use crate::frame::Content;

/// What frames may fill.
const FRAMES_BYTES_MAX: usize = CACHE_BYTES_MIN - CACHE_BLOCKS_BYTES_MIN;

fn frame(frame: u64) -> Key {
    thread_local!(static VOLUME: VolumeId = VolumeId::next());
    Key::Frame(FrameId {
        volume: VOLUME.with(|volume| *volume),
        content: Content::Stream(StreamIndex(0)),
        frame,
    })
}

fn put(cache: &mut Cache, key: Key, len: usize, fill: u8) {
    let mut buffer = cache.reserve(len, key.is_frame()).unwrap();
    buffer.bytes().fill(fill);
    cache.insert(key, buffer);
}

#[test]
fn it_stays_within_its_budget_and_reuses_buffers() {
    let mut cache = Cache::new(CACHE_BYTES_MIN);
    let count = FRAMES_BYTES_MAX / (2 * BLOCK_BYTES);
    for n in 0..10 * count as u64 {
        put(&mut cache, frame(n), BLOCK_BYTES + 1, n as u8);
        assert!(cache.counters().used_bytes <= CACHE_BYTES_MIN);
    }
    let counters = cache.counters();
    assert_eq!(counters.allocations, count as u64);
    assert_eq!(counters.evictions, 9 * count as u64);
    assert_eq!(cache.get(frame(0)), None);
    let last = 10 * count as u64 - 1;
    assert_eq!(
        cache.get(frame(last)),
        Some(&[last as u8; BLOCK_BYTES + 1][..])
    );
}

#[test]
fn a_used_entry_stays_longer_than_an_unused_one() {
    let mut cache = Cache::new(CACHE_BYTES_MIN);
    let count = (FRAMES_BYTES_MAX / BLOCK_BYTES) as u64;
    for n in 0..count {
        put(&mut cache, frame(n), BLOCK_BYTES, n as u8);
    }
    assert!(cache.get(frame(0)).is_some());
    put(&mut cache, frame(count), BLOCK_BYTES, 0);
    assert!(cache.get(frame(0)).is_some());
    assert_eq!(cache.get(frame(1)), None);
}

#[test]
fn a_frame_over_the_budget_is_held_alone() {
    let mut cache = Cache::new(CACHE_BYTES_MIN);
    put(&mut cache, frame(0), 100, 1);
    put(&mut cache, frame(1), 2 * CACHE_BYTES_MIN, 2);
    assert_eq!(cache.get(frame(0)), None);
    assert!(cache.get(frame(1)).is_some());
    put(&mut cache, frame(2), 100, 3);
    assert_eq!(cache.get(frame(1)), None);
    assert_eq!(cache.counters().used_bytes, BLOCK_BYTES);
}

#[test]
fn of_two_equal_entries_the_first_stays() {
    let mut cache = Cache::new(CACHE_BYTES_MIN);
    put(&mut cache, frame(0), 10, 1);
    put(&mut cache, frame(0), 10, 2);
    assert_eq!(cache.get(frame(0)), Some(&[1; 10][..]));
    assert_eq!(cache.counters().used_bytes, BLOCK_BYTES);
}

#[derive(Debug, Default)]
struct Told(std::sync::Mutex<Vec<String>>);

impl Witness for Told {
    fn used(&self, bytes: usize) {
        self.0.lock().unwrap().push(format!("{bytes} used"));
    }

    fn left(&self, id: FrameId, bytes: usize, was_used: bool) {
        let text = format!("{} left, {bytes}, {was_used}", id.frame);
        self.0.lock().unwrap().push(text);
    }
}

#[test]
fn a_witness_is_told_of_the_first_use_and_of_the_end() {
    let told = Arc::new(Told::default());
    let mut cache = Cache::new(CACHE_BYTES_MIN);
    let id = |n| match frame(n) {
        Key::Frame(id) => id,
        Key::Block { .. } => unreachable!(),
    };
    for (n, is_used) in [(0, false), (1, false), (2, true)] {
        let buffer = cache.reserve_frame(10).unwrap();
        cache.insert_witnessed(id(n), buffer, told.clone(), 0, is_used);
    }
    assert!(cache.peek(id(0)).is_some());
    for _ in 0..2 {
        assert!(cache.frame(id(0)).is_some());
    }
    // It stays longer than what was read, and than what nobody asked for ahead.
    let count = (FRAMES_BYTES_MAX / BLOCK_BYTES) as u64;
    for n in 3..=count {
        put(&mut cache, frame(n), BLOCK_BYTES, 0);
    }
    assert!(cache.peek(id(0)).is_none() || cache.peek(id(2)).is_none());
    assert!(cache.peek(id(1)).is_some());
    let volume = id(0).volume;
    cache.forget(volume);
    let mut told = told.0.lock().unwrap().clone();
    assert_eq!(told.remove(0), "10 used", "once");
    told.sort();
    assert_eq!(
        told,
        ["0 left, 10, true", "1 left, 10, false", "2 left, 10, true"]
    );
}

#[test]
fn a_frame_that_is_held_keeps_its_bytes_and_its_place_in_the_budget() {
    let mut cache = Cache::new(CACHE_BYTES_MIN);
    let count = (FRAMES_BYTES_MAX / BLOCK_BYTES) as u64;
    let mut held = Vec::new();
    for n in 0..count {
        let mut buffer = cache.reserve_frame(BLOCK_BYTES).unwrap();
        buffer.bytes().fill(n as u8);
        held.push(cache.insert(frame(n), buffer));
    }
    assert!(cache.reserve_frame(1).is_none(), "all of them are held");
    // Blocks have their share all the same.
    let block = |offset| Key::Block {
        volume: VolumeId::next(),
        offset,
    };
    for n in 0..100 {
        let buffer = cache.reserve_block();
        cache.insert(block(n), buffer);
        assert!(cache.counters().used_bytes <= CACHE_BYTES_MIN);
    }
    for (n, frame) in held.iter().enumerate() {
        assert_eq!(frame[..], [n as u8; BLOCK_BYTES]);
    }
    held.remove(7);
    let buffer = cache.reserve_frame(BLOCK_BYTES).unwrap();
    assert_eq!(cache.get(frame(7)), None, "the one that was let go left");
    assert!(cache.reserve_frame(1).is_none());
    cache.give_back(buffer);
    assert!(cache.reserve_frame(1).is_some());
    assert_eq!(cache.counters().used_bytes_max, CACHE_BYTES_MIN);
}
