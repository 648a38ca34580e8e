//! `xio plan`: what files are, how they would be stored, and what that saves. Reads only.

mod advice;
mod json;
mod places;
mod report;
mod unfit;

use anyhow::anyhow;
use dataset::choose::{self, Choices, Shares, Wish};
use dataset::survey::union;
use dataset::{
    Catalogue, DatasetError, FileId, Form, Names, Outline, Plan, Precisions, Run, Runs, Scan,
    Storage, Surveyed, View,
};
use transforms::ValueRange;
use volume::write::{Integrity, Options};

use crate::chosen;
use crate::cli;
use crate::disk::notes;
use crate::disk::storing::Storing;
use crate::failure::Failure;
use crate::pack::{WRITER, available_threads, default_name};
use crate::progress::Progress;
use crate::stdout::{print, print_line};
use crate::unzip::unzip;

/// Runs the command.
pub fn run(arguments: &cli::Plan) -> Result<(), Failure> {
    let precisions = arguments.disk.presenting.precisions()?;
    let storing = Storing::new(&arguments.storing)?;
    let lba_bytes = cli::lba_bytes(arguments.lba)?;
    let mut scan = Scan::without(&arguments.inputs, &arguments.disk.presenting.exclude)?;
    scan.note_left_out(arguments.disk.shape());
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
        // Without the views that are refused it is of nothing that can be had.
        Ok(_) if views.len() < precisions.0.len() => None,
        Ok(outline) => Some(outline),
        // Too much for a filesystem may take hours to read.
        Err(error @ DatasetError::Erofs(_)) => return Err(error.into()),
        Err(error) => {
            refused.push(error.to_string());
            None
        }
    };
    let threads = arguments
        .threads
        .map_or_else(available_threads, usize::from);
    let mut planned = Planned::new((&scan, &catalogue), &views, refused, &storing, threads)?;
    if outline.is_some() {
        let volume_bytes = planned.volume_bytes(&form, !arguments.disk.no_manifest);
        planned.volume_bytes = volume_bytes
            .inspect_err(|error| planned.refused.push(error.to_string()))
            .ok();
    }
    planned.outline = outline;
    let useless = useless(arguments, &planned, &precisions);
    planned.useless.extend(useless);
    planned
        .useless
        .extend(storing.untyped(&scan, &catalogue, &planned.names));
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

