//! What can go wrong with a volume, told so that a person knows what, where, and what to do.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;
use transforms::TransformError;

use crate::format::{BlobKind, SourceId, TableKind};
use crate::identity::{Uuid, uuid_text};
use crate::{Locator, Volume};

/// What a status on the wire, or an exit code, is chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The store holds bytes that cannot be right: damaged, stale, truncated or malformed.
    Corrupt,
    /// Nothing is wrong, and this program is too old (or the volume is not one).
    Unsupported,
    /// Asked for what is beyond the end.
    OutOfRange,
    /// The store did not do what was asked of it.
    Io,
    /// The caller broke a rule of the interface.
    Usage,
}

/// What lies at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// A superblock: slot 0, slot 1, or 2 for the tail.
    Superblock(u32),
    /// A block of a table.
    Block {
        /// Of which kind.
        table: TableKind,
        /// Stream or view that owns the table, 0 for the directory.
        owner: u32,
        /// 0 entries, 1 and up index.
        level: u8,
        /// Position in the level.
        block: u64,
    },
    /// An entry of a table.
    Entry {
        /// Of which kind.
        table: TableKind,
        /// Stream or view that owns the table, 0 for the directory.
        owner: u32,
        /// Its index.
        index: u64,
    },
    /// A 4 KiB granule of an unframed stream.
    Granule {
        /// The stream.
        stream: u32,
        /// Which one.
        granule: u64,
    },
    /// The stored bytes of a frame.
    Frame {
        /// The stream.
        stream: u32,
        /// Which one.
        frame: u64,
    },
    /// The bytes of a blob, and what they are.
    Blob(u32, BlobKind),
    /// The stored bytes of a stream.
    Stream(u32),
    /// All of a source.
    Source,
    /// A table of a kind that this version ignores.
    UnknownTable(u16),
    /// Bytes that belong to nothing, and must be zero.
    Padding,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Item::Superblock(2) => f.write_str("tail superblock"),
            Item::Superblock(slot) => write!(f, "superblock slot {slot}"),
            Item::Block {
                table,
                owner,
                level,
                block,
            } => {
                write!(f, "{} table{}, ", table, Owner(table, owner))?;
                match level {
                    0 => write!(f, "block {block}"),
                    _ => write!(f, "index level {level} block {block}"),
                }
            }
            Item::Entry {
                table,
                owner,
                index,
            } => write!(f, "{} table{}, entry {index}", table, Owner(table, owner)),
            Item::Granule { stream, granule } => write!(f, "stream {stream}, granule {granule}"),
            Item::Frame { stream, frame } => write!(f, "stream {stream}, frame {frame}"),
            Item::Blob(index, kind) => write!(f, "blob {index} ({kind})"),
            Item::Stream(index) => write!(f, "stream {index}"),
            Item::Source => f.write_str("content"),
            Item::UnknownTable(kind) => write!(f, "table of unknown kind {kind}"),
            Item::Padding => f.write_str("padding"),
        }
    }
}

struct Owner(TableKind, u32);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            TableKind::Extents => write!(f, " of view {}", self.1),
            TableKind::Frames | TableKind::Checksums => write!(f, " of stream {}", self.1),
            _ => Ok(()),
        }
    }
}

/// A place on a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What lies there.
    pub item: Item,
    /// Which store.
    pub source: SourceId,
    /// Its first byte there.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.item, self.offset)?;
        match self.source {
            SourceId::OWN => f.write_str(" of the volume"),
            SourceId(source) => write!(f, " of source {source}"),
        }
    }
}

