//! How replicas did lately, for all reactors: one that failed is asked after the others until it has answered.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one that failed is left alone before it is tried; each failure after a rest doubles it.
const REST: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(super) struct Standing {
    begun: Instant,
    members: Vec<Replica>,
}

#[derive(Debug, Default)]
struct Replica {
    /// In nanoseconds after the beginning; 0: nothing failed since it answered last.
    rests_until_ns: AtomicU64,
    failure: Mutex<Failure>,
    wrong: Mutex<Wrong>,
}

/// Reads whose bytes were not those that were written.
#[derive(Debug, Default)]
struct Wrong {
    reads: u64,
    /// Of the last one.
    bytes: Range<u64>,
}

/// Looked at where something failed, and by whoever asks for problems.
#[derive(Debug, Default)]
struct Failure {
    why: String,
    rests: u32,
}

impl Standing {
    pub fn new(members: usize) -> Self {
        Self {
            begun: Instant::now(),
            members: (0..members).map(|_| Replica::default()).collect(),
        }
    }

    fn ns(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.begun);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether it failed, and has answered nothing since: it is asked after the others.
    pub fn is_down(&self, member: usize) -> bool {
        self.rests_until_ns(member) > 0
    }

    /// Whether it is down, and was left alone for long enough.
    pub fn is_due(&self, member: usize, now: Instant) -> bool {
        let until = self.rests_until_ns(member);
        until > 0 && until <= self.ns(now)
    }

    fn rests(&self, member: usize, now: Instant) -> bool {
        self.rests_until_ns(member) > self.ns(now)
    }

    fn rests_until_ns(&self, member: usize) -> u64 {
        let replica = self.members.get(member);
        replica.map_or(0, |it| it.rests_until_ns.load(Ordering::Relaxed))
    }

    /// A read failed there, or was not answered.
    #[cold]
    pub fn failed(&self, member: usize, why: String, now: Instant) {
        let Some(replica) = self.members.get(member) else {
            return;
        };
        let mut failure = replica
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Of reads that went there together, the first makes it rest.
        if !self.rests(member, now) {
            let rest = REST.saturating_mul(1 << failure.rests.min(5)).min(REST_MAX);
            failure.rests = failure.rests.saturating_add(1);
            let until = self.ns(now + rest).max(1);
            replica.rests_until_ns.store(until, Ordering::Relaxed);
        }
        failure.why = why;
    }

    /// A read was answered there.
    pub fn answered(&self, member: usize) {
        let Some(replica) = self.members.get(member) else {
            return;
        };
        if replica.rests_until_ns.load(Ordering::Relaxed) > 0 {
            replica.rests_until_ns.store(0, Ordering::Relaxed);
            let failure = replica.failure.lock();
            failure.unwrap_or_else(PoisonError::into_inner).rests = 0;
        }
    }

    /// Bytes that it served were not what was written.
    #[cold]
    pub fn was_wrong(&self, member: usize, bytes: Range<u64>) {
        if let Some(replica) = self.members.get(member) {
            let mut wrong = replica.wrong.lock().unwrap_or_else(PoisonError::into_inner);
            wrong.reads += 1;
            wrong.bytes = bytes;
        }
    }

    /// How often its bytes were wrong, for a person; none where they never were.
    pub fn wrong(&self, member: usize) -> Option<String> {
        let replica = self.members.get(member)?;
        let wrong = replica.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let Wrong { reads, bytes } = &*wrong;
        let (at, len) = (bytes.start, bytes.end - bytes.start);
        (*reads > 0).then(|| {
            format!("had wrong bytes {reads} times, the last in {len} bytes from {at} on: another one was asked")
        })
    }

    /// What failed, where it has answered nothing since.
    pub fn failure(&self, member: usize) -> Option<String> {
        let replica = self.members.get(member)?;
        if replica.rests_until_ns.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let failure = replica.failure.lock();
        Some(failure.unwrap_or_else(PoisonError::into_inner).why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_rests_and_longer_each_time() {
        let standing = Standing::new(2);
        let mut now = standing.begun;
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            standing.failed(1, "no".to_owned(), now);
            // Others that went there together change nothing.
            standing.failed(1, "no".to_owned(), now);
            let end = now + Duration::from_secs(seconds);
            assert!(!standing.is_due(1, end - Duration::from_millis(1)));
            assert!(standing.is_due(1, end), "{seconds} s");
            assert!(standing.is_down(1));
            now = end;
        }
        assert_eq!(standing.failure(1).as_deref(), Some("no"));
        assert_eq!(standing.failure(0), None);
        standing.answered(1);
        assert_eq!(standing.failure(1), None);
        assert!(!standing.is_down(1) && !standing.is_due(1, now + REST_MAX));
        standing.failed(1, "again".to_owned(), now);
        assert!(standing.is_due(1, now + REST));
    }
}
