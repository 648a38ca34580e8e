//! A namespace that is a disk: folders and files of any kind, packed or left where they are.

pub mod notes;
pub mod rule;
pub mod storing;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use dataset::choose::{self, Choices};
use dataset::view::SOURCE;
use dataset::{
    Catalogue, DatasetError, Form, Made, Names, Partition, Plan, Precisions, Run, Runs, Scan,
    SourceFile, Storage, Surveyed, View, document,
};
use serde_json::json;
use transforms::{Chain, Table};
use volume::identity::uuid_text;
use volume::write::{FileOutput, Options, StreamSpec};

use crate::chosen;
use crate::cli;
use crate::failure::Failure;
use crate::figures::ratio;
use crate::pack::{WRITER, available_threads, default_name};
use crate::places;
use crate::progress::Progress;
use crate::room::{self, Needed, VOLUME_BYTES_MIN};
use crate::signals::Unfinished;
use crate::stdout::{print, print_line};
use crate::unzip::unzip;
use notes::count;
use printout::size::grouped;
use printout::text_table::{Align, TextTable};
use storing::Storing;

pub use storing::AUTO;

/// Files of up to so many bytes are stored also by `xio map`: a stream of its own takes two blocks of tables.
const SMALL_BYTES_MAX: u64 = 16 << 10;

/// `xio pack` without `--dtype`.
pub fn pack(arguments: &cli::Pack) -> Result<(), Failure> {
    let threads = arguments
        .threads
        .map_or_else(available_threads, usize::from);
    Request {
        inputs: &arguments.inputs,
        volume: &arguments.volume,
        integrity: arguments.integrity,
        disk: &arguments.disk,
        threads,
        storing: Some(Storing::new(&arguments.storing)?),
        unzip: arguments.storing.unzip,
        explain: arguments.explain,
    }
    .run()
}

/// `xio map` without `--dtype`.
pub fn map(arguments: &cli::Map) -> Result<(), Failure> {
    Request {
        inputs: &arguments.inputs,
        volume: &arguments.volume,
        integrity: cli::Integrity::Crc32c,
        disk: &arguments.disk,
        threads: available_threads(),
        storing: None,
        unzip: false,
        explain: false,
    }
    .run()
}

/// What is asked for.
struct Request<'a> {
    inputs: &'a [PathBuf],
    volume: &'a cli::Output,
    integrity: cli::Integrity,
    disk: &'a cli::Disk,
    threads: usize,
    /// How bytes are stored; `None`: they stay where they are.
    storing: Option<Storing<'a>>,
    /// Whether compressed MDS shards are presented raw.
    unzip: bool,
    /// Whether all that was tried is shown.
    explain: bool,
}

