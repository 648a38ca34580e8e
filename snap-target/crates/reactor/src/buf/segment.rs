//! Segments: a run of bytes, and what keeps its memory alive.

use std::any::Any;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::memory::{Mapping, Region, RegionId};
use super::pool::SlotRef;

/// Where a segment's bytes live, and what keeps them alive.
#[derive(Clone, Debug)]
pub(super) enum Backing {
    Pool(SlotRef),
    Heap(Rc<Mapping>),
    Store(Rc<Lease>),
    Guest(Rc<Lease>),
}

impl Backing {
    /// Whether this is the only reference to the memory, and the memory is ours to write.
    pub(super) fn is_exclusive(&self) -> bool {
        match self {
            Self::Pool(slot) => slot.is_exclusive(),
            Self::Heap(mapping) => Rc::strong_count(mapping) == 1,
            Self::Store(_) | Self::Guest(_) => false,
        }
    }

    fn region(&self) -> Region {
        match self {
            Self::Pool(slot) => slot.region(),
            Self::Heap(mapping) => mapping.region(),
            Self::Store(lease) | Self::Guest(lease) => lease.region,
        }
    }
}

/// Keeps foreign memory alive while segments point into it. Made once per mapping and shared by its leases, so a lease costs a
/// reference count that no other thread touches.
#[derive(Debug)]
pub struct Lease {
    region: Region,
    /// See [`Lease::void`].
    is_void: bool,
    /// Held, never looked at: dropping it may unmap the memory.
    #[expect(dead_code, reason = "held only for its Drop")]
    keeper: Box<dyn Any>,
}

impl Lease {
    /// Wraps whatever keeps `region` mapped (an `Arc` of the store's memory, a guest's region). It may be dropped inside the ring,
    /// so its own drop must not use one.
    #[must_use]
    pub fn new(keeper: impl Any, region: Region) -> Rc<Self> {
        Rc::new(Self {
            region,
            is_void: false,
            keeper: Box::new(keeper),
        })
    }

    /// The same of bytes that mean nothing to whoever asks for them: memory of a guest's may stay as it is where they were to go.
    #[must_use]
    pub fn void(keeper: impl Any, region: Region) -> Rc<Self> {
        Rc::new(Self {
            region,
            is_void: true,
            keeper: Box::new(keeper),
        })
    }

    /// The memory that it keeps.
    #[must_use]
    pub fn region(&self) -> Region {
        self.region
    }
}

/// An owned run of bytes: what lists are made of.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) ptr: NonNull<u8>,
    pub(super) len: u32,
    pub(super) backing: Backing,
}

/// A contiguous run of bytes of an [`IoBuf`](super::IoBuf).
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    ptr: NonNull<u8>,
    len: u32,
    backing: &'a Backing,
}

impl<'a> Segment<'a> {
    /// Bytes `[skip, skip + len)` of a piece; the caller has checked the bounds.
    pub(super) fn of(piece: &'a Piece, skip: usize, len: usize) -> Self {
        debug_assert!(skip + len <= piece.len as usize);
        Self {
            // SAFETY: skip <= the piece's length, so the pointer stays inside its memory, which `backing` keeps alive.
            ptr: unsafe { piece.ptr.add(skip) },
            #[expect(
                clippy::cast_possible_truncation,
                reason = "bounded by the piece's u32 length"
            )]
            len: len as u32,
            backing: &piece.backing,
        }
    }

    /// The same run with a reference of its own.
    pub(super) fn to_piece(self) -> Piece {
        Piece {
            ptr: self.ptr,
            len: self.len,
            backing: self.backing.clone(),
        }
    }

    /// Keeps the memory alive, and says nothing else about it.
    pub(crate) fn hold(self) -> Hold {
        Hold {
            _backing: self.backing.clone(),
        }
    }

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

    /// The region it lies in.
    #[must_use]
    pub fn region(&self) -> RegionId {
        self.backing.region().id()
    }

    /// Where it begins in its region, in bytes.
    #[must_use]
    pub fn region_offset(&self) -> usize {
        let base = self.backing.region().base();
        self.ptr.addr().get() - base.addr().get()
    }

    /// The memory of the pool that it lies in, if it lies in one: for a device to register as a whole.
    #[must_use]
    pub fn pool_memory(&self) -> Option<&'a Arc<Mapping>> {
        match self.backing {
            Backing::Pool(slot) => Some(slot.memory()),
            _ => None,
        }
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

    /// Whether nobody needs these bytes; see [`Lease::void`].
    #[must_use]
    pub fn is_void(&self) -> bool {
        matches!(self.backing, Backing::Store(lease) if lease.is_void)
    }

    pub(super) fn is_lease(&self) -> bool {
        matches!(self.backing, Backing::Store(_))
    }

    /// Whether it is a guest's memory.
    #[must_use]
    pub fn is_guest(&self) -> bool {
        matches!(self.backing, Backing::Guest(_))
    }
}

/// A reference to memory that is in use elsewhere.
#[derive(Debug)]
pub(crate) struct Hold {
    _backing: Backing,
}
