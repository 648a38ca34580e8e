//! Verification: reads a whole volume and reports each damaged place.
//!
//! Everything that docs/format.md says is checked here, also what a reader leaves unchecked because it never meets it: that frames follow
//! each other, that tables own their blocks, that proven ranges hold, that digests are right, and that every byte which belongs to nothing
//! is zero. So a flipped bit anywhere in a volume of generation 1 is reported, except in streams without checksums, whose bytes are counted.
//! Later generations leave blocks of earlier ones behind, which nothing refers to: they are counted and not looked at.

mod affected;
mod extents;
mod padding;
mod streams;

use std::ops::Range;

use sha2::{Digest as _, Sha256};
use transforms::Scratch;

use crate::blocking::{ReadAt, open, read_blob, read_exactly};
use crate::checksum::crc32c;
use crate::error::{Item, Place, VolumeError};
use crate::format::raw::{BLOCK_BYTES, BLOCK_BYTES_U64};
use crate::format::{BlobIndex, Source, SourceId, Table};
use crate::read::check_block;
use crate::volume::Volume;

/// Damaged places that a report lists; more are counted.
pub const DAMAGE_LISTED_MAX: usize = 1000;
/// A source is hashed in parts of this many bytes.
const SOURCE_PART_BYTES: usize = 1 << 20;
/// Two slots and the tail.
const SUPERBLOCKS: u64 = 3;

/// What verification found.
#[derive(Debug)]
pub struct Report {
    /// The volume, opened.
    pub volume: Volume,
    /// Each damaged place, as far as [`DAMAGE_LISTED_MAX`].
    pub damage: Vec<VolumeError>,
    /// How many damaged places there are.
    pub damage_count: u64,
    /// Bytes that were read and found right, or reported: tables, blobs, stored bytes, padding, whole sources; each counted once.
    pub checked_bytes: u64,
    /// Stored bytes of streams without checksums: damage there cannot be told from data.
    pub uncovered_bytes: u64,
    /// Bytes that nothing refers to, in a volume of a later generation: what earlier ones left there is not looked at.
    pub unreferenced_bytes: u64,
}

impl Report {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damage_count == 0
    }
}

/// Bytes that [`verify`] reads, about: those of mapped files are read for their checksums, and once more for their digests.
#[must_use]
pub fn bytes_to_read(volume: &Volume) -> u64 {
    let mapped = volume.streams().iter();
    let mapped = mapped.filter(|stream| stream.source != SourceId::OWN);
    let mapped: u64 = mapped.map(|stream| stream.stored_bytes).sum();
    let digested = volume.sources().iter().filter(|it| it.digest.is_some());
    let digested: u64 = digested.map(|source| source.bytes).sum();
    volume.superblock().volume_bytes + mapped + digested
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
        read_again_bytes: 0,
        uncovered_bytes: 0,
        unreferenced_bytes: 0,
    };
    walk.superblocks();
    walk.directory();
    walk.blobs();
    walk.views();
    walk.streams();
    walk.sources();
    walk.padding();
    let Walk {
        damage,
        damage_count,
        checked_bytes,
        uncovered_bytes,
        unreferenced_bytes,
        ..
    } = walk;
    Ok(Report {
        volume,
        damage,
        damage_count,
        checked_bytes,
        uncovered_bytes,
        unreferenced_bytes,
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
    /// Bytes of sources that are read once more, for the digest of the whole.
    read_again_bytes: u64,
    uncovered_bytes: u64,
    unreferenced_bytes: u64,
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
        let is_digested = |source: &Source| source.digest.is_some();
        match self.volume.source(source).is_some_and(is_digested) {
            true => self.read_again_bytes += bytes.len() as u64,
            false => self.checked_bytes += bytes.len() as u64,
        }
        self.tell();
        Ok(())
    }

    fn tell(&mut self) {
        (self.progress)(self.checked_bytes + self.read_again_bytes);
    }

    /// Superblocks beside the one that was opened: opening looked at all three.
    fn superblocks(&mut self) {
        for notice in self.volume.notices() {
            self.note::<()>(Err(VolumeError::SuperblockDamaged {
                place: notice.place,
                why: notice.why.clone(),
            }));
        }
        self.checked_bytes += SUPERBLOCKS * BLOCK_BYTES_U64;
        self.tell();
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

    /// The whole content of each external source whose digest was recorded.
    fn sources(&mut self) {
        for (id, source) in (0..).map(SourceId).zip(self.volume.sources()) {
            if let Some(digest) = source.digest {
                let checked = self.source(id, source.bytes, digest);
                self.note(checked);
            }
        }
    }

    fn source(
        &mut self,
        id: SourceId,
        source_bytes: u64,
        digest: [u8; 32],
    ) -> Result<(), VolumeError> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; SOURCE_PART_BYTES];
        let mut at = 0;
        while at < source_bytes {
            let len = usize::try_from(source_bytes - at).unwrap_or(SOURCE_PART_BYTES);
            let part = &mut buffer[..len.min(SOURCE_PART_BYTES)];
            read_exactly(self.store, id, at, part)?;
            self.checked_bytes += part.len() as u64;
            self.tell();
            hash.update(&*part);
            at += part.len() as u64;
        }
        match <[u8; 32]>::from(hash.finalize()) == digest {
            true => Ok(()),
            false => Err(VolumeError::Digest {
                place: Place {
                    item: Item::Source,
                    source: id,
                    offset: 0,
                },
            }),
        }
    }

    fn blobs(&mut self) {
        for (index, blob) in (0..).zip(self.volume.blobs()) {
            self.claim(
                blob.offset..blob.offset + blob.bytes,
                Item::Blob(index, blob.kind),
                true,
            );
            let read = read_blob(self.volume, self.store, BlobIndex(index));
            if let Some(bytes) = self.note(read) {
                self.checked_bytes += bytes.len() as u64;
                self.tell();
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