impl Request<'_> {
    fn run(&self) -> Result<(), Failure> {
        let started = Instant::now();
        let precisions = self.disk.presenting.precisions()?;
        let options = Options {
            lba_bytes: cli::lba_bytes(self.volume.lba)?,
            threads: self.threads,
            volume_uuid: None,
            writer: WRITER.to_owned(),
        };
        let name = match &self.volume.name {
            Some(name) => name.clone(),
            None => default_name(self.inputs)?,
        };
        let mut scan = Scan::without(self.inputs, &self.disk.presenting.exclude)?;
        scan.note_left_out(self.disk.shape());
        self.check_output(&scan)?;
        let _spool = match self.unzip {
            true => Some(unzip(&mut scan, &folder_of(&self.volume.output)?)?),
            false => None,
        };
        let catalogue = Catalogue::new(&scan, &self.disk.presenting.hints())?;
        catalogue.check(&scan)?;
        self.tell_useless(&scan, &catalogue, &precisions);
        let views: Vec<View> = precisions
            .0
            .iter()
            .map(|precision| View::new(&scan, &catalogue, precision))
            .collect::<Result<_, _>>()?;
        let form = Form {
            scan: &scan,
            views: &views,
            shape: self.disk.shape(),
            lba_bytes: options.lba_bytes,
            name: &name,
            label: &self.disk.filesystem.label,
        };
        // What no disk can be, and what does not fit, is refused before the files are read through.
        form.outline(!self.disk.no_manifest)?;
        let runs = Runs::new(&scan, &catalogue, &views);
        let output = FileOutput::create(&self.volume.output, self.volume.force)?;
        let _unfinished = output.partial().map(Unfinished::new);
        room::check(&self.volume.output, self.least(&scan, &runs)?)?;
        let surveyed = self.survey(&scan, &views, &runs)?;
        let choices = self.choose(choose::Dataset {
            scan: &scan,
            catalogue: &catalogue,
            runs: &runs,
            surveyed: &surveyed,
        })?;
        let mut storage = self.storage(&scan, runs, &choices)?;
        for note in storage.make_tables(&scan, &surveyed, self.threads)? {
            printout::stderr::note(note);
        }
        let plan = Plan {
            scan: &scan,
            catalogue: &catalogue,
            views: &views,
            storage: &storage,
            surveyed: &surveyed,
            integrity: self.integrity.into(),
            shape: self.disk.shape(),
            name,
            label: self.disk.filesystem.label.clone(),
            with_manifest: !self.disk.no_manifest,
            options,
        };
        room::check(&self.volume.output, needed(&plan, &choices)?)?;
        let made = self.make(&plan, output)?;
        self.tell(&plan, &choices, &made, started)
    }

    /// Options that do nothing, before hours of work.
    fn tell_useless(&self, scan: &Scan, catalogue: &Catalogue, precisions: &Precisions) {
        let names = Names::new(scan);
        let presenting = &self.disk.presenting;
        let rules = self.storing.as_ref().map_or(&[][..], |it| it.rules);
        let useless = notes::useless((scan, catalogue, &names), presenting, rules, precisions);
        for note in useless {
            printout::stderr::note(note);
        }
        let untyped = (self.storing.as_ref()).map(|it| it.untyped(scan, catalogue, &names));
        for note in untyped.into_iter().flatten() {
            printout::stderr::note(note);
        }
        for note in notes::overruled(catalogue, presenting, &names) {
            printout::stderr::note(note);
        }
        for note in notes::misnamed(catalogue, &names, precisions) {
            printout::stderr::note(note);
        }
    }

    /// The volume must not be one of the files that it is made of.
    fn check_output(&self, scan: &Scan) -> Result<(), Failure> {
        let Ok(output) = self.volume.output.canonicalize() else {
            return Ok(());
        };
        let clash = scan.files.iter().find(|file| {
            file.path.file_name() == output.file_name()
                && file.path.canonicalize().is_ok_and(|path| path == output)
        });
        clash.map_or(Ok(()), |file| {
            Err(Failure::usage(anyhow!(
                "{} is one of the inputs, and would be replaced by the volume: choose another name for it",
                file.path.display()
            )))
        })
    }

    /// What is packed is read before it is stored. What is mapped is read once, for its checksums, unless it is to be measured: then it is read again.
    fn survey(
        &self,
        scan: &Scan,
        views: &[View],
        runs: &Runs,
    ) -> Result<Vec<Option<Surveyed>>, Failure> {
        let changed = dataset::storage::changed_files(scan, views);
        let is_wanted = |id| {
            let is_small = |file: &SourceFile| file.bytes <= SMALL_BYTES_MAX;
            self.storing.is_some() || changed.contains(&id) || scan.file(id).is_some_and(is_small)
        };
        let wanted = scan.files().filter(|(id, _)| is_wanted(*id));
        let bytes = wanted.map(|(_, file)| file.bytes).sum();
        let progress = Progress::start("reading", Some(bytes));
        let on_progress = |bytes| progress.set(bytes);
        let surveyed = dataset::survey::survey(scan, runs, &is_wanted, self.threads, &on_progress);
        Ok(surveyed?)
    }

    /// Of runs whose chain is not named.
    fn choose(&self, dataset: choose::Dataset<'_>) -> Result<Choices, Failure> {
        match &self.storing {
            Some(storing) => storing.choose(dataset, self.explain, self.threads),
            None => Ok(Choices::default()),
        }
    }

    fn storage(&self, scan: &Scan, runs: Runs, choices: &Choices) -> Result<Storage, Failure> {
        let names = Names::new(scan);
        let as_it_is = Storing::as_it_is();
        let storing = self.storing.as_ref().unwrap_or(&as_it_is);
        let choose = |id, run: &Run| storing.stored((scan, &names), choices, id, run);
        if self.storing.is_some() {
            return Storage::packed(scan, runs, choose);
        }
        Storage::mapped(scan, runs, SMALL_BYTES_MAX, choose)
    }

    /// What the volume takes, as far as it is known before any file is read: where the chain is named.
    fn least(&self, scan: &Scan, runs: &Runs) -> Result<Needed, Failure> {
        let mut needed = Needed::exactly(VOLUME_BYTES_MIN);
        let Some(storing) = &self.storing else {
            return Ok(needed);
        };
        let names = Names::new(scan);
        for (id, _) in scan.files() {
            for run in runs.of(id) {
                let Some(stored) = storing.said((scan, &names), id, run)? else {
                    continue;
                };
                needed.and_more |= stored.chain.is_framed();
                let spec = StreamSpec {
                    frame_bytes: stored.frame_bytes,
                    ..StreamSpec::new(stored.chain)
                };
                needed.exact += spec.bytes_min(run.bytes / run.element.bytes() as u64);
            }
        }
        Ok(needed)
    }

    fn make(&self, plan: &Plan<'_>, output: FileOutput) -> Result<Made, Failure> {
        let folder = folder_of(&self.volume.output)?;
        let verb = if self.storing.is_some() {
            "packing"
        } else {
            "mapping"
        };
        let progress = Progress::start(verb, Some(plan.scan.source_bytes()));
        Ok(plan.make(output, &folder, &mut |bytes| progress.set(bytes))?)
    }

    fn tell(
        &self,
        plan: &Plan<'_>,
        choices: &Choices,
        made: &Made,
        started: Instant,
    ) -> Result<(), Failure> {
        let notes = plan.views.iter().flat_map(|view| &view.notes);
        for note in plan.scan.notes.iter().chain(notes) {
            printout::stderr::note(note);
        }
        for note in presented_notes(plan, made) {
            printout::stderr::note(note);
        }
        if self.volume.json {
            return print_line(self.to_json(plan, choices, made));
        }
        let how = if self.storing.is_some() {
            format!(
                "stored in {} bytes (ratio {})",
                grouped(made.finished.volume_bytes),
                ratio(plan.scan.source_bytes(), made.finished.volume_bytes)
            )
        } else {
            let mapped = plan.storage.mapped_files().len();
            format!(
                "{} of the files mapped, the others stored, by {} bytes",
                grouped(mapped as u64),
                grouped(made.finished.volume_bytes)
            )
        };
        print_line(format_args!(
            "{}: {} of {} bytes, a disk of {} bytes, {how}, in {:.1} s",
            self.volume.output.display(),
            count(plan.scan.files.len()),
            grouped(plan.scan.source_bytes()),
            grouped(made.disk_bytes),
            started.elapsed().as_secs_f64(),
        ))?;
        self.tell_streams(plan, made)?;
        self.tell_views(plan)?;
        if !made.partitions.is_empty() {
            print(&partitions_table(&made.partitions))?;
        }
        self.tell_choices(choices)?;
        self.tell_place(plan)
    }

    /// What was stored how, where it was not said for all.
    fn tell_streams(&self, plan: &Plan<'_>, made: &Made) -> Result<(), Failure> {
        if self.storing.is_none() {
            return Ok(());
        }
        let mut by_chain: BTreeMap<(String, &str), [u64; 3]> = BTreeMap::new();
        for (stream, written) in plan.storage.streams.iter().zip(&made.streams) {
            let chain = &stream.stored.chain;
            let sum = by_chain.entry((chain.to_string(), chain.source().name()));
            let [source_bytes, stored_bytes, of_tables] = sum.or_default();
            *source_bytes += written.source_bytes;
            *stored_bytes += written.stored_bytes;
            *of_tables += table_bytes(chain);
        }
        for ((chain, element), [source_bytes, stored_bytes, of_tables]) in by_chain {
            let beside = match of_tables {
                0 => String::new(),
                bytes => format!(" and {} of tables", grouped(bytes)),
            };
            print_line(format_args!(
                "  {} bytes of {element} as {chain}: {} bytes{beside} (ratio {})",
                grouped(source_bytes),
                grouped(stored_bytes),
                ratio(source_bytes, stored_bytes + of_tables)
            ))?;
        }
        Ok(())
    }

    fn tell_choices(&self, choices: &Choices) -> Result<(), Failure> {
        let Some(storing) = &self.storing else {
            return Ok(());
        };
        for group in &choices.groups {
            print_line(format_args!(
                "\n{}",
                chosen::explained(group, &storing.wish, self.explain)
            ))?;
        }
        Ok(())
    }

    /// What each precision presents that the source does not hold.
    fn tell_views(&self, plan: &Plan<'_>) -> Result<(), Failure> {
        for view in plan.views.iter().filter(|view| !view.changed.is_empty()) {
            let changes: Vec<String> = view
                .changes
                .iter()
                .map(|((from, to), bytes)| format!("{} bytes of {from} as {to}", grouped(*bytes)))
                .collect();
            print_line(format_args!(
                "  {}: {} rewritten, {}",
                view.name,
                count(view.changed.len()),
                changes.join(", ")
            ))?;
        }
        Ok(())
    }

    /// Where a mapped volume is read from, if that has to be allowed.
    fn tell_place(&self, plan: &Plan<'_>) -> Result<(), Failure> {
        if self.storing.is_some() {
            return Ok(());
        }
        let folder = folder_of(&self.volume.output)?;
        let mapped = plan.storage.mapped_files().iter();
        let files = mapped.filter_map(|&id| plan.scan.file(id));
        let outside = files.filter_map(|file| {
            let real = file.path.canonicalize().ok()?;
            (!real.starts_with(&folder)).then_some(real)
        });
        match places::to_allow(outside) {
            None => Ok(()),
            Some(options) => print_line(format_args!(
                "to serve or verify it, allow the place of the files: {options}"
            )),
        }
    }

    fn to_json(&self, plan: &Plan<'_>, choices: &Choices, made: &Made) -> serde_json::Value {
        let wish = self.storing.as_ref().map(|it| it.wish).unwrap_or_default();
        let groups = choices.groups.iter();
        let groups = groups.map(|group| chosen::to_json(group, &wish, self.explain));
        let streams = plan.storage.streams.iter().zip(&made.streams);
        let streams = streams.map(|(plan, stream)| {
            json!({
                "type": plan.stored.chain.source().name(),
                "stored_chain": plan.stored.chain.to_string(),
                "source_bytes": stream.source_bytes,
                "stored_bytes": stream.stored_bytes,
                "table_bytes": table_bytes(&plan.stored.chain),
                "sha256": document::hex(&stream.sha256),
            })
        });
        let names = Names::new(plan.scan);
        let views = plan.views.iter();
        let views = views.map(|view| notes::view_json(view, plan.catalogue, &names));
        json!({
            "volume": self.volume.output.display().to_string(),
            "volume_uuid": uuid_text(&made.finished.volume_uuid),
            "volume_bytes": made.finished.volume_bytes,
            "disk_uuid": uuid_text(&made.disk_uuid),
            "disk_bytes": made.disk_bytes,
            "metadata_bytes": made.metadata_bytes,
            "partitions": made.partitions.iter().map(partition_json).collect::<Vec<_>>(),
            "files": plan.scan.files.len(),
            "source_bytes": plan.scan.source_bytes(),
            "streams": streams.collect::<Vec<_>>(),
            "views": views.collect::<Vec<_>>(),
            "groups": groups.collect::<Vec<_>>(),
        })
    }
}

