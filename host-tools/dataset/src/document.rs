//! What manifests, and programs that print JSON, say in the same words.

use serde_json::{Value, json};
use transforms::{Chain, Loss, ValueRange};
use volume::write::Written;

/// The version of a manifest.
const VERSION: u32 = 1;

/// A manifest, with these lists in it.
#[must_use]
pub fn manifest<const N: usize>(
    writer: &str,
    is_lossy: bool,
    lists: [(&str, Vec<Value>); N],
) -> Vec<u8> {
    let mut document = json!({
        "xio_manifest": VERSION,
        "writer": writer,
        "lossy": is_lossy,
    });
    for (name, list) in lists {
        document[name] = list.into();
    }
    text(&document)
}

/// A document for people too, with an end of line.
pub(crate) fn text(document: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(document).unwrap_or_default();
    text.push(b'\n');
    text
}

/// What a source of a disk is known by.
#[must_use]
pub fn source(path: &str, bytes: u64, sha256: &[u8], format: &str) -> Value {
    json!({
        "path": path,
        "bytes": bytes,
        "sha256": hex(sha256),
        "format": format,
    })
}

/// A stream, and what is known of its values besides.
#[must_use]
pub fn stream(chain: &Chain, written: &Written, (name, values): (&str, Value)) -> Value {
    let steps = chain.steps().iter().map(|step| {
        json!({
            "transform": step.id.0,
            "version": step.version,
            "parameter": step.parameter,
        })
    });
    json!({
        "elements": written.elements,
        "type": chain.source().name(),
        "stored_chain": chain.to_string(),
        "steps": steps.collect::<Vec<_>>(),
        "stored_bytes": written.stored_bytes,
        "sha256": hex(&written.elements_sha256),
        name: values,
    })
}

/// `{"min": "0", "max": "50256"}`, as text: 64 bits are more than JSON's readers take.
#[must_use]
pub fn range(range: Option<ValueRange>) -> Value {
    let shown = range.map(|range| {
        json!({
            "min": range.min.to_string(),
            "max": range.max.to_string(),
        })
    });
    shown.into()
}

/// What rounding did to values. Errors are absolute, of numbers that are finite before and behind it.
#[must_use]
pub fn loss(loss: &Loss) -> Value {
    json!({
        "elements": loss.elements,
        "largest_error": loss.largest_error(),
        "rms_error": loss.rms_error(),
        "worst": loss.worst.map(|worst| json!({
            "source": worst.source,
            "presented": worst.presented,
        })),
        "saturated": loss.saturated,
        "vanished": loss.vanished,
        "nans": loss.nans,
        "infinities": loss.infinities,
    })
}

/// Hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
