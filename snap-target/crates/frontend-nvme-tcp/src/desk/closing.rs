//! The end of controllers, in the order that keeps late writes away: first their I/O queues, each after its last request; then the
//! controller; then its host may come back.

use std::collections::HashMap;

use nvme::controller::{Closed, ControllerId};
use nvme::nqn::Nqn;
use nvme::queue::QueueId;

use super::Desk;
use crate::message::Message;

/// Controllers that are ending, and their hosts.
#[derive(Debug, Default)]
pub(super) struct Closing {
    hosts: HashMap<ControllerId, Nqn>,
}

impl Closing {
    /// Whether a host's last controller is still ending.
    pub(super) fn holds(&self, host: &Nqn) -> bool {
        self.hosts.values().any(|other| other == host)
    }

    fn contains(&self, id: ControllerId) -> bool {
        self.hosts.contains_key(&id)
    }
}

impl Desk {
    /// Ends a controller: its queues' reactors are told, and it goes when the last has closed.
    pub(super) fn end_controller(&mut self, id: ControllerId) {
        let Some(controller) = self.registry.controller(id) else {
            return;
        };
        if self.closing.contains(id) {
            return;
        }
        self.closing.hosts.insert(id, controller.host().clone());
        if let Some(&key) = self.admin_queues.get(&id)
            && let Some(visitor) = self.visitors.get_mut(key)
        {
            visitor.link.end();
            self.touched.push(key);
        }
        // Silence must not be noticed again while the queues drain.
        if let Some(controller) = self.registry.controller_mut(id) {
            controller.traffic(self.clock.now());
        }
        self.requests.push((None, Message::CloseQueues(id)));
        self.finish_closing(id);
    }

    /// CC.EN went to 0: the I/O queues end, the controller stays.
    pub(super) fn end_io_queues(&mut self, id: ControllerId) {
        self.requests.push((None, Message::CloseQueues(id)));
    }

    /// An I/O queue has closed, after its last request.
    pub(super) fn queue_closed(&mut self, id: ControllerId, queue: QueueId) {
        self.fold_counters(id);
        self.counters.remove(&(id, queue));
        self.registry.closed(id, queue);
        self.finish_closing(id);
    }

    fn finish_closing(&mut self, id: ControllerId) {
        if !self.closing.contains(id) || !self.registry.io_queues(id).is_empty() {
            return;
        }
        self.closing.hosts.remove(&id);
        if let Closed::Controller(queues) = self.registry.closed(id, QueueId::ADMIN) {
            debug_assert!(queues.is_empty(), "its queues closed first");
            tracing::info!(cntlid = id.0, "controller ended");
        }
        for (key, slot) in std::mem::take(&mut self.waiting) {
            self.connect(key, slot);
        }
    }
}
