//! One operation of the store's caller, and how it is cut into commands.

use std::ops::Range;

use nvme::Time;
use nvme::initiator::{Geometry, Piece, Split};
use reactor::buf::IoBuf;
use store::gate::Permit;
use store::{Op, StoreError, Token};

use crate::lending::Debt;

/// An operation that was taken and has not completed.
#[derive(Debug)]
pub(super) struct Flight {
    pub token: Token,
    pub op: Op,
    pub buf: Option<IoBuf>,
    /// What it works on; empty for a flush.
    pub bytes: Range<u64>,
    pub cuts: Cuts,
    /// Parts that were begun and have not ended.
    pub parts: u32,
    pub permit: Permit,
    pub expires_at: Time,
    /// A read that nobody waits for.
    pub is_ahead: bool,
    /// Why it fails, once that is certain: nothing of it is begun or tried again any more.
    pub failure: Option<StoreError>,
    /// A change of it may have taken effect, or a part of one.
    pub may_have_begun: bool,
    pub cancelled: bool,
    /// Another handle's: who is to hear of its end, in place of the caller.
    pub debt: Option<Debt>,
}

impl Flight {
    /// Whether nothing is left but its completion.
    pub fn has_ended(&self) -> bool {
        self.parts == 0 && (self.failure.is_some() || self.cuts.is_done())
    }
}

/// What a part of an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Read,
    Write,
    /// The old block is read, to be changed in part and written back.
    Patch,
    Zero,
    Deallocate,
    Flush,
}

impl What {
    /// Whether its command changes the namespace.
    pub fn is_change(self) -> bool {
        matches!(self, What::Write | What::Zero | What::Deallocate)
    }

    /// Whether a controller may take long for its command, and is well: how long depends on what was written before, or on how much there is to do.
    pub fn takes_its_time(self) -> bool {
        matches!(self, What::Zero | What::Deallocate | What::Flush)
    }

    /// Whether its command can be given up without its controller's answer, since it changes nothing and its buffer can be taken away.
    pub fn is_abandonable(self) -> bool {
        matches!(self, What::Read | What::Patch)
    }
}

/// The parts of an operation that were not begun.
#[derive(Debug)]
pub(super) enum Cuts {
    /// Reads, writes, and zeros that are written.
    Bytes {
        split: Split,
        next: Option<Piece>,
    },
    /// Whole blocks without data.
    Blocks {
        what: What,
        blocks: Range<u64>,
        most: u64,
    },
    /// One Flush.
    Flush,
    Done,
}

impl Cuts {
    /// Of bytes that are known to be inside the namespace.
    pub fn bytes(geometry: &Geometry, bytes: Range<u64>) -> Self {
        match Split::new(geometry, bytes) {
            Some(mut split) => {
                let next = split.next();
                if next.is_some() {
                    Cuts::Bytes { split, next }
                } else {
                    Cuts::Done
                }
            }
            None => Cuts::Done,
        }
    }

    pub fn blocks(what: What, blocks: Range<u64>, most: u64) -> Self {
        if blocks.is_empty() {
            Cuts::Done
        } else {
            Cuts::Blocks { what, blocks, most }
        }
    }

    pub fn is_done(&self) -> bool {
        matches!(self, Cuts::Done)
    }

    /// The next part of an operation.
    pub fn next(&mut self, op: Op, lba_bytes: u32) -> Option<(What, Piece)> {
        match self {
            Cuts::Done => None,
            Cuts::Flush => {
                *self = Cuts::Done;
                Some((What::Flush, whole(0, 0, lba_bytes)))
            }
            Cuts::Bytes { split, next } => {
                let piece = (*next)?;
                *next = split.next();
                if next.is_none() {
                    *self = Cuts::Done;
                }
                let what = match op {
                    Op::Read { .. } => What::Read,
                    _ if piece.is_whole(lba_bytes) => What::Write,
                    _ => What::Patch,
                };
                Some((what, piece))
            }
            Cuts::Blocks { what, blocks, most } => {
                let what = *what;
                let count = (blocks.end - blocks.start).min(*most).max(1);
                let piece = whole(blocks.start, count, lba_bytes);
                blocks.start += count;
                if blocks.is_empty() {
                    *self = Cuts::Done;
                }
                Some((what, piece))
            }
        }
    }
}

fn whole(first: u64, blocks: u64, lba_bytes: u32) -> Piece {
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    Piece {
        lba: nvme_spec::Lba(first),
        blocks,
        skip_bytes: 0,
        take_bytes: blocks.saturating_mul(lba_bytes),
        buffer_offset: 0,
    }
}

/// The blocks of a namespace that lie in a byte range as a whole.
pub(super) fn whole_blocks(bytes: &Range<u64>, lba_bytes: u32) -> Range<u64> {
    let lba_bytes = u64::from(lba_bytes);
    let first = bytes.start.div_ceil(lba_bytes);
    first..(bytes.end / lba_bytes).max(first)
}
