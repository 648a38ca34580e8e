//! What the target asks of a link ([`Link`]), answered by its machine and its socket.

use std::net::{SocketAddr, TcpStream};

use frontend_nvme::link::{Farewell, Health, Link, LinkError, LinkEvent, Parted, Wire};
use nvme::controller::{Admitted, Transport};
use nvme::queue::{Completion, Slot, Transfer, WireBytes};
use nvme::tcp::target::Want;
use nvme_spec::{Cid, Sqe, Status};
use reactor::buf::IoBuf;
use reactor::{Fd, OwnerId, Ring};

use super::receive::Receiving;
use super::{Carried, TAG_RECV, TAG_SEND, TAG_STALL, TcpLink};
use crate::farewell::TcpFarewell;
use crate::limits::SEND_POSTPONED_MAX;
use crate::socket;

impl Link for TcpLink {
    fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn local(&self) -> SocketAddr {
        self.local
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn slots_max(&self) -> u16 {
        self.machine.limits().slots_max()
    }

    fn transfer_bytes_max(&self) -> u32 {
        self.machine.limits().transfer_bytes_max
    }

    fn needs_snapshots(&self) -> bool {
        let (_, data_digest) = self.machine.digests();
        data_digest
    }

    fn take_wire(&mut self) -> Wire {
        std::mem::take(&mut self.wire)
    }

    fn wire_of(&self, slot: Slot) -> Wire {
        let WireBytes { sent, received } = self.machine.wire(slot);
        Wire {
            sent,
            received,
            ..Wire::default()
        }
    }

    fn next_event(&mut self) -> Option<LinkEvent> {
        loop {
            if let Some(event) = self.machine.next_event() {
                return Some(self.told(event));
            }
            if self.feed_held() {
                continue;
            }
            let event = self.owner.next_event()?;
            match event.tag {
                TAG_RECV => {
                    self.wire.received += u64::from(event.result.unwrap_or(0));
                    self.received(event);
                }
                TAG_SEND => self.sent(event),
                TAG_STALL => self.look_at_sends(),
                _ => self.tick(),
            }
        }
    }

    fn settle(&mut self) -> Health {
        self.receive();
        if self.takes_more_at_once() && self.postponed < SEND_POSTPONED_MAX {
            self.postponed += 1;
        } else {
            self.postponed = 0;
            self.send();
        }
        let closed = self.machine.want() == Want::Closed
            && !self.machine.has_outgoing()
            && self.batch.is_some();
        if self.over || closed {
            Health::Over
        } else {
            Health::Live
        }
    }

    fn wants_turn(&self) -> bool {
        self.postponed > 0
    }

    fn is_dry(&self) -> bool {
        self.inflow.dry
    }

    fn command(&self, slot: Slot) -> &Sqe {
        self.machine.command(slot)
    }

    fn transfer(&self, slot: Slot) -> Transfer {
        self.machine.transfer(slot)
    }

    fn find(&self, cid: Cid) -> Option<Slot> {
        self.machine.find(cid)
    }

    fn outstanding(&self) -> Vec<Slot> {
        let occupied = self.machine.occupied();
        occupied
            .filter(|slot| self.machine.is_outstanding(*slot))
            .collect()
    }

    fn set_buffer(&mut self, slot: Slot, buf: IoBuf) {
        if self.buffers.len() <= slot.index() {
            self.buffers.resize_with(slot.index() + 1, || None);
        }
        self.buffers[slot.index()] = Some(buf);
    }

    fn take_buffer(&mut self, slot: Slot) -> Option<IoBuf> {
        self.buffers.get_mut(slot.index())?.take()
    }

    fn request_data(&mut self, slot: Slot) -> Result<(), Status> {
        self.machine.request_data(slot, self.clock.now())?;
        self.watch();
        self.await_data(slot);
        Ok(())
    }

    fn awaited_bytes(&self) -> u64 {
        self.inflow.awaited.bytes()
    }

    fn owe(&mut self, slot: Slot, bytes: u32) {
        self.owed.enter(slot, bytes);
    }

    fn owed_bytes(&self) -> u64 {
        self.owed.bytes()
    }

    fn respond(&mut self, slot: Slot, completion: Completion, data_bytes: u32) {
        self.inflow.awaited.settle(slot);
        self.machine.respond(slot, completion, data_bytes);
        if data_bytes == 0 {
            self.take_buffer(slot);
            self.cancel_data(slot);
        }
    }

    fn established(&mut self, admitted: &Admitted) {
        self.machine
            .established(admitted.entries, admitted.flow_control);
        self.machine.authenticated();
        self.name = Some((admitted.controller.0, admitted.queue.0));
        if self.inflow.is_exact() {
            // An admin queue: it stays.
            self.set_receiving(Receiving::InPlace);
            self.movable = None;
        }
    }

    fn pause(&mut self) {
        // Not a byte of what follows may be read here.
        self.set_receiving(Receiving::Paused);
    }

    fn is_idle(&self) -> bool {
        self.inflow.is_idle() && self.batch.is_some() && !self.machine.has_outgoing()
    }

    fn part(self: Box<Self>) -> Option<Box<dyn Parted>> {
        if !self.is_idle() {
            return None;
        }
        let link = *self;
        Some(Box::new(PartedTcp {
            stream: link.movable?,
            carried: Carried {
                local: link.local,
                peer: link.peer,
                clock: link.clock,
                machine: link.machine,
                wire: link.wire,
            },
        }))
    }

    fn end(&mut self) {
        self.over = true;
    }

    /// What the kernel holds for the host when the socket is closed must go as well: nobody here counts it any more, and a host that takes nothing
    /// would keep it for as long as it lives. One that has had its time gets a reset, which drops all at once. The others have a little time
    /// for the last answers, a C2HTermReq among them, which a reset would overtake.
    fn let_go(&mut self) -> Option<Box<dyn Farewell>> {
        let set = if self.is_deaf {
            socket::reset_when_closed(&self.socket)
        } else {
            socket::hold_no_longer_than_linger(&self.socket)
        };
        if let Err(error) = set {
            tracing::debug!(%error, "the system decides how long it holds what the host has not taken");
        }
        let is_to_be_told = !self.is_deaf && !self.is_gone;
        is_to_be_told
            .then(|| TcpFarewell::new(self.owner.ring(), self.socket.clone()))
            .map(|farewell| Box::new(farewell) as Box<dyn Farewell>)
    }
}

/// A connection whose Connect is to be answered on another ring.
#[derive(Debug)]
struct PartedTcp {
    stream: TcpStream,
    carried: Carried,
}

impl Parted for PartedTcp {
    fn join(self: Box<Self>, ring: &Ring) -> Result<Box<dyn Link>, LinkError> {
        let socket = Fd::from(self.stream);
        let link = TcpLink::new(ring, socket, self.carried, Receiving::Freely)?;
        Ok(Box::new(link))
    }
}
