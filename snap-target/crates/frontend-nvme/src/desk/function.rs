//! PCIe functions: a controller that comes without a Connect, registers in place of properties, and I/O queues that its host creates and deletes.

use std::time::SystemTime;

use nvme::controller::{Admitted, ControllerId};
use nvme::pcie::{QueueCommand, SubmissionQueue};
use nvme::queue::{Completion, QueueId, Slot};
use nvme_spec::Status;
use nvme_spec::register::Cc;

use super::Desk;
use super::visitor::State;
use crate::event::Gone;
use crate::link::Parted;
use crate::table::Key;

/// A Delete I/O Submission Queue whose queue still has requests.
#[derive(Debug)]
pub(super) struct Deleting {
    controller: ControllerId,
    queue: QueueId,
    key: Key,
    slot: Slot,
}

impl Deleting {
    /// Whether it is a queue of this controller.
    pub(super) fn is_of(&self, id: ControllerId) -> bool {
        self.controller == id
    }
}

impl Desk {
    /// A link that came in is a function's: makes its controller. Where the controller of its last host still ends, it waits for that, so that no write of
    /// the old one is applied behind one of the new.
    pub(super) fn attach_function(&mut self, key: Key) {
        let now = self.clock.now();
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        let transport = visitor.link.transport();
        let Some(function) = visitor.link.function() else {
            return;
        };
        let (subsystem, host) = (function.subsystem().clone(), function.host().clone());
        if self.registry.is_local_ending(&subsystem) {
            return self.waiting_functions.push(key);
        }
        let polls_doorbells = function.polls_doorbells();
        match self
            .registry
            .attach_local(&subsystem, &host, transport, now)
        {
            Ok(id) => {
                if polls_doorbells && let Some(controller) = self.registry.controller_mut(id) {
                    controller.refuse_doorbell_buffers();
                }
                self.function_attached(key, id);
            }
            Err(status) => {
                tracing::warn!(subsystem = subsystem.as_str(), %status, "a PCIe function gets no controller; its client is let go");
                visitor.link.end();
                self.touched.push(key);
            }
        }
    }

    fn function_attached(&mut self, key: Key, id: ControllerId) {
        self.passing.remove(&key);
        self.admin_queues.insert(id, key);
        let Some(controller) = self.registry.controller(id) else {
            return;
        };
        let admitted = Admitted {
            controller: id,
            queue: QueueId::ADMIN,
            entries: controller.limits().queue_entries_max,
            flow_control: true,
            completion: Completion::SUCCESS,
        };
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        visitor.state = State::Admin(id);
        visitor.connected_at = Some(SystemTime::now());
        visitor.link.established(&admitted);
        let peer = visitor.link.peer();
        self.log_connect(id, peer);
        self.show_registers(key);
        self.touched.push(key);
    }

    /// Functions that waited for the end of a controller are looked at again.
    pub(super) fn attach_waiting_functions(&mut self) {
        for key in std::mem::take(&mut self.waiting_functions) {
            self.attach_function(key);
        }
    }

    /// The function at a port takes no clients any more: those who wait for a controller are let go. Returns the controllers of those who have one, to be ended.
    pub(super) fn let_clients_go(&mut self, port_id: u16) -> Vec<ControllerId> {
        for &key in &self.waiting_functions {
            if let Some(visitor) = self.visitors.get_mut(key)
                && visitor.port_id == port_id
            {
                visitor.link.end();
                self.touched.push(key);
            }
        }
        let came_in_here = |key: &Key| {
            let visitor = self.visitors.get(*key);
            visitor.is_some_and(|visitor| visitor.port_id == port_id)
        };
        let all = self.admin_queues.iter();
        all.filter(|(_, key)| came_in_here(key))
            .map(|(id, _)| *id)
            .collect()
    }

    /// A function answers reads of its registers by itself: it is told what they are now.
    pub(super) fn show_registers(&mut self, key: Key) {
        if let Some(visitor) = self.visitors.get_mut(key)
            && let State::Admin(id) = visitor.state
            && let Some(controller) = self.registry.controller(id)
            && let Some(function) = visitor.link.function()
        {
            function.show(&controller.registers());
        }
    }

    /// The registers of a controller may have changed without a word of its host's.
    pub(super) fn touch_admin_queue(&mut self, id: ControllerId) {
        if let Some(&key) = self.admin_queues.get(&id) {
            self.touched.push(key);
        }
    }

    /// The host of a function has written CC.
    pub(super) fn configure(&mut self, id: ControllerId, cc: Cc) {
        let now = self.clock.now();
        if let Some(effect) = self.registry.write_cc(id, cc, now) {
            self.carry_out(id, effect);
        }
    }

