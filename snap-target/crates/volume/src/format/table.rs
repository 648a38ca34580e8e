//! Tables cut into blocks: the arithmetic that finds an entry, and the checks that a block is the one that was asked for
//! (docs/format.md, "Table reference" and "Table blocks").

use std::fmt;
use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::U64;

use super::SourceId;
use super::field::Fields;
use super::raw::{
    BLOCK_BYTES, BLOCK_BYTES_U64, ENTRY_AREA_BYTES, RawBlob, RawBlockHeader, RawChain, RawChecksum,
    RawExtent, RawFrame, RawSource, RawStream, RawTable, RawView,
};
use super::superblock::PAYLOAD_OFFSET_MIN;
use crate::checksum::crc32c;
use crate::error::{Item, Place, VolumeError};
use crate::identity::{Uuid, uuid_text};
use crate::limits::{INDEX_FANOUT, LEVELS_MAX};

/// Bytes of a key in an index block.
const KEY_BYTES: u32 = 8;

/// What the entries of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TableKind {
    /// Where stored bytes live.
    Sources = 1,
    /// Stored encodings.
    Streams = 2,
    /// Transforms in order.
    Chains = 3,
    /// Bytes of any length.
    Blobs = 4,
    /// What is presented.
    Views = 5,
    /// Presented bytes to stream elements.
    Extents = 6,
    /// Stored bytes of each frame.
    Frames = 7,
    /// CRC of each granule.
    Checksums = 8,
}

impl TableKind {
    /// Bytes of an entry in version 1.
    #[must_use]
    pub fn entry_bytes(self) -> u32 {
        let bytes = match self {
            TableKind::Sources => size_of::<RawSource>(),
            TableKind::Streams => size_of::<RawStream>(),
            TableKind::Chains => size_of::<RawChain>(),
            TableKind::Blobs => size_of::<RawBlob>(),
            TableKind::Views => size_of::<RawView>(),
            TableKind::Extents => size_of::<RawExtent>(),
            TableKind::Frames => size_of::<RawFrame>(),
            TableKind::Checksums => size_of::<RawChecksum>(),
        };
        // Each is far below 4 KiB.
        #[allow(clippy::cast_possible_truncation)]
        let bytes = bytes as u32;
        bytes
    }

    /// The number that stands for it on the volume.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Whether entries are found by key, through index levels.
    #[must_use]
    pub fn is_indexed(self) -> bool {
        self == TableKind::Extents
    }
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TableKind::Sources => "sources",
            TableKind::Streams => "streams",
            TableKind::Chains => "chains",
            TableKind::Blobs => "blobs",
            TableKind::Views => "views",
            TableKind::Extents => "extents",
            TableKind::Frames => "frames",
            TableKind::Checksums => "checksums",
        })
    }
}

/// A table whose place and geometry hold together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    kind: TableKind,
    owner: u32,
    entry_bytes: u32,
    entry_count: u64,
    offset: u64,
    generation: u64,
}

/// What a table reference is checked against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableBounds {
    pub(crate) volume_bytes: u64,
    /// Of the superblock that leads to the table.
    pub(crate) generation: u64,
}

/// The generation that a writer of new volumes writes.
pub(crate) const FIRST_GENERATION: u64 = 1;

