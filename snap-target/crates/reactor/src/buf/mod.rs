//! `IoBuf`: who owns the bytes an operation works on, and the pool they come from.
//!
//! An [`IoBuf`] is an owned list of segments. Each segment points into one of four kinds of memory and holds a reference that keeps
//! it alive: a pool slot (returned when the last reference goes), heap memory, a lease of store memory, or a lease of guest memory.
//! Slicing and cloning copy references, never bytes, and allocate nothing up to [`INLINE_SEGMENTS`] segments.
//!
//! **Aliasing rule.** Several `IoBuf`s may view the same bytes (a slice for each piece of a request, a slice for a send). The memory
//! is therefore reached through raw pointers ([`IoBuf::raw_segments`]), through copies ([`IoBuf::copy_to`], [`IoBuf::copy_from`]), or,
//! where nobody else holds a reference, as `&mut [u8]` ([`IoBuf::exclusive`]). Shared slices ([`IoBuf::as_slices`]) are `unsafe`: the
//! caller knows that neither the kernel nor another view writes those bytes meanwhile.
//!
//! What it does not do: it does not zero. A slot from the pool holds what its last user left; whoever presents it writes every byte.

mod memory;
mod pool;

use std::any::Any;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use smallvec::SmallVec;

pub use memory::{Mapping, PAGE_BYTES};
use pool::SlotRef;
pub use pool::{Pool, PoolConfig, PoolUse, STAGING_BYTES};

use crate::error::ReactorError;

/// Segments an `IoBuf` holds without an allocation.
pub const INLINE_SEGMENTS: usize = 4;

/// Where a segment's bytes live, and what keeps them alive.
#[derive(Clone, Debug)]
enum Backing {
    Pool(SlotRef),
    Heap(Rc<Mapping>),
    Store(#[expect(dead_code, reason = "held only for its Drop")] Rc<Lease>),
    Guest(#[expect(dead_code, reason = "held only for its Drop")] Rc<Lease>),
}

impl Backing {
    /// Whether this is the only reference to the memory, and the memory is ours to write.
    fn is_exclusive(&self) -> bool {
        match self {
            Self::Pool(slot) => slot.is_exclusive(),
            Self::Heap(mapping) => Rc::strong_count(mapping) == 1,
            Self::Store(_) | Self::Guest(_) => false,
        }
    }
}

/// Keeps foreign memory alive while segments point into it. Made once per mapping and shared by its leases, so a lease costs a
/// reference count that no other thread touches.
#[derive(Debug)]
pub struct Lease {
    /// Held, never looked at: dropping it may unmap the memory.
    #[expect(dead_code, reason = "held only for its Drop")]
    keeper: Box<dyn Any>,
}

impl Lease {
    /// Wraps whatever keeps the memory mapped (an `Arc` of the store's memory, a guest's region). It may be dropped inside the ring,
    /// so its own drop must not use one.
    #[must_use]
    pub fn new(keeper: impl Any) -> Rc<Self> {
        Rc::new(Self {
            keeper: Box::new(keeper),
        })
    }
}

/// A contiguous run of bytes of an [`IoBuf`].
#[derive(Clone, Debug)]
pub struct Segment {
    ptr: NonNull<u8>,
    len: u32,
    backing: Backing,
}

impl Segment {
    /// First byte.
    #[must_use]
    pub fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the segment has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index under which this memory is registered with the ring `ring_id`, if it is.
    #[must_use]
    pub(crate) fn fixed_index(&self, ring_id: u64) -> Option<u16> {
        match &self.backing {
            Backing::Pool(slot) => slot.fixed_index(ring_id),
            _ => None,
        }
    }

    /// Whether this memory is registered with the ring its pool was made for.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        matches!(&self.backing, Backing::Pool(slot) if slot.is_registered())
    }

    /// Bytes `range` of this segment; the caller has checked the bounds.
    fn part(&self, range: Range<u32>) -> Self {
        debug_assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: start <= len, so the pointer stays inside the segment's memory, which `backing` keeps alive.
        let ptr = unsafe { self.ptr.add(range.start as usize) };
        Self {
            ptr,
            len: range.end - range.start,
            backing: self.backing.clone(),
        }
    }
}

/// Owned list of segments; see the module. Not `Send`: a buffer belongs to one reactor for life.
#[derive(Clone, Debug, Default)]
pub struct IoBuf {
    segments: SmallVec<[Segment; INLINE_SEGMENTS]>,
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
        Ok(Self::of_segment(Segment {
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
        Self::of_segment(Segment {
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
            buf.push(Segment {
                ptr,
                len,
                backing: Backing::Guest(keeper.clone()),
            });
        }
        buf
    }

    /// Parts (offset, length) of a mapping that plays a guest's memory, for tests and simulations; `None` where one lies outside.
    #[must_use]
    pub fn guest_in(memory: &Rc<Mapping>, parts: &[(usize, u32)]) -> Option<Self> {
        let keeper = Lease::new(memory.clone());
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
        Self::of_segment(Segment {
            ptr,
            len,
            backing: Backing::Pool(slot),
        })
    }

    fn of_segment(segment: Segment) -> Self {
        let mut buf = Self::empty();
        buf.push(segment);
        buf
    }

    fn push(&mut self, segment: Segment) {
        if segment.len > 0 {
            self.len += segment.len as usize;
            self.segments.push(segment);
        }
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
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Whether any byte is a view of store memory: read-only, and possibly shared with other reactors.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.segments
            .iter()
            .any(|segment| matches!(segment.backing, Backing::Store(_)))
    }

    /// Whether any byte is guest memory.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        self.segments
            .iter()
            .any(|segment| matches!(segment.backing, Backing::Guest(_)))
    }

    /// Bytes `range` as a buffer of its own over the same memory. Ends are clamped to the length.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut out = Self::empty();
        out.push_slice(self, range);
        out
    }

    /// Appends a view of bytes `range` of `other`.
    pub fn push_slice(&mut self, other: &Self, range: Range<usize>) {
        let (mut skip, mut left) = (
            range.start,
            range.end.min(other.len).saturating_sub(range.start),
        );
        for segment in &other.segments {
            if left == 0 {
                break;
            }
            let len = segment.len as usize;
            if skip >= len {
                skip -= len;
                continue;
            }
            let take = (len - skip).min(left);
            // Both are at most `len`, which came from a u32.
            #[expect(
                clippy::cast_possible_truncation,
                reason = "bounded by the segment's u32 length"
            )]
            self.push(segment.part(skip as u32..(skip + take) as u32));
            skip = 0;
            left -= take;
        }
    }

