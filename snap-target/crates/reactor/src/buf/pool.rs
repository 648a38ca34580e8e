//! The bounded pool of staging memory of one reactor.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::{IoBuf, Mapping, Region};
use crate::error::ReactorError;
use crate::ring::Ring;

/// Bytes of a staging slot, the largest class.
pub const STAGING_BYTES: usize = 1 << 20;
/// Staging slots of one buffer.
const STAGING_SLOTS_MAX: usize = 4;

/// Slot sizes, smallest first. The small ones keep a 4 KiB read from holding a megabyte.
const CLASS_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 128 << 10, STAGING_BYTES];

/// How many slots of each class a pool has. Defaults sum up to 46.5 MiB of address space; pages are touched when first used, and hot
/// slots are reused first.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Slots of 4 KiB.
    pub slots_4k: u32,
    /// Slots of 16 KiB.
    pub slots_16k: u32,
    /// Slots of 64 KiB.
    pub slots_64k: u32,
    /// Slots of 128 KiB.
    pub slots_128k: u32,
    /// Staging slots of 1 MiB.
    pub slots_1m: u32,
    /// Whether to try to register the memory with the ring (fixed buffers). Over RLIMIT_MEMLOCK, or over the kernel's 1 GiB, it stays
    /// unregistered.
    pub register: bool,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            slots_4k: 512,
            slots_16k: 128,
            slots_64k: 64,
            slots_128k: 64,
            slots_1m: 32,
            register: true,
        }
    }
}

impl PoolConfig {
    fn counts(&self) -> [u32; CLASS_BYTES.len()] {
        [
            self.slots_4k,
            self.slots_16k,
            self.slots_64k,
            self.slots_128k,
            self.slots_1m,
        ]
    }

    /// Bytes of memory the pool maps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.counts()
            .iter()
            .zip(CLASS_BYTES)
            .map(|(&count, bytes)| count as usize * bytes)
            .sum()
    }
}

/// How full a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUse {
    /// Bytes in slots that are handed out.
    pub used_bytes: usize,
    /// Bytes in all slots.
    pub total_bytes: usize,
    /// Requests that found no slot and were told to park.
    pub refusals: u64,
}

/// Handle to the pool; cheap to clone. Memory is unmapped when the pool and every buffer from it are gone.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Rc<Inner>,
}

impl Pool {
    /// Maps the memory and, if asked and allowed, registers it with `ring`. A ring takes one registered pool; a second one is
    /// unregistered.
    pub fn new(ring: &Ring, config: &PoolConfig) -> Result<Self, ReactorError> {
        let mapping = Arc::new(Mapping::new(config.bytes())?);
        mapping.advise_huge();
        let fixed = config.register && ring.register_memory(&mapping);
        let mut classes: Vec<Class> = Vec::with_capacity(CLASS_BYTES.len());
        let (mut offset, mut first_slot) = (0usize, 0u32);
        // Largest first, so that every slot is aligned to its own size from the mapping's page-aligned start.
        for (&slots, bytes) in config.counts().iter().zip(CLASS_BYTES).rev() {
            let free = (0..slots).rev().map(|slot| first_slot + slot).collect();
            classes.push(Class {
                bytes,
                base: offset,
                first_slot,
                slots,
                free: RefCell::new(free),
            });
            offset += slots as usize * bytes;
            first_slot += slots;
        }
        classes.reverse();
        let refs = (0..first_slot).map(|_| Cell::new(0)).collect();
        let inner = Inner {
            mapping,
            classes,
            refs,
            ring_id: ring.id(),
            fixed,
            total_bytes: offset,
            used_bytes: Cell::new(0),
            refusals: Cell::new(0),
        };
        Ok(Self {
            inner: Rc::new(inner),
        })
    }

    /// A buffer of `len` bytes from the smallest class that has a slot; above 1 MiB, several staging slots. `None`: the pool is used up
    /// (park, and retry when a buffer came back) or `len` is over [`Pool::alloc_bytes_max`]. The bytes are whatever was there.
    #[must_use]
    pub fn alloc(&self, len: usize) -> Option<IoBuf> {
        let mut buf = IoBuf::empty();
        if len <= Self::alloc_bytes_max() {
            let mut left = len;
            while left > 0 {
                let part = left.min(STAGING_BYTES);
                let Some(piece) = self.alloc_slot(part) else {
                    break;
                };
                buf.append(piece);
                left -= part;
            }
            if left == 0 {
                return Some(buf);
            }
        }
        self.inner.refusals.set(self.inner.refusals.get() + 1);
        None
    }

