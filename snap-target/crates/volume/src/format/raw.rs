//! The on-disk structures, byte for byte as docs/format.md says. They hold what was read, valid or not; the modules beside this
//! one turn them into values that can be trusted.

use zerocopy::little_endian::{I64, I128, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The unit of layout: superblocks, table blocks, checksum granules, stream alignment.
pub const BLOCK_BYTES: usize = 4096;
/// [`BLOCK_BYTES`] in offset arithmetic.
pub const BLOCK_BYTES_U64: u64 = 4096;
/// The first eight bytes of a superblock. The carriage return and line feed show a transfer in text mode.
pub const MAGIC: [u8; 8] = *b"XIOVOL\r\n";
/// The version that this crate reads and writes.
pub const VERSION: u32 = 1;
/// An index that refers to nothing.
pub const NONE: u32 = u32::MAX;
/// Steps of a chain.
pub const CHAIN_STEPS_MAX: usize = 8;
/// Data bytes of an inline extent.
pub const INLINE_BYTES_MAX: usize = 40;
/// Table references in a superblock.
pub const DIRECTORY_SLOTS: usize = 16;

/// Asserts the size of an on-disk structure, and that it has no alignment of its own.
macro_rules! assert_bytes {
    ($type:ty, $bytes:expr) => {
        const _: () = assert!(size_of::<$type>() == $bytes && align_of::<$type>() == 1);
    };
}

/// Superblock, 4096 bytes.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawSuperblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// 0, 1, or 2 for the tail.
    pub slot: U32,
    /// Features that change nothing for a reader.
    pub compat: U64,
    /// Features that change nothing for a reader, and much for a writer.
    pub ro_compat: U64,
    /// Features without which nothing here can be read.
    pub incompat: U64,
    /// RFC 9562 order.
    pub volume_uuid: [u8; 16],
    /// From 1.
    pub generation: U64,
    /// Where this superblock lies.
    pub own_offset: U64,
    /// The whole volume.
    pub volume_bytes: U64,
    /// Logical block size of every view.
    pub lba_bytes: U32,
    /// Metadata per logical block.
    pub metadata_bytes: U16,
    /// NVMe protection information type.
    pub protection_type: u8,
    /// Zero.
    pub reserved_87: u8,
    /// Zero.
    pub reserved_88: [u8; 8],
    /// Text for people.
    pub writer: [u8; 32],
    /// Sources, streams, chains, blobs, views; the rest free.
    pub directory: [RawTable; DIRECTORY_SLOTS],
    /// Zero.
    pub reserved_768: [u8; 3324],
    /// CRC-32C of the bytes before.
    pub crc: U32,
}
assert_bytes!(RawSuperblock, BLOCK_BYTES);

/// Table reference, 40 bytes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct RawTable {
    /// What the entries are.
    pub kind: U16,
    /// Zero.
    pub reserved_2: U16,
    /// Size of an entry.
    pub entry_bytes: U32,
    /// Entries in the table.
    pub entry_count: U64,
    /// First block.
    pub offset: U64,
    /// Blocks of all levels.
    pub block_count: U64,
    /// The generation that wrote the blocks.
    pub generation: U64,
}
assert_bytes!(RawTable, 40);

/// Header of a table block, 64 bytes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    FromBytes,
    IntoBytes,
    KnownLayout,
    Immutable,
    Unaligned,
)]
#[repr(C)]
pub struct RawBlockHeader {
    /// CRC-32C of the block's bytes from 4 on.
    pub crc: U32,
    /// The table's kind.
    pub kind: u8,
    /// 0 entries, 1 and up index.
    pub level: u8,
    /// Entries in this block.
    pub entry_count: U16,
    /// Stream or view that the table belongs to.
    pub owner: U32,
    /// Size of an entry.
    pub entry_bytes: U32,
    /// Position in the level.
    pub block_index: U64,
    /// The generation that wrote the block.
    pub generation: U64,
    /// The volume's UUID.
    pub volume_uuid: [u8; 16],
    /// First key that the block covers.
    pub first_key: U64,
    /// The key after the last.
    pub end_key: U64,
}
assert_bytes!(RawBlockHeader, 64);

/// Bytes of a table block that hold entries.
pub const ENTRY_AREA_BYTES: usize = BLOCK_BYTES - size_of::<RawBlockHeader>();

/// Source entry, 128 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawSource {
    /// 0 own, 1 external.
    pub kind: U16,
    /// 0 none, 1 SHA-256.
    pub digest_kind: U16,
    /// Blob with the path or URL.
    pub locator: U32,
    /// Exact size.
    pub bytes: U64,
    /// Modification time, nanoseconds since 1970.
    pub modified_ns: I64,
    /// Striped and replicated sources.
    pub first_member: U32,
    /// Striped and replicated sources.
    pub member_count: U16,
    /// Zero.
    pub reserved_30: U16,
    /// Striped sources.
    pub stripe_bytes: U64,
    /// Zero.
    pub reserved_40: [u8; 8],
    /// Identity of the store.
    pub store_uuid: [u8; 16],
    /// Of the whole content.
    pub digest: [u8; 32],
    /// Zero.
    pub reserved_96: [u8; 32],
}
assert_bytes!(RawSource, 128);

