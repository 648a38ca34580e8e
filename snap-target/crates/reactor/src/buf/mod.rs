//! `IoBuf`: who owns the bytes an operation works on, and the pool they come from.
//!
//! An [`IoBuf`] is an owned list of segments. Each segment points into one of four kinds of memory and holds a reference that keeps
//! it alive: a pool slot (returned when the last reference goes), heap memory, a lease of store memory, or a lease of guest memory.
//! Slicing and cloning copy references, never bytes, and allocate nothing: up to [`INLINE_SEGMENTS`] segments lie in the buffer itself, more in a
//! list that its views share and its thread recycles. A view of such a list keeps all of it alive.
//!
//! **Aliasing rule.** Several `IoBuf`s may view the same bytes (a slice for each piece of a request, a slice for a send). The memory
//! is therefore reached through raw pointers ([`IoBuf::raw_segments`]), through copies ([`IoBuf::copy_to`], [`IoBuf::copy_from`]), or,
//! where nobody else holds a reference, as `&mut [u8]` ([`IoBuf::exclusive`]). Shared slices ([`IoBuf::as_slices`]) are `unsafe`: the
//! caller knows that neither the kernel nor another view writes those bytes meanwhile.
//!
//! What it does not do: it does not zero. A slot from the pool holds what its last user left; whoever presents it writes every byte.

mod guest;
mod list;
mod memory;
mod pool;
mod segment;

use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use list::Pieces;
pub use list::Segments;
pub use memory::{CACHE_LINE_BYTES, Mapping, PAGE_BYTES, Region, RegionId, prefetch_line};
use pool::SlotRef;
pub use pool::{Pool, PoolConfig, PoolUse, STAGING_BYTES};
pub(crate) use segment::Hold;
use segment::{Backing, Piece};
pub use segment::{Lease, Segment};

use crate::error::ReactorError;

/// Segments an `IoBuf` holds in itself. It is moved from hand to hand several times for each command: with more than two of them each move was a call of memcpy.
pub const INLINE_SEGMENTS: usize = 2;

/// Owned list of segments; see the module. Not `Send`: a buffer belongs to one reactor for life.
#[derive(Clone, Debug, Default)]
pub struct IoBuf {
    pieces: Pieces,
    len: usize,
}

impl IoBuf {
    /// A buffer without bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Fresh zeroed page-aligned memory outside any pool: for control data and tools, not for the data path.
    pub fn heap(len: usize) -> Result<Self, ReactorError> {
        let size = u32::try_from(len).map_err(|_| ReactorError::Memory {
            bytes: len,
            source: nix::errno::Errno::ENOMEM,
        })?;
        let mapping = Mapping::new(len)?;
        let ptr = mapping.base();
        Ok(Self::of_piece(Piece {
            ptr,
            len: size,
            backing: Backing::Heap(Rc::new(mapping)),
        }))
    }

