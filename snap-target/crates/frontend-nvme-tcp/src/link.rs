//! One connection's bytes: between its socket and its machine, with the buffers of its commands.
//!
//! Before Connect a link receives exactly the bytes that the machine wants, so that nothing has been read ahead when the connection moves
//! to another reactor. Afterwards it receives whatever comes into the ring's shared buffers, and long payload straight into its place.

use std::collections::VecDeque;

use nvme::digest::crc32c_append;
use nvme::queue::Transfer;
use nvme::tcp::batch::{Slot, TxBatch};
use nvme::tcp::target::{Connection as Machine, Event as MachineEvent, Want};
use nvme_spec::Status;
use reactor::buf::IoBuf;
use reactor::{Event, Fd, OpId, Owner, OwnerId, Payload, ReactorError, RecvChunk, Ring, SendBatch};

use crate::digest;
use crate::limits::{
    BATCH_HEADER_BYTES, BATCH_PDUS_MAX, BATCH_SEGMENTS_MAX, CONTROL_BYTES_MAX,
    DIRECT_RECEIVE_BYTES_MIN,
};

/// What an event of the link's owner belongs to.
const TAG_RECV: u64 = 0;
const TAG_SEND: u64 = 1;
const TAG_TIMER: u64 = 2;

/// How bytes come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// Exactly what the machine wants, into a buffer of that size.
    Exactly,
    /// What comes, into the ring's buffers.
    Freely,
    /// Nothing: the connection is about to move.
    Paused,
}

/// What a link has for its driver.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// Of the machine.
    Machine(MachineEvent),
    /// A timer of [`Link::timer`].
    Timer,
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
    /// Commands whose data an R2T asked for and that have not all come.
    awaited: usize,
    receiving: Receiving,
    armed: Option<Armed>,
    /// Received bytes that the machine does not take yet, in order.
    held: VecDeque<RecvChunk>,
    /// Bytes of the first of them that it took.
    held_used: usize,
    tx: TxBatch,
    batch: Option<SendBatch>,
    over: bool,
}

/// The receive that is under way.
#[derive(Clone, Copy, Debug)]
enum Armed {
    /// Into the ring's buffers, repeating; being cancelled or not.
    Chunks {
        op: OpId,
        repeating: bool,
        cancelling: bool,
    },
    /// Header bytes or a digest, into a small buffer.
    Header,
    /// The machine's payload, into its slot's buffer.
    Payload,
    /// Payload that goes nowhere.
    Discard,
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
            awaited: 0,
            receiving,
            armed: None,
            held: VecDeque::new(),
            held_used: 0,
            tx: TxBatch::with_capacity(BATCH_PDUS_MAX),
            batch: Some(SendBatch::new(BATCH_HEADER_BYTES, BATCH_SEGMENTS_MAX)),
            over: false,
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

    /// Whether nothing is being received, held or sent, and nothing waits to be.
    pub(crate) fn is_idle(&self) -> bool {
        self.armed.is_none()
            && self.held.is_empty()
            && self.batch.is_some()
            && !self.machine.has_outgoing()
    }

    /// Takes the machine out to move the connection; `None` where the link is not idle. The socket's own descriptor is closed.
    pub(crate) fn into_machine(self) -> Option<Machine> {
        self.is_idle().then_some(self.machine)
    }

    /// From now on receives like this; what is under way is not touched.
    pub(crate) fn set_receiving(&mut self, receiving: Receiving) {
        self.receiving = receiving;
    }

