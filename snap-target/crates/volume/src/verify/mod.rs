//! Verification: reads a whole volume and reports each damaged place.
//!
//! Everything that docs/format.md says is checked here, also what a reader leaves unchecked because it never meets it: that frames follow
//! each other, that tables own their blocks, that proven ranges hold, that digests are right, and that every byte which belongs to nothing
//! is zero. So a flipped bit anywhere in the volume is reported, except in streams without checksums, whose bytes are counted.

mod extents;
mod padding;
mod streams;

use std::collections::HashSet;
use std::ops::Range;

use transforms::Scratch;

use crate::blocking::{ReadAt, open, read_blob, read_exactly};
use crate::checksum::crc32c;
use crate::error::{Item, Place, VolumeError};
use crate::format::raw::{BLOCK_BYTES, BLOCK_BYTES_U64};
use crate::format::superblock::TAIL_SLOT;
use crate::format::{BlobIndex, Candidate, SourceId, Table};
use crate::read::check_block;
use crate::volume::Volume;

/// Damaged places that a report lists; more are counted.
pub const DAMAGE_LISTED_MAX: usize = 1000;

/// What verification found.
#[derive(Debug)]
pub struct Report {
    /// The volume, opened.
    pub volume: Volume,
    /// Each damaged place, as far as [`DAMAGE_LISTED_MAX`].
    pub damage: Vec<VolumeError>,
    /// How many damaged places there are.
    pub damage_count: u64,
    /// Bytes that were read and found right, or reported: tables, blobs, stored bytes, padding.
    pub checked_bytes: u64,
    /// Stored bytes of streams without checksums: damage there cannot be told from data.
    pub uncovered_bytes: u64,
}

impl Report {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }
}

/// Reads the whole volume on `store`. `progress` is told, now and then, how many bytes were read.
///
/// # Errors
/// Only when the volume cannot be opened, so that nothing can be said of the rest. Everything else is in the report, a store that cannot be
/// read at some place included.
pub fn verify(
    store: &dyn ReadAt,
    store_bytes: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, VolumeError> {
    let volume = open(store, store_bytes)?;
    let mut walk = Walk {
        store,
        volume: &volume,
        progress,
        scratch: Scratch::new(),
        regions: Vec::new(),
        damage: Vec::new(),
        damage_count: 0,
        checked_bytes: 0,
        uncovered_bytes: 0,
    };
    walk.superblocks();
    walk.directory();
    walk.blobs();
    walk.views();
    walk.streams();
    walk.padding();
    let Walk {
        damage,
        damage_count,
        checked_bytes,
        uncovered_bytes,
        ..
    } = walk;
    Ok(Report {
        volume,
        damage,
        damage_count,
        checked_bytes,
        uncovered_bytes,
    })
}

/// A verification under way.
struct Walk<'w> {
    store: &'w dyn ReadAt,
    volume: &'w Volume,
    progress: &'w mut dyn FnMut(u64),
    scratch: Scratch,
    /// Bytes of the volume that belong to something.
    regions: Vec<Region>,
    damage: Vec<VolumeError>,
    damage_count: u64,
    checked_bytes: u64,
    uncovered_bytes: u64,
}

/// Bytes of the volume that belong to something.
struct Region {
    bytes: Range<u64>,
    item: Item,
    /// Streams may share stored bytes, and blobs may; tables share nothing.
    may_overlap: bool,
}