/// What a chain needs beside what it stores: ranks, scales, a dictionary.
pub fn table_bytes(chain: &Chain) -> u64 {
    chain.tables().map(Table::stored_bytes).sum()
}

/// What a precision other than the source's does not present, or not well.
fn presented_notes(plan: &Plan<'_>, made: &Made) -> Vec<String> {
    let (scan, views, names) = (plan.scan, plan.views, Names::new(plan.scan));
    if views.iter().all(|view| view.name == SOURCE) {
        return Vec::new();
    }
    let lost = made.changed.iter();
    let lost = lost.map(|it| (it.view, it.entry, &it.measured.losses));
    let mut notes = notes::passed_through(scan, plan.catalogue, &names);
    notes.extend(notes::unconverted(views, &names));
    notes.extend(notes::rounded(scan, views, &names, lost));
    notes
}

/// What the volume takes. Of a chain that compresses and is named nothing is known: such a stream counts for nothing.
fn needed(plan: &Plan<'_>, choices: &Choices) -> Result<Needed, DatasetError> {
    let streams = plan.storage.streams.iter();
    let streams = streams.map(|stream| choices.stream_bytes(stream));
    let exact = streams.filter(|(_, is_exact)| *is_exact);
    let exact = VOLUME_BYTES_MIN + exact.map(|(bytes, _)| bytes).sum::<u64>();
    let whole = plan.volume_bytes(&|stream| choices.stream_bytes(stream).0)?;
    Ok(Needed {
        exact,
        about: whole.saturating_sub(exact),
        and_more: false,
    })
}

