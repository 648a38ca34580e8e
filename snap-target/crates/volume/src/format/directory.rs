//! What the entries of the directory have in common: the bounds that they are checked against, and fields that several have.

use transforms::ElementType;

use super::BlobIndex;
use super::field::Fields;
use super::raw::{BLOCK_BYTES_U64, NONE};
use super::table::TableBounds;
use crate::error::VolumeError;

/// A SHA-256, where one was recorded.
pub type Digest = Option<[u8; 32]>;

/// What every entry is checked against: how many there are of each, and where the volume ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) table: TableBounds,
    pub(crate) blobs: u64,
}

impl Bounds {
    pub(super) fn tail_offset(&self) -> u64 {
        self.table.volume_bytes - BLOCK_BYTES_U64
    }

    pub(super) fn blob(
        &self,
        fields: Fields,
        field: &'static str,
        index: u32,
    ) -> Result<BlobIndex, VolumeError> {
        if u64::from(index) < self.blobs {
            return Ok(BlobIndex(index));
        }
        Err(fields.malformed(
            field,
            format_args!("a blob index below {}", self.blobs),
            index,
        ))
    }

    pub(super) fn optional_blob(
        &self,
        fields: Fields,
        field: &'static str,
        index: u32,
    ) -> Result<Option<BlobIndex>, VolumeError> {
        match index {
            NONE => Ok(None),
            index => self.blob(fields, field, index).map(Some),
        }
    }
}

pub(super) fn parse_element(fields: Fields, code: u8) -> Result<ElementType, VolumeError> {
    ElementType::from_code(code)
        .ok_or_else(|| fields.unsupported("element_type", code, "codes 1 to 12"))
}

pub(super) fn parse_digest(
    fields: Fields,
    kind: u16,
    digest: &[u8; 32],
) -> Result<Digest, VolumeError> {
    match kind {
        0 => {
            fields.zero("digest of kind none", digest)?;
            Ok(None)
        }
        1 => Ok(Some(*digest)),
        other => Err(fields.unsupported("digest_kind", other, "0 (none), 1 (SHA-256)")),
    }
}

pub(super) fn digest_kind(digest: &Digest) -> u16 {
    u16::from(digest.is_some())
}
