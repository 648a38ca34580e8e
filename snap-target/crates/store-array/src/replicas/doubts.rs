//! Whose turn it is to be asked for bytes that another replica had wrong.

use std::collections::VecDeque;
use std::ops::Range;

use crate::limits::{DOUBTS_MAX, SERVED_MAX};

/// What one handle knows of it: what replicas served last, and the ranges of which one was wrong.
pub(super) struct Doubts {
    members: usize,
    /// The newest last.
    served: VecDeque<Served>,
    doubts: VecDeque<Doubt>,
}

struct Served {
    bytes: Range<u64>,
    member: usize,
}

struct Doubt {
    bytes: Range<u64>,
    /// The replica that is asked first.
    turn: usize,
    /// By bit: replicas that served bytes of the range which were wrong.
    wrong: u16,
    /// It has served bytes of the range since it is its turn.
    has_served: bool,
}

impl Doubts {
    pub fn new(members: usize) -> Self {
        Self {
            members,
            served: VecDeque::with_capacity(SERVED_MAX),
            doubts: VecDeque::with_capacity(DOUBTS_MAX),
        }
    }

    /// A replica served a read.
    pub fn served(&mut self, bytes: Range<u64>, member: usize) {
        let own = |doubt: &&mut Doubt| doubt.turn == member && overlap(&doubt.bytes, &bytes);
        let mut doubts = self.doubts.iter_mut();
        doubts
            .by_ref()
            .filter(own)
            .for_each(|doubt| doubt.has_served = true);
        if self.served.len() == SERVED_MAX {
            self.served.pop_front();
        }
        self.served.push_back(Served { bytes, member });
    }

    /// The replica to ask first for these bytes, where one was wrong.
    pub fn turn_of(&self, bytes: &Range<u64>) -> Option<usize> {
        self.of(bytes).map(|doubt| doubt.turn)
    }

    /// By bit, the replicas that are known to have these bytes wrong.
    pub fn wrong_of(&self, bytes: &Range<u64>) -> u16 {
        self.of(bytes).map_or(0, |doubt| doubt.wrong)
    }

    fn of(&self, bytes: &Range<u64>) -> Option<&Doubt> {
        // What is known of others that share a block with them is only better than nothing.
        let mut newest = self.doubts.iter().rev();
        let exact = newest.clone().find(|doubt| doubt.bytes == *bytes);
        exact.or_else(|| newest.find(|doubt| overlap(&doubt.bytes, bytes)))
    }

    /// What was read of these bytes was wrong: the next read of them is another replica's turn. Returns the one that served them, where it was one alone.
    pub fn doubt(&mut self, bytes: &Range<u64>) -> Option<usize> {
        let culprit = self.server_of(bytes);
        let known = self.doubts.iter().position(|it| it.bytes == *bytes);
        let known = known.and_then(|at| self.doubts.remove(at));
        let newest = culprit.map_or(0, |culprit| 1 << culprit);
        let mut wrong = known.as_ref().map_or(0, |known| known.wrong) | newest;
        // Where all of them were, some of it was hit on its way: only the newest is known.
        if wrong.count_ones() as usize == self.members {
            wrong = newest;
        }
        let turn = match (culprit, known) {
            (Some(culprit), _) => (culprit + 1) % self.members,
            // Of reads that went wrong together, the first one gives the turn on.
            (None, Some(known)) if known.has_served => (known.turn + 1) % self.members,
            (None, Some(known)) => known.turn,
            (None, None) => 0,
        };
        if self.doubts.len() == DOUBTS_MAX {
            self.doubts.pop_front();
        }
        self.doubts.push_back(Doubt {
            bytes: bytes.clone(),
            turn,
            wrong,
            has_served: false,
        });
        culprit
    }

    /// Who served these bytes last, where that was one replica: each byte counts with the newest read of it.
    fn server_of(&self, bytes: &Range<u64>) -> Option<usize> {
        let mut server = None;
        let mut open = vec![bytes.clone()];
        for it in self.served.iter().rev() {
            if open.iter().any(|part| overlap(part, &it.bytes)) {
                if server.is_some_and(|server| server != it.member) {
                    return None;
                }
                server = Some(it.member);
                open = open
                    .iter()
                    .flat_map(|part| without(part, &it.bytes))
                    .collect();
            }
            if open.is_empty() {
                break;
            }
        }
        server
    }
}

