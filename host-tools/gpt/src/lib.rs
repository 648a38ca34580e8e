//! A GUID partition table around payload that is never seen: one named partition for each thing that the caller presents.
//!
//! ```
//! use gpt::{LbaBytes, Partition};
//!
//! let tokens = Partition { name: b"train.bin", uuid: [1; 16], bytes: 5 << 20 };
//! let layout = gpt::lay_out(LbaBytes::B4096, [7; 16], &[tokens])?;
//! let (head, tail) = (layout.head(), layout.tail());
//! // The head at byte 0, the partition's payload at its place, the tail at its own; zeros between.
//! assert_eq!(layout.places()[0].first_byte, 1 << 20);
//! assert_eq!(layout.tail_offset() + tail.len() as u64, layout.disk_bytes());
//! # assert_eq!(head.len(), 6 * 4096);
//! # Ok::<(), gpt::GptError>(())
//! ```
//!
//! ```text
//!  byte 0    1 LBA     2 LBA      17,408 or 24,576            1 MiB                                         disk_bytes
//!  +--------+---------+----------+- - - - - - - - - - - - - -+-----------+- - -+-----------+- - -+---------+---------+
//!  | MBR    | header  | 128      |                           | partition | gap | partition | gap | 128     | header  |
//!  |        |         | entries  |                           | 1         |     | 2         |     | entries | again   |
//!  +--------+---------+----------+- - - - - - - - - - - - - -+-----------+- - -+-----------+- - -+---------+---------+
//! ```
//!
//! Contract (UEFI specification 2.10, section 5): a protective MBR; primary and backup header, revision 1.0, with their CRC-32; 128 entries of 128 bytes; partitions
//! from multiples of 1 MiB on, in the order given, each a whole number of logical blocks; the disk a whole number of MiB. The type of all is Linux filesystem data. The
//! same input gives the same bytes. No I/O.
//!
//! [`parse`] finds the partitions of a table that anybody wrote, at either block size, in the backup where the first table is damaged; what does not hold together is an
//! error. [`paths`] calls them files.
//!
//! What it does not do: change or mend tables, or make more than 128 partitions.
//!
//! Crates that were looked at (2026-11): `gptman` 3.1.1 (MIT or Apache-2.0, April 2026) is well kept, and it is what our tests read with. It writes through a stream that
//! seeks over the whole disk, which a disk whose payload is elsewhere does not have, and cuts no names. `gpt` 4.1.0 (MIT, March 2025) wants a device that reads and
//! writes as well. Both read through such a stream too; here the head of a disk is at hand, and what is checked of it is ours to say.

#![forbid(unsafe_code)]

mod name;
mod parse;
mod paths;
mod raw;

use sha2::{Digest, Sha256};
use thiserror::Error;
use zerocopy::IntoBytes;

use raw::{RawEntry, RawHeader};

pub use name::UNITS_MAX;
pub use parse::{HEAD_BYTES, Parsed, TAIL_BYTES, ends, is_protective, parse};
pub use paths::paths;

/// Partitions of a table.
pub const PARTITIONS_MAX: usize = 128;
/// Partitions start at multiples of this many bytes.
pub const ALIGNMENT_BYTES: u64 = 1 << 20;
/// Bytes of a disk.
pub const DISK_BYTES_MAX: u64 = 1 << 56;
/// Linux filesystem data, 0FC63DAF-8483-4772-8E79-3D69D8477DE4.
const TYPE_UUID: [u8; 16] = 0x0FC6_3DAF_8483_4772_8E79_3D69_D847_7DE4_u128.to_be_bytes();

/// Size of a logical block. A table is found only by a host that sees this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LbaBytes {
    /// 512 bytes.
    B512,
    /// 4,096 bytes.
    B4096,
}

impl LbaBytes {
    /// As a number.
    #[must_use]
    pub fn bytes(self) -> u64 {
        match self {
            LbaBytes::B512 => 512,
            LbaBytes::B4096 => 4096,
        }
    }
}

