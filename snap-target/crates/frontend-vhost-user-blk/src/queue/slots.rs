//! Requests of a queue under way: each in a slot, carried out in pieces that an engine's buffers hold, a few at a time.

use std::sync::Arc;
use std::time::Instant;

use guest_memory::{Way, from_guest, to_guest};
use namespace::{Answer, Asked, Done, Engine, Io, NamespaceError, ReaderId};
use reactor::buf::IoBuf;
use virtio_ring::Head;

use super::{Queue, TIMER};
use crate::disk::Disk;
use crate::limits::{
    DETACHED_PATIENCE, LANES_MAX, PIECE_BYTES, PIECE_SEGMENTS_MAX, REQUEST_PATIENCE, SLOT_BITS,
};
use crate::request::{Request, Status};

/// Readers of queues are told from those of controllers.
const READERS: u64 = 1 << 32;
/// The part of a request's name that is its slot; what is above names the lane.
const SLOT_MASK: u16 = (1 << SLOT_BITS) - 1;

/// A piece of a request that is under way: its slot, and its lane there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceId {
    slot: u16,
    lane: u16,
}

impl PieceId {
    /// As an engine's tokens name it.
    fn of_request(request: u16) -> Self {
        Self {
            slot: request & SLOT_MASK,
            lane: request >> SLOT_BITS,
        }
    }

    fn request(self) -> u16 {
        self.slot | self.lane << SLOT_BITS
    }
}

/// How far a request could be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// As far as its lanes go.
    Enough,
    /// There is no memory for the next piece.
    NoMemory,
    /// The turn has no room for it.
    NoTurn,
}

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
    direct: bool,
    /// The pieces that are under way.
    lanes: [Option<u32>; LANES_MAX],
    /// Those from here on have not been begun.
    next_piece: u32,
    /// The first piece that failed.
    failed: Option<u32>,
    pub(super) deadline: Option<Instant>,
}

impl Queue {
    /// The disk has become another one of the same content; what found the last one gone goes there.
    pub(crate) fn set_disk(&mut self, disk: Arc<Disk>) {
        self.disk = disk;
        self.detached_until = None;
    }

    /// An answer of the engine.
    pub(crate) fn answered(&mut self, request: u16, done: Done) {
        let id = PieceId::of_request(request);
        let is_cut = self.is_cut();
        let detached = matches!(done.result, Err(NamespaceError::Detached { .. }));
        if detached && !is_cut && self.may_wait() {
            return self.detached.push(id);
        }
        let Some((slot, _)) = self.piece(id) else {
            return;
        };
        if let Err(error) = &done.result
            && slot.failed.is_none()
            && !is_cut
        {
            let queue = self.name.as_str();
            tracing::warn!(queue, %error, "a request failed");
        }
        let copies_out = slot.copies() == Some(Way::ToGuest);
        match done.result.is_ok() && copies_out && !is_cut {
            true => self.arrived.push_back((id, done)),
            false => self.piece_ended(id, done.result.is_err()),
        }
    }

    /// Reads whose bytes are there go to the guest.
    pub(super) fn copy_arrived(&mut self) {
        while self.turn.has_bytes()
            && let Some((id, done)) = self.arrived.pop_front()
        {
            let Some((slot, piece)) = self.piece(id) else {
                continue;
            };
            let part = slot.data.slice(piece_of(piece, slot.data.len()));
            self.moves(part.len());
            let copied = done.buf.map_or(0, |buf| match buf.len() == part.len() {
                true => to_guest(&part, &buf),
                false => 0,
            });
            self.piece_ended(id, copied != part.len());
        }
    }

    /// A piece that is under way, and its number.
    fn piece(&self, id: PieceId) -> Option<(&Slot, u32)> {
        let slot = self.slots.get(usize::from(id.slot))?;
        let piece = slot.lanes.get(usize::from(id.lane)).copied().flatten()?;
        Some((slot, piece))
    }

