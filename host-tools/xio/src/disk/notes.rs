//! What a person should know of what is presented: the same lines when it is planned and when it is packed.

use std::collections::{BTreeMap, HashSet};

use dataset::measure::Losses;
use dataset::view::Unconverted;
use dataset::{Catalogue, FileId, Names, Pattern, Precisions, Scan, View};
use formats::Format;
use printout::size::{counted, grouped};
use serde_json::{Value, json};
use transforms::{ElementType, Loss, Packing};

use super::rule::Rule;
use crate::cli;

/// Of files that a line is about, so many are named.
const NAMED: usize = 3;

/// What a conversion did to files: which view, from which type to which.
type Conversion = (usize, ElementType, Packing);

/// Options that name files or tensors that are not there, a line for each: nothing was done for them.
pub fn useless(
    (scan, catalogue, names): (&Scan, &Catalogue, &Names<'_>),
    presenting: &cli::Presenting,
    rules: &[Rule],
    precisions: &Precisions,
) -> Vec<String> {
    let fits = |pattern: &Pattern| {
        let mut ids = scan.files().map(|(id, _)| id);
        ids.any(|id| names.of(id).iter().any(|path| pattern.fits(path)))
    };
    let keep = presenting.keep.iter();
    let keep = keep.map(|pattern| (pattern, format!("--keep '{pattern}'")));
    let types = presenting.types.iter().map(|typed| {
        let option = format!("--as '{}={}'", typed.pattern, typed.element);
        (&typed.pattern, option)
    });
    let stores = rules.iter().map(|rule| {
        let option = format!("--store '{}={}'", rule.pattern, rule.chain);
        (&rule.pattern, option)
    });
    let of_files = keep.chain(types).chain(stores);
    let of_files = of_files.filter(|(pattern, _)| !fits(pattern));
    let excluded = scan.useless_exclusions();
    let excluded = excluded
        .map(|pattern| format!("--exclude '{pattern}': no file or folder fits it; {PATTERN}"));
    let mut said: Vec<String> = of_files
        .map(|(_, option)| format!("{option}: no file fits it; {PATTERN}"))
        .chain(excluded)
        .collect();
    let payloads = || {
        let files = catalogue.files.iter();
        files.flat_map(|it| &it.description.payloads)
    };
    for precision in &precisions.0 {
        let rules = precision.rules.iter();
        let useless = rules.flat_map(|rules| rules.useless(payloads()));
        said.extend(useless.map(|rule| {
            format!("--present-as {precision}: '{rule}': no tensor fits it; it is held against the tensor's whole name")
        }));
    }
    said
}

/// Where a pattern is held against what.
const PATTERN: &str =
    "a pattern with a '/' is held against the path from the root, any other against the name";

/// Files of which a type is said that they do not have, a line for each option and format.
pub fn overruled(
    catalogue: &Catalogue,
    presenting: &cli::Presenting,
    names: &Names<'_>,
) -> Vec<String> {
    let mut said: BTreeMap<(usize, &str), Vec<FileId>> = BTreeMap::new();
    for (id, hint) in &catalogue.overruled {
        if let Some(recognised) = catalogue.get(*id) {
            let key = (*hint, recognised.description.format.name());
            said.entry(key).or_default().push(*id);
        }
    }
    let said = said.into_iter().filter_map(|((hint, format), files)| {
        let typed = presenting.types.get(hint)?;
        let (count, named) = (count(files.len()), named(&files, names));
        Some(format!(
            "--as '{}={}': not for {count} of {format} ({named}): the content says the types, and is believed",
            typed.pattern, typed.element
        ))
    });
    said.collect()
}

/// Files that are not what their names say, a line for each format and content. Where other types are asked for, those that would change are refused instead.
pub fn misnamed(catalogue: &Catalogue, names: &Names<'_>, precisions: &Precisions) -> Vec<String> {
    let is_refused = precisions.0.iter().any(|it| it.rules.is_some());
    let mut said: BTreeMap<(&str, &str), (Vec<FileId>, String)> = BTreeMap::new();
    let found = catalogue.misnamed.iter();
    for it in found.filter(|it| !(is_refused && it.would_change())) {
        let first = || (Vec::new(), it.error.to_string());
        let taken_for = match it.content {
            Format::Unknown => "plain bytes",
            content => content.name(),
        };
        let key = (it.format.name(), taken_for);
        let (files, _) = said.entry(key).or_insert_with(first);
        files.push(it.file);
    }
    let said = said.into_iter().map(|((_, taken_for), (files, why))| {
        let (count, named) = (count(files.len()), named(&files, names));
        format!("{count} not what the name says ({named}): taken for {taken_for}: {why}")
    });
    said.collect()
}

/// What is passed through, and why, a line for each reason.
pub fn passed_through(scan: &Scan, catalogue: &Catalogue, names: &Names<'_>) -> Vec<String> {
    let mut reasons: BTreeMap<(&str, &str), Vec<FileId>> = BTreeMap::new();
    for (id, _) in scan.files() {
        let Some(recognised) = catalogue.get(id) else {
            continue;
        };
        let description = &recognised.description;
        let Some(reason) = description.pass_through.as_deref() else {
            continue;
        };
        let quiet = [
            Format::Unknown,
            Format::MegatronIndex,
            Format::SafetensorsIndex,
            Format::MdsIndex,
        ];
        if !quiet.contains(&description.format) {
            let key = (description.format.name(), reason);
            reasons.entry(key).or_default().push(id);
        }
    }
    let said = reasons.into_iter().map(|((format, reason), files)| {
        let (count, named) = (count(files.len()), named(&files, names));
        format!("{count} of {format} ({named}): presented as they are: {reason}")
    });
    said.collect()
}

/// Files that stay as they are in views of other types, a line for each reason.
pub fn unconverted(views: &[View], names: &Names<'_>) -> Vec<String> {
    let mut said: BTreeMap<(Unconverted, &[FileId]), Vec<&str>> = BTreeMap::new();
    for view in views {
        for (why, files) in view.unconverted.iter().filter(|it| it.0.is_told()) {
            let views = said.entry((*why, files)).or_default();
            views.push(&view.name);
        }
    }
    let said = said.into_iter().map(|((why, files), views)| {
        let views = views.join(", ");
        let (count, named, what) = (count(files.len()), named(files, names), why.what());
        format!("--present-as {views}: {count} of {what} ({named}): presented as they are: {why}")
    });
    said.collect()
}

/// What a view changes, and each file that it does not, for programs.
pub fn view_json(view: &View, catalogue: &Catalogue, names: &Names<'_>) -> Value {
    let changes = view.changes.iter().map(|((from, to), bytes)| {
        json!({"from": from.to_string(), "to": to.to_string(), "source_bytes": bytes})
    });
    let as_they_are = view.as_they_are(catalogue);
    let as_they_are = as_they_are
        .iter()
        .map(|(id, why)| json!({"path": first_name(*id, names), "why": why}));
    json!({
        "name": view.name,
        "files_changed": view.changed.len(),
        "changes": changes.collect::<Vec<_>>(),
        "as_they_are": as_they_are.collect::<Vec<_>>(),
    })
}

/// Numbers that rounding made infinite or zero, a line for each view and type: `lost` is what was measured of an entry in a view.
pub fn rounded<'a>(
    scan: &Scan,
    views: &[View],
    names: &Names<'_>,
    lost: impl Iterator<Item = (usize, usize, &'a Losses)>,
) -> Vec<String> {
    let mut all: BTreeMap<Conversion, (Loss, Vec<FileId>)> = BTreeMap::new();
    let mut counted: HashSet<(Conversion, FileId)> = HashSet::new();
    for (view, entry, losses) in lost {
        let Some(id) = scan.entries.get(entry).and_then(dataset::Entry::file) else {
            continue;
        };
        for (&(from, to), loss) in losses {
            let conversion = (view, from, to);
            // The names of a file are of one content.
            if !counted.insert((conversion, id)) {
                continue;
            }
            let (sum, files) = all.entry(conversion).or_default();
            sum.append(loss);
            if loss.saturated + loss.vanished > 0 {
                files.push(id);
            }
        }
    }
    let said = all.iter().filter_map(|((view, from, to), (loss, files))| {
        let view = &views.get(*view)?.name;
        let destroyed = destroyed((*from, *to), loss)?;
        let named = named(files, names);
        Some(format!("--present-as {view}: {destroyed} ({named})"))
    });
    said.collect()
}

/// What became of numbers that are no rounded ones.
pub fn destroyed((from, to): (ElementType, Packing), loss: &Loss) -> Option<String> {
    let became = [(loss.saturated, "infinite"), (loss.vanished, "zero")];
    let became: Vec<String> = became
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} became {what}", grouped(*count)))
        .collect();
    (!became.is_empty()).then(|| {
        let elements = grouped(loss.elements);
        format!(
            "of {elements} numbers of {from}, {} in {to}",
            became.join(" and ")
        )
    })
}

/// `1 file`, `2 files`.
pub fn count(files: usize) -> String {
    counted(files as u64, "file")
}

/// The first ones, and how many more there are.
pub fn named(files: &[FileId], names: &Names<'_>) -> String {
    let mut list = files
        .iter()
        .take(NAMED)
        .map(|id| first_name(*id, names))
        .collect::<Vec<_>>()
        .join(", ");
    let more = files.len().saturating_sub(NAMED);
    if more > 0 {
        list.push_str(&format!(" and {} more", grouped(more as u64)));
    }
    list
}

/// For messages: the first of its names.
pub fn first_name(id: FileId, names: &Names<'_>) -> String {
    let name = names.of(id).first().copied().unwrap_or_default();
    erofs::shown(name)
}
