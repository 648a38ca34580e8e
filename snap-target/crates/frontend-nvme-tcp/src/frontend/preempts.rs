//! Preempt and Abort on one reactor: the commands of those who were preempted end, and the desk is told when the last one has.

use nvme::controller::ControllerId;
use nvme_spec::Nsid;

use super::Frontend;
use crate::message::{Message, PreemptId};
use crate::table::Key;

/// Commands that are ending.
#[derive(Debug)]
pub(super) struct Preempting {
    id: PreemptId,
    /// Requests that the engine still has.
    tokens: Vec<u64>,
    /// Queues that have closed with requests under way.
    draining: Vec<Key>,
}

impl Frontend {
    pub(super) fn preempt(&mut self, id: PreemptId, nsid: Nsid, controllers: &[ControllerId]) {
        let mut tokens = Vec::new();
        for controller in controllers {
            for key in self.queues_of(*controller) {
                if let Some(queue) = self.queues.get_mut(key) {
                    tokens.extend(queue.preempt(nsid, key));
                    self.touched.push(key);
                }
            }
        }
        // A write that a store does not let go of must not land behind one of whoever preempted.
        self.engine.abandon(|token| tokens.contains(&token));
        let draining = self.draining.iter();
        let theirs = draining.filter(|(_, queue)| controllers.contains(&queue.controller));
        let draining = theirs.map(|(key, _)| *key).collect();
        self.preempting.push(Preempting {
            id,
            tokens,
            draining,
        });
    }

    /// The engine has answered a request.
    pub(super) fn preempted_ends(&mut self, token: u64) {
        for preempting in &mut self.preempting {
            preempting.tokens.retain(|of| *of != token);
        }
    }

    /// Tells the desk of those that are over.
    pub(super) fn look_at_preempts(&mut self) {
        if self.preempting.is_empty() {
            return;
        }
        let still = &self.draining;
        let is_over = |preempting: &mut Preempting| {
            let mut draining = preempting.draining.iter();
            preempting.tokens.is_empty() && !draining.any(|key| still.contains_key(key))
        };
        let over: Vec<_> = self.preempting.extract_if(.., is_over).collect();
        for preempting in over {
            self.tell_desk(Message::Preempted(preempting.id));
        }
    }
}
