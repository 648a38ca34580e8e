//! Conversions that a view asks for and that the values do not allow: `xio pack` meets them when it has read everything.

use std::collections::BTreeSet;

use dataset::{FileId, Runs, Scan, Surveyed, View};
use formats::Part;
use transforms::{ElementType, Packing, ViewChain};

/// One line for each file and conversion.
pub fn conversions(
    scan: &Scan,
    views: &[View],
    runs: &Runs,
    surveyed: &[Option<Surveyed>],
) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for view in views {
        for (index, presentation) in &view.changed {
            let Some(entry) = scan.entries.get(*index) else {
                continue;
            };
            let Some(id) = entry.file() else { continue };
            for part in presentation.parts() {
                let Part::Converted {
                    offset,
                    elements,
                    stored,
                    presented,
                    ..
                } = part
                else {
                    continue;
                };
                let bytes = elements * stored.bytes() as u64;
                let end = offset + bytes;
                let why = unknown(*stored, *presented)
                    .or_else(|| outside((runs, surveyed), id, *offset..end, *presented));
                lines.extend(
                    why.map(|why| format!("--present-as {}: {}: {why}", view.name, entry.shown())),
                );
            }
        }
    }
    lines
}

/// Why there is no such conversion, if there is none.
fn unknown(stored: ElementType, presented: Packing) -> Option<String> {
    let chain = ViewChain::parse(&presented.to_string(), stored);
    let error = chain.err()?;
    Some(format!(
        "{stored} cannot be presented as {presented}: {error}"
    ))
}

/// Runs that are converted whole and have values that the type does not hold. (A run of which a part is converted may have them elsewhere.)
fn outside(
    (runs, surveyed): (&Runs, &[Option<Surveyed>]),
    id: FileId,
    converted: std::ops::Range<u64>,
    presented: Packing,
) -> Option<String> {
    let held = presented.range()?;
    let ranges = surveyed.get(id.0 as usize)?.as_ref()?.ranges.iter();
    let mut whole = runs
        .of(id)
        .iter()
        .zip(ranges)
        .filter(|(run, _)| converted.start <= run.offset && run.end() <= converted.end);
    let range = whole.find_map(|(_, range)| range.filter(|range| !held.encloses(range)))?;
    Some(format!(
        "values of {}..{} do not fit {presented}; choose a type that holds them",
        range.min, range.max
    ))
}
