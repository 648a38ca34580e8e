//! What the target asks of the function and of its admin queue's link.

use std::net::SocketAddr;
use std::sync::Arc;

use frontend_nvme::link::{Farewell, Function, Health, Link, LinkEvent, Parted, Wire};
use guest_memory::{Fault, Way};
use nvme::controller::{Admitted, Registers, Transport};
use nvme::nqn::Nqn;
use nvme::pcie::{
    CompletionQueue, DOORBELL_BUFFER_BYTES, DoorbellBuffers, Queues, SubmissionQueue,
};
use nvme::queue::{Completion, QueueId, Slot, Transfer};
use nvme_spec::register::Csts;
use nvme_spec::{Cid, Sqe, Status};
use reactor::OwnerId;
use reactor::buf::IoBuf;

use super::FunctionLink;
use crate::completion::Completions;
use crate::io_link::{NOWHERE, PartedQueue};
use crate::limits::{IO_QUEUES_MAX, VECTORS};
use crate::queue::Submissions;

/// Of an entry of a submission queue, and of a completion queue.
const SQE_BYTES: u64 = nvme_spec::command::SQE_BYTES as u64;
const CQE_BYTES: u64 = 16;

impl Link for FunctionLink {
    fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    fn transport(&self) -> Transport {
        Transport::Pcie
    }

    fn local(&self) -> SocketAddr {
        NOWHERE
    }

    fn peer(&self) -> SocketAddr {
        NOWHERE
    }

    fn slots_max(&self) -> u16 {
        self.admin.slots()
    }

    fn transfer_bytes_max(&self) -> u32 {
        self.admin.transfer_bytes_max()
    }

    fn needs_snapshots(&self) -> bool {
        false
    }

    fn take_wire(&mut self) -> Wire {
        self.admin.take_wire()
    }

    fn wire_of(&self, _slot: Slot) -> Wire {
        Wire::default()
    }

    /// In the order of the client's messages: what a doorbell told of comes before what followed it.
    fn next_event(&mut self) -> Option<LinkEvent> {
        self.take_ring_events();
        if !self.is_attached {
            return None;
        }
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.is_live
                && let Some(event) = self.admin.next_event()
            {
                return Some(event);
            }
            if let Some(event) = self.server.next_event() {
                self.request(event);
            } else if !self.receive() {
                return self.events.pop_front();
            }
        }
    }

    fn settle(&mut self) -> Health {
        // Before the admin queue tells of its answers: those that were withheld are among them.
        self.finish_withheld();
        if self.is_live {
            self.admin.settle();
        }
        self.send();
        self.send_messages();
        self.finish_unmapping();
        self.finish_reset();
        self.send();
        self.wait();
        if self.is_over {
            Health::Over
        } else {
            Health::Live
        }
    }

    /// Whoever maps its doorbells does not tell of the admin queue's either.
    fn wants_turn(&self) -> bool {
        self.admin.is_polled()
    }

    fn is_due(&self) -> bool {
        self.admin.is_due()
    }

    fn command(&self, slot: Slot) -> &Sqe {
        self.admin.command(slot)
    }

    fn transfer(&self, slot: Slot) -> Transfer {
        self.admin.transfer(slot)
    }

    fn find(&self, cid: Cid) -> Option<Slot> {
        self.admin.find(cid)
    }

    fn outstanding(&self) -> Vec<Slot> {
        self.admin.outstanding().collect()
    }

    fn set_buffer(&mut self, slot: Slot, buf: IoBuf) {
        self.admin.set_buffer(slot, buf);
    }

    fn take_buffer(&mut self, slot: Slot) -> Option<IoBuf> {
        self.admin.take_buffer(slot)
    }

    fn request_data(&mut self, slot: Slot) -> Result<(), Status> {
        self.admin.request_data(slot)
    }

    fn awaited_bytes(&self) -> u64 {
        0
    }

    fn owe(&mut self, slot: Slot, bytes: u32) {
        self.admin.owe(slot, bytes);
    }

    fn owed_bytes(&self) -> u64 {
        self.admin.owed_bytes()
    }

    fn respond(&mut self, slot: Slot, completion: Completion, data_bytes: u32) {
        if !self.withholds(slot, completion) {
            self.admin.respond(slot, completion, data_bytes);
        }
    }

    fn established(&mut self, _admitted: &Admitted) {
        self.is_attached = true;
    }

    fn pause(&mut self) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn part(self: Box<Self>) -> Option<Box<dyn Parted>> {
        None
    }

    fn end(&mut self) {
        self.is_over = true;
    }

    fn let_go(&mut self) -> Option<Box<dyn Farewell>> {
        None
    }

    fn function(&mut self) -> Option<&mut dyn Function> {
        Some(self)
    }
}

