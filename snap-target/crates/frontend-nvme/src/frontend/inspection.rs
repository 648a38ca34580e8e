//! What a reactor keeps of its queues, for tests whose thread is the reactor.

use std::time::Instant;

use reactor::Wait;

use super::Frontend;
use crate::config::FrontendError;

/// Counts of what a frontend has at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// I/O queues.
    pub io_queues: usize,
    /// Places in the list of queues that wait for memory.
    pub starved: usize,
    /// Connections that have ended here, and whose hosts may not know.
    pub farewells: usize,
    /// Data of answers that hosts have not taken, of I/O queues.
    pub owed_by_io_queues: u64,
    /// The same of admin queues.
    pub owed_by_admin_queues: u64,
    /// Bytes that went to hosts.
    pub wire_sent_bytes: u64,
    /// What telemetry counts as connections.
    pub connections: u64,
}

impl Frontend {
    /// The only reactor of its target.
    pub fn be_alone(&mut self) {
        self.peers = vec![self.control()];
    }

    /// One turn, which waits until then at most.
    ///
    /// # Errors
    /// The ring broke.
    pub fn turn_until(&mut self, until: Instant) -> Result<(), FrontendError> {
        self.turn(Wait::Block { until: Some(until) })
    }

    /// What a turn does that brought nothing.
    pub fn act_on_nothing(&mut self) {
        self.act();
    }

    /// Looks.
    pub fn inside(&mut self) -> Inside {
        let counters = &self.telemetry.counters;
        let (wire_sent_bytes, connections) =
            (counters.wire_sent_bytes.get(), counters.connections.get());
        let desk = self.desk.as_mut();
        Inside {
            io_queues: self.queues.iter_mut().count(),
            starved: self.starved.len(),
            farewells: self.farewells.len(),
            owed_by_io_queues: self
                .queues
                .iter_mut()
                .map(|(_, queue)| queue.link.owed_bytes())
                .sum(),
            owed_by_admin_queues: desk.map_or(0, |desk| desk.owed_by_admin_queues()),
            wire_sent_bytes,
            connections,
        }
    }
}
