//! Fetches ahead: reads without a destination. What they want goes to the homes of the frames; when all is there, they have ended.

use reactor::buf::IoBuf;
use store::{Completion, Op, Rejected, StoreError, Terms, Token};
use volume::ahead::Begun;
use volume::{Fetch, Progress, Reach, ReadOp, SourceId, StoredFrame, TableBlock, Volume, Want};

use super::{Again, AheadOf, Piece, Purpose};
use crate::attached::{Attached, whole};
use crate::attachments::Attachments;
use crate::frames::{WantId, Wanted};
use crate::limits::AHEAD_FETCHES_MAX;
use crate::memory::{with_destination, with_filled};
use crate::parts::Parts;
use crate::shared::Backing;

/// Marks the store tokens of tables that fetches ahead read.
const AHEAD_TOKEN: u64 = 1 << 62;
/// Blocks of tables that one of them reads at a time: the one that it waits for, and those that reads will look for. A piece of
/// [`PIECE_BYTES_MAX`](volume::ahead::PIECE_BYTES_MAX) has some six; those beyond are read by whoever looks for them.
const BLOCKS_MAX: usize = 8;

/// The fetches of one engine.
#[derive(Default)]
pub(crate) struct Fetches {
    all: Vec<Ahead>,
    free: Vec<usize>,
    /// Those that found no memory or a full store.
    parked: Vec<usize>,
    /// Somebody was giving ranges when they were to be taken.
    pub(crate) again: bool,
}

/// One of them; recycled.
struct Ahead {
    place: usize,
    begun: Option<Begun>,
    /// What it fetches; none of a free place.
    piece: Option<Piece>,
    purpose: Purpose,
    volume: Option<Volume>,
    op: Box<ReadOp>,
    /// Everything that it wants was named.
    is_named: bool,
    /// A table that found no room.
    unsent: Option<Fetch>,
    /// The table that is being read.
    table: Option<Fetch>,
    /// Blocks that are being read and that it does not wait for.
    blocks: [Option<TableBlock>; BLOCKS_MAX - 1],
    /// Frames and tables that have not come.
    under_way: u32,
    /// Of its frames.
    stored_bytes: u64,
}

impl Fetches {
    /// Has fetched what is to be fetched next in a namespace, as far as places are free; false: ask again soon.
    pub(crate) fn begin_all(
        &mut self,
        place: usize,
        attached: &mut Attached,
        parts: &mut Parts,
    ) -> bool {
        while attached.fetches_ahead < AHEAD_FETCHES_MAX {
            let Some(ahead) = attached.ahead.as_mut().filter(|_| !attached.retired) else {
                return true;
            };
            match ahead.next_piece() {
                Ok(Some(piece)) => self.begin(place, attached, parts, piece),
                Ok(None) => return true,
                Err(Again) => return false,
            }
        }
        true
    }

