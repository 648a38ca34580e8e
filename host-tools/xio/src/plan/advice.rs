//! What a person should know before packing.

use dataset::FileId;
use dataset::choose::Group;
use dataset::choose::candidates::field_bits;
use formats::{Contents, Conversion, Dtype, Format};
use printout::size::grouped;
use transforms::{ElementType, ValueRange};

use super::Planned;
use crate::chosen;
use crate::disk::notes::{self, count};

/// Of one kind of warning, so many files are named.
const NAMED: usize = 5;
/// Megatron takes 16 bits for ids below this.
const MEGATRON_NARROW_IDS: i128 = 65_500;

/// All of them; of each kind that names files some files, or with `all` each.
pub fn warnings(planned: &Planned<'_>, all: bool) -> Vec<String> {
    let mut warnings: Vec<String> = planned.refused.clone();
    warnings.extend(planned.useless.iter().cloned());
    let name = |id: FileId| planned.name(id);
    let malformed = planned.catalogue.malformed.iter();
    warnings.extend(some(
        malformed.map(|(id, error)| {
            let path = planned.names.of(*id).first().copied().unwrap_or_default();
            format!(
                "{}: {error}; mend it, or pass it through as bytes with {}",
                name(*id),
                dataset::keep_options([path], &[])
            )
        }),
        all,
    ));
    warnings.extend(some(planned.scan.notes.iter().cloned(), all));
    warnings.extend(some(guesses(planned), all));
    warnings.extend(planned.choices.groups.iter().filter_map(narrowing));
    warnings.extend(floats(planned));
    warnings.extend(readers(planned));
    warnings.extend(notes::passed_through(
        planned.scan,
        planned.catalogue,
        &planned.names,
    ));
    warnings.extend(notes::unconverted(planned.views, &planned.names));
    warnings.extend(planned.destroyed.iter().cloned());
    for view in planned.views {
        let notes = view.notes.iter();
        let notes = notes.map(|note| format!("--present-as {}: {note}", view.name));
        warnings.extend(some(notes, all));
    }
    warnings
}

/// The first ones, and how many there are.
fn some(warnings: impl Iterator<Item = String>, all: bool) -> Vec<String> {
    let mut list: Vec<String> = warnings.collect();
    let more = list.len().saturating_sub(NAMED);
    if !all && more > 0 {
        list.truncate(NAMED);
        list.push(format!(
            "and {} more like these (--all)",
            grouped(more as u64)
        ));
    }
    list
}

/// Files without a header that look like elements.
fn guesses<'a>(planned: &'a Planned<'_>) -> impl Iterator<Item = String> + 'a {
    planned.scan.files().filter_map(|(id, _)| {
        let guess = dataset::guess::guess(planned.scan, planned.catalogue, id)?;
        let name = planned.name(id);
        Some(format!(
            "{name}: no known format, but it may be {guess}; if it is, say so: --as '{name}={}'",
            guess.element
        ))
    })
}

/// Integers that need all the bits that they have.
fn narrowing(group: &Group) -> Option<String> {
    let range = chosen::range(group)?;
    let narrowest = group
        .trials
        .iter()
        .map(|trial| trial.chain.packed_bits())
        .min()?;
    if narrowest < group.element.bits() || group.is_said {
        return None;
    }
    let bits = group.element.bits();
    let why = match field_bits(&range) {
        Some(needed) if needed <= 32 || bits == 64 => {
            format!("the largest needs {needed} of {bits} bits")
        }
        Some(_) => "the largest needs more than the 32 bits of 'bitpack'".to_owned(),
        None => signed(bits),
    };
    let instead = match group.chosen() {
        Some(chosen) if chosen.chain.is_framed() => format!("{} saves what can be saved", chosen.chain),
        _ => "compression does not pay either; leave the files where they are with 'xio map', or find out whether a few values (a mark such as -1, or the largest value that there is) make the range so wide".to_owned(),
    };
    Some(format!(
        "{}: narrowing {} values of {} saves nothing: {why}; {instead}",
        group.kind,
        group.element,
        chosen::range_text(Some(range))
    ))
}

/// Why negative values are in no fewer bits: 'bitpack' has no sign.
fn signed(bits: u32) -> String {
    let narrower = match bits {
        8 => return "with negative values no type is narrower than i8".to_owned(),
        16 => "i8 is narrower, and does not hold them",
        32 => "i8 and i16 are narrower, and neither holds them",
        _ => "i8, i16 and i32 are narrower, and none holds them",
    };
    format!("with negative values only {narrower}")
}

/// Floats that a narrower view would halve.
fn floats(planned: &Planned<'_>) -> Option<String> {
    let is_presented = |dtype| {
        let changes = planned.views.iter().flat_map(|view| view.changes.keys());
        changes.into_iter().any(|(from, _)| *from == dtype)
    };
    let wide = [
        (ElementType::F32, Dtype::F32),
        (ElementType::F64, Dtype::F64),
    ];
    let groups = planned.choices.groups.iter();
    let bytes: u64 = groups
        .filter(|group| {
            wide.iter()
                .any(|(element, dtype)| *element == group.element && !is_presented(*dtype))
        })
        .map(|group| group.bytes)
        .sum();
    (bytes > 0).then(|| {
        format!(
            "{} bytes of f32 and f64: floats are never narrowed in the store, every bit is kept; --present-as bf16 or f16 presents less than they take, rounded",
            grouped(bytes)
        )
    })
}

