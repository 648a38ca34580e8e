//! The buffers of one job: one piece of memory, aligned for direct I/O, a part of it for each slot.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use nix::libc::iovec;
use nix::sys::mman::{MmapAdvise, madvise};

/// Direct I/O asks for the device's block at most; a page suits every file system.
const ALIGN_BYTES: usize = 4096;
/// Blocks of this size or more lie in huge pages where the system has them to give: a disk is asked for as many pieces as their memory has, and with
/// small pages that is the allocator's luck of the day (reads of 1 MiB from one virtual disk: 1,690 a second from 65 pieces, 925 from 281).
const LARGE_BYTES: usize = 64 << 10;
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The memory. It stays at its place until it is dropped.
pub struct Buffers {
    memory: NonNull<u8>,
    layout: Layout,
    slot_bytes: usize,
    stride_bytes: usize,
    slots: usize,
}

impl Buffers {
    /// `slots` buffers of `slot_bytes` each, neither of them 0.
    pub fn new(slots: usize, slot_bytes: usize) -> Buffers {
        let (slots, slot_bytes) = (slots.max(1), slot_bytes.max(1));
        let stride_bytes = slot_bytes.next_multiple_of(ALIGN_BYTES);
        let align_bytes = if slot_bytes < LARGE_BYTES {
            ALIGN_BYTES
        } else {
            HUGE_PAGE_BYTES
        };
        let size = stride_bytes
            .saturating_mul(slots)
            .checked_next_multiple_of(align_bytes);
        let layout = size.map(|size| Layout::from_size_align(size, align_bytes));
        let Some(Ok(layout)) = layout else {
            handle_alloc_error(Layout::new::<u8>());
        };
        // SAFETY: the size is not 0.
        let Some(memory) = NonNull::new(unsafe { alloc(layout) }) else {
            handle_alloc_error(layout);
        };
        if align_bytes == HUGE_PAGE_BYTES {
            // SAFETY: the memory was just allocated, whole pages of it; the advice changes nothing that a program can read. Without huge pages it
            // is memory like any other.
            let _ = unsafe { madvise(memory.cast(), layout.size(), MmapAdvise::MADV_HUGEPAGE) };
        }
        // SAFETY: the allocation is this long.
        unsafe { memory.write_bytes(0, layout.size()) };
        Buffers {
            memory,
            layout,
            slot_bytes,
            stride_bytes,
            slots,
        }
    }

    /// The address of a slot's buffer; the first slot's for a slot that is not there.
    pub fn address(&self, slot: usize) -> *mut u8 {
        let slot = if slot < self.slots { slot } else { 0 };
        // SAFETY: `slot` is below `slots`, so the result stays within the allocation of `slots * stride_bytes`.
        unsafe { self.memory.as_ptr().add(slot * self.stride_bytes) }
    }

    /// A slot's bytes.
    ///
    /// # Safety
    /// The kernel has no command outstanding on this slot.
    pub unsafe fn bytes(&mut self, slot: usize) -> &mut [u8] {
        // SAFETY: the slot's memory is `slot_bytes` long and initialised (zeroed, then only written to). It is exclusive: `&mut self`
        // keeps this program out, and the caller vouches for the kernel.
        unsafe { std::slice::from_raw_parts_mut(self.address(slot), self.slot_bytes) }
    }

    /// Bytes of a slot's buffer.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// For registration: one entry a slot.
    pub fn vectors(&self) -> Vec<iovec> {
        (0..self.slots)
            .map(|slot| iovec {
                iov_base: self.address(slot).cast(),
                iov_len: self.slot_bytes,
            })
            .collect()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed once.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}