/// What a partition is to be.
#[derive(Debug, Clone, Copy)]
pub struct Partition<'a> {
    /// Any bytes but NUL. A table holds text of 36 UTF-16 units: a longer name, or one that is not UTF-8, is shortened and ends with 8 digits of its SHA-256.
    pub name: &'a [u8],
    /// In the order in which it is printed; each partition has another.
    pub uuid: [u8; 16],
    /// Whole logical blocks, at least one.
    pub bytes: u64,
}

/// Where a partition lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The name in the table.
    pub name: String,
    /// A multiple of 1 MiB in tables of [`lay_out`], and of a logical block in others.
    pub first_byte: u64,
    /// Whole logical blocks.
    pub bytes: u64,
}

/// Why there is no such table.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum GptError {
    /// More than the table holds.
    #[error(
        "{0} partitions; a table holds {PARTITIONS_MAX}: put the files on one filesystem, or on several disks"
    )]
    TooManyPartitions(usize),
    /// Not a whole number of logical blocks.
    #[error(
        "\"{name}\" is {bytes} bytes; a partition is a whole number of blocks of {lba_bytes}, and at least one"
    )]
    Size {
        /// Name of the partition.
        name: String,
        /// Its size.
        bytes: u64,
        /// The block size.
        lba_bytes: u64,
    },
    /// A name that cannot be.
    #[error("the name \"{name}\" {why}")]
    Name {
        /// The name.
        name: String,
        /// The rule.
        why: &'static str,
    },
    /// An identifier of two partitions, or one that means none.
    #[error("the UUID of \"{name}\" is zero, or another partition's or the disk's")]
    Uuid {
        /// Name of the partition.
        name: String,
    },
    /// More than a disk holds.
    #[error("the partitions need more than {DISK_BYTES_MAX} bytes")]
    DiskTooLarge,
    /// A table that is damaged, or of another kind than is read here.
    #[error("the partition table at byte {at}: {why}")]
    Table {
        /// Where its header is on the disk.
        at: u64,
        /// What does not hold.
        why: String,
    },
}

/// A table with its places.
#[derive(Debug)]
pub struct Layout {
    lba_bytes: LbaBytes,
    disk_uuid: [u8; 16],
    disk_bytes: u64,
    places: Vec<Place>,
    entries: Vec<RawEntry>,
}