    fn begin(&mut self, place: usize, attached: &mut Attached, parts: &mut Parts, piece: Piece) {
        let range = piece.range.clone();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.all.push(Ahead::new());
            self.all.len() - 1
        });
        attached.requests += 1;
        attached.fetches_ahead += 1;
        let fetch = &mut self.all[slot];
        fetch.place = place;
        fetch.purpose = piece.purpose();
        fetch.piece = Some(piece);
        fetch.begun = attached
            .ahead
            .as_ref()
            .map(|ahead| ahead.machine.pace.begin(ahead.now_ns()));
        fetch.under_way = 0;
        fetch.stored_bytes = 0;
        fetch.unsent = None;
        fetch.table = None;
        match &attached.shared.backing {
            Backing::View { volume, .. } => {
                let reach = match fetch.purpose {
                    Purpose::Stream => Reach::Onward,
                    _ => Reach::Range,
                };
                fetch.is_named = fetch.op.start_survey(volume, range, reach).is_err();
                fetch.volume = Some(volume.clone());
            }
            Backing::Raw(_) | Backing::Mixed(_) => {
                fetch.is_named = true;
                let len = range.end - range.start;
                fetch.want_plain(slot, attached, parts, 0, range.start, len);
            }
        }
        self.go_on(slot, attached, parts);
    }

    /// True when it has ended.
    fn go_on(&mut self, slot: usize, attached: &mut Attached, parts: &mut Parts) -> bool {
        if self.parked.contains(&slot) {
            // It goes on with the others that wait.
            return false;
        }
        let fetch = &mut self.all[slot];
        if !fetch.is_named {
            if fetch.name(slot, attached, parts) == Named::NoRoom {
                self.parked.push(slot);
                return false;
            }
            fetch.tell_named(attached);
        }
        let has_ended = fetch.is_named && fetch.under_way == 0;
        if has_ended {
            self.end(slot, attached);
        }
        has_ended
    }

    /// Goes on with one of which something came; where that was all, there is room for the next.
    fn came(&mut self, slot: usize, attached: &mut Attached, parts: &mut Parts) {
        let place = self.all[slot].place;
        if self.go_on(slot, attached, parts) {
            self.again |= !self.begin_all(place, attached, parts);
        }
    }

    fn end(&mut self, slot: usize, attached: &mut Attached) {
        let fetch = &mut self.all[slot];
        fetch.volume = None;
        attached.requests -= 1;
        attached.fetches_ahead -= 1;
        let ended = (fetch.begun.take(), fetch.piece.take());
        if let (Some(ahead), (Some(begun), Some(piece))) = (&mut attached.ahead, ended) {
            let now_ns = ahead.now_ns();
            let bytes = piece.range.end - piece.range.start;
            ahead.machine.pace.end(begun, bytes, now_ns);
            ahead.fetched(&piece);
        }
        self.free.push(slot);
    }

    /// One of the frames that a fetch wants is there, or cannot be had; which does not matter.
    pub(crate) fn answered(&mut self, slot: u32, attachments: &mut Attachments, parts: &mut Parts) {
        let slot = slot as usize;
        let Some(fetch) = self.all.get_mut(slot) else {
            return;
        };
        fetch.under_way -= 1;
        if fetch.is_named {
            let place = fetch.place;
            self.came(slot, &mut attachments[place], parts);
        }
    }

    /// Takes the end of a store's operation, if it is about a table of a fetch's; gives it back if not.
    pub(crate) fn completed(
        &mut self,
        attached: &mut Attached,
        parts: &mut Parts,
        completion: Completion,
    ) -> Option<Completion> {
        let is_ahead = completion.token.0 & AHEAD_TOKEN != 0;
        let place = usize::try_from(completion.token.0 & !AHEAD_TOKEN).ok();
        let place = place.filter(|place| is_ahead && place / BLOCKS_MAX < self.all.len());
        let Some((slot, nth)) = place.map(|place| (place / BLOCKS_MAX, place % BLOCKS_MAX)) else {
            return Some(completion);
        };
        let fetch = &mut self.all[slot];
        fetch.under_way -= 1;
        let read = whole(attached.shared.nsid, completion).ok().flatten();
        let table_bytes = read.as_ref().map_or(0, IoBuf::len) as u64;
        attached.row.table_bytes.add(table_bytes);
        if let Some(beside) = nth.checked_sub(1) {
            let block = fetch.blocks[beside].take();
            fetch.keep_block(attached, parts, block, read.as_ref());
        } else {
            if let Some(table) = &fetch.table {
                attached.block_has_come(table.offset);
            }
            let handed = match (read, fetch.table.take()) {
                (Some(buf), Some(table)) => fetch.take_table(parts, table, &buf),
                _ => false,
            };
            // Whoever reads there meets the same, and is told.
            fetch.is_named |= !handed;
        }
        self.came(slot, attached, parts);
        None
    }

    /// A namespace goes: nothing more is wanted for its fetches, and what its stores have of their tables is to end early.
    pub(crate) fn cancel(&mut self, place: usize, attached: &mut Attached) {
        for slot in 0..self.all.len() {
            let fetch = &mut self.all[slot];
            if fetch.place != place || fetch.piece.is_none() {
                continue;
            }
            fetch.is_named = true;
            fetch.unsent = None;
            if let Some(table) = &fetch.table {
                attached.cancel(table.source.0 as usize, token(slot, 0));
            }
            for nth in (1..)
                .zip(&fetch.blocks)
                .filter_map(|(nth, block)| block.map(|_| nth))
            {
                attached.cancel(SourceId::OWN.0 as usize, token(slot, nth));
            }
            let is_over = fetch.under_way == 0;
            self.parked.retain(|parked| *parked != slot);
            if is_over {
                self.end(slot, attached);
            }
        }
    }

    /// Lets those go on that found no room; true when one did.
    pub(crate) fn retry(&mut self, attachments: &mut Attachments, parts: &mut Parts) -> bool {
        let mut moved = false;
        for _ in 0..self.parked.len() {
            let slot = self.parked.remove(0);
            let place = self.all[slot].place;
            self.came(slot, &mut attachments[place], parts);
            moved |= !self.parked.contains(&slot);
        }
        moved
    }
}