/// What of a range lies before and behind another.
fn without(range: &Range<u64>, other: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let before = range.start..other.start.clamp(range.start, range.end);
    let behind = other.end.clamp(range.start, range.end)..range.end;
    [before, behind].into_iter().filter(|it| !it.is_empty())
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u64) -> Range<u64> {
        number << 12..(number + 1) << 12
    }

    /// What is remembered is bounded, and is the last.
    #[test]
    fn the_last_ranges_are_remembered() {
        let mut doubts = Doubts::new(3);
        let count = 1000;
        for number in 0..count {
            doubts.served(block(number), 1);
        }
        for number in 0..count {
            let culprit = doubts.doubt(&block(number));
            let is_known = number >= count - SERVED_MAX as u64;
            assert_eq!(culprit, is_known.then_some(1), "{number}");
        }
        for number in 0..count {
            let turn = doubts.turn_of(&block(number));
            let is_known = number >= count - DOUBTS_MAX as u64;
            assert_eq!(turn, is_known.then_some(2), "{number}");
        }
    }

    /// Neighbours that share a block, each wrong on another replica: each is asked where it is right.
    #[test]
    fn a_neighbours_doubt_hides_no_own_one() {
        let (one, other) = (0..3 << 12, 2 << 12..5 << 12);
        let mut doubts = Doubts::new(2);
        doubts.served(one.clone(), 0);
        assert_eq!(doubts.doubt(&one), Some(0));
        doubts.served(one.clone(), 1);
        doubts.served(other.clone(), 1);
        assert_eq!(doubts.doubt(&other), Some(1));
        doubts.served(other.clone(), 0);
        assert_eq!(
            (doubts.turn_of(&one), doubts.turn_of(&other)),
            (Some(1), Some(0))
        );
        // Hit on its way from the right one, say, and then again wrong from the other.
        doubts.served(one.clone(), 1);
        assert_eq!(doubts.doubt(&one), Some(1));
        assert_eq!(doubts.turn_of(&one), Some(0));
        doubts.served(one.clone(), 0);
        assert_eq!(doubts.doubt(&one), Some(0));
        assert_eq!(doubts.turn_of(&one), Some(1));
    }

    /// A frame of several reads has one culprit where all of them came from one.
    #[test]
    fn who_served_it_is_known_where_it_was_one() {
        let mut doubts = Doubts::new(2);
        for (number, member) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
            doubts.served(block(number), member);
        }
        assert_eq!(doubts.doubt(&(4096..3 << 12)), Some(1));
        assert_eq!(doubts.doubt(&(0..2 << 12)), None);
        assert_eq!(doubts.doubt(&(100..200)), Some(0));
        assert_eq!(doubts.doubt(&block(9)), None);
    }

    /// What was read since counts, also in parts and of a part: the one who served all of it before is not the one who served it last.
    #[test]
    fn the_newest_read_of_each_byte_counts() {
        let whole = 0..4 << 12;
        let mut doubts = Doubts::new(3);
        doubts.served(whole.clone(), 0);
        assert_eq!(doubts.doubt(&whole), Some(0));
        for number in [3, 0, 2] {
            doubts.served(block(number), 1);
        }
        assert_eq!(
            doubts.doubt(&whole),
            None,
            "one of its blocks is the first's"
        );
        doubts.served(block(1), 1);
        assert_eq!(doubts.doubt(&whole), Some(1));
        // Read beside it by another: of a part, nobody is known to be wrong.
        doubts.served(block(2), 2);
        assert_eq!(doubts.doubt(&whole), None);
        assert_eq!(doubts.doubt(&(0..2 << 12)), Some(1));
        assert_eq!(doubts.doubt(&block(2)), Some(2));
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "one range is what is left")]
    fn what_is_left_of_a_range() {
        let left = |other: Range<u64>| without(&(10..20), &other).collect::<Vec<_>>();
        assert_eq!(left(0..10), [10..20]);
        assert_eq!(left(20..30), [10..20]);
        assert_eq!(left(0..12), [12..20]);
        assert_eq!(left(18..30), [10..18]);
        assert_eq!(left(12..18), [10..12, 18..20]);
        assert_eq!(left(10..20), []);
    }
}
