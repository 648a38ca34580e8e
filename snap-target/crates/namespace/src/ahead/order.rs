//! An order: the ranges that will be read, in their order, as whoever reads them said in advance.
//!
//! The control plane gives ranges, at its own pace; one engine takes them and has them fetched as long as what was fetched and not read yet is
//! within the quota. A lock is held for a few ranges at a time, and no engine waits for it. Each order has books of its own and names the one that took
//! its place, so that engines go on to the last one without a lock, and nothing is counted in another's books.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use reactor::Waker;
use volume::PLAIN_FRAME_BYTES;

use super::ledger::{Kept, Ledger};
pub use crate::limits::ORDER_RANGES_MAX;
use crate::limits::{ORDER_MISSES_MAX, ORDER_PIECES, ORDER_SHARES, ORDERED_BYTES_MAX};

/// Ranges that an engine takes at a time.
const BATCH: usize = 64;

/// Which order of a namespace, from 1; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderId(u64);

/// How far an order came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderProgress {
    /// Ranges that were given.
    pub given_ranges: u64,
    /// Their bytes, as hosts see them.
    pub given_bytes: u64,
    /// Those of them whose fetch has begun.
    pub begun_bytes: u64,
    /// Those of them whose fetch has ended.
    pub fetched_bytes: u64,
    /// What became of the frames that were fetched for it.
    pub frames: Kept,
}

/// Why an order takes no ranges any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderEnd {
    /// Another one began.
    #[error("another order for this namespace has begun: one at a time is followed")]
    Replaced,
    /// Its namespace goes.
    #[error("the namespace was detached")]
    Detached,
    /// Whoever gave it ended it.
    #[error("it was cancelled")]
    Cancelled,
}

/// An order. What was fetched for it stays when it ends.
#[derive(Debug)]
pub struct Order {
    id: OrderId,
    given: Mutex<Given>,
    /// Of `given`, for those who do not take the lock.
    has_ended: AtomicBool,
    given_bytes: AtomicU64,
    begun_bytes: AtomicU64,
    fetched_bytes: AtomicU64,
    quota_bytes: u64,
    ledger: Ledger,
    /// Reads in a row that found nothing of it.
    misses: AtomicU32,
    /// The engine that takes ranges has none, or no room.
    waits: AtomicBool,
    driver: Driver,
    /// The one that took its place.
    next: OnceLock<Arc<Order>>,
}

/// The engine that takes ranges: the first that asks.
type Driver = Arc<OnceLock<Waker>>;

#[derive(Debug, Default)]
struct Given {
    ranges: VecDeque<Range<u64>>,
    count: u64,
    end: Option<OrderEnd>,
}

impl Order {
    fn new(id: OrderId, quota_bytes: u64, driver: &Driver) -> Arc<Self> {
        Arc::new(Self {
            id,
            given: Mutex::default(),
            has_ended: AtomicBool::new(false),
            given_bytes: AtomicU64::new(0),
            begun_bytes: AtomicU64::new(0),
            fetched_bytes: AtomicU64::new(0),
            quota_bytes,
            ledger: Ledger::default(),
            misses: AtomicU32::new(0),
            // The engine does not look before there is one.
            waits: AtomicBool::new(true),
            driver: driver.clone(),
            next: OnceLock::new(),
        })
    }