/// An error of this crate. It can be cloned: everyone who waits for one frame is told the same.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// No superblock, damaged or not.
    #[error("not a volume: {why} ({store_bytes} bytes on the store)")]
    NotAVolume {
        /// Size of the store.
        store_bytes: u64,
        /// What was found where superblocks would be.
        why: String,
    },

    /// There were superblocks, and none is whole.
    #[error("every superblock is damaged: {why}; restore the volume from a copy")]
    SuperblocksDamaged {
        /// What is wrong with each.
        why: String,
    },

    /// A superblock that is not whole, beside one that is: the volume can be read.
    #[error("{place}: damaged, and another one is whole: {why}")]
    SuperblockDamaged {
        /// Which.
        place: Place,
        /// What is wrong with it.
        why: String,
    },

    /// Two superblocks of one generation that differ.
    #[error(
        "superblocks at bytes {first} and {second} are both generation {generation} and differ; \
         restore the volume from a copy"
    )]
    SuperblocksConflict {
        /// Their generation.
        generation: u64,
        /// Where one is.
        first: u64,
        /// Where the other is.
        second: u64,
    },

    /// A source that lies where the user did not allow it.
    #[error("source {} is {locator}: {why}", source_id.0)]
    SourceRefused {
        /// Which source.
        source_id: SourceId,
        /// Where it lies, as the volume says.
        locator: String,
        /// Why it is not opened, and what to do.
        why: String,
    },

    /// A file that the volume is mapped on is not what it was.
    #[error("{} is not the file that the volume was mapped on: {why}; map or format it again", path.display())]
    SourceChanged {
        /// Which file.
        path: PathBuf,
        /// How that is known.
        why: String,
    },

    /// The two slots are of two volumes.
    #[error(
        "the store holds parts of two volumes, {} and {}: write the one that is wanted again, on a store whose first 32 KiB were cleared",
        uuid_text(first),
        uuid_text(second)
    )]
    VolumesMixed {
        /// The volume of slot 0.
        first: Uuid,
        /// The volume of slot 1.
        second: Uuid,
    },

    /// The store ends before the volume does.
    #[error(
        "truncated: the volume is {volume_bytes} bytes, the store holds {store_bytes}; copy it again"
    )]
    Truncated {
        /// What the superblock says.
        volume_bytes: u64,
        /// What there is.
        store_bytes: u64,
    },

    /// A format version of another time.
    #[error("volume format version {found}; this program reads version {known}: use a newer one")]
    Version {
        /// What the superblock says.
        found: u32,
        /// What this crate implements.
        known: u32,
    },

    /// Feature bits without which the volume cannot be read.
    #[error("the volume needs {names}, which this program does not have: use a newer one")]
    Features {
        /// The unknown bits.
        bits: u64,
        /// Their names.
        names: String,
    },

    /// Served at another block size than it was made for.
    #[error(
        "the volume was made for blocks of {volume} bytes and cannot be served in blocks of {asked}"
    )]
    LbaBytes {
        /// What the superblock says.
        volume: u32,
        /// What was asked for.
        asked: u32,
    },

    /// A field that breaks a rule of the format.
    #[error("{place}: {field} is {found}, expected {expected}")]
    Malformed {
        /// Where.
        place: Place,
        /// The field, by its name in docs/format.md.
        field: &'static str,
        /// The rule.
        expected: String,
        /// The value.
        found: String,
    },

    /// A code of a later version: named, and refused.
    #[error("{place}: {field} is {found}, which this program does not know; it knows {known}")]
    Unsupported {
        /// Where.
        place: Place,
        /// The field, by its name in docs/format.md.
        field: &'static str,
        /// The value.
        found: String,
        /// What there could have been.
        known: &'static str,
    },

    /// Bytes that are not the bytes that were written.
    #[error("{place}: checksum mismatch: recorded {expected:08x}, computed {found:08x}")]
    Checksum {
        /// Where.
        place: Place,
        /// What the table says.
        expected: u32,
        /// What the bytes give.
        found: u32,
    },

    /// Bytes that have the right checksum and another SHA-256.
    #[error("{place}: SHA-256 mismatch")]
    Digest {
        /// Where.
        place: Place,
    },

    /// Bytes that must be zero and are not.
    #[error("{place}: expected zeros, found {found:#04x}")]
    NotZero {
        /// Where the first such byte is.
        place: Place,
        /// The byte.
        found: u8,
    },

    /// A chain that cannot be, or bytes that it refuses.
    #[error("{place}: {error}")]
    Transform {
        /// Where.
        place: Place,
        /// Why. Element indexes count from the start of the frame (of the stream, when it has no frames).
        error: TransformError,
    },

    /// A read of presented bytes that are not there.
    #[error("bytes {}..{} are beyond the end of the view, which presents {presented_bytes}", range.start, range.end)]
    OutOfRange {
        /// What was asked for.
        range: Range<u64>,
        /// What there is.
        presented_bytes: u64,
    },

    /// No view of this index or name.
    #[error("no view {asked}; the volume has {known}")]
    NoView {
        /// What was asked for.
        asked: String,
        /// The names there are.
        known: String,
    },

    /// A read that failed, with the presented byte that it was about.
    #[error("presented byte {presented_byte}: {error}{}", named(.mapped))]
    Read {
        /// The first presented byte that could not be had.
        presented_byte: u64,
        /// Why.
        error: Box<VolumeError>,
        /// The mapped file that it is about, as the volume names it.
        mapped: Option<String>,
    },

    /// A store that returned another number of bytes than was asked for.
    #[error("source {}, byte {offset}: {expected} bytes were asked for, {found} came", source_id.0)]
    ShortFetch {
        /// Which store.
        source_id: SourceId,
        /// Where.
        offset: u64,
        /// Bytes asked for.
        expected: u64,
        /// Bytes that came.
        found: u64,
    },

    /// A fetch that is not under way: of an earlier operation, or handed over twice.
    #[error("fetch {id:#x} is not under way")]
    UnknownFetch {
        /// The id.
        id: u64,
    },

    /// The interface was used against its rules.
    #[error("{0}")]
    Usage(&'static str),

    /// What is to be written breaks a rule of the format.
    #[error("cannot write the volume: {field}: {why}")]
    Refused {
        /// What it is about.
        field: &'static str,
        /// The rule it breaks.
        why: String,
    },

    /// The operating system refused.
    #[error("{action}: {error}")]
    Io {
        /// What was being done.
        action: String,
        /// Its answer.
        error: Arc<io::Error>,
    },
}

