//! One connection's bytes: between its socket and its machine, with the buffers of its commands.
//!
//! This half sends, and hands out events; `receive` takes bytes in.

mod contract;
mod receive;

use std::net::{SocketAddr, TcpStream};

use frontend_nvme::link::{LINGER, LinkError, LinkEvent, LinkFailure, LinkLimits, Wire};
use frontend_nvme::{Clock, Ledger};
use nvme::tcp::batch::TxBatch;
use nvme::tcp::target::{
    Connection as Machine, Event as MachineEvent, SuccessFlag, TargetLimits, Want,
};
use reactor::buf::IoBuf;
use reactor::{Event, Fd, Owner, Payload, ReactorError, Ring, SendBatch};

use crate::digest;
use crate::limits::{BATCH_HEADER_BYTES, BATCH_PDUS_MAX, BATCH_SEGMENTS_MAX};
use crate::socket;
use receive::{Inflow, Receiving};

/// What an event of the link's owner belongs to.
const TAG_RECV: u64 = 0;
const TAG_SEND: u64 = 1;
const TAG_TIMER: u64 = 2;
const TAG_STALL: u64 = 3;

/// Looks at a send for which its host has the time of a write's data: a host is let go between the whole time and a look more.
const STALL_LOOKS: u32 = 4;

/// Of a link with something to send.
#[derive(Clone, Copy, Debug)]
struct StallWatch {
    /// Sends that had ended at the last look.
    sends_ended: u64,
    /// Looks since then that found a send under way and no other number.
    in_vain: u32,
}

impl StallWatch {
    /// A watch that begins.
    fn new(sends_ended: u64) -> Self {
        Self {
            sends_ended,
            in_vain: 0,
        }
    }