    /// Whether the machine has closed; its last bytes may still be leaving.
    pub(crate) fn is_closing(&self) -> bool {
        self.machine.want() == Want::Closed
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

    /// Asks the host for a command's data, which go into the slot's buffer.
    pub(crate) fn request_data(&mut self, slot: Slot) -> Result<(), Status> {
        self.machine.request_data(slot)?;
        self.awaited += 1;
        Ok(())
    }

    fn note(&mut self, event: &MachineEvent) {
        if let MachineEvent::DataReady { slot } | MachineEvent::DataCorrupt { slot } = event
            && matches!(self.machine.transfer(*slot), Transfer::Remote { .. })
        {
            self.awaited = self.awaited.saturating_sub(1);
        }
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
                TAG_RECV => self.received(event),
                TAG_SEND => self.sent(event),
                _ => return Some(LinkEvent::Timer),
            }
        }
    }

    /// Arms the next receive and starts the next send: what is due after the driver has answered every event.
    pub(crate) fn settle(&mut self) -> Health {
        self.receive();
        self.send();
        let closed = self.machine.want() == Want::Closed
            && !self.machine.has_outgoing()
            && self.batch.is_some();
        if self.over || closed {
            Health::Over
        } else {
            Health::Live
        }
    }

    fn received(&mut self, event: Event) {
        let armed = self.armed;
        if !event.more {
            self.armed = None;
        }
        match (event.result, event.payload) {
            (Ok(count), Payload::Chunk(chunk)) if count > 0 => self.take_chunk(chunk),
            (Ok(count), Payload::Buf(buf)) if count as usize == buf.len() => {
                self.take_buf(armed, &buf)
            }
            // Every shared buffer was in use, or the receive was cancelled to receive in place: arm again.
            (Err(reactor::Errno::ENOBUFS | reactor::Errno::ECANCELED), _) => {}
            _ => self.over = true,
        }
    }

    fn take_chunk(&mut self, chunk: RecvChunk) {
        let used = if self.held.is_empty() {
            self.feed(&chunk)
        } else {
            0
        };
        if used < chunk.len() {
            if self.held.is_empty() {
                self.held_used = used;
            }
            self.held.push_back(chunk);
        }
    }

    /// Hands bytes to the machine until it has an event or waits; says how many it took.
    fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            let took = match self.machine.want() {
                Want::Header(_) => self.machine.headers(rest),
                Want::Payload {
                    slot,
                    offset,
                    len,
                    digest,
                } => self.copy_payload(slot, offset, len, digest, rest),
                Want::Discard(len) => self.drop_payload(len, rest.len()),
                // Nothing is interpreted after the end.
                Want::Closed => rest.len(),
                Want::Event | Want::Slot => 0,
            };
            if took == 0 {
                break;
            }
            used += took;
        }
        used
    }

    fn copy_payload(
        &mut self,
        slot: Slot,
        offset: u32,
        len: u32,
        digest: bool,
        bytes: &[u8],
    ) -> usize {
        let count = bytes.len().min(len as usize);
        let bytes = &bytes[..count];
        let Some(buf) = self.buffers.get_mut(slot.index()).and_then(Option::as_mut) else {
            // The driver gives every slot that can receive its buffer first; without one the data go nowhere.
            return 0;
        };
        buf.copy_from(offset as usize, bytes);
        let crc = if digest {
            crc32c_append(self.machine.payload_crc(), bytes)
        } else {
            0
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most `len`")]
        self.machine.payload(count as u32, crc);
        count
    }

    fn drop_payload(&mut self, len: u32, available: usize) -> usize {
        let count = available.min(len as usize);
        #[expect(clippy::cast_possible_truncation, reason = "at most `len`")]
        self.machine.payload(count as u32, 0);
        count
    }

    fn take_buf(&mut self, armed: Option<Armed>, buf: &IoBuf) {
        match (armed, self.machine.want()) {
            (
                Some(Armed::Payload),
                Want::Payload {
                    digest: wants_digest,
                    ..
                },
            ) => {
                let crc = if wants_digest {
                    digest::of_buf(self.machine.payload_crc(), buf, 0, buf.len())
                } else {
                    0
                };
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "as long as the machine's u32 said"
                )]
                self.machine.payload(buf.len() as u32, crc);
            }
            (Some(Armed::Discard), Want::Discard(_)) => {
                self.drop_payload(u32::MAX, buf.len());
            }
            (Some(Armed::Header), _) => {
                let mut bytes = [0; 256];
                let count = buf.copy_to(0, &mut bytes);
                let used = self.feed(&bytes[..count]);
                // Exactly what the machine wanted.
                self.over |= used < count;
            }
            _ => self.over = true,
        }
    }

    /// Feeds bytes that were held back; true if the machine took some.
    fn feed_held(&mut self) -> bool {
        let Some(chunk) = self.held.pop_front() else {
            return false;
        };
        let rest = &chunk[self.held_used..];
        let used = self.feed(rest);
        if used == rest.len() {
            self.held_used = 0;
        } else {
            self.held_used += used;
            self.held.push_front(chunk);
        }
        used > 0
    }

    /// Arms the receive that the machine's state asks for, unless one is under way.
    fn receive(&mut self) {
        if self.over || self.receiving == Receiving::Paused {
            return;
        }
        if !self.held.is_empty() {
            self.stop_repeating();
            return;
        }
        let direct = match self.machine.want() {
            Want::Payload {
                slot, offset, len, ..
            } if self.is_direct(len) => {
                let end = offset as usize + len as usize;
                let buf = self.buffers.get(slot.index()).and_then(Option::as_ref);
                buf.map(|buf| (Armed::Payload, buf.slice(offset as usize..end)))
            }
            Want::Discard(len) if self.receiving == Receiving::Exactly => {
                small(len as usize).map(|buf| (Armed::Discard, buf))
            }
            Want::Header(count) if self.receiving == Receiving::Exactly => {
                small(count).map(|buf| (Armed::Header, buf))
            }
            Want::Event | Want::Slot | Want::Closed => return,
            _ => None,
        };
        match (self.armed, direct) {
            (None, Some((armed, buf))) => {
                let started = self.owner.recv_into(&self.socket, buf, TAG_RECV).is_ok();
                self.armed = started.then_some(armed);
                self.over |= !started;
            }
            (None, None) => self.receive_chunks(),
            (Some(_), Some(_)) => self.stop_repeating(),
            (Some(_), None) if self.awaited > 0 => self.stop_repeating(),
            _ => {}
        }
    }

    /// Ends a repeating receive: what comes next is to stay in the socket.
    fn stop_repeating(&mut self) {
        if let Some(Armed::Chunks {
            op,
            repeating: true,
            cancelling: false,
        }) = self.armed
        {
            self.owner.ring().cancel(op);
            self.armed = Some(Armed::Chunks {
                op,
                repeating: true,
                cancelling: true,
            });
        }
    }

    fn is_direct(&self, len: u32) -> bool {
        self.receiving == Receiving::Exactly || len >= DIRECT_RECEIVE_BYTES_MIN
    }

    /// Receives into the ring's buffers: repeating, but where long payload is about to come (an R2T is out) once, so that what follows stays
    /// in the socket and can be received in place.
    fn receive_chunks(&mut self) {
        let repeating = self.awaited == 0;
        let started = if repeating {
            self.owner.recv(&self.socket, TAG_RECV)
        } else {
            self.owner.recv_once(&self.socket, TAG_RECV)
        };
        // The ring has room for a receive and a send of every connection; without room nothing would ever wake this one again.
        self.over |= started.is_err();
        self.armed = started.ok().map(|op| Armed::Chunks {
            op,
            repeating,
            cancelling: false,
        });
    }

    /// Starts one gathered send of what the machine has, unless one is under way.
    fn send(&mut self) {
        if self.over || !self.machine.has_outgoing() {
            return;
        }
        let Some(mut batch) = self.batch.take() else {
            return;
        };
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
        if let Payload::Sent(mut batch) = event.payload {
            batch.clear();
            self.batch = Some(batch);
        }
        if event.result.is_err() {
            self.over = true;
        }
        for index in 0..self.tx.items().len() {
            if let Some(slot) = self.tx.items().get(index).and_then(|item| item.ends) {
                self.take_buffer(slot);
                self.machine.transmitted(slot);
            }
        }
        self.tx.clear();
    }
}

/// A buffer for control bytes that are received exactly.
fn small(len: usize) -> Option<IoBuf> {
    IoBuf::heap(len.min(CONTROL_BYTES_MAX)).ok()
}
