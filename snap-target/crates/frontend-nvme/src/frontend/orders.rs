//! What the desk tells every reactor.

use std::sync::Arc;

use namespace::NamespaceKey;
use nvme::controller::ControllerId;

use super::Frontend;
use crate::message::{ChangeId, Message, Order};
use crate::table::Key;

/// An order that takes time.
#[derive(Debug)]
pub(super) struct Pending {
    id: ChangeId,
    keys: Arc<[NamespaceKey]>,
    /// Until the handles are closed; else until the last request has ended.
    until_closed: bool,
}

impl Frontend {
    pub(super) fn order(&mut self, order: Order) {
        match order {
            Order::CloseQueues(controller) => {
                for key in self.queues_of(controller) {
                    self.close(key);
                }
            }
            Order::CloseQueue(controller, queue) => {
                for key in self.queues_of(controller) {
                    if self.queues.get(key).is_some_and(|it| it.queue == queue) {
                        self.close(key);
                    }
                }
            }
            Order::Namespaces(controller, namespaces) => {
                for key in self.queues_of(controller) {
                    if let Some(queue) = self.queues.get_mut(key) {
                        queue.namespaces = namespaces.clone();
                    }
                }
            }
            Order::Attach(id, namespace) => {
                let attached = self.engine.attach(&namespace);
                self.carried(id, attached.map_err(|error| error.to_string()));
            }
            Order::Retire(id, keys) => {
                for key in keys.iter() {
                    self.engine.retire(*key);
                }
                self.wait_for(id, keys, false);
            }
            Order::Cancel(keys) => {
                for key in keys.iter() {
                    self.engine.cancel_all(*key);
                }
            }
            Order::Detach(id, keys) => {
                for key in keys.iter() {
                    self.engine.detach(*key);
                }
                self.wait_for(id, keys, true);
            }
            Order::Await(id, namespace, controllers) => {
                self.wait_for_requests(id, namespace, &controllers);
            }
            Order::Settle(id, namespace) => self.wait_for_all_requests(id, namespace),
            Order::Preempt(id, nsid, controllers) => self.preempt(id, nsid, &controllers),
            Order::Pass(id) => self.carried(id, Ok(())),
        }
    }

    pub(super) fn queues_of(&self, controller: ControllerId) -> Vec<Key> {
        self.by_controller
            .get(&controller)
            .cloned()
            .unwrap_or_default()
    }

    fn wait_for(&mut self, id: ChangeId, keys: Arc<[NamespaceKey]>, until_closed: bool) {
        self.pending.push(Pending {
            id,
            keys,
            until_closed,
        });
    }

    /// Says of the orders that have been carried out that they are.
    pub(super) fn look_at_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let engine = &self.engine;
        let is_over = |pending: &mut Pending| {
            pending.keys.iter().all(|key| match pending.until_closed {
                true => !engine.is_attached(*key),
                false => engine.is_drained(*key),
            })
        };
        let over: Vec<_> = self.pending.extract_if(.., is_over).collect();
        for pending in over {
            self.carried(pending.id, Ok(()));
        }
    }

    pub(super) fn carried(&mut self, id: ChangeId, result: Result<(), String>) {
        self.tell_desk(Message::Carried(id, self.reactor, result));
    }
}
