//! What a reactor keeps of the volumes it reads: decoded frames and table blocks, under one byte budget, in one clock.
//!
//! A cache belongs to one reactor; the frames in it are shared ([`Frame`]), and one that somebody holds keeps its memory and its
//! place in the budget until he lets go. The cache allocates until its budget is used, and reuses its buffers from then on: frames of one
//! stream are equally long, and so are all table blocks. Table blocks get more chances than frames: a frame that leaves costs a
//! decode, a block that leaves costs every read in its reach a fetch.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::format::raw::BLOCK_BYTES;
use crate::frame::FrameId;
use crate::limits::{CACHE_BLOCKS_BYTES_MIN, CACHE_BYTES_MIN};
use crate::volume::VolumeId;

/// What an entry holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A table block, checked, by its place.
    Block { volume: VolumeId, offset: u64 },
    /// The packed form of a frame.
    Frame(FrameId),
}

impl Key {
    /// Turns of the clock's hand that an entry survives after a use.
    fn chances(self) -> u8 {
        match self {
            Key::Block { .. } => 3,
            Key::Frame(_) => 1,
        }
    }

    fn is_frame(self) -> bool {
        matches!(self, Key::Frame(_))
    }

    fn volume(self) -> VolumeId {
        match self {
            Key::Block { volume, .. } => volume,
            Key::Frame(id) => id.volume,
        }
    }
}

/// The packed bytes of a frame, shared: any thread may hold and read them. As long as somebody does, they count against the budget of the cache
/// that they are from.
#[derive(Debug, Clone)]
pub struct Frame(Arc<Vec<u8>>);

impl Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// A buffer of a cache, lent out to be filled; any thread may do that. It goes back to its cache by
/// [`insert_frame`](Cache::insert_frame) or [`give_back`](Cache::give_back).
#[derive(Debug)]
pub struct FrameBuf {
    /// Nobody else has it, until it is an entry.
    memory: Arc<Vec<u8>>,
    is_frame: bool,
}

impl FrameBuf {
    /// Bytes to be filled.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The bytes to be filled; what they hold is left over.
    pub fn bytes(&mut self) -> &mut [u8] {
        // Never a copy: the memory is not shared.
        let bytes: &mut Vec<u8> = Arc::make_mut(&mut self.memory);
        bytes
    }
}

/// Who is told what becomes of a frame in a cache.
pub trait Witness: fmt::Debug + Send + Sync {
    /// A frame that came before anybody asked for it was read for the first time.
    fn used(&self, bytes: usize);
    /// A frame left the cache; whether anybody had read it.
    fn left(&self, id: FrameId, bytes: usize, was_used: bool);
    /// Another one is told what becomes of a frame that nobody has read.
    fn handed_on(&self, _bytes: usize) {}
    /// Whether the frame that was inserted with this position need not wait for a reader any more.
    fn is_given_up(&self, _position: u64) -> bool {
        false
    }
}

/// Frames and table blocks of one reactor.
#[derive(Debug)]
pub struct Cache {
    budget_bytes: usize,
    /// Bytes of all buffers, those lent out for filling included.
    used_bytes: usize,
    /// Those of frames.
    frame_bytes: usize,
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
    entry: Option<Entry>,
    chances: Cell<u8>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    memory: Arc<Vec<u8>>,
    witness: Option<Arc<dyn Witness>>,
    /// Whether anybody has read it, where there is a witness.
    is_used: Cell<bool>,
    /// Its place among the frames of its witness, as that has it.
    position: u64,
}

/// Turns of the clock's hand that a frame survives which came ahead of its reader: more than those that were read, since they will be.
const CHANCES_AHEAD: u8 = 3;

impl Entry {
    /// Notes that somebody reads it; the chances that it has then.
    fn read(&self) -> u8 {
        match (&self.witness, self.is_used.replace(true)) {
            // Who was read ahead for goes on: it is not read again as a rule.
            (Some(witness), false) => {
                witness.used(self.memory.len());
                0
            }
            _ => self.key.chances(),
        }
    }