/// Gives each partition its place, in the order given.
///
/// # Errors
/// Too many partitions; a size that is no whole number of blocks; a name that is empty, holds a NUL, or is there twice; a UUID that is there twice.
pub fn lay_out(
    lba_bytes: LbaBytes,
    disk_uuid: [u8; 16],
    partitions: &[Partition<'_>],
) -> Result<Layout, GptError> {
    if partitions.len() > PARTITIONS_MAX {
        return Err(GptError::TooManyPartitions(partitions.len()));
    }
    let mut layout = Layout {
        lba_bytes,
        disk_uuid,
        disk_bytes: 0,
        places: Vec::new(),
        entries: Vec::new(),
    };
    let mut at = ALIGNMENT_BYTES;
    for (index, partition) in partitions.iter().enumerate() {
        check(lba_bytes, disk_uuid, partition, &partitions[..index])?;
        let end = at.checked_add(partition.bytes);
        let end = end.filter(|&end| end <= DISK_BYTES_MAX);
        let end = end.ok_or(GptError::DiskTooLarge)?;
        layout.add(at..end, partition);
        at = end.next_multiple_of(ALIGNMENT_BYTES);
    }
    layout.disk_bytes = (at + layout.backup_bytes()).next_multiple_of(ALIGNMENT_BYTES);
    if layout.disk_bytes > DISK_BYTES_MAX {
        return Err(GptError::DiskTooLarge);
    }
    Ok(layout)
}

fn check(
    lba_bytes: LbaBytes,
    disk_uuid: [u8; 16],
    partition: &Partition<'_>,
    before: &[Partition<'_>],
) -> Result<(), GptError> {
    let name = || partition.name.escape_ascii().to_string();
    let refused = |why| Err(GptError::Name { name: name(), why });
    if partition.name.is_empty() {
        return refused("is empty");
    }
    if partition.name.contains(&0) {
        return refused("has a NUL in it");
    }
    if before.iter().any(|other| other.name == partition.name) {
        return refused("is there twice");
    }
    let uuid = partition.uuid;
    if uuid == [0; 16] || uuid == disk_uuid || before.iter().any(|other| other.uuid == uuid) {
        return Err(GptError::Uuid { name: name() });
    }
    let lba_bytes = lba_bytes.bytes();
    if partition.bytes == 0 || !partition.bytes.is_multiple_of(lba_bytes) {
        return Err(GptError::Size {
            name: name(),
            bytes: partition.bytes,
            lba_bytes,
        });
    }
    Ok(())
}

impl Layout {
    /// Each partition's place, in the order given.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Bytes of the whole disk: a multiple of 1 MiB.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// What lies at byte 0: MBR, primary header, entries.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let lba = self.lba_bytes.bytes();
        let last_lba = self.disk_bytes / lba - 1;
        let mut head = raw::protective_mbr(last_lba);
        head.resize(few(lba), 0);
        head.extend_from_slice(self.header(1, last_lba, 2).as_bytes());
        head.resize(few(2 * lba), 0);
        head.extend_from_slice(&self.entry_bytes());
        head
    }

    /// What lies at [`tail_offset`](Self::tail_offset), to the disk's end: entries, backup header.
    #[must_use]
    pub fn tail(&self) -> Vec<u8> {
        let lba = self.lba_bytes.bytes();
        let last_lba = self.disk_bytes / lba - 1;
        let mut tail = self.entry_bytes();
        let header = self.header(last_lba, 1, self.tail_offset() / lba);
        tail.extend_from_slice(header.as_bytes());
        tail.resize(few(self.backup_bytes()), 0);
        tail
    }

    /// Byte of the disk at which [`tail`](Self::tail) lies.
    #[must_use]
    pub fn tail_offset(&self) -> u64 {
        self.disk_bytes - self.backup_bytes()
    }

    /// Entries and backup header.
    fn backup_bytes(&self) -> u64 {
        raw::ENTRIES_BYTES as u64 + self.lba_bytes.bytes()
    }

    fn add(&mut self, bytes: std::ops::Range<u64>, partition: &Partition<'_>) {
        let lba = self.lba_bytes.bytes();
        let name = name::shortened(partition.name, &Sha256::digest(partition.name));
        self.entries.push(RawEntry {
            type_guid: raw::mixed_endian(TYPE_UUID),
            guid: raw::mixed_endian(partition.uuid),
            first_lba: (bytes.start / lba).into(),
            last_lba: (bytes.end / lba - 1).into(),
            attributes: 0.into(),
            name: name::units(&name),
        });
        self.places.push(Place {
            name,
            first_byte: bytes.start,
            bytes: partition.bytes,
        });
    }

    fn entry_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(raw::ENTRIES_BYTES);
        for entry in &self.entries {
            bytes.extend_from_slice(entry.as_bytes());
        }
        bytes.resize(raw::ENTRIES_BYTES, 0);
        bytes
    }

    fn header(&self, own_lba: u64, other_lba: u64, entries_lba: u64) -> RawHeader {
        let lba = self.lba_bytes.bytes();
        let first_usable_lba = 2 + raw::ENTRIES_BYTES as u64 / lba;
        let mut header = RawHeader {
            signature: raw::SIGNATURE,
            revision: raw::REVISION.into(),
            header_bytes: raw::HEADER_BYTES.into(),
            header_crc: 0.into(),
            reserved: 0.into(),
            own_lba: own_lba.into(),
            other_lba: other_lba.into(),
            first_usable_lba: first_usable_lba.into(),
            last_usable_lba: (self.tail_offset() / lba - 1).into(),
            disk_guid: raw::mixed_endian(self.disk_uuid),
            entries_lba: entries_lba.into(),
            entries: raw::ENTRIES.into(),
            entry_bytes: raw::ENTRY_BYTES.into(),
            entries_crc: raw::crc32(&self.entry_bytes()).into(),
        };
        header.header_crc = raw::crc32(header.as_bytes()).into();
        header
    }
}

/// Sizes of a few blocks.
fn few(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
