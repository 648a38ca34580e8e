//! `xio plan`: what files are, how they would be stored, and what that saves. Reads only.

mod advice;
mod json;
mod places;
mod report;
mod unfit;

use std::collections::HashSet;

use anyhow::anyhow;
use dataset::choose::{self, Choices, Wish};
use dataset::{
    Catalogue, DatasetError, FileId, Form, Names, Outline, Precisions, Run, Runs, Scan, Storage,
    View,
};

use crate::cli;
use crate::disk::notes;
use crate::disk::storing::Storing;
use crate::failure::Failure;
use crate::pack::{available_threads, default_name};
use crate::progress::Progress;
use crate::stdout::{print, print_line};
use crate::unzip::unzip;

/// Of a frame table and of a table of checksums (docs/format.md).
const FRAME_ENTRY_BYTES: u64 = 40;
const CHECKSUM_BYTES: u64 = 4;
/// Tables are whole blocks; a checksum is one of a block.
const BLOCK_BYTES: u64 = 4096;

/// Runs the command.
pub fn run(arguments: &cli::Plan) -> Result<(), Failure> {
    let precisions = arguments.disk.presenting.precisions()?;
    let storing = Storing::new(&arguments.storing)?;
    let lba_bytes = cli::lba_bytes(arguments.lba)?;
    let mut scan = Scan::new(&arguments.inputs)?;
    let _spool = match arguments.storing.unzip {
        true => Some(unzip(&mut scan, &std::env::temp_dir())?),
        false => None,
    };
    let catalogue = Catalogue::new(&scan, &arguments.disk.presenting.hints())?;
    let (views, mut refused) = views(&scan, &catalogue, &precisions)?;
    let form = Form {
        scan: &scan,
        views: &views,
        shape: arguments.disk.shape(),
        lba_bytes,
        name: &default_name(&arguments.inputs).unwrap_or_else(|_| "disk".to_owned()),
        label: &arguments.disk.filesystem.label,
    };
    let outline = match form.outline(!arguments.disk.no_manifest) {
        Ok(outline) => Some(outline),
        Err(error) => {
            refused.push(error.to_string());
            None
        }
    };
    let threads = arguments
        .threads
        .map_or_else(available_threads, usize::from);
    let mut planned = Planned::new((&scan, &catalogue), &views, refused, &storing, threads)?;
    planned.outline = outline;
    if arguments.json {
        print_line(json::to_json(&planned, arguments))?;
    } else {
        print(&report::text(&planned, arguments))?;
    }
    let refused = planned.catalogue.malformed.len() + planned.refused.len();
    match refused {
        0 => Ok(()),
        1 => Err(Failure::data(anyhow!(
            "'xio pack' would refuse this: see above"
        ))),
        _ => Err(Failure::data(anyhow!(
            "'xio pack' would refuse this, for {refused} reasons: see above"
        ))),
    }
}

/// What is presented, and what cannot be.
fn views(
    scan: &Scan,
    catalogue: &Catalogue,
    precisions: &Precisions,
) -> Result<(Vec<View>, Vec<String>), Failure> {
    let (mut views, mut refused) = (Vec::new(), Vec::new());
    for precision in &precisions.0 {
        match View::new(scan, catalogue, precision) {
            Ok(view) => views.push(view),
            Err(error @ (DatasetError::Io { .. } | DatasetError::Changed { .. })) => {
                return Err(error.into());
            }
            Err(error) => refused.push(format!("--present-as {precision}: {error}")),
        }
    }
    Ok((views, refused))
}

/// All that is known.
struct Planned<'a> {
    scan: &'a Scan,
    catalogue: &'a Catalogue,
    views: &'a [View],
    /// What `xio pack` would refuse, beside malformed files.
    refused: Vec<String>,
    /// Numbers that views would make infinite or zero.
    destroyed: Vec<String>,
    names: Names<'a>,
    wish: Wish,
    choices: Choices,
    storage: Storage,
    /// The disk that it would be, if there can be one.
    outline: Option<Outline>,
}

