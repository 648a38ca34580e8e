//! The buffers of one job: one piece of memory, aligned for direct I/O, a part of it for each slot.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use nix::libc::iovec;

/// Direct I/O asks for the device's block at most; a page suits every file system.
const ALIGN_BYTES: usize = 4096;

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
        let size = stride_bytes.saturating_mul(slots);
        let Ok(layout) = Layout::from_size_align(size, ALIGN_BYTES) else {
            handle_alloc_error(Layout::new::<u8>());
        };
        // SAFETY: the size is not 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else {
            handle_alloc_error(layout);
        };
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
