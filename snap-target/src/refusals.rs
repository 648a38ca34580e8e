//! Hosts that tried to connect and may not: counted each time, told once in a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use admin_proto::v1::RefusedReason;

use crate::limits::{REFUSAL_INTERVAL, REFUSALS_KNOWN_MAX};

/// How often hosts were refused, by reason. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<[AtomicU64; REASONS.len()]>);

/// Each reason with its name in the metric.
const REASONS: [(RefusedReason, &str); 4] = [
    (RefusedReason::NotAllowed, "not_allowed"),
    (RefusedReason::NoSubsystem, "no_subsystem"),
    (RefusedReason::Limit, "limit"),
    (RefusedReason::Invalid, "invalid"),
];

impl Refusals {
    /// A host was refused.
    pub fn count(&self, reason: RefusedReason) {
        for ((of, _), counter) in REASONS.iter().zip(self.0.iter()) {
            if *of == reason {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// How often, by reason.
    pub fn counts(&self) -> [(&'static str, u64); REASONS.len()] {
        let mut counts = REASONS.map(|(_, name)| (name, 0));
        for ((_, count), counter) in counts.iter_mut().zip(self.0.iter()) {
            *count = counter.load(Ordering::Relaxed);
        }
        counts
    }
}

/// Who was refused where and why: subsystem, host, reason.
type Refused = (String, String, i32);

/// What was told of them, so that a host that tries every second does not fill the log and the events.
#[derive(Debug, Default)]
pub struct ToldRefusals {
    /// When it was told last, and how often it happened since.
    told: HashMap<Refused, (Instant, u64)>,
}

impl ToldRefusals {
    /// How often it happened since it was told last, this time with it, where it is to be told now.
    pub fn times(&mut self, refused: Refused, now: Instant) -> Option<u64> {
        if let Some((told, times)) = self.told.get_mut(&refused) {
            *times += 1;
            if now.saturating_duration_since(*told) < REFUSAL_INTERVAL {
                return None;
            }
            *told = now;
            return Some(std::mem::take(times));
        }
        if self.told.len() >= REFUSALS_KNOWN_MAX {
            // Of names without end only so many are told in a while.
            self.told
                .retain(|_, (told, _)| now.saturating_duration_since(*told) < REFUSAL_INTERVAL);
            if self.told.len() >= REFUSALS_KNOWN_MAX {
                return None;
            }
        }
        self.told.insert(refused, (now, 0));
        Some(1)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn by(host: &str) -> Refused {
        ("nqn.s".to_owned(), host.to_owned(), 1)
    }

    #[test]
    fn a_host_that_tries_again_and_again_is_told_once_in_a_while() {
        let mut told = ToldRefusals::default();
        let start = Instant::now();
        assert_eq!(told.times(by("a"), start), Some(1));
        for second in 1..10 {
            let now = start + Duration::from_secs(second);
            assert_eq!(told.times(by("a"), now), None);
        }
        assert_eq!(told.times(by("b"), start), Some(1));
        assert_eq!(told.times(by("a"), start + REFUSAL_INTERVAL), Some(10));
        assert_eq!(told.times(by("a"), start + 2 * REFUSAL_INTERVAL), Some(1));
    }

    #[test]
    fn names_without_end_are_told_so_many_in_a_while() {
        let mut told = ToldRefusals::default();
        let start = Instant::now();
        let names = 0..3 * REFUSALS_KNOWN_MAX;
        let said = names.filter(|name| told.times(by(&name.to_string()), start).is_some());
        assert_eq!(said.count(), REFUSALS_KNOWN_MAX);
        assert_eq!(told.told.len(), REFUSALS_KNOWN_MAX);
        assert_eq!(told.times(by("x"), start + REFUSAL_INTERVAL), Some(1));
        assert_eq!(told.told.len(), 1);
    }

    #[test]
    fn each_reason_has_its_count() {
        let refusals = Refusals::default();
        refusals.count(RefusedReason::Limit);
        refusals.count(RefusedReason::Limit);
        refusals.count(RefusedReason::NotAllowed);
        let counts = refusals.counts();
        assert_eq!(
            counts,
            [
                ("not_allowed", 1),
                ("no_subsystem", 0),
                ("limit", 2),
                ("invalid", 0)
            ]
        );
    }
}
