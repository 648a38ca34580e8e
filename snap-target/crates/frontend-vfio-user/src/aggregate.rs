//! Interrupts that wait for others: entries are counted by vector, and each queue remembers when the first of its own has waited long enough.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use nvme::pcie::Aggregation;

use crate::limits::VECTORS;

/// Entries that each vector has not told of. Queues of several reactors may have one vector.
#[derive(Debug)]
pub(crate) struct Untold([AtomicU32; VECTORS as usize]);

impl Default for Untold {
    fn default() -> Self {
        Self([const { AtomicU32::new(0) }; VECTORS as usize])
    }
}

impl Untold {
    /// What there is was told of, or is forgotten.
    pub(crate) fn clear_all(&self) {
        self.0.iter().for_each(|it| it.store(0, Ordering::Release));
    }

    fn add(&self, vector: u16, entries: u32) -> u32 {
        let of = self.0.get(usize::from(vector));
        // A vector that is not there interrupts nobody.
        of.map_or(0, |it| it.fetch_add(entries, Ordering::AcqRel) + entries)
    }

    /// They are told of now: how many there were. Who adds some meanwhile has put its entries there before.
    fn take(&self, vector: u16) -> u32 {
        let of = self.0.get(usize::from(vector));
        of.map_or(0, |it| it.swap(0, Ordering::AcqRel))
    }
}

/// A queue's part of it.
#[derive(Debug, Default)]
pub(crate) struct Delay {
    /// When the first of its entries has waited long enough.
    until: Option<Instant>,
}

impl Delay {
    /// When to ask again; none where nothing waits.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// So many entries were posted since this was last asked. Whether the vector is to be signalled now.
    pub(crate) fn is_to_signal(
        &mut self,
        untold: &Untold,
        vector: u16,
        posted: u32,
        aggregation: Option<Aggregation>,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let Some(aggregation) = aggregation else {
            let waited = self.until.take().is_some();
            if posted > 0 || waited {
                untold.take(vector);
            }
            return posted > 0 || waited;
        };
        if posted == 0 && self.until.is_none() {
            return false;
        }
        let now = now();
        if posted > 0 {
            if untold.add(vector, posted) >= aggregation.entries {
                self.until = None;
                return untold.take(vector) > 0;
            }
            self.until.get_or_insert(now + aggregation.time);
        }
        let is_over = self.until.is_some_and(|until| until <= now);
        if is_over {
            self.until = None;
        }
        // Another queue may have told of all there was.
        is_over && untold.take(vector) > 0
    }

    /// What waits is told of by others, or by nobody.
    pub(crate) fn clear(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const EIGHT_IN_1_MS: Aggregation = Aggregation {
        entries: 8,
        time: Duration::from_millis(1),
    };

    /// Queues with one vector, an eventfd, and a clock that is stepped.
    struct Room {
        untold: Untold,
        delays: [Delay; 2],
        aggregation: Option<Aggregation>,
        now: Instant,
        event: std::os::fd::OwnedFd,
    }

    impl Room {
        fn new(aggregation: Option<Aggregation>) -> Room {
            let flags = rustix::event::EventfdFlags::CLOEXEC;
            Room {
                untold: Untold::default(),
                delays: Default::default(),
                aggregation,
                now: Instant::now(),
                event: rustix::event::eventfd(0, flags).unwrap(),
            }
        }

        /// Entries of a queue, and how often the descriptor was signalled for them.
        fn post(&mut self, queue: usize, entries: u32) -> u64 {
            let now = self.now;
            let delay = &mut self.delays[queue];
            if delay.is_to_signal(&self.untold, 3, entries, self.aggregation, || now) {
                reactor::peer_event::signal(&self.event);
            }
            reactor::peer_event::take(&self.event)
        }

        fn step(&mut self, micros: u64) {
            self.now += Duration::from_micros(micros);
        }
    }

    #[test]
    fn without_aggregation_each_batch_is_told_of() {
        let mut room = Room::new(None);
        for entries in [1, 64, 1] {
            assert_eq!(room.post(0, entries), 1);
            assert_eq!(room.post(0, 0), 0);
        }
    }

    /// Every eighth entry, whatever the batches.
    #[test]
    fn the_threshold_is_told_of_at_once() {
        let mut room = Room::new(Some(EIGHT_IN_1_MS));
        let told: Vec<u64> = (0..24).map(|_| room.post(0, 1)).collect();
        let expected: Vec<u64> = (1..=24).map(|entry| u64::from(entry % 8 == 0)).collect();
        assert_eq!(told, expected);
        assert_eq!(room.post(0, 7), 0);
        assert_eq!(room.post(0, 100), 1, "all of them at once");
        assert_eq!(room.delays[0].until(), None);
    }

    /// The first entry waits for its time and no longer, however many follow.
    #[test]
    fn the_time_is_the_first_entrys() {
        let mut room = Room::new(Some(EIGHT_IN_1_MS));
        let first = room.now;
        assert_eq!(room.post(0, 1), 0);
        assert_eq!(room.delays[0].until(), Some(first + EIGHT_IN_1_MS.time));
        room.step(600);
        assert_eq!(room.post(0, 3), 0);
        assert_eq!(room.delays[0].until(), Some(first + EIGHT_IN_1_MS.time));
        room.step(399);
        assert_eq!(room.post(0, 0), 0);
        room.step(1);
        assert_eq!(room.post(0, 0), 1);
        room.step(5000);
        assert_eq!(room.post(0, 0), 0, "nothing is there to be told of");
        // The next begins anew, and the four before do not count.
        assert_eq!(room.post(0, 7), 0);
        assert_eq!(room.post(0, 1), 1);
    }

    /// Two queues fill one threshold, and who told of an entry has told of all.
    #[test]
    fn queues_share_a_vector() {
        let mut room = Room::new(Some(EIGHT_IN_1_MS));
        assert_eq!(room.post(0, 5), 0);
        room.step(500);
        assert_eq!(room.post(1, 3), 1);
        room.step(600);
        assert_eq!(room.post(0, 0), 0, "the other queue has told of them");
        assert_eq!(room.post(0, 1), 0);
        room.step(400);
        assert_eq!(room.post(1, 1), 0);
        room.step(600);
        assert_eq!(room.post(0, 0), 1);
        room.step(400);
        assert_eq!(room.post(1, 0), 0);
    }

    /// CD = 1 for the vector, or both numbers at 0, while entries wait.
    #[test]
    fn what_waits_is_told_of_when_aggregation_ends() {
        let mut room = Room::new(Some(EIGHT_IN_1_MS));
        assert_eq!(room.post(0, 5), 0);
        room.aggregation = None;
        assert_eq!(room.post(0, 0), 1);
        room.aggregation = Some(EIGHT_IN_1_MS);
        assert_eq!(room.post(0, 7), 0, "the five do not count");
        assert_eq!(room.post(0, 1), 1);
    }
}
