//! What is known of a disk: where its bytes come from, how they are stored, and what was made of them.

use serde_json::{Value, json};
use volume::limits::BLOB_BYTES_MAX;
use volume::write::Written;

use crate::make::{Measured, Plan};
use crate::scan::Scan;

/// The version of the document.
const VERSION: u32 = 1;

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

/// Whether the volume can hold it; where it cannot, only the disk does.
pub(crate) fn fits_a_blob(manifest: &[u8]) -> bool {
    manifest.len() as u64 <= BLOB_BYTES_MAX
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