    /// Whether nobody has read it, and nobody is waited for to do so.
    fn is_given_up(&self) -> bool {
        let witness = self.witness.as_ref().filter(|_| !self.is_used.get());
        witness.is_some_and(|witness| witness.is_given_up(self.position))
    }

    /// Whether somebody holds it.
    fn is_held(&mut self) -> bool {
        Arc::get_mut(&mut self.memory).is_none()
    }
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
    /// The most bytes that were ever in use.
    pub used_bytes_max: usize,
}

impl Cache {
    /// A cache that holds at most `budget_bytes` (at least [`CACHE_BYTES_MIN`]); a single frame that is larger is held alone.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Cache {
        Cache {
            budget_bytes: budget_bytes.max(CACHE_BYTES_MIN),
            used_bytes: 0,
            frame_bytes: 0,
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

    /// Forgets everything of a volume that is detached; frames that somebody holds leave later, as others do.
    pub fn forget(&mut self, volume: VolumeId) {
        for at in 0..self.slots.len() {
            let entry = self.slots[at].entry.as_mut();
            if entry.is_some_and(|entry| entry.key.volume() == volume && !entry.is_held())
                && let Some(buffer) = self.empty_slot(at)
            {
                self.give_back(buffer);
            }
        }
    }

    /// A frame, if it is here.
    #[must_use]
    pub fn frame(&self, id: FrameId) -> Option<Frame> {
        let entry = self.find(Key::Frame(id))?;
        Some(Frame(entry.memory.clone()))
    }

    /// A buffer for a frame of `bytes`. Entries leave to make room for it; `None`: too much of the budget is lent out or held, so try
    /// again when some was let go.
    pub fn reserve_frame(&mut self, bytes: usize) -> Option<FrameBuf> {
        self.reserve(bytes, true)
    }

    /// Takes a filled frame in.
    pub fn insert_frame(&mut self, id: FrameId, buffer: FrameBuf) -> Frame {
        self.insert(Key::Frame(id), buffer)
    }

    /// As [`frame`](Self::frame), without being a use of it.
    #[must_use]
    pub fn peek(&self, id: FrameId) -> Option<Frame> {
        let slot = self.slots.get(*self.index.get(&Key::Frame(id))?)?;
        Some(Frame(slot.entry.as_ref()?.memory.clone()))
    }

    /// As [`insert_frame`](Self::insert_frame); `witness` is told what becomes of it, and whether it still waits for a reader by its `position`.
    /// `is_used`: somebody reads it now.
    pub fn insert_witnessed(
        &mut self,
        id: FrameId,
        buffer: FrameBuf,
        witness: Arc<dyn Witness>,
        position: u64,
        is_used: bool,
    ) -> Frame {
        let key = Key::Frame(id);
        let is_there = self.index.contains_key(&key);
        let frame = self.insert(key, buffer);
        let slot = self.index.get(&key).and_then(|at| self.slots.get_mut(*at));
        let entry = slot.filter(|_| !is_there);
        match entry.and_then(|slot| Some((&slot.chances, slot.entry.as_mut()?))) {
            Some((chances, entry)) => {
                entry.witness = Some(witness);
                entry.is_used.set(is_used);
                entry.position = position;
                chances.set(if is_used { 0 } else { CHANCES_AHEAD });
            }
            None => witness.left(id, frame.len(), is_used),
        }
        frame
    }

    /// The bytes of a frame that is here, that nobody has read, and about which somebody else than `witness` is told.
    #[must_use]
    pub fn unread_of_others(&self, id: FrameId, witness: &Arc<dyn Witness>) -> Option<usize> {
        let slot = self.slots.get(*self.index.get(&Key::Frame(id))?)?;
        let entry = slot.entry.as_ref().filter(|entry| !entry.is_used.get())?;
        let other = entry.witness.as_ref()?;
        (!Arc::ptr_eq(other, witness)).then_some(entry.memory.len())
    }

    /// Has `witness` told in place of the one who was what becomes of such a frame.
    pub fn hand_on(&mut self, id: FrameId, witness: Arc<dyn Witness>, position: u64) {
        let slot = self.index.get(&Key::Frame(id));
        let slot = slot.and_then(|at| self.slots.get_mut(*at));
        let entry = slot.and_then(|slot| slot.entry.as_mut());
        if let Some(entry) = entry {
            entry.position = position;
            if let Some(before) = entry.witness.replace(witness) {
                before.handed_on(entry.memory.len());
            }
        }
    }

    /// Lets a frame go whose bytes are wrong; one that somebody holds leaves later, as others do.
    pub fn drop_frame(&mut self, id: FrameId) {
        let at = self.index.get(&Key::Frame(id)).copied();
        let entry = at.and_then(|at| self.slots.get_mut(at)?.entry.as_mut());
        if entry.is_some_and(|entry| !entry.is_held())
            && let Some(buffer) = at.and_then(|at| self.empty_slot(at))
        {
            self.give_back(buffer);
        }
    }

    /// Lets the frames go that were given up and that nobody has read.
    pub fn drop_given_up(&mut self) {
        for at in 0..self.slots.len() {
            let entry = self.slots[at].entry.as_mut();
            if entry.is_some_and(|entry| entry.is_given_up() && !entry.is_held())
                && let Some(buffer) = self.empty_slot(at)
            {
                self.give_back(buffer);
            }
        }
    }

    /// Bytes of frames with a witness that nobody has read: a walk through all entries.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        entries
            .filter(|entry| entry.witness.is_some() && !entry.is_used.get())
            .map(|entry| entry.memory.len())
            .sum()
    }

