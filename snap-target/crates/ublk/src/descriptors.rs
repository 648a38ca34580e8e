//! A queue's requests, as the driver shares them.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::error::UblkError;
use crate::wire::{DEPTH_MAX, Descriptor};

/// A mapping of the descriptors of one queue.
#[derive(Debug)]
pub struct Descriptors {
    base: NonNull<Descriptor>,
    bytes: NonZeroUsize,
    depth: u16,
}

// SAFETY: memory without thread affinity, which is only read.
unsafe impl Send for Descriptors {}

impl Descriptors {
    /// Of queue `queue` of an open device whose queues have `depth` requests.
    ///
    /// # Errors
    /// The system's.
    pub fn map(device: BorrowedFd<'_>, queue: u16, depth: u16) -> Result<Self, UblkError> {
        let refused =
            |source| UblkError::of("mapping requests of a ublk device".to_owned(), source);
        let whole_pages = |count: u16| {
            let bytes = usize::from(count.max(1)) * size_of::<Descriptor>();
            bytes.next_multiple_of(page_bytes())
        };
        // Queues lie as far apart as the deepest would need.
        let offset = usize::from(queue) * whole_pages(DEPTH_MAX);
        let invalid = || refused(nix::errno::Errno::EINVAL);
        let bytes = NonZeroUsize::new(whole_pages(depth)).ok_or_else(invalid)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| invalid())?;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            mmap(
                None,
                bytes,
                ProtFlags::PROT_READ,
                MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE,
                device,
                offset,
            )
        };
        Ok(Self {
            base: base.map_err(refused)?.cast(),
            bytes,
            depth,
        })
    }

    /// The request of a tag whose fetch has ended; none beyond the last tag.
    #[must_use]
    pub fn get(&self, tag: u16) -> Option<Descriptor> {
        if tag >= self.depth {
            return None;
        }
        // SAFETY: inside of the mapping, aligned, and any bytes are a descriptor. The driver may write it again when its tag is fetched again, which only
        // whoever reads here brings about.
        Some(unsafe { self.base.add(usize::from(tag)).read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped once; no reference into it was handed out.
        let unmapped = unsafe { munmap(self.base.cast(), self.bytes.get()) };
        debug_assert_eq!(unmapped, Ok(()), "a mapping of our own");
    }
}

fn page_bytes() -> usize {
    // SAFETY: no memory is handed over.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}
