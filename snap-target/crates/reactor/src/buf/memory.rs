//! Anonymous page-aligned memory: what pools, heap buffers and receive rings are made of.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc;

use crate::error::ReactorError;

/// The page size every mapping here is rounded to. Larger pages (64 KiB on some aarch64 kernels) only round further, inside the kernel.
pub const PAGE_BYTES: usize = 4096;

/// What a processor fetches at a time.
pub const CACHE_LINE_BYTES: usize = 64;
/// Most bytes that are prefetched at once: the rest of a longer run the processor foresees by itself, further ahead than it takes prefetches (of which it has 10 to 16
/// under way, and waits with the next). With 512 here, 4 KiB from or to random places of 512 MiB are copied in
/// .81 to .83 of the time that they took with 4096 (Sapphire Rapids, docs/pcie.md).
const PREFETCH_BYTES_MAX: usize = 512;

/// The name of a region, never given twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u64);

/// A run of memory that is mapped, registered with a device, and unmapped as one. Only a description: whoever maps it keeps it alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    id: RegionId,
    base: NonNull<u8>,
    len: usize,
}

impl Region {
    /// Names memory that was just mapped.
    #[must_use]
    pub fn new(base: NonNull<u8>, len: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: RegionId(NEXT.fetch_add(1, Ordering::Relaxed)),
            base,
            len,
        }
    }

    /// Its name: under it a transport keeps its keys (lkey, rkey).
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.id
    }

    /// First byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A private anonymous mapping, zero-filled, unmapped on drop.
///
/// It hands out raw pointers only: who may read or write which part is decided by its users.
#[derive(Debug)]
pub struct Mapping {
    region: Region,
}

// SAFETY: the mapping is plain memory without thread affinity; it gives out raw pointers only, and whoever dereferences them
// answers for synchronisation.
unsafe impl Send for Mapping {}
// SAFETY: as for Send; `&Mapping` gives no access to the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes (rounded up to whole pages; at least one page).
    pub fn new(len: usize) -> Result<Self, ReactorError> {
        let len = len
            .max(1)
            .checked_next_multiple_of(PAGE_BYTES)
            .ok_or(ReactorError::Memory {
                bytes: len,
                source: nix::errno::Errno::ENOMEM,
            })?;
        // SAFETY: a fresh anonymous private mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Self {
                region: Region::new(base, len),
            }),
            _ => Err(ReactorError::Memory {
                bytes: len,
                source: nix::errno::Errno::last(),
            }),
        }
    }

    /// Asks for transparent huge pages: fewer TLB misses and fewer faults on staging memory. A refusal costs speed only.
    pub fn advise_huge(&self) {
        // SAFETY: the range is this mapping's own; MADV_HUGEPAGE changes no content.
        unsafe {
            libc::madvise(
                self.region.base.as_ptr().cast(),
                self.region.len,
                libc::MADV_HUGEPAGE,
            );
        }
    }

    /// Backs every page with memory now, so that no later access waits for the kernel to find and clear one, and a shortage shows here.
    /// Kernels before 5.14 cannot; there pages come one by one, as they are first touched.
    ///
    /// # Errors
    /// [`ReactorError::Memory`] where there is not enough.
    pub fn populate(&self) -> Result<(), ReactorError> {
        // SAFETY: the range is this mapping's own; MADV_POPULATE_WRITE faults its pages in and changes no content.
        let refused = unsafe {
            libc::madvise(
                self.region.base.as_ptr().cast(),
                self.region.len,
                libc::MADV_POPULATE_WRITE,
            ) != 0
        };
        match nix::errno::Errno::last() {
            source if refused && source != nix::errno::Errno::EINVAL => Err(ReactorError::Memory {
                bytes: self.region.len,
                source,
            }),
            _ => Ok(()),
        }
    }

    /// Has the processor fetch bytes that are about to be read, or written where `is_change`, into its cache: as much as helps before its own prefetching does.
    /// Bytes outside are passed over.
    pub fn prefetch(&self, offset: usize, len: usize, is_change: bool) {
        let end = offset
            .saturating_add(len.min(PREFETCH_BYTES_MAX))
            .min(self.region.len);
        for at in (offset..end).step_by(CACHE_LINE_BYTES) {
            prefetch_line(self.region.base.as_ptr().wrapping_add(at), is_change);
        }
    }

    /// The region it is.
    #[must_use]
    pub fn region(&self) -> Region {
        self.region
    }

    /// First byte.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.region.base
    }

    /// Bytes mapped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len
    }

    /// Never true: a mapping has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.len == 0
    }

    /// Pointer to byte `offset`, or `None` beyond the end.
    #[must_use]
    pub fn at(&self, offset: usize) -> Option<NonNull<u8>> {
        if offset > self.region.len {
            return None;
        }
        // SAFETY: offset <= len keeps the pointer inside (or one past) the mapping.
        Some(unsafe { self.region.base.add(offset) })
    }
}

/// Has the processor fetch one line into its cache, to be read, or written where `is_change`. It reads and changes nothing that a program could see, and an address without memory is no fault.
pub fn prefetch_line(at: *const u8, is_change: bool) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: neither instruction faults or changes anything, whatever the address; a processor that does not know PREFETCHW does nothing (AMD64 APM, volume 3).
    unsafe {
        if is_change {
            std::arch::asm!("prefetchw [{0}]", in(reg) at, options(nostack, readonly, preserves_flags));
        } else {
            std::arch::asm!("prefetcht0 [{0}]", in(reg) at, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: PRFM is a hint, and never faults (Arm ARM, "Prefetch memory").
    unsafe {
        if is_change {
            std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) at, options(nostack, readonly, preserves_flags));
        } else {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) at, options(nostack, readonly, preserves_flags));
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (at, is_change);
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and is unmapped once; every user holds this mapping alive while it uses it.
        unsafe {
            libc::munmap(self.region.base.as_ptr().cast(), self.region.len);
        }
    }
}