    /// Bytes of the free slots that a buffer of `len` bytes could be made of.
    #[must_use]
    pub fn free_bytes_for(&self, len: usize) -> usize {
        let part = len.min(STAGING_BYTES);
        let fitting = self
            .inner
            .classes
            .iter()
            .filter(|class| class.bytes >= part);
        fitting
            .map(|class| class.free.borrow().len() * class.bytes)
            .sum()
    }

    /// The largest request [`Pool::alloc`] serves.
    #[must_use]
    pub const fn alloc_bytes_max() -> usize {
        STAGING_BYTES * STAGING_SLOTS_MAX
    }

    /// Whether operations on this memory use fixed buffers. If not, RLIMIT_MEMLOCK was too small (or another pool came first), and the
    /// kernel pins pages for each direct I/O anew.
    #[must_use]
    pub fn registered(&self) -> bool {
        self.inner.fixed
    }

    /// The memory that all its slots lie in.
    #[must_use]
    pub fn region(&self) -> Region {
        self.inner.mapping.region()
    }

    /// How full it is.
    #[must_use]
    pub fn usage(&self) -> PoolUse {
        PoolUse {
            used_bytes: self.inner.used_bytes.get(),
            total_bytes: self.inner.total_bytes,
            refusals: self.inner.refusals.get(),
        }
    }

    fn alloc_slot(&self, len: usize) -> Option<IoBuf> {
        let inner = &self.inner;
        for class in inner.classes.iter().filter(|class| class.bytes >= len) {
            let Some(slot) = class.free.borrow_mut().pop() else {
                continue;
            };
            let ptr = inner.mapping.at(class.offset_of(slot))?;
            inner.refs.get(slot as usize)?.set(1);
            inner.used_bytes.set(inner.used_bytes.get() + class.bytes);
            let len = u32::try_from(len).ok()?;
            return Some(IoBuf::of_pool(
                ptr,
                len,
                SlotRef {
                    pool: inner.clone(),
                    slot,
                },
            ));
        }
        None
    }
}

#[derive(Debug)]
struct Inner {
    /// Shared with devices that it is registered with.
    mapping: Arc<Mapping>,
    classes: Vec<Class>,
    /// References to each slot; 0 = free.
    refs: Box<[Cell<u32>]>,
    ring_id: u64,
    fixed: bool,
    /// Of all slots.
    total_bytes: usize,
    used_bytes: Cell<usize>,
    refusals: Cell<u64>,
}

#[derive(Debug)]
struct Class {
    bytes: usize,
    /// Offset of its first slot in the mapping.
    base: usize,
    first_slot: u32,
    slots: u32,
    /// Last returned, first used: its lines are the likeliest in the cache.
    free: RefCell<Vec<u32>>,
}

impl Class {
    fn offset_of(&self, slot: u32) -> usize {
        self.base + (slot - self.first_slot) as usize * self.bytes
    }

    fn owns(&self, slot: u32) -> bool {
        slot >= self.first_slot && slot - self.first_slot < self.slots
    }
}

/// A counted reference to one slot.
#[derive(Debug)]
pub(super) struct SlotRef {
    pool: Rc<Inner>,
    slot: u32,
}

impl SlotRef {
    fn count(&self) -> &Cell<u32> {
        &self.pool.refs[self.slot as usize]
    }

    pub(super) fn is_exclusive(&self) -> bool {
        self.count().get() == 1
    }

    pub(super) fn region(&self) -> Region {
        self.pool.mapping.region()
    }

    pub(super) fn memory(&self) -> &Arc<Mapping> {
        &self.pool.mapping
    }

    pub(super) fn is_registered(&self) -> bool {
        self.pool.fixed
    }

    pub(super) fn fixed_index(&self, ring_id: u64) -> Option<u16> {
        // The whole pool is one registered buffer.
        (self.pool.fixed && self.pool.ring_id == ring_id).then_some(0)
    }
}

impl Clone for SlotRef {
    fn clone(&self) -> Self {
        let count = self.count();
        count.set(count.get() + 1);
        Self {
            pool: self.pool.clone(),
            slot: self.slot,
        }
    }
}

impl Drop for SlotRef {
    fn drop(&mut self) {
        let count = self.count();
        count.set(count.get() - 1);
        if count.get() == 0
            && let Some(class) = self.pool.classes.iter().find(|class| class.owns(self.slot))
        {
            self.pool
                .used_bytes
                .set(self.pool.used_bytes.get() - class.bytes);
            class.free.borrow_mut().push(self.slot);
        }
    }
}
