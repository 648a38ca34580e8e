//! A queue on a reactor's ring: [`Link`] for the target.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use frontend_nvme::Ledger;
use frontend_nvme::link::{
    Farewell, Health, Link, LinkError, LinkEvent, LinkFailure, Parted, Wire,
};
use nix::poll::PollFlags;
use nvme::controller::{Admitted, Transport};
use nvme::queue::{Completion, Slot, Transfer, WireBytes};
use nvme::rdma::target::Event as MachineEvent;
use nvme_spec::{Cid, Sqe, Status};
use reactor::buf::IoBuf;
use reactor::{Fd, Owner, OwnerId, Ring};
use verbs::Elsewhere;

use crate::limits::EMPTY_POLLS_MAX;
use crate::post::{Batch, Posted};
use crate::queue::Queue;

/// What an event of the link's owner belongs to.
const TAG_COMPLETIONS: u64 = 0;
const TAG_MANAGER: u64 = 1;
const TAG_TIMER: u64 = 2;
const TAG_AGAIN: u64 = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct RdmaLink {
    // First: when it is stopped, the device touches no buffer.
    queue: Elsewhere<Queue>,
    /// By slot: where its data go or come from.
    buffers: Vec<Option<IoBuf>>,
    owed: Ledger,
    awaited: Ledger,
    batch: Batch,
    owner: Owner,
    completions: Fd,
    manager: Fd,
    watch: Watch,
    /// A timer is armed for the machine's deadline.
    is_timed: bool,
    /// An I/O queue past Connect: its reactor asks [`Link::wants_turn`].
    is_polled: bool,
}

/// How completions are found.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// The completion queue will tell of the next one.
    is_armed: bool,
    /// There was one since the last settling.
    found: bool,
    /// Turns since the last one.
    empty_turns: u32,
}

impl RdmaLink {
    /// A queue on this thread's ring.
    pub(crate) fn new(queue: Elsewhere<Queue>, ring: &Ring) -> Result<Self, LinkError> {
        let link = Self {
            owner: ring.register()?,
            completions: shared(queue.cq.as_fd())?,
            manager: shared(queue.channel.as_fd())?,
            queue,
            buffers: Vec::new(),
            owed: Ledger::default(),
            awaited: Ledger::default(),
            batch: Batch::default(),
            watch: Watch::default(),
            is_timed: false,
            is_polled: false,
        };
        if !link.wait_for(&link.completions, TAG_COMPLETIONS)
            || !link.wait_for(&link.manager, TAG_MANAGER)
        {
            return Err(no_operations());
        }
        Ok(link)
    }

    fn wait_for(&self, descriptor: &Fd, tag: u64) -> bool {
        let readable = PollFlags::POLLIN.bits();
        self.owner.poll(descriptor, readable, tag).is_ok()
    }

    /// What the machine has, as far as it is for the driver.
    fn machine_event(&mut self) -> Option<LinkEvent> {
        loop {
            let event = match self.queue.machine.next_event()? {
                MachineEvent::Connect { slot } | MachineEvent::Command { slot } => {
                    LinkEvent::Command { slot }
                }
                MachineEvent::CapsuleData {
                    slot,
                    receive,
                    offset,
                    bytes,
                } => {
                    let into = self.buffers.get_mut(slot.index()).and_then(Option::as_mut);
                    let capsules = self.queue.capsules();
                    if !into.is_some_and(|buf| capsules.copy_data(receive, offset, bytes, buf)) {
                        let what = "a command's buffer is missing, or shorter than its data";
                        self.queue.fail(LinkFailure::Protocol(what.to_owned()));
                        continue;
                    }
                    self.queue.wire.copied += u64::from(bytes);
                    LinkEvent::DataReady { slot }
                }
                MachineEvent::DataReady { slot } => {
                    self.awaited.settle(slot);
                    LinkEvent::DataReady { slot }
                }
                MachineEvent::DataLeft { slot } => {
                    self.drop_buffer(slot);
                    self.owed.settle(slot);
                    continue;
                }
                MachineEvent::Fatal(violation) => {
                    self.queue.end();
                    LinkEvent::Failed(LinkFailure::Protocol(violation.to_string()))
                }
                MachineEvent::TimedOut => {
                    self.queue.end();
                    LinkEvent::Failed(LinkFailure::TimedOut)
                }
            };
            return Some(event);
        }
    }

