//! The indexes of queues in memory (Base, "Queue Operation"): who has which entry. What a host writes to a doorbell is checked here, once.

use nvme_spec::command::SQE_BYTES;

/// Bytes of a completion queue entry.
const CQE_BYTES: u64 = 16;
/// Of a submission queue entry.
const SQE_LEN: u64 = SQE_BYTES as u64;

/// A submission queue, as its controller reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmissionRing {
    base: u64,
    entries: u32,
    head: u32,
    tail: u32,
}

impl SubmissionRing {
    /// `entries` is 2 to 65,536.
    #[must_use]
    pub fn new(base: u64, entries: u32) -> Self {
        Self {
            base,
            entries: entries.max(2),
            head: 0,
            tail: 0,
        }
    }

    /// The host has filled entries up to this one. False where there is no such entry: nothing changes.
    pub fn set_tail(&mut self, tail: u32) -> bool {
        let is_there = tail < self.entries;
        if is_there {
            self.tail = tail;
        }
        is_there
    }

    /// Entries that were filled and not taken.
    #[must_use]
    pub fn filled(&self) -> u32 {
        distance(self.head, self.tail, self.entries)
    }

    /// Where filled entries lie that follow each other in memory, and how many: `limit` at most, none where the queue is empty.
    #[must_use]
    pub fn next(&self, limit: u32) -> Option<(u64, u32)> {
        let run = self.filled().min(self.entries - self.head).min(limit);
        let at = self.base.wrapping_add(u64::from(self.head) * SQE_LEN);
        (run > 0).then_some((at, run))
    }

    /// So many of them have been copied out.
    pub fn take(&mut self, count: u32) {
        let count = count.min(self.filled());
        self.head = (self.head + count) % self.entries;
    }

    /// SQHD: the host may fill every entry before this one again.
    #[must_use]
    pub fn head(&self) -> u16 {
        // At most 65,535.
        u16::try_from(self.head).unwrap_or(0)
    }
}

/// A completion queue, as its controller fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionRing {
    base: u64,
    entries: u32,
    head: u32,
    tail: u32,
    phase: bool,
}

impl CompletionRing {
    /// `entries` is 2 to 65,536.
    #[must_use]
    pub fn new(base: u64, entries: u32) -> Self {
        Self {
            base,
            entries: entries.max(2),
            head: 0,
            tail: 0,
            phase: true,
        }
    }

    /// A ring that goes on: where the host's head is, and what [`CompletionRing::turn`] said.
    #[must_use]
    pub fn resume(base: u64, entries: u32, head: u32, turn: u32) -> Self {
        let mut ring = Self::new(base, entries);
        ring.head = within(head, ring.entries);
        // Less than two rounds: no division, which an answer would pay several times.
        ring.phase = turn < ring.entries;
        ring.tail = within(
            turn.saturating_sub(if ring.phase { 0 } else { ring.entries }),
            ring.entries,
        );
        ring
    }

    /// The tail and the phase as one number: what a ring that several fill is kept as.
    #[must_use]
    pub fn turn(&self) -> u32 {
        self.tail + if self.phase { 0 } else { self.entries }
    }

    /// The next entry's index.
    #[must_use]
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// The host has taken entries up to this one. False where it names an entry that it has not been given: nothing changes.
    pub fn set_head(&mut self, head: u32) -> bool {
        let is_there =
            head < self.entries && distance(self.head, head, self.entries) <= self.given();
        if is_there {
            self.head = head;
        }
        is_there
    }

    /// Entries that the host has not taken.
    #[must_use]
    pub fn given(&self) -> u32 {
        distance(self.head, self.tail, self.entries)
    }

    /// Whether one more fits: an entry stays empty, or full and empty would look alike.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.given() + 1 < self.entries
    }

    /// Where the next entry goes, and its phase tag; none where the host has not taken enough.
    pub fn push(&mut self) -> Option<(u64, bool)> {
        if !self.has_room() {
            return None;
        }
        let place = self.base.wrapping_add(u64::from(self.tail) * CQE_BYTES);
        let phase = self.phase;
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
        Some((place, phase))
    }
}

