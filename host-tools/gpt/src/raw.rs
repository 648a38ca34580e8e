//! The structures on the disk (UEFI specification 2.10, sections 5.2 and 5.3).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::PARTITIONS_MAX;
use crate::name::UNITS_MAX;

pub(crate) const SIGNATURE: [u8; 8] = *b"EFI PART";
/// 1.0.
pub(crate) const REVISION: u32 = 0x0001_0000;
pub(crate) const HEADER_BYTES: u32 = 92;
pub(crate) const ENTRIES: u32 = 128;
pub(crate) const ENTRY_BYTES: u32 = 128;
/// All entries, used or not: a whole number of logical blocks of either size.
pub(crate) const ENTRIES_BYTES: usize = size_of::<RawEntry>() * PARTITIONS_MAX;

/// The header; zeros from its end to that of its block.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHeader {
    pub signature: [u8; 8],
    pub revision: U32,
    pub header_bytes: U32,
    /// CRC-32 of the header, this field zero.
    pub header_crc: U32,
    pub reserved: U32,
    pub own_lba: U64,
    /// Of the other header.
    pub other_lba: U64,
    pub first_usable_lba: U64,
    pub last_usable_lba: U64,
    pub disk_guid: [u8; 16],
    pub entries_lba: U64,
    pub entries: U32,
    pub entry_bytes: U32,
    pub entries_crc: U32,
}

/// An entry; zeros where it is not used.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    pub type_guid: [u8; 16],
    pub guid: [u8; 16],
    pub first_lba: U64,
    /// Of the partition itself.
    pub last_lba: U64,
    pub attributes: U64,
    /// UTF-16, filled up with NULs.
    pub name: [U16; UNITS_MAX],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES as usize);
const _: () = assert!(size_of::<RawEntry>() == ENTRY_BYTES as usize);
const _: () = assert!(PARTITIONS_MAX == ENTRIES as usize);
const _: () = assert!(ENTRIES_BYTES.is_multiple_of(4096));

/// A UUID as tables have it: its first three fields little-endian.
pub(crate) fn mixed_endian(uuid: [u8; 16]) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = uuid;
    [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p]
}

/// CRC-32 (ISO-HDLC, the one of Ethernet and zip).
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a CRC of 32 bits, in a u64"
    )]
    let crc = crc as u32;
    crc
}

/// 512 bytes that tell programs which know no GPT that the disk is taken: one partition of type EEh over all behind the first block.
pub(crate) fn protective_mbr(last_lba: u64) -> Vec<u8> {
    let mut mbr = vec![0; 512];
    // Cylinder, head and sector of LBA 1; those of the end cannot be said.
    mbr[446..454].copy_from_slice(&[0, 0, 2, 0, 0xEE, 0xFF, 0xFF, 0xFF]);
    mbr[454..458].copy_from_slice(&1u32.to_le_bytes());
    let lbas = u32::try_from(last_lba).unwrap_or(u32::MAX);
    mbr[458..462].copy_from_slice(&lbas.to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xAA]);
    mbr
}