impl<'a> Planned<'a> {
    fn new(
        (scan, catalogue): (&'a Scan, &'a Catalogue),
        views: &'a [View],
        mut refused: Vec<String>,
        storing: &Storing<'_>,
        threads: usize,
    ) -> Result<Planned<'a>, Failure> {
        let runs = Runs::new(scan, catalogue, views);
        let progress = Progress::start("reading", Some(scan.source_bytes()));
        let on_progress = |bytes| progress.set(bytes);
        let surveyed = dataset::survey::survey(scan, &runs, &|_| true, threads, &on_progress)?;
        drop(progress);
        refused.extend(unfit::conversions(scan, views, &runs, &surveyed));
        let dataset = choose::Dataset {
            scan,
            catalogue,
            runs: &runs,
            surveyed: &surveyed,
        };
        let choices = storing.choose(dataset, true, threads)?;
        let names = Names::new(scan);
        let losses = dataset::measure::losses(scan, views, threads)?;
        let losses = losses
            .iter()
            .map(|(view, entry, losses)| (*view, *entry, losses));
        let destroyed = notes::rounded(scan, views, &names, losses);
        let stored = |id, run: &Run| storing.stored((scan, &names), &choices, id, run);
        let storage = Storage::packed(scan, runs, stored)?;
        Ok(Planned {
            scan,
            catalogue,
            views,
            refused,
            destroyed,
            names,
            wish: storing.wish,
            choices,
            storage,
            outline: None,
        })
    }

    /// The name of a file, for people.
    fn name(&self, id: FileId) -> String {
        let first = self.names.of(id).first();
        first.map_or_else(String::new, |path| {
            String::from_utf8_lossy(path).into_owned()
        })
    }

    /// What all streams are stored in, and whether that is exact.
    fn stored_bytes(&self) -> (u64, bool) {
        let streams = self.storage.streams.iter();
        let sums = streams.map(|stream| self.choices.stream_bytes(stream));
        sums.fold((0, true), |(bytes, exact), (more, so)| {
            (bytes + more, exact && so)
        })
    }

    /// About what the frame tables and checksums of all streams take.
    fn table_bytes(&self) -> u64 {
        let of_stream = |stream: &dataset::storage::StreamPlan| {
            let stored = &stream.stored;
            let entries_bytes = if stored.chain.is_framed() {
                stream.bytes.div_ceil(stored.frame_bytes.max(1)) * FRAME_ENTRY_BYTES
            } else {
                self.choices.stream_bytes(stream).0.div_ceil(BLOCK_BYTES) * CHECKSUM_BYTES
            };
            entries_bytes.next_multiple_of(BLOCK_BYTES)
        };
        self.storage.streams.iter().map(of_stream).sum()
    }

    /// Bytes that a view presents, each file once.
    fn presented_bytes(&self, view: &View) -> u64 {
        let mut seen = HashSet::new();
        let mut bytes = 0;
        for (index, entry) in self.scan.entries.iter().enumerate() {
            let is_file = matches!(entry.kind, dataset::Kind::File(_));
            let Some(id) = entry.file() else { continue };
            if (is_file || view.changed.contains_key(&index)) && seen.insert(id) {
                let source_bytes = self.scan.file(id).map_or(0, |file| file.bytes);
                bytes += view.presentation(index, source_bytes).bytes();
            }
        }
        bytes
    }
}

/// A file's runs of one group.
struct Part<'a> {
    group: &'a choose::Group,
    bytes: u64,
}

impl Planned<'_> {
    /// What a file consists of: its groups, the one with the most bytes first.
    fn parts(&self, id: FileId) -> Vec<Part<'_>> {
        let mut parts: Vec<Part<'_>> = Vec::new();
        for run in self.storage.runs.of(id) {
            let Some(group) = self.choices.group(id, run) else {
                continue;
            };
            match parts
                .iter_mut()
                .find(|part| std::ptr::eq(part.group, group))
            {
                Some(part) => part.bytes += run.bytes,
                None => parts.push(Part {
                    group,
                    bytes: run.bytes,
                }),
            }
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        parts
    }
}
