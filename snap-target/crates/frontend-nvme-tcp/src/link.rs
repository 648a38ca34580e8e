//! One connection's bytes: between its socket and its machine, with the buffers of its commands.
//!
//! This half sends, and hands out events; `receive` takes bytes in.

mod receive;

use nix::sys::socket::{setsockopt, sockopt};
use nvme::tcp::batch::{Slot, TxBatch};
use nvme::tcp::target::{Connection as Machine, Event as MachineEvent, Want};
use reactor::buf::IoBuf;
use reactor::{Event, Fd, Owner, OwnerId, Payload, ReactorError, Ring, SendBatch};

use crate::digest;
use crate::limits::{
    BATCH_HEADER_BYTES, BATCH_PDUS_MAX, BATCH_SEGMENTS_MAX, LINGER, SEND_POSTPONED_MAX,
};
use frontend_nvme::Clock;
use receive::Inflow;
pub(crate) use receive::Receiving;

/// What an event of the link's owner belongs to.
const TAG_RECV: u64 = 0;
const TAG_SEND: u64 = 1;
const TAG_TIMER: u64 = 2;
const TAG_STALL: u64 = 3;

/// What a link has for its driver.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// Of the machine.
    Machine(MachineEvent),
    /// A timer of [`Link::timer`].
    Timer,
}

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

/// How the link stands after some events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// It goes on.
    Live,
    /// The socket ended or failed, or the machine has closed and its last bytes have left.
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    owner: Owner,
    socket: Fd,
    pub(crate) machine: Machine,
    /// By slot: where its payload goes or comes from.
    buffers: Vec<Option<IoBuf>>,
    inflow: Inflow,
    tx: TxBatch,
    batch: Option<SendBatch>,
    /// Turns that what is to be sent has waited for more.
    postponed: usize,
    /// A timer is armed for the machine's deadline.
    watched: bool,
    /// By slot: bytes of the answer to a read, from its beginning until they are sent; and their sum.
    owed: Vec<u32>,
    owed_bytes: u64,
    /// Sends that ended.
    sends_ended: u64,
    stall_watch: Option<StallWatch>,
    over: bool,
    /// The host was given time to take a send, and did not.
    is_deaf: bool,
    /// The host closed the connection, or it broke.
    is_gone: bool,
    /// CNTLID and queue, for log lines; none before Connect has succeeded.
    pub(crate) name: Option<(u16, u16)>,
    pub(crate) wire: Wire,
}

