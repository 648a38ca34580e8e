//! Deadlines: a binary heap over a fixed table. Cancelled entries stay in the heap until they surface or it is compacted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::ring::OwnerId;

/// A timer that was armed. Stale once it fired or was cancelled; using a stale one does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    armed: Option<(OwnerId, u64)>,
}

#[derive(Debug)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, u32, u32)>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Timers {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(limit as usize * 2),
            slots: (0..limit)
                .map(|_| Slot {
                    generation: 0,
                    armed: None,
                })
                .collect(),
            free: (0..limit).rev().collect(),
        }
    }

    /// `None` when every timer is in use.
    pub(crate) fn arm(&mut self, at: Instant, owner: OwnerId, tag: u64) -> Option<TimerId> {
        let index = self.free.pop()?;
        if self.heap.len() == self.heap.capacity() {
            // Half of the entries are stale at least: there are twice as many as timers.
            let slots = &self.slots;
            self.heap.retain(|Reverse((_, index, generation))| {
                slots
                    .get(*index as usize)
                    .is_some_and(|slot| slot.armed.is_some() && slot.generation == *generation)
            });
        }
        let slot = self.slots.get_mut(index as usize)?;
        slot.armed = Some((owner, tag));
        self.heap.push(Reverse((at, index, slot.generation)));
        Some(TimerId {
            index,
            generation: slot.generation,
        })
    }

    pub(crate) fn limit(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// True if the timer was still to fire.
    pub(crate) fn cancel(&mut self, id: TimerId) -> bool {
        self.release(id.index, id.generation).is_some()
    }

    /// Cancels every timer of an owner.
    pub(crate) fn cancel_owner(&mut self, owner: OwnerId) {
        for (index, slot) in (0u32..).zip(self.slots.iter_mut()) {
            if slot.armed.is_some_and(|(of, _)| of == owner) {
                slot.armed = None;
                slot.generation = slot.generation.wrapping_add(1);
                self.free.push(index);
            }
        }
    }

    /// The next deadline.
    pub(crate) fn next(&mut self) -> Option<Instant> {
        while let Some(&Reverse((at, index, generation))) = self.heap.peek() {
            if self.is_live(index, generation) {
                return Some(at);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes one timer that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(OwnerId, u64)> {
        while let Some(&Reverse((at, index, generation))) = self.heap.peek() {
            if !self.is_live(index, generation) {
                self.heap.pop();
            } else if at <= now {
                self.heap.pop();
                return self.release(index, generation);
            } else {
                return None;
            }
        }
        None
    }

    fn is_live(&self, index: u32, generation: u32) -> bool {
        self.slots
            .get(index as usize)
            .is_some_and(|slot| slot.armed.is_some() && slot.generation == generation)
    }

    fn release(&mut self, index: u32, generation: u32) -> Option<(OwnerId, u64)> {
        let slot = self
            .slots
            .get_mut(index as usize)
            .filter(|slot| slot.generation == generation)?;
        let armed = slot.armed.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(armed)
    }
}
