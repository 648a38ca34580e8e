//! Sources: where stored bytes live.

use super::BlobIndex;
use super::directory::{Bounds, Digest, digest_kind, parse_digest};
use super::field::Fields;
use super::raw::{NONE, RawSource};
use crate::error::{Place, VolumeError};
use crate::identity::Uuid;
use crate::limits;

/// What a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// The volume's own store.
    Own,
    /// Another file, device or object.
    External,
}

/// Where stored bytes live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Own or external.
    pub kind: SourceKind,
    /// Path or URL; none for the volume's own store.
    pub locator: Option<BlobIndex>,
    /// Exact size.
    pub bytes: u64,
    /// Modification time when it was mapped, nanoseconds since 1970 UTC.
    pub modified_ns: Option<i64>,
    /// Identity of the store it was written to.
    pub store_uuid: Option<Uuid>,
    /// Of its whole content.
    pub digest: Digest,
}

impl Source {
    pub(crate) fn parse(
        raw: &RawSource,
        place: Place,
        index: u64,
        bounds: &Bounds,
    ) -> Result<Source, VolumeError> {
        let fields = Fields { place };
        let kind = match (raw.kind.get(), index) {
            (0, 0) => SourceKind::Own,
            (0, _) => return Err(fields.malformed("kind", "0 (own) for source 0 alone", 0)),
            (1, 0) => return Err(fields.malformed("kind", "0 (own) for source 0", 1)),
            (1, _) => SourceKind::External,
            (2, _) => return Err(fields.unsupported("kind", "2 (striped)", SOURCE_KINDS)),
            (3, _) => return Err(fields.unsupported("kind", "3 (replicated)", SOURCE_KINDS)),
            (other, _) => return Err(fields.unsupported("kind", other, SOURCE_KINDS)),
        };
        let bytes = fields.within("bytes", raw.bytes.get(), 0, limits::BYTES_MAX)?;
        let locator = bounds.optional_blob(fields, "locator", raw.locator.get())?;
        match (kind, locator) {
            (SourceKind::Own, Some(BlobIndex(index))) => {
                return Err(fields.malformed("locator", "none, for the volume itself", index));
            }
            (SourceKind::External, None) => {
                return Err(fields.malformed("locator", "a blob index", "none"));
            }
            (SourceKind::Own, None) => {
                fields.equal("bytes", bytes, bounds.table.volume_bytes)?;
                fields.equal("modified_ns", raw.modified_ns.get(), NOT_RECORDED)?;
                fields.equal("digest_kind", raw.digest_kind.get(), 0)?;
            }
            (SourceKind::External, Some(_)) => {}
        }
        fields.equal("first_member", raw.first_member.get(), 0)?;
        fields.equal("member_count", raw.member_count.get(), 0)?;
        fields.equal("reserved bytes 30 to 31", raw.reserved_30.get(), 0)?;
        fields.equal("stripe_bytes", raw.stripe_bytes.get(), 0)?;
        fields.zero("reserved bytes 40 to 47", &raw.reserved_40)?;
        fields.zero("reserved bytes 96 to 127", &raw.reserved_96)?;
        Ok(Source {
            kind,
            locator,
            bytes,
            modified_ns: Some(raw.modified_ns.get()).filter(|ns| *ns != NOT_RECORDED),
            store_uuid: Some(raw.store_uuid).filter(|uuid| *uuid != [0; 16]),
            digest: parse_digest(fields, raw.digest_kind.get(), &raw.digest)?,
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawSource {
        RawSource {
            kind: match self.kind {
                SourceKind::Own => 0,
                SourceKind::External => 1,
            }
            .into(),
            digest_kind: digest_kind(&self.digest).into(),
            locator: self.locator.map_or(NONE, |blob| blob.0).into(),
            bytes: self.bytes.into(),
            modified_ns: self.modified_ns.unwrap_or(NOT_RECORDED).into(),
            first_member: 0.into(),
            member_count: 0.into(),
            reserved_30: 0.into(),
            stripe_bytes: 0.into(),
            reserved_40: [0; 8],
            store_uuid: self.store_uuid.unwrap_or_default(),
            digest: self.digest.unwrap_or_default(),
            reserved_96: [0; 32],
        }
    }
}

/// A modification time that was not recorded: 1970 is a time like others.
const NOT_RECORDED: i64 = i64::MIN;
const SOURCE_KINDS: &str = "0 (own), 1 (external)";
