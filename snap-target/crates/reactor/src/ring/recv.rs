//! Receive buffers shared by all sockets of a ring.
//!
//! With buffer rings the kernel picks a buffer when data arrive, so an idle connection holds none, and giving one back is a store to
//! shared memory. Without them (Linux 5.15) an armed receive takes a buffer of its own while more than half of them are free; from then
//! on it waits for readiness first, so that idle connections cannot use them up. Either way the caller sees a [`RecvChunk`].

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::buf::Mapping;
use crate::config::RingConfig;
use crate::error::ReactorError;

/// The one buffer group of a ring.
pub(super) const GROUP: u16 = 0;

#[derive(Debug)]
pub(super) struct RecvPool {
    data: Mapping,
    buffers: u16,
    buffer_bytes: u32,
    /// Buffers that became free so far.
    returned: Cell<u64>,
    give: Give,
}

/// How a buffer goes back.
#[derive(Debug)]
enum Give {
    /// Shared with the kernel: a ring of entries whose tail we own.
    Ring { entries: Mapping, tail: Cell<u16> },
    /// Ours: a list of free buffers.
    List(RefCell<Vec<u16>>),
}

impl RecvPool {
    /// Maps the buffers, and shares them with the kernel if `shared`.
    pub(super) fn new(
        config: &RingConfig,
        uring: &IoUring,
        shared: bool,
    ) -> Result<Rc<Self>, ReactorError> {
        let buffers = config.recv_buffers;
        let data = Mapping::new(usize::from(buffers) * config.recv_buffer_bytes as usize)?;
        if !shared {
            let free = RefCell::new((0..buffers).rev().collect());
            return Ok(Rc::new(Self {
                data,
                buffers,
                buffer_bytes: config.recv_buffer_bytes,
                returned: Cell::new(0),
                give: Give::List(free),
            }));
        }
        let entries = Mapping::new(usize::from(buffers) * size_of::<BufRingEntry>())?;
        // SAFETY: the mapping is page-aligned, zeroed, large enough for `buffers` entries, and lives in this pool, which the ring
        // unregisters before it lets go of it.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(
                entries.base().as_ptr() as u64,
                buffers,
                GROUP,
                0,
            )
        }
        .map_err(|error| ReactorError::Setup {
            what: "the receive buffer ring",
            source: super::errno(&error),
        })?;
        let pool = Self {
            data,
            buffers,
            buffer_bytes: config.recv_buffer_bytes,
            returned: Cell::new(0),
            give: Give::Ring {
                entries,
                tail: Cell::new(0),
            },
        };
        for id in 0..buffers {
            pool.give_back(id);
        }
        Ok(Rc::new(pool))
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self.give, Give::Ring { .. })
    }

    pub(super) fn buffer_bytes(&self) -> u32 {
        self.buffer_bytes
    }

    pub(super) fn returned(&self) -> u64 {
        self.returned.get()
    }

    /// A buffer for a receive that may hold it for long: only while more than half are free.
    pub(super) fn take_if_plenty(&self) -> Option<u16> {
        match &self.give {
            Give::List(free) if free.borrow().len() > usize::from(self.buffers.div_ceil(2)) => {
                self.take()
            }
            _ => None,
        }
    }

    /// A buffer for a receive whose data are there.
    pub(super) fn take(&self) -> Option<u16> {
        match &self.give {
            Give::List(free) => free.borrow_mut().pop(),
            Give::Ring { .. } => None,
        }
    }

    pub(super) fn pointer(&self, id: u16) -> *mut u8 {
        debug_assert!(id < self.buffers);
        self.data
            .base()
            .as_ptr()
            .wrapping_add(usize::from(id) * self.buffer_bytes as usize)
    }

    pub(super) fn give_back(&self, id: u16) {
        self.returned.set(self.returned.get() + 1);
        match &self.give {
            Give::List(free) => free.borrow_mut().push(id),
            Give::Ring { entries, tail } => {
                let at = tail.get();
                let base = entries.base().as_ptr().cast::<BufRingEntry>();
                // SAFETY: `at & (buffers-1)` is within the mapping; the kernel reads only entries between its head and our tail, and
                // this one becomes visible with the release store of the tail below. One thread writes.
                unsafe {
                    let entry = &mut *base.add(usize::from(at & (self.buffers - 1)));
                    entry.set_addr(self.pointer(id) as u64);
                    entry.set_len(self.buffer_bytes);
                    entry.set_bid(id);
                    let shared_tail = BufRingEntry::tail(base).cast::<AtomicU16>();
                    (*shared_tail).store(at.wrapping_add(1), Ordering::Release);
                }
                tail.set(at.wrapping_add(1));
            }
        }
    }

    /// The first `len` bytes of buffer `id`, which the kernel has handed over.
    pub(super) fn chunk(self: &Rc<Self>, id: u16, len: u32) -> RecvChunk {
        RecvChunk {
            pool: self.clone(),
            id,
            len: len.min(self.buffer_bytes),
        }
    }
}

/// Received bytes in a buffer of the ring; dropping it gives the buffer back. Keep it short: an empty pool stops every receive of the
/// ring (with ENOBUFS).
pub struct RecvChunk {
    pool: Rc<RecvPool>,
    id: u16,
    len: u32,
}

impl Deref for RecvChunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the kernel wrote these bytes and handed the buffer over; until drop gives it back, only this chunk refers to it. The
        // mapping is zero-filled at first, so every byte is initialised.
        unsafe { std::slice::from_raw_parts(self.pool.pointer(self.id), self.len as usize) }
    }
}

impl Drop for RecvChunk {
    fn drop(&mut self) {
        self.pool.give_back(self.id);
    }
}

impl std::fmt::Debug for RecvChunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecvChunk({} bytes)", self.len)
    }
}