    /// Takes back a buffer that is not to be kept.
    pub fn give_back(&mut self, buffer: FrameBuf) {
        let bytes = buffer.memory.capacity();
        self.used_bytes -= bytes;
        if buffer.is_frame {
            self.frame_bytes -= bytes;
        }
    }

    /// Copies a table's block at this byte of a volume's own store, if it is kept.
    #[must_use]
    pub fn copy_block(&self, volume: VolumeId, offset: u64, into: &mut [u8; BLOCK_BYTES]) -> bool {
        let kept = self.get(Key::Block { volume, offset });
        let kept = kept.and_then(|bytes| bytes.first_chunk());
        kept.inspect(|bytes| *into = **bytes).is_some()
    }

    /// Whether there is such an entry; to ask is no use of it.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.index.contains_key(&key)
    }

    /// The bytes of an entry.
    pub(crate) fn get(&self, key: Key) -> Option<&[u8]> {
        self.find(key).map(|entry| &entry.memory[..])
    }

    fn find(&self, key: Key) -> Option<&Entry> {
        let Some(slot) = self.index.get(&key).and_then(|at| self.slots.get(*at)) else {
            self.misses.set(self.misses.get() + 1);
            return None;
        };
        self.hits.set(self.hits.get() + 1);
        let entry = slot.entry.as_ref()?;
        slot.chances.set(entry.read());
        Some(entry)
    }

    /// A buffer for a table block: there is always one, because frames leave some of the budget to blocks, and nobody holds those.
    pub(crate) fn reserve_block(&mut self) -> FrameBuf {
        self.reserve(BLOCK_BYTES, false)
            .unwrap_or_else(|| self.allocate(BLOCK_BYTES, BLOCK_BYTES, false))
    }

    fn reserve(&mut self, len: usize, is_frame: bool) -> Option<FrameBuf> {
        let capacity = len.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        let frames_max = self.budget_bytes - CACHE_BLOCKS_BYTES_MIN;
        loop {
            let frames_full = is_frame && self.frame_bytes + capacity > frames_max;
            let full = self.used_bytes + capacity > self.budget_bytes;
            if !full && !frames_full {
                break;
            }
            // Where frames have their share, blocks need not leave for them.
            let Some(evicted) = self.evict(frames_full && self.frame_bytes > 0) else {
                // A frame over the budget is held alone.
                match is_frame && self.frame_bytes == 0 {
                    true => break,
                    false => return None,
                }
            };
            if evicted.memory.capacity() == capacity {
                return Some(self.reuse(evicted, len, is_frame));
            }
            self.give_back(evicted);
        }
        Some(self.allocate(len, capacity, is_frame))
    }

    fn reuse(&mut self, mut buffer: FrameBuf, len: usize, is_frame: bool) -> FrameBuf {
        let bytes = buffer.memory.capacity();
        match (buffer.is_frame, is_frame) {
            (true, false) => self.frame_bytes -= bytes,
            (false, true) => self.frame_bytes += bytes,
            _ => {}
        }
        Arc::make_mut(&mut buffer.memory).resize(len, 0);
        buffer.is_frame = is_frame;
        buffer
    }

    fn allocate(&mut self, len: usize, capacity: usize, is_frame: bool) -> FrameBuf {
        let mut bytes = Vec::with_capacity(capacity);
        self.used_bytes += bytes.capacity();
        self.counters.used_bytes_max = self.counters.used_bytes_max.max(self.used_bytes);
        if is_frame {
            self.frame_bytes += bytes.capacity();
        }
        self.counters.allocations += 1;
        bytes.resize(len, 0);
        FrameBuf {
            memory: Arc::new(bytes),
            is_frame,
        }
    }

    /// Takes a filled buffer in.
    pub(crate) fn insert(&mut self, key: Key, buffer: FrameBuf) -> Frame {
        let found = self.index.get(&key).and_then(|at| self.slots.get(*at));
        if let Some(entry) = found.and_then(|slot| slot.entry.as_ref()) {
            // Two operations fetched the same thing: the earlier one's bytes are as good, and somebody may hold them.
            let frame = Frame(entry.memory.clone());
            self.give_back(buffer);
            return frame;
        }
        let memory = buffer.memory;
        let frame = Frame(memory.clone());
        let slot = Slot {
            entry: Some(Entry {
                key,
                memory,
                witness: None,
                is_used: Cell::new(false),
                position: 0,
            }),
            chances: Cell::new(0),
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                // Twice as much room as there can be entries: a table that is less than half full makes room for what comes and goes without allocating.
                let room = 2 * self.slots.len() + 1;
                self.index.reserve(room - self.index.len());
                self.slots.len() - 1
            }
        };
        self.index.insert(key, at);
        frame
    }

    /// Removes the first entry without chances that the hand meets and that nobody holds; returns its buffer.
    fn evict(&mut self, frames_only: bool) -> Option<FrameBuf> {
        // Four rounds take the last chance from every entry.
        for _ in 0..self.slots.len() * 4 {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[at];
            let Some(entry) = &mut slot.entry else {
                continue;
            };
            if frames_only && !entry.key.is_frame() {
                continue;
            }
            if slot.chances.get() > 0 {
                slot.chances.set(slot.chances.get() - 1);
                continue;
            }
            if entry.is_held() {
                continue;
            }
            self.counters.evictions += 1;
            return self.empty_slot(at);
        }
        None
    }

    /// Takes an entry out that nobody holds.
    fn empty_slot(&mut self, at: usize) -> Option<FrameBuf> {
        let Entry {
            key,
            memory,
            witness,
            is_used,
            position: _,
        } = self.slots[at].entry.take()?;
        if let (Some(witness), Key::Frame(id)) = (witness, key) {
            witness.left(id, memory.len(), is_used.get());
        }
        self.index.remove(&key);
        self.free.push(at);
        Some(FrameBuf {
            memory,
            is_frame: key.is_frame(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)]
mod tests;
