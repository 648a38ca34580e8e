//! Entries into table blocks.

use std::io::{self, Write};
use std::ops::Range;

use zerocopy::{FromZeros, IntoBytes};

use crate::checksum::crc32c;
use crate::format::raw::{BLOCK_BYTES, ENTRY_AREA_BYTES, RawBlockHeader};
use crate::format::table::FIRST_GENERATION;
use crate::format::{Table, TableKind};
use crate::identity::Uuid;
use crate::limits::INDEX_FANOUT;

/// Header of a table block.
const HEADER_BYTES: usize = size_of::<RawBlockHeader>();

/// Writes one table, an entry at a time. Holds one block, and the first key of each leaf where there are index levels.
pub(crate) struct TableWriter {
    kind: TableKind,
    owner: u32,
    volume_uuid: Uuid,
    block: Block,
    entry_count: u64,
    /// First key of each leaf, for the index levels.
    leaf_keys: Vec<u64>,
    /// The key after the last entry.
    end_key: u64,
}

impl TableWriter {
    pub(crate) fn new(kind: TableKind, owner: u32, volume_uuid: Uuid) -> TableWriter {
        TableWriter {
            kind,
            owner,
            volume_uuid,
            block: Block::new(),
            entry_count: 0,
            leaf_keys: Vec::new(),
            end_key: 0,
        }
    }

    /// Adds an entry found by its number.
    pub(crate) fn push(&mut self, entry: &[u8], out: &mut dyn Write) -> io::Result<()> {
        self.push_until(entry, self.entry_count + 1, out)
    }

    /// Adds an entry that covers the keys from the last entry's to `end_key`.
    pub(crate) fn push_until(
        &mut self,
        entry: &[u8],
        end_key: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if self.block.count == 0 {
            self.block.first_key = self.end_key;
            if self.kind.is_indexed() {
                self.leaf_keys.push(self.end_key);
            }
        }
        self.block.push(entry);
        self.entry_count += 1;
        self.end_key = end_key;
        if self.block.free() < entry.len() {
            self.write_leaf(out)?;
        }
        Ok(())
    }

    /// Writes what is left, and the index levels. The table then begins `bytes()` before the end of what was written to `out`.
    pub(crate) fn finish(mut self, out: &mut dyn Write) -> io::Result<Table> {
        if self.block.count > 0 {
            self.write_leaf(out)?;
        }
        let table = Table::at(self.kind, self.owner, self.entry_count, 0);
        let mut keys = std::mem::take(&mut self.leaf_keys);
        for level in 1..table.levels() {
            keys = self.write_level(level, &keys, out)?;
        }
        Ok(table)
    }

    fn write_level(
        &mut self,
        level: u8,
        children: &[u64],
        out: &mut dyn Write,
    ) -> io::Result<Vec<u64>> {
        // At most 504.
        let fanout = usize::try_from(INDEX_FANOUT).unwrap_or(ENTRY_AREA_BYTES / 8);
        let mut parents = Vec::new();
        let mut blocks = children.chunks(fanout).peekable();
        while let Some(keys) = blocks.next() {
            let first = keys.first().copied().unwrap_or_default();
            let end = blocks
                .peek()
                .and_then(|next| next.first().copied())
                .unwrap_or(self.end_key);
            self.block.first_key = first;
            for key in keys {
                self.block.push(&key.to_le_bytes());
            }
            self.write_block(level, parents.len() as u64, 8, first..end, out)?;
            parents.push(first);
        }
        Ok(parents)
    }

    fn write_leaf(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let table = Table::at(self.kind, self.owner, self.entry_count, 0);
        let index = (self.entry_count - 1) / table.per_block();
        let keys = self.block.first_key..self.end_key;
        self.write_block(0, index, self.kind.entry_bytes(), keys, out)
    }

    fn write_block(
        &mut self,
        level: u8,
        index: u64,
        entry_bytes: u32,
        keys: Range<u64>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let header = RawBlockHeader {
            crc: 0.into(),
            kind: self.kind.code(),
            level,
            entry_count: self.block.count.into(),
            owner: self.owner.into(),
            entry_bytes: entry_bytes.into(),
            block_index: index.into(),
            generation: FIRST_GENERATION.into(),
            volume_uuid: self.volume_uuid,
            first_key: keys.start.into(),
            end_key: keys.end.into(),
        };
        out.write_all(self.block.seal(header))?;
        self.block.clear();
        Ok(())
    }
}

/// A block being filled.
struct Block {
    bytes: Box<[u8; BLOCK_BYTES]>,
    /// Bytes used, header included.
    used: usize,
    /// Entries in it.
    count: u16,
    first_key: u64,
}

impl Block {
    fn new() -> Block {
        Block {
            bytes: Box::new([0; BLOCK_BYTES]),
            used: HEADER_BYTES,
            count: 0,
            first_key: 0,
        }
    }

    fn free(&self) -> usize {
        BLOCK_BYTES - self.used
    }

    fn push(&mut self, entry: &[u8]) {
        self.bytes[self.used..self.used + entry.len()].copy_from_slice(entry);
        self.used += entry.len();
        self.count += 1;
    }

    fn seal(&mut self, mut header: RawBlockHeader) -> &[u8] {
        self.bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        header.crc = crc32c(&self.bytes[size_of_val(&header.crc)..]).into();
        self.bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        &self.bytes[..]
    }

    fn clear(&mut self) {
        self.bytes.zero();
        self.used = HEADER_BYTES;
        self.count = 0;
    }
}
