//! Connect and the admin commands of a [`TargetQueue`].

use crate::Time;
use crate::controller::{AdminCommand, ControllerId, Effect, NotAdmitted, Outcome, buffer_bytes};
use crate::queue::{Completion, QueueId, Slot};
use nvme_spec::feature::AsyncEvent;
use nvme_spec::{Cid, Status};

use super::store::{Answer, Asker};
use super::target::{MemoryTarget, TargetQueue, finish_reset, takes_data};

/// An Abort on its way to the I/O queue that it names.
pub struct AbortOrder {
    pub queue: (ControllerId, QueueId),
    pub cid: Cid,
    pub asker: Asker,
}

impl MemoryTarget {
    /// A queue has closed: what was to be aborted there ended without it.
    pub(super) fn end_aborts_of(&mut self, queue: (ControllerId, QueueId)) {
        let orders = self.aborts.extract_if(.., |order| order.queue == queue);
        for order in orders {
            self.store.answer(order.asker, Answer::Abort(false));
        }
    }
}

impl TargetQueue {
    pub(super) fn connect(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        if let Some(status) = target.conduct.refused_connects.pop_front() {
            return self.fail(slot, status);
        }
        let sqe = *self.connection.command(slot);
        let is_of_queue = sqe.cdw10.get() >> 16 != 0;
        if is_of_queue && let Some(status) = target.conduct.refused_queues.pop_front() {
            return self.fail(slot, status);
        }
        let data = &self.buffers[slot.index()];
        match target.registry.connect(&sqe, data, &target.context, now) {
            Ok(admitted) => {
                self.connection
                    .established(admitted.entries, admitted.flow_control);
                self.connection.authenticated();
                self.connection.respond(slot, admitted.completion, 0);
                self.admitted = Some(admitted);
                self.ana_told = target.conduct.ana_changes;
                if !admitted.queue.is_admin() {
                    target.live.push((admitted.controller, admitted.queue));
                }
            }
            Err(NotAdmitted::Refused(refusal)) => self.connection.respond(slot, refusal, 0),
            Err(NotAdmitted::Later) => self.waiting = Some(slot),
        }
    }

    /// A command came: room for its data, then its data, then its execution.
    pub(super) fn admin_command(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        let sqe = *self.connection.command(slot);
        let transfer = self.connection.transfer(slot);
        let limit = self.connection.limits().transfer_bytes_max;
        match buffer_bytes(&sqe, transfer, limit) {
            Err(status) => self.fail(slot, status),
            Ok(bytes) if takes_data(&sqe, transfer) => self.take_data(slot, bytes, now),
            Ok(bytes) => {
                self.make_room(slot, bytes);
                self.execute_admin(slot, target, now);
            }
        }
    }

    pub(super) fn execute_admin(&mut self, slot: Slot, target: &mut MemoryTarget, now: Time) {
        let sqe = target.conduct.understood(self.connection.command(slot));
        let transfer = self.connection.transfer(slot);
        let id = self.controller();
        let Some(controller) = id.and_then(|id| target.registry.controller_mut(id)) else {
            return self.fail(slot, Status::INTERNAL_ERROR);
        };
        let buffer = std::mem::take(&mut self.buffers[slot.index()]);
        let mut out = vec![0; buffer.len()];
        if target.conduct.fill_log_page(&sqe, &mut out) {
            let bytes = u32::try_from(out.len()).unwrap();
            self.buffers[slot.index()] = out;
            return self.connection.respond(slot, Completion::SUCCESS, bytes);
        }
        let command = AdminCommand {
            sqe: &sqe,
            slot,
            transfer,
            data: &buffer,
        };
        match controller.execute(&command, &mut out, now) {
            Outcome::Done {
                completion,
                data_bytes,
                effect,
            } => {
                match effect {
                    Effect::None => {}
                    Effect::Shutdown => controller.shutdown_complete(),
                    Effect::Reset => {
                        finish_reset(controller);
                        target.resets.extend(id);
                    }
                }
                target.conduct.amend_identify(&sqe, &mut out);
                self.buffers[slot.index()] = out;
                self.connection.respond(slot, completion, data_bytes);
            }
            Outcome::Pending => self.event_requests.push(slot),
            // A controller of a fabric does not ask for such.
            Outcome::Queue(_) => self.fail(slot, Status::INVALID_OPCODE.dnr()),
            // Nothing here is kept, and nobody asks.
            Outcome::OfNamespace(_) => self.fail(slot, Status::FEATURE_NOT_CHANGEABLE.dnr()),
            Outcome::Abort { queue, cid } => self.abort(slot, queue, cid, target),
        }
        self.answer_events(target);
    }

    /// On the admin queue, Asynchronous Event Requests end, and every other command is on its way already. An I/O queue looks itself.
    fn abort(&mut self, slot: Slot, queue: QueueId, cid: Cid, target: &mut MemoryTarget) {
        let Some(id) = self.controller() else { return };
        if queue.is_admin() {
            let found = self.connection.find(cid).filter(|found| *found != slot);
            let controller = target.registry.controller_mut(id);
            let aborted = found
                .zip(controller)
                .is_some_and(|(found, controller)| controller.abort_async_event(found));
            return self.abort_ends(slot, aborted, target);
        }
        if !target.live.contains(&(id, queue)) {
            return self.abort_ends(slot, false, target);
        }
        target.aborts.push(AbortOrder {
            queue: (id, queue),
            cid,
            asker: Asker {
                connection: self.id,
                slot,
            },
        });
    }

    pub(super) fn abort_ends(&mut self, slot: Slot, aborted: bool, target: &mut MemoryTarget) {
        let id = self.controller();
        if let Some(controller) = id.and_then(|id| target.registry.controller_mut(id)) {
            let completion = controller.abort_finished(aborted);
            self.connection.respond(slot, completion, 0);
        }
    }

    /// Answers the Asynchronous Event Requests that something has happened for.
    pub(super) fn answer_events(&mut self, target: &mut MemoryTarget) {
        let id = self.controller().filter(|_| self.is_admin());
        let Some(controller) = id.and_then(|id| target.registry.controller_mut(id)) else {
            return;
        };
        // The machines know no ANA: a request is taken from them, and answered with the event.
        let changes = target.conduct.ana_changes;
        let oldest = self.event_requests.first().copied();
        let ana_slot = oldest.filter(|slot| {
            // One that they answer anyhow is left to them.
            self.ana_told != changes && controller.abort_async_event(*slot)
        });
        if ana_slot.is_some() {
            self.ana_told = changes;
        }
        while let Some((slot, completion)) = controller.next_async_event() {
            self.event_requests.retain(|request| *request != slot);
            let completion = match ana_slot {
                Some(ana_slot) if ana_slot == slot => Completion::result(AsyncEvent::ANA_CHANGED.0),
                _ => completion,
            };
            self.connection.respond(slot, completion, 0);
        }
    }
}
