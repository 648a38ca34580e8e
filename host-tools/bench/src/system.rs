//! What the system is asked beside the ring: sizes, discards, hints, mounts, and what a thread has used.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::stat::{major, minor};
use nix::sys::statvfs::fstatvfs;

use crate::offsets::Region;

mod request {
    // BLKDISCARD = _IO(0x12, 119) of linux/fs.h: two 64-bit words, offset and length.
    nix::ioctl_write_ptr_bad!(
        /// Discards a range of a block device.
        blkdiscard,
        nix::request_code_none!(0x12, 119),
        [u64; 2]
    );
}

/// Discards a range of a block device.
pub fn discard(device: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: the descriptor is open, and the request reads two 64-bit words, which `range` is.
    unsafe { request::blkdiscard(device.as_raw_fd(), &range) }?;
    Ok(())
}

/// Bytes of a file or block device.
pub fn bytes(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// Takes space for a file up to `len`; where the file system cannot, the file is made that long with a hole.
pub fn reserve(file: &File, len: u64) -> io::Result<()> {
    let end = i64::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?;
    match fallocate(file.as_fd(), FallocateFlags::empty(), 0, end) {
        Err(nix::errno::Errno::EOPNOTSUPP) => file.set_len(len),
        result => Ok(result?),
    }
}

/// Bytes that the file system of a file has left for this user, where it says so.
pub fn room(file: &File) -> io::Result<Option<u64>> {
    let counts = fstatvfs(file)?;
    // Some that are not on a disk of their own count nothing.
    Ok((counts.blocks() > 0).then(|| {
        counts
            .blocks_available()
            .saturating_mul(counts.fragment_size())
    }))
}

/// Drops the page cache's copies of a part, but for what is still to be written.
pub fn drop_copies(file: &File, part: Region) {
    advise(file, part, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
}

/// Says in which order a part will be used.
pub fn announce(file: &File, part: Region, random: bool) {
    let order = if random {
        PosixFadviseAdvice::POSIX_FADV_RANDOM
    } else {
        PosixFadviseAdvice::POSIX_FADV_SEQUENTIAL
    };
    advise(file, part, order);
}

fn advise(file: &File, part: Region, advice: PosixFadviseAdvice) {
    let offset = i64::try_from(part.offset).unwrap_or(0);
    let len = i64::try_from(part.bytes).unwrap_or(0);
    // Only advice: where it is not taken, nothing is wrong.
    let _ = posix_fadvise(file.as_fd(), offset, len, advice);
}

/// Makes what was written to a file or device durable, and drops the page cache's copy of it. A file system that lives in memory keeps it.
pub fn forget_copies(file: &File) -> io::Result<()> {
    file.sync_data()?;
    // Clean pages go; length 0 is to the end. As advice it cannot be wrong.
    let _ = posix_fadvise(file.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
    Ok(())
}

/// Where a block device, or a partition of it, is mounted.
pub fn mounted_at(device: &File) -> io::Result<Option<PathBuf>> {
    let number = device.metadata()?.rdev();
    let number = format!("{}:{}", major(number), minor(number));
    let mut numbers = vec![number.clone()];
    // A partition is a folder with a file `dev` below the folder of its disk.
    for entry in std::fs::read_dir(format!("/sys/dev/block/{number}"))
        .into_iter()
        .flatten()
    {
        let partition = entry?.path();
        if partition.join("partition").exists() {
            numbers.push(
                std::fs::read_to_string(partition.join("dev"))?
                    .trim()
                    .to_owned(),
            );
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().find_map(|line| {
        // The third field is the device's number, the fifth the mount point (proc(5)).
        let mut fields = line.split(' ').skip(2);
        let device = fields.next()?;
        let place = fields.nth(1)?;
        numbers
            .iter()
            .any(|number| number == device)
            .then(|| PathBuf::from(place))
    }))
}

/// What a thread has used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Time in this program.
    pub user: Duration,
    /// Time in the kernel.
    pub system: Duration,
    /// Times that it slept or was interrupted.
    pub switches: u64,
    /// Pages read from a disk.
    pub major_faults: u64,
    /// Pages found in memory.
    pub minor_faults: u64,
}

impl Usage {
    /// Of the calling thread, since it began.
    pub fn of_thread() -> Usage {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else {
            return Usage::default();
        };
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        let time = |time: nix::sys::time::TimeVal| {
            Duration::from_micros(count(time.tv_sec()) * 1_000_000 + count(time.tv_usec()))
        };
        Usage {
            user: time(usage.user_time()),
            system: time(usage.system_time()),
            switches: count(usage.voluntary_context_switches())
                + count(usage.involuntary_context_switches()),
            major_faults: count(usage.major_page_faults()),
            minor_faults: count(usage.minor_page_faults()),
        }
    }

    /// What was used since `earlier`.
    pub fn since(self, earlier: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            switches: self.switches.saturating_sub(earlier.switches),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
        }
    }

    /// Both together.
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            user: self.user + other.user,
            system: self.system + other.system,
            switches: self.switches + other.switches,
            major_faults: self.major_faults + other.major_faults,
            minor_faults: self.minor_faults + other.minor_faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};

    use std::io::Read;

    use super::*;

    /// Blocks that this thread had the system read from a medium.
    fn blocks_read() -> i64 {
        getrusage(UsageWho::RUSAGE_THREAD).unwrap().block_reads()
    }

    #[test]
    fn what_is_forgotten_is_read_from_the_medium() {
        // Where the build is, which is seldom in memory as /tmp may be.
        let program = std::env::current_exe().unwrap();
        let file = tempfile::tempfile_in(program.parent().unwrap()).unwrap();
        let fs = fstatfs(&file).unwrap();
        std::io::copy(&mut std::io::repeat(7).take(1 << 20), &mut &file).unwrap();
        forget_copies(&file).unwrap();
        let before = blocks_read();
        (&file).rewind().unwrap();
        (&file).read_to_end(&mut Vec::new()).unwrap();
        if fs.filesystem_type() != TMPFS_MAGIC {
            assert!(blocks_read() - before >= (1 << 20) / 512);
        }
    }
}
