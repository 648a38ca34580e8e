//! What to read before anybody asks for it, without doing I/O: a machine that is told of reads and of what fetches took, and says what to fetch next.
//!
//! Streams are found among the reads of one reader, by their places alone: a read that begins where another ended, or as far behind the last one as that was behind the one before. A
//! stream whose commands arrive over several reactors is several strided streams, each read ahead for by its reactor; what two of them name is fetched once,
//! because frames have one home.
//!
//! How far ahead: as much as has to be under way for the store to be busy, twice what it carries in the time that an operation takes there (bandwidth times
//! latency, both measured) and two of the reader's reads, less what readers have asked for themselves; within a budget. So nothing is read ahead for
//! a reader of many commands at a time, who keeps the store busy himself, nor where the store answers at once.
//!
//! Places and lengths are presented bytes; times are nanoseconds of a clock that the driver passes in.

mod pace;
mod stream;

use std::ops::Range;

pub use pace::{Begun, Pace};
use stream::Streams;

/// Presented bytes that a reader is ahead of at least, where anything is read ahead for it.
pub const WINDOW_BYTES_MIN: u64 = 4 << 20;
/// Presented bytes named at a time at most.
pub const PIECE_BYTES_MAX: u64 = 16 << 20;
/// Presented bytes named at a time at least, but at a stream's end and where the budget is small.
const PIECE_BYTES_MIN: u64 = 1 << 20;
/// A reader is ahead of by so many times what it has read of its stream at most: two random reads that happen to be neighbours are a stream too, and a
/// window fetched for them would be many times what they are.
const READ_TIMES_MAX: u64 = 8;

/// Who reads: streams are found among the reads of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderId(pub u64);

/// Finds streams among the reads of one namespace on one reactor, and says what to fetch for them.
#[derive(Debug)]
pub struct ReadAhead {
    /// Presented bytes of the namespace.
    end: u64,
    budget_bytes: u64,
    /// Bytes of the reads that are under way.
    reading_bytes: u64,
    streams: Streams,
    /// How fast the store is.
    pub pace: Pace,
}

impl ReadAhead {
    /// For a namespace of `end` bytes; `budget_bytes` may be fetched and not read yet.
    #[must_use]
    pub fn new(end: u64, budget_bytes: u64) -> ReadAhead {
        ReadAhead {
            end,
            budget_bytes,
            reading_bytes: 0,
            streams: Streams::new(),
            pace: Pace::default(),
        }
    }

    /// A read of these bytes begins.
    pub fn read(&mut self, reader: ReaderId, range: Range<u64>) {
        self.read_in_order(&range);
        self.streams.read(reader, range);
    }

    /// A read of these bytes begins that belongs to an order which was given: its neighbours in it are chance, so it is none of a stream.
    pub fn read_in_order(&mut self, range: &Range<u64>) {
        self.reading_bytes += range.end - range.start;
    }

    /// A read of so many bytes has ended, well or not.
    pub fn read_ended(&mut self, bytes: u64) {
        self.reading_bytes = self.reading_bytes.saturating_sub(bytes);
    }

    /// What to fetch now, if anything; to be asked after each read and each end of a fetch, until there is nothing.
    pub fn next_piece(&mut self) -> Option<Range<u64>> {
        if !self.pace.is_slow() {
            return None;
        }
        let budget = self.budget_bytes / self.streams.active().max(1);
        let carried = 2 * self.pace.carried_bytes();
        let (end, reading_bytes) = (self.end, self.reading_bytes);
        self.streams.next_piece(|read_bytes, stream_bytes| {
            let under_way = (carried + 2 * read_bytes).max(WINDOW_BYTES_MIN + read_bytes);
            let most = budget.min(stream_bytes.saturating_mul(READ_TIMES_MAX));
            let window = under_way.saturating_sub(reading_bytes).min(most);
            let least = (window / 4).clamp(PIECE_BYTES_MIN.min(window / 2), PIECE_BYTES_MAX);
            stream::Window {
                bytes: window,
                least,
                end,
            }
        })
    }
}

#[cfg(test)]
mod tests;
