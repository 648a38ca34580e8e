//! What happened, kept for a while and told to everyone who asks.
//!
//! Events are numbered from 1. The last [`EVENTS_KEPT`] are kept; a reader has a place among them and takes what comes behind it at its own pace,
//! so that a slow one costs nothing but its own events, and is told which.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use admin_proto::limits::ANNOUNCEMENTS_PER_SECOND_MAX;
use admin_proto::v1;
use tokio::sync::watch;

use crate::limits::EVENTS_KEPT;

/// Where events go, and are read from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kept: Mutex<Kept>,
    /// The next event's number, for those who wait.
    next: watch::Sender<u64>,
}

#[derive(Debug)]
struct Kept {
    events: VecDeque<Arc<v1::Event>>,
    next: u64,
    /// Announcements that may be made now, and since when they were counted.
    announcements: (f64, Instant),
}

/// What a reader gets.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// Numbers that are no longer kept: the first and the last.
    pub gap: Option<(u64, u64)>,
    /// What follows, in order.
    pub events: Vec<Arc<v1::Event>>,
    /// Where to go on.
    pub next: u64,
}

impl Default for Hub {
    fn default() -> Self {
        let kept = Kept {
            events: VecDeque::new(),
            next: 1,
            announcements: (f64::from(ANNOUNCEMENTS_PER_SECOND_MAX), Instant::now()),
        };
        Self(Arc::new(Inner {
            kept: Mutex::new(kept),
            next: watch::Sender::new(1),
        }))
    }
}

impl Hub {
    /// Tells an event, and its number.
    pub fn publish(&self, kind: v1::event::Kind, text: String) -> u64 {
        let mut kept = self.kept();
        let sequence = kept.next;
        kept.next += 1;
        if kept.events.len() == EVENTS_KEPT {
            kept.events.pop_front();
        }
        let topic = topic_of(&kind).into();
        kept.events.push_back(Arc::new(v1::Event {
            sequence,
            time: Some(SystemTime::now().into()),
            topic,
            text,
            kind: Some(kind),
        }));
        // Under the lock, so that the numbers that readers are woken with ascend.
        self.0.next.send_replace(kept.next);
        sequence
    }

    /// Tells a host's word, if there were not too many.
    pub fn announce(&self, announcement: v1::Announcement, now: Instant) -> Option<u64> {
        {
            let mut kept = self.kept();
            let rate = f64::from(ANNOUNCEMENTS_PER_SECOND_MAX);
            let (left, since) = kept.announcements;
            let earned = now.saturating_duration_since(since).as_secs_f64() * rate;
            let left = (left + earned).min(rate);
            if left < 1.0 {
                kept.announcements = (left, now);
                return None;
            }
            kept.announcements = (left - 1.0, now);
        }
        let text = format!(
            "{} is at epoch {}, position {}",
            announcement.host_nqn, announcement.epoch, announcement.position
        );
        Some(self.publish(v1::event::Kind::Announcement(announcement), text))
    }

    /// The oldest number that is kept (0: none), and the next one.
    pub fn range(&self) -> (u64, u64) {
        let kept = self.kept();
        let oldest = kept.events.front().map_or(0, |event| event.sequence);
        (oldest, kept.next)
    }

    /// At most `max` events from a number on.
    pub fn read(&self, from: u64, max: usize) -> Batch {
        let kept = self.kept();
        let oldest = kept.next - kept.events.len() as u64;
        let from = from.clamp(1, kept.next);
        let gap = (from < oldest).then(|| (from, oldest - 1));
        let start = from.max(oldest);
        let skip = usize::try_from(start - oldest).unwrap_or(usize::MAX);
        let events: Vec<_> = kept.events.iter().skip(skip).take(max).cloned().collect();
        Batch {
            gap,
            next: start + events.len() as u64,
            events,
        }
    }

    /// Changes whenever there is another event.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.next.subscribe()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn topic_of(kind: &v1::event::Kind) -> v1::Topic {
    use v1::event::Kind;
    match kind {
        Kind::Subsystem(_) => v1::Topic::Subsystem,
        Kind::Namespace(_) => v1::Topic::Namespace,
        Kind::Host(_) => v1::Topic::Host,
        Kind::Controller(_) => v1::Topic::Controller,
        Kind::Listener(_) => v1::Topic::Listener,
        Kind::Health(_) => v1::Topic::Health,
        Kind::Progress(_) => v1::Topic::Progress,
        Kind::Announcement(_) => v1::Topic::Announcement,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn event(position: u64) -> (v1::event::Kind, String) {
        let announcement = v1::Announcement {
            position,
            ..v1::Announcement::default()
        };
        (v1::event::Kind::Announcement(announcement), String::new())
    }

    fn numbers(batch: &Batch) -> Vec<u64> {
        batch.events.iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn events_are_numbered_and_read_from_any_number_on() {
        let hub = Hub::default();
        assert_eq!(hub.range(), (0, 1));
        let waiting = hub.watch();
        for position in 0..5 {
            let (kind, text) = event(position);
            assert_eq!(hub.publish(kind, text), position + 1);
        }
        assert_eq!(hub.range(), (1, 6));
        assert!(waiting.has_changed().unwrap());
        let batch = hub.read(3, 2);
        assert_eq!(
            (numbers(&batch), batch.gap, batch.next),
            (vec![3, 4], None, 5)
        );
        let batch = hub.read(batch.next, 2);
        assert_eq!((numbers(&batch), batch.gap, batch.next), (vec![5], None, 6));
        let batch = hub.read(6, 2);
        assert_eq!((numbers(&batch), batch.gap, batch.next), (vec![], None, 6));
        assert_eq!(numbers(&hub.read(0, 9)), [1, 2, 3, 4, 5]);
        assert_eq!(
            hub.read(u64::MAX, 9).next,
            6,
            "what is not there yet is waited for"
        );
    }

    #[test]
    fn what_is_no_longer_kept_is_a_gap() {
        let hub = Hub::default();
        let more = EVENTS_KEPT as u64 + 10;
        for position in 0..more {
            let (kind, text) = event(position);
            hub.publish(kind, text);
        }
        assert_eq!(hub.range(), (11, more + 1));
        let batch = hub.read(4, 1);
        assert_eq!(
            (numbers(&batch), batch.gap, batch.next),
            (vec![11], Some((4, 10)), 12)
        );
        assert_eq!(hub.read(11, 1).gap, None);
    }

    #[test]
    fn announcements_have_a_rate() {
        let hub = Hub::default();
        let start = Instant::now();
        let announce = |at| hub.announce(v1::Announcement::default(), at).is_some();
        let rate = ANNOUNCEMENTS_PER_SECOND_MAX;
        assert_eq!(
            (0..2 * rate).filter(|_| announce(start)).count(),
            rate as usize
        );
        let later = start + Duration::from_millis(100);
        assert_eq!(
            (0..2 * rate).filter(|_| announce(later)).count(),
            rate as usize / 10
        );
    }
}