impl Attached {
    fn block_is_coming(&mut self, offset: u64) {
        if let Some(ahead) = &mut self.ahead {
            ahead.blocks_coming.push(offset);
        }
    }

    fn block_has_come(&mut self, offset: u64) {
        if let Some(ahead) = &mut self.ahead {
            ahead.blocks_coming.retain(|coming| *coming != offset);
        }
    }
}

/// Nobody waits for it.
const AHEAD: Terms = Terms {
    deadline: None,
    is_ahead: true,
};

/// What a store says of the `nth` block of a fetch.
fn token(slot: usize, nth: usize) -> Token {
    Token(AHEAD_TOKEN | (slot * BLOCKS_MAX + nth) as u64)
}

/// How far the naming came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// All, or as far as tables are known.
    Some,
    NoRoom,
}

impl Ahead {
    fn new() -> Self {
        Self {
            place: 0,
            begun: None,
            piece: None,
            purpose: Purpose::default(),
            volume: None,
            op: Box::new(ReadOp::new()),
            is_named: true,
            unsent: None,
            table: None,
            blocks: [None; BLOCKS_MAX - 1],
            under_way: 0,
            stored_bytes: 0,
        }
    }

    /// Says what it wants of the store, once that is known.
    fn tell_named(&self, attached: &mut Attached) {
        if let (true, Some(ahead), Some(piece)) = (self.is_named, &mut attached.ahead, &self.piece)
        {
            ahead.named(piece.bytes(), self.stored_bytes);
        }
    }

    fn name(&mut self, slot: usize, attached: &mut Attached, parts: &mut Parts) -> Named {
        let Some(volume) = self.volume.clone() else {
            self.is_named = true;
            return Named::Some;
        };
        if let Some(table) = self.unsent.take()
            && !self.take_kept_table(parts, table)
            && !self.read_table(slot, attached, parts, table)
        {
            return Named::NoRoom;
        }
        while self.table.is_none() && !self.is_named {
            let (cache, scratch) = (&mut parts.cache, &mut parts.scratch);
            let stepped = with_destination(&IoBuf::empty(), |out| {
                self.op.step(&volume, cache, scratch, out)
            });
            self.is_named = !matches!(stepped, Ok(Progress::Fetching));
            while let Some(want) = self.op.next_want() {
                match want {
                    Want::Frame(want) => self.want(slot, attached, parts, want.frame),
                    Want::Stored(fetch) => {
                        let (source, len) = (fetch.source.0 as usize, u64::from(fetch.len));
                        self.want_plain(slot, attached, parts, source, fetch.offset, len);
                    }
                    Want::Fetch(table) if !self.read_table(slot, attached, parts, table) => {
                        return Named::NoRoom;
                    }
                    // One table at a time: the next one is wanted again.
                    Want::Fetch(_) => break,
                    Want::Table(block) => self.read_block(slot, attached, parts, block),
                }
            }
        }
        Named::Some
    }

    /// Reads a table, or waits for another fetch that does; whether there was room.
    fn read_table(
        &mut self,
        slot: usize,
        attached: &mut Attached,
        parts: &mut Parts,
        table: Fetch,
    ) -> bool {
        let offset = table.offset;
        let is_coming = |ahead: &AheadOf| ahead.blocks_coming.contains(&offset);
        if attached.ahead.as_ref().is_some_and(is_coming) {
            self.unsent = Some(table);
            return false;
        }
        let Some(buf) = parts.ahead_staging.alloc(table.len as usize) else {
            self.unsent = Some(table);
            return false;
        };
        let op = Op::Read { offset };
        let own = table.source.0 as usize;
        match attached.submit(own, op, Some(buf), token(slot, 0), AHEAD) {
            Ok(()) => {
                self.under_way += 1;
                self.table = Some(table);
                attached.block_is_coming(offset);
            }
            Err(Rejected {
                why: StoreError::Busy,
                ..
            }) => {
                self.unsent = Some(table);
                return false;
            }
            Err(_) => self.is_named = true,
        }
        true
    }

