//! Requests whose end on this reactor the desk waits for: those of hosts that were preempted, those that hosts have of a namespace that they are to see
//! no longer, and those of a namespace that was write-protected meanwhile.

use std::collections::HashSet;

use namespace::NamespaceKey;
use nvme::controller::ControllerId;
use nvme_spec::Nsid;

use super::{Frontend, key_of};
use crate::message::{ChangeId, Message, PreemptId, ProtectionId};
use crate::table::Key;

/// Requests that are ending.
#[derive(Debug)]
pub(super) struct Awaited {
    of: Of,
    /// Requests that the engine still has.
    tokens: Vec<u64>,
    /// Queues that have closed with requests under way.
    draining: Vec<Key>,
}

/// What the desk waits with.
#[derive(Clone, Copy, Debug)]
enum Of {
    Preempt(PreemptId),
    Change(ChangeId),
    Protection(ProtectionId),
}

impl Frontend {
    /// Preempt and Abort: the commands of those who were preempted end.
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
        self.tell_desk(Message::Fenced(id));
        let draining = self.draining_of(controllers).collect();
        self.awaited.push(Awaited {
            of: Of::Preempt(id),
            tokens,
            draining,
        });
    }

    /// Says when none of the requests that controllers have of a namespace is left. They go on to their end.
    pub(super) fn wait_for_requests(
        &mut self,
        id: ChangeId,
        namespace: NamespaceKey,
        controllers: &[ControllerId],
    ) {
        let mut theirs: HashSet<Key> = self.draining_of(controllers).collect();
        for controller in controllers {
            theirs.extend(self.queues_of(*controller));
        }
        let is_theirs = |token| theirs.contains(&key_of(token));
        let tokens = self.engine.unanswered(namespace, is_theirs).collect();
        self.awaited.push(Awaited {
            of: Of::Change(id),
            tokens,
            draining: Vec::new(),
        });
    }

    /// Says when none of the requests of a namespace is left that were let in by now, those of hosts that are gone among them.
    pub(super) fn wait_for_all_requests(&mut self, id: ProtectionId, namespace: NamespaceKey) {
        self.awaited.push(Awaited {
            of: Of::Protection(id),
            tokens: self.engine.unanswered(namespace, |_| true).collect(),
            draining: Vec::new(),
        });
    }

    fn draining_of(&self, controllers: &[ControllerId]) -> impl Iterator<Item = Key> {
        let draining = self.draining.iter();
        draining
            .filter(|(_, queue)| controllers.contains(&queue.controller))
            .map(|(key, _)| *key)
    }

    /// The engine has answered a request.
    pub(super) fn awaited_ends(&mut self, token: u64) {
        for awaited in &mut self.awaited {
            awaited.tokens.retain(|of| *of != token);
        }
    }

    /// Tells the desk of those that are over.
    pub(super) fn look_at_awaited(&mut self) {
        if self.awaited.is_empty() {
            return;
        }
        let still = &self.draining;
        let is_over = |awaited: &mut Awaited| {
            let mut draining = awaited.draining.iter();
            awaited.tokens.is_empty() && !draining.any(|key| still.contains_key(key))
        };
        let over: Vec<_> = self.awaited.extract_if(.., is_over).collect();
        for awaited in over {
            match awaited.of {
                Of::Preempt(id) => self.tell_desk(Message::Preempted(id)),
                Of::Change(id) => self.carried(id, Ok(())),
                Of::Protection(id) => self.tell_desk(Message::Settled(id)),
            }
        }
    }
}
