//! Abort (Base, "Abort command"): the queue's reactor ends the command, and the Abort is answered when it is known what came of it, or when that takes
//! too long.

use std::collections::HashMap;

use nvme::Time;
use nvme::controller::ControllerId;
use nvme::queue::{QueueId, Slot};
use nvme_spec::Cid;
use telemetry::EventKind;

use super::{Desk, To};
use crate::limits::ABORT_PATIENCE;
use crate::message::{Abort, AbortId, Message};
use crate::table::Key;

/// Aborts whose outcome is not known yet; ACL of each controller bounds them.
#[derive(Debug, Default)]
pub(super) struct Aborting {
    by_id: HashMap<AbortId, Waiting>,
    last: u64,
}

#[derive(Debug)]
struct Waiting {
    key: Key,
    controller: ControllerId,
    slot: Slot,
    until: Time,
}

impl Desk {
    /// On the admin queue, Asynchronous Event Requests end, and every other command is on its way already. On an I/O queue its reactor looks.
    pub(super) fn abort(
        &mut self,
        key: Key,
        id: ControllerId,
        slot: Slot,
        queue: QueueId,
        cid: Cid,
    ) {
        self.telemetry.record_now(&telemetry::Event {
            cid: cid.0,
            ..telemetry::Event::of_queue(EventKind::Abort, id.0, queue.0, self.host_of(id))
        });
        if queue.is_admin() {
            let aborted = self.abort_admin(key, id, slot, cid);
            return self.abort_ends(key, id, slot, aborted);
        }
        let Some(reactor) = self.placing.of(id, queue) else {
            return self.abort_ends(key, id, slot, false);
        };
        self.aborting.last += 1;
        let abort = AbortId(self.aborting.last);
        let waiting = Waiting {
            key,
            controller: id,
            slot,
            until: self.clock.now() + ABORT_PATIENCE,
        };
        self.aborting.by_id.insert(abort, waiting);
        let message = Message::Abort(Abort {
            id: abort,
            controller: id,
            queue,
            cid,
        });
        self.requests.push((To::Reactor(reactor), message));
    }

    fn abort_admin(&mut self, key: Key, id: ControllerId, slot: Slot, cid: Cid) -> bool {
        let (Some(visitor), Some(controller)) =
            (self.visitors.get_mut(key), self.registry.controller_mut(id))
        else {
            return false;
        };
        let target = visitor.link.find(cid);
        target.is_some_and(|target| target != slot && controller.abort_async_event(target))
    }

    /// A reactor knows what came of a command.
    pub(super) fn aborted(&mut self, id: AbortId, aborted: bool) {
        if let Some(waiting) = self.aborting.by_id.remove(&id) {
            self.abort_ends(waiting.key, waiting.controller, waiting.slot, aborted);
        }
    }

    /// Answers those that have waited too long: the store still has their commands.
    pub(super) fn end_old_aborts(&mut self, now: Time) {
        let old = |_: &AbortId, waiting: &mut Waiting| waiting.until <= now;
        let old: Vec<_> = self.aborting.by_id.extract_if(old).collect();
        for (_, waiting) in old {
            self.abort_ends(waiting.key, waiting.controller, waiting.slot, false);
        }
    }

    /// When [`Desk::end_old_aborts`] is next due.
    pub(super) fn abort_deadline(&self) -> Option<Time> {
        self.aborting
            .by_id
            .values()
            .map(|waiting| waiting.until)
            .min()
    }

    fn abort_ends(&mut self, key: Key, id: ControllerId, slot: Slot, aborted: bool) {
        if let Some(controller) = self.registry.controller_mut(id) {
            let completion = controller.abort_finished(aborted);
            self.answer(key, slot, completion);
        }
    }
}