    /// Takes a table that was not read because another fetch did; whether it is there now.
    fn take_kept_table(&mut self, parts: &mut Parts, table: Fetch) -> bool {
        let Some(volume) = &self.volume else {
            return false;
        };
        let mut bytes = [0; TableBlock::BYTES as usize];
        if !parts
            .cache
            .copy_block(volume.id(), table.offset, &mut bytes)
        {
            return false;
        }
        let (cache, scratch) = (&mut parts.cache, &mut parts.scratch);
        let taken = with_destination(&IoBuf::empty(), |out| {
            self.op
                .fetched(table.id, &[&bytes], volume, cache, scratch, out)
        });
        self.is_named |= taken.is_err();
        true
    }

    /// Has a block read that nobody waits for, as far as there is room, and unless another fetch has.
    fn read_block(
        &mut self,
        slot: usize,
        attached: &mut Attached,
        parts: &mut Parts,
        block: TableBlock,
    ) {
        let offset = block.offset();
        let Some(nth) = self.blocks.iter().position(Option::is_none) else {
            return;
        };
        let is_coming = |ahead: &AheadOf| ahead.blocks_coming.contains(&offset);
        if attached.ahead.as_ref().is_none_or(is_coming) {
            return;
        }
        let Some(buf) = parts.ahead_staging.alloc(TableBlock::BYTES as usize) else {
            return;
        };
        let own = SourceId::OWN.0 as usize;
        let op = Op::Read { offset };
        if attached
            .submit(own, op, Some(buf), token(slot, nth + 1), AHEAD)
            .is_err()
        {
            return;
        }
        self.under_way += 1;
        self.blocks[nth] = Some(block);
        attached.block_is_coming(offset);
    }

    /// A block has come, or cannot be had; which whoever looks for it will meet.
    fn keep_block(
        &self,
        attached: &mut Attached,
        parts: &mut Parts,
        block: Option<TableBlock>,
        read: Option<&IoBuf>,
    ) {
        let Some(block) = block else { return };
        if let Some(ahead) = &mut attached.ahead {
            ahead
                .blocks_coming
                .retain(|coming| *coming != block.offset());
        }
        if let (Some(volume), Some(buf)) = (&self.volume, read) {
            let cache = &mut parts.cache;
            let _met_by_the_next =
                with_filled(buf, buf.len(), |bytes| block.keep(bytes, volume, cache));
        }
    }

    /// Hands a table over; whether it is sound.
    fn take_table(&mut self, parts: &mut Parts, table: Fetch, buf: &IoBuf) -> bool {
        let Some(volume) = &self.volume else {
            return false;
        };
        let (cache, scratch, op) = (&mut parts.cache, &mut parts.scratch, &mut self.op);
        with_filled(buf, table.len as usize, |bytes| {
            with_destination(&IoBuf::empty(), |out| {
                op.fetched(table.id, bytes, volume, cache, scratch, out)
            })
        })
        .is_ok()
    }

    fn want_plain(
        &mut self,
        slot: usize,
        attached: &Attached,
        parts: &mut Parts,
        source: usize,
        offset: u64,
        len: u64,
    ) {
        let Some(ahead) = &attached.ahead else { return };
        for frame in ahead.plain_frames(source, offset, len) {
            self.want(slot, attached, parts, frame);
        }
    }

    fn want(&mut self, slot: usize, attached: &Attached, parts: &mut Parts, frame: StoredFrame) {
        self.under_way += 1;
        self.stored_bytes += u64::from(frame.stored_bytes);
        parts.wanted.push(Wanted {
            key: attached.shared.key,
            // At most AHEAD_FETCHES_MAX of each namespace.
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            id: WantId::Ahead,
            frame,
            deadline: None,
            is_ahead: true,
            purpose: self.purpose,
        });
    }
}
