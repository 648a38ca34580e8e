//! `index.json`: the shards of a dataset, their sizes and their hashes (MosaicML streaming, `format/base/writer.py`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::array::Encoding;
use super::{json_list, json_strings};
use crate::presentation::Presentation;
use crate::{ByteSource, Format, FormatError, json, model};

/// The index of a dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    text: String,
    shards: Vec<ShardEntry>,
}

/// What the index says of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardEntry {
    /// The shard's file, when it is not compressed.
    pub raw: FileEntry,
    /// The compressed file, where there is one: then only that is on disk.
    pub zip: Option<FileEntry>,
    /// How it is compressed, as `zstd:7`.
    pub compression: Option<String>,
    /// The names of its columns that hold arrays.
    pub arrays: Vec<String>,
}

/// What the index says of a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FileEntry {
    /// Its name.
    pub basename: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its hashes by algorithm, hexadecimal.
    pub hashes: BTreeMap<String, String>,
}

/// The columns of a shard, in the index's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
    /// How each is encoded.
    pub encodings: Vec<String>,
    /// Length in bytes of those that are equally long in every sample.
    pub bytes: Vec<Option<u64>>,
}

/// A shard whose arrays are presented in other types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedShard {
    /// Presented bytes.
    pub bytes: u64,
    /// Hashes of the presented bytes, one for each algorithm of [`ShardEntry::raw`].
    pub hashes: BTreeMap<String, String>,
    /// Its columns: [`super::presented_columns`].
    pub columns: Columns,
}

/// Whether this JSON is an index of MDS shards.
pub(crate) fn is_index(text: &str) -> bool {
    let members = json::members(text).unwrap_or_default();
    json::member(&members, "shards")
        .and_then(|shards| serde_json::from_str::<Vec<&RawValue>>(shards.get()).ok())
        .and_then(|shards| shards.first().copied())
        .map(json::inner)
        .and_then(|shard| json::member(&shard, "format").and_then(json::string))
        .is_some_and(|format| format == "mds")
}

/// What is wrong with text that begins as the writer of MDS begins an index, and is no JSON: one that was cut off is not to be taken for any text.
pub(crate) fn cut_off(text: &str) -> Option<FormatError> {
    let is_begun = text.trim_start().starts_with("{\"shards\":");
    let error = json::members(text).err().filter(|_| is_begun)?;
    Some(malformed(error.to_string()))
}

fn malformed(why: impl Into<String>) -> FormatError {
    FormatError::malformed(Format::MdsIndex, 0, why)
}

/// The names of the files that an index lists: a compressed shard by that name, others by the raw one.
pub(crate) fn listed(text: &str) -> Vec<String> {
    let entries = shards(text).unwrap_or_default();
    let entry = |shard: &RawValue| serde_json::from_str::<Entry>(shard.get()).ok();
    let files = entries.into_iter().filter_map(entry);
    files
        .map(|entry| entry.zip_data.unwrap_or(entry.raw_data).basename)
        .collect()
}

/// The shards' values, as they are written.
fn shards(text: &str) -> Result<Vec<&RawValue>, FormatError> {
    let members = json::members(text).map_err(|e| malformed(e.to_string()))?;
    let version = json::member(&members, "version").map(RawValue::get);
    if version != Some("2") {
        let found = version.unwrap_or("none");
        return Err(malformed(format!("version {found}; 2 is known")));
    }
    let shards = json::member(&members, "shards").ok_or_else(|| malformed("no shards"))?;
    serde_json::from_str(shards.get()).map_err(|e| malformed(e.to_string()))
}