    fn piece_ended(&mut self, id: PieceId, has_failed: bool) {
        self.let_go(id);
        let Some(slot) = self.slots.get_mut(usize::from(id.slot)) else {
            return;
        };
        let lane = slot.lanes.get_mut(usize::from(id.lane));
        let Some(piece) = lane.and_then(Option::take) else {
            return;
        };
        if has_failed {
            slot.failed = Some(slot.failed.map_or(piece, |first| first.min(piece)));
            slot.begin_no_more();
            self.waiting.retain(|waiting| *waiting != id.slot);
        }
        match slot.remains() {
            Remains::Nothing => self.end(id.slot),
            Remains::ToBegin => self.wait(id.slot),
            Remains::ToEnd => {}
        }
    }

    /// The connection is lost: what was not begun is not begun any more.
    pub(super) fn begin_no_more(&mut self) {
        self.waiting.clear();
        let arrived = std::mem::take(&mut self.arrived);
        let detached = std::mem::take(&mut self.detached);
        let arrived = arrived.into_iter().map(|(id, _)| id);
        for id in arrived.chain(detached) {
            self.piece_ended(id, true);
        }
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get_mut(index).filter(|it| it.head.is_some()) else {
                continue;
            };
            slot.begin_no_more();
            if slot.remains() == Remains::Nothing {
                // There are no more of them than a token names.
                self.end(u16::try_from(index).unwrap_or(SLOT_MASK));
            }
        }
    }

    /// Whether what found the namespace gone may wait for the next one: a while from the first on, by which a timer comes.
    fn may_wait(&mut self) -> bool {
        let now = self.now;
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
            for id in std::mem::take(&mut self.detached) {
                if !self.turn.has_bytes() || !self.submit(id, engine) {
                    // There is no memory now, or no turn.
                    self.detached.push(id);
                }
            }
            return;
        };
        if self.now < until {
            return;
        }
        tracing::warn!(
            queue = self.name,
            "the namespace is gone: its disk's requests fail"
        );
        for id in std::mem::take(&mut self.detached) {
            self.piece_ended(id, true);
        }
    }

    /// Begins as many pieces of a request as may be under way.
    pub(super) fn go_on(&mut self, index: u16, engine: &mut Engine) -> Begun {
        while let Some(id) = self.open_lane(index) {
            let begun = self.begin_piece(id, engine);
            if begun != Begun::Enough {
                self.close_lane(id);
                return begun;
            }
        }
        Begun::Enough
    }

    fn begin_piece(&mut self, id: PieceId, engine: &mut Engine) -> Begun {
        if !self.turn.has_bytes() {
            return Begun::NoTurn;
        }
        let copied = self.copied_bytes(id);
        if copied.is_some_and(|(way, bytes)| !self.held.take(way, bytes, engine)) {
            return Begun::NoMemory;
        }
        if !self.submit(id, engine) {
            self.let_go(id);
            return Begun::NoMemory;
        }
        Begun::Enough
    }

    /// What a piece that is under way has of the engine's memory, by the way that it goes; none where the store works on the guest's.
    fn copied_bytes(&self, id: PieceId) -> Option<(Way, u64)> {
        let (slot, piece) = self.piece(id)?;
        let way = slot.copies()?;
        Some((way, piece_of(piece, slot.data.len()).len() as u64))
    }

    fn let_go(&mut self, id: PieceId) {
        if let Some((way, bytes)) = self.copied_bytes(id) {
            self.held.give_back(way, bytes);
            self.has_freed = true;
        }
    }

    /// The next piece of a request, if it has one that may begin.
    fn open_lane(&mut self, index: u16) -> Option<PieceId> {
        let slot = self.slots.get_mut(usize::from(index))?;
        if slot.head.is_none() || slot.next_piece >= slot.piece_count() {
            return None;
        }
        let free = slot.lanes.iter().position(Option::is_none)?;
        *slot.lanes.get_mut(free)? = Some(slot.next_piece);
        slot.next_piece += 1;
        let lane = u16::try_from(free).ok()?;
        Some(PieceId { slot: index, lane })
    }

    /// The piece that was opened last has not begun.
    fn close_lane(&mut self, id: PieceId) {
        let slot = self.slots.get_mut(usize::from(id.slot));
        if let Some((lane, next)) = slot.and_then(|slot| {
            let lane = slot.lanes.get_mut(usize::from(id.lane))?;
            Some((lane, &mut slot.next_piece))
        }) {
            *lane = None;
            *next -= 1;
        }
    }

    /// A request is about to be begun: a store in memory has its first bytes fetched.
    pub(super) fn expect(&self, index: u16, engine: &Engine) {
        let slot = self.slots.get(usize::from(index));
        if let Some(slot) = slot
            && let Request::Read { lba, .. } | Request::Write { lba, .. } = &slot.request
        {
            let offset = lba.saturating_mul(self.disk.block_bytes.into());
            let bytes = u32::try_from(slot.data.len()).unwrap_or(u32::MAX);
            let is_change = matches!(slot.request, Request::Write { .. });
            engine.expect(self.disk.key, offset, bytes, is_change);
        }
    }

    /// Hands a piece of a request to the engine; false where there is no memory for it.
    fn submit(&mut self, id: PieceId, engine: &mut Engine) -> bool {
        let Some((slot, piece)) = self.piece(id) else {
            return true;
        };
        let block_bytes = self.disk.block_bytes;
        let first = u64::from(piece) * u64::from(PIECE_BYTES / block_bytes);
        let part = slot.data.slice(piece_of(piece, slot.data.len()));
        let (bytes, deadline) = (part.len(), slot.deadline);
        let durable = !self.writeback;
        let mut io = match &slot.request {
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
        self.moves(bytes);
        let asked = Asked {
            token: (self.tokens.make)(self.id.0, id.request()),
            reader: ReaderId(READERS + u64::from(self.id.0)),
            deadline,
            snapshot: false,
        };
        // What lay in a page that could not be had is not what the guest wrote.
        if self.guest.windows.loss().has_happened() {
            self.piece_ended(id, true);
            return true;
        }
        let done = match engine.ask(self.disk.key, &mut io, asked) {
            Answer::Later => return true,
            // Its bytes are where they belong.
            Answer::Out => {
                self.piece_ended(id, false);
                return true;
            }
            Answer::Lent(buf) => Done {
                token: asked.token,
                buf: Some(buf),
                result: Ok(()),
            },
            Answer::Now(done) => done,
        };
        self.answered(id.request(), done);
        true
    }

    /// What waits for memory, for its other pieces or for its turn goes on in its order.
    pub(super) fn feed_waiting(&mut self, engine: &mut Engine) {
        let (mut starves_out, mut starves_in) = (false, false);
        // Each is looked at once; those that wait on keep their order, reads and writes each their own.
        for _ in 0..self.waiting.len() {
            let Some(index) = self.waiting.pop_front() else {
                return;
            };
            let mut none = false;
            let starves = match self.copies(index) {
                Some(Way::ToGuest) => &mut starves_out,
                Some(Way::FromGuest) => &mut starves_in,
                None => &mut none,
            };
            let begun = match *starves {
                true => Begun::NoMemory,
                false => self.go_on(index, engine),
            };
            *starves = begun == Begun::NoMemory;
            if begun != Begun::Enough {
                self.wait(index);
            }
        }
    }

    /// Requests that wait for memory fail when it has not come by their deadline: no event need come before that.
    pub(super) fn look_at_starved(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let now = self.now;
        let deadline = |index: u16| self.slots.get(usize::from(index))?.deadline;
        let is_late = |index: &u16| deadline(*index).is_some_and(|until| until <= now);
        let late: Vec<u16> = self.waiting.iter().copied().filter(is_late).collect();
        for index in late {
            self.complain_of_memory();
            self.begin_no_more_of(index);
        }
        let deadline = |index: &u16| self.slots.get(usize::from(*index))?.deadline;
        let first = self.waiting.iter().filter_map(deadline).min();
        self.starved_until = self.starved_until.filter(|armed| *armed > now);
        if let Some(first) = first
            && self.starved_until.is_none_or(|armed| armed > first)
            && self.owner.timer(first, TIMER).is_ok()
        {
            self.starved_until = Some(first);
        }
    }

    /// What of a request was not begun fails.
    fn begin_no_more_of(&mut self, index: u16) {
        self.waiting.retain(|waiting| *waiting != index);
        let Some(slot) = self.slots.get_mut(usize::from(index)) else {
            return;
        };
        slot.failed = slot.failed.or(Some(slot.next_piece));
        slot.begin_no_more();
        if slot.remains() == Remains::Nothing {
            self.end(index);
        }
    }

    /// A request begins, unless it would overtake others that wait for memory.
    pub(super) fn begin_slot(&mut self, index: u16, engine: &mut Engine) {
        let way = self.copies(index);
        let waits = way.is_some() && self.waiting.iter().any(|it| self.copies(*it) == way);
        if waits || self.go_on(index, engine) != Begun::Enough {
            self.wait(index);
        }
    }

    /// A request waits for its next piece: once, though a piece that was carried out at once has said so already.
    fn wait(&mut self, index: u16) {
        if !self.waiting.contains(&index) {
            self.waiting.push_back(index);
        }
    }

    fn copies(&self, index: u16) -> Option<Way> {
        self.slots.get(usize::from(index))?.copies()
    }

    pub(super) fn take_slot(
        &mut self,
        head: Head,
        request: Request,
        data: IoBuf,
    ) -> Result<u16, Status> {
        let direct = self.disk.direct && data.segments().len() <= PIECE_SEGMENTS_MAX;
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
            deadline: Some(self.now + REQUEST_PATIENCE),
            ..Slot::free()
        };
        self.counters.began();
        Ok(index)
    }
}

