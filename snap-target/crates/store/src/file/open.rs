//! Opening: which kind of file, how large, and whether and how direct I/O works on it.

use std::fs::{File, Metadata, OpenOptions as FsOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::libc;
use nix::sys::statfs::{FUSE_SUPER_MAGIC, fstatfs};
use reactor::buf::Mapping;

use super::gates::gate_of;
use super::handle::DISCARD_MODE;
use super::hold::{Hold, hold};
use crate::error::StoreError;
use crate::gate::Gate;
use crate::shared::{Access, Caching, OpenOptions};

/// Alignments tried where the kernel does not tell: the sector sizes of disks, then the page.
const ALIGNMENTS_TRIED: [u32; 2] = [512, 4096];
/// Larger than any real one; a report beyond it is not believed.
const ALIGNMENT_BYTES_MAX: u32 = 1 << 16;

pub(super) struct Opened {
    pub(super) name: String,
    pub(super) fd: OwnedFd,
    pub(super) bytes: u64,
    pub(super) direct: bool,
    /// 1 through the page cache.
    pub(super) alignment_bytes: u32,
    /// Discarded ranges become holes, which read as zeros.
    pub(super) punches_holes: bool,
    /// Why it goes through the page cache although direct I/O was wished for.
    pub(super) detour: Option<String>,
    /// Its reads and writes hold up whoever hands them to the kernel.
    pub(super) may_block: bool,
    /// Of all who write to this file.
    pub(super) gate: Arc<Gate>,
    /// Against other programs.
    pub(super) hold: Option<Arc<Hold>>,
}

/// A file, by whatever name: device and inode; or a device, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    File { device: u64, inode: u64 },
    Device(u64),
}

impl Node {
    pub(super) fn of(metadata: &Metadata) -> Self {
        if metadata.file_type().is_block_device() {
            return Self::Device(metadata.rdev());
        }
        let (device, inode) = (metadata.dev(), metadata.ino());
        Self::File { device, inode }
    }
}

pub(super) fn open(path: &Path, options: OpenOptions) -> Result<Opened, StoreError> {
    let name = format!("file:{}", path.display());
    let mut file = open_with(path, options.access, 0)
        .map_err(|errno| open_error(&name, errno, options.access))?;
    let metadata = file
        .metadata()
        .map_err(|error| open_error(&name, errno(&error), options.access))?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(StoreError::Unfit {
            store: name,
            why: "it is neither a regular file nor a block device",
        });
    }
    // The end of a block device is its size, too, where metadata says 0.
    let bytes = file
        .seek(SeekFrom::End(0))
        .map_err(|error| open_error(&name, errno(&error), options.access))?;
    if bytes == 0 {
        return Err(StoreError::Unfit {
            store: name,
            why: "it has no bytes; make it the size of the disk first (truncate -s 10G PATH)",
        });
    }
    let hold = hold(path, &metadata, options.access)
        .map_err(|errno| open_error(&name, errno, options.access))?;
    // A block device may keep what it was told to discard.
    let punches_holes =
        kind.is_file() && options.access == Access::ReadWrite && punches_holes(&file, bytes);
    let direct = match options.caching {
        Caching::PageCache => Err(None),
        Caching::DirectIfPossible => open_direct(path, options.access, bytes).map_err(Some),
    };
    let (file, alignment_bytes, detour) = match direct {
        Ok((direct, alignment_bytes)) => (direct, Some(alignment_bytes), None),
        Err(why) => (file, None, why),
    };
    let may_block = is_of_fuse(&file);
    Ok(Opened {
        name,
        fd: file.into(),
        bytes,
        direct: alignment_bytes.is_some(),
        alignment_bytes: alignment_bytes.unwrap_or(1),
        punches_holes,
        detour,
        may_block,
        gate: gate_of(Node::of(&metadata)),
        hold,
    })
}

/// Whether the file system takes ranges back: asked for a byte beyond the end, where there is nothing to lose.
fn punches_holes(file: &File, bytes: u64) -> bool {
    let Ok(end) = libc::off_t::try_from(bytes) else {
        return false;
    };
    // SAFETY: a live descriptor; no memory arguments.
    unsafe { libc::fallocate(file.as_raw_fd(), DISCARD_MODE, end, 1) == 0 }
}

