//! `file:PATH`: a regular file or a block device through io_uring.
//!
//! Direct I/O where the file system accepts it: the alignment is what statx reports (Linux 6.1), else what a trial read shows. Requests
//! that are not aligned go through a bounce buffer, edges only where the middle can go direct; an unaligned write reads, patches and
//! writes back whole blocks, and excludes every other write of the file meanwhile ([`crate::gate`]). A file that is writable and does not end
//! on a block boundary, and a file system that refuses O_DIRECT, are served through the page cache.
//!
//! While it is open other programs are kept out ([`hold`]): a second one that serves it, or a file system that mounts it, would change it unseen.
//!
//! A failed flush is fatal for the opened file: the kernel reports a lost write once, so no later flush may say that all is well, nor one that
//! ran beside it ([`reports`]).

mod bounce;
mod flight;
mod gates;
mod handle;
mod hold;
mod medium;
mod open;
mod plan;
mod reports;
mod size;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use reactor::Ring;

use self::open::Opened;
use self::reports::Reports;
use crate::contract::{Durability, Limits, Store};
use crate::error::StoreError;
use crate::gate::Gate;
use crate::shared::{Access, Backend, OpenOptions};

pub use self::size::{set_file_size, settle_file_size};

/// Operations in flight on one handle.
const QUEUE_DEPTH_MAX: u32 = 256;
/// Longest transfer: four staging buffers.
const TRANSFER_BYTES_MAX: u32 = 4 << 20;
/// Longest discard or zeroing: 64 writes of zeros where the file system cannot zero a range itself.
const RANGE_BYTES_MAX: u32 = 16 << 20;
/// Segments of a buffer: guest pages of the longest transfer, and one for an unaligned start.
const SEGMENTS_MAX: u32 = TRANSFER_BYTES_MAX / 4096 + 1;

/// The opened file, shared by all handles.
#[derive(Debug)]
struct FileState {
    name: String,
    fd: OwnedFd,
    limits: Limits,
    direct: bool,
    gate: Arc<Gate>,
    reports: Reports,
    /// Why it goes through the page cache, if it does.
    detour: Option<String>,
    /// Its reads and writes hold up whoever hands them to the kernel.
    may_block: bool,
    /// Against other programs.
    _hold: Option<Arc<hold::Hold>>,
}

/// A process that is killed ends when its writes to the page cache have ended. Of direct I/O what the medium has goes on without it: this is what a medium
/// takes that works, and far more.
const DIRECT_LINGERS_MS: u32 = 1000;

impl FileState {
    fn of(opened: Opened, access: Access) -> Self {
        let limits = Limits {
            bytes: opened.bytes,
            alignment_bytes: opened.alignment_bytes,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            range_bytes_max: RANGE_BYTES_MAX,
            segments_max: SEGMENTS_MAX,
            // The kernel promises nothing, neither about torn blocks nor about readers.
            atomic_write_bytes: 1,
            discard_zeroes: opened.punches_holes,
            queue_depth_max: QUEUE_DEPTH_MAX,
            guest_memory: true,
            ends_in_submit: false,
            cancel_bound_ms: None,
            durability: Durability::AfterFlush,
            writable: access == Access::ReadWrite,
            polled_when_idle: false,
            lingers_ms: if opened.direct { DIRECT_LINGERS_MS } else { 0 },
        };
        Self {
            name: opened.name,
            fd: opened.fd,
            limits,
            direct: opened.direct,
            gate: opened.gate,
            reports: Reports::default(),
            detour: opened.detour,
            may_block: opened.may_block,
            _hold: opened.hold,
        }
    }

    fn flush_error(&self) -> Option<StoreError> {
        let source = self.reports.failure()?;
        let store = self.name.clone();
        Some(StoreError::FlushFailed { store, source })
    }
}

#[derive(Debug)]
pub(crate) struct FileBackend {
    state: Arc<FileState>,
}

impl FileBackend {
    pub(crate) fn open(path: &Path, options: OpenOptions) -> Result<Self, StoreError> {
        let opened = open::open(path, options)?;
        Ok(Self {
            state: Arc::new(FileState::of(opened, options.access)),
        })
    }
}

impl Backend for FileBackend {
    fn name(&self) -> &str {
        &self.state.name
    }

    fn describe(&self) -> String {
        if self.state.direct {
            format!(
                "direct I/O, aligned to {} bytes",
                self.state.limits.alignment_bytes
            )
        } else {
            format!(
                "through the page cache{}",
                self.state
                    .detour
                    .as_ref()
                    .map(|why| format!(": {why}"))
                    .unwrap_or_default()
            )
        }
    }

    /// The inode, its file system's device, and when it was made: numbers of inodes are given again. They stay while the file is there, whatever becomes of its
    /// path. A block device has names that last, by which it is known.
    fn instance(&self) -> u64 {
        let file = self.state.fd.try_clone().map(File::from);
        let Ok(metadata) = file.and_then(|file| file.metadata()) else {
            return 0;
        };
        if !metadata.is_file() {
            return 0;
        }
        let made_at = metadata.created().unwrap_or(SystemTime::UNIX_EPOCH);
        let since = made_at.duration_since(SystemTime::UNIX_EPOCH);
        let made = since.map_or(0, |since| {
            since.as_secs().rotate_left(30) ^ u64::from(since.subsec_nanos())
        });
        metadata.ino() ^ metadata.dev().rotate_left(40) ^ made.rotate_left(20)
    }

    fn limits(&self) -> Limits {
        self.state.limits.clone()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(handle::FileStore::new(self.state.clone(), ring)?))
    }
}

#[cfg(test)]
mod crash;
#[cfg(test)]
mod tests;
