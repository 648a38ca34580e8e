//! What a person should know of what is presented: the same lines when it is planned and when it is packed.

use std::collections::{BTreeMap, HashSet};

use dataset::measure::Losses;
use dataset::{Catalogue, FileId, Names, Scan, View};
use formats::Format;
use printout::size::grouped;
use transforms::{ElementType, Loss};

/// Of files that a line is about, so many are named.
const NAMED: usize = 3;

/// What a conversion did to files: which view, from which type to which.
type Conversion = (usize, ElementType, ElementType);

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

/// Files whose elements cannot become what a view presents, a line for each type.
pub fn unconverted(views: &[View], names: &Names<'_>) -> Vec<String> {
    let views = views.iter().flat_map(|view| {
        let types = view.unconverted.iter();
        types.map(move |((from, to), files)| (&view.name, from, to, files))
    });
    let said = views.map(|(view, from, to, files)| {
        let (count, named) = (count(files.len()), named(files, names));
        format!("--present-as {view}: {count} of {from} ({named}): presented as they are: {from} does not become {to}")
    });
    said.collect()
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
pub fn destroyed((from, to): (ElementType, ElementType), loss: &Loss) -> Option<String> {
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
    match files {
        1 => "1 file".to_owned(),
        files => format!("{} files", grouped(files as u64)),
    }
}

fn named(files: &[FileId], names: &Names<'_>) -> String {
    let first = |id: &FileId| {
        let name = names.of(*id).first().copied().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    };
    let mut list = files
        .iter()
        .take(NAMED)
        .map(first)
        .collect::<Vec<_>>()
        .join(", ");
    let more = files.len().saturating_sub(NAMED);
    if more > 0 {
        list.push_str(&format!(" and {} more", grouped(more as u64)));
    }
    list
}