    /// Appends `other`'s segments.
    pub fn append(&mut self, other: Self) {
        self.len += other.len;
        self.segments.extend(other.segments);
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
    ) -> impl Iterator<Item = (*mut u8, usize)> + '_ {
        let mut skip = offset;
        let mut left = len.min(self.len.saturating_sub(offset));
        self.segments.iter().filter_map(move |segment| {
            let size = segment.len as usize;
            if left == 0 || skip >= size {
                skip = skip.saturating_sub(size);
                return None;
            }
            let take = (size - skip).min(left);
            // SAFETY: skip < size keeps the pointer inside the segment, which `self` keeps alive.
            let ptr = unsafe { segment.ptr.add(skip) };
            skip = 0;
            left -= take;
            Some((ptr.as_ptr(), take))
        })
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

    /// Copies `bytes` in from `offset` on; returns how many fitted. A lease of store memory takes none: it is read-only.
    pub fn copy_from(&mut self, offset: usize, bytes: &[u8]) -> usize {
        if self.is_lease() {
            return 0;
        }
        let mut done = 0;
        for (ptr, len) in self.raw_segments(offset, bytes.len()) {
            // SAFETY: the destination run is alive, writable and `len` long; `bytes[done..]` has at least `len` bytes. `copy` allows
            // for a source that overlaps (a slice of another view made by as_slices).
            unsafe { std::ptr::copy(bytes.as_ptr().add(done), ptr, len) };
            done += len;
        }
        done
    }

    /// Writes `value` over bytes `[offset, offset+len)`, clamped; returns how many there were. A lease of store memory takes none.
    pub fn fill(&mut self, offset: usize, len: usize, value: u8) -> usize {
        if self.is_lease() {
            return 0;
        }
        let mut done = 0;
        for (ptr, run) in self.raw_segments(offset, len) {
            // SAFETY: the run is alive, writable and `run` long.
            unsafe { std::ptr::write_bytes(ptr, value, run) };
            done += run;
        }
        done
    }

    /// The bytes as one exclusive slice: `Some` only for a single segment of pool or heap memory that nobody else refers to.
    pub fn exclusive(&mut self) -> Option<&mut [u8]> {
        match self.segments.as_slice() {
            [] => Some(&mut []),
            [segment] if segment.backing.is_exclusive() => {
                // SAFETY: the memory is initialised (mappings are zero-filled), alive, and this is its only reference: no other view,
                // and no operation in flight, since an operation holds a reference of its own. `&mut self` keeps it so.
                Some(unsafe {
                    std::slice::from_raw_parts_mut(segment.ptr.as_ptr(), segment.len as usize)
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