impl Function for FunctionLink {
    fn subsystem(&self) -> &Nqn {
        &self.names.subsystem
    }

    fn host(&self) -> &Nqn {
        &self.names.host
    }

    fn polls_doorbells(&self) -> bool {
        self.common.page.is_some()
    }

    fn show(&mut self, registers: &Registers) {
        self.show_or_withhold(registers);
        let is_live = registers.csts.ready() && registers.cc.enabled();
        match (self.is_live, is_live) {
            (false, true) => self.start(),
            // From the moment that the guest turns it off nothing more is put into its admin queue.
            (true, false) => self.admin.forget(),
            _ => {}
        }
        self.is_live = is_live;
        // A host that has shut it down enables it anew before it uses it: Linux leaves it so when its driver goes.
        let is_shut_down = registers.csts.0 & Csts::SHST_COMPLETE != 0;
        if self.common.poll(is_live && !is_shut_down) {
            self.ring_all();
        }
        if self.is_ready && !registers.csts.ready() {
            self.queues = Queues::default();
            self.submissions.clear();
            self.completions.clear();
            self.forget_messages();
            self.common.untold.clear_all();
            if self.view.doorbells.take().is_some() {
                self.common.publish(self.view.clone());
            }
            if let Some(page) = &self.common.page {
                page.clear();
            }
        }
        self.is_ready = registers.csts.ready();
        if self.view.coalescing != registers.coalescing {
            self.view.coalescing = registers.coalescing;
            self.common.publish(self.view.clone());
            self.ring_all();
        }
    }

    fn subsystem_was_reset(&mut self) {
        self.early = None;
        self.bar.subsystem_was_reset();
        self.common.unmask_vectors(u32::MAX);
    }

    fn create_completion_queue(&mut self, queue: &CompletionQueue) -> Result<(), Status> {
        let (granted, entries_max) = (self.granted(), self.entries_max());
        self.check_shared(queue.base, u64::from(queue.entries) * CQE_BYTES)?;
        self.queues
            .create_completion(queue, granted, entries_max, VECTORS)?;
        let completions = Completions::new(queue, self.common.page.as_ref());
        if self.view.doorbells.is_some() {
            completions.share(&self.view);
        }
        self.completions.insert(queue.id, Arc::new(completions));
        Ok(())
    }

    fn delete_completion_queue(&mut self, queue: QueueId) -> Result<(), Status> {
        self.queues.delete_completion(queue)?;
        self.completions.remove(&queue);
        Ok(())
    }

    fn create_submission_queue(
        &mut self,
        queue: &SubmissionQueue,
    ) -> Result<Box<dyn Parted>, Status> {
        let (granted, entries_max) = (self.granted(), self.entries_max());
        self.check_shared(queue.base, u64::from(queue.entries) * SQE_BYTES)?;
        // First: its doorbell is set, and that of a queue that runs is not to be touched.
        let to = self.queues.create_submission(queue, granted, entries_max)?;
        let place = (queue.base, queue.entries);
        let made = Submissions::new(queue.id, place, self.common.page.as_ref());
        let submissions = Arc::new(made.map_err(|error| {
            tracing::error!(%error, sqid = queue.id.0, "an I/O queue cannot be made");
            self.queues.delete_submission(queue.id);
            Status::INTERNAL_ERROR
        })?);
        let completions = self.completions.get(&to.id).cloned();
        let completions = completions.ok_or(Status::COMPLETION_QUEUE_INVALID.dnr())?;
        if self.view.doorbells.is_some() {
            submissions.share(&self.view);
        }
        self.submissions.insert(queue.id, submissions.clone());
        Ok(Box::new(PartedQueue {
            common: self.common.clone(),
            submissions,
            completions,
            slots: self.limits.queue_entries_max,
            transfer_bytes_max: self.limits.transfer_bytes_max,
        }))
    }

