//! Every limit of the format and of this reader, in one place; docs/format.md has the table. A value beyond one is refused.

use transforms::{Dictionary, RankTable, Scales};

use crate::format::raw::{BLOCK_BYTES, ENTRY_AREA_BYTES, RawStream, RawView};
use crate::format::superblock::PAYLOAD_OFFSET_MIN;

/// Bytes of a volume, of a source, of what a view presents: sums of a few of them stay far from 2^64.
pub const BYTES_MAX: u64 = 1 << 56;
/// Elements of a stream.
pub const ELEMENTS_MAX: u64 = 1 << 56;
/// Sources of a volume.
pub const SOURCES_MAX: u64 = 1 << 21;
/// Streams of a volume.
pub const STREAMS_MAX: u64 = 1 << 21;
/// Chains of a volume.
pub const CHAINS_MAX: u64 = 1 << 17;
/// Blobs of a volume.
pub const BLOBS_MAX: u64 = 1 << 22;
/// Views of a volume.
pub const VIEWS_MAX: u64 = 1 << 12;
/// Bytes of the five directory tables together: a reader holds them in memory.
pub const DIRECTORY_BYTES_MAX: u64 = 1 << 30;
/// Generations of a volume.
pub const GENERATION_MAX: u64 = 1 << 56;
/// Extents that touch one 4 KiB block of presented bytes.
pub const BLOCK_EXTENTS_MAX: usize = 1024;
/// Frames that touch one 4 KiB block of presented bytes: what it costs to read it.
pub const BLOCK_FRAMES_MAX: usize = 64;
/// Extents of a view.
pub const EXTENTS_MAX: u64 = 1 << 32;
/// Frames of a stream; checksums of a stream.
pub const FRAMES_MAX: u64 = 1 << 44;
/// Packed bytes of a frame: they bound the memory of one decode, in which lie besides them as many stored bytes at most, and what is between two
/// steps (of `rank` before a compressor up to three bytes for each element of two).
pub const FRAME_PACKED_BYTES_MAX: u64 = 4 << 20;
/// Bytes of one blob.
pub const BLOB_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one locator or name.
pub const TEXT_BYTES_MAX: u64 = 4_096;
/// Bytes of all locators and names, read at open.
pub const TEXTS_BYTES_MAX: u64 = 128 << 20;
/// Tables that chains refer to, of ranks and of scales, and dictionaries: each is read by itself at open.
pub const CHAIN_TABLES_MAX: u64 = 1 << 12;
/// Bytes of one of ranks.
pub const RANK_TABLE_BYTES_MAX: u64 = RankTable::STORED_BYTES_MAX;
/// Bytes of the scales of one stream.
pub const SCALES_BYTES_MAX: u64 = Scales::STORED_BYTES_MAX;
/// Bytes of one dictionary.
pub const DICTIONARY_BYTES_MAX: u64 = Dictionary::STORED_BYTES_MAX;
/// Bytes of all of them together, those of ranks as if their ids were not packed. In memory they take at most five times as much.
pub const CHAIN_TABLES_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a view's name.
pub const VIEW_NAME_BYTES_MAX: u64 = 255;
/// Bytes of a volume without anything in it: the superblocks at its beginning and the tail.
pub const VOLUME_BYTES_MIN: u64 = PAYLOAD_OFFSET_MIN + BLOCK_BYTES as u64;
/// Levels of an extent table, level 0 included.
pub const LEVELS_MAX: u8 = 5;
/// Children of an index block.
pub const INDEX_FANOUT: u64 = (ENTRY_AREA_BYTES / 8) as u64;

/// Largest fetch that a reader asks for in one piece. Longer frames come in several.
pub const FETCH_BYTES_MAX: u32 = 1 << 20;
/// Presented bytes of one read operation.
pub const READ_BYTES_MAX: u64 = 1 << 30;
/// Stored bytes that one read operation has under way at a time, unless a single frame is longer.
pub const READ_WINDOW_BYTES_MAX: u64 = 4 << 20;
/// Parts (extent by frame) that one read operation works on at a time.
pub const READ_UNITS_MAX: usize = 128;
/// Bytes of a mapped file that are read again to see that it is the same, where its modification time does not tell: some seconds.
pub const DIGEST_AT_OPEN_BYTES_MAX: u64 = 4 << 30;
/// Smallest budget of a cache.
pub const CACHE_BYTES_MIN: usize = 256 * BLOCK_BYTES;
/// What frames leave of a cache's budget to table blocks, however many frames are held: a read needs one block at a time.
pub const CACHE_BLOCKS_BYTES_MIN: usize = 16 * BLOCK_BYTES;

// What is held in memory is bounded by the tables' bytes; views, which are few, are a small part of them.
const _: () = assert!(VIEWS_MAX * size_of::<RawView>() as u64 <= DIRECTORY_BYTES_MAX / 64);
const _: () = assert!(STREAMS_MAX * (size_of::<RawStream>() as u64) < 2 * DIRECTORY_BYTES_MAX);
// The levels suffice even for entries so long that a leaf holds one.
const _: () = assert!(EXTENTS_MAX <= INDEX_FANOUT.pow(LEVELS_MAX as u32 - 1));
const _: () = assert!(CACHE_BLOCKS_BYTES_MIN < CACHE_BYTES_MIN);
// A frame is stored in at most its packed bytes, and one fits into the window of a read.
const _: () = assert!(FRAME_PACKED_BYTES_MAX <= READ_WINDOW_BYTES_MAX);
const _: () = assert!(FRAME_PACKED_BYTES_MAX <= transforms::FRAME_BYTES_MAX);
const _: () = assert!(READ_BYTES_MAX <= u32::MAX as u64);
const _: () = assert!(READ_WINDOW_BYTES_MAX >= FETCH_BYTES_MAX as u64);
const _: () = assert!(VIEW_NAME_BYTES_MAX <= TEXT_BYTES_MAX);
// The largest table is a blob, and one of several; as many small ones as there may be fit together.
const _: () = assert!(RANK_TABLE_BYTES_MAX == 8 + 3 * transforms::RANKS_MAX as u64);
const _: () = assert!(RANK_TABLE_BYTES_MAX <= CHAIN_TABLES_BYTES_MAX / 8);
const _: () = assert!(CHAIN_TABLES_MAX * RankTable::STORED_BYTES_MIN <= CHAIN_TABLES_BYTES_MAX / 8);
const _: () = assert!(CHAIN_TABLES_MAX <= CHAINS_MAX && CHAIN_TABLES_MAX <= BLOBS_MAX);
const _: () = assert!(SCALES_BYTES_MAX <= CHAIN_TABLES_BYTES_MAX);
const _: () = assert!(DICTIONARY_BYTES_MAX <= CHAIN_TABLES_BYTES_MAX / 8);
const _: () =
    assert!(CHAIN_TABLES_MAX * Dictionary::PREPARED_BYTES_MAX <= 2 * CHAIN_TABLES_BYTES_MAX);
const _: () = assert!(CHAIN_TABLES_BYTES_MAX <= BLOB_BYTES_MAX);
