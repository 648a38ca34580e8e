//! What the client asks of the function.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use frontend_nvme::link::LinkEvent;
use guest_memory::{Access, MapError, Refused, Shared, Window, Windows};
use nvme::pcie::Doorbell;
use nvme::queue::QueueId;
use nvme_spec::register::Cc;
use vfio_user::limits::DMA_MAPS_MAX;
use vfio_user::{Errno, Event, Ticket, Unmap};

use super::device::{BAR0, CONFIG};
use super::{FunctionLink, TAG_RESET};
use crate::bar::Write;
use crate::common::RingsWhenUnmapped;
use crate::interrupts;
use crate::limits::{DMA_BYTES_MAX, RESET_PATIENCE};
use crate::pci::ConfigSpace;

/// Windows that go, and who waits for that.
#[derive(Debug)]
pub(super) struct Unmapping {
    ticket: Ticket,
    memories: Vec<Weak<Shared>>,
    /// Windows without a descriptor, by address and size.
    apart: Vec<(u64, u64)>,
}

impl FunctionLink {
    /// Carries one request out, or begins to.
    pub(super) fn request(&mut self, event: Event<OwnedFd>) {
        match event {
            Event::DmaMap {
                ticket,
                address,
                size,
                offset,
                access: (read, write),
                fd,
            } => {
                let access = Access { read, write };
                let mapped = self.map(address, size, access, fd.map(|fd| (fd, offset)));
                self.answer(ticket, mapped);
            }
            Event::DmaUnmap { ticket, unmap } => self.unmap(ticket, unmap),
            Event::SetIrqs { ticket, set } => {
                let applied = interrupts::apply(&self.common, &mut self.view, set);
                self.common.publish(self.view.clone());
                self.ring_all();
                self.interrupt_again();
                self.answer(ticket, applied);
            }
            Event::RegionRead {
                ticket,
                region,
                offset,
                count,
            } => {
                let mut data = vec![0; count as usize];
                match region {
                    BAR0 => {
                        let masked = self.common.masked_vectors();
                        self.bar.read(offset, masked, &mut data);
                        self.enable_late();
                    }
                    CONFIG => self.config.read(offset, &mut data),
                    // Others have no bytes, which the protocol's machine has seen.
                    _ => {}
                }
                self.server.read(ticket, &data);
            }
            Event::RegionWrite {
                ticket,
                region,
                offset,
                data,
            } => {
                match region {
                    BAR0 => self.write_bar(offset, &data),
                    CONFIG => self.config.write(offset, &data),
                    _ => {}
                }
                self.server.done(ticket);
            }
            Event::Reset { ticket } => self.reset(ticket),
            Event::DmaRead { id, result } => self.client_answered(id, result),
            Event::DmaWritten { id, result } => {
                self.client_answered(id, result.map(|()| Vec::new()));
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, result: Result<(), Errno>) {
        match result {
            Ok(()) => self.server.done(ticket),
            Err(errno) => self.server.refuse(ticket, errno),
        }
    }

    fn map(
        &mut self,
        address: u64,
        size: u64,
        access: Access,
        file: Option<(OwnedFd, u64)>,
    ) -> Result<(), Errno> {
        let memory = match file {
            Some((fd, offset)) => {
                let bytes = guest_memory::mapped_bytes(&fd, offset, size);
                let charge = bytes.and_then(|bytes| self.seat.quota.charge(bytes));
                let shared = charge.and_then(|charge| {
                    let keeper = (charge, RingsWhenUnmapped(self.common.bell.clone()));
                    let loss = self.view.windows.loss().clone();
                    Shared::map(fd, offset, size, access, loss, keeper)
                });
                Some(Arc::new(
                    shared.map_err(|error| unmappable(address, error))?,
                ))
            }
            None => None,
        };
        let window = Window {
            address,
            size,
            access,
            memory,
        };
        let windows = self.view.windows.with(window, DMA_MAPS_MAX as usize);
        self.view.windows = windows.map_err(refused)?;
        self.view.message_bytes_max = self.server.dma_bytes_max().min(DMA_BYTES_MAX);
        self.common.publish(self.view.clone());
        self.admin.refresh();
        if self.view.doorbells.is_some() {
            // Doorbells may be back that nobody rings again.
            self.ring_all();
        }
        Ok(())
    }

    /// Takes windows out, and answers when nothing has them mapped any more.
    fn unmap(&mut self, ticket: Ticket, unmap: Unmap) {
        let (left, gone) = match unmap {
            Unmap::All => {
                let gone = self.view.windows.iter().cloned().collect();
                let none = Windows::of(self.view.windows.loss().clone());
                (none, gone)
            }
            Unmap::Window { address, size } => match self.view.windows.without(address, size) {
                Ok((left, window)) => (left, vec![window]),
                Err(error) => return self.server.refuse(ticket, refused(error)),
            },
        };
        let memories = gone.iter().filter_map(|window| window.memory.as_ref());
        let memories = memories.map(Arc::downgrade).collect();
        let apart = gone.iter().filter(|window| window.memory.is_none());
        let apart = apart.map(|window| (window.address, window.size)).collect();
        drop(gone);
        self.view.windows = left;
        self.common.publish(self.view.clone());
        self.ring_all();
        self.unmapping.push(Unmapping {
            ticket,
            memories,
            apart,
        });
        self.finish_unmapping();
    }

    /// Answers those whose windows are unmapped, and have no message under way.
    pub(super) fn finish_unmapping(&mut self) {
        let apart = &self.apart;
        let is_over = |it: &mut Unmapping| {
            it.memories.iter().all(|memory| memory.strong_count() == 0)
                && !it.apart.iter().any(|window| apart.is_under_way(*window))
        };
        let over: Vec<_> = self.unmapping.extract_if(.., is_over).collect();
        for it in over {
            self.server.done(it.ticket);
        }
    }

    fn write_bar(&mut self, offset: u64, data: &[u8]) {
        let mut writes = [None; 2];
        let mut places = writes.iter_mut();
        self.bar.write(offset, data, |write| {
            if let Some(place) = places.next() {
                *place = Some(write);
            }
        });
        for write in writes.into_iter().flatten() {
            match write {
                Write::Configure(cc) => self.configure(cc),
                Write::ResetSubsystem => self.events.push_back(LinkEvent::SubsystemReset),
                Write::Ring(doorbell, value) => self.doorbell(doorbell, value),
                Write::Mask(bits) => self.common.mask_vectors(bits),
                Write::Unmask(bits) => {
                    self.common.unmask_vectors(bits);
                    self.interrupt_again();
                }
            }
        }
    }

    /// What a host gets that sets CC.EN while CSTS.RDY is 1 is undefined (Base 2.1, Figure 41): here it is enabled when it has seen RDY as 0, as if it had
    /// waited for that.
    fn configure(&mut self, cc: Cc) {
        let shown = self.bar.shown();
        let is_early = cc.enabled() && shown.csts.ready() && !shown.cc.enabled();
        self.early = is_early.then_some(cc);
        if !is_early {
            self.events.push_back(LinkEvent::Configured(cc));
        }
    }

    /// It has read a register.
    fn enable_late(&mut self) {
        if !self.bar.shown().csts.ready() {
            let late = self.early.take().map(LinkEvent::Configured);
            self.events.extend(late);
        }
    }

    /// What names no queue, or no entry of one, changes nothing.
    fn doorbell(&mut self, doorbell: Doorbell, value: u32) {
        self.doorbells_rung += 1;
        let is_there = match doorbell {
            Doorbell::Submission(QueueId::ADMIN) => {
                self.admin.submissions().set_tail(&self.view, value)
            }
            Doorbell::Completion(QueueId::ADMIN) => {
                let completions = self.admin.completions();
                completions.set_head(&self.view, value).is_some()
            }
            Doorbell::Submission(queue) => match self.submissions.get(&queue) {
                Some(submissions) if submissions.set_tail(&self.view, value) => {
                    submissions.bell.ring();
                    true
                }
                _ => false,
            },
            Doorbell::Completion(queue) => self.completion_doorbell(queue, value),
        };
        if !is_there {
            tracing::debug!(?doorbell, value, "a doorbell names nothing");
        }
    }

    fn completion_doorbell(&self, queue: QueueId, value: u32) -> bool {
        let set = self
            .completions
            .get(&queue)
            .and_then(|it| it.set_head(&self.view, value));
        if set == Some(true) {
            // Answers wait for the room that there is now.
            for id in self.queues.submissions_of(queue) {
                if let Some(submissions) = self.submissions.get(&id) {
                    submissions.bell.ring();
                }
            }
        }
        set.is_some()
    }

    /// Signals for every queue with entries that the guest has not taken: it may not have been told of them.
    fn interrupt_again(&self) {
        let all = self.completions.values().chain([self.admin.completions()]);
        for completions in all.filter(|it| it.has_entries(&self.view)) {
            if let Some(vector) = completions.vector() {
                self.common.interrupt(&self.view, vector);
            }
        }
    }

    /// DEVICE_RESET: as CC.EN = 0, and all else as at power-on.
    fn reset(&mut self, ticket: Ticket) {
        if self.resetting.is_some() {
            return self.server.refuse(ticket, Errno::EBUSY);
        }
        let until = Instant::now() + RESET_PATIENCE;
        match self.owner.timer(until, TAG_RESET) {
            Ok(timer) => self.resetting = Some((ticket, timer)),
            Err(error) => {
                tracing::error!(%error, "a PCIe function cannot be reset");
                return self.server.refuse(ticket, Errno::EIO);
            }
        }
        self.configure(Cc::default());
    }

    /// Where the controller is disabled, a reset that was asked for is complete.
    pub(super) fn finish_reset(&mut self) {
        let shown = self.bar.shown();
        // The write of CC that the reset is made of has been shown.
        let is_pending = self
            .events
            .iter()
            .any(|it| matches!(it, LinkEvent::Configured(_)));
        if is_pending || shown.csts.ready() || shown.cc.enabled() {
            return;
        }
        if let Some((ticket, timer)) = self.resetting.take() {
            self.owner.ring().cancel_timer(timer);
            self.config = ConfigSpace::new();
            self.bar.reset();
            self.common.unmask_vectors(u32::MAX);
            self.server.done(ticket);
        }
    }

    /// A reset that takes too long: a store does not let go of a request. The client hears so; the controller goes on resetting.
    pub(super) fn give_up_reset(&mut self) {
        if let Some((ticket, _)) = self.resetting.take() {
            tracing::warn!(
                host = self.names.host.as_str(),
                subsystem = self.names.subsystem.as_str(),
                "a reset of a PCIe function is not complete after {RESET_PATIENCE:?}: a request is still under way"
            );
            self.server.refuse(ticket, Errno::ETIMEDOUT);
        }
    }
}

fn refused(why: Refused) -> Errno {
    match why {
        Refused::Place { .. } => Errno::EINVAL,
        Refused::Overlaps { .. } => Errno::EEXIST,
        Refused::TooMany { .. } => Errno::ENOSPC,
        Refused::Absent { .. } => Errno::ENOENT,
    }
}

fn unmappable(address: u64, error: MapError) -> Errno {
    tracing::warn!(address = format!("{address:#x}"), %error, "a window of guest memory cannot be mapped");
    match error {
        MapError::TooMuch { .. } => Errno::ENOSPC,
        _ => Errno::EINVAL,
    }
}