    /// A heap buffer that holds a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ReactorError> {
        let mut buf = Self::heap(bytes.len())?;
        buf.copy_from(0, bytes);
        Ok(buf)
    }

    /// A read-only, zero-copy view of store memory.
    ///
    /// # Safety
    /// `keeper` keeps `[ptr, ptr+len)` mapped and readable for as long as it lives. The bytes may be changed by other writers while
    /// leased only where the store's contract says that a reader may then see either content.
    #[must_use]
    pub unsafe fn lease(keeper: Rc<Lease>, ptr: NonNull<u8>, len: u32) -> Self {
        Self::of_piece(Piece {
            ptr,
            len,
            backing: Backing::Store(keeper),
        })
    }

    /// A view of guest memory: written once, never read back, shared with a guest that may change it at any time.
    ///
    /// # Safety
    /// `keeper` keeps every `(ptr, len)` mapped for reading and writing for as long as it lives.
    #[must_use]
    pub unsafe fn guest(keeper: &Rc<Lease>, parts: &[(NonNull<u8>, u32)]) -> Self {
        let mut buf = Self::empty();
        for &(ptr, len) in parts {
            // SAFETY: as the caller promises.
            unsafe { buf.push_guest(keeper.clone(), ptr, len) };
        }
        buf
    }

    /// Appends one more part of a guest's memory.
    ///
    /// # Safety
    /// As [`IoBuf::guest`].
    #[inline(always)]
    pub unsafe fn push_guest(&mut self, keeper: Rc<Lease>, ptr: NonNull<u8>, len: u32) {
        self.push(Piece {
            ptr,
            len,
            backing: Backing::Guest(keeper),
        });
    }

    /// Parts (offset, length) of a mapping that plays a guest's memory, for tests and simulations; `None` where one lies outside.
    #[must_use]
    pub fn guest_in(memory: &Rc<Mapping>, parts: &[(usize, u32)]) -> Option<Self> {
        let keeper = Lease::new(memory.clone(), memory.region());
        let mut inside = Vec::with_capacity(parts.len());
        for &(offset, len) in parts {
            let end = offset.checked_add(len as usize)?;
            if end > memory.len() {
                return None;
            }
            inside.push((memory.at(offset)?, len));
        }
        // SAFETY: every part is inside the mapping, which the keeper holds; it is private memory, readable and writable.
        Some(unsafe { Self::guest(&keeper, &inside) })
    }

    fn of_pool(ptr: NonNull<u8>, len: u32, slot: SlotRef) -> Self {
        Self::of_piece(Piece {
            ptr,
            len,
            backing: Backing::Pool(slot),
        })
    }

    fn of_piece(piece: Piece) -> Self {
        let mut buf = Self::empty();
        buf.push(piece);
        buf
    }

    #[inline(always)]
    fn push(&mut self, piece: Piece) {
        let bytes = piece.len as usize;
        if bytes > 0 {
            self.pieces.push(piece, self.len);
            self.len += bytes;
        }
    }

    /// Lets go of what it holds, where it is: an empty one that takes its place is moved there.
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.len = 0;
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segments in order; none is empty.
    #[must_use]
    pub fn segments(&self) -> Segments<'_> {
        self.pieces.all(self.len)
    }

    /// The segment of a buffer that has just one.
    pub(crate) fn single(&self) -> Option<Segment<'_>> {
        let mut segments = self.segments();
        segments.next().filter(|_| segments.len() == 0)
    }

    /// Whether any byte lies in a region: what has to end before the region may be unmapped.
    #[must_use]
    pub fn touches(&self, region: RegionId) -> bool {
        self.segments().any(|segment| segment.region() == region)
    }

    /// Whether any byte is a view of store memory: read-only, and possibly shared with other reactors.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.segments().any(|segment| segment.is_lease())
    }

    /// Whether any byte is guest memory.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.segments().any(|segment| segment.is_guest())
    }

    /// Bytes `range` as a buffer of its own over the same memory. Ends are clamped to the length.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let start = range.start.min(self.len);
        let len = range.end.min(self.len).saturating_sub(start);
        if let Pieces::Many { list, start: first } = &self.pieces
            && len > 0
        {
            return Self {
                pieces: Pieces::Many {
                    list: list.clone(),
                    start: first + start,
                },
                len,
            };
        }
        let mut out = Self::empty();
        out.push_slice(self, range);
        out
    }

    /// Appends a view of bytes `range` of `other`.
    pub fn push_slice(&mut self, other: &Self, range: Range<usize>) {
        let start = range.start.min(other.len);
        let len = range.end.min(other.len).saturating_sub(start);
        for run in other.pieces.runs(start, len) {
            self.push(run.to_piece());
        }
    }

    /// Appends `other`'s segments.
    pub fn append(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        match other.pieces {
            Pieces::Few(few) => few.into_iter().for_each(|piece| self.push(piece)),
            Pieces::Many { .. } => self.push_slice(&other, 0..other.len),
        }
    }

    /// Shortens the view to `len` bytes; longer is left as it is.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            *self = self.slice(0..len);
        }
    }

    /// Bytes `[offset, offset+len)` as raw runs, clamped to the buffer's end.
    pub fn raw_segments(
        &self,
        offset: usize,
        len: usize,
    ) -> impl ExactSizeIterator<Item = (*mut u8, usize)> + '_ {
        self.segments_in(offset, len)
            .map(|run| (run.ptr().as_ptr(), run.len()))
    }

    /// The segments of bytes `[offset, offset+len)`, clamped to the buffer's end; none is empty.
    #[must_use]
    pub fn segments_in(&self, offset: usize, len: usize) -> Segments<'_> {
        if offset == 0 && len >= self.len {
            return self.segments();
        }
        let offset = offset.min(self.len);
        self.pieces.runs(offset, len.min(self.len - offset))
    }

    /// Copies bytes from `offset` on into `out`; returns how many there were.
    ///
    /// Where another view or the kernel writes the same bytes meanwhile, `out` gets some of either content.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> usize {
        let mut done = 0;
        for (ptr, len) in self.raw_segments(offset, out.len()) {
            // SAFETY: the source run is alive and `len` long; `out[done..]` has at least `len` bytes because the runs sum up to at
            // most out.len(), and a caller's exclusive slice cannot overlap memory that is reached only through IoBufs.
            unsafe { std::ptr::copy_nonoverlapping(ptr, out.as_mut_ptr().add(done), len) };
            done += len;
        }
        done
    }

    /// All bytes, copied.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.copy_to(0, &mut out);
        out
    }

    /// Copies `bytes` in from `offset` on; returns how many fitted. A lease of store memory takes none: it is read-only. Guest memory is
    /// written with volatile stores.
    pub fn copy_from(&mut self, offset: usize, bytes: &[u8]) -> usize {
        // SAFETY: `bytes` is readable and as long as it says.
        unsafe { self.copy_from_raw(offset, bytes.as_ptr(), bytes.len()) }
    }

    /// As [`IoBuf::copy_from`], from memory that may change meanwhile: the buffer then gets some of either content.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    pub unsafe fn copy_from_raw(&self, offset: usize, from: *const u8, len: usize) -> usize {
        if self.is_lease() {
            return 0;
        }
        let mut done = 0;
        for run in self.segments_in(offset, len) {
            let to = run.ptr().as_ptr();
            // SAFETY: the destination run is alive, writable and as long as it says; `from` has as many bytes from `done` on, because the
            // runs sum up to at most `len`. Guest memory overlaps no memory of ours; for the rest `copy` allows for a source that overlaps (a
            // slice of another view made by as_slices).
            unsafe {
                if run.is_guest() {
                    guest::copy(to, from.add(done), run.len());
                } else {
                    std::ptr::copy(from.add(done), to, run.len());
                }
            }
            done += run.len();
        }
        done
    }

    /// Copies another buffer's bytes in, from the first on, as far as there is room; returns how many.
    pub fn copy_from_buf(&mut self, other: &IoBuf) -> usize {
        let mut done = 0;
        for (from, len) in other.raw_segments(0, self.len) {
            // SAFETY: the other buffer keeps its runs alive and readable.
            done += unsafe { self.copy_from_raw(done, from.cast_const(), len) };
        }
        done
    }

    /// Writes `value` over bytes `[offset, offset+len)`, clamped; returns how many there were. A lease of store memory takes none.
    pub fn fill(&mut self, offset: usize, len: usize, value: u8) -> usize {
        if self.is_lease() {
            return 0;
        }
        let mut done = 0;
        for run in self.segments_in(offset, len) {
            let to = run.ptr().as_ptr();
            // SAFETY: the run is alive, writable and as long as it says.
            unsafe {
                if run.is_guest() {
                    guest::fill(to, value, run.len());
                } else {
                    std::ptr::write_bytes(to, value, run.len());
                }
            }
            done += run.len();
        }
        done
    }

    /// The bytes as one exclusive slice: `Some` only for a single segment of pool or heap memory that nobody else refers to.
    pub fn exclusive(&mut self) -> Option<&mut [u8]> {
        if self.is_empty() {
            return Some(&mut []);
        }
        let Pieces::Few(few) = &self.pieces else {
            return None;
        };
        match few.as_slice() {
            [piece] if piece.backing.is_exclusive() => {
                // SAFETY: the memory is initialised (mappings are zero-filled), alive, and this is its only reference: no other view,
                // and no operation in flight, since an operation holds a reference of its own. `&mut self` keeps it so.
                Some(unsafe {
                    std::slice::from_raw_parts_mut(piece.ptr.as_ptr(), piece.len as usize)
                })
            }
            _ => None,
        }
    }

    /// Bytes `[offset, offset+len)` as shared slices, one a segment, clamped to the end.
    ///
    /// # Safety
    /// While the slices live, nothing writes those bytes: no operation in flight reads into them, no other view is written, and leased
    /// or guest memory is not changed by its owner.
    pub unsafe fn as_slices<'a>(
        &'a self,
        offset: usize,
        len: usize,
    ) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.raw_segments(offset, len).map(|(ptr, len)| {
            // SAFETY: the run is alive as long as `self` is borrowed, initialised, and by this function's contract not written meanwhile.
            unsafe { std::slice::from_raw_parts(ptr.cast_const(), len) }
        })
    }
}

#[cfg(test)]
mod tests;
