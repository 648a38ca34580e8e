//! What a volume's manifests say: where the bytes of a view come from, and what was made of them.

use anyhow::anyhow;
use serde_json::Value;

use super::{ShownView, indented};
use crate::failure::Failure;
use crate::local::LocalVolume;
use printout::size::{counted, grouped};
use printout::text_table::{Align, TextTable};

/// What could be had of the manifest of a view.
pub enum Manifest {
    /// The view has none.
    None,
    /// Read and checked.
    Read(Value),
    /// It is there and cannot be had: why.
    Damaged(Failure),
}

impl Manifest {
    /// Of the volume's view.
    pub fn read(local: &LocalVolume) -> Manifest {
        let Some(blob) = local.volume.view().manifest else {
            return Manifest::None;
        };
        let text = match local.reader().read_blob(blob) {
            Ok(text) => text,
            Err(error) => return Manifest::Damaged(error.into()),
        };
        match serde_json::from_slice(&text) {
            Ok(document) => Manifest::Read(document),
            Err(error) => Manifest::Damaged(Failure::data(anyhow!("it is no JSON: {error}"))),
        }
    }

    /// What it says.
    pub fn document(&self) -> Option<&Value> {
        match self {
            Manifest::Read(document) => Some(document),
            Manifest::None | Manifest::Damaged(_) => None,
        }
    }

    /// Why it cannot be had.
    pub fn damage(&self) -> Option<&Failure> {
        match self {
            Manifest::Damaged(failure) => Some(failure),
            Manifest::None | Manifest::Read(_) => None,
        }
    }
}

/// For a person.
pub fn to_text(view: &ShownView) -> Option<String> {
    let name = view.volume.name();
    if let Some(damage) = view.manifest.damage() {
        return Some(format!("\nmanifest of {name}\n  damaged: {damage}\n"));
    }
    let manifest = view.manifest.document()?;
    let volumes = match count(&manifest["volumes"]) {
        0 => String::new(),
        1 => "1 volume, ".to_owned(),
        volumes => format!("{} volumes, ", grouped(volumes)),
    };
    let documents = documents(manifest, String::new());
    let sources = documents.iter().map(|(_, document)| sources(document));
    let (files, bytes) = sources.fold((0u64, Some(0u64)), |sum, (files, bytes)| {
        let bytes = sum
            .1
            .zip(bytes)
            .map(|(sum, bytes)| sum.saturating_add(bytes));
        (sum.0.saturating_add(files), bytes)
    });
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
        "\nmanifest of {name}\n  {volumes}{}{bytes}, {kept}\n",
        counted(files, "source"),
    );
    let (unzipped, zip_bytes) = unzipped(&documents);
    if unzipped > 0 {
        text.push_str(&format!(
            "  {} of them are raw, unzipped from {} bytes\n",
            grouped(unzipped),
            grouped(zip_bytes)
        ));
    }
    let rows = changes(&documents);
    if !rows.is_empty() {
        let mut table = TextTable::new(&[
            ("precision", Align::Left),
            ("files changed", Align::Right),
            ("from", Align::Left),
            ("to", Align::Left),
            ("source bytes", Align::Right),
            ("largest error", Align::Right),
            ("RMS error", Align::Right),
            ("became infinite", Align::Right),
            ("became zero", Align::Right),
            ("NaN", Align::Right),
        ]);
        for row in rows {
            table.row(row);
        }
        text.push_str(&indented(&table.render()));
    }
    Some(text)
}

/// What each precision of each document changes.
fn changes(documents: &[(String, &Value)]) -> Vec<[String; 10]> {
    let views = documents.iter().flat_map(|(place, document)| {
        let views = list(&document["views"]).iter();
        views.map(move |view| (place, view))
    });
    let rows = views.flat_map(|(place, view)| {
        let changes = list(&view["changes"]).iter();
        changes.map(move |change| {
            let loss = &change["loss"];
            let number = |name: &str| loss[name].as_u64().map_or_else(dash, grouped);
            let error = |name: &str| loss[name].as_f64().map_or_else(dash, short);
            [
                format!("{place}{}", word(&view["name"])),
                grouped(count(&view["changed_files"])),
                word(&change["from"]),
                word(&change["to"]),
                change["source_bytes"].as_u64().map_or_else(dash, grouped),
                error("largest_error"),
                error("rms_error"),
                number("saturated"),
                number("vanished"),
                number("nans"),
            ]
        })
    });
    rows.collect()
}

/// The document and those of the volumes in it, each with the place that it is about: readers of JSON have bounded how deep that goes.
fn documents(manifest: &Value, place: String) -> Vec<(String, &Value)> {
    let volumes = list(&manifest["volumes"]).iter();
    let views = volumes.flat_map(|volume| list(&volume["views"]));
    let below: Vec<_> = views
        .filter(|view| view["manifest"].is_object())
        .flat_map(|view| {
            let of_view = match view["path"].as_str() {
                Some("") => place.clone(),
                _ => format!("{place}{}/", word(&view["path"])),
            };
            documents(&view["manifest"], of_view)
        })
        .collect();
    let mut all = vec![(place, manifest)];
    all.extend(below);
    all
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

/// How many of the sources were unzipped, and the bytes of what they were unzipped from.
fn unzipped(documents: &[(String, &Value)]) -> (u64, u64) {
    let sources = documents
        .iter()
        .flat_map(|(_, document)| list(&document["sources"]));
    let origins = sources.filter(|source| source["unzipped_from"].is_object());
    origins.fold((0, 0), |(count, bytes), source| {
        let of_one = source["unzipped_from"]["bytes"].as_u64();
        (count + 1, bytes.saturating_add(of_one.unwrap_or_default()))
    })
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