/// Options that do nothing.
fn useless(arguments: &cli::Plan, planned: &Planned<'_>, precisions: &Precisions) -> Vec<String> {
    let of = (planned.scan, planned.catalogue, &planned.names);
    let presenting = &arguments.disk.presenting;
    let mut useless = notes::useless(of, presenting, &arguments.storing.rules, precisions);
    useless.extend(notes::overruled(
        planned.catalogue,
        presenting,
        &planned.names,
    ));
    useless.extend(notes::misnamed(
        planned.catalogue,
        &planned.names,
        precisions,
    ));
    useless
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
    /// Options that do nothing.
    useless: Vec<String>,
    /// Numbers that views would make infinite or zero.
    destroyed: Vec<String>,
    names: Names<'a>,
    wish: Wish,
    choices: Choices,
    /// What each file is stored in.
    shares: Shares,
    storage: Storage,
    /// What was found in the files.
    surveyed: Vec<Option<Surveyed>>,
    /// The disk that it would be, if there can be one.
    outline: Option<Outline>,
    /// About how long the volume would be, then.
    volume_bytes: Option<u64>,
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
        let shares = choices.shares(scan, threads)?;
        let names = Names::new(scan);
        let losses = dataset::measure::losses(scan, views, threads)?;
        let losses = losses
            .iter()
            .map(|(view, entry, losses)| (*view, *entry, losses));
        let destroyed = notes::rounded(scan, views, &names, losses);
        let stored = |id, run: &Run| storing.stored((scan, &names), &choices, id, run);
        let mut storage = Storage::packed(scan, runs, stored)?;
        let useless = storage.make_tables(scan, &surveyed, threads)?;
        Ok(Planned {
            scan,
            catalogue,
            views,
            refused,
            useless,
            destroyed,
            names,
            wish: storing.wish,
            choices,
            shares,
            storage,
            surveyed,
            outline: None,
            volume_bytes: None,
        })
    }

    /// The name of a file, for people.
    fn name(&self, id: FileId) -> String {
        let first = self.names.of(id).first();
        first.map_or_else(String::new, |path| erofs::shown(path))
    }

    /// What all streams are stored in, and whether that is exact.
    fn stored_bytes(&self) -> (u64, bool) {
        let streams = self.storage.streams.iter();
        let sums = streams.map(|stream| self.choices.stream_bytes(stream));
        sums.fold((0, true), |(bytes, exact), (more, so)| {
            (bytes + more, exact && so)
        })
    }

    /// About the length of the volume that `xio pack` makes, by the function that its check of the room uses.
    fn volume_bytes(&self, form: &Form<'_>, with_manifest: bool) -> Result<u64, DatasetError> {
        let plan = Plan {
            scan: self.scan,
            catalogue: self.catalogue,
            views: self.views,
            storage: &self.storage,
            surveyed: &self.surveyed,
            integrity: Integrity::default(),
            shape: form.shape,
            name: form.name.to_owned(),
            label: form.label.to_owned(),
            with_manifest,
            options: Options {
                lba_bytes: form.lba_bytes,
                threads: 1,
                volume_uuid: None,
                writer: WRITER.to_owned(),
            },
        };
        plan.volume_bytes(&|stream| self.choices.stream_bytes(stream).0)
    }

    /// What the store takes: the whole volume, where there can be one.
    fn on_store(&self) -> u64 {
        self.volume_bytes.unwrap_or_else(|| self.stored_bytes().0)
    }

    /// Bytes that a view presents, by every name: a link that is changed is a file of its own there, and so is each name of a hard link.
    fn presented_bytes(&self, view: &View) -> u64 {
        let entries = self.scan.entries.iter().enumerate();
        let presented = entries.filter_map(|(index, entry)| {
            let is_file = matches!(entry.kind, dataset::Kind::File(_));
            let file = self.scan.file(entry.file()?)?;
            let is_presented = is_file || view.changed.contains_key(&index);
            is_presented.then(|| view.presentation(index, file.bytes).bytes())
        });
        presented.sum()
    }
}

/// Runs of one group: a file's, or all of them.
struct Part<'a> {
    group: &'a choose::Group,
    bytes: u64,
    /// Of these runs, if they are values.
    range: Option<ValueRange>,
    stored_bytes: u64,
}

impl<'a> Part<'a> {
    /// All of it.
    fn whole(group: &'a choose::Group) -> Part<'a> {
        Part {
            group,
            bytes: group.bytes,
            range: chosen::range(group),
            stored_bytes: group.stored_bytes(group.bytes),
        }
    }
}

impl Planned<'_> {
    /// What a file consists of: its groups, the one with the most bytes first.
    fn parts(&self, id: FileId) -> Vec<Part<'_>> {
        let surveyed = self.surveyed.get(id.0 as usize).and_then(Option::as_ref);
        let ranges = surveyed.map_or(&[][..], |it| &it.ranges);
        let mut parts: Vec<Part<'_>> = Vec::new();
        for (run, range) in self.storage.runs.of(id).iter().zip(ranges) {
            let place = self.choices.place(id, run);
            let group = place.and_then(|place| Some((place, self.choices.groups.get(place)?)));
            let Some((place, group)) = group else {
                continue;
            };
            let range = range.filter(|_| group.has_values);
            match parts
                .iter_mut()
                .find(|part| std::ptr::eq(part.group, group))
            {
                Some(part) => {
                    part.bytes += run.bytes;
                    part.range = union(part.range, range);
                }
                None => parts.push(Part {
                    group,
                    bytes: run.bytes,
                    range,
                    stored_bytes: self.shares.stored_bytes(id, place).unwrap_or_default(),
                }),
            }
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
        parts
    }
}
