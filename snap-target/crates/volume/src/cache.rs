//! What a reactor keeps of the volumes it reads: decoded frames and table blocks, under one byte budget, in one clock.
//!
//! A cache belongs to one reactor. It allocates until its budget is used, and reuses its buffers from then on: frames of one stream are
//! equally long, and so are all table blocks. Table blocks get more chances than frames: a frame that leaves costs a decode, a
//! block that leaves costs every read in its reach a fetch.

use std::cell::Cell;
use std::collections::HashMap;

use crate::format::StreamIndex;
use crate::format::raw::BLOCK_BYTES;
use crate::limits::CACHE_BYTES_MIN;
use crate::volume::{Volume, VolumeId};

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A table block, checked, by its place.
    Block { volume: VolumeId, offset: u64 },
    /// The packed form of a frame.
    Frame {
        volume: VolumeId,
        stream: StreamIndex,
        frame: u64,
    },
}

impl Key {
    /// Turns of the clock's hand that an entry survives after a use.
    fn chances(self) -> u8 {
        match self {
            Key::Block { .. } => 3,
            Key::Frame { .. } => 1,
        }
    }

    fn volume(self) -> VolumeId {
        match self {
            Key::Block { volume, .. } | Key::Frame { volume, .. } => volume,
        }
    }
}

/// Frames and table blocks of one reactor.
#[derive(Debug)]
pub struct Cache {
    budget_bytes: usize,
    /// Bytes of all buffers, those lent out for filling included.
    used_bytes: usize,
    index: HashMap<Key, usize>,
    slots: Vec<Slot>,
    /// Slots without an entry.
    free: Vec<usize>,
    /// Where the clock's hand stands.
    hand: usize,
    counters: CacheCounters,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

#[derive(Debug)]
struct Slot {
    key: Option<Key>,
    bytes: Vec<u8>,
    chances: Cell<u8>,
}

/// How a cache did since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounters {
    /// Look-ups that found their entry.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Entries that left for others.
    pub evictions: u64,
    /// Buffers allocated. Stands still once the cache is warm.
    pub allocations: u64,
    /// Bytes in use now.
    pub used_bytes: usize,
}

impl Cache {
    /// A cache that holds at most `budget_bytes` (at least [`CACHE_BYTES_MIN`]); a single frame that is larger is held alone.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Cache {
        Cache {
            budget_bytes: budget_bytes.max(CACHE_BYTES_MIN),
            used_bytes: 0,
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            hand: 0,
            counters: CacheCounters::default(),
            hits: Cell::new(0),
            misses: Cell::new(0),
        }
    }

    /// How it did.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        CacheCounters {
            hits: self.hits.get(),
            misses: self.misses.get(),
            used_bytes: self.used_bytes,
            ..self.counters
        }
    }

    /// Forgets everything of a volume that is detached.
    pub fn forget(&mut self, volume: &Volume) {
        for at in 0..self.slots.len() {
            if self.slots[at]
                .key
                .is_some_and(|key| key.volume() == volume.id())
            {
                let bytes = self.empty_slot(at);
                self.drop_buffer(bytes);
            }
        }
    }

    /// The bytes of an entry.
    pub(crate) fn get(&self, key: Key) -> Option<&[u8]> {
        let Some(slot) = self.index.get(&key).and_then(|at| self.slots.get(*at)) else {
            self.misses.set(self.misses.get() + 1);
            return None;
        };
        self.hits.set(self.hits.get() + 1);
        slot.chances.set(key.chances());
        Some(&slot.bytes)
    }

    /// A buffer of `len` bytes to be filled and inserted; what it holds is left over. Entries leave to make room for it.
    pub(crate) fn reserve(&mut self, len: usize) -> Vec<u8> {
        let capacity = len.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        while self.used_bytes + capacity > self.budget_bytes {
            let Some(mut bytes) = self.evict() else { break };
            if bytes.capacity() == capacity {
                bytes.resize(len, 0);
                return bytes;
            }
            self.drop_buffer(bytes);
        }
        let mut bytes = Vec::with_capacity(capacity);
        self.used_bytes += bytes.capacity();
        self.counters.allocations += 1;
        bytes.resize(len, 0);
        bytes
    }

    /// Takes a filled buffer in.
    pub(crate) fn insert(&mut self, key: Key, bytes: Vec<u8>) {
        if let Some(at) = self.index.get(&key).copied() {
            // Two operations fetched the same thing: the later one's bytes are as good.
            let old = std::mem::replace(&mut self.slots[at].bytes, bytes);
            self.drop_buffer(old);
            return;
        }
        let slot = Slot {
            key: Some(key),
            bytes,
            chances: Cell::new(0),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.index.insert(key, at);
    }

    /// Takes back a buffer that was not filled.
    pub(crate) fn drop_buffer(&mut self, bytes: Vec<u8>) {
        self.used_bytes -= bytes.capacity();
    }

    /// Removes the first entry without chances that the hand meets; returns its buffer.
    fn evict(&mut self) -> Option<Vec<u8>> {
        // Four rounds take the last chance from every entry.
        for _ in 0..self.slots.len() * 4 {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &self.slots[at];
            if slot.key.is_none() {
                continue;
            }
            if slot.chances.get() > 0 {
                slot.chances.set(slot.chances.get() - 1);
                continue;
            }
            self.counters.evictions += 1;
            return Some(self.empty_slot(at));
        }
        None
    }

    fn empty_slot(&mut self, at: usize) -> Vec<u8> {
        if let Some(key) = self.slots[at].key.take() {
            self.index.remove(&key);
            self.free.push(at);
        }
        std::mem::take(&mut self.slots[at].bytes)
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    fn frame(frame: u64) -> Key {
        thread_local!(static VOLUME: VolumeId = VolumeId::next());
        Key::Frame {
            volume: VOLUME.with(|volume| *volume),
            stream: StreamIndex(0),
            frame,
        }
    }

    fn put(cache: &mut Cache, key: Key, len: usize, fill: u8) {
        let mut bytes = cache.reserve(len);
        bytes.fill(fill);
        cache.insert(key, bytes);
    }

    #[test]
    fn it_stays_within_its_budget_and_reuses_buffers() {
        let mut cache = Cache::new(CACHE_BYTES_MIN);
        let count = CACHE_BYTES_MIN / (2 * BLOCK_BYTES);
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
        let count = (CACHE_BYTES_MIN / BLOCK_BYTES) as u64;
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
    fn the_later_of_two_equal_entries_replaces_the_other() {
        let mut cache = Cache::new(CACHE_BYTES_MIN);
        put(&mut cache, frame(0), 10, 1);
        put(&mut cache, frame(0), 10, 2);
        assert_eq!(cache.get(frame(0)), Some(&[2; 10][..]));
        assert_eq!(cache.counters().used_bytes, BLOCK_BYTES);
    }
}
