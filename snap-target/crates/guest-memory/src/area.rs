//! A run of guest memory that a device loads from and stores to all the time: a ring.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use reactor::buf::prefetch_line;

use crate::shared::Shared;
use crate::windows::{Fault, Way, Windows};

/// A run of mapped memory, kept mapped while this lives. Values are little-endian there.
///
/// Each call is one relaxed load or store; whoever needs an order between them puts fences there. Places are naturally aligned and inside, or it panics:
/// a ring's places are checked when it is made, so this is a defect of ours.
#[derive(Clone, Debug)]
pub struct Area {
    base: NonNull<u8>,
    bytes: usize,
    /// Held for its mapping.
    _memory: Arc<Shared>,
}

// SAFETY: as for Shared, which it holds: the bytes are reached with atomic accesses only.
unsafe impl Send for Area {}
// SAFETY: as for Send: several threads may do that at the same time, as the guest does.
unsafe impl Sync for Area {}

macro_rules! accesses {
    ($load:ident, $store:ident, $value:ty, $atomic:ty) => {
        /// The value at byte `at`.
        #[must_use]
        #[inline]
        pub fn $load(&self, at: usize) -> $value {
            <$value>::from_le(self.at::<$atomic>(at).load(Ordering::Relaxed))
        }

        /// Sets the value at byte `at`.
        #[inline]
        pub fn $store(&self, at: usize, value: $value) {
            self.at::<$atomic>(at)
                .store(value.to_le(), Ordering::Relaxed);
        }
    };
}

impl Area {
    /// All of a mapping that may be read and written.
    #[must_use]
    pub fn whole(memory: &Arc<Shared>) -> Option<Self> {
        Self::of(memory, 0, memory.region().len())
    }

    /// A part of a mapping that may be read and written; none where it is not inside.
    #[must_use]
    pub fn of(memory: &Arc<Shared>, offset: usize, bytes: usize) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        if bytes == 0 || end > memory.region().len() || !memory.access().is_both() {
            return None;
        }
        Some(Self {
            base: memory.at(offset)?,
            bytes,
            _memory: memory.clone(),
        })
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    accesses!(load8, store8, u8, AtomicU8);
    accesses!(load16, store16, u16, AtomicU16);
    accesses!(load32, store32, u32, AtomicU32);
    accesses!(load64, store64, u64, AtomicU64);

    /// Has the processor fetch what is at byte `at` into its cache.
    #[inline]
    pub fn expect(&self, at: usize) {
        prefetch_line(self.base.as_ptr().wrapping_add(at), false);
    }

    #[inline]
    fn at<A>(&self, at: usize) -> &A {
        let end = at.checked_add(size_of::<A>());
        let pointer = self.base.as_ptr().wrapping_add(at).cast::<A>();
        assert!(
            end.is_some_and(|end| end <= self.bytes) && pointer.is_aligned(),
            "{at:#x} of an area of {:#x} bytes",
            self.bytes
        );
        // SAFETY: inside of the area, whose mapping lives as long as `self` and may be read and written; aligned; an atomic integer is valid whatever
        // the bytes are, and allows for others, the guest among them, to store there at the same time.
        unsafe { &*pointer }
    }
}

impl Windows {
    /// A run of guest memory inside of one window, to be read and written.
    ///
    /// # Errors
    /// It is not all in one window, or that was not shared for both.
    pub fn area(&self, address: u64, bytes: u64) -> Result<Area, Fault> {
        self.check(address, bytes, Way::FromGuest)?;
        let run = self.runs(address, bytes, Way::ToGuest).next();
        let run = run.ok_or(Fault::Outside { address })??;
        let not_shared = Fault::NotShared { address };
        let memory = run.window.memory.as_ref().ok_or(not_shared)?;
        let whole = usize::try_from(bytes).ok().filter(|_| run.bytes == bytes);
        let whole = whole.ok_or(Fault::Outside {
            address: address.saturating_add(run.bytes),
        })?;
        let offset = usize::try_from(run.offset).map_err(|_| not_shared)?;
        Area::of(memory, offset, whole).ok_or(not_shared)
    }

    /// What is at an address is about to be read: the processor fetches it into its cache, where it is mapped.
    #[inline]
    pub fn expect(&self, address: u64) {
        // One byte, which lies in one run.
        let _none = self.mapped(address, 1, Way::FromGuest, |_, at, _| {
            prefetch_line(at.as_ptr(), false);
        });
    }

    /// A little-endian value of eight bytes: one load where it is aligned, each byte once where not.
    ///
    /// # Errors
    /// The first byte that cannot be read.
    pub fn load64(&self, address: u64) -> Result<u64, Fault> {
        let run = self.runs(address, 8, Way::FromGuest).next();
        let run = run.ok_or(Fault::Outside { address })??;
        let offset = usize::try_from(run.offset).ok();
        let memory = run.window.memory.as_ref().zip(offset);
        if let Some(pointer) = memory.and_then(|(memory, offset)| memory.at(offset))
            && run.bytes == 8
            && pointer.cast::<AtomicU64>().is_aligned()
        {
            // SAFETY: eight bytes from there on are inside of a mapping that the table holds and that may be read; aligned, and valid whatever they are.
            let value = unsafe { pointer.cast::<AtomicU64>().as_ref() };
            return Ok(u64::from_le(value.load(Ordering::Relaxed)));
        }
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