/// A row for each.
pub fn partitions_table(partitions: &[Partition]) -> String {
    let columns = [
        ("#", Align::Right),
        ("partition", Align::Left),
        ("first byte", Align::Right),
        ("bytes", Align::Right),
        ("padding", Align::Right),
    ];
    let mut table = TextTable::new(&columns);
    for (number, partition) in (1..).zip(partitions) {
        table.row([
            number.to_string(),
            partition.name.clone(),
            grouped(partition.first_byte),
            grouped(partition.bytes),
            grouped(partition.padding_bytes),
        ]);
    }
    table.render()
}

/// For programs.
pub fn partition_json(partition: &Partition) -> serde_json::Value {
    json!({
        "name": partition.name,
        "first_byte": partition.first_byte,
        "bytes": partition.bytes,
        "padding_bytes": partition.padding_bytes,
    })
}

/// The folder that the volume will lie in, without symbolic links.
pub fn folder_of(output: &Path) -> Result<PathBuf, Failure> {
    let folder = match output.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    folder
        .canonicalize()
        .map_err(|error| Failure::io("looking at", folder, error))
}

impl From<DatasetError> for Failure {
    fn from(error: DatasetError) -> Failure {
        match error {
            DatasetError::Data { .. }
            | DatasetError::NoSuchType { .. }
            | DatasetError::Format { .. }
            | DatasetError::Changed { .. } => Failure::data(error),
            DatasetError::Refused { .. } | DatasetError::Erofs(_) | DatasetError::Gpt(_) => {
                Failure::usage(error)
            }
            DatasetError::Write { about, error } => {
                let failure = Failure::from(error);
                match about {
                    Some(path) => failure.about(path.display()),
                    None => failure,
                }
            }
            DatasetError::Volume { path, error } => Failure::from(*error).about(path.display()),
            DatasetError::Io { .. } => Failure::system(error),
            _ => Failure::system(anyhow!("{error}")),
        }
    }
}
