//! What is known of where a namespace's bytes come from.

use volume::Volume;
use volume::identity::uuid_text;

use crate::{Backing, Namespace};

/// A view of a volume, by the names that people look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// Where it begins in a mixed namespace; none where it is all there is.
    pub first_lba: Option<u64>,
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
    /// Where its bytes come from: of each view in it. Nothing is known of a raw store.
    #[must_use]
    pub fn provenance(&self) -> Vec<Provenance> {
        match &self.backing {
            Backing::Raw(_) => Vec::new(),
            Backing::View { volume, .. } => vec![of_view(volume, None)],
            Backing::Mixed(mixed) => {
                let views = mixed.parts().iter().filter_map(|part| {
                    let Backing::View { volume, .. } = &part.namespace.backing else {
                        return None;
                    };
                    Some(of_view(volume, Some(part.first_lba)))
                });
                views.collect()
            }
        }
    }
}

fn of_view(volume: &Volume, first_lba: Option<u64>) -> Provenance {
    Provenance {
        first_lba,
        view: volume.name().to_owned(),
        volume_uuid: uuid_text(&volume.superblock().volume_uuid),
        lossy: volume.view().lossy,
        manifest_sha256: manifest_sha256(volume),
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