/// Opens for direct I/O and finds its alignment, or says why not.
fn open_direct(path: &Path, access: Access, bytes: u64) -> Result<(File, u32), String> {
    let file = open_with(path, access, libc::O_DIRECT)
        .map_err(|errno| format!("O_DIRECT is refused ({errno})"))?;
    let alignment = match reported_alignment(&file) {
        Some(0) => return Err("the file system has no direct I/O for this file".to_owned()),
        Some(alignment) => alignment,
        None => tried_alignment(&file).ok_or("direct reads fail at every alignment tried")?,
    };
    if access == Access::ReadWrite && !bytes.is_multiple_of(u64::from(alignment)) {
        return Err(format!(
            "its size is not a multiple of {alignment} bytes, so its end cannot be written directly"
        ));
    }
    Ok((file, alignment))
}

/// Whether a process serves the file (FUSE): such a file says that its reads do not block, and they wait for that process.
fn is_of_fuse(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| found.filesystem_type() == FUSE_SUPER_MAGIC)
}

pub(super) fn open_with(path: &Path, access: Access, flags: i32) -> Result<File, Errno> {
    FsOptions::new()
        .read(true)
        .write(access == Access::ReadWrite)
        .custom_flags(flags | libc::O_CLOEXEC)
        .open(path)
        .map_err(|error| errno(&error))
}

/// The larger of memory and offset alignment as statx tells it: `None` if this kernel does not, 0 if direct I/O does not work.
fn reported_alignment(file: &File) -> Option<u32> {
    // SAFETY: all-zero is a valid statx structure.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let (this_file, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: a live descriptor, an empty path string, and a live structure of the right type.
    let code = unsafe {
        libc::statx(
            file.as_raw_fd(),
            this_file,
            flags,
            libc::STATX_DIOALIGN,
            &raw mut stat,
        )
    };
    if code != 0 || stat.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    let alignment = stat.stx_dio_mem_align.max(stat.stx_dio_offset_align);
    match (stat.stx_dio_mem_align, stat.stx_dio_offset_align) {
        (0, _) | (_, 0) => Some(0),
        _ if alignment.is_power_of_two() && alignment <= ALIGNMENT_BYTES_MAX => Some(alignment),
        _ => None,
    }
}

/// The smallest alignment at which a direct read works.
fn tried_alignment(file: &File) -> Option<u32> {
    let memory = Mapping::new(2 * 4096).ok()?;
    ALIGNMENTS_TRIED.into_iter().find(|&alignment| {
        let Some(at) = memory.at(alignment as usize % 4096) else {
            return false;
        };
        // SAFETY: `alignment` bytes from `at` on are inside the two-page mapping, which nobody else uses.
        let count =
            unsafe { libc::pread(file.as_raw_fd(), at.as_ptr().cast(), alignment as usize, 0) };
        count >= 0
    })
}

fn open_error(name: &str, source: Errno, access: Access) -> StoreError {
    let advice = match source {
        Errno::ENOENT => "; check the path",
        Errno::EACCES | Errno::EPERM if access == Access::ReadWrite => {
            "; check its permissions, or open it read-only"
        }
        Errno::EACCES | Errno::EPERM => "; check its permissions",
        Errno::EROFS => "; the file system is read-only: open it read-only",
        Errno::EISDIR => "; it is a directory: name a file in it",
        Errno::EBUSY => {
            "; it is in use: mounted, part of a volume group or RAID, or open in another snap-target: take it out of use there first"
        }
        _ => "",
    };
    StoreError::Open {
        store: name.to_owned(),
        source,
        advice,
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_use_is_said_with_what_to_do() {
        let error = open_error("file:/dev/sdb", Errno::EBUSY, Access::ReadWrite);
        assert_eq!(
            error.to_string(),
            "opening file:/dev/sdb failed: EBUSY: Device or resource busy; it is in use: mounted, part of a volume group or RAID, or open in another snap-target: take it out of use there first"
        );
    }

    #[test]
    fn trying_finds_an_alignment_that_the_kernel_would_report() {
        let path = std::env::temp_dir().join(format!("store-open-{}", std::process::id()));
        std::fs::write(&path, vec![0; 64 << 10]).unwrap();
        let direct = open_with(&path, Access::ReadOnly, libc::O_DIRECT);
        let plain = open_with(&path, Access::ReadOnly, 0).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            tried_alignment(&plain),
            Some(512),
            "through the page cache anything goes"
        );
        // Where O_DIRECT is refused, or the kernel is too old to tell, there is nothing to compare.
        let Ok(direct) = direct else { return };
        let tried = tried_alignment(&direct);
        match reported_alignment(&direct) {
            None | Some(0) => {}
            Some(reported) => assert!(
                tried.is_some_and(|tried| reported <= tried),
                "{reported} {tried:?}"
            ),
        }
    }
}
