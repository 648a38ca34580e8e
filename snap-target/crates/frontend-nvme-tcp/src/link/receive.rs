//! The receiving half of a link.
//!
//! Before Connect it receives exactly the bytes that the machine wants, so that nothing has been read ahead when the connection moves to
//! another reactor. Afterwards there are two ways:
//!
//! * **Into the ring's shared buffers**, repeating, while nothing but capsules can come: short payload is copied to its place.
//! * **In place**, while payload is expected that an R2T asked for: straight to where the machine wants it, and what follows it into the
//!   link's landing, so that the next header comes with the same receive. Bytes of the next payload that land there are copied.

use std::collections::VecDeque;
use std::ops::Range;

use frontend_nvme::Ledger;
use nvme::digest::crc32c_append;
use nvme::tcp::batch::Slot;
use nvme::tcp::target::Want;
use reactor::buf::IoBuf;
use reactor::{Errno, Event, OpId, Payload, ReactorError, RecvChunk};

use super::{TAG_RECV, TcpLink};
use crate::digest;
use crate::limits::{LANDING_BYTES, SEND_POSTPONED_MAX, SINGLE_RECEIVES};

/// How bytes come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    /// Exactly what the machine wants.
    Exactly,
    /// Whatever comes, in place: for a connection with little traffic, which is to need none of the ring's buffers.
    InPlace,
    /// Whatever comes, in either way of the module.
    Freely,
    /// Nothing: the connection is about to move.
    Paused,
}

/// What a link is receiving, and received bytes that the machine does not take yet.
#[derive(Debug)]
pub(super) struct Inflow {
    receiving: Receiving,
    /// Data of commands that an R2T asked for, until all have come or the command was answered.
    pub(super) awaited: Ledger,
    /// The last receive in place was filled: more is waiting in the socket.
    filled: bool,
    armed: Option<Armed>,
    /// In order; never any while bytes wait in the landing.
    held: VecDeque<RecvChunk>,
    /// Bytes of the first of them that the machine took.
    held_used: usize,
    landing: IoBuf,
    /// Bytes in the landing that the machine did not take yet.
    landed: Range<usize>,
    /// Receives into the ring's buffers that are still to come one by one.
    singles: u32,
    /// [`reactor::Ring::recv_buffers_returned`] when the last receive into the ring's buffers was armed.
    returned_at_arm: u64,
    /// That receive found no buffer.
    pub(super) dry: bool,
}

/// The receive that is under way.
#[derive(Clone, Copy, Debug)]
enum Armed {
    /// Into the ring's buffers, once or repeating; being cancelled or not.
    Chunks {
        op: OpId,
        repeating: bool,
        cancelling: bool,
    },
    /// So many bytes of the machine's payload into the slot's place, and what follows them into the landing.
    Payload { op: OpId, slot: Slot, len: u32 },
    /// Into the landing.
    Landing,
}

impl Armed {
    /// To where so many bytes of a slot's payload belong, where there is such a place.
    fn into_place(op: OpId, place: Option<(Slot, u32)>) -> Self {
        place.map_or(Self::Landing, |(slot, len)| Self::Payload { op, slot, len })
    }
}

impl Inflow {
    pub(super) fn new(receiving: Receiving) -> Result<Self, ReactorError> {
        Ok(Self {
            receiving,
            awaited: Ledger::default(),
            filled: false,
            armed: None,
            held: VecDeque::new(),
            held_used: 0,
            landing: IoBuf::heap(LANDING_BYTES)?,
            landed: 0..0,
            singles: 0,
            returned_at_arm: 0,
            dry: false,
        })
    }

    /// Whether nothing is being received or held.
    pub(super) fn is_idle(&self) -> bool {
        self.armed.is_none() && !self.holds()
    }

    /// Whether Connect has not succeeded.
    pub(super) fn is_exact(&self) -> bool {
        self.receiving == Receiving::Exactly
    }

    fn holds(&self) -> bool {
        !self.held.is_empty() || !self.landed.is_empty()
    }

