//! A mapping of a descriptor that another process shares.

use std::any::Any;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use reactor::buf::Region;

use crate::loss::{Loss, Watched};
use crate::windows::{Access, PAGE_BYTES};

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
    /// What is mapped, the region among it: whole pages, which of hugetlbfs are huge.
    mapping: (NonNull<u8>, usize),
    access: Access,
    keeps_length: bool,
    /// Dropped before the memory is unmapped.
    watched: Option<Watched>,
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
    /// Maps `bytes` from `offset` on of a descriptor, for what `access` allows, and of huge pages what else is in them ([`mapped_bytes`]). `keeper` is
    /// dropped once it is unmapped again, and `loss` is told where a page cannot be had. A file that takes seals is sealed against getting shorter: [`Shared::keeps_length`].
    ///
    /// # Errors
    /// [`MapError`].
    pub fn map(
        fd: impl AsFd,
        offset: u64,
        bytes: u64,
        access: Access,
        loss: Arc<Loss>,
        keeper: impl Any + Send + Sync,
    ) -> Result<Self, MapError> {
        let pages = Pages::of(fd.as_fd(), offset, bytes)?;
        // Before its length is looked at.
        let keeps_length = seal(fd.as_fd());
        let file_bytes = u64::try_from(fstat(fd.as_fd())?.st_size).unwrap_or(0);
        if file_bytes < pages.end {
            let end = pages.end;
            return Err(MapError::Short { file_bytes, end });
        }
        let mut protection = ProtFlags::PROT_NONE;
        protection.set(ProtFlags::PROT_READ, access.read);
        protection.set(ProtFlags::PROT_WRITE, access.write);
        // Not MAP_NORESERVE: huge pages that are not there are refused here, and not missed when they are touched.
        let flags = MapFlags::MAP_SHARED;
        let start = pages.start_in_file;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let mapped = unsafe { mmap(None, pages.len, protection, flags, fd, start)? }.cast::<u8>();
        let mapping = (mapped, pages.len.get());
        let watched = Watched::begin(mapped, mapping.1, pages.page_bytes, loss)
            .inspect_err(|_| unmap(mapping))?;
        // SAFETY: the pages begin so many bytes before what is asked for, and reach to its end.
        let base = unsafe { mapped.add(pages.before) };
        Ok(Self {
            region: Region::new(base, pages.asked),
            mapping,
            access,
            keeps_length,
            watched: Some(watched),
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

    /// Whether nobody can make the file shorter. Else whoever shared it can, and loses its memory with the next access to what is missing.
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

/// How many bytes of address space [`Shared::map`] takes for a part of a file: whole pages of it, which of hugetlbfs are huge. QEMU's windows are parts of them.
///
/// # Errors
/// [`MapError::NotMemory`], [`MapError::Place`], [`MapError::System`].
pub fn mapped_bytes(fd: impl AsFd, offset: u64, bytes: u64) -> Result<u64, MapError> {
    Pages::of(fd.as_fd(), offset, bytes).map(|pages| pages.len.get() as u64)
}

/// The pages of a file that a part of it lies in. The kernel maps and unmaps no parts of them.
#[derive(Debug)]
struct Pages {
    start_in_file: libc::off_t,
    /// Where the file may not end before: a huge page that it does not have whole need not be there.
    end: u64,
    len: NonZeroUsize,
    /// Bytes before what is asked for.
    before: usize,
    asked: usize,
    /// Of each.
    page_bytes: usize,
}

impl Pages {
    fn of(file: BorrowedFd<'_>, offset: u64, bytes: u64) -> Result<Pages, MapError> {
        let page_bytes = page_bytes(file)?.ok_or(MapError::NotMemory)?;
        Pages::around(offset, bytes, page_bytes).ok_or(MapError::Place { offset, bytes })
    }

    fn around(offset: u64, bytes: u64, page_bytes: u64) -> Option<Pages> {
        if bytes == 0 || !offset.is_multiple_of(PAGE_BYTES) {
            return None;
        }
        let before = offset % page_bytes;
        let start = offset - before;
        let asked = offset.checked_add(bytes)?;
        let end = asked.checked_next_multiple_of(page_bytes)?;
        Some(Pages {
            start_in_file: libc::off_t::try_from(start).ok()?,
            end: match page_bytes {
                PAGE_BYTES => asked,
                _ => end,
            },
            len: NonZeroUsize::new(usize::try_from(end - start).ok()?)?,
            before: usize::try_from(before).ok()?,
            asked: usize::try_from(bytes).ok()?,
            page_bytes: usize::try_from(page_bytes).ok()?,
        })
    }
}

/// Bytes of a file's pages, where these come at once, whatever whoever shared it does.
fn page_bytes(file: BorrowedFd<'_>) -> Result<Option<u64>, Errno> {
    let is_file = SFlag::from_bits_truncate(fstat(file)?.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let system = fstatfs(file)?;
    Ok(match system.filesystem_type() {
        TMPFS_MAGIC if is_file => Some(PAGE_BYTES),
        // The size of its blocks is that of its pages.
        HUGETLBFS_MAGIC if is_file => u64::try_from(system.block_size())
            .ok()
            .filter(|bytes| *bytes >= PAGE_BYTES),
        _ => None,
    })
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
        drop(self.watched.take());
        unmap(self.mapping);
        drop(self.keeper.take());
    }
}

/// Undoes what [`Shared::map`] has mapped, whose last reference goes.
fn unmap((base, len): (NonNull<u8>, usize)) {
    // SAFETY: mapped by `map`, unmapped once; whoever has a pointer into it holds a reference.
    let unmapped = unsafe { munmap(base.cast(), len) };
    debug_assert_eq!(unmapped, Ok(()), "a mapping of our own");
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
        let shared = Shared::map(&file, 0, 4096, Access::BOTH, Arc::default(), ()).unwrap();
        assert!(shared.keeps_length());
        assert_eq!(ftruncate(&file, 0), Err(Errno::EPERM));
        ftruncate(&file, 16384).unwrap();
    }

    #[test]
    fn of_others_it_is_known_that_they_need_not() {
        // Without MFD_ALLOW_SEALING no seal can be set.
        let shared = Shared::map(
            file(MFdFlags::empty()),
            0,
            4096,
            Access::BOTH,
            Arc::default(),
            (),
        )
        .unwrap();
        assert!(!shared.keeps_length());
    }

    /// What QEMU maps of guest memory in huge pages begins and ends anywhere in them (640 KiB below the first hole), and the kernel maps and unmaps whole ones.
    #[test]
    fn of_huge_pages_whole_ones_are_mapped() {
        const HUGE: u64 = 2 << 20;
        let around = |offset, bytes| {
            let pages = Pages::around(offset, bytes, HUGE).unwrap();
            (pages.start_in_file, pages.len.get(), pages.before)
        };
        let huge = 2 << 20;
        assert_eq!(around(0, 0xA_0000), (0, huge, 0));
        assert_eq!(around(0x10_0000, HUGE), (0, 2 * huge, 0x10_0000));
        assert_eq!(around(HUGE, HUGE), (0x20_0000, huge, 0));
        for (offset, bytes) in [
            (0, 0),
            (0x800, 4096),
            (u64::MAX - 4095, 4096),
            (0, u64::MAX),
        ] {
            assert!(Pages::around(offset, bytes, HUGE).is_none());
        }
    }

    /// The same with such pages, where the system has some: `sysctl vm.nr_hugepages=2`.
    #[test]
    #[ignore = "needs two huge pages of 2 MiB"]
    fn a_part_of_huge_pages_is_mapped_and_unmapped() {
        let file = memfd_create("guest", MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB).unwrap();
        ftruncate(&file, 4 << 20).unwrap();
        let whole = Shared::map(&file, 0, 4 << 20, Access::BOTH, Arc::default(), ()).unwrap();
        assert_eq!(mapped_bytes(&file, 0x10_0000, 0x20_0000), Ok(4 << 20));
        for _ in 0..3 {
            // Unmapped at the end of each turn, which `drop` asserts.
            let part = Shared::map(
                &file,
                0x10_0000,
                0x20_0000,
                Access::BOTH,
                Arc::default(),
                (),
            )
            .unwrap();
            let last = 0x1F_FFFF;
            // SAFETY: inside of both mappings, which nobody else uses.
            unsafe {
                part.at(0).unwrap().write(0xA5);
                part.at(last).unwrap().write(0x5A);
                assert_eq!(whole.at(0x10_0000).unwrap().read(), 0xA5);
                assert_eq!(whole.at(0x10_0000 + last).unwrap().read(), 0x5A);
            }
            assert!(part.at(last + 1).is_none());
        }
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
            let refused =
                Shared::map(&file, 0, 4096, Access::BOTH, Arc::default(), ()).unwrap_err();
            assert_eq!(refused, MapError::NotMemory);
        }
    }
}
