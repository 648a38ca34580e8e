//! What happened, kept for a while and told to everyone who asks.
//!
//! Events are numbered from 1, announcements of hosts likewise and apart: who announces much pushes out no events. The last of each are kept; a reader has a
//! place among them and takes what comes behind it at its own pace, so that a slow one costs nothing but its own events, and is told which.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use admin_proto::limits::{ANNOUNCEMENTS_KEPT, ANNOUNCEMENTS_PER_SECOND_MAX, READERS_MAX};
use admin_proto::v1;
use tokio::sync::watch;

use crate::limits::EVENTS_KEPT;
use crate::ring::Ring;

pub use crate::ring::Batch;

/// Where events go, and are read from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    instance: String,
    kept: Mutex<Kept>,
    /// Counts what is new, for those who wait.
    news: watch::Sender<u64>,
}

#[derive(Debug)]
struct Kept {
    events: Ring<Entry>,
    announcements: Ring<v1::Announcement>,
    /// The latest announcement of each reader, by host and reader.
    readers: BTreeMap<(String, String), Arc<v1::Announcement>>,
    /// Announcements that may be made now, and since when they were counted.
    left: (f64, Instant),
}

/// What has a number among the events.
#[derive(Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are events, each behind an Arc of its own"
)]
pub enum Entry {
    /// An event.
    Event(v1::Event),
    /// More happened than could be noted.
    NotNoted,
}

/// What is kept, by its numbers: the oldest (0: none), and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Of events.
    pub events: (u64, u64),
    /// Of announcements.
    pub announcements: (u64, u64),
}

impl Default for Hub {
    fn default() -> Self {
        Self::new(String::new())
    }
}

impl Hub {
    /// Of this start of the daemon.
    pub fn new(instance: String) -> Self {
        let kept = Kept {
            events: Ring::new(EVENTS_KEPT),
            announcements: Ring::new(ANNOUNCEMENTS_KEPT),
            readers: BTreeMap::new(),
            left: (f64::from(ANNOUNCEMENTS_PER_SECOND_MAX), Instant::now()),
        };
        Self(Arc::new(Inner {
            instance,
            kept: Mutex::new(kept),
            news: watch::Sender::new(0),
        }))
    }

    /// This start of the daemon.
    pub fn instance(&self) -> &str {
        &self.0.instance
    }

    /// Tells an event, and its number.
    pub fn publish(&self, kind: v1::event::Kind, text: String) -> u64 {
        self.publish_by("", kind, text)
    }

    /// The same of what somebody asked for.
    pub fn publish_by(&self, actor: &str, kind: v1::event::Kind, text: String) -> u64 {
        let topic = topic_of(&kind).into();
        self.push(|sequence| {
            Entry::Event(v1::Event {
                sequence,
                at: Some(SystemTime::now().into()),
                topic,
                text,
                actor: actor.to_owned(),
                kind: Some(kind),
            })
        })
    }

    /// Tells that something happened which could not be noted.
    pub fn not_noted(&self) -> u64 {
        self.push(|_| Entry::NotNoted)
    }

    fn push(&self, entry: impl FnOnce(u64) -> Entry) -> u64 {
        let sequence = self.kept().events.push(entry).0;
        self.wake();
        sequence
    }

    /// Tells a host's word, if there were not too many; its number. The number and the time of `announcement` are made here.
    pub fn announce(&self, announcement: v1::Announcement, now: Instant) -> Option<u64> {
        let mut kept = self.kept();
        if !kept.may_announce(now) {
            return None;
        }
        let (sequence, told) = kept.announcements.push(|sequence| v1::Announcement {
            sequence,
            at: Some(SystemTime::now().into()),
            ..announcement
        });
        kept.remember(told);
        drop(kept);
        self.wake();
        Some(sequence)
    }

    /// What is kept.
    pub fn range(&self) -> Range {
        let kept = self.kept();
        Range {
            events: kept.events.range(),
            announcements: kept.announcements.range(),
        }
    }

    /// The number of the last event; 0: none.
    pub fn last(&self) -> u64 {
        self.range().events.1 - 1
    }

    /// What an answer is true of that is made of what is there from now on.
    pub fn as_of(&self) -> v1::AsOf {
        self.as_of_event(self.last())
    }

    /// What an answer is true of that contains this event.
    pub fn as_of_event(&self, sequence: u64) -> v1::AsOf {
        v1::AsOf {
            instance: self.0.instance.clone(),
            sequence,
            at: Some(SystemTime::now().into()),
        }
    }

    /// At most `max` events from a number on.
    pub fn read(&self, from: u64, max: usize) -> Batch<Entry> {
        self.kept().events.read(from, max)
    }

    /// The same of announcements.
    pub fn read_announcements(&self, from: u64, max: usize) -> Batch<v1::Announcement> {
        self.kept().announcements.read(from, max)
    }

    /// The latest announcement of each reader, by host and reader, and the number of the next one.
    pub fn readers(&self) -> (Vec<Arc<v1::Announcement>>, u64) {
        let kept = self.kept();
        let all = kept.readers.values().cloned().collect();
        (all, kept.announcements.range().1)
    }

