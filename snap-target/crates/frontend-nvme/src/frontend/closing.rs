//! Queues that end, and what the engine still has of them.

use nvme::controller::ControllerId;
use nvme::queue::QueueId;
use telemetry::EventKind;

use super::{Frontend, key_of};
use crate::message::Message;
use crate::table::Key;

/// A queue that has ended before its requests.
pub(super) struct Draining {
    in_flight: usize,
    /// Those of them that may change something, by their tokens: the desk hears that the queue has closed when they have ended. Reads are not waited
    /// for: a store that does not let go of one must not keep the host away from all others.
    changing: Vec<u64>,
    pub(super) controller: ControllerId,
    queue: QueueId,
}

impl Frontend {
    pub(super) fn close(&mut self, key: Key) {
        let Some(mut queue) = self.queues.remove(key) else {
            return;
        };
        for message in queue.take_aborts() {
            self.tell_desk(message);
        }
        self.owners.remove(&queue.link.owner_id());
        let (controller, id, in_flight) = (queue.controller, queue.queue, queue.in_flight());
        let changing = queue.changing(key);
        if let Some(others) = self.by_controller.get_mut(&controller) {
            others.retain(|other| *other != key);
            if others.is_empty() {
                self.by_controller.remove(&controller);
            }
        }
        tracing::info!(
            cntlid = controller.0,
            sqid = id.0,
            in_flight,
            "queue closed"
        );
        queue.meter.note(EventKind::QueueClosed, in_flight as u64);
        self.telemetry.counters.connections.sub(1);
        let farewell = queue.link.let_go();
        drop(queue);
        if let Some(farewell) = farewell {
            self.farewells.begin(farewell);
        }
        // Nobody will hear of them; a write that the store still has must not land behind somebody else's.
        self.engine.abandon(|token| token >> 16 == key.to_bits());
        if changing.is_empty() {
            self.tell_desk(Message::QueueClosed(controller, id));
        }
        if in_flight > 0 {
            self.draining.insert(
                key,
                Draining {
                    in_flight,
                    changing,
                    controller,
                    queue: id,
                },
            );
        }
    }

    /// A request of a queue that has closed has ended.
    pub(super) fn drained(&mut self, token: u64) {
        let key = key_of(token);
        let Some(draining) = self.draining.get_mut(&key) else {
            return;
        };
        let (controller, queue) = (draining.controller, draining.queue);
        let had_changing = !draining.changing.is_empty();
        draining.changing.retain(|of| *of != token);
        let has_closed = had_changing && draining.changing.is_empty();
        draining.in_flight -= 1;
        if draining.in_flight == 0 {
            self.draining.remove(&key);
        }
        if has_closed {
            self.tell_desk(Message::QueueClosed(controller, queue));
        }
    }
}
