//! How long a read's element steps took.

use std::time::Instant;

use super::window::Unit;
use crate::StreamIndex;

/// Streams of one read that are told apart; what others took is the last one's.
const STREAMS_MAX: usize = 4;

/// One part of so many is timed, and stands for them: reading the clock twice costs as much as a quarter of a part.
const PARTS_TIMED: usize = 8;

/// What undoing the element steps of a stream took, views included; of what is checked part by part, by the parts that were timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementTime {
    /// Which stream.
    pub stream: StreamIndex,
    /// Presented bytes that were made.
    pub bytes: u64,
    /// In so many nanoseconds.
    pub ns: u64,
}

/// Of one read, by stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ElementTimes([Option<ElementTime>; STREAMS_MAX]);

/// Of one unit, whose elements are made part by part.
pub(super) struct Timer {
    parts: usize,
    timed_bytes: u64,
    timed_ns: u64,
}

impl Timer {
    pub(super) fn new() -> Self {
        Self {
            parts: 0,
            timed_bytes: 0,
            timed_ns: 0,
        }
    }

    /// Makes a part, of so many presented bytes.
    pub(super) fn part<E>(
        &mut self,
        unit: &Unit,
        bytes: u64,
        make: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let is_timed = self.parts.is_multiple_of(PARTS_TIMED) && !unit.decoder.is_copy();
        self.parts += 1;
        if !is_timed {
            return make();
        }
        let begun = Instant::now();
        make()?;
        self.timed_ns += u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.timed_bytes += bytes;
        Ok(())
    }

    /// What all of the unit took; nothing of one that is copied.
    fn ns(&self, unit: &Unit) -> Option<u64> {
        let ns = u128::from(self.timed_ns) * u128::from(unit.len());
        let ns = ns.checked_div(u128::from(self.timed_bytes))?;
        Some(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl ElementTimes {
    pub(super) fn add(&mut self, unit: &Unit, timer: &Timer) {
        let (stream, bytes) = (unit.stream, unit.len());
        let Some(ns) = timer.ns(unit) else {
            return;
        };
        let is_its = |place: &Option<ElementTime>| place.is_none_or(|it| it.stream == stream);
        let at = self.0.iter().position(is_its).unwrap_or(STREAMS_MAX - 1);
        if let Some(place) = self.0.get_mut(at) {
            let time = place.get_or_insert(ElementTime {
                stream,
                bytes: 0,
                ns: 0,
            });
            time.bytes += bytes;
            time.ns = time.ns.saturating_add(ns);
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = ElementTime> + '_ {
        self.0.iter().copied().flatten()
    }
}