impl Table {
    /// Parses a reference to a table of `kind` that belongs to `owner`.
    pub(crate) fn parse(
        fields: Fields,
        raw: &RawTable,
        kind: TableKind,
        owner: u32,
        entries_max: u64,
        bounds: &TableBounds,
    ) -> Result<Table, VolumeError> {
        fields.equal("table kind", raw.kind.get(), u16::from(kind.code()))?;
        fields.equal(
            "reserved bytes of the table reference",
            raw.reserved_2.get(),
            0,
        )?;
        let entry_bytes = raw.entry_bytes.get();
        #[allow(clippy::cast_possible_truncation)]
        let entry_bytes_max = ENTRY_AREA_BYTES as u32;
        fields.within(
            "entry_bytes",
            entry_bytes,
            kind.entry_bytes(),
            entry_bytes_max,
        )?;
        let entry_unit = u64::from(kind.entry_bytes()).min(8);
        fields.multiple("entry_bytes", u64::from(entry_bytes), entry_unit)?;
        let entry_count = fields.within("entry_count", raw.entry_count.get(), 0, entries_max)?;
        let table = Table {
            kind,
            owner,
            entry_bytes,
            entry_count,
            offset: raw.offset.get(),
            generation: fields.within(
                "generation of the table",
                raw.generation.get(),
                1,
                bounds.generation,
            )?,
        };
        fields.equal("block_count", raw.block_count.get(), table.block_count())?;
        if entry_count == 0 {
            fields.equal("table offset", table.offset, 0)?;
            return Ok(table);
        }
        fields.multiple("table offset", table.offset, BLOCK_BYTES_U64)?;
        // Counts are below 2^44 and blocks below 2^57 bytes: the product cannot overflow; the sum is checked.
        let end = fields.sum("table offset", table.offset, table.bytes())?;
        let tail_offset = bounds.volume_bytes - BLOCK_BYTES_U64;
        if table.offset < PAYLOAD_OFFSET_MIN || end > tail_offset {
            let expected = format_args!("inside bytes {PAYLOAD_OFFSET_MIN} to {tail_offset}");
            let found = format_args!("at {} to {end}", table.offset);
            return Err(fields.malformed("table", expected, found));
        }
        Ok(table)
    }

    /// A table of a new volume that is about to be written, or whose blocks lie at `offset` already.
    #[must_use]
    pub(crate) fn at(kind: TableKind, owner: u32, entry_count: u64, offset: u64) -> Table {
        Table {
            kind,
            owner,
            entry_bytes: kind.entry_bytes(),
            entry_count,
            offset: if entry_count == 0 { 0 } else { offset },
            generation: FIRST_GENERATION,
        }
    }

    /// The same table, elsewhere.
    #[cfg(test)]
    pub(crate) fn moved_to(self, offset: u64) -> Table {
        Table {
            offset: if self.entry_count == 0 { 0 } else { offset },
            ..self
        }
    }