/// Readers that do not ask the file for its type.
fn readers(planned: &Planned<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    let of = |format: Format| {
        let files = planned.scan.files();
        files.filter(move |(id, _)| {
            let it = planned.catalogue.get(*id);
            it.is_some_and(|it| it.description.format == format)
        })
    };
    let raw = of(Format::Raw).count();
    if raw > 0 {
        warnings.push(format!(
            "{} without a header: the reader hard-codes the type (nanoGPT's train.py has np.uint16); a view of another type needs that line changed",
            count(raw)
        ));
    }
    let wide = of(Format::LlmC)
        .filter(|(id, _)| has_type(planned, *id, Dtype::U32))
        .count();
    let all = of(Format::LlmC).count();
    if all > 0 {
        warnings.push(format!(
            "{} of llm.c, {wide} of them u32: its own loader (llmc/dataloader.h) reads u16 only",
            count(all)
        ));
    }
    warnings.extend(megatron(
        planned,
        of(Format::MegatronBin).map(|(id, _)| id).collect(),
    ));
    warnings
}

fn has_type(planned: &Planned<'_>, id: FileId, dtype: Dtype) -> bool {
    let recognised = planned.catalogue.get(id);
    let payloads = recognised.map(|it| it.description.payloads.as_slice());
    payloads
        .unwrap_or_default()
        .iter()
        .any(|payload| payload.contents == Contents::Elements(dtype))
}

fn is_wide(planned: &Planned<'_>, id: FileId) -> bool {
    [Dtype::I32, Dtype::I64]
        .into_iter()
        .any(|dtype| has_type(planned, id, dtype))
}

/// Megatron's rule: uint16 below 65,500 ids, int32 from there on.
fn megatron(planned: &Planned<'_>, bins: Vec<FileId>) -> Vec<String> {
    let presents = |to| {
        let changes = planned.views.iter().flat_map(|view| view.changes.keys());
        changes.into_iter().any(|(_, presented)| *presented == to)
    };
    let (mut fit, mut wide, mut marked) = (Vec::new(), Vec::new(), Vec::new());
    for id in bins {
        // The file's own: that of its kind is wider.
        match ranges(planned, id).next() {
            // Those that are narrow are presented as they are.
            Some(range) if range.min < 0 => {
                marked.extend(is_wide(planned, id).then_some(id));
            }
            Some(range) if range.max < MEGATRON_NARROW_IDS => {
                fit.extend(has_type(planned, id, Dtype::I32).then_some(id));
            }
            Some(_) => wide.push(id),
            None => {}
        }
    }
    let said = |files: &[FileId], what: &str| {
        let (count, named) = (count(files.len()), notes::named(files, &planned.names));
        format!("{count} of a Megatron pair {what} ({named})")
    };
    let mut warnings = Vec::new();
    if !fit.is_empty() && !presents(Dtype::U16) {
        warnings.push(format!(
            "{}: Megatron takes uint16 for these; --present-as u16 presents half the bytes, index and all{}",
            said(&fit, "in int32 with ids below 65,500"),
            beyond(planned, Dtype::U16)
        ));
    }
    if !marked.is_empty() {
        warnings.push(format!(
            "{}: uint16 does not hold these, so a view is int32",
            said(&marked, "with values below 0, marks such as -1")
        ));
    }
    if !wide.is_empty() {
        warnings.push(format!(
            "{}: Megatron's index has no uint32, so a view is int32, however few bits are stored",
            said(&wide, "with ids over 65,499")
        ));
    }
    warnings
}

/// What is in the runs of a file that are integers.
fn ranges<'a>(planned: &'a Planned<'_>, id: FileId) -> impl Iterator<Item = ValueRange> + 'a {
    let surveyed = planned.surveyed.get(id.0 as usize).and_then(Option::as_ref);
    let ranges = surveyed.map_or(&[][..], |it| &it.ranges);
    ranges.iter().copied().flatten()
}

/// Files with integers that the type does not hold, and the options that get past them.
fn beyond(planned: &Planned<'_>, presented: Dtype) -> String {
    let Some(held) = presented.element().and_then(ElementType::range) else {
        return String::new();
    };
    let (mut beyond, mut within) = (Vec::new(), Vec::new());
    for (id, recognised) in (0..).map(FileId).zip(&planned.catalogue.files) {
        // GGUF leaves its integers by itself.
        let description = &recognised.description;
        let types = description
            .payloads
            .iter()
            .filter_map(|it| it.contents.dtype());
        let mut asked = types.filter(|it| it.conversion(presented) == Ok(Conversion::Checked));
        if description.format == Format::Gguf || asked.next().is_none() {
            continue;
        }
        match ranges(planned, id).any(|range| !held.encloses(&range)) {
            true => beyond.push(id),
            false => within.push(id),
        }
    }
    if beyond.is_empty() {
        return String::new();
    }
    let path = |id: &FileId| planned.names.of(*id).first().copied().unwrap_or_default();
    let spared: Vec<&[u8]> = within.iter().map(path).collect();
    format!(
        "; {presented} does not hold the integers of {} ({}): leave them as they are with {}",
        count(beyond.len()),
        notes::named(&beyond, &planned.names),
        dataset::keep_options(beyond.iter().map(path), &spared)
    )
}