/// What is to come of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remains {
    Nothing,
    /// Pieces that are under way, and no others.
    ToEnd,
    /// Pieces that have not been begun.
    ToBegin,
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
            lanes: [None; LANES_MAX],
            next_piece: 0,
            failed: None,
            deadline: None,
        }
    }

    /// How it ended, and how many bytes from the start of its writable memory the guest finds written, the status at their end among them (virtio 1.3,
    /// 2.7.8.2): of a read that failed those of the pieces before the first that failed.
    pub(super) fn outcome(&self) -> (Status, u32) {
        let bytes = match self.request {
            Request::Read { bytes, .. } => bytes,
            _ => 0,
        };
        match self.failed {
            None => (Status::Ok, bytes + 1),
            Some(_) if bytes == 0 => (Status::IoError, 1),
            Some(piece) => (Status::IoError, piece * PIECE_BYTES),
        }
    }

    /// Pieces that its data have; a request without data is one.
    fn piece_count(&self) -> u32 {
        let pieces = self.data.len().div_ceil(PIECE_BYTES as usize).max(1);
        // REQUEST_BYTES_MAX bounds it.
        u32::try_from(pieces).unwrap_or(1)
    }

    /// What was not begun never is.
    fn begin_no_more(&mut self) {
        self.next_piece = self.piece_count();
    }

    fn remains(&self) -> Remains {
        let is_begun = self.next_piece >= self.piece_count();
        match (is_begun, self.lanes.iter().all(Option::is_none)) {
            (false, _) => Remains::ToBegin,
            (true, true) => Remains::Nothing,
            (true, false) => Remains::ToEnd,
        }
    }

    /// Which way its bytes go through buffers of the engine, if they do.
    fn copies(&self) -> Option<Way> {
        match self.request {
            Request::Read { .. } if !self.direct => Some(Way::ToGuest),
            Request::Write { .. } if !self.direct => Some(Way::FromGuest),
            _ => None,
        }
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