    /// The reference as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawTable {
        RawTable {
            kind: u16::from(self.kind.code()).into(),
            reserved_2: 0.into(),
            entry_bytes: self.entry_bytes.into(),
            entry_count: self.entry_count.into(),
            offset: self.offset.into(),
            block_count: self.block_count().into(),
            generation: self.generation.into(),
        }
    }

    /// What the entries are.
    #[must_use]
    pub fn kind(&self) -> TableKind {
        self.kind
    }

    /// How many entries there are.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        self.entry_count
    }

    /// First byte of the table in the volume.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of all its blocks.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.block_count() * BLOCK_BYTES_U64
    }

    /// Blocks of all levels.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        (0..self.levels())
            .map(|level| self.level_blocks(level))
            .sum()
    }

    /// Entries that fit into one block.
    #[must_use]
    pub fn per_block(&self) -> u64 {
        ENTRY_AREA_BYTES as u64 / u64::from(self.entry_bytes)
    }

    /// Levels, level 0 included; 0 for an empty table.
    #[must_use]
    pub fn levels(&self) -> u8 {
        if self.entry_count == 0 {
            return 0;
        }
        let mut levels = 1;
        while self.kind.is_indexed() && self.level_blocks(levels - 1) > 1 {
            levels += 1;
        }
        debug_assert!(levels <= LEVELS_MAX);
        levels
    }

    /// Blocks of one level.
    #[must_use]
    pub fn level_blocks(&self, level: u8) -> u64 {
        let mut blocks = self.entry_count.div_ceil(self.per_block());
        for _ in 0..level {
            blocks = blocks.div_ceil(INDEX_FANOUT);
        }
        blocks
    }

    /// Where a block lies.
    #[must_use]
    pub fn block_offset(&self, level: u8, block: u64) -> u64 {
        let before: u64 = (0..level).map(|level| self.level_blocks(level)).sum();
        self.offset + (before + block) * BLOCK_BYTES_U64
    }

    /// The block that holds an entry, and the entry's position in it.
    #[must_use]
    pub fn locate(&self, entry: u64) -> (u64, usize) {
        let slot = entry % self.per_block();
        // A block holds at most 1008 entries.
        #[allow(clippy::cast_possible_truncation)]
        let slot = slot as usize;
        (entry / self.per_block(), slot)
    }

    /// The bytes of an entry, as many as version 1 knows.
    #[must_use]
    pub fn entry<'b>(&self, block: &'b [u8], slot: usize) -> &'b [u8] {
        let start = size_of::<RawBlockHeader>() + slot * self.entry_bytes as usize;
        &block[start..start + self.kind.entry_bytes() as usize]
    }

    /// Entries (keys, above level 0) that a block holds.
    #[must_use]
    pub fn entries_in(&self, level: u8, block: u64) -> u64 {
        let (total, per_block) = match level {
            0 => (self.entry_count, self.per_block()),
            _ => (self.level_blocks(level - 1), INDEX_FANOUT),
        };
        total.saturating_sub(block * per_block).min(per_block)
    }

    /// Where an entry lies.
    #[must_use]
    pub fn entry_place(&self, entry: u64) -> Place {
        let (block, slot) = self.locate(entry);
        let within = size_of::<RawBlockHeader>() + slot * self.entry_bytes as usize;
        Place {
            item: Item::Entry {
                table: self.kind,
                owner: self.owner,
                index: entry,
            },
            source: SourceId::OWN,
            offset: self.block_offset(0, block) + within as u64,
        }
    }

    /// Where a block lies, for errors.
    #[must_use]
    pub fn block_place(&self, level: u8, block: u64) -> Place {
        Place {
            item: Item::Block {
                table: self.kind,
                owner: self.owner,
                level,
                block,
            },
            source: SourceId::OWN,
            offset: self.block_offset(level, block),
        }
    }

    /// The keys that a block of a table without index levels covers: its entries' indexes.
    #[must_use]
    pub fn direct_keys(&self, block: u64) -> Range<u64> {
        let first = block * self.per_block();
        first..first + self.entries_in(0, block)
    }

    /// The header that a block must have. `keys`: what it covers.
    #[must_use]
    pub(crate) fn header(
        &self,
        level: u8,
        block: u64,
        keys: Range<u64>,
        volume_uuid: Uuid,
    ) -> RawBlockHeader {
        // At most 1008 entries.
        #[allow(clippy::cast_possible_truncation)]
        let entry_count = self.entries_in(level, block) as u16;
        RawBlockHeader {
            crc: 0.into(),
            kind: self.kind.code(),
            level,
            entry_count: entry_count.into(),
            owner: self.owner.into(),
            entry_bytes: (if level == 0 {
                self.entry_bytes
            } else {
                KEY_BYTES
            })
            .into(),
            block_index: block.into(),
            generation: self.generation.into(),
            volume_uuid,
            first_key: keys.start.into(),
            end_key: keys.end.into(),
        }
    }

    /// Checks that `bytes` are this block, whole: CRC, and zeros after the last entry. Then [`check_header`](Self::check_header).
    ///
    /// # Errors
    /// [`VolumeError::Checksum`], [`VolumeError::Malformed`].
    pub(crate) fn check_block(
        &self,
        bytes: &[u8],
        level: u8,
        block: u64,
        keys: Range<u64>,
        volume_uuid: Uuid,
    ) -> Result<(), VolumeError> {
        let place = self.block_place(level, block);
        let fields = Fields { place };
        let Ok((raw, _)) = RawBlockHeader::ref_from_prefix(bytes) else {
            return Err(fields.malformed("length", BLOCK_BYTES, bytes.len()));
        };
        fields.equal("length", bytes.len(), BLOCK_BYTES)?;
        let found = crc32c(&bytes[4..]);
        if raw.crc.get() != found {
            return Err(VolumeError::Checksum {
                place,
                expected: raw.crc.get(),
                found,
            });
        }
        self.check_header(bytes, level, block, keys, volume_uuid)?;
        let entry_bytes = if level == 0 {
            self.entry_bytes
        } else {
            KEY_BYTES
        } as usize;
        let used = usize::from(raw.entry_count.get()) * entry_bytes;
        fields.zero(
            "bytes after the last entry",
            &bytes[size_of::<RawBlockHeader>() + used..],
        )
    }

    /// Checks that a block says of itself what it should. Cheap: done on every use of a cached block.
    pub(crate) fn check_header(
        &self,
        bytes: &[u8],
        level: u8,
        block: u64,
        keys: Range<u64>,
        volume_uuid: Uuid,
    ) -> Result<(), VolumeError> {
        let fields = Fields {
            place: self.block_place(level, block),
        };
        let Ok((raw, _)) = RawBlockHeader::ref_from_prefix(bytes) else {
            return Err(fields.malformed("length", BLOCK_BYTES, bytes.len()));
        };
        let expected = self.header(level, block, keys, volume_uuid);
        let found = RawBlockHeader {
            crc: 0.into(),
            ..*raw
        };
        if found == expected {
            return Ok(());
        }
        fields.equal("block kind", found.kind, expected.kind)?;
        fields.equal("level", found.level, expected.level)?;
        fields.equal(
            "entry_count",
            found.entry_count.get(),
            expected.entry_count.get(),
        )?;
        fields.equal("owner", found.owner.get(), expected.owner.get())?;
        fields.equal(
            "entry_bytes",
            found.entry_bytes.get(),
            expected.entry_bytes.get(),
        )?;
        fields.equal(
            "generation",
            found.generation.get(),
            expected.generation.get(),
        )?;
        fields.equal(
            "block_index",
            found.block_index.get(),
            expected.block_index.get(),
        )?;
        fields.equal("first_key", found.first_key.get(), expected.first_key.get())?;
        fields.equal("end_key", found.end_key.get(), expected.end_key.get())?;
        Err(fields.malformed(
            "volume_uuid",
            uuid_text(&expected.volume_uuid),
            format_args!(
                "{}: a block of another volume",
                uuid_text(&found.volume_uuid)
            ),
        ))
    }
}