    fn drop_buffer(&mut self, slot: Slot) {
        if let Some(place) = self.buffers.get_mut(slot.index()) {
            *place = None;
        }
    }

    /// Takes completions; false where there was none.
    fn poll(&mut self) -> bool {
        let buffers = &self.buffers;
        let found = self.queue.poll(|staging, id| {
            staging.completed(id, |slot| buffers.get(slot.index()).cloned().flatten())
        });
        self.watch.found |= found;
        found
    }

    fn ring_event(&mut self, tag: u64) {
        let is_waited_for = match tag {
            TAG_COMPLETIONS => {
                self.watch.is_armed = false;
                self.watch.found = true;
                if let Err(error) = self.queue.cq.take_events() {
                    self.queue.fail(LinkFailure::Protocol(error.to_string()));
                }
                self.wait_for(&self.completions, tag)
            }
            TAG_MANAGER => {
                self.queue.manager_events();
                self.wait_for(&self.manager, tag)
            }
            TAG_TIMER => {
                self.is_timed = false;
                let now = self.queue.clock.now();
                self.queue.machine.tick(now);
                true
            }
            _ => true,
        };
        if !is_waited_for {
            // The ring has room for these operations of every link; without them nothing would wake this one again.
            self.queue
                .fail(LinkFailure::Protocol(no_operations().to_string()));
        }
    }

    /// Sees to it that a completion, or the machine's deadline, brings the reactor here again.
    fn sleep_well(&mut self) {
        if std::mem::take(&mut self.watch.found) {
            self.watch.empty_turns = 0;
        } else {
            self.watch.empty_turns = self.watch.empty_turns.saturating_add(1);
        }
        if !self.watch.is_armed && !self.wants_turn() {
            self.arm();
        }
        if !self.is_timed
            && let Some(deadline) = self.queue.machine.deadline()
        {
            self.is_timed = true;
            let at = self.queue.clock.instant(deadline);
            self.timer(at, TAG_TIMER);
        }
    }

    /// An armed queue tells of what comes afterwards: what came before is looked for once more.
    fn arm(&mut self) {
        match self.queue.cq.arm(false) {
            Ok(()) => self.watch.is_armed = true,
            Err(error) => self.queue.fail(LinkFailure::Protocol(error.to_string())),
        }
        if self.poll() {
            self.timer(Instant::now(), TAG_AGAIN);
        }
    }

    fn timer(&mut self, at: Instant, tag: u64) {
        if let Err(error) = self.owner.timer(at, tag) {
            self.queue.fail(LinkFailure::Protocol(error.to_string()));
        }
    }
}

impl Link for RdmaLink {
    fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    fn transport(&self) -> Transport {
        Transport::Rdma
    }

    fn local(&self) -> SocketAddr {
        self.queue.local
    }

    fn peer(&self) -> SocketAddr {
        self.queue.peer
    }

    fn slots_max(&self) -> u16 {
        self.queue.machine.limits().slots_max()
    }

    fn transfer_bytes_max(&self) -> u32 {
        self.queue.machine.limits().transfer_bytes_max
    }

    fn needs_snapshots(&self) -> bool {
        false
    }

    fn take_wire(&mut self) -> Wire {
        std::mem::take(&mut self.queue.wire)
    }

    fn wire_of(&self, slot: Slot) -> Wire {
        let WireBytes { sent, received } = self.queue.machine.wire(slot);
        Wire {
            sent,
            received,
            ..Wire::default()
        }
    }

    fn next_event(&mut self) -> Option<LinkEvent> {
        loop {
            if let Some(event) = self.machine_event() {
                return Some(event);
            }
            if let Some(failure) = self.queue.failure.take() {
                return Some(LinkEvent::Failed(failure));
            }
            if self.queue.feed_message() || self.poll() {
                continue;
            }
            let event = self.owner.next_event()?;
            self.ring_event(event.tag);
        }
    }

    fn settle(&mut self) -> Health {
        if !self.queue.is_over {
            self.queue.post_receives();
            let (owed, awaited) = (&mut self.owed, &mut self.awaited);
            let settled = |buffers: &mut [Option<IoBuf>], posted| {
                if let Posted::Response {
                    slot,
                    with_data: false,
                } = posted
                {
                    owed.settle(slot);
                    awaited.settle(slot);
                    if let Some(place) = buffers.get_mut(slot.index()) {
                        *place = None;
                    }
                }
            };
            self.queue
                .post_work(&mut self.batch, &mut self.buffers, settled);
            self.sleep_well();
        }
        if self.queue.failure.is_some() {
            // It is told before the link is dropped.
            self.timer(Instant::now(), TAG_AGAIN);
            return Health::Live;
        }
        if self.queue.is_over {
            Health::Over
        } else {
            Health::Live
        }
    }