/// Bytes that went over the wire since this was last taken.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Link {
    /// A link over a connected socket, on this thread's ring.
    ///
    /// # Errors
    /// [`ReactorError::Full`] when the ring has no more owners.
    pub(crate) fn new(
        ring: &Ring,
        socket: Fd,
        machine: Machine,
        receiving: Receiving,
    ) -> Result<Self, ReactorError> {
        Ok(Self {
            owner: ring.register()?,
            socket,
            machine,
            buffers: Vec::new(),
            inflow: Inflow::new(receiving)?,
            tx: TxBatch::with_capacity(BATCH_PDUS_MAX),
            batch: Some(SendBatch::new(BATCH_HEADER_BYTES, BATCH_SEGMENTS_MAX)),
            postponed: 0,
            watched: false,
            owed: Vec::new(),
            owed_bytes: 0,
            sends_ended: 0,
            stall_watch: None,
            over: false,
            is_deaf: false,
            is_gone: false,
            name: None,
            wire: Wire::default(),
        })
    }

    /// Its name in [`Ring::next_ready`].
    pub(crate) fn owner_id(&self) -> OwnerId {
        self.owner.id()
    }

    /// Arms a timer of this link.
    pub(crate) fn timer(&self, at: std::time::Instant) -> Result<reactor::TimerId, ReactorError> {
        self.owner.timer(at, TAG_TIMER)
    }

    /// Arms a timer for the machine's deadline, where it has one and none is armed.
    pub(crate) fn watch(&mut self, clock: Clock) {
        if !self.watched
            && let Some(deadline) = self.machine.deadline()
        {
            self.watched = true;
            // Without room for a timer nothing would ever end this connection.
            self.over |= self.timer(clock.instant(deadline)).is_err();
        }
    }

    /// A timer of this link came: lets time pass. A connection that is closing ends: its last send has had its time.
    pub(crate) fn tick(&mut self, clock: Clock) {
        self.watched = false;
        self.machine.tick(clock.now());
        if self.is_closing() {
            self.over = true;
            self.is_deaf = self.batch.is_none();
        }
        self.watch(clock);
    }

    /// Whether nothing is being received, held or sent, and nothing waits to be.
    pub(crate) fn is_idle(&self) -> bool {
        self.inflow.is_idle() && self.batch.is_some() && !self.machine.has_outgoing()
    }

    /// Takes the machine out to move the connection; `None` where the link is not idle. The socket's own descriptor is closed.
    pub(crate) fn into_machine(self) -> Option<Machine> {
        self.is_idle().then_some(self.machine)
    }

    /// Whether the machine has closed; its last bytes may still be leaving.
    pub(crate) fn is_closing(&self) -> bool {
        self.machine.want() == Want::Closed
    }

    /// Whether it is to be settled again after the next turn, which may not wait.
    pub(crate) fn is_postponed(&self) -> bool {
        self.postponed > 0
    }

    /// Ends the connection whatever is under way.
    pub(crate) fn end(&mut self) {
        self.over = true;
    }

    /// Gives a slot its buffer: what will be received into, or sent from.
    pub(crate) fn set_buffer(&mut self, slot: Slot, buf: IoBuf) {
        if self.buffers.len() <= slot.index() {
            self.buffers.resize_with(slot.index() + 1, || None);
        }
        self.buffers[slot.index()] = Some(buf);
    }

    /// Counts the answer that a read will bring, from now until it is sent.
    pub(crate) fn owe(&mut self, slot: Slot, bytes: u32) {
        if self.owed.len() <= slot.index() {
            self.owed.resize(slot.index() + 1, 0);
        }
        self.owed[slot.index()] = bytes;
        self.owed_bytes += u64::from(bytes);
    }

    /// Bytes of reads that were begun and whose answers are not sent.
    pub(crate) fn owed_bytes(&self) -> u64 {
        self.owed_bytes
    }

    fn paid(&mut self, slot: Slot) {
        if let Some(owed) = self.owed.get_mut(slot.index()) {
            self.owed_bytes -= u64::from(std::mem::take(owed));
        }
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

    /// Takes a slot's buffer.
    pub(crate) fn take_buffer(&mut self, slot: Slot) -> Option<IoBuf> {
        self.buffers.get_mut(slot.index())?.take()
    }

    /// The next thing for the driver to look at. Receives and sends are handled inside.
    pub(crate) fn next_event(&mut self) -> Option<LinkEvent> {
        loop {
            if let Some(event) = self.machine.next_event() {
                self.note(&event);
                return Some(LinkEvent::Machine(event));
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
                _ => return Some(LinkEvent::Timer),
            }
        }
    }

    /// Arms the next receive and starts the next send: what is due after the driver has answered every event.
    pub(crate) fn settle(&mut self) -> Health {
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

    /// Before it is dropped, because the connection has ended here: the socket, where the host is to be told so before it is closed.
    ///
    /// What the kernel holds for the host when the socket is closed must go as well: nobody here counts it any more, and a host that takes nothing
    /// would keep it for as long as it lives. One that has had its time gets a reset, which drops all at once. The others have a little time
    /// for the last answers, a C2HTermReq among them, which a reset would overtake.
    pub(crate) fn let_go(&self) -> Option<Fd> {
        let socket = self.socket.owned()?;
        let set = if self.is_deaf {
            let reset = nix::libc::linger {
                l_onoff: 1,
                l_linger: 0,
            };
            setsockopt(&socket, sockopt::Linger, &reset)
        } else {
            let millis = u32::try_from(LINGER.as_millis()).unwrap_or(u32::MAX);
            setsockopt(&socket, sockopt::TcpUserTimeout, &millis)
        };
        if let Err(error) = set {
            tracing::debug!(%error, "the system decides how long it holds what the host has not taken");
        }
        (!self.is_deaf && !self.is_gone).then(|| self.socket.clone())
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
                self.take_buffer(slot);
                self.paid(slot);
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
