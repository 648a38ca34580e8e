//! What the sans-I/O readers ask their driver for.

use crate::VolumeError;
use crate::cache::{Cache, Key};
use crate::format::raw::BLOCK_BYTES;
use crate::format::{SourceId, Table};
use crate::frame::StoredFrame;
use crate::pieces::Pieces;
use crate::read::keep_block;
use crate::volume::Volume;

/// Names a fetch toward the operation that asked for it. Never used twice by one operation, so that a late answer to an earlier use of a
/// recycled operation is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchId(pub u64);

/// Bytes to be read from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// To be handed back with the bytes.
    pub id: FetchId,
    /// Which store.
    pub source: SourceId,
    /// First byte there: a multiple of 4096.
    pub offset: u64,
    /// Bytes: from 1 to [`FETCH_BYTES_MAX`](crate::limits::FETCH_BYTES_MAX). A multiple of 4096, except where an external source ends.
    pub len: u32,
    /// Where they are wanted.
    pub placement: Placement,
}

/// Where fetched bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In memory of the driver's, until they are handed over.
    Staging,
    /// The bytes are the presented bytes `[out_offset, out_offset + len)` of the request: the driver reads them into the destination, or
    /// presents a lease of the store's memory in its place, and hands them over where they are, to be checked.
    Direct {
        /// From the start of the request; a multiple of 512.
        out_offset: u32,
    },
}

/// What an operation asks for, when its driver has a place of its own for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Bytes: of a table, or of a stream without frames.
    Fetch(Fetch),
    /// A frame.
    Frame(FrameWant),
    /// Bytes of a stream without frames, named by a survey: not to be handed over.
    Stored(Fetch),
    /// A block of a table that reads will look for, named by a survey which does not wait for it.
    Table(TableBlock),
}

/// A block of a table, of its lowest level, in the volume's own store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableBlock {
    table: Table,
    block: u64,
}

impl TableBlock {
    /// Its bytes.
    #[allow(clippy::cast_possible_truncation)]
    pub const BYTES: u32 = BLOCK_BYTES as u32;

    pub(crate) fn new(table: &Table, block: u64) -> Self {
        Self {
            table: *table,
            block,
        }
    }

    /// First byte in the store.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.table.block_offset(0, self.block)
    }

    pub(crate) fn key(&self, volume: &Volume) -> Key {
        Key::Block {
            volume: volume.id(),
            offset: self.offset(),
        }
    }

    /// Checks the block and keeps it.
    ///
    /// # Errors
    /// Bytes that are not this block of this volume: nothing is kept.
    pub fn keep(
        &self,
        bytes: &[&[u8]],
        volume: &Volume,
        cache: &mut Cache,
    ) -> Result<(), VolumeError> {
        let pieces = Pieces {
            pieces: bytes,
            offset: self.offset(),
        };
        if pieces.len() != BLOCK_BYTES {
            return Err(VolumeError::Usage("a table's block of another length"));
        }
        let keys = self.table.direct_keys(self.block);
        keep_block(&self.table, 0, self.block, keys, pieces, volume, cache)
    }
}

/// A frame that an operation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameWant {
    /// To be handed back with the packed bytes.
    pub id: FrameWantId,
    /// Which frame, and where its stored bytes are.
    pub frame: StoredFrame,
}

/// Names a wanted frame toward the operation that asked for it. As [`FetchId`], never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameWantId {
    pub(crate) fetch: FetchId,
    pub(crate) unit: u32,
}