/// The keys of an index block.
fn index_keys(block: &[u8], count: usize) -> &[U64] {
    let area = &block[size_of::<RawBlockHeader>()..];
    // A block holds 504 keys, and `count` is at most that: the geometry says so.
    <[U64]>::ref_from_prefix_with_elems(area, count).map_or(&[], |(keys, _)| keys)
}

/// Checks the keys of an index block: ascending strictly, from `first_key`, below `end_key`.
pub(crate) fn check_index(
    table: &Table,
    bytes: &[u8],
    level: u8,
    block: u64,
    keys: Range<u64>,
) -> Result<(), VolumeError> {
    let fields = Fields {
        place: table.block_place(level, block),
    };
    let children = children(table, bytes, level, block);
    let mut previous = None;
    for child in children {
        let key = child.get();
        match previous {
            None => fields.equal("key of the first child", key, keys.start)?,
            Some(previous) if key <= previous => {
                return Err(fields.malformed("keys", format_args!("one above {previous}"), key));
            }
            Some(_) => {}
        }
        previous = Some(key);
    }
    match previous {
        Some(last) if last >= keys.end => {
            Err(fields.malformed("keys", format_args!("below {}", keys.end), last))
        }
        _ => Ok(()),
    }
}

/// The child of an index block that covers `key`, and the keys it must have.
#[must_use]
pub(crate) fn index_child(
    table: &Table,
    bytes: &[u8],
    level: u8,
    block: u64,
    keys: &Range<u64>,
    key: u64,
) -> (u64, Range<u64>) {
    let children = children(table, bytes, level, block);
    let after = children.partition_point(|child| child.get() <= key);
    index_child_at(table, bytes, level, block, keys, after.saturating_sub(1))
}

/// A child of an index block, and the keys it must have.
#[must_use]
pub(crate) fn index_child_at(
    table: &Table,
    bytes: &[u8],
    level: u8,
    block: u64,
    keys: &Range<u64>,
    child: usize,
) -> (u64, Range<u64>) {
    let children = children(table, bytes, level, block);
    let first = children.get(child).map_or(keys.start, |c| c.get());
    let end = children.get(child + 1).map_or(keys.end, |c| c.get());
    (block * INDEX_FANOUT + child as u64, first..end)
}

/// The keys of an index block: at most 504.
fn children<'b>(table: &Table, bytes: &'b [u8], level: u8, block: u64) -> &'b [U64] {
    let count = usize::try_from(table.entries_in(level, block)).unwrap_or(0);
    index_keys(bytes, count)
}