    /// Changes whenever there is another event or announcement.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.news.subscribe()
    }

    fn wake(&self) {
        self.0.news.send_modify(|news| *news = news.wrapping_add(1));
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn may_announce(&mut self, now: Instant) -> bool {
        let rate = f64::from(ANNOUNCEMENTS_PER_SECOND_MAX);
        let (left, since) = self.left;
        let earned = now.saturating_duration_since(since).as_secs_f64() * rate;
        let left = (left + earned).min(rate);
        let may = left >= 1.0;
        self.left = (if may { left - 1.0 } else { left }, now);
        may
    }

    /// Keeps it as its reader's latest, unless what is known of that reader came with a proof and this does not: anybody could say it. Of more readers than are kept, those that announced last.
    fn remember(&mut self, told: Arc<v1::Announcement>) {
        let key = (told.host_nqn.clone(), told.reader.clone());
        let known = self.readers.get(&key);
        if known.is_some_and(|known| known.verified && !told.verified) {
            return;
        }
        self.readers.insert(key, told);
        if self.readers.len() > READERS_MAX {
            let oldest = self.readers.iter().min_by_key(|(_, it)| it.sequence);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.readers.remove(&key);
            }
        }
    }
}

fn topic_of(kind: &v1::event::Kind) -> v1::Topic {
    use v1::event::Kind;
    match kind {
        Kind::Subsystem(_) => v1::Topic::Subsystem,
        Kind::Namespace(_) => v1::Topic::Namespace,
        Kind::Host(_) | Kind::HostRefused(_) => v1::Topic::Host,
        Kind::Controller(_) => v1::Topic::Controller,
        Kind::Listener(_) => v1::Topic::Listener,
        Kind::Function(_) => v1::Topic::Function,
        Kind::Health(_) => v1::Topic::Health,
        Kind::Progress(_) => v1::Topic::Progress,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn announcement(host: &str, reader: &str) -> v1::Announcement {
        v1::Announcement {
            host_nqn: host.to_owned(),
            reader: reader.to_owned(),
            ..v1::Announcement::default()
        }
    }

    #[test]
    fn announcements_have_a_rate_and_push_out_no_events() {
        let hub = Hub::default();
        hub.publish(
            v1::event::Kind::Host(v1::HostEvent::default()),
            String::new(),
        );
        let start = Instant::now();
        let announce = |at| hub.announce(announcement("h", "r"), at).is_some();
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
        for second in 2..101 {
            let at = start + Duration::from_secs(second);
            assert_eq!((0..2 * rate).filter(|_| announce(at)).count(), 100);
        }
        // 100 and 10, and 100 in each of 99 seconds.
        let told = 110 + 9900;
        let oldest = told + 1 - ANNOUNCEMENTS_KEPT as u64;
        let range = Range {
            events: (1, 2),
            announcements: (oldest, told + 1),
        };
        assert_eq!(hub.range(), range);
    }

    #[test]
    fn the_latest_of_each_reader_is_known_and_the_silent_are_forgotten() {
        let hub = Hub::default();
        let mut now = Instant::now();
        let mut announce = |host: &str, reader: &str| {
            now += Duration::from_secs(1);
            hub.announce(announcement(host, reader), now).unwrap()
        };
        announce("b", "");
        announce("a", "1");
        announce("a", "0");
        announce("a", "1");
        let known = |hub: &Hub| -> Vec<(String, String, u64)> {
            let (all, _) = hub.readers();
            let row =
                |it: &Arc<v1::Announcement>| (it.host_nqn.clone(), it.reader.clone(), it.sequence);
            all.iter().map(row).collect()
        };
        let row = |host: &str, reader: &str, number| (host.to_owned(), reader.to_owned(), number);
        assert_eq!(
            known(&hub),
            [row("a", "0", 3), row("a", "1", 4), row("b", "", 1)]
        );
        for reader in 0..READERS_MAX - 2 {
            announce("c", &reader.to_string());
        }
        // One too many: that of b is the oldest.
        assert_eq!(known(&hub).len(), READERS_MAX);
        assert_eq!(known(&hub)[..2], [row("a", "0", 3), row("a", "1", 4)]);
        assert!(known(&hub).iter().all(|(host, ..)| host != "b"));
    }

    /// Whoever may announce may say any host's name: the word of one that has proven its own stays what is known of it.
    #[test]
    fn what_is_proven_is_replaced_by_what_is_proven_alone() {
        let hub = Hub::default();
        let announce = |verified, position| {
            let word = v1::Announcement {
                verified,
                position: Some(position),
                ..announcement("h", "r")
            };
            hub.announce(word, Instant::now()).unwrap();
            hub.readers().0[0].position.unwrap()
        };
        assert_eq!(announce(false, 1), 1);
        assert_eq!(announce(true, 2), 2);
        assert_eq!(announce(false, 3), 2);
        assert_eq!(announce(true, 4), 4);
        // Subscribers hear all of them.
        assert_eq!(hub.read_announcements(1, 9).items.len(), 4);
    }

    #[test]
    fn an_answer_contains_what_was_told_before_it() {
        let hub = Hub::new("i".to_owned());
        assert_eq!((hub.as_of().sequence, hub.last()), (0, 0));
        hub.not_noted();
        let as_of = hub.as_of();
        assert_eq!((as_of.instance.as_str(), as_of.sequence), ("i", 1));
        assert_eq!(*hub.read(1, 9).items[0], Entry::NotNoted);
    }
}
