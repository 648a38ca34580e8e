//! The files of a disk that damage is in.

use std::ops::Range;

use erofs::Kind;
use printout::size::grouped;
use serde_json::{Value, json};
use volume::verify::Report;

use crate::cli;
use crate::contents::{self, Items};
use crate::failure::Failure;
use crate::local::LocalVolume;
use crate::medium::{PATIENCE, Source};

/// Files that are printed; JSON has all.
const FILES_SHOWN_MAX: usize = 10;

/// What is known of them.
pub enum Affected {
    /// The volume has no files with names.
    NoDisk,
    /// The names cannot be read, and why.
    Unknown(String),
    /// Their paths; of all damage, or of that which was listed.
    Files { paths: Vec<String>, of_all: bool },
}

impl Affected {
    /// Finds the names.
    pub fn of(arguments: &cli::Verify, local: &LocalVolume, report: &Report) -> Affected {
        let of_all = report.damage.len() as u64 == report.damage_count;
        let found = || -> Result<Option<Vec<String>>, Failure> {
            let source = Source::open(&arguments.volume, &arguments.opening, PATIENCE)?;
            let Some(items) = contents::of(&source, arguments.volume.display())? else {
                return Ok(None);
            };
            let damaged = report.damaged_bytes(&local.files)?;
            Ok(Some(paths(&items, &damaged)))
        };
        match found() {
            Ok(Some(paths)) => Affected::Files { paths, of_all },
            Ok(None) => Affected::NoDisk,
            Err(failure) => Affected::Unknown(failure.to_string()),
        }
    }

    /// For a person, to stand behind the places.
    pub fn text(&self) -> String {
        let (paths, of_all) = match self {
            Affected::NoDisk => return String::new(),
            Affected::Unknown(why) => {
                return format!("\nwhich files that are cannot be said: {why}");
            }
            Affected::Files { paths, of_all } => (paths, of_all),
        };
        let of = match of_all {
            true => "",
            false => " of the places that were listed",
        };
        let count = match paths.len() {
            0 => return format!("\nno file is damaged by any{of}"),
            1 => "1 file is damaged".to_owned(),
            count => format!("{} files are damaged", grouped(count as u64)),
        };
        let shown = paths.iter().take(FILES_SHOWN_MAX);
        let shown: Vec<String> = shown
            .map(|path| format!("\n  {}", path.escape_debug()))
            .collect();
        let more = match paths.len().saturating_sub(FILES_SHOWN_MAX) {
            0 => String::new(),
            more => format!("\n  and {} more", grouped(more as u64)),
        };
        let by = match of_all {
            true => String::new(),
            false => format!(" by those{of}"),
        };
        format!("\n{count}{by}:{}{more}", shown.concat())
    }

    /// All of them; null where nothing is known.
    pub fn to_json(&self) -> Value {
        match self {
            Affected::Files { paths, .. } => json!(paths),
            Affected::NoDisk | Affected::Unknown(_) => Value::Null,
        }
    }
}

/// Files of which any byte is among `damaged`, in the order of their names.
fn paths(items: &Items, damaged: &[Range<u64>]) -> Vec<String> {
    let mut damaged: Vec<Range<u64>> = damaged.to_vec();
    damaged.sort_unstable_by_key(|bytes| (bytes.start, bytes.end));
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(damaged.len());
    for bytes in damaged {
        match merged.last_mut() {
            Some(last) if bytes.start <= last.end => last.end = last.end.max(bytes.end),
            _ => merged.push(bytes),
        }
    }
    let is_hit = |&(at, bytes): &(u64, u64)| {
        let first = merged.partition_point(|damage| damage.end <= at);
        let next = merged.get(first).filter(|_| bytes > 0);
        next.is_some_and(|damage| damage.start < at + bytes)
    };
    let files = items.iter().filter(|(_, item)| item.kind == Kind::File);
    let hit = files.filter(|(_, item)| item.runs.iter().any(is_hit));
    hit.map(|(path, _)| String::from_utf8_lossy(path).into_owned())
        .collect()
}
