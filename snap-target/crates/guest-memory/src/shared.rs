//! A mapping of a descriptor that another process shares.

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use reactor::buf::Region;

use crate::windows::Access;

/// Why a descriptor cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// It is a file that ends before the window does: touching the rest would kill this process.
    #[error("the file has {file_bytes} bytes, and the window reaches to byte {end}")]
    Short {
        /// Its length.
        file_bytes: u64,
        /// Where the window ends in it.
        end: u64,
    },
    /// It is no memory: of a file system or a device that may take its time, or for ever, for a page; and whoever touches that page waits.
    #[error("it is no memory: a memfd, or a file of tmpfs or hugetlbfs, can be mapped")]
    NotMemory,
    /// As much is mapped as one client may have.
    #[error("{bytes} more bytes: a client may have {bytes_max} bytes in {mappings_max} mappings")]
    TooMuch {
        /// Bytes.
        bytes: u64,
        /// How many it may have.
        bytes_max: u64,
        /// In how many mappings.
        mappings_max: u64,
    },
    /// The offset is not a page's beginning, or the end cannot be counted.
    #[error("offset {offset:#x} with {bytes} bytes is no part of a file that can be mapped")]
    Place {
        /// In the file.
        offset: u64,
        /// Bytes.
        bytes: u64,
    },
    /// The system.
    #[error("mmap: {0}")]
    System(#[from] Errno),
}

/// Memory of another process, mapped until the last reference goes; then its keeper is dropped.
pub struct Shared {
    region: Region,
    access: Access,
    keeps_length: bool,
    /// Dropped after the memory was unmapped: who waits for that is told so.
    keeper: Option<Box<dyn Any + Send + Sync>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Shared").field(&self.region).finish()
    }
}

// SAFETY: plain memory without thread affinity; only raw pointers to it are handed out, and whoever dereferences them copes with other writers, since the
// guest is one.
unsafe impl Send for Shared {}
// SAFETY: as for Send; `&Shared` gives no access to the bytes.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps `bytes` from `offset` on of a descriptor, for what `access` allows. `keeper` is dropped once it is unmapped again. A file that takes seals is sealed
    /// against getting shorter: [`Shared::keeps_length`].
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map(
        fd: impl AsFd,
        offset: u64,
        bytes: u64,
        access: Access,
        keeper: impl Any + Send + Sync,
    ) -> Result<Self, MapError> {
        let place = MapError::Place { offset, bytes };
        let end = offset.checked_add(bytes).ok_or(place)?;
        let start = libc::off_t::try_from(offset).map_err(|_| place)?;
        let len = usize::try_from(bytes)
            .ok()
            .and_then(std::num::NonZeroUsize::new)
            .ok_or(place)?;
        if !is_memory(fd.as_fd())? {
            return Err(MapError::NotMemory);
        }
        // Before its length is looked at.
        let keeps_length = seal(fd.as_fd());
        let file_bytes = u64::try_from(fstat(fd.as_fd())?.st_size).unwrap_or(0);
        if file_bytes < end {
            return Err(MapError::Short { file_bytes, end });
        }
        let mut protection = ProtFlags::PROT_NONE;
        protection.set(ProtFlags::PROT_READ, access.read);
        protection.set(ProtFlags::PROT_WRITE, access.write);
        // Not MAP_NORESERVE: huge pages that are not there are refused here, and do not end this process (SIGBUS) when they are touched.
        let flags = MapFlags::MAP_SHARED;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { mmap(None, len, protection, flags, fd, start)? };
        Ok(Self {
            region: Region::new(base.cast(), len.get()),
            access,
            keeps_length,
            keeper: Some(Box::new(keeper)),
        })
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> Region {
        self.region
    }

    /// What it was mapped for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether nobody can make the file shorter. Else whoever shared it can, and the next access to what is missing ends this process (SIGBUS).
    #[must_use]
    pub fn keeps_length(&self) -> bool {
        self.keeps_length
    }

    /// Byte `offset`, which is inside.
    pub(crate) fn at(&self, offset: usize) -> Option<NonNull<u8>> {
        if offset >= self.region.len() {
            return None;
        }
        // SAFETY: the offset is inside of the mapping.
        Some(unsafe { self.region.base().add(offset) })
    }
}

/// Whether pages of a file come at once, whatever whoever shared it does.
fn is_memory(file: BorrowedFd<'_>) -> Result<bool, Errno> {
    let is_file = SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let system = fstatfs(file)?.filesystem_type();
    Ok(is_file && (system == TMPFS_MAGIC || system == HUGETLBFS_MAGIC))
}

/// Has the kernel keep a file as long as it is, where that can be had: a memfd whose maker allowed seals. Whether it does.
fn seal(file: BorrowedFd<'_>) -> bool {
    // Refused where no more seals may be set: this one may be there.
    let _refused = fcntl(file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK));
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_truncate);
    seals.is_ok_and(|seals| seals.contains(SealFlag::F_SEAL_SHRINK))
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, unmapped once; whoever has a pointer into it holds a reference.
        let unmapped = unsafe { munmap(self.region.base().cast(), self.region.len()) };
        debug_assert_eq!(unmapped, Ok(()), "a mapping of our own");
        drop(self.keeper.take());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;

    use super::*;

    fn file(flags: MFdFlags) -> OwnedFd {
        let file = memfd_create("guest", flags).unwrap();
        ftruncate(&file, 8192).unwrap();
        file
    }

    #[test]
    fn a_file_that_takes_seals_keeps_its_length() {
        let file = file(MFdFlags::MFD_ALLOW_SEALING);
        let shared = Shared::map(&file, 0, 4096, Access::BOTH, ()).unwrap();
        assert!(shared.keeps_length());
        assert_eq!(ftruncate(&file, 0), Err(Errno::EPERM));
        ftruncate(&file, 16384).unwrap();
    }

    #[test]
    fn of_others_it_is_known_that_they_need_not() {
        // Without MFD_ALLOW_SEALING no seal can be set.
        let shared = Shared::map(file(MFdFlags::empty()), 0, 4096, Access::BOTH, ()).unwrap();
        assert!(!shared.keeps_length());
    }

    /// A page of a file may be a network's, or a program's, who need not answer; a device's may be anything.
    #[test]
    fn what_is_no_memory_is_refused() {
        let open = |path: &str| std::fs::File::options().read(true).write(true).open(path);
        let device = open("/dev/zero").unwrap();
        let on_disk = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        on_disk.set_len(8192).unwrap();
        let (pipe, _) = nix::unistd::pipe().unwrap();
        for file in [device.into(), OwnedFd::from(on_disk), pipe] {
            let refused = Shared::map(&file, 0, 4096, Access::BOTH, ()).unwrap_err();
            assert_eq!(refused, MapError::NotMemory);
        }
    }
}
