//! An order: the ranges that will be read, in their order, as whoever reads them said in advance.
//!
//! The control plane gives ranges, at its own pace; one engine takes them and has them fetched as long as what was fetched and not read yet is
//! less than the quota. A lock is held for a few ranges at a time, and no engine waits for it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use reactor::Waker;

/// Ranges that wait for their turn; whoever gives them waits for room.
pub const ORDER_RANGES_MAX: usize = 1 << 16;
/// Ranges that an engine takes at a time.
const BATCH: usize = 64;
/// So many reads in a row that find nothing of what was fetched: their host has left ranges out, and one more is fetched for it.
const MISSES_MAX: u32 = 64;

/// How far an order came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderProgress {
    /// Ranges that were given.
    pub given_ranges: u64,
    /// Their bytes, as hosts see them.
    pub given_bytes: u64,
    /// Bytes whose fetch has begun.
    pub begun_bytes: u64,
    /// Bytes whose fetch has ended.
    pub fetched_bytes: u64,
    /// Bytes that are kept and that nobody has read, whoever wanted them fetched.
    pub ahead_bytes: u64,
    /// Of the namespace, since the order began: frames that were there when they were first read.
    pub hits: u64,
    /// Frames that were on their way.
    pub late: u64,
    /// Frames that left the cache before anybody read them.
    pub wasted: u64,
}

/// What the order of one namespace is made of.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// There is one, or the rest of one.
    is_there: AtomicBool,
    given: Mutex<Given>,
    begun_bytes: AtomicU64,
    fetched_bytes: AtomicU64,
    quota_bytes: AtomicU64,
    ahead_bytes: AtomicU64,
    hits: AtomicU64,
    late: AtomicU64,
    wasted: AtomicU64,
    misses: AtomicU32,
    /// Ranges that are fetched although there is no room.
    granted: AtomicU32,
    /// The engine that takes ranges has none, or no room.
    waits: AtomicBool,
    waker: OnceLock<Waker>,
}

#[derive(Debug, Default)]
struct Given {
    /// Which order, from 1.
    id: u64,
    ranges: VecDeque<Range<u64>>,
    count: u64,
    bytes: u64,
}

impl Order {
    /// Whether the engine that `waker` wakes is the one that takes ranges: the first that asks.
    pub(super) fn is_driven_by(&self, waker: Waker) -> bool {
        self.waker
            .get_or_init(|| waker.clone())
            .wakes_same_ring(&waker)
    }

    /// Whether an engine takes ranges.
    pub(super) fn is_driven(&self) -> bool {
        self.waker.get().is_some()
    }

    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }

    /// Begins another order: what is left of the last one is forgotten. Returns its number.
    pub(super) fn begin(&self, quota_bytes: u64) -> u64 {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.id += 1;
        given.ranges.clear();
        given.count = 0;
        given.bytes = 0;
        for counter in [
            &self.begun_bytes,
            &self.fetched_bytes,
            &self.hits,
            &self.late,
            &self.wasted,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        self.quota_bytes.store(quota_bytes, Ordering::Relaxed);
        // The engine does not look before there is one.
        self.waits.store(true, Ordering::SeqCst);
        self.is_there.store(true, Ordering::Release);
        given.id
    }

    /// Gives ranges; how many there was room for. None where another order has begun meanwhile, or this one was cancelled.
    pub(super) fn give(&self, id: u64, ranges: &[Range<u64>]) -> Option<usize> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if given.id != id || !self.is_there.load(Ordering::Acquire) {
            return None;
        }
        let room = ORDER_RANGES_MAX - given.ranges.len();
        let taken = ranges.len().min(room);
        given.ranges.extend(ranges[..taken].iter().cloned());
        given.count += taken as u64;
        let bytes = |range: &Range<u64>| range.end - range.start;
        given.bytes += ranges[..taken].iter().map(bytes).sum::<u64>();
        drop(given);
        self.wake();
        Some(taken)
    }

    /// Ends an order; what was fetched for it stays where it is.
    pub(super) fn cancel(&self, id: u64) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if given.id == id {
            given.ranges.clear();
            self.is_there.store(false, Ordering::Release);
        }
    }

    /// How far an order came; none where it is not the last one.
    pub(super) fn progress(&self, id: u64) -> Option<OrderProgress> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (given.id == id).then(|| OrderProgress {
            given_ranges: given.count,
            given_bytes: given.bytes,
            begun_bytes: of(&self.begun_bytes),
            fetched_bytes: of(&self.fetched_bytes),
            ahead_bytes: of(&self.ahead_bytes),
            hits: of(&self.hits),
            late: of(&self.late),
            wasted: of(&self.wasted),
        })
    }

    /// Takes ranges, if there are any and nobody is giving some just now; false: ask again soon. Where there are none the engine is woken when there are.
    pub(super) fn take(&self, into: &mut VecDeque<Range<u64>>) -> bool {
        self.waits.store(true, Ordering::SeqCst);
        let Ok(mut given) = self.given.try_lock() else {
            return false;
        };
        let count = given.ranges.len().min(BATCH);
        into.extend(given.ranges.drain(..count));
        true
    }

    /// Whether one more range may be fetched, while `under_way` bytes are and the engine keeps at most `most`. If not, the engine is woken when that changes.
    pub(super) fn has_room(&self, under_way: u64, most: u64) -> bool {
        self.waits.store(true, Ordering::SeqCst);
        let quota = self.quota_bytes.load(Ordering::Relaxed).min(most);
        let grant = |granted: u32| granted.checked_sub(1);
        let has_room = self.ahead_bytes.load(Ordering::SeqCst) + under_way < quota
            || self
                .granted
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grant)
                .is_ok();
        if has_room {
            self.waits.store(false, Ordering::Relaxed);
        }
        has_room
    }

    pub(super) fn begun(&self, bytes: u64) {
        self.begun_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn fetched(&self, bytes: u64) {
        self.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A frame was kept before anybody read it.
    pub(super) fn kept(&self, bytes: u64) {
        self.ahead_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// It was read, or it left.
    pub(super) fn ended(&self, bytes: u64, was_used: bool) {
        self.ahead_bytes.fetch_sub(bytes, Ordering::SeqCst);
        let counter = if was_used { &self.hits } else { &self.wasted };
        counter.fetch_add(1, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
        self.wake();
    }

    pub(super) fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
    }

    /// A host reads.
    pub(super) fn read(&self) {
        if self.is_there.load(Ordering::Relaxed)
            && self.misses.fetch_add(1, Ordering::Relaxed) >= MISSES_MAX
        {
            self.misses.store(0, Ordering::Relaxed);
            self.granted.fetch_add(1, Ordering::Relaxed);
            self.wake();
        }
    }

    fn wake(&self) {
        if self.waits.swap(false, Ordering::SeqCst)
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }
}
