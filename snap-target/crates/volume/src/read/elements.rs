//! How long a read's element steps took.

use std::time::Instant;

use super::window::Unit;
use crate::StreamIndex;

/// Streams of one read that are told apart; what others took is the last one's.
const STREAMS_MAX: usize = 4;

/// What undoing the element steps of a stream took, views included.
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

/// A unit whose elements are being made; none of one that is copied.
pub(super) struct Timer(Option<(StreamIndex, u64, Instant)>);

impl Timer {
    /// Of so many presented bytes of a unit.
    pub(super) fn of(unit: &Unit, bytes: u64) -> Self {
        let is_copy = unit.decoder.is_copy();
        Self((!is_copy).then(|| (unit.stream, bytes, Instant::now())))
    }
}

impl ElementTimes {
    pub(super) fn add(&mut self, timer: Timer) {
        let Some((stream, bytes, begun)) = timer.0 else {
            return;
        };
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let is_its = |place: &Option<ElementTime>| place.is_none_or(|it| it.stream == stream);
        let at = self.0.iter().position(is_its).unwrap_or(STREAMS_MAX - 1);
        if let Some(place) = self.0.get_mut(at) {
            let time = place.get_or_insert(ElementTime {
                stream,
                bytes: 0,
                ns: 0,
            });
            time.bytes += bytes;
            time.ns += ns;
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = ElementTime> + '_ {
        self.0.iter().copied().flatten()
    }
}