    /// Gives ranges of presented bytes in the order in which they will be read, each within the namespace; returns for how many there was room.
    ///
    /// # Errors
    /// Why it has ended.
    pub fn give(&self, ranges: &[Range<u64>]) -> Result<usize, OrderEnd> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = given.end {
            return Err(end);
        }
        let room = ORDER_RANGES_MAX - given.ranges.len();
        let taken = ranges.len().min(room);
        given.ranges.extend(ranges[..taken].iter().cloned());
        given.count += taken as u64;
        let bytes: u64 = ranges[..taken].iter().map(len).sum();
        self.given_bytes.fetch_add(bytes, Ordering::Relaxed);
        drop(given);
        self.wake();
        Ok(taken)
    }

    /// Ends it: what is under way ends, and nothing more begins.
    pub fn cancel(&self) {
        self.end(OrderEnd::Cancelled);
    }

    /// How far it came.
    ///
    /// # Errors
    /// Why it has ended.
    pub fn progress(&self) -> Result<OrderProgress, OrderEnd> {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        match given.end {
            Some(end) => Err(end),
            None => Ok(self.counted(&given)),
        }
    }

    /// How far it came, also when it has ended.
    #[must_use]
    pub fn last_progress(&self) -> OrderProgress {
        self.counted(&self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn counted(&self, given: &Given) -> OrderProgress {
        // The later of two steps first, so that none seems to come before the one that it follows.
        let frames = self.ledger.counted();
        let fetched_bytes = self.fetched_bytes.load(Ordering::Acquire);
        OrderProgress {
            given_ranges: given.count,
            given_bytes: self.given_bytes.load(Ordering::Relaxed),
            begun_bytes: self.begun_bytes.load(Ordering::Relaxed),
            fetched_bytes,
            frames,
        }
    }

    fn end(&self, why: OrderEnd) {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        if given.end.is_none() {
            given.end = Some(why);
            given.ranges = VecDeque::new();
            self.has_ended.store(true, Ordering::Release);
        }
    }

    pub(super) fn id(&self) -> OrderId {
        self.id
    }

    /// The one that took its place, if any.
    pub(super) fn next(&self) -> Option<&Arc<Order>> {
        self.next.get()
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether it takes ranges, and has them fetched.
    pub(super) fn is_open(&self) -> bool {
        !self.has_ended.load(Ordering::Acquire)
    }

    /// Whether its reader is at it, also when it has ended and what was fetched for it is not read yet: not where all of it was read, nor where so many
    /// reads in a row found nothing of it.
    pub(super) fn is_followed(&self) -> bool {
        let is_left = || self.has_more() || !self.ledger.is_empty();
        self.misses.load(Ordering::Relaxed) < ORDER_MISSES_MAX && is_left()
    }

    /// Whether ranges of it are still to be fetched.
    fn has_more(&self) -> bool {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.is_open() && of(&self.begun_bytes) < of(&self.given_bytes)
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

    /// Begins to fetch the first piece of these ranges, where there is room for it and the engine keeps at most `most`. If not, the engine is woken
    /// when that changes.
    pub(super) fn begin(
        &self,
        ranges: &mut VecDeque<Range<u64>>,
        most: u64,
    ) -> Option<(Range<u64>, u64)> {
        self.waits.store(true, Ordering::SeqCst);
        let quota = self.quota_bytes.min(most);
        // Several of them within the quota, so that one is read while another is on its way.
        let piece_max = (quota / ORDER_PIECES).clamp(FRAME_BYTES, ORDERED_BYTES_MAX);
        let first = ranges.front()?;
        let piece = first.start..first.end.min(first.start + piece_max);
        let reserved = frames_bytes(&piece);
        if !self.ledger.reserve(reserved, quota) {
            if !self.ledger.is_empty() {
                self.ledger.give_up_behind(2 * quota);
                return None;
            }
            // The least there is.
            self.ledger.reserve_over(reserved);
        }
        self.waits.store(false, Ordering::Relaxed);
        self.begun_bytes.fetch_add(len(&piece), Ordering::Relaxed);
        take_first(ranges, piece.end);
        Some((piece, reserved))
    }

    /// A piece of it has been fetched, or cannot be had.
    pub(super) fn fetched(&self, piece: &Range<u64>, reserved: u64) {
        self.fetched_bytes.fetch_add(len(piece), Ordering::Release);
        self.ledger.release(reserved);
    }

    /// Somebody wanted a frame of it.
    pub(super) fn found(&self) {
        self.misses.store(0, Ordering::Relaxed);
        self.wake();
    }

    /// A host reads. Where that finds nothing of the order again and again while there is no room, its reader is elsewhere: the oldest is given up.
    pub(super) fn read(&self) {
        if !self.is_open() && self.ledger.is_empty() {
            return;
        }
        let misses = self.misses.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let is_held_up = || self.has_more() && !self.ledger.is_empty();
        if misses.is_multiple_of(ORDER_MISSES_MAX) && is_held_up() {
            self.ledger.give_up_oldest(ORDER_SHARES);
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        if self.waits.swap(false, Ordering::SeqCst)
            && let Some(waker) = self.driver.get()
        {
            waker.wake();
        }
    }
}

impl Drop for Order {
    /// One behind the other: an engine that slept may be the last to hold a long line of them.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(order) = next {
            next = Arc::into_inner(order).and_then(|mut order| order.next.take());
        }
    }
}

/// The orders of one namespace: one at a time is followed.
#[derive(Debug)]
pub(super) struct Orders {
    latest: Mutex<Latest>,
    driver: Driver,
}

#[derive(Debug)]
struct Latest {
    order: Arc<Order>,
    is_detached: bool,
}

impl Orders {
    pub(super) fn new() -> Self {
        let driver = Driver::default();
        let none = Order::new(OrderId::default(), 0, &driver);
        none.end(OrderEnd::Cancelled);
        Self {
            latest: Mutex::new(Latest {
                order: none,
                is_detached: false,
            }),
            driver,
        }
    }

    /// Whether the engine that `waker` wakes is the one that takes ranges.
    pub(super) fn is_driven_by(&self, waker: Waker) -> bool {
        self.driver
            .get_or_init(|| waker.clone())
            .wakes_same_ring(&waker)
    }

    /// Whether an engine takes ranges.
    pub(super) fn is_driven(&self) -> bool {
        self.driver.get().is_some()
    }

    /// The last one, from which an engine goes on by itself.
    pub(super) fn latest(&self) -> Arc<Order> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.order.clone()
    }

    /// Begins another one: what is left of the last one is forgotten.
    pub(super) fn begin(&self, quota_bytes: u64) -> Result<Arc<Order>, OrderEnd> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.is_detached {
            return Err(OrderEnd::Detached);
        }
        let id = OrderId(latest.order.id.0 + 1);
        let order = Order::new(id, quota_bytes, &self.driver);
        latest.order.end(OrderEnd::Replaced);
        // Nobody else sets it: this is done with the lock held.
        let _first = latest.order.next.set(order.clone());
        latest.order = order.clone();
        Ok(order)
    }

    /// The namespace goes: its order ends, and none begins.
    pub(super) fn detach(&self) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.is_detached = true;
        latest.order.end(OrderEnd::Detached);
    }
}

const FRAME_BYTES: u64 = PLAIN_FRAME_BYTES as u64;

fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// What a piece may take in frames.
pub(super) fn frames_bytes(piece: &Range<u64>) -> u64 {
    let start = piece.start / FRAME_BYTES * FRAME_BYTES;
    (piece.end - start).next_multiple_of(FRAME_BYTES)
}

/// Takes off the first range what lies before `end`.
pub(super) fn take_first(ranges: &mut VecDeque<Range<u64>>, end: u64) {
    if let Some(first) = ranges.front_mut() {
        first.start = end;
        if first.is_empty() {
            ranges.pop_front();
        }
    }
}
