//! Requests of a queue under way: each in a slot, carried out in pieces that an engine's buffers hold.

use std::sync::Arc;
use std::time::Instant;

use guest_memory::{from_guest, to_guest};
use namespace::{Asked, Done, Engine, Io, NamespaceError, ReaderId};
use reactor::buf::IoBuf;
use virtio_ring::Head;

use super::{Queue, TIMER};
use crate::disk::Disk;
use crate::limits::{
    DETACHED_PATIENCE, PIECE_BYTES, PIECE_SEGMENTS_MAX, REQUEST_PATIENCE, SLOT_BITS,
};
use crate::request::{Request, Status};

/// Readers of queues are told from those of controllers.
const READERS: u64 = 1 << 32;
/// The part of a request's name that is its slot; what is above names the piece.
const SLOT_MASK: u16 = (1 << SLOT_BITS) - 1;

/// A chain that is being served.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) head: Option<Head>,
    /// The address of its status byte.
    pub(super) status: u64,
    /// The guest's memory for its data.
    pub(super) data: IoBuf,
    /// What it asks; of a slot that is free the last one.
    pub(super) request: Request,
    /// The store works on the guest's memory.
    pub(super) direct: bool,
    /// Pieces that have not ended.
    pub(super) pieces: u32,
    /// Bytes that the guest finds written, if all goes well.
    pub(super) written: u32,
    pub(super) has_failed: bool,
    deadline: Option<Instant>,
}

impl Queue {
    /// The disk has become another one of the same content; what found the last one gone goes there.
    pub(crate) fn set_disk(&mut self, disk: Arc<Disk>) {
        self.disk = disk;
        self.detached_until = None;
    }

    /// An answer of the engine.
    pub(crate) fn answered(&mut self, request: u16, done: Done) {
        let piece = u32::from(request) >> SLOT_BITS;
        let index = request & SLOT_MASK;
        let is_cut = self.is_cut();
        let detached = matches!(done.result, Err(NamespaceError::Detached { .. }));
        if detached && !is_cut && self.may_wait() {
            return self.detached.push((index, piece));
        }
        let Some(slot) = self.slots.get_mut(usize::from(index)) else {
            return;
        };
        let copies_out = matches!(slot.request, Request::Read { .. }) && !slot.direct;
        match (&done.result, copies_out) {
            (Err(error), _) => {
                if !slot.has_failed && !is_cut {
                    tracing::warn!(queue = self.name, %error, "a request failed");
                }
                slot.has_failed = true;
            }
            (Ok(()), true) if !is_cut => {
                let part = slot.data.slice(piece_of(piece, slot.data.len()));
                let copied = done.buf.map_or(0, |buf| match buf.len() == part.len() {
                    true => to_guest(&part, &buf),
                    false => 0,
                });
                slot.has_failed |= copied != part.len();
            }
            _ => {}
        }
        self.piece_ended(index);
    }

    pub(super) fn piece_ended(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(usize::from(index)) else {
            return;
        };
        slot.pieces -= 1;
        if slot.pieces == 0 {
            self.end(index);
        }
    }

    /// Whether what found the namespace gone may wait for the next one: a while from the first on, by which a timer comes.
    fn may_wait(&mut self) -> bool {
        let now = Instant::now();
        if self.detached_until.is_none() {
            let until = now + DETACHED_PATIENCE;
            if self.owner.timer(until, TIMER).is_ok() {
                self.detached_until = Some(until);
            }
        }
        self.detached_until.is_some_and(|until| now < until)
    }

    /// What found the namespace gone goes to the one that has taken its place, or fails when it has waited long enough.
    pub(super) fn look_at_detached(&mut self, engine: &mut Engine) {
        if self.detached.is_empty() {
            return;
        }
        let Some(until) = self.detached_until else {
            for (index, piece) in std::mem::take(&mut self.detached) {
                if !self.begin_piece(index, piece, engine) {
                    // There is no memory now.
                    self.detached.push((index, piece));
                }
            }
            return;
        };
        if Instant::now() < until {
            return;
        }
        tracing::warn!(
            queue = self.name,
            "the namespace is gone: its disk's requests fail"
        );
        for (index, _) in std::mem::take(&mut self.detached) {
            if let Some(slot) = self.slots.get_mut(usize::from(index)) {
                slot.has_failed = true;
            }
            self.piece_ended(index);
        }
    }

