//! Places for queues: how many there are, and how many of them a controller may still have.
//!
//! A host asks for I/O queues with Set Features (Number of Queues) and is granted what is left, so that each of its Connects finds its place; where
//! not even one is left for it, the admin queue's Connect is refused (Connect Controller Busy), which a host tries again.

use super::{Connected, Registry};
use crate::controller::{ControllerId, Subsystem, Transport};
use crate::nqn::Nqn;
use crate::queue::QueueId;

/// Places for the queues of all controllers of all subsystems together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlaces {
    /// Admin queues that come over fabrics, those of discovery controllers among them.
    pub admin_queues: usize,
    /// I/O queues, wherever they are served, of hosts over fabrics and of PCIe functions.
    pub io_queues: usize,
    /// Functions that there may be, which are this machine's own, and whose clients do not try again: one I/O queue of each is kept for it, whatever others ask for.
    pub functions: usize,
}

impl Connected {
    /// I/O queues that it has or was granted; one where it has not asked yet.
    pub(super) fn claim(&self) -> usize {
        let subsystem = self.controller.subsystem();
        if subsystem.is_none() {
            return 0;
        }
        let last = self.io_queues.iter().rposition(|open| *open);
        let granted = self.controller.granted_io_queues().map_or(1, usize::from);
        granted.max(last.map_or(1, |index| index + 1))
    }
}

impl Registry {
    /// How many queues there is room for; without a word there is no limit but those of the subsystems. To be called before hosts come.
    pub fn set_queue_places(&mut self, places: QueuePlaces) {
        self.places = Some(places);
    }

    /// Whether one more admin queue finds room.
    pub(super) fn has_admin_place(&self) -> bool {
        self.places
            .is_none_or(|places| self.roll.over_fabrics() < places.admin_queues)
    }

    /// I/O queues that a controller may have, or where it is none yet, one more of this host: what the others have left.
    pub(super) fn io_queues_left(
        &self,
        id: Option<ControllerId>,
        subsystem: &Subsystem,
        host: &Nqn,
        transport: Transport,
    ) -> u16 {
        let (mut queues, mut controllers) = (0, 0);
        for other in self.roll.of_host(Some(subsystem.nqn.clone()), host) {
            if Some(other) != id
                && let Some(other) = self.associations.get(&other)
            {
                queues += other.claim();
                controllers += 1;
            }
        }
        let limits = &subsystem.limits;
        let of_host = usize::from(limits.io_queues_per_host_max).saturating_sub(queues);
        // Its own admin queue is a connection as well.
        let connections = queues + controllers + 1;
        let of_connections =
            usize::from(limits.connections_per_host_max).saturating_sub(connections);
        let own = id.and_then(|id| self.associations.get(&id));
        let of_all = self.places.map_or(usize::MAX, |places| {
            let mut others = self.roll.claims();
            *others.over(transport) -= own.map_or(0, |own| own.counted.claim());
            // Those that are there have theirs among the claims, and so has this one.
            let is_more = id.is_none() && !transport.is_fabric();
            let there = self.roll.functions() + usize::from(is_more);
            let absent = places.functions.saturating_sub(there);
            let claimed = others.over_fabrics + others.of_functions;
            places.io_queues.saturating_sub(claimed + absent)
        });
        let left = of_host.min(of_connections).min(of_all);
        u16::try_from(left).unwrap_or(u16::MAX)
    }

    /// Whether this I/O queue of a controller finds room; none of what was granted lacks it.
    pub(super) fn has_io_place(&self, id: ControllerId, queue: QueueId) -> bool {
        let Some(connected) = self.associations.get(&id) else {
            return false;
        };
        let controller = &connected.controller;
        let left = controller.subsystem().map_or(0, |subsystem| {
            let transport = controller.transport();
            self.io_queues_left(Some(id), subsystem, controller.host(), transport)
        });
        connected.claim().max(queue.0.into()) <= left.into()
    }
}