    /// Whether the next payload goes to its place without a copy.
    fn is_in_place(&self) -> bool {
        self.receiving == Receiving::InPlace || self.awaited.slots() > 0
    }
}

impl TcpLink {
    /// From now on receives like this; what is under way is not touched.
    pub(super) fn set_receiving(&mut self, receiving: Receiving) {
        self.inflow.receiving = receiving;
    }

    /// A command's data were asked for.
    pub(super) fn await_data(&mut self, slot: Slot) {
        let bytes = self.machine.transfer(slot).bytes();
        self.inflow.awaited.enter(slot, bytes);
        self.inflow.singles = SINGLE_RECEIVES;
    }

    /// Nothing more of a command is wanted: what is on its way into its buffer goes nowhere.
    pub(super) fn cancel_data(&mut self, slot: Slot) {
        if let Some(Armed::Payload { op, slot: of, .. }) = self.inflow.armed
            && of == slot
        {
            self.owner.ring().cancel(op);
        }
    }

    /// Whether the next turn brings more answers as likely as not, and the host has enough to do without those that are there: one send
    /// then carries them all.
    pub(super) fn takes_more_at_once(&mut self) -> bool {
        std::mem::take(&mut self.inflow.filled) && self.inflow.awaited.slots() >= SEND_POSTPONED_MAX
    }

    pub(super) fn received(&mut self, event: Event) {
        let armed = self.inflow.armed;
        if !event.more {
            self.inflow.armed = None;
        }
        match (event.result, event.payload) {
            (Ok(count), Payload::Chunk(chunk)) if count > 0 => self.take_chunk(chunk),
            (Ok(count), Payload::Buf(buf)) if count > 0 => self.take_buf(armed, count, &buf),
            (Err(Errno::ENOBUFS), _) => self.inflow.dry = true,
            // To receive in place, or not into that place any more.
            (Err(Errno::ECANCELED), _) => {}
            _ => {
                self.over = true;
                self.is_gone = true;
            }
        }
    }

    fn take_chunk(&mut self, chunk: RecvChunk) {
        let used = if self.inflow.held.is_empty() {
            self.feed(&chunk)
        } else {
            0
        };
        if used < chunk.len() {
            if self.inflow.held.is_empty() {
                self.inflow.held_used = used;
            }
            self.inflow.held.push_back(chunk);
        }
    }

    /// Takes what was received in place: payload first, the rest lies in the landing.
    fn take_buf(&mut self, armed: Option<Armed>, count: u32, buf: &IoBuf) {
        let in_place = match armed {
            Some(Armed::Payload { len, .. }) => len.min(count),
            _ => 0,
        };
        match self.machine.want() {
            _ if in_place == 0 => {}
            Want::Payload { digest: true, .. } => {
                let crc = digest::of_buf(self.machine.payload_crc(), buf, 0, in_place as usize);
                self.machine.payload(in_place, crc);
            }
            // Discarded where the command was answered meanwhile.
            Want::Payload { .. } | Want::Discard(_) => self.machine.payload(in_place, 0),
            // Nothing is interpreted after the end.
            Want::Closed => {}
            Want::Header(_) | Want::Event | Want::Slot => self.over = true,
        }
        self.inflow.filled = count as usize == buf.len();
        self.inflow.landed = 0..(count - in_place) as usize;
        self.feed_landed();
    }

    /// Hands bytes of the landing to the machine; true if it took some.
    fn feed_landed(&mut self) -> bool {
        if self.inflow.landed.is_empty() {
            return false;
        }
        let mut bytes = [0; LANDING_BYTES];
        let landed = self.inflow.landed.clone();
        let count = self
            .inflow
            .landing
            .copy_to(landed.start, &mut bytes[..landed.len()]);
        let used = self.feed(&bytes[..count]);
        self.inflow.landed.start += used;
        used > 0
    }

