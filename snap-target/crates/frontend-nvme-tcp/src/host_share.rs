//! Memory of one host: what its commands hold on one reactor, all its queues together.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

/// What a host's queues hold here, and how much they may. A queue that holds nothing may always begin one command, so that each goes on.
#[derive(Debug)]
pub(crate) struct HostShare {
    held_bytes: Cell<u64>,
    limit_bytes: u64,
}

impl HostShare {
    /// Whether so much more keeps to the limit.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.held_bytes.get().saturating_add(bytes) <= self.limit_bytes
    }

    /// One of the queues held `before` bytes and holds `now`.
    pub(crate) fn changed(&self, before: u64, now: u64) {
        self.held_bytes.set(self.held_bytes.get() - before + now);
    }
}

/// The shares of the hosts that have queues on this reactor, by subsystem and host.
#[derive(Debug, Default)]
pub(crate) struct HostShares {
    by_host: HashMap<(String, String), Rc<HostShare>>,
}

impl HostShares {
    /// A host's share, for one more of its queues. The limit is the subsystem's of the time when the host's first queue came.
    pub(crate) fn of(&mut self, subsystem: &str, host: &str, limit_bytes: u64) -> Rc<HostShare> {
        self.by_host.retain(|_, share| Rc::strong_count(share) > 1);
        let share = self
            .by_host
            .entry((subsystem.to_owned(), host.to_owned()))
            .or_insert_with(|| {
                Rc::new(HostShare {
                    held_bytes: Cell::new(0),
                    limit_bytes,
                })
            });
        share.clone()
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
    }
}
