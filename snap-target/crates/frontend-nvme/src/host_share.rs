//! What a host's commands hold on one reactor, all its queues together, and how long they have kept it busy.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// Whose a share is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A host's, with all its controllers, by its NQN.
    Host(String),
    /// A function's: its host has no name, and others of its subsystem have another.
    Controller(u16),
}

impl Holder {
    /// Of a controller of this host, which came over a fabric or did not.
    pub(crate) fn of(is_over_fabric: bool, host: &str, cntlid: u16) -> Self {
        match is_over_fabric {
            true => Self::Host(host.to_owned()),
            false => Self::Controller(cntlid),
        }
    }
}

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

/// The shares of the hosts that have queues on this reactor, by subsystem and holder.
#[derive(Debug, Default)]
pub(crate) struct HostShares {
    by_host: HashMap<(String, Holder), Rc<HostShare>>,
    /// With so many, those that nobody has any more are looked for: seldom enough that it costs a queue nothing, however many hosts there are.
    sweep_at: usize,
}

impl HostShares {
    /// A host's share, for one more of its queues. The limit is the subsystem's of the time when the host's first queue came.
    pub(crate) fn of(
        &mut self,
        subsystem: &str,
        holder: &Holder,
        limit_bytes: u64,
    ) -> Rc<HostShare> {
        if self.by_host.len() >= self.sweep_at {
            self.by_host.retain(|_, share| Rc::strong_count(share) > 1);
            self.sweep_at = 2 * self.by_host.len() + 1;
        }
        let names = (subsystem.to_owned(), holder.clone());
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

    fn host(name: &str) -> Holder {
        Holder::of(true, name, 1)
    }

    /// Two queues of one host share; another host has its own; a share ends with its last queue.
    #[test]
    fn queues_of_a_host_share_its_memory() {
        let mut shares = HostShares::default();
        let (one, two) = (
            shares.of("s", &host("a"), 100),
            shares.of("s", &host("a"), 7),
        );
        let (other, elsewhere) = (
            shares.of("s", &host("b"), 100),
            shares.of("t", &host("a"), 100),
        );
        one.changed(0, 60);
        two.changed(0, 40);
        assert!(!one.has_room(1) && !two.has_room(1));
        assert!(other.has_room(100) && elsewhere.has_room(100));
        assert!(!other.has_room(101));
        one.changed(60, 59);
        assert!(two.has_room(1) && !two.has_room(2));
        drop((one, two));
        let again = shares.of("s", &host("a"), 7);
        assert!(again.has_room(7) && !again.has_room(8));
        assert_eq!(shares.by_host.len(), 3);
        // Names without end leave no more than twice those that are there.
        for number in 0..1000 {
            shares.of("s", &host(&number.to_string()), 1);
        }
        assert!(shares.by_host.len() <= 8, "{}", shares.by_host.len());
    }

    /// Functions' hosts have no name, and so nothing in common.
    #[test]
    fn functions_of_a_subsystem_share_nothing() {
        let mut shares = HostShares::default();
        let [one, two] = [1, 2].map(|cntlid| shares.of("s", &Holder::of(false, "", cntlid), 100));
        one.changed(0, 100);
        assert!(!one.has_room(1) && two.has_room(100));
        let queue_of_one = shares.of("s", &Holder::of(false, "", 1), 100);
        assert!(!queue_of_one.has_room(1));
        // Over fabrics it is the name that counts.
        let [one, two] = [1, 2].map(|cntlid| shares.of("s", &Holder::of(true, "a", cntlid), 100));
        one.changed(0, 100);
        assert!(!two.has_room(1));
    }

    /// Commands that overlap, on one queue or on two, are counted once; the time between commands is not.
    #[test]
    fn a_host_is_busy_while_it_has_a_command_outstanding() {
        let mut shares = HostShares::default();
        let (one, two) = (
            shares.of("s", &host("a"), 100),
            shares.of("s", &host("a"), 100),
        );
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