    fn wants_turn(&self) -> bool {
        self.is_polled && !self.watch.is_armed && self.watch.empty_turns < EMPTY_POLLS_MAX
    }

    fn command(&self, slot: Slot) -> &Sqe {
        self.queue.machine.command(slot)
    }

    fn transfer(&self, slot: Slot) -> Transfer {
        self.queue.machine.transfer(slot)
    }

    fn find(&self, cid: Cid) -> Option<Slot> {
        self.queue.machine.find(cid)
    }

    fn outstanding(&self) -> Vec<Slot> {
        let machine = &self.queue.machine;
        let occupied = machine.occupied();
        occupied
            .filter(|&slot| machine.is_outstanding(slot))
            .collect()
    }

    fn set_buffer(&mut self, slot: Slot, buf: IoBuf) {
        if self.buffers.len() <= slot.index() {
            self.buffers.resize_with(slot.index() + 1, || None);
        }
        self.buffers[slot.index()] = Some(buf);
    }

    fn take_buffer(&mut self, slot: Slot) -> Option<IoBuf> {
        if self.queue.machine.is_read_into(slot) {
            return None;
        }
        self.buffers.get_mut(slot.index())?.take()
    }

    fn request_data(&mut self, slot: Slot) -> Result<(), Status> {
        let now = self.queue.clock.now();
        self.queue.machine.request_data(slot, now)?;
        let bytes = self.queue.machine.transfer(slot).bytes();
        self.awaited.enter(slot, bytes);
        Ok(())
    }

    fn awaited_bytes(&self) -> u64 {
        self.awaited.bytes()
    }

    fn owe(&mut self, slot: Slot, bytes: u32) {
        self.owed.enter(slot, bytes);
    }

    fn owed_bytes(&self) -> u64 {
        self.owed.bytes()
    }

    fn respond(&mut self, slot: Slot, completion: Completion, data_bytes: u32) {
        self.queue.machine.respond(slot, completion, data_bytes);
        if self.queue.machine.is_read_into(slot) {
            // Its memory is held, and counts, until the answer is posted.
            return;
        }
        self.awaited.settle(slot);
        // Otherwise when the data have left.
        if data_bytes == 0 {
            self.drop_buffer(slot);
        }
    }

    fn established(&mut self, admitted: &Admitted) {
        self.queue
            .machine
            .established(admitted.entries, admitted.flow_control);
        self.queue.machine.authenticated();
        self.is_polled = !admitted.queue.is_admin();
        let slots = usize::from(self.slots_max());
        if self.buffers.len() < slots {
            self.buffers.resize_with(slots, || None);
        }
        self.owed.reserve(slots);
        self.awaited.reserve(slots);
    }

    fn pause(&mut self) {}

    fn is_idle(&self) -> bool {
        self.buffers.iter().all(Option::is_none)
    }

    fn part(self: Box<Self>) -> Option<Box<dyn Parted>> {
        self.is_idle()
            .then(|| Box::new(Between { queue: self.queue }) as Box<dyn Parted>)
    }

    fn end(&mut self) {
        self.queue.end();
    }

    fn let_go(&mut self) -> Option<Box<dyn Farewell>> {
        // Its end tells the host.
        None
    }
}

/// A queue between two rings. What comes meanwhile waits in its completion queue.
#[derive(Debug)]
struct Between {
    queue: Elsewhere<Queue>,
}

impl Parted for Between {
    fn join(self: Box<Self>, ring: &Ring) -> Result<Box<dyn Link>, LinkError> {
        Ok(Box::new(RdmaLink::new(self.queue, ring)?))
    }
}

fn no_operations() -> LinkError {
    LinkError::Resources("the ring has no room for another connection's waits".to_owned())
}

/// A descriptor that the ring's operations hold open as long as they need it.
pub(crate) fn shared(descriptor: BorrowedFd<'_>) -> Result<Fd, LinkError> {
    Ok(Fd::from(descriptor.try_clone_to_owned()?))
}
