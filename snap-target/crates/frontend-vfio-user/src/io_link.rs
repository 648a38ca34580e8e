//! An I/O queue on its reactor.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use frontend_nvme::link::{Farewell, Health, Link, LinkError, LinkEvent, Parted, Wire};
use nvme::controller::{Admitted, Transport};
use nvme::queue::{Completion, Slot, Transfer};
use nvme_spec::{Cid, Sqe, Status};
use reactor::buf::IoBuf;
use reactor::{Fd, Owner, OwnerId, Ring};

use crate::common::Common;
use crate::completion::Completions;
use crate::queue::{Queue, Submissions};

/// `POLLIN` of poll(2).
pub(crate) const READABLE: i16 = 1;

/// What an event of the link's owner belongs to.
const TAG_BELL: u64 = 0;
const TAG_TELL: u64 = 1;

/// A function's client has no address.
pub(crate) const NOWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// An I/O queue on its way to its reactor.
#[derive(Debug)]
pub(crate) struct PartedQueue {
    pub(crate) common: Arc<Common>,
    pub(crate) submissions: Arc<Submissions>,
    pub(crate) completions: Arc<Completions>,
    pub(crate) slots: u16,
    pub(crate) transfer_bytes_max: u32,
}

impl Parted for PartedQueue {
    fn join(self: Box<Self>, ring: &Ring) -> Result<Box<dyn Link>, LinkError> {
        let bell = Fd::from(self.submissions.bell.try_clone()?);
        let owner = ring.register()?;
        let queue = Queue::new(
            &self.common,
            self.submissions,
            self.completions,
            self.slots,
            self.transfer_bytes_max,
        );
        let mut link = IoLink {
            owner,
            bell,
            is_waiting: false,
            timed_for: None,
            is_over: false,
            queue,
        };
        link.wait();
        Ok(Box::new(link))
    }
}

/// See the module.
#[derive(Debug)]
struct IoLink {
    owner: Owner,
    bell: Fd,
    /// The ring waits for the bell.
    is_waiting: bool,
    /// When a timer comes for answers that the host is not told of yet.
    timed_for: Option<Instant>,
    is_over: bool,
    queue: Queue,
}

impl IoLink {
    /// Has the ring wait for the bell.
    fn wait(&mut self) {
        if !self.is_waiting {
            self.is_waiting = self.owner.poll(&self.bell, READABLE, TAG_BELL).is_ok();
            // Without room for the operation nothing would ever wake this queue.
            self.is_over |= !self.is_waiting;
        }
        // Its time may have been made shorter since.
        if let Some(at) = self.queue.tells_at()
            && self.timed_for.is_none_or(|timed_for| at < timed_for)
        {
            let is_timed = self.owner.timer(at, TAG_TELL).is_ok();
            self.timed_for = is_timed.then_some(at);
            self.is_over |= !is_timed;
        }
    }
}

impl Drop for IoLink {
    /// Who waits for its last answers gets them, and is told of them.
    fn drop(&mut self) {
        self.queue.refresh();
        self.queue.post();
        self.queue.tell(false);
    }
}

impl Link for IoLink {
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
        self.queue.slots()
    }

    fn transfer_bytes_max(&self) -> u32 {
        self.queue.transfer_bytes_max()
    }

    fn needs_snapshots(&self) -> bool {
        false
    }

    fn take_wire(&mut self) -> Wire {
        self.queue.take_wire()
    }

    fn wire_of(&self, _slot: Slot) -> Wire {
        Wire::default()
    }

    fn next_event(&mut self) -> Option<LinkEvent> {
        if let Some(event) = self.queue.pending_event() {
            return Some(event);
        }
        while let Some(event) = self.owner.next_event() {
            if event.tag == TAG_TELL {
                self.timed_for = None;
                continue;
            }
            self.is_waiting = false;
            // Before anything that it tells of is looked at.
            self.queue.submissions().bell.hear();
            self.queue.refresh();
        }
        self.queue.next_event()
    }

    fn settle(&mut self) -> Health {
        self.queue.settle();
        self.wait();
        if self.is_over {
            Health::Over
        } else {
            Health::Live
        }
    }

    fn wants_turn(&self) -> bool {
        self.queue.is_polled() || self.queue.has_events()
    }

    fn is_due(&self) -> bool {
        self.queue.is_due()
    }

    fn command(&self, slot: Slot) -> &Sqe {
        self.queue.command(slot)
    }

    fn transfer(&self, slot: Slot) -> Transfer {
        self.queue.transfer(slot)
    }

    fn find(&self, cid: Cid) -> Option<Slot> {
        self.queue.find(cid)
    }

    fn outstanding(&self) -> Vec<Slot> {
        self.queue.outstanding().collect()
    }

    fn set_buffer(&mut self, slot: Slot, buf: IoBuf) {
        self.queue.set_buffer(slot, buf);
    }

    fn take_buffer(&mut self, slot: Slot) -> Option<IoBuf> {
        self.queue.take_buffer(slot)
    }

    fn request_data(&mut self, slot: Slot) -> Result<(), Status> {
        self.queue.request_data(slot)
    }

    fn awaited_bytes(&self) -> u64 {
        self.queue.awaited_bytes()
    }

    fn owe(&mut self, slot: Slot, bytes: u32) {
        self.queue.owe(slot, bytes);
    }

    fn owed_bytes(&self) -> u64 {
        self.queue.owed_bytes()
    }

    fn respond(&mut self, slot: Slot, completion: Completion, data_bytes: u32) {
        self.queue.respond(slot, completion, data_bytes);
    }

    fn established(&mut self, _admitted: &Admitted) {}

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

    fn deliver(&mut self, slot: Slot, data: &IoBuf) -> bool {
        self.queue.deliver(slot, data)
    }

    fn placed(&self, slot: Slot) -> Option<&IoBuf> {
        self.queue.placed(slot)
    }

    fn delivered(&mut self, bytes: u32) {
        self.queue.delivered(bytes);
    }

    fn lend(&mut self, slot: Slot, bytes: u32, into: &mut IoBuf) -> bool {
        self.queue.lend(slot, bytes, into)
    }

    fn place(&mut self, slot: Slot, bytes: u32) -> Result<(), Status> {
        self.queue.place(slot, bytes)
    }

    fn let_answers_go(&mut self) {
        self.queue.post();
    }
}