impl Index {
    /// Reads an index.
    ///
    /// # Errors
    /// [`FormatError::Malformed`] where it is none of version 2, or names a shard of another format.
    pub fn read(source: &dyn ByteSource) -> Result<Index, FormatError> {
        let text = model::document(source)?.ok_or_else(|| malformed("no JSON"))?;
        let entries = shards(&text)?
            .into_iter()
            .map(|shard| {
                let entry: Entry = serde_json::from_str(shard.get())
                    .map_err(|e| malformed(format!("a shard: {e}")))?;
                if entry.format != "mds" {
                    return Err(malformed(format!("a shard of format {}", entry.format)));
                }
                let columns = entry.column_names.into_iter();
                let columns = columns.zip(entry.column_encodings);
                let arrays = columns.filter(|(_, encoding)| Encoding::parse(encoding).is_array());
                Ok(ShardEntry {
                    arrays: arrays.map(|(name, _)| name).collect(),
                    raw: entry.raw_data,
                    zip: entry.zip_data,
                    compression: entry.compression,
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Index {
            text,
            shards: entries,
        })
    }

    /// The shards, in their order.
    #[must_use]
    pub fn shards(&self) -> &[ShardEntry] {
        &self.shards
    }

    /// The index of the view: every shard is presented raw, so that none is called compressed; those in `changed` have new columns, sizes
    /// and hashes. Where nothing of that changes anything, the index is the source's.
    ///
    /// # Errors
    /// [`FormatError::Refused`] where `changed` does not have one entry a shard, or a hash is missing.
    pub fn present(&self, changed: &[Option<ChangedShard>]) -> Result<Presentation, FormatError> {
        if changed.len() != self.shards.len() {
            let why = format!(
                "{} shards are presented of {}",
                changed.len(),
                self.shards.len()
            );
            return Err(FormatError::refused("MDS index", why));
        }
        let mut edits = json::Edits::new(&self.text);
        let texts = shards(&self.text)?;
        for ((text, entry), changed) in texts.into_iter().zip(&self.shards).zip(changed) {
            let members = json::inner(text);
            let mut replace = |name: &str, new: String| {
                if let Some(value) = json::member(&members, name) {
                    edits.replace(value, new);
                }
            };
            if entry.compression.is_some() || entry.zip.is_some() {
                replace("compression", "null".to_owned());
                replace("zip_data", "null".to_owned());
            }
            if let Some(changed) = changed {
                replace("raw_data", raw_data(entry, changed)?);
                replace("column_encodings", json_strings(&changed.columns.encodings));
                replace("column_sizes", sizes(&changed.columns));
            }
        }
        if edits.is_empty() {
            return Ok(Presentation::exact(self.text.len() as u64));
        }
        Ok(Presentation::new(edits.apply().into_bytes()))
    }
}

#[derive(Deserialize)]
struct Entry {
    format: String,
    raw_data: FileEntry,
    zip_data: Option<FileEntry>,
    compression: Option<String>,
    #[serde(default)]
    column_names: Vec<String>,
    #[serde(default)]
    column_encodings: Vec<String>,
}

/// `raw_data` of a changed shard, as `json.dumps(sort_keys=True)` writes it.
fn raw_data(entry: &ShardEntry, changed: &ChangedShard) -> Result<String, FormatError> {
    let mut hashes = Vec::new();
    for algorithm in entry.raw.hashes.keys() {
        let hash = changed.hashes.get(algorithm).ok_or_else(|| {
            let why = format!("the index wants the {algorithm} of its presented bytes");
            FormatError::refused(&entry.raw.basename, why)
        })?;
        hashes.push(format!(
            "{}: {}",
            json::quoted(algorithm),
            json::quoted(hash)
        ));
    }
    Ok(format!(
        "{{\"basename\": {}, \"bytes\": {}, \"hashes\": {{{}}}}}",
        json::quoted(&entry.raw.basename),
        changed.bytes,
        hashes.join(", ")
    ))
}

fn sizes(columns: &Columns) -> String {
    let texts = columns.bytes.iter().map(|bytes| match bytes {
        Some(bytes) => bytes.to_string(),
        None => "null".to_owned(),
    });
    json_list(texts)
}

/// A shard's JSON with other columns; `None` where it has none.
pub(super) fn with_columns(config: &str, columns: &Columns) -> Option<String> {
    let members = json::members(config).ok()?;
    let mut edits = json::Edits::new(config);
    edits.replace(
        json::member(&members, "column_encodings")?,
        json_strings(&columns.encodings),
    );
    edits.replace(json::member(&members, "column_sizes")?, sizes(columns));
    Some(edits.apply())
}
