//! What an `IoBuf` holds: a few pieces in place, or a shared list of many and a range of it.
//!
//! Lists are recycled by their thread: a buffer of a guest's 257 pages allocates nothing once as many lists exist as are in use at a time.

use std::cell::RefCell;
use std::rc::Rc;

use smallvec::SmallVec;

use super::INLINE_SEGMENTS;
use super::segment::{Piece, Segment};

/// Lists that a thread keeps for reuse: as many buffers of more than [`INLINE_SEGMENTS`] segments as are in use at a time.
const LISTS_KEPT: usize = 256;
/// Pieces a new list has room for: 1 MiB of a guest's pages.
const PIECES: usize = 257;

thread_local! {
    static FREE: RefCell<Vec<Rc<Table>>> = RefCell::new(Vec::with_capacity(LISTS_KEPT));
}

/// Pieces one after the other, and where each of them ends.
#[derive(Debug, Default)]
pub(super) struct Table {
    pieces: Vec<Piece>,
    ends: Vec<usize>,
}

impl Table {
    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    fn push(&mut self, piece: Piece) {
        self.ends.push(self.len() + piece.len as usize);
        self.pieces.push(piece);
    }
}

/// A counted reference to a table; the last one gives it back to its thread.
#[derive(Clone, Debug)]
pub(super) struct List(Rc<Table>);

impl List {
    fn take() -> Self {
        let free = FREE.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        Self(free.unwrap_or_else(|| {
            Rc::new(Table {
                pieces: Vec::with_capacity(PIECES),
                ends: Vec::with_capacity(PIECES),
            })
        }))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if let Some(table) = Rc::get_mut(&mut self.0) {
            // First: what a piece keeps alive may be anything, buffers included.
            table.pieces.clear();
            table.ends.clear();
            let _thread_ends = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < LISTS_KEPT {
                    free.push(self.0.clone());
                }
            });
        }
    }
}

/// The pieces of a buffer.
#[derive(Clone, Debug)]
pub(super) enum Pieces {
    /// All of them, whole.
    Few(SmallVec<[Piece; INLINE_SEGMENTS]>),
    /// Bytes from `start` on of a list.
    Many { list: List, start: usize },
}

impl Default for Pieces {
    fn default() -> Self {
        Self::Few(SmallVec::new())
    }
}

impl Pieces {
    /// Appends to pieces of `len` bytes. The first ones are put in place in the caller: a piece that went through memory would be read back wider than it was
    /// written, and wait there for every store before it, those to memory that a guest's processor has among them.
    #[inline(always)]
    pub(super) fn push(&mut self, piece: Piece, len: usize) {
        match self {
            Self::Few(few) if few.len() < INLINE_SEGMENTS => few.push(piece),
            _ => self.push_more(piece, len),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Few(few) => few.clear(),
            Self::Many { .. } => *self = Self::default(),
        }
    }

    #[inline(never)]
    fn push_more(&mut self, piece: Piece, len: usize) {
        if let Self::Many { list, start: 0 } = self
            && list.0.len() == len
            && let Some(table) = Rc::get_mut(&mut list.0)
        {
            return table.push(piece);
        }
        // A list of our own: there are too many now, or others see the list, or it is longer than what we see of it.
        let mut list = List::take();
        if let Some(table) = Rc::get_mut(&mut list.0) {
            self.runs(0, len).for_each(|run| table.push(run.to_piece()));
            table.push(piece);
        }
        *self = Self::Many { list, start: 0 };
    }

    /// All of a buffer's `len` bytes, run by run.
    #[inline]
    pub(super) fn all(&self, len: usize) -> Segments<'_> {
        match self {
            Self::Few(few) => Segments {
                pieces: few.iter(),
                skip: 0,
                left: len,
                count: few.len(),
            },
            Self::Many { .. } => self.runs(0, len),
        }
    }

    /// Bytes `[offset, offset + len)`, which are there, run by run.
    pub(super) fn runs(&self, offset: usize, len: usize) -> Segments<'_> {
        let none = Segments {
            pieces: [].iter(),
            skip: 0,
            left: 0,
            count: 0,
        };
        if len == 0 {
            return none;
        }
        match self {
            Self::Few(few) => {
                let (mut skip, mut first) = (offset, 0);
                while few
                    .get(first)
                    .is_some_and(|piece| skip >= piece.len as usize)
                {
                    skip -= few[first].len as usize;
                    first += 1;
                }
                let pieces = few.get(first..).unwrap_or_default();
                let mut end = 0;
                let reaching = pieces.iter().take_while(|piece| {
                    let needed = end < skip + len;
                    end += piece.len as usize;
                    needed
                });
                let count = reaching.count();
                Segments {
                    pieces: pieces.iter(),
                    skip,
                    left: len,
                    count,
                }
            }
            Self::Many { list, start } => {
                let (from, to) = (start + offset, start + offset + len);
                let ends = &list.0.ends;
                let first = ends.partition_point(|&end| end <= from);
                let last = ends.partition_point(|&end| end < to);
                let before = first.checked_sub(1).map_or(0, |before| ends[before]);
                let Some(pieces) = list.0.pieces.get(first..=last) else {
                    return none;
                };
                Segments {
                    pieces: pieces.iter(),
                    skip: from - before,
                    left: len,
                    count: pieces.len(),
                }
            }
        }
    }
}

/// The runs of a buffer, or of a part of it, in order; none is empty.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    pieces: std::slice::Iter<'a, Piece>,
    /// Bytes of the next piece that are passed over.
    skip: usize,
    /// Bytes to come.
    left: usize,
    /// Runs to come.
    count: usize,
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    fn next(&mut self) -> Option<Segment<'a>> {
        if self.left == 0 {
            return None;
        }
        let piece = self.pieces.next()?;
        let take = (piece.len as usize - self.skip).min(self.left);
        let run = Segment::of(piece, self.skip, take);
        self.skip = 0;
        self.left -= take;
        self.count -= 1;
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Segments<'_> {}
