//! What a volume's manifests say: where the bytes of a view come from, and what was made of them.

use std::path::Path;

use anyhow::anyhow;
use serde_json::Value;

use super::{ShownView, indented};
use crate::failure::Failure;
use crate::local::LocalVolume;
use printout::size::grouped;
use printout::text_table::{Align, TextTable};

/// The manifest of the volume's view, read and checked; `None` where it has none.
pub fn read(path: &Path, local: &LocalVolume) -> Result<Option<Value>, Failure> {
    let Some(blob) = local.volume.view().manifest else {
        return Ok(None);
    };
    let about = |error| Failure::from(error).about(path.display());
    let text = local.reader().read_blob(blob).map_err(about)?;
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        let name = local.volume.name();
        Failure::data(anyhow!(
            "{}: the manifest of {name} is no JSON: {error}",
            path.display()
        ))
    })
}

/// For a person.
pub fn to_text(view: &ShownView) -> Option<String> {
    let manifest = view.manifest.as_ref()?;
    let (files, bytes) = sources(manifest);
    let files = grouped(files);
    let bytes = bytes.map_or(String::new(), |bytes| {
        format!(" of {} bytes", grouped(bytes))
    });
    let lossy = manifest["lossy"].as_bool().unwrap_or_default();
    let kept = if lossy {
        "some of them rounded"
    } else {
        "all of their values kept"
    };
    let mut text = format!(
        "\nmanifest of {}\n  {files} sources{bytes}, {kept}\n",
        view.volume.name()
    );
    let mut table = TextTable::new(&[
        ("precision", Align::Left),
        ("files changed", Align::Right),
        ("from", Align::Left),
        ("to", Align::Left),
        ("source bytes", Align::Right),
        ("largest error", Align::Right),
        ("RMS error", Align::Right),
        ("became infinite", Align::Right),
        ("NaN", Align::Right),
    ]);
    let mut rows = 0;
    for view in list(&manifest["views"]) {
        for change in list(&view["changes"]) {
            rows += 1;
            let loss = &change["loss"];
            table.row([
                word(&view["name"]),
                grouped(count(&view["changed_files"])),
                word(&change["from"]),
                word(&change["to"]),
                change["source_bytes"].as_u64().map_or_else(dash, grouped),
                loss["largest_error"].as_f64().map_or_else(dash, short),
                loss["rms_error"].as_f64().map_or_else(dash, short),
                loss["saturated"].as_u64().map_or_else(dash, grouped),
                loss["nans"].as_u64().map_or_else(dash, grouped),
            ]);
        }
    }
    if rows > 0 {
        text.push_str(&indented(&table.render()));
    }
    Some(text)
}

/// How many sources there are, and their bytes where the manifest lists them.
fn sources(manifest: &Value) -> (u64, Option<u64>) {
    let sources = &manifest["sources"];
    let bytes = sources.as_array().map(|sources| {
        let bytes = sources.iter().filter_map(|source| source["bytes"].as_u64());
        bytes.fold(0u64, u64::saturating_add)
    });
    (count(sources), bytes)
}

/// Of a list, or of what stands for a long one.
fn count(value: &Value) -> u64 {
    match value.as_array() {
        Some(list) => list.len() as u64,
        None => value["count"].as_u64().unwrap_or_default(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A word of a document that may come from anybody.
fn word(value: &Value) -> String {
    let text = value.as_str().unwrap_or("?");
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

fn dash() -> String {
    "-".to_owned()
}

fn short(value: f64) -> String {
    format!("{value:.3e}")
}
