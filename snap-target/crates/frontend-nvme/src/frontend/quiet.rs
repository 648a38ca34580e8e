//! Turns of a reactor that polls: what is polled is looked at in each, and all else where something tells of it, or every so many turns.

use reactor::{Ring, Wait};

use super::Frontend;
use crate::desk::Desk;
use crate::limits::{QUIET_LOOKS_MAX, QUIET_NS_MAX, QUIET_TURNS_MAX};
use crate::table::Key;

/// How many turns may still pass before all is looked at.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    left: u32,
    /// When all was last looked at.
    looked_ns: u64,
    /// The last turn was a quiet one.
    is_on: bool,
}

impl Quiet {
    /// Whether the turn that begins is a quiet one: it does not wait, nothing has come for anybody, and all was looked at not long ago. `now_ns` is the time that the last
    /// turn with something to do has read.
    pub(super) fn begin(&mut self, wait: Wait, ring: &Ring, now_ns: u64) -> bool {
        let is_recent = now_ns.saturating_sub(self.looked_ns) < QUIET_NS_MAX;
        let is_quiet = wait == Wait::Poll && self.left > 0 && is_recent && !ring.has_news();
        if is_quiet {
            self.left -= 1;
        } else {
            self.left = QUIET_TURNS_MAX;
            self.looked_ns = now_ns;
        }
        self.is_on = is_quiet;
        is_quiet
    }

    /// Whether all is to be looked at before the ring may sleep.
    pub(super) fn owes_turn(&self) -> bool {
        self.is_on
    }

    /// Somebody was told something: the next turn looks at all.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }
}

impl Frontend {
    /// Looks at polled queues until there is something for one of them, for a short while: a turn has more to look at than these.
    fn look_awhile(&self) {
        let is_due = |key: &Key| {
            let queue = self.queues.get(*key);
            queue.is_some_and(|queue| queue.link.is_due())
        };
        for _ in 0..QUIET_LOOKS_MAX {
            if self.postponed.iter().any(is_due) {
                return;
            }
        }
    }

    /// The queues that are polled, those of a lodger that is behind among them, and what they have led to. The desk, timers and messages have their turn later.
    pub(super) fn quiet_turn(&mut self) {
        let looks_at_lodger = self.lodger_is_behind;
        if let Some(lodger) = self.lodger.as_mut().filter(|_| looks_at_lodger) {
            // What it does has a time, too.
            self.time.read();
            lodger.turn(&mut self.engine, self.time.now());
        }
        if !looks_at_lodger {
            self.look_awhile();
        }
        self.serve_postponed();
        loop {
            if self.desk.as_ref().is_some_and(Desk::has_work) {
                return self.act();
            }
            if self.engine.is_busy() || self.engine.has_work() {
                self.take_answers();
            }
            self.feed_starved();
            self.settle();
            let looks_at_lodger = looks_at_lodger || self.lodger_is_behind;
            if let Some(lodger) = self.lodger.as_mut().filter(|_| looks_at_lodger) {
                self.lodger_is_behind = lodger.settle(&mut self.engine);
            }
            if self.touched.is_empty() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use reactor::{Fd, RingConfig, channel};

    use super::*;

    /// POLLIN of poll(2).
    const READABLE: i16 = 1;
    const NOW_NS: u64 = 1_000_000;

    /// A ring, and turns of which the first has looked at all.
    fn turns() -> (Ring, Quiet) {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        // It has something to hand over from its beginning.
        ring.turn(Wait::Poll).unwrap();
        let mut quiet = Quiet::default();
        assert!(!quiet.begin(Wait::Poll, &ring, NOW_NS));
        (ring, quiet)
    }

    /// Where nothing has anything to do, no time is read, and timers and deadlines have their turn all the same.
    #[test]
    fn one_turn_in_sixty_five_looks_at_all() {
        let (ring, mut quiet) = turns();
        for _ in 0..3 {
            for _ in 0..64 {
                assert!(quiet.begin(Wait::Poll, &ring, NOW_NS));
                assert!(quiet.owes_turn());
            }
            assert!(!quiet.begin(Wait::Poll, &ring, NOW_NS));
            assert!(!quiet.owes_turn());
        }
    }

    /// Where each turn has much to do.
    #[test]
    fn all_is_looked_at_after_fifty_microseconds() {
        let (ring, mut quiet) = turns();
        for looked_ns in [NOW_NS, NOW_NS + 50_000, NOW_NS + 10_000_000] {
            let is_first = looked_ns == NOW_NS;
            assert_eq!(quiet.begin(Wait::Poll, &ring, looked_ns), is_first);
            for passed_ns in [0, 1, 25_000, 49_999] {
                assert!(quiet.begin(Wait::Poll, &ring, looked_ns + passed_ns));
            }
        }
    }

    #[test]
    fn a_turn_that_may_wait_and_one_after_news_for_somebody_look_at_all() {
        let (ring, mut quiet) = turns();
        assert!(quiet.begin(Wait::Poll, &ring, NOW_NS));
        assert!(!quiet.begin(Wait::Block { until: None }, &ring, NOW_NS));
        assert!(!quiet.owes_turn(), "a ring that sleeps has been looked at");
        assert!(quiet.begin(Wait::Poll, &ring, NOW_NS));
        quiet.end();
        assert!(!quiet.begin(Wait::Poll, &ring, NOW_NS));
    }

    /// A message of another thread: the desk's, an order of the control plane, an answer of a worker.
    #[test]
    fn a_message_is_looked_at_in_the_next_turn() {
        let (ring, mut quiet) = turns();
        let (sender, messages) = channel(&ring, 4);
        assert!(quiet.begin(Wait::Poll, &ring, NOW_NS));
        std::thread::scope(|scope| scope.spawn(|| sender.send(7)).join().unwrap().unwrap());
        assert!(!quiet.begin(Wait::Poll, &ring, NOW_NS));
        ring.turn(Wait::Poll).unwrap();
        assert_eq!(messages.try_recv(), Some(7));
        assert!(quiet.begin(Wait::Poll, &ring, NOW_NS), "it is taken");
    }

    /// An operation of another source: a socket's, a store's. Its event counts until its owner has taken it.
    #[test]
    fn a_completion_is_looked_at_in_the_next_turn() {
        let (ring, mut quiet) = turns();
        let (mut writer, reader) = UnixStream::pair().unwrap();
        let owner = ring.register().unwrap();
        let reader = Fd::from(OwnedFd::from(reader));
        owner.poll(&reader, READABLE, 3).unwrap();
        assert!(!quiet.begin(Wait::Poll, &ring, NOW_NS), "it is to go out");
        ring.turn(Wait::Poll).unwrap();
        assert!(quiet.begin(Wait::Poll, &ring, NOW_NS), "it is waited for");
        writer.write_all(&[1]).unwrap();
        assert!(!quiet.begin(Wait::Poll, &ring, NOW_NS));
        ring.turn(Wait::Poll).unwrap();
        assert!(!quiet.begin(Wait::Poll, &ring, NOW_NS), "nobody has it yet");
        assert_eq!(ring.next_ready(), Some(owner.id()));
        assert_eq!(owner.next_event().unwrap().tag, 3);
        assert!(quiet.begin(Wait::Poll, &ring, NOW_NS));
    }
}