    fn has_submission_queue(&self, queue: QueueId) -> bool {
        self.queues.submission(queue).is_some()
    }

    fn beside(&self, queue: QueueId) -> Option<QueueId> {
        let to = self.queues.submission(queue)?.completion;
        let mut others = self.queues.submissions_of(to);
        others.find(|other| *other != queue)
    }

    fn share_doorbells(&mut self, buffers: DoorbellBuffers) -> Result<(), Status> {
        // A client that has the line ends its interrupt at the next access to BAR0 (QEMU's vfio_intx_eoi), so that completions have to be rung
        // for: with doorbells in its memory the line stays up for ever. Drivers go on without (Linux: "unable to set dbbuf").
        if self.view.uses_line() {
            tracing::debug!("a guest without MSI-X rings its doorbells");
            return Err(Status::INVALID_OPCODE.dnr());
        }
        let windows = &self.view.windows;
        for (page, way) in [
            (buffers.shadow(), Way::FromGuest),
            (buffers.shadow(), Way::ToGuest),
            (buffers.events(), Way::ToGuest),
        ] {
            let checked = windows.check(page, DOORBELL_BUFFER_BYTES, way);
            checked.map_err(|fault| {
                tracing::warn!(%fault, "a guest's doorbells cannot be looked for in its memory");
                Status::INVALID_FIELD.dnr()
            })?;
        }
        self.view.doorbells = Some(buffers);
        self.completions
            .values()
            .for_each(|it| it.share(&self.view));
        self.submissions
            .values()
            .for_each(|it| it.share(&self.view));
        self.common.publish(self.view.clone());
        self.ring_all();
        Ok(())
    }

    fn submission_queue_deleted(&mut self, queue: QueueId) {
        self.queues.delete_submission(queue);
        self.submissions.remove(&queue);
        self.forget_messages();
    }
}

impl FunctionLink {
    /// The controller was enabled: its admin queue is where the registers say.
    fn start(&mut self) {
        let (submission, completion) = (self.bar.admin_submission(), self.bar.admin_completion());
        // The host hears of it by silence: registers have no status for it.
        let _warned = self.check_shared(submission.base, u64::from(submission.entries) * SQE_BYTES);
        let _warned = self.check_shared(completion.base, u64::from(completion.entries) * CQE_BYTES);
        let queue = CompletionQueue {
            id: QueueId::ADMIN,
            base: completion.base,
            entries: completion.entries,
            vector: Some(0),
        };
        let page = self.common.page.as_ref();
        let completions = Completions::new(&queue, page);
        let place = (submission.base, submission.entries);
        match Submissions::new(QueueId::ADMIN, place, page) {
            Ok(submissions) => self
                .admin
                .restart(Arc::new(submissions), Arc::new(completions)),
            Err(error) => {
                tracing::error!(%error, "an admin queue cannot be made; the client is let go");
                self.is_over = true;
            }
        }
    }

    /// Entries of queues do not go by messages. A queue that is in no memory is the guest's own affair: memory may come.
    fn check_shared(&self, base: u64, bytes: u64) -> Result<(), Status> {
        let checked = self.view.windows.check(base, bytes, Way::FromGuest);
        match checked {
            Err(fault @ Fault::NotShared { .. }) => {
                tracing::warn!(%fault, "a queue can only be in memory that the client shares by descriptor (QEMU: share=on)");
                Err(Status::INVALID_FIELD.dnr())
            }
            _ => Ok(()),
        }
    }

    /// I/O queues of the function: as many as were granted, and as it has doorbells for.
    fn granted(&self) -> u16 {
        self.bar.shown().io_queues.min(IO_QUEUES_MAX)
    }

    /// CAP.MQES + 1.
    fn entries_max(&self) -> u32 {
        u32::from(self.bar.shown().cap.mqes_z()) + 1
    }
}
