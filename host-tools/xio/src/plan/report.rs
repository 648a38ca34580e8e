//! The plan as text.

use dataset::{FileId, Outline, PARTITIONS_MAX};
use printout::size::{grouped, rounded};
use printout::text_table::{Align, TextTable};

use super::places::Place;
use super::{Part, Planned, advice};
use crate::chosen;
use crate::cli;
use crate::disk::notes::count;
use crate::disk::partitions_table;
use crate::figures::{bits_per_value, ratio};

/// Up to so many files are shown one by one.
const FILES_SHOWN: usize = 20;
/// Of more, so many of the largest.
const LARGEST_SHOWN: usize = 10;
/// So many characters of a name, and no more, are in a table; --json has all.
const NAME_WIDTH_MAX: usize = 60;

/// All of it.
pub fn text(planned: &Planned<'_>, arguments: &cli::Plan) -> String {
    let files = planned.scan.files.len();
    let mut text = String::new();
    if arguments.all || files <= FILES_SHOWN {
        let ids: Vec<FileId> = planned.scan.files().map(|(id, _)| id).collect();
        text.push_str(&files_table(planned, &ids));
    } else {
        text.push_str(&groups_table(planned));
        let mut ids: Vec<(FileId, u64)> = planned
            .scan
            .files()
            .map(|(id, file)| (id, file.bytes))
            .collect();
        ids.sort_by_key(|(id, bytes)| (std::cmp::Reverse(*bytes), *id));
        let ids: Vec<FileId> = ids.into_iter().take(LARGEST_SHOWN).map(|it| it.0).collect();
        text.push_str(&format!(
            "\nthe largest of {} files (--all shows each):\n",
            grouped(files as u64)
        ));
        text.push_str(&files_table(planned, &ids));
    }
    text.push_str(&total(planned));
    if let Some(outline) = &planned.outline {
        text.push_str(&disk(outline, arguments.disk.partitioned));
    }
    text.push_str(&places_table(planned));
    for warning in advice::warnings(planned, arguments.all) {
        text.push_str(&format!("! {warning}\n"));
    }
    if arguments.explain {
        for group in &planned.choices.groups {
            text.push_str(&format!(
                "\n{}",
                chosen::explained(group, &planned.wish, true)
            ));
        }
    }
    text
}

const PART_COLUMNS: [(&str, Align); 7] = [
    ("type", Align::Left),
    ("count", Align::Right),
    ("min..max", Align::Right),
    ("stored as", Align::Left),
    ("bytes", Align::Right),
    ("stored", Align::Right),
    ("bits/value", Align::Right),
];

fn part_cells(part: &Part<'_>) -> [String; 7] {
    let group = part.group;
    let elements = part.bytes / group.element.bytes() as u64;
    let stored = part.stored_bytes;
    [
        chosen::type_name(group).to_owned(),
        grouped(elements),
        chosen::range_text(part.range),
        chosen::chain_text(group),
        grouped(part.bytes),
        chosen::about(stored, group.is_exact()),
        bits_per_value(stored, elements),
    ]
}

/// The end of a name that is long, which tells files of one folder apart: a row is read on one line.
fn shortened(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME_WIDTH_MAX {
        return name.to_owned();
    }
    let end: String = name.chars().skip(length + 1 - NAME_WIDTH_MAX).collect();
    format!("…{end}")
}

fn files_table(planned: &Planned<'_>, ids: &[FileId]) -> String {
    let columns = [
        &[("file", Align::Left), ("format", Align::Left)],
        &PART_COLUMNS[..],
    ]
    .concat();
    let mut table = TextTable::new(&columns);
    for &id in ids {
        let format = planned.catalogue.get(id).map(|it| it.description.format);
        let format = format.map_or("", |it| it.name());
        let parts = planned.parts(id);
        if parts.is_empty() {
            let mut cells = vec![shortened(&planned.name(id)), format.to_owned()];
            cells.extend(["bytes", "0", "", "", "0", "0", "-"].map(str::to_owned));
            table.row(cells);
        }
        for (index, part) in parts.iter().enumerate() {
            // The name stands at the first of a file's parts.
            let (name, format) = match index {
                0 => (shortened(&planned.name(id)), format),
                _ => (String::new(), ""),
            };
            let mut cells = vec![name, format.to_owned()];
            cells.extend(part_cells(part));
            table.row(cells);
        }
    }
    table.render()
}

