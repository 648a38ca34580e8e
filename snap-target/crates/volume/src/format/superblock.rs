//! Superblocks: which one wins, and what the winner says (docs/format.md, "Superblock").

use std::cmp::Reverse;
use std::fmt;

use zerocopy::{FromBytes, IntoBytes};

use super::field::Fields;
use super::raw::{
    BLOCK_BYTES, BLOCK_BYTES_U64, MAGIC, RawSuperblock, RawTable, VERSION, first_nonzero,
};
use super::table::TableBounds;
use super::{SourceId, Table, TableKind};
use crate::checksum::crc32c;
use crate::error::{Item, Place, VolumeError};
use crate::identity::Uuid;
use crate::limits;

/// The slot number of the tail superblock.
pub const TAIL_SLOT: u32 = 2;
/// Where slots 0 and 1 lie: in different pages of a device that rewrites 16 KiB to change less.
pub const SLOT_OFFSETS: [u64; 2] = [0, 16 << 10];
/// First byte that payload and tables may take.
pub const PAYLOAD_OFFSET_MIN: u64 = 32 << 10;
/// Logical block sizes that a volume may be made for.
pub const LBA_BYTES: [u32; 2] = [512, 4096];

/// Bytes of a superblock before its CRC.
const CRC_SCOPE_BYTES: usize = BLOCK_BYTES - 4;

/// The directory's tables, in the order of its slots.
const DIRECTORY: [(TableKind, u64); 5] = [
    (TableKind::Sources, limits::SOURCES_MAX),
    (TableKind::Streams, limits::STREAMS_MAX),
    (TableKind::Chains, limits::CHAINS_MAX),
    (TableKind::Blobs, limits::BLOBS_MAX),
    (TableKind::Views, limits::VIEWS_MAX),
];

/// An incompatible feature: a volume that has its bit set cannot be read without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Feature {
    /// Streams whose stored bytes change.
    Mutable = 0,
    /// A log of changes.
    Log = 1,
    /// Extents that present elements in another order.
    Permuted = 2,
    /// Extents that take turns between streams.
    Interleaved = 3,
    /// Sources in stripes.
    Striped = 4,
    /// Sources in copies.
    Replicated = 5,
    /// Streams that are encrypted.
    Encrypted = 6,
    /// Metadata and protection information per logical block.
    Protection = 7,
}

impl Feature {
    /// Every feature that has a name.
    pub const ALL: [Feature; 8] = [
        Feature::Mutable,
        Feature::Log,
        Feature::Permuted,
        Feature::Interleaved,
        Feature::Striped,
        Feature::Replicated,
        Feature::Encrypted,
        Feature::Protection,
    ];

    /// The features that this crate implements.
    pub const KNOWN: u64 = 0;

    /// Its bit.
    #[must_use]
    pub fn bit(self) -> u64 {
        1 << self as u8
    }

    /// The names of `bits`, for people.
    #[must_use]
    pub fn names(bits: u64) -> String {
        let name = |bit: u32| {
            Feature::ALL
                .iter()
                .find(|feature| feature.bit() == 1 << bit)
                .map_or(format!("incompat bit {bit}"), |feature| {
                    format!("{feature} (incompat bit {bit})")
                })
        };
        let names: Vec<_> = (0..64)
            .filter(|bit| bits & 1 << bit != 0)
            .map(name)
            .collect();
        names.join(", ")
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Mutable => "MUTABLE",
            Feature::Log => "LOG",
            Feature::Permuted => "PERMUTED",
            Feature::Interleaved => "INTERLEAVED",
            Feature::Striped => "STRIPED",
            Feature::Replicated => "REPLICATED",
            Feature::Encrypted => "ENCRYPTED",
            Feature::Protection => "PROTECTION",
        })
    }
}

/// What a block where a superblock may be turned out to be.
#[derive(Debug, Clone)]
pub enum Candidate {
    /// Zeros: never written.
    Empty,
    /// Something else.
    Foreign,
    /// A superblock that is not whole, or not in its place.
    Damaged(String),
    /// A whole superblock of some version.
    Whole(Box<RawSuperblock>),
}

