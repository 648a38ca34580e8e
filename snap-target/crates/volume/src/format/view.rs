//! Views: what is presented.

use super::blob::check_blob_kind;
use super::directory::Bounds;
use super::field::Fields;
use super::raw::{NONE, RawView};
use super::{Blob, BlobIndex, BlobKind, Table, TableKind};
use crate::error::{Place, VolumeError};
use crate::identity::Uuid;
use crate::limits;

/// What is presented: one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its own identity in the volume.
    pub view_uuid: Uuid,
    /// Exact.
    pub presented_bytes: u64,
    /// Its name.
    pub name: BlobIndex,
    /// What it was made of.
    pub manifest: Option<BlobIndex>,
    /// Sorted by presented byte.
    pub extents: Table,
    /// Whether it presents other values than the source's.
    pub lossy: bool,
    /// Another one whenever what the view presents is changed.
    pub revision_uuid: Uuid,
}

/// Flag of a view that presents other values than the source's.
const FLAG_LOSSY: u32 = 1;

impl View {
    pub(crate) fn parse(
        raw: &RawView,
        place: Place,
        index: u32,
        bounds: &Bounds,
        blobs: &[Blob],
    ) -> Result<View, VolumeError> {
        let fields = Fields { place };
        if raw.view_uuid == [0; 16] {
            return Err(fields.malformed("view_uuid", "a UUID", "zeros"));
        }
        let presented_bytes = fields.within(
            "presented_bytes",
            raw.presented_bytes.get(),
            0,
            limits::BYTES_MAX,
        )?;
        let name = bounds.blob(fields, "name", raw.name.get())?;
        check_blob_kind(fields, "name", name, BlobKind::Name, blobs)?;
        let manifest = bounds.optional_blob(fields, "manifest", raw.manifest.get())?;
        if let Some(manifest) = manifest {
            check_blob_kind(fields, "manifest", manifest, BlobKind::Manifest, blobs)?;
        }
        let extents = Table::parse(
            fields,
            &raw.extents,
            TableKind::Extents,
            index,
            limits::EXTENTS_MAX,
            &bounds.table,
        )?;
        // Each extent presents at least a byte.
        let extents_max = presented_bytes;
        fields.within(
            "entry_count of extents",
            extents.entry_count(),
            u64::from(presented_bytes > 0),
            extents_max,
        )?;
        let lossy = fields.within("flags", raw.flags.get(), 0, FLAG_LOSSY)? == FLAG_LOSSY;
        if lossy && manifest.is_none() {
            return Err(fields.malformed("manifest", "a blob index, for a lossy view", "none"));
        }
        if raw.revision_uuid == [0; 16] {
            return Err(fields.malformed("revision_uuid", "a UUID", "zeros"));
        }
        fields.zero("reserved bytes 92 to 255", &raw.reserved_92)?;
        Ok(View {
            view_uuid: raw.view_uuid,
            presented_bytes,
            name,
            manifest,
            extents,
            lossy,
            revision_uuid: raw.revision_uuid,
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawView {
        RawView {
            view_uuid: self.view_uuid,
            presented_bytes: self.presented_bytes.into(),
            name: self.name.0.into(),
            manifest: self.manifest.map_or(NONE, |blob| blob.0).into(),
            extents: self.extents.to_raw(),
            flags: (if self.lossy { FLAG_LOSSY } else { 0 }).into(),
            revision_uuid: self.revision_uuid,
            reserved_92: [0; 164],
        }
    }
}

/// Whether bytes can be the name of a view: of a file, on any host.
pub(crate) fn is_view_name(name: &[u8]) -> bool {
    let is_fine = |byte: &u8| *byte >= 0x20 && *byte != 0x7F && *byte != b'/';
    std::str::from_utf8(name).is_ok() && name.iter().all(is_fine) && !matches!(name, b"." | b"..")
}