impl VolumeError {
    /// What sort of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            VolumeError::SuperblocksDamaged { .. }
            | VolumeError::SuperblockDamaged { .. }
            | VolumeError::SuperblocksConflict { .. }
            | VolumeError::VolumesMixed { .. }
            | VolumeError::Truncated { .. }
            | VolumeError::Malformed { .. }
            | VolumeError::Checksum { .. }
            | VolumeError::Digest { .. }
            | VolumeError::NotZero { .. } => ErrorKind::Corrupt,
            VolumeError::NotAVolume { .. }
            | VolumeError::Version { .. }
            | VolumeError::Features { .. }
            | VolumeError::LbaBytes { .. }
            | VolumeError::Unsupported { .. } => ErrorKind::Unsupported,
            VolumeError::Transform { error, .. } => match error {
                TransformError::Unknown { .. }
                | TransformError::UnknownId { .. }
                | TransformError::Version { .. } => ErrorKind::Unsupported,
                _ => ErrorKind::Corrupt,
            },
            VolumeError::OutOfRange { .. } | VolumeError::NoView { .. } => ErrorKind::OutOfRange,
            VolumeError::Read { error, .. } => error.kind(),
            VolumeError::ShortFetch { .. } | VolumeError::Io { .. } => ErrorKind::Io,
            VolumeError::SourceChanged { .. } => ErrorKind::Corrupt,
            VolumeError::UnknownFetch { .. }
            | VolumeError::Usage(_)
            | VolumeError::SourceRefused { .. }
            | VolumeError::Refused { .. } => ErrorKind::Usage,
        }
    }

    /// The first presented byte that a failed read was about: its LBA goes into the Error Information log.
    #[must_use]
    pub fn presented_byte(&self) -> Option<u64> {
        match self {
            VolumeError::Read { presented_byte, .. } => Some(*presented_byte),
            _ => None,
        }
    }

    /// The error without what it was met in: of a failed read, why it failed.
    #[must_use]
    pub fn cause(&self) -> &VolumeError {
        match self {
            VolumeError::Read { error, .. } => error.cause(),
            other => other,
        }
    }

    pub(crate) fn io(action: impl Into<String>, error: io::Error) -> VolumeError {
        VolumeError::Io {
            action: action.into(),
            error: Arc::new(error),
        }
    }

    /// Says at which presented byte a read failed.
    pub(crate) fn at_presented(self, presented_byte: u64) -> VolumeError {
        match self {
            VolumeError::Read { .. }
            | VolumeError::Usage(_)
            | VolumeError::UnknownFetch { .. }
            | VolumeError::OutOfRange { .. } => self,
            error => VolumeError::Read {
                presented_byte,
                error: Box::new(error),
                mapped: None,
            },
        }
    }

    /// Says the name of the mapped file that a failed read is about.
    pub(crate) fn with_mapped(mut self, volume: &Volume) -> VolumeError {
        if let VolumeError::Read { error, mapped, .. } = &mut self {
            *mapped = error.mapped(volume).map(|locator| locator.to_string());
        }
        self
    }

    /// The mapped file of `volume` that the error is about, where it is about one.
    #[must_use]
    pub fn mapped<'v>(&self, volume: &'v Volume) -> Option<Locator<'v>> {
        volume.locator(self.source_id()?)
    }

    /// The place that the error is about, where it is a single one.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match self.cause() {
            VolumeError::Malformed { place, .. }
            | VolumeError::Unsupported { place, .. }
            | VolumeError::Checksum { place, .. }
            | VolumeError::Digest { place }
            | VolumeError::NotZero { place, .. }
            | VolumeError::Transform { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// The store that the error is about, where it is a single one.
    fn source_id(&self) -> Option<SourceId> {
        match self.cause() {
            VolumeError::ShortFetch { source_id, .. } => Some(*source_id),
            error => error.place().map(|place| place.source),
        }
    }
}

fn named(mapped: &Option<String>) -> String {
    mapped
        .as_ref()
        .map(|locator| format!("; that source is {locator}"))
        .unwrap_or_default()
}

/// The element that an error is about.
pub(crate) fn element_of(error: &TransformError) -> Option<u64> {
    match error {
        TransformError::OutOfRange { index, .. }
        | TransformError::OutsideProven { index, .. }
        | TransformError::BadScale { index, .. }
        | TransformError::Unscalable { index, .. } => Some(*index),
        _ => None,
    }
}