impl Candidate {
    /// Judges the block at `offset`.
    #[must_use]
    pub fn judge(bytes: &[u8], offset: u64) -> Candidate {
        if first_nonzero(bytes).is_none() {
            return Candidate::Empty;
        }
        let Ok(raw) = RawSuperblock::read_from_bytes(bytes) else {
            return Candidate::Damaged(format!("{} bytes long", bytes.len()));
        };
        if raw.magic != MAGIC {
            return Candidate::Foreign;
        }
        let computed = crc32c(&bytes[..CRC_SCOPE_BYTES]);
        if raw.crc.get() != computed {
            return Candidate::Damaged(format!(
                "checksum mismatch: recorded {:08x}, computed {computed:08x}",
                raw.crc
            ));
        }
        if raw.own_offset.get() != offset {
            return Candidate::Damaged(format!("it was written for byte {}", raw.own_offset));
        }
        Candidate::Whole(Box::new(raw))
    }
}

/// A superblock that won, and that this crate understands.
#[derive(Debug, Clone)]
pub struct Superblock {
    /// Where it was: 0, 1, or 2 for the tail.
    pub slot: u32,
    /// RFC 9562 order.
    pub volume_uuid: Uuid,
    /// From 1.
    pub generation: u64,
    /// The whole volume, tail included.
    pub volume_bytes: u64,
    /// Logical block size of every view.
    pub lba_bytes: u32,
    /// Features that change nothing for a reader.
    pub compat: u64,
    /// Features that change nothing for a reader, and much for a writer.
    pub ro_compat: u64,
    /// The program that wrote it.
    pub writer: String,
    /// Sources, streams, chains, blobs, views.
    pub directory: [Table; 5],
    /// Directory slots that this version does not know, and ignores.
    pub ignored: Vec<RawTable>,
}

impl Superblock {
    /// The winner among the whole candidates: the highest generation; equals must agree. A tail of another volume than the slots' is what an
    /// older, larger volume left behind, and no candidate.
    ///
    /// # Errors
    /// [`VolumeError::VolumesMixed`], [`VolumeError::SuperblocksConflict`].
    pub fn choose(candidates: &[RawSuperblock]) -> Result<Option<&RawSuperblock>, VolumeError> {
        let in_slot = |c: &&RawSuperblock| SLOT_OFFSETS.contains(&c.own_offset.get());
        let mut slots = candidates.iter().filter(in_slot);
        let volume_uuid = slots.next().map(|slot| slot.volume_uuid);
        if let Some(other) = slots.find(|slot| Some(slot.volume_uuid) != volume_uuid) {
            return Err(VolumeError::VolumesMixed {
                first: volume_uuid.unwrap_or_default(),
                second: other.volume_uuid,
            });
        }
        let candidates: Vec<&RawSuperblock> = candidates
            .iter()
            .filter(|c| volume_uuid.is_none_or(|uuid| c.volume_uuid == uuid))
            .collect();
        // Of equals, the slot at the front.
        let rank = |c: &&RawSuperblock| (c.generation.get(), Reverse(c.own_offset.get()));
        let Some(winner) = candidates.iter().copied().max_by_key(rank) else {
            return Ok(None);
        };
        for other in candidates {
            if other.generation == winner.generation && content(other) != content(winner) {
                return Err(VolumeError::SuperblocksConflict {
                    generation: winner.generation.get(),
                    first: other.own_offset.get(),
                    second: winner.own_offset.get(),
                });
            }
        }
        Ok(Some(winner))
    }

