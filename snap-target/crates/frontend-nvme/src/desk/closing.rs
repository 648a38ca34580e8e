//! The end of controllers, in the order that keeps late writes away: first their I/O queues, each after its last request; then the
//! controller; then its host may come back. The registry keeps the order; here the connections follow it.

use nvme::controller::{Closed, ControllerId};
use nvme::queue::QueueId;
use telemetry::{Event as Noted, EventKind, HostName};

use super::visitor::State;
use super::{Desk, To};
use crate::event::{Gone, TargetEvent};
use crate::message::{Message, Order};

impl Desk {
    /// Ends a controller: its queues' reactors are told, and it goes when the last has closed.
    pub(super) fn end_controller(&mut self, id: ControllerId, why: Gone) {
        let Some(controller) = self.registry.controller(id) else {
            return;
        };
        let event = TargetEvent::HostGone {
            controller: id,
            subsystem: controller.subsystem().map(|it| it.nqn.clone()),
            host: controller.host().clone(),
            why,
        };
        // Its connection ends after it, and ends it once more.
        self.leaving.entry(id).or_insert(event);
        let closed = self.registry.end(id);
        if let Some(&key) = self.admin_queues.get(&id)
            && let Some(visitor) = self.visitors.get_mut(key)
        {
            visitor.link.end();
            self.touched.push(key);
        }
        self.end_io_queues(id);
        self.went(id, &closed);
    }

    /// The I/O queues of a controller end, those on their way to their reactors as well.
    pub(super) fn end_io_queues(&mut self, id: ControllerId) {
        for &key in &self.passing {
            if let Some(visitor) = self.visitors.get_mut(key)
                && let State::Moving { admitted, .. } = visitor.state
                && admitted.controller == id
            {
                visitor.link.end();
                self.touched.push(key);
            }
        }
        let order = Order::CloseQueues(id);
        self.requests.push((To::All, Message::Order(order)));
    }

    /// One I/O queue of a controller ends.
    pub(super) fn end_io_queue(&mut self, id: ControllerId, queue: QueueId) {
        // Behind its adoption, where that is on its way: messages to a reactor keep their order.
        let order = Order::CloseQueue(id, queue);
        self.requests.push((To::All, Message::Order(order)));
    }

    /// An I/O queue has closed, after its last request.
    pub(super) fn queue_closed(&mut self, id: ControllerId, queue: QueueId) {
        self.fold_counters(id);
        self.counters.remove(&(id, queue));
        self.placing.free(id, queue);
        let event = TargetEvent::QueueClosed {
            controller: id,
            queue,
        };
        self.service.events.send(event);
        let closed = self.registry.closed(id, queue);
        self.finish_deletion(id, queue);
        self.finish_reset(id);
        self.went(id, &closed);
    }

    /// Where a controller is gone, the Connects that waited for that are asked again.
    fn went(&mut self, id: ControllerId, closed: &Closed) {
        if *closed != Closed::Controller {
            return;
        }
        self.flushes.remove(&id);
        self.changed.remove(&id);
        let mut name = HostName::NONE;
        if let Some(event) = self.leaving.remove(&id) {
            if let TargetEvent::HostGone { host, .. } = &event {
                name = HostName::new(host.as_str());
            }
            self.service.events.send(event);
        }
        self.look_at_endings();
        tracing::info!(cntlid = id.0, host = name.as_str(), "controller ended");
        let ended = Noted::of_queue(EventKind::ControllerEnded, id.0, 0, name);
        self.telemetry.record_now(&ended);
        self.deleting.retain(|deleting| !deleting.is_of(id));
        for (key, slot) in std::mem::take(&mut self.waiting) {
            self.connect(key, slot);
        }
        self.attach_waiting_functions();
    }
}