impl Walk<'_> {
    /// Takes note of damage; gives what there is when there is none.
    fn note<T>(&mut self, outcome: Result<T, VolumeError>) -> Option<T> {
        match outcome {
            Ok(value) => Some(value),
            Err(error) => {
                self.damage_count += 1;
                if self.damage.len() < DAMAGE_LISTED_MAX {
                    self.damage.push(error);
                }
                None
            }
        }
    }

    fn claim(&mut self, bytes: Range<u64>, item: Item, may_overlap: bool) {
        if !bytes.is_empty() {
            self.regions.push(Region {
                bytes,
                item,
                may_overlap,
            });
        }
    }

    fn claim_table(&mut self, table: &Table) {
        let bytes = table.offset()..table.offset() + table.bytes();
        self.claim(bytes, table.block_place(0, 0).item, false);
    }

    /// Reads bytes of a source.
    fn read(&mut self, source: SourceId, offset: u64, bytes: &mut [u8]) -> Result<(), VolumeError> {
        read_exactly(self.store, source, offset, bytes)?;
        self.checked_bytes += bytes.len() as u64;
        (self.progress)(self.checked_bytes);
        Ok(())
    }

    /// Superblocks beside the one that was opened. The tail of a volume on a larger store is looked at here: opening does not know where it
    /// is before it has found another.
    fn superblocks(&mut self) {
        let mut seen = HashSet::new();
        for notice in self.volume.notices() {
            seen.insert(notice.place.offset);
            self.note::<()>(Err(VolumeError::SuperblockDamaged {
                place: notice.place,
                why: notice.why.clone(),
            }));
        }
        let superblock = self.volume.superblock();
        let offset = superblock.tail_offset();
        let place = Place {
            item: Item::Superblock(TAIL_SLOT),
            source: SourceId::OWN,
            offset,
        };
        let mut bytes = [0; BLOCK_BYTES];
        let read = self.read(SourceId::OWN, offset, &mut bytes);
        if self.note(read).is_some() && !seen.contains(&offset) {
            let why = match Candidate::judge(&bytes, offset) {
                Candidate::Whole(raw) if raw.generation.get() == superblock.generation => None,
                Candidate::Whole(raw) => Some(format!("it is of generation {}", raw.generation)),
                Candidate::Damaged(why) => Some(why),
                Candidate::Empty => Some("it is empty".into()),
                Candidate::Foreign => Some("it holds something that is no superblock".into()),
            };
            if let Some(why) = why {
                self.note::<()>(Err(VolumeError::SuperblockDamaged { place, why }));
            }
        }
        self.checked_bytes += 2 * BLOCK_BYTES_U64;
    }

    /// Directory tables were checked when the volume was opened; here they are claimed. Tables that this version does not know have blocks
    /// with a CRC all the same.
    fn directory(&mut self) {
        let superblock = self.volume.superblock();
        for table in &superblock.directory {
            self.claim_table(table);
            self.checked_bytes += table.bytes();
        }
        for table in superblock.ignored.clone() {
            let (offset, blocks) = (table.offset.get(), table.block_count.get());
            let end = blocks
                .checked_mul(BLOCK_BYTES_U64)
                .and_then(|bytes| offset.checked_add(bytes))
                .filter(|end| *end <= superblock.tail_offset() && offset % BLOCK_BYTES_U64 == 0);
            let Some(end) = end else { continue };
            self.claim(offset..end, Item::UnknownTable(table.kind.get()), false);
            for block in 0..blocks {
                let checked = self.unknown_block(&table, offset + block * BLOCK_BYTES_U64);
                self.note(checked);
            }
        }
    }

    fn unknown_block(
        &mut self,
        table: &crate::format::raw::RawTable,
        offset: u64,
    ) -> Result<(), VolumeError> {
        let mut bytes = [0; BLOCK_BYTES];
        self.read(SourceId::OWN, offset, &mut bytes)?;
        let [a, b, c, d, rest @ ..] = &bytes;
        let expected = u32::from_le_bytes([*a, *b, *c, *d]);
        let found = crc32c(rest);
        match expected == found {
            true => Ok(()),
            false => Err(VolumeError::Checksum {
                place: Place {
                    item: Item::UnknownTable(table.kind.get()),
                    source: SourceId::OWN,
                    offset,
                },
                expected,
                found,
            }),
        }
    }

    fn blobs(&mut self) {
        for (index, blob) in (0..).zip(self.volume.blobs()) {
            self.claim(
                blob.offset..blob.offset + blob.bytes,
                Item::Blob(index),
                true,
            );
            let read = read_blob(self.volume, self.store, BlobIndex(index));
            if let Some(bytes) = self.note(read) {
                self.checked_bytes += bytes.len() as u64;
                (self.progress)(self.checked_bytes);
            }
        }
    }

    /// Reads and checks a table block.
    fn block(
        &mut self,
        table: &Table,
        level: u8,
        block: u64,
        keys: Range<u64>,
    ) -> Result<Box<[u8; BLOCK_BYTES]>, VolumeError> {
        let mut bytes = Box::new([0; BLOCK_BYTES]);
        self.read(
            SourceId::OWN,
            table.block_offset(level, block),
            &mut bytes[..],
        )?;
        let volume_uuid = self.volume.volume_uuid();
        check_block(table, &bytes[..], level, block, keys, volume_uuid)?;
        Ok(bytes)
    }
}
