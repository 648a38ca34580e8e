//! What a host's commands hold on one reactor, all its queues together, and how long they have kept it busy.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// What a host's queues hold here, and how much they may. A queue that holds nothing may always begin one command, so that each goes on.
#[derive(Debug)]
pub(crate) struct HostShare {
    held_bytes: Cell<u64>,
    limit_bytes: u64,
    /// Commands that are not answered.
    outstanding: Cell<u64>,
    /// From when on the time with one of them has not been counted.
    since_ns: Cell<u64>,
}

impl HostShare {
    /// A command came to one of the queues.
    pub(crate) fn begun(&self, now_ns: u64) {
        if self.outstanding.get() == 0 {
            self.since_ns.set(now_ns);
        }
        self.outstanding.set(self.outstanding.get() + 1);
    }

    /// So many were answered, or will never be. The time with at least one of the host's outstanding that has not been counted, in nanoseconds.
    pub(crate) fn ended(&self, commands: u64, now_ns: u64) -> u64 {
        if self.outstanding.get() == 0 {
            return 0;
        }
        self.outstanding
            .set(self.outstanding.get().saturating_sub(commands));
        let since = self.since_ns.replace(now_ns);
        now_ns.saturating_sub(since)
    }

    /// Whether so much more keeps to the limit.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.held_bytes.get().saturating_add(bytes) <= self.limit_bytes
    }

    /// One of the queues held `before` bytes and holds `now`.
    pub(crate) fn changed(&self, before: u64, now: u64) {
        self.held_bytes.set(self.held_bytes.get() - before + now);
    }
}

/// The shares of the hosts that have queues on this reactor, by subsystem and name.
#[derive(Debug, Default)]
pub(crate) struct HostShares {
    by_host: HashMap<(String, String), Rc<HostShare>>,
    /// With so many, those that nobody has any more are looked for: seldom enough that it costs a queue nothing, however many hosts there are.
    sweep_at: usize,
}

impl HostShares {
    /// A host's share, for one more of its queues. The limit is the subsystem's of the time when the host's first queue came.
    pub(crate) fn of(&mut self, subsystem: &str, host: &str, limit_bytes: u64) -> Rc<HostShare> {
        if self.by_host.len() >= self.sweep_at {
            self.by_host.retain(|_, share| Rc::strong_count(share) > 1);
            self.sweep_at = 2 * self.by_host.len() + 1;
        }
        let names = (subsystem.to_owned(), host.to_owned());
        if let Some(share) = self.by_host.get(&names)
            && Rc::strong_count(share) > 1
        {
            return share.clone();
        }
        // One that nobody has any more is not taken up again: the limit may have changed.
        let share = Rc::new(HostShare {
            held_bytes: Cell::new(0),
            limit_bytes,
            outstanding: Cell::new(0),
            since_ns: Cell::new(0),
        });
        self.by_host.insert(names, share.clone());
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two queues of one host share; another host has its own; a share ends with its last queue.
    #[test]
    fn queues_of_a_host_share_its_memory() {
        let mut shares = HostShares::default();
        let (one, two) = (shares.of("s", "a", 100), shares.of("s", "a", 7));
        let (other, elsewhere) = (shares.of("s", "b", 100), shares.of("t", "a", 100));
        one.changed(0, 60);
        two.changed(0, 40);
        assert!(!one.has_room(1) && !two.has_room(1));
        assert!(other.has_room(100) && elsewhere.has_room(100));
        assert!(!other.has_room(101));
        one.changed(60, 59);
        assert!(two.has_room(1) && !two.has_room(2));
        drop((one, two));
        let again = shares.of("s", "a", 7);
        assert!(again.has_room(7) && !again.has_room(8));
        assert_eq!(shares.by_host.len(), 3);
        // Names without end leave no more than twice those that are there.
        for number in 0..1000 {
            shares.of("s", &number.to_string(), 1);
        }
        assert!(shares.by_host.len() <= 8, "{}", shares.by_host.len());
    }

    /// Commands that overlap, on one queue or on two, are counted once; the time between commands is not.
    #[test]
    fn a_host_is_busy_while_it_has_a_command_outstanding() {
        let mut shares = HostShares::default();
        let (one, two) = (shares.of("s", "a", 100), shares.of("s", "a", 100));
        one.begun(1000);
        two.begun(1200);
        assert_eq!(one.ended(1, 1500), 500);
        assert_eq!(two.ended(1, 1900), 400);
        assert_eq!(two.ended(0, 5000), 0, "idle");
        one.begun(6000);
        one.begun(6000);
        assert_eq!(one.ended(2, 6100), 100);
        assert_eq!(one.outstanding.get(), 0);
    }
}