/// A place of a ring of so many entries; it is one as a rule.
fn within(place: u32, entries: u32) -> u32 {
    match place < entries {
        true => place,
        false => place % entries,
    }
}

/// How many entries lie from one index up to another, around the end.
fn distance(from: u32, to: u32, entries: u32) -> u32 {
    match to >= from {
        true => to - from,
        false => to + entries - from,
    }
}

/// Status and phase as the last word of an entry has them.
#[must_use]
pub fn phase_of(status: nvme_spec::Status, phase: bool) -> u16 {
    status.to_wire() & !1 | u16::from(phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_in_runs_up_to_the_end_of_the_ring() {
        let mut ring = SubmissionRing::new(0x1000, 8);
        assert_eq!(ring.next(9), None);
        assert!(ring.set_tail(5));
        assert_eq!(ring.next(9), Some((0x1000, 5)));
        assert_eq!(ring.next(3), Some((0x1000, 3)));
        ring.take(3);
        assert_eq!((ring.next(9), ring.head()), (Some((0x10C0, 2)), 3));
        ring.take(2);
        // Seven more: three to the end, four from the beginning.
        assert!(ring.set_tail(4));
        assert_eq!(ring.next(9), Some((0x1140, 3)));
        ring.take(3);
        assert_eq!((ring.next(9), ring.head()), (Some((0x1000, 4)), 0));
        assert!(!ring.set_tail(8) && !ring.set_tail(u32::MAX));
        assert_eq!(ring.filled(), 4);
        ring.take(u32::MAX);
        assert_eq!(ring.filled(), 0);
    }

    #[test]
    fn the_phase_changes_with_each_round() {
        let mut ring = CompletionRing::new(0x2000, 2);
        assert_eq!(ring.push(), Some((0x2000, true)));
        assert_eq!(ring.push(), None);
        assert!(ring.set_head(1));
        assert_eq!(ring.push(), Some((0x2010, true)));
        assert!(ring.set_head(0));
        assert_eq!(ring.push(), Some((0x2000, false)));
        // It has one entry to take, and there are no more.
        assert!(!ring.set_head(2) && !ring.set_head(u32::MAX - 7));
        assert_eq!(ring.given(), 1);
        assert!(ring.set_head(0), "what it says again changes nothing");
        assert_eq!(ring.given(), 1);
    }

    #[test]
    fn a_ring_goes_on_where_it_was() {
        let mut whole = CompletionRing::new(0x4000, 3);
        let mut turn = whole.turn();
        let mut head = 0;
        for _ in 0..20 {
            let mut part = CompletionRing::resume(0x4000, 3, head, turn);
            assert_eq!(part, whole);
            assert_eq!(part.push(), whole.push());
            turn = part.turn();
            head = (head + 1) % 3;
            assert!(whole.set_head(head));
        }
    }

    #[test]
    fn a_head_beyond_what_was_given_is_refused() {
        let mut ring = CompletionRing::new(0, 16);
        for _ in 0..5 {
            ring.push();
        }
        assert!(!ring.set_head(6) && !ring.set_head(15));
        assert!(ring.set_head(3));
        assert!(!ring.set_head(2), "heads do not go back");
        assert_eq!(ring.given(), 2);
    }

    #[test]
    fn the_largest_rings_wrap() {
        let mut ring = SubmissionRing::new(0, 65_536);
        assert!(ring.set_tail(65_535));
        assert_eq!(ring.next(u32::MAX), Some((0, 65_535)));
        ring.take(65_535);
        assert_eq!(ring.head(), 65_535);
        assert!(ring.set_tail(0));
        assert_eq!(ring.next(9), Some((65_535 * 64, 1)));
    }
}