    /// Feeds bytes that were held back; true if the machine took some.
    pub(super) fn feed_held(&mut self) -> bool {
        let Some(chunk) = self.inflow.held.pop_front() else {
            return self.feed_landed();
        };
        let rest = &chunk[self.inflow.held_used..];
        let used = self.feed(rest);
        if used == rest.len() {
            self.inflow.held_used = 0;
        } else {
            self.inflow.held_used += used;
            self.inflow.held.push_front(chunk);
        }
        used > 0
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
            // The driver gives every slot that can receive its buffer first.
            self.over = true;
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

    /// Arms the receive that the machine's state asks for, unless one is under way.
    pub(super) fn receive(&mut self) {
        if self.over || self.inflow.receiving == Receiving::Paused {
            return;
        }
        if self.inflow.holds() {
            // The rest is to stay in the socket until the machine takes more.
            return self.stop_repeating();
        }
        let want = self.machine.want();
        if matches!(want, Want::Event | Want::Slot | Want::Closed) {
            return;
        }
        if self.inflow.armed.is_some() {
            if self.inflow.is_in_place() {
                self.stop_repeating();
            }
            return;
        }
        match (self.inflow.receiving, want) {
            (Receiving::Exactly, _) => self.receive_exactly(want),
            _ if self.inflow.is_in_place() => self.receive_in_place(want),
            _ => self.receive_chunks(),
        }
    }

    /// Ends a repeating receive: what comes next is to stay in the socket.
    fn stop_repeating(&mut self) {
        if let Some(Armed::Chunks {
            op,
            repeating: true,
            cancelling: false,
        }) = self.inflow.armed
        {
            self.owner.ring().cancel(op);
            self.inflow.armed = Some(Armed::Chunks {
                op,
                repeating: true,
                cancelling: true,
            });
        }
    }

    /// The place of the payload that the machine wants, where it wants some and the slot has its buffer.
    fn place(&self, want: Want) -> Option<(Slot, u32, IoBuf)> {
        let Want::Payload {
            slot, offset, len, ..
        } = want
        else {
            return None;
        };
        let buf = self.buffers.get(slot.index())?.as_ref()?;
        let start = offset as usize;
        Some((slot, len, buf.slice(start..start + len as usize)))
    }

    fn receive_exactly(&mut self, want: Want) {
        let (place, buf) = match (self.place(want), want) {
            (Some((slot, len, buf)), _) => (Some((slot, len)), buf),
            (None, Want::Header(count)) => (None, self.inflow.landing.slice(0..count)),
            (None, Want::Discard(len)) => (None, self.inflow.landing.slice(0..len as usize)),
            (None, _) => return self.over = true,
        };
        let started = self.owner.recv_into(&self.socket, buf, TAG_RECV).ok();
        self.armed(started.map(|op| Armed::into_place(op, place)));
    }

    fn receive_in_place(&mut self, want: Want) {
        let landing = self.inflow.landing.clone();
        let (place, buf) = match self.place(want) {
            Some((slot, len, mut buf)) => {
                buf.append(landing);
                (Some((slot, len)), buf)
            }
            None => (None, landing),
        };
        let started = self.owner.recv_some(&self.socket, buf, TAG_RECV).ok();
        self.armed(started.map(|op| Armed::into_place(op, place)));
    }

    /// Receives into the ring's buffers; while all of them are in use, not before one became free.
    fn receive_chunks(&mut self) {
        let returned = self.owner.ring().recv_buffers_returned();
        if self.inflow.dry && returned == self.inflow.returned_at_arm {
            return;
        }
        self.inflow.dry = false;
        self.inflow.returned_at_arm = returned;
        let repeating = self.inflow.singles == 0;
        let started = if repeating {
            self.owner.recv(&self.socket, TAG_RECV)
        } else {
            self.inflow.singles -= 1;
            self.owner.recv_once(&self.socket, TAG_RECV)
        };
        self.armed(started.ok().map(|op| Armed::Chunks {
            op,
            repeating,
            cancelling: false,
        }));
    }

    /// The ring has room for a receive and a send of every connection; without room nothing would ever wake this one again.
    fn armed(&mut self, armed: Option<Armed>) {
        self.over |= armed.is_none();
        self.inflow.armed = armed;
    }
}
