//! Blobs: bytes of any length, known by their SHA-256.

use std::fmt;

use transforms::TableKind;

use super::BlobIndex;
use super::directory::Bounds;
use super::field::Fields;
use super::raw::RawBlob;
use super::superblock::PAYLOAD_OFFSET_MIN;
use crate::error::{Place, VolumeError};
use crate::limits;

/// What the bytes of a blob are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKind {
    /// Path or URL of a source.
    Locator,
    /// Name of a view.
    Name,
    /// What a view was made of, as JSON.
    Manifest,
    /// Ids by rank: of a chain with `rank`.
    RankTable,
    /// What frames have in common: of a chain with `zstd-dict`.
    Dictionary,
    /// The scale of each row: of a chain with `int8`.
    Scales,
    /// A kind that this version does not interpret.
    Other(u32),
}

impl BlobKind {
    fn parse(code: u32) -> BlobKind {
        match code {
            1 => BlobKind::Locator,
            2 => BlobKind::Name,
            3 => BlobKind::Manifest,
            4 => BlobKind::RankTable,
            5 => BlobKind::Dictionary,
            6 => BlobKind::Scales,
            other => BlobKind::Other(other),
        }
    }

    fn code(self) -> u32 {
        match self {
            BlobKind::Locator => 1,
            BlobKind::Name => 2,
            BlobKind::Manifest => 3,
            BlobKind::RankTable => 4,
            BlobKind::Dictionary => 5,
            BlobKind::Scales => 6,
            BlobKind::Other(code) => code,
        }
    }

    /// Of a chain's table.
    #[must_use]
    pub fn of_table(kind: TableKind) -> BlobKind {
        match kind {
            TableKind::Ranks => BlobKind::RankTable,
            TableKind::Scales => BlobKind::Scales,
            TableKind::Dictionary => BlobKind::Dictionary,
        }
    }

    /// Which table of a chain the bytes are.
    #[must_use]
    pub fn table(self) -> Option<TableKind> {
        match self {
            BlobKind::RankTable => Some(TableKind::Ranks),
            BlobKind::Scales => Some(TableKind::Scales),
            BlobKind::Dictionary => Some(TableKind::Dictionary),
            _ => None,
        }
    }

    /// Whether the bytes are text that is read at open.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, BlobKind::Locator | BlobKind::Name)
    }
}

impl fmt::Display for BlobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BlobKind::Locator => "a source's locator",
            BlobKind::Name => "a view's name",
            BlobKind::Manifest => "a view's manifest",
            BlobKind::RankTable => "a rank table",
            BlobKind::Dictionary => "a dictionary",
            BlobKind::Scales => "scales",
            BlobKind::Other(code) => return write!(f, "of kind {code}"),
        })
    }
}

/// Bytes of any length in the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// What the bytes are.
    pub kind: BlobKind,
    /// CRC-32C of the bytes.
    pub crc: u32,
    /// First byte in the volume.
    pub offset: u64,
    /// Exact.
    pub bytes: u64,
    /// What it is known by.
    pub sha256: [u8; 32],
}

impl Blob {
    pub(crate) fn parse(raw: &RawBlob, place: Place, bounds: &Bounds) -> Result<Blob, VolumeError> {
        let fields = Fields { place };
        let kind = BlobKind::parse(raw.kind.get());
        let bytes = match kind.is_text() {
            true => fields.within("bytes", raw.bytes.get(), 1, limits::TEXT_BYTES_MAX)?,
            false => fields.within("bytes", raw.bytes.get(), 0, limits::BLOB_BYTES_MAX)?,
        };
        let end = fields.sum("offset", raw.offset.get(), bytes)?;
        if raw.offset.get() < PAYLOAD_OFFSET_MIN || end > bounds.tail_offset() {
            return Err(fields.malformed(
                "blob",
                format_args!(
                    "inside bytes {PAYLOAD_OFFSET_MIN} to {}",
                    bounds.tail_offset()
                ),
                format_args!("at {} to {end}", raw.offset),
            ));
        }
        fields.zero("reserved bytes 24 to 31", &raw.reserved_24)?;
        Ok(Blob {
            kind,
            crc: raw.crc.get(),
            offset: raw.offset.get(),
            bytes,
            sha256: raw.sha256,
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawBlob {
        RawBlob {
            kind: self.kind.code().into(),
            crc: self.crc.into(),
            offset: self.offset.into(),
            bytes: self.bytes.into(),
            reserved_24: [0; 8],
            sha256: self.sha256,
        }
    }
}

/// A blob that is referred to must be of the kind that the reference calls for.
pub(crate) fn check_blob_kind(
    fields: Fields,
    field: &'static str,
    index: BlobIndex,
    kind: BlobKind,
    blobs: &[Blob],
) -> Result<(), VolumeError> {
    let found = usize::try_from(index.0).ok().and_then(|at| blobs.get(at));
    match found {
        Some(blob) if blob.kind == kind => Ok(()),
        Some(blob) => Err(fields.malformed(
            field,
            format_args!("a blob of kind {}", kind.code()),
            format_args!("blob {}, of kind {}", index.0, blob.kind.code()),
        )),
        None => Err(fields.malformed(field, "a blob index", index.0)),
    }
}
