//! The files of a disk, mounted through FUSE: no root, no NVMe driver, no block device.
//!
//! ```text
//!  reader --> kernel: page cache --> /dev/fuse --> Files: names, inodes --> MetadataCache --+
//!                                                  bytes of files ------> ReadAhead --------+--> Medium (the caller's)
//! ```
//!
//! * A [`Medium`] is the bytes of a disk, which the caller reads: a volume's, or a namespace's.
//! * [`Content::of`] looks what is on it: an EROFS (crate `erofs`), also in the only partition of a table; partitions (crate `gpt`), each of which is a file; or bytes
//!   without names, which become one file. [`OnDisk::look`] is the same for who reads files without a mount.
//! * [`Mounted::new`] mounts and serves it, until [`Unmounter`] or somebody else unmounts it.
//!
//! Contract: read-only. What a mount presents never changes, so the kernel keeps names, attributes and pages for as long as it has memory, and opening a file
//! asks nobody. A read that fails is EIO, and the caller is told the file, the byte and the cause, once for each place. Any number of readers at once, as many reads
//! under way as there are threads. Memory: 16 MiB of metadata, 32 MiB read ahead, whatever the disk's size. Hostile disks are refused or give errors.
//!
//! What it does not do: extended attributes, locks, devices; inode numbers are not those that the kernel's EROFS shows. No unsafe code.
//!
//! Crates that were looked at (2026-11): `fuser` 0.18.0 (July 2026, MIT): the protocol and the mount in Rust, nothing of libfuse with its features off; what is used.
//! `fuse3` 0.9.0 (August 2026) drives it from an async runtime, which nothing here needs. `polyfuse` 0.4.1 and `fuse` 0.3.1 have had no release since 2020.
//! `fuse-backend-rs` is made for virtiofsd: its mount is behind an interface for servers of guests.

#![forbid(unsafe_code)]

mod complaints;
mod error;
mod files;
mod filesystem;
mod flat;
pub mod limits;
mod medium;
mod metadata_cache;
mod mounts;
mod on_disk;
mod read_ahead;
mod session;

pub use error::MountError;
pub use files::{Content, ContentKind, OneFile};
pub use medium::{Medium, ReadFailure};
pub use metadata_cache::MetadataCache;
pub use on_disk::{Filesystem, Found, OnDisk, PartitionFile};
pub use session::{Mounted, Options, Unmounter};