fn groups_table(planned: &Planned<'_>) -> String {
    let columns = [
        &[("kind", Align::Left), ("files", Align::Right)],
        &PART_COLUMNS[..],
    ]
    .concat();
    let mut table = TextTable::new(&columns);
    for group in &planned.choices.groups {
        let mut files: Vec<FileId> = group.runs.iter().map(|(id, _)| *id).collect();
        files.dedup();
        let mut cells = vec![group.kind.clone(), grouped(files.len() as u64)];
        cells.extend(part_cells(&Part::whole(group)));
        table.row(cells);
    }
    table.render()
}

fn total(planned: &Planned<'_>) -> String {
    let source = planned.scan.source_bytes();
    let (stored, is_exact) = planned.stored_bytes();
    let mark = if is_exact {
        "exact"
    } else {
        "~ is scaled from samples"
    };
    let volume = planned.volume_bytes.map_or_else(String::new, |bytes| {
        format!(
            ", in a volume of about {} bytes (ratio {}): it also holds checksums, the filesystem and the manifest",
            grouped(bytes),
            ratio(source, bytes)
        )
    });
    format!(
        "\n{} of {} bytes, stored in {} bytes (ratio {}; {mark}){volume}\n",
        count(planned.scan.files.len()),
        grouped(source),
        chosen::about(stored, is_exact),
        ratio(source, stored),
    )
}

/// What a host would see.
fn disk(outline: &Outline, partitioned: bool) -> String {
    let bytes = grouped(outline.bytes);
    let manifest = match outline.with_manifest {
        true => "; on top comes /.xio/manifest.json",
        false => "",
    };
    let metadata = grouped(outline.metadata_bytes);
    if outline.partitions.is_empty() || partitioned {
        let place = if partitioned {
            "in the only partition of a table"
        } else {
            "on the whole disk"
        };
        return format!(
            "a disk of {bytes} bytes: a filesystem {place}, {metadata} bytes of it metadata{manifest}\n"
        );
    }
    let padding: u64 = outline.partitions.iter().map(|it| it.padding_bytes).sum();
    format!(
        "a disk of {bytes} bytes: {} of at most {} partitions, one for each file, with {} bytes of padding in them\n\n{}",
        outline.partitions.len(),
        PARTITIONS_MAX,
        grouped(padding),
        partitions_table(&outline.partitions)
    )
}

fn places_table(planned: &Planned<'_>) -> String {
    let source = planned.scan.source_bytes();
    let stored = planned.on_store();
    let mut table = TextTable::new(&[
        ("one read of all of it, decoded", Align::Left),
        ("presented", Align::Left),
        ("store", Align::Right),
        ("wire", Align::Right),
        ("PCIe", Align::Right),
        ("host memory", Align::Right),
        ("against plain files", Align::Left),
    ]);
    let plain = Place::Plain.moved(source, stored, source);
    let mut add = |place: Place, name: &str, presented| {
        let moved = place.moved(source, stored, presented);
        let bytes = [moved.store, moved.wire, moved.pcie, moved.memory].map(rounded);
        let against = match place {
            Place::Plain => String::new(),
            _ => moved.against(&plain),
        };
        let mut cells = vec![place.name().to_owned(), name.to_owned()];
        cells.extend(bytes);
        cells.push(against);
        table.row(cells);
    };
    add(Place::Plain, "as they are", source);
    for view in planned.views {
        let presented = planned.presented_bytes(view);
        for place in Place::ALL.into_iter().skip(1) {
            add(place, &view.name, presented);
        }
    }
    format!("\n{}", table.render())
}
