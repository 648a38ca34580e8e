//! What the volumes of a collection say of themselves: the disk's own manifest contains it.

use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use volume::blocking::{Files, Reader};
use volume::identity::uuid_text;
use volume::{ViewIndex, Volume, VolumeError};

use super::{Bytes, CACHE_BYTES, Collected, view_index};
use crate::{DatasetError, document};

/// Of a manifest that is read for its digest, so much at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// Of a volume's manifest that has more lists and members in each other, the disk's has the digest only: readers of JSON go 128 deep.
const DEPTH_MAX: usize = 100;

/// What a volume has as the manifest of a view.
pub(super) struct OfView {
    /// Null where it is no manifest that is known here.
    document: Value,
    /// Of its text.
    sha256: [u8; 32],
}

impl OfView {
    pub(super) fn read(volume: &Volume, store: &Files) -> Result<Option<OfView>, VolumeError> {
        let Some(blob) = volume.view().manifest else {
            return Ok(None);
        };
        let text = Reader::new(volume.clone(), store, CACHE_BYTES).read_blob(blob)?;
        let document = serde_json::from_slice(&text).ok();
        let document = document.filter(|it| document::is_manifest(it) && depth(it) <= DEPTH_MAX);
        Ok(Some(OfView {
            document: document.unwrap_or_default(),
            sha256: Sha256::digest(&text).into(),
        }))
    }
}

fn depth(value: &Value) -> usize {
    let below = match value {
        Value::Array(list) => list.iter().map(depth).max(),
        Value::Object(members) => members.values().map(depth).max(),
        _ => return 0,
    };
    1 + below.unwrap_or_default()
}

impl Collected {
    /// Whether a file of a view is what the volume has as the view's manifest.
    pub(super) fn is_manifest(&self, file: &Bytes) -> Result<bool, DatasetError> {
        let failed = |error| DatasetError::volume(&self.path, error);
        let known = self
            .views
            .get(file.view)
            .and_then(|it| it.manifest.as_ref());
        let Some(OfView { document, sha256 }) = known else {
            return Ok(false);
        };
        let of_view = self.volume.with_view(view_index(file.view));
        let mut reader = Reader::new(of_view.map_err(failed)?, &self.store, CACHE_BYTES);
        let mut hash = Sha256::new();
        let mut buffer = vec![0; CHUNK_BYTES];
        let end = file.start + file.bytes;
        let mut at = file.start;
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(CHUNK_BYTES);
            let part = buffer.get_mut(..left.min(CHUNK_BYTES)).unwrap_or_default();
            reader.read(at, part).map_err(failed)?;
            hash.update(&*part);
            at += part.len() as u64;
        }
        let found: [u8; 32] = hash.finalize().into();
        Ok(found == *sha256 || document["on_disk"]["sha256"] == document::hex(&found))
    }

    pub(super) fn to_json(&self) -> Value {
        let views = (0..).zip(&self.views).map(|(index, collected)| {
            let view = self.volume.with_view(ViewIndex(index)).ok();
            let manifest = collected.manifest.as_ref();
            let members = json!({
                "name": self.volume.view_name(ViewIndex(index)),
                "is_filesystem": collected.is_directory,
                "namespace_uuid": view.as_ref().map(|view| uuid_text(&view.namespace_uuid())),
                "lossy": view.is_some_and(|view| view.view().lossy),
                "manifest_sha256": manifest.map(|it| document::hex(&it.sha256)),
                "manifest": manifest.map(|it| &it.document),
            });
            document::named(members, "path", &collected.path)
        });
        let superblock = self.volume.superblock();
        let members = json!({
            "volume_uuid": uuid_text(&superblock.volume_uuid),
            "generation": superblock.generation,
            "views": views.collect::<Vec<_>>(),
        });
        let file = self.path.file_name().unwrap_or_default();
        document::named(members, "file", file.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_lists_and_objects() {
        assert_eq!(depth(&json!(1)), 0);
        assert_eq!(depth(&json!([])), 1);
        assert_eq!(depth(&json!({ "a": [1, { "b": 2 }], "c": [] })), 3);
    }
}
