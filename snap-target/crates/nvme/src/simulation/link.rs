//! A byte stream between two ends: cut anywhere, delayed, stalled.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Time;

use super::random::Random;

/// Pieces between two gaps, on average.
const GAP_ONCE_IN: u64 = 8;

/// What a link does to bytes.
#[derive(Clone, Copy, Debug)]
pub struct LinkShape {
    /// The longest piece that arrives at once; 1 delivers byte by byte.
    pub piece_bytes_max: u64,
    /// The longest delay of a piece; pieces stay in order.
    pub delay_max: Duration,
}

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Link {
    /// Lengths of the pieces on their way, and when each arrives.
    pieces: VecDeque<(Time, usize)>,
    /// Their bytes, from `start` on.
    bytes: Vec<u8>,
    start: usize,
    last_due: Time,
    /// Nothing is delivered while the link is stalled.
    pub stalled: bool,
}

impl Link {
    /// Takes bytes at one end.
    pub fn send(&mut self, bytes: &[u8], shape: LinkShape, random: &mut Random, now: Time) {
        if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
        let mut rest = bytes.len();
        while rest > 0 {
            let most = (rest as u64).min(shape.piece_bytes_max);
            let len = usize::try_from(random.within(1..most + 1)).unwrap();
            // Now and then a gap; most pieces follow each other at once.
            if random.once_in(GAP_ONCE_IN) {
                self.last_due = self.last_due.max(now + random.below(shape.delay_max));
            }
            self.pieces.push_back((self.last_due, len));
            rest -= len;
        }
    }

    /// Gives what has arrived to the other end, which says how many bytes it took; the rest stays in front.
    pub fn deliver(&mut self, now: Time, mut receive: impl FnMut(&[u8]) -> usize) {
        while !self.stalled
            && let Some((due, len)) = self.pieces.front_mut()
            && *due <= now
        {
            let used = receive(&self.bytes[self.start..self.start + *len]);
            self.start += used;
            *len -= used;
            if *len > 0 {
                break;
            }
            self.pieces.pop_front();
        }
    }

    /// Nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The network loses what is on its way.
    pub fn lose(&mut self) {
        *self = Link {
            last_due: self.last_due,
            stalled: self.stalled,
            ..Link::default()
        };
    }

    /// When the next bytes arrive.
    pub fn next_due(&self) -> Option<Time> {
        if self.stalled {
            return None;
        }
        self.pieces.front().map(|(due, _)| *due)
    }
}
