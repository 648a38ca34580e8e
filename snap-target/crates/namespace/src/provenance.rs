//! What is known of where a namespace's bytes come from.

use volume::Volume;
use volume::identity::uuid_text;

use crate::{Backing, Namespace};

/// A view of a volume, by the names that people look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Name of the view.
    pub view: String,
    /// UUID of its volume.
    pub volume_uuid: String,
    /// Whether what it presents is not what its source held.
    pub lossy: bool,
    /// SHA-256 of the manifest that the volume has of it, in hexadecimal: `xio inspect` shows the manifest.
    pub manifest_sha256: Option<String>,
}

impl Namespace {
    /// Where its bytes come from; nothing is known of a raw store.
    #[must_use]
    pub fn provenance(&self) -> Option<Provenance> {
        let Backing::View { volume, .. } = &self.backing else {
            return None;
        };
        Some(Provenance {
            view: volume.name().to_owned(),
            volume_uuid: uuid_text(&volume.superblock().volume_uuid),
            lossy: volume.view().lossy,
            manifest_sha256: manifest_sha256(volume),
        })
    }
}

fn manifest_sha256(volume: &Volume) -> Option<String> {
    let blob = volume.view().manifest?;
    let blob = volume.blobs().get(usize::try_from(blob.0).ok()?)?;
    Some(
        blob.sha256
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    )
}