    /// Hands a piece of a request to the engine; false where there is no memory for it.
    pub(super) fn begin_piece(&mut self, index: u16, piece: u32, engine: &mut Engine) -> bool {
        let Some(slot) = self.slots.get(usize::from(index)) else {
            return true;
        };
        let block_bytes = self.disk.block_bytes;
        let first = u64::from(piece * (PIECE_BYTES / block_bytes));
        let part = slot.data.slice(piece_of(piece, slot.data.len()));
        let durable = !self.writeback;
        let io = match &slot.request {
            Request::Read { lba, .. } => Io::Read {
                lba: lba + first,
                blocks: blocks_of(part.len(), block_bytes),
                into: slot.direct.then_some(part),
            },
            Request::Write { lba, .. } => {
                let data = match slot.direct {
                    true => part,
                    false => match engine.alloc(part.len()) {
                        Some(staging) => {
                            from_guest(&staging, &part);
                            staging
                        }
                        None => return false,
                    },
                };
                let lba = lba + first;
                Io::Write { lba, data, durable }
            }
            Request::Flush | Request::GetId => Io::Flush,
            Request::Discard { ranges } => Io::Deallocate {
                ranges: ranges.clone(),
            },
            Request::WriteZeroes { lba, blocks, unmap } => Io::WriteZeroes {
                lba: *lba,
                blocks: *blocks,
                deallocate: *unmap,
                durable,
            },
        };
        // The limits see to it that both fit.
        let request = index | u16::try_from(piece << SLOT_BITS).unwrap_or(0);
        let asked = Asked {
            token: (self.tokens.make)(self.id.0, request),
            reader: ReaderId(READERS + u64::from(self.id.0)),
            deadline: slot.deadline,
            snapshot: false,
        };
        if let Some(done) = engine.submit(self.disk.key, io, asked) {
            self.answered(request, done);
        }
        true
    }

    /// Writes that waited for memory go on, in their order.
    pub(super) fn feed_starved(&mut self, engine: &mut Engine) {
        while let Some((index, from)) = self.starved.front().copied() {
            let count = self
                .slots
                .get(usize::from(index))
                .map_or(0, Slot::piece_count);
            for piece in from..count {
                if !self.begin_piece(index, piece, engine) {
                    if let Some(front) = self.starved.front_mut() {
                        front.1 = piece;
                    }
                    return;
                }
            }
            self.starved.pop_front();
        }
    }

    pub(super) fn take_slot(
        &mut self,
        head: Head,
        request: Request,
        data: IoBuf,
    ) -> Result<u16, Status> {
        let direct = self.is_direct(&data);
        let written = match request {
            Request::Read { bytes, .. } => bytes + 1,
            _ => 1,
        };
        let index = self.free.pop().ok_or(Status::IoError)?;
        let slot = self
            .slots
            .get_mut(usize::from(index))
            .ok_or(Status::IoError)?;
        *slot = Slot {
            head: Some(head),
            status: self.parts.status,
            data,
            request,
            direct,
            pieces: 0,
            written,
            has_failed: false,
            deadline: Some(Instant::now() + REQUEST_PATIENCE),
        };
        slot.pieces = slot.piece_count();
        Ok(index)
    }

    fn is_direct(&self, data: &IoBuf) -> bool {
        self.disk.direct && data.segments().len() <= PIECE_SEGMENTS_MAX
    }
}

impl Slot {
    /// One that is free.
    pub(super) fn free() -> Self {
        Self {
            head: None,
            status: 0,
            data: IoBuf::empty(),
            request: Request::Flush,
            direct: false,
            pieces: 0,
            written: 0,
            has_failed: false,
            deadline: None,
        }
    }

    /// Pieces that its data have; a request without data is one.
    pub(super) fn piece_count(&self) -> u32 {
        let pieces = self.data.len().div_ceil(PIECE_BYTES as usize).max(1);
        // REQUEST_BYTES_MAX bounds it.
        u32::try_from(pieces).unwrap_or(1)
    }
}

/// Bytes of a piece of a request's data.
fn piece_of(piece: u32, bytes: usize) -> std::ops::Range<usize> {
    let start = (piece as usize * PIECE_BYTES as usize).min(bytes);
    start..(start + PIECE_BYTES as usize).min(bytes)
}

fn blocks_of(bytes: usize, block_bytes: u32) -> u32 {
    // A piece at most.
    u32::try_from(bytes).unwrap_or(0) / block_bytes
}
