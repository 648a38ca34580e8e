//! The flight recorder: the last events of one thread, readable by any other at any time, a panic hook too.

mod event;
mod host;
mod text;

use std::sync::atomic::{AtomicU64, Ordering, fence};

pub use event::{Event, EventKind, Recorded};
pub use host::HostName;
pub use text::DumpFormat;

use event::WORDS;

/// A ring of fixed-size records of atomics. One thread writes; a reader sees a record whole or not at all.
///
/// Each record has a sequence number in front: odd while it is written, and twice the number of its event, plus 2, when it is whole.
#[derive(Debug)]
pub struct FlightRecorder {
    records: Box<[Record]>,
    /// Events recorded since the start.
    count: AtomicU64,
}

#[derive(Debug)]
#[repr(align(64))]
struct Record {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// What [`crate::limits::EVENTS`] and [`crate::TelemetryConfig::events`] say.
const _: () = assert!(size_of::<Record>() == 320);

impl Record {
    fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            words: [const { AtomicU64::new(0) }; WORDS],
        }
    }
}

impl FlightRecorder {
    pub(crate) fn new(events: usize) -> Self {
        let records = events.max(1).next_power_of_two();
        Self {
            records: (0..records).map(|_| Record::new()).collect(),
            count: AtomicU64::new(0),
        }
    }

    /// Keeps an event instead of the oldest.
    pub(crate) fn record(&self, at_ns: u64, event: &Event) {
        let number = self.count.load(Ordering::Relaxed);
        let Some(record) = self.at(number) else {
            return;
        };
        record.sequence.store(2 * number + 1, Ordering::Relaxed);
        // What follows is not seen before the odd number.
        fence(Ordering::Release);
        for (word, value) in record.words.iter().zip(event.to_words(at_ns)) {
            word.store(value, Ordering::Relaxed);
        }
        record.sequence.store(2 * number + 2, Ordering::Release);
        self.count.store(number + 1, Ordering::Release);
    }

    /// The events that are kept, the oldest first. Those that are overwritten meanwhile are left out.
    pub(crate) fn events(&self, reactor: Option<u16>) -> Vec<Recorded> {
        let end = self.count.load(Ordering::Acquire);
        let first = end.saturating_sub(self.records.len() as u64);
        (first..end)
            .filter_map(|number| self.read(number, reactor))
            .collect()
    }

    fn read(&self, number: u64, reactor: Option<u16>) -> Option<Recorded> {
        let record = self.at(number)?;
        let is_whole = |sequence: u64| sequence == 2 * number + 2;
        if !is_whole(record.sequence.load(Ordering::Acquire)) {
            return None;
        }
        let words = std::array::from_fn(|index| record.words[index].load(Ordering::Relaxed));
        // What was read is not newer than the number that is read now.
        fence(Ordering::Acquire);
        if !is_whole(record.sequence.load(Ordering::Relaxed)) {
            return None;
        }
        Recorded::of_words(reactor, words)
    }

    fn at(&self, number: u64) -> Option<&Record> {
        let mask = self.records.len() as u64 - 1;
        self.records.get(usize::try_from(number & mask).ok()?)
    }
}

#[cfg(test)]
mod tests;
