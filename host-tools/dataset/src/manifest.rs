//! What is known of a disk: where its bytes come from, how they are stored, and what was made of them.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use volume::write::Written;

use crate::make::{Measured, Plan};
use crate::scan::Scan;

/// The version of the document.
const VERSION: u32 = 1;
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
    pub(crate) measured: &'a [Measured],
}

impl Manifest<'_> {
    /// The document, with an end of line.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let plan = self.plan;
        let views = plan.views.iter().enumerate();
        let document = json!({
            "xio_manifest": VERSION,
            "writer": plan.options.writer,
            "lossy": plan.is_lossy(),
            "sources": self.sources(plan.scan),
            "streams": self.streams(),
            "views": views.map(|(index, _)| self.view(index)).collect::<Vec<_>>(),
        });
        let mut text = serde_json::to_vec_pretty(&document).unwrap_or_default();
        text.push(b'\n');
        text
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
                Some(json!({
                    "path": entry.shown(),
                    "bytes": file.bytes,
                    "sha256": hex(self.digests.get(id.0 as usize)?),
                    "format": format.name(),
                }))
            })
            .collect()
    }

    fn streams(&self) -> Vec<Value> {
        let planned = self.plan.storage.streams.iter();
        planned
            .zip(self.streams)
            .map(|(plan, written)| {
                let steps = plan.stored.chain.steps().iter();
                json!({
                    "elements": written.elements,
                    "type": plan.stored.chain.source().name(),
                    "stored_chain": plan.stored.chain.to_string(),
                    "steps": steps.map(|step| json!({
                        "transform": step.id.0,
                        "version": step.version,
                        "parameter": step.parameter,
                    })).collect::<Vec<_>>(),
                    "stored_bytes": written.stored_bytes,
                    "sha256": hex(&written.sha256),
                    "range": written.proven.map(|range| json!({
                        "min": range.min.to_string(),
                        "max": range.max.to_string(),
                    })),
                })
            })
            .collect()
    }

    fn view(&self, index: usize) -> Value {
        let view = self.plan.views.get(index);
        let changes = view.into_iter().flat_map(|view| &view.changes);
        let measured = self.measured.iter().filter(|it| it.view == index);
        json!({
            "name": view.map(|view| view.name.as_str()),
            "changes": changes.map(|((from, to), bytes)| json!({
                "from": from.to_string(),
                "to": to.to_string(),
                "source_bytes": bytes,
            })).collect::<Vec<_>>(),
            "changed_files": measured.filter_map(|it| Some(json!({
                "path": self.plan.scan.entries.get(it.entry)?.shown(),
                "bytes": it.bytes,
                "sha256": hex(&it.sha256),
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
    let digest = hex(&Sha256::digest(manifest));
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
    let mut text = serde_json::to_vec_pretty(&document).unwrap_or_default();
    text.push(b'\n');
    text
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
