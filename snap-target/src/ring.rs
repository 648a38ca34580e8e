//! The last of what was numbered, for readers that each have a place among the numbers.

use std::collections::VecDeque;
use std::sync::Arc;

/// Items by their numbers, which begin at 1; of more than `kept` the oldest go.
#[derive(Debug)]
pub struct Ring<T> {
    items: VecDeque<Arc<T>>,
    next: u64,
    kept: usize,
}

/// What a reader gets.
#[derive(Debug, PartialEq)]
pub struct Batch<T> {
    /// Numbers that are no longer kept: the first and the last.
    pub gap: Option<(u64, u64)>,
    /// The number of the first item.
    pub first: u64,
    /// What follows, in order.
    pub items: Vec<Arc<T>>,
    /// Where to go on.
    pub next: u64,
}

impl<T> Ring<T> {
    /// Of at most `kept` items.
    pub fn new(kept: usize) -> Self {
        Self {
            items: VecDeque::new(),
            next: 1,
            kept,
        }
    }

    /// Adds what is made for the next number. Returns both.
    pub fn push(&mut self, make: impl FnOnce(u64) -> T) -> (u64, Arc<T>) {
        let number = self.next;
        self.next += 1;
        if self.items.len() == self.kept {
            self.items.pop_front();
        }
        let item = Arc::new(make(number));
        self.items.push_back(item.clone());
        (number, item)
    }

    /// The oldest number that is kept (0: none), and the next one.
    pub fn range(&self) -> (u64, u64) {
        let oldest = if self.items.is_empty() {
            0
        } else {
            self.oldest()
        };
        (oldest, self.next)
    }

    /// At most `max` items from a number on.
    pub fn read(&self, from: u64, max: usize) -> Batch<T> {
        let oldest = self.oldest();
        let from = from.clamp(1, self.next);
        let gap = (from < oldest).then(|| (from, oldest - 1));
        let first = from.max(oldest);
        let skip = usize::try_from(first - oldest).unwrap_or(usize::MAX);
        let items: Vec<_> = self.items.iter().skip(skip).take(max).cloned().collect();
        Batch {
            gap,
            first,
            next: first + items.len() as u64,
            items,
        }
    }

    fn oldest(&self) -> u64 {
        self.next - self.items.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ring: &Ring<u64>, from: u64, max: usize) -> (Option<(u64, u64)>, Vec<u64>, u64) {
        let batch = ring.read(from, max);
        let items = batch.items.iter().map(|item| **item).collect();
        (batch.gap, items, batch.next)
    }

    #[test]
    fn items_are_numbered_and_read_from_any_number_on() {
        let mut ring = Ring::new(100);
        assert_eq!(ring.range(), (0, 1));
        for number in 1..=5 {
            assert_eq!(ring.push(|given| given * 10).0, number);
        }
        assert_eq!(ring.range(), (1, 6));
        assert_eq!(read(&ring, 3, 2), (None, vec![30, 40], 5));
        assert_eq!(read(&ring, 5, 2), (None, vec![50], 6));
        assert_eq!(read(&ring, 6, 2), (None, vec![], 6));
        assert_eq!(read(&ring, 0, 9), (None, vec![10, 20, 30, 40, 50], 6));
        assert_eq!(
            read(&ring, u64::MAX, 9).2,
            6,
            "what is not there yet is waited for"
        );
    }

    #[test]
    fn what_is_no_longer_kept_is_a_gap() {
        let mut ring = Ring::new(5);
        for _ in 0..15 {
            ring.push(|number| number);
        }
        assert_eq!(ring.range(), (11, 16));
        assert_eq!(read(&ring, 4, 1), (Some((4, 10)), vec![11], 12));
        assert_eq!(read(&ring, 11, 1).0, None);
    }
}