    /// Base, "NVM Subsystem Reset": every controller of the subsystem is reset, whoever it is for. Those of functions begin again as their hosts enable them;
    /// a controller that came over a fabric has no way back but another Connect, so that its connections end.
    pub(super) fn reset_subsystem(&mut self, by: ControllerId) {
        let Some(subsystem) = self.registry.controller(by).and_then(|it| it.subsystem()) else {
            return;
        };
        let nqn = subsystem.nqn.clone();
        let all: Vec<(ControllerId, bool)> = self
            .registry
            .controllers()
            .filter(|it| it.subsystem().is_some_and(|it| it.nqn == nqn))
            .map(|it| (it.id(), it.transport().is_fabric()))
            .collect();
        tracing::warn!(
            cntlid = by.0,
            subsystem = nqn.as_str(),
            controllers = all.len(),
            "the host of a PCIe function resets the NVM subsystem"
        );
        for (id, is_over_fabric) in all {
            if is_over_fabric {
                self.end_controller(id, Gone::Ended);
                continue;
            }
            self.configure(id, Cc::default());
            if let Some(&key) = self.admin_queues.get(&id) {
                if let Ok(function) = self.function_of(key) {
                    function.subsystem_was_reset();
                }
                self.show_registers(key);
                self.touched.push(key);
            }
        }
    }

    /// Creates or deletes an I/O queue, or has doorbells looked for in memory.
    pub(super) fn manage_queue(
        &mut self,
        key: Key,
        id: ControllerId,
        slot: Slot,
        command: QueueCommand,
    ) {
        let done = match command {
            QueueCommand::CreateSubmission(queue) => self.create_submission(key, id, &queue),
            QueueCommand::DeleteSubmission(queue) => {
                match self.delete_submission(key, id, slot, queue) {
                    Ok(()) => return,
                    Err(status) => Err(status),
                }
            }
            QueueCommand::CreateCompletion(queue) => self
                .function_of(key)
                .and_then(|function| function.create_completion_queue(&queue)),
            QueueCommand::DeleteCompletion(queue) => self
                .function_of(key)
                .and_then(|function| function.delete_completion_queue(queue)),
            QueueCommand::ShareDoorbells(buffers) => self
                .function_of(key)
                .and_then(|function| function.share_doorbells(buffers)),
        };
        let status = done.err().unwrap_or(Status::SUCCESS);
        self.fail_admin(key, id, slot, status);
    }

    fn function_of(&mut self, key: Key) -> Result<&mut dyn crate::link::Function, Status> {
        let visitor = self.visitors.get_mut(key);
        let function = visitor.and_then(|visitor| visitor.link.function());
        function.ok_or(Status::INVALID_OPCODE.dnr())
    }

    /// The queue is made at its function, and its other half goes to its reactor.
    fn create_submission(
        &mut self,
        key: Key,
        id: ControllerId,
        queue: &SubmissionQueue,
    ) -> Result<(), Status> {
        let function = self.function_of(key)?;
        let parted: Box<dyn Parted> = function.create_submission_queue(queue)?;
        let beside = function.beside(queue.id);
        let most = self.service.io_queues_per_reactor;
        if beside.is_some_and(|other| !self.placing.has_room_beside(id, other, most)) {
            self.function_of(key)?.submission_queue_deleted(queue.id);
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        let entries = u16::try_from(queue.entries).unwrap_or(u16::MAX);
        match self.registry.open_local(id, queue.id, entries) {
            Ok(admitted) => {
                self.adopt(parted, admitted, None, beside);
                Ok(())
            }
            Err(status) => {
                if let Ok(function) = self.function_of(key) {
                    function.submission_queue_deleted(queue.id);
                }
                Err(status)
            }
        }
    }

    /// Base, "Delete I/O Submission Queue command": it is complete when nothing of the queue is under way. Commands that are not answered by then
    /// never are.
    fn delete_submission(
        &mut self,
        key: Key,
        id: ControllerId,
        slot: Slot,
        queue: QueueId,
    ) -> Result<(), Status> {
        let is_there = self.function_of(key)?.has_submission_queue(queue);
        let mut others = self.deleting.iter();
        let goes_already = others.any(|it| it.controller == id && it.queue == queue);
        if !is_there || goes_already {
            return Err(Status::INVALID_QUEUE_ID.dnr());
        }
        self.deleting.push(Deleting {
            controller: id,
            queue,
            key,
            slot,
        });
        self.end_io_queue(id, queue);
        Ok(())
    }

    /// An I/O queue of a controller has closed, after its last request: where it was to be deleted, it is.
    pub(super) fn finish_deletion(&mut self, id: ControllerId, queue: QueueId) {
        let is_it = |it: &mut Deleting| it.controller == id && it.queue == queue;
        let deleted: Vec<_> = self.deleting.extract_if(.., is_it).collect();
        for deleted in deleted {
            if let Ok(function) = self.function_of(deleted.key) {
                function.submission_queue_deleted(queue);
            }
            self.answer(deleted.key, deleted.slot, Completion::SUCCESS);
        }
    }
}