    /// Parses the winner.
    ///
    /// # Errors
    /// Version and features first, then the store's size, then each field that breaks its rule.
    pub fn parse(raw: &RawSuperblock, store_bytes: u64) -> Result<Superblock, VolumeError> {
        let fields = Fields {
            place: Place {
                item: Item::Superblock(raw.slot.get()),
                source: SourceId::OWN,
                offset: raw.own_offset.get(),
            },
        };
        if raw.version.get() != VERSION {
            return Err(VolumeError::Version {
                found: raw.version.get(),
                known: VERSION,
            });
        }
        let unknown = raw.incompat.get() & !Feature::KNOWN;
        if unknown != 0 {
            return Err(VolumeError::Features {
                bits: unknown,
                names: Feature::names(unknown),
            });
        }
        let volume_bytes = raw.volume_bytes.get();
        fields.within(
            "volume_bytes",
            volume_bytes,
            limits::VOLUME_BYTES_MIN,
            limits::BYTES_MAX,
        )?;
        fields.multiple("volume_bytes", volume_bytes, BLOCK_BYTES_U64)?;
        if volume_bytes > store_bytes {
            return Err(VolumeError::Truncated {
                volume_bytes,
                store_bytes,
            });
        }
        check_slot(fields, raw, volume_bytes)?;
        if raw.volume_uuid == [0; 16] {
            return Err(fields.malformed("volume_uuid", "a UUID", "zeros"));
        }
        fields.within(
            "generation",
            raw.generation.get(),
            1,
            limits::GENERATION_MAX,
        )?;
        if !LBA_BYTES.contains(&raw.lba_bytes.get()) {
            return Err(fields.malformed("lba_bytes", "512 or 4096", raw.lba_bytes));
        }
        fields.equal("metadata_bytes", raw.metadata_bytes.get(), 0)?;
        fields.equal("protection_type", raw.protection_type, 0)?;
        fields.equal("reserved byte 87", raw.reserved_87, 0)?;
        fields.zero("reserved bytes 88 to 95", &raw.reserved_88)?;
        fields.zero("reserved bytes 768 to 4091", &raw.reserved_768)?;
        let (directory, ignored) = parse_directory(fields, raw)?;
        Ok(Superblock {
            slot: raw.slot.get(),
            volume_uuid: raw.volume_uuid,
            generation: raw.generation.get(),
            volume_bytes,
            lba_bytes: raw.lba_bytes.get(),
            compat: raw.compat.get(),
            ro_compat: raw.ro_compat.get(),
            writer: text_of(&raw.writer),
            directory,
            ignored,
        })
    }

    /// Where it was.
    #[must_use]
    pub fn own_offset(&self) -> u64 {
        match usize::try_from(self.slot).ok() {
            Some(slot) if slot < SLOT_OFFSETS.len() => SLOT_OFFSETS[slot],
            _ => self.tail_offset(),
        }
    }

    /// Where payload, tables and blobs end and the tail superblock begins.
    #[must_use]
    pub fn tail_offset(&self) -> u64 {
        self.volume_bytes - BLOCK_BYTES_U64
    }
}

/// Sets the CRC of a superblock that is otherwise complete.
pub fn seal(raw: &mut RawSuperblock) {
    raw.crc = crc32c(&raw.as_bytes()[..CRC_SCOPE_BYTES]).into();
}

/// What copies of one generation agree in.
fn content(raw: &RawSuperblock) -> RawSuperblock {
    let mut raw = raw.clone();
    raw.slot = 0.into();
    raw.own_offset = 0.into();
    raw.crc = 0.into();
    raw
}

fn check_slot(fields: Fields, raw: &RawSuperblock, volume_bytes: u64) -> Result<(), VolumeError> {
    let expected = match raw.slot.get() {
        0 => SLOT_OFFSETS[0],
        1 => SLOT_OFFSETS[1],
        TAIL_SLOT => volume_bytes - BLOCK_BYTES_U64,
        other => return Err(fields.malformed("slot", "0, 1 or 2", other)),
    };
    fields.equal("own_offset", raw.own_offset.get(), expected)
}

fn parse_directory(
    fields: Fields,
    raw: &RawSuperblock,
) -> Result<([Table; 5], Vec<RawTable>), VolumeError> {
    let bounds = TableBounds {
        volume_bytes: raw.volume_bytes.get(),
        generation: raw.generation.get(),
    };
    let mut tables = Vec::with_capacity(DIRECTORY.len());
    for ((kind, entries_max), raw) in DIRECTORY.iter().zip(&raw.directory) {
        tables.push(Table::parse(fields, raw, *kind, 0, *entries_max, &bounds)?);
    }
    let ignored = raw.directory[DIRECTORY.len()..]
        .iter()
        .filter(|table| **table != RawTable::default())
        .copied()
        .collect();
    let directory_bytes = tables.iter().map(Table::bytes).sum();
    let field = "bytes of the directory tables together";
    fields.within(field, directory_bytes, 0, limits::DIRECTORY_BYTES_MAX)?;
    match tables.try_into() {
        Ok(directory) => Ok((directory, ignored)),
        Err(_) => Err(VolumeError::Usage("the directory has five tables")),
    }
}

/// Text that was padded with zeros.
fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
