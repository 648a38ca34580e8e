//! The structures on the disk, as include/erofs_fs.h of erofs-utils and fs/erofs/erofs_fs.h of Linux give them.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::BLOCK_BYTES;

/// One block.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// Byte of the disk at which the superblock lies.
pub(crate) const SUPERBLOCK_OFFSET: usize = 1024;
pub(crate) const MAGIC: u32 = 0xE0F5_E1E2;
/// log2 of the block size.
pub(crate) const BLOCK_BITS: u8 = 12;
/// An inode is found by its number: so many bytes times it, from the metadata's first block on.
pub(crate) const NID_BYTES: u64 = 32;

/// Number of our root inode: the first of block 1, with numbers that count from block 0. None is 0, which readdir() would hide.
pub(crate) const ROOT_NID: u16 = 128;

/// feature_compat: `checksum` holds.
pub(crate) const COMPAT_CHECKSUM: u32 = 1;
/// feature_compat: times are of modification, not of change.
pub(crate) const COMPAT_MTIME: u32 = 2;
/// i_format: bit 0 is 1 for an inode of 64 bytes, bits 1 to 3 are the data layout.
pub(crate) const FORMAT_EXTENDED: u16 = 1;
pub(crate) const FORMAT_LAYOUT_SHIFT: u16 = 1;
pub(crate) const FORMAT_LAYOUT_MASK: u16 = 7;
/// i_format: what we know of it.
pub(crate) const FORMAT_KNOWN: u16 = 0x0F;
/// Data layout: blocks in a row.
pub(crate) const LAYOUT_PLAIN: u16 = 0;
/// Data layout: blocks in a row, what is left over behind the inode.
pub(crate) const LAYOUT_INLINE: u16 = 2;

/// The file type in i_mode (POSIX's S_IFMT), and its values.
pub(crate) const MODE_TYPE: u16 = 0o170_000;
pub(crate) const MODE_DIRECTORY: u16 = 0o040_000;
pub(crate) const MODE_FILE: u16 = 0o100_000;
pub(crate) const MODE_SYMLINK: u16 = 0o120_000;
/// The permissions in i_mode.
pub(crate) const MODE_PERMISSIONS: u16 = 0o7_777;

/// file_type of a directory entry.
pub(crate) const TYPE_FILE: u8 = 1;
pub(crate) const TYPE_DIRECTORY: u8 = 2;
pub(crate) const TYPE_SYMLINK: u8 = 7;

/// erofs_super_block, 128 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub magic: U32,
    /// CRC-32C, without the final xor, from here to the end of the block, this field zero.
    pub checksum: U32,
    pub feature_compat: U32,
    pub block_bits: u8,
    /// Units of 16 bytes behind these 128.
    pub extension_slots: u8,
    pub root_nid: U16,
    pub inodes: U64,
    /// When the disk was made.
    pub built_seconds: U64,
    pub built_nanoseconds: U32,
    pub blocks: U32,
    /// First block of the metadata: where inode 0 would be.
    pub metadata_block: U32,
    pub xattr_block: U32,
    pub uuid: [u8; 16],
    /// Ends with a NUL.
    pub volume_name: [u8; 16],
    pub feature_incompat: U32,
    pub compression: U16,
    pub extra_devices: U16,
    pub device_slot: U16,
    /// log2 of blocks in a directory block.
    pub directory_block_bits: u8,
    pub xattr_prefixes: u8,
    pub xattr_prefix_start: U32,
    pub packed_nid: U64,
    pub reserved: [u8; 24],
}

/// erofs_inode_extended, 64 bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawInode {
    pub format: U16,
    pub xattr_count: U16,
    pub mode: U16,
    /// Upper bits of start_block, with the 48-bit feature.
    pub start_block_high: U16,
    pub size: U64,
    pub start_block: U32,
    /// A serial number, for stat() with 32 bits.
    pub ino: U32,
    pub uid: U32,
    pub gid: U32,
    pub mtime_seconds: U64,
    pub mtime_nanoseconds: U32,
    pub links: U32,
    pub reserved: [u8; 16],
}

/// erofs_dirent, 12 bytes. A directory block is some of them, and then their names in the same order, without gaps.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawDirent {
    pub nid: U64,
    /// From the beginning of the block. That of the first entry tells how many there are.
    pub name_offset: U16,
    pub file_type: u8,
    pub reserved: u8,
}

/// Bytes of an inode as we write it.
pub(crate) const INODE_BYTES: usize = size_of::<RawInode>();
pub(crate) const DIRENT_BYTES: usize = size_of::<RawDirent>();

const _: () = assert!(ROOT_NID as u64 * NID_BYTES == BLOCK_BYTES as u64);
const _: () = assert!(size_of::<RawSuperblock>() == 128);
const _: () = assert!(INODE_BYTES == 64 && DIRENT_BYTES == 12);

/// The block that a byte of the disk is in, and where in it.
pub(crate) fn block_of(byte: u64) -> (u64, usize) {
    let block_bytes = BLOCK_BYTES as u64;
    #[expect(clippy::cast_possible_truncation, reason = "less than a block")]
    let in_block = (byte % block_bytes) as usize;
    (byte / block_bytes, in_block)
}

/// The checksum of block 0, whose `checksum` field is taken as zero.
pub(crate) fn superblock_checksum(block: &Block) -> u32 {
    let mut bytes = *block;
    bytes[SUPERBLOCK_OFFSET + 4..SUPERBLOCK_OFFSET + 8].fill(0);
    let crc = crc_fast::checksum(
        crc_fast::CrcAlgorithm::Crc32Iscsi,
        &bytes[SUPERBLOCK_OFFSET..],
    );
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a CRC of 32 bits, in a u64"
    )]
    let crc = crc as u32;
    // The kernel's crc32c() does not invert at the end.
    !crc
}
