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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_bounded_and_places_are_used_again() {
        let mut timers = Timers::new(2);
        let now = Instant::now();
        let first = timers.arm(now, OwnerId::RING, 1).unwrap();
        assert!(timers.arm(now, OwnerId::RING, 2).is_some());
        assert!(timers.arm(now, OwnerId::RING, 3).is_none());
        assert!(timers.cancel(first));
        let third = timers.arm(now, OwnerId::RING, 3).unwrap();
        assert!(
            !timers.cancel(first),
            "a stale name does not touch its successor"
        );
        assert!(timers.cancel(third));
    }

    #[test]
    fn arming_and_cancelling_for_ever_takes_no_more_memory() {
        let mut timers = Timers::new(4);
        let capacity = timers.heap.capacity();
        let far = Instant::now() + Duration::from_secs(3600);
        for _ in 0..1000 {
            let id = timers.arm(far, OwnerId::RING, 0).unwrap();
            assert!(timers.cancel(id));
        }
        assert_eq!(timers.heap.capacity(), capacity);
        assert_eq!(timers.next(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Against an ordered map: what fires, in which order, and when the next one is due.
        #[test]
        fn agrees_with_an_ordered_map(steps in proptest::collection::vec((0u8..4, 0u64..50), 1..200)) {
            let start = Instant::now();
            let mut timers = Timers::new(8);
            let mut model: BTreeMap<(u64, u64), TimerId> = BTreeMap::new();
            for (tag, (what, ms)) in (0u64..).zip(steps) {
                let at = start + Duration::from_millis(ms);
                match what {
                    0 | 1 => match timers.arm(at, OwnerId::RING, tag) {
                        Some(id) => {
                            prop_assert!(model.len() < 8);
                            model.insert((ms, tag), id);
                        }
                        None => prop_assert_eq!(model.len(), 8),
                    },
                    2 => {
                        if let Some(key) = model.keys().nth(usize::try_from(ms).unwrap_or(0) % model.len().max(1)).copied() {
                            let id = model.remove(&key).unwrap();
                            prop_assert!(timers.cancel(id));
                        }
                    }
                    _ => {
                        let mut fired = Vec::new();
                        while let Some((_, tag)) = timers.pop_due(at) {
                            fired.push(tag);
                        }
                        let mut due: Vec<(u64, u64)> = model.keys().copied().filter(|&(due, _)| due <= ms).collect();
                        model.retain(|key, _| !due.contains(key));
                        // Timers of one instant fire in any order.
                        due.sort_unstable();
                        let mut expected: Vec<u64> = due.iter().map(|&(_, tag)| tag).collect();
                        prop_assert_eq!(fired.len(), expected.len());
                        let instants: Vec<u64> = fired.iter().map(|tag| due.iter().find(|(_, of)| of == tag).unwrap().0).collect();
                        prop_assert!(instants.is_sorted());
                        fired.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(fired, expected);
                    }
                }
                prop_assert_eq!(timers.next(), model.keys().next().map(|&(ms, _)| start + Duration::from_millis(ms)));
            }
        }
    }
}