/// Stream entry, 256 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawStream {
    /// Index of a source.
    pub source: U32,
    /// Index of a stored chain.
    pub chain: U32,
    /// Code of the source's elements.
    pub element_type: u8,
    /// 0 unframed, 1 framed.
    pub layout: u8,
    /// 0 none, 1 CRC-32C.
    pub integrity: u8,
    /// Whether the range below is proven.
    pub range_known: u8,
    /// Stored bytes before element 0.
    pub skip_bytes: U16,
    /// Zero.
    pub flags: U16,
    /// In the source.
    pub stored_offset: U64,
    /// Exact.
    pub stored_bytes: U64,
    /// How many.
    pub elements: U64,
    /// In each frame but the last.
    pub frame_elements: U64,
    /// Smallest element.
    pub range_min: I128,
    /// Largest element.
    pub range_max: I128,
    /// Frames or checksums.
    pub table: RawTable,
    /// 0 none, 1 SHA-256.
    pub digest_kind: U16,
    /// 0.
    pub cipher: U16,
    /// Zero.
    pub reserved_124: U32,
    /// Of the elements as they decode.
    pub digest: [u8; 32],
    /// Zero.
    pub reserved_160: [u8; 96],
}
assert_bytes!(RawStream, 256);

/// Chain entry, 144 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawChain {
    /// Code of the type that the chain starts from.
    pub element_type: u8,
    /// Steps that follow.
    pub step_count: u8,
    /// 0 stored, 1 view.
    pub role: u8,
    /// Zero.
    pub reserved_3: [u8; 13],
    /// Unused ones are zero.
    pub steps: [RawStep; CHAIN_STEPS_MAX],
}
assert_bytes!(RawChain, 144);

/// Step of a chain, 16 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawStep {
    /// Transform id.
    pub transform: U16,
    /// Its version.
    pub version: U16,
    /// Its parameter.
    pub parameter: U32,
    /// Table, dictionary or module that it needs.
    pub blob: U32,
    /// Zero.
    pub reserved_12: U32,
}
assert_bytes!(RawStep, 16);

/// Blob entry, 64 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawBlob {
    /// What the bytes are.
    pub kind: U32,
    /// CRC-32C of the bytes.
    pub crc: U32,
    /// In the volume's store.
    pub offset: U64,
    /// Exact.
    pub bytes: U64,
    /// Zero.
    pub reserved_24: [u8; 8],
    /// What the blob is known by.
    pub sha256: [u8; 32],
}
assert_bytes!(RawBlob, 64);

/// View entry, 128 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawView {
    /// RFC 9562 order.
    pub view_uuid: [u8; 16],
    /// Exact.
    pub presented_bytes: U64,
    /// Blob.
    pub name: U32,
    /// Blob or [`NONE`].
    pub manifest: U32,
    /// The extent table.
    pub extents: RawTable,
    /// Bit 0: lossy.
    pub flags: U32,
    /// Another one whenever what the view presents is changed.
    pub revision_uuid: [u8; 16],
    /// Zero.
    pub reserved_92: [u8; 164],
}
assert_bytes!(RawView, 256);

/// Extent entry, 64 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawExtent {
    /// First presented byte.
    pub start: U64,
    /// Presented bytes.
    pub bytes: U64,
    /// 0 zero, 1 inline, 2 linear.
    pub mapping: u8,
    /// Zero.
    pub flags: u8,
    /// Zero.
    pub reserved_18: U16,
    /// Linear: stream index.
    pub stream: U32,
    /// What the mapping says: [`RawLinear`], data, or zeros.
    pub body: [u8; INLINE_BYTES_MAX],
}
assert_bytes!(RawExtent, 64);

/// Body of a linear extent, 40 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawLinear {
    /// First element of the stream.
    pub first_element: U64,
    /// View chain or [`NONE`].
    pub view_chain: U32,
    /// [`NONE`].
    pub map: U32,
    /// Zero.
    pub reserved_40: [u8; 24],
}
assert_bytes!(RawLinear, INLINE_BYTES_MAX);

/// Frame entry, 40 bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RawFrame {
    /// From the stream's first stored byte.
    pub offset: U64,
    /// Exact.
    pub stored_bytes: U32,
    /// CRC-32C of the stored bytes.
    pub crc: U32,
    /// Room for an authentication tag: zero.
    pub tag: [u8; 16],
    /// Room for a key id: zero.
    pub key_id: U32,
    /// Zero.
    pub flags: U32,
}
assert_bytes!(RawFrame, 40);

/// Checksum entry: the CRC-32C of one granule.
pub type RawChecksum = U32;

/// An empty superblock, to be filled.
#[must_use]
pub fn zeroed_superblock() -> RawSuperblock {
    RawSuperblock::new_zeroed()
}

/// Index of the first byte that is not zero.
#[must_use]
pub fn first_nonzero(bytes: &[u8]) -> Option<usize> {
    // Whole words first: this runs over the tail of every table block.
    let words = bytes.chunks_exact(8).take_while(|w| *w == [0u8; 8]).count() * 8;
    bytes
        .get(words..)?
        .iter()
        .position(|b| *b != 0)
        .map(|at| words + at)
}