    /// After a look that found a send under way; none where the host's time is over.
    fn looked(self, sends_ended: u64) -> Option<Self> {
        if self.sends_ended != sends_ended {
            return Some(Self::new(sends_ended));
        }
        let in_vain = self.in_vain + 1;
        (in_vain < STALL_LOOKS).then_some(Self { in_vain, ..self })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct TcpLink {
    owner: Owner,
    socket: Fd,
    /// The same socket, in a form that may go to another thread; none where the link stays.
    movable: Option<TcpStream>,
    local: SocketAddr,
    peer: SocketAddr,
    clock: Clock,
    machine: Machine,
    /// By slot: where its payload goes or comes from.
    buffers: Vec<Option<IoBuf>>,
    inflow: Inflow,
    tx: TxBatch,
    batch: Option<SendBatch>,
    /// Turns that what is to be sent has waited for more.
    postponed: usize,
    /// A timer is armed for the machine's deadline.
    watched: bool,
    /// Answers to reads, from their beginning until they are sent.
    owed: Ledger,
    /// Sends that ended.
    sends_ended: u64,
    stall_watch: Option<StallWatch>,
    over: bool,
    /// The host was given time to take a send, and did not.
    is_deaf: bool,
    /// The host closed the connection, or it broke.
    is_gone: bool,
    /// CNTLID and queue, for log lines; none before Connect has succeeded.
    name: Option<(u16, u16)>,
    wire: Wire,
}

/// What of a link lives longer than its stay on a ring.
#[derive(Debug)]
struct Carried {
    local: SocketAddr,
    peer: SocketAddr,
    clock: Clock,
    machine: Machine,
    wire: Wire,
}

impl TcpLink {
    /// A connection that was just accepted.
    ///
    /// # Errors
    /// The socket is gone already, or the ring is full.
    pub(crate) fn accepted(
        ring: &Ring,
        stream: TcpStream,
        limits: &LinkLimits,
        success_flag: SuccessFlag,
        clock: Clock,
    ) -> Result<Self, LinkError> {
        socket::prepare(&stream)?;
        let limits = TargetLimits {
            queue_entries_max: limits.queue_entries_max,
            capsule_data_bytes: limits.capsule_data_bytes,
            transfer_bytes_max: limits.transfer_bytes_max,
            connect_timeout: limits.connect_timeout,
            data_timeout: limits.data_timeout,
            success_flag,
            ..TargetLimits::default()
        };
        let carried = Carried {
            local: stream.local_addr()?,
            peer: stream.peer_addr()?,
            clock,
            machine: Machine::new(&limits, clock.now()),
            wire: Wire::default(),
        };
        let socket = Fd::from(stream.try_clone()?);
        let mut link = Self::new(ring, socket, carried, Receiving::Exactly)?;
        link.movable = Some(stream);
        link.watch();
        Ok(link)
    }

    fn new(
        ring: &Ring,
        socket: Fd,
        carried: Carried,
        receiving: Receiving,
    ) -> Result<Self, ReactorError> {
        let Carried {
            local,
            peer,
            clock,
            machine,
            wire,
        } = carried;
        Ok(Self {
            owner: ring.register()?,
            socket,
            movable: None,
            local,
            peer,
            clock,
            machine,
            buffers: Vec::new(),
            inflow: Inflow::new(receiving)?,
            tx: TxBatch::with_capacity(BATCH_PDUS_MAX),
            batch: Some(SendBatch::new(BATCH_HEADER_BYTES, BATCH_SEGMENTS_MAX)),
            postponed: 0,
            watched: false,
            owed: Ledger::default(),
            sends_ended: 0,
            stall_watch: None,
            over: false,
            is_deaf: false,
            is_gone: false,
            name: None,
            wire,
        })
    }

    /// Arms a timer for the machine's deadline, where it has one and none is armed.
    fn watch(&mut self) {
        if !self.watched
            && let Some(deadline) = self.machine.deadline()
        {
            self.watched = true;
            // Without room for a timer nothing would ever end this connection.
            let at = self.clock.instant(deadline);
            self.over |= self.owner.timer(at, TAG_TIMER).is_err();
        }
    }

    /// A timer of this link came: lets time pass. A connection that is closing ends: its last send has had its time.
    fn tick(&mut self) {
        self.watched = false;
        self.machine.tick(self.clock.now());
        if self.machine.want() == Want::Closed {
            self.over = true;
            self.is_deaf = self.batch.is_none();
        }
        self.watch();
    }

    /// The machine has closed: its last send may hang on a host that reads nothing.
    fn linger(&mut self) {
        let at = std::time::Instant::now() + LINGER;
        self.over |= self.owner.timer(at, TAG_TIMER).is_err();
    }

    /// One timer is armed while there is something to send; it looks whether the host took anything meanwhile. A host has as long for that as for
    /// the data of its writes: either way it holds memory that all share.
    fn watch_sends(&mut self) {
        if self.stall_watch.is_none() {
            self.look_later(StallWatch::new(self.sends_ended));
        }
    }

    fn look_later(&mut self, watch: StallWatch) {
        self.stall_watch = Some(watch);
        let at = std::time::Instant::now() + self.machine.limits().data_timeout / STALL_LOOKS;
        self.over |= self.owner.timer(at, TAG_STALL).is_err();
    }

    fn look_at_sends(&mut self) {
        let watch = self.stall_watch.take();
        let is_sending = self.batch.is_none();
        let Some(watch) = watch.filter(|_| is_sending) else {
            return;
        };
        if let Some(watch) = watch.looked(self.sends_ended) {
            self.look_later(watch);
            return;
        }
        let (cntlid, sqid) = self.name.unzip();
        tracing::warn!(
            cntlid,
            sqid,
            seconds = self.machine.limits().data_timeout.as_secs(),
            "the host takes nothing of what is sent to it; the connection ends"
        );
        self.over = true;
        self.is_deaf = true;
    }

    /// What a machine's event is to the driver.
    fn told(&mut self, event: MachineEvent) -> LinkEvent {
        match event {
            MachineEvent::Connect { slot } | MachineEvent::Command { slot } => {
                LinkEvent::Command { slot }
            }
            MachineEvent::DataReady { slot } => {
                self.inflow.awaited.settle(slot);
                LinkEvent::DataReady { slot }
            }
            MachineEvent::DataCorrupt { slot } => {
                self.inflow.awaited.settle(slot);
                LinkEvent::DataCorrupt { slot }
            }
            MachineEvent::Fatal(error) => {
                self.linger();
                LinkEvent::Failed(LinkFailure::Protocol(error.to_string()))
            }
            MachineEvent::HostTerminated {
                status,
                information,
            } => {
                let why = format!("H2CTermReq, {status:?}, FEI {information:#x}");
                LinkEvent::Failed(LinkFailure::Host(why))
            }
            MachineEvent::TimedOut => LinkEvent::Failed(LinkFailure::TimedOut),
        }
    }

    /// Starts one gathered send of what the machine has, unless one is under way.
    fn send(&mut self) {
        if self.over || !self.machine.has_outgoing() {
            return;
        }
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        self.watch_sends();
        self.machine.transmit(&mut self.tx);
        if !self.fill(&mut batch) {
            self.over = true;
        }
        if let Err(refused) = self.owner.send(&self.socket, batch, TAG_SEND) {
            // More operations than the ring has room for: the configuration's limits forbid it. The batch cannot be taken back.
            drop(refused);
            self.over = true;
        }
    }

    /// Gathers the machine's items; false where a slot's buffer is missing or shorter than its answer.
    fn fill(&mut self, batch: &mut SendBatch) -> bool {
        for index in 0..self.tx.items().len() {
            let Some(item) = self.tx.items().get(index).cloned() else {
                break;
            };
            if !batch.push_bytes(self.tx.header(&item)) {
                return false;
            }
            let Some(payload) = item.payload else {
                continue;
            };
            let Some(buf) = self
                .buffers
                .get(payload.slot.index())
                .and_then(Option::as_ref)
            else {
                return false;
            };
            let (offset, len) = (payload.offset as usize, payload.len as usize);
            if !batch.push_payload(buf, offset..offset + len) {
                return false;
            }
            if item.data_digest() {
                self.tx
                    .set_data_digest(index, digest::of_buf(0, buf, offset, len));
                if !batch.push_bytes(self.tx.digest(&item)) {
                    return false;
                }
            }
        }
        true
    }

    fn sent(&mut self, event: Event) {
        self.sends_ended += 1;
        self.wire.sent += u64::from(event.result.unwrap_or(0));
        if let Payload::Sent(mut batch) = event.payload {
            batch.clear();
            self.batch = Some(batch);
        }
        if event.result.is_err() {
            self.over = true;
            self.is_gone = true;
        }
        for index in 0..self.tx.items().len() {
            if let Some(slot) = self.tx.items().get(index).and_then(|item| item.ends) {
                if let Some(buf) = self.buffers.get_mut(slot.index()) {
                    *buf = None;
                }
                self.owed.settle(slot);
                self.machine.transmitted(slot);
            }
        }
        self.tx.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{STALL_LOOKS, StallWatch};

    /// A send that ends just behind a look costs that look alone, not the whole time once more.
    #[test]
    fn a_host_has_its_time_and_a_look() {
        let ended_late = StallWatch::new(7).looked(8).unwrap();
        let mut looks = 0;
        let mut watch = Some(ended_late);
        while let Some(last) = watch {
            watch = last.looked(8);
            looks += 1;
        }
        assert_eq!(looks, STALL_LOOKS);
        let almost = (1..STALL_LOOKS).try_fold(ended_late, |watch, _| watch.looked(8));
        assert_eq!(almost.and_then(|it| it.looked(9)).unwrap().in_vain, 0);
    }
}
