//! What is known of a disk: where its bytes come from, how they are stored, and what was made of them.

use std::collections::BTreeMap;

use formats::Dtype;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use transforms::Loss;
use volume::write::Written;

use crate::document;
use crate::make::{Changed, Plan};
use crate::scan::Scan;

/// The volume holds no more than this of a manifest uncompressed; the disk has it all, compressed.
const BLOB_BYTES_MAX: usize = 1 << 20;
/// Of a manifest that is longer, the volume keeps lists of up to so many.
const LISTED_MAX: usize = 1_000;

pub(crate) struct Manifest<'a> {
    pub(crate) plan: &'a Plan<'a>,
    /// By file.
    pub(crate) digests: &'a [[u8; 32]],
    /// What was written.
    pub(crate) streams: &'a [Written],
    /// What changed.
    pub(crate) measured: &'a [Changed],
}

impl Manifest<'_> {
    /// The document, with an end of line.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let plan = self.plan;
        let views = (0..plan.views.len()).map(|index| self.view(index));
        let lists = [
            ("sources", self.sources(plan.scan)),
            ("streams", self.streams()),
            ("views", views.collect()),
        ];
        document::manifest(&plan.options.writer, plan.is_lossy(), lists)
    }

    fn sources(&self, scan: &Scan) -> Vec<Value> {
        let entries = scan.entries.iter();
        entries
            .filter_map(|entry| {
                let crate::Kind::File(id) = entry.kind else {
                    return None;
                };
                let file = scan.file(id)?;
                let format = self.plan.catalogue.get(id)?.description.format;
                let digest = self.digests.get(id.0 as usize)?;
                let path = entry.shown();
                Some(document::source(&path, file.bytes, digest, format.name()))
            })
            .collect()
    }

    fn streams(&self) -> Vec<Value> {
        let planned = self.plan.storage.streams.iter();
        let streams = planned.zip(self.streams).map(|(plan, written)| {
            let range = ("range", document::range(written.proven));
            document::stream(&plan.stored.chain, written, range)
        });
        streams.collect()
    }

    fn view(&self, index: usize) -> Value {
        let view = self.plan.views.get(index);
        let changes = view.into_iter().flat_map(|view| &view.changes);
        let measured = self.measured.iter().filter(|it| it.view == index);
        let mut losses: BTreeMap<(Dtype, Dtype), Loss> = BTreeMap::new();
        for ((from, to), loss) in measured.clone().flat_map(|it| &it.measured.losses) {
            let types = (Dtype::from(*from), Dtype::from(*to));
            losses.entry(types).or_default().append(loss);
        }
        json!({
            "name": view.map(|view| view.name.as_str()),
            "changes": changes.map(|(types, bytes)| json!({
                "from": types.0.to_string(),
                "to": types.1.to_string(),
                "source_bytes": bytes,
                "loss": losses.get(types).map(document::loss),
            })).collect::<Vec<_>>(),
            "changed_files": measured.filter_map(|it| Some(json!({
                "path": self.plan.scan.entries.get(it.entry)?.shown(),
                "bytes": it.bytes,
                "sha256": document::hex(&it.measured.sha256),
                "losses": it.measured.losses.iter().map(|((from, to), loss)| json!({
                    "from": from.name(),
                    "to": to.name(),
                    "loss": document::loss(loss),
                })).collect::<Vec<_>>(),
            }))).collect::<Vec<_>>(),
        })
    }
}

/// What the volume holds of it, for whoever does not mount the disk: all of it, or where that is long, what is said of the whole.
pub(crate) fn for_a_blob(manifest: &[u8]) -> Vec<u8> {
    if manifest.len() <= BLOB_BYTES_MAX {
        return manifest.to_vec();
    }
    let mut document: Value = serde_json::from_slice(manifest).unwrap_or_default();
    let digest = document::hex(&Sha256::digest(manifest));
    let Some(members) = document.as_object_mut() else {
        return Vec::new();
    };
    members.insert(
        "on_disk".to_owned(),
        json!({"path": "/.xio/manifest.json", "bytes": manifest.len(), "sha256": digest}),
    );
    for list in ["sources", "streams"] {
        shorten(members.get_mut(list));
    }
    let views = members.get_mut("views").and_then(Value::as_array_mut);
    for view in views.into_iter().flatten() {
        shorten(view.get_mut("changed_files"));
    }
    document::text(&document)
}

/// A long list becomes how many there are.
fn shorten(list: Option<&mut Value>) {
    if let Some(list) = list
        && let Some(count) = list.as_array().map(Vec::len)
        && count > LISTED_MAX
    {
        *list = json!({"count": count});
    }
}
