//! `xio pack`: files into a volume.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::anyhow;
use dataset::{DatasetError, SourceFile, document};
use serde_json::json;
use transforms::{Chain, ElementType, IdCounts, Loss, TransformError, ViewChain};
use volume::identity::uuid_text;
use volume::write::{
    self, ExtentSpec, FRAME_BYTES_DEFAULT, FileOutput, Finished, Options, StreamSpec, ViewSpec,
    Writer, Written,
};

use crate::cli;
use crate::disk::{self, notes};
use crate::elements;
use crate::failure::Failure;
use crate::figures::ratio;
use crate::layout::Layout;
use crate::metered::Metered;
use crate::places;
use crate::progress::Progress;
use crate::room::{self, Needed, VOLUME_BYTES_MIN};
use crate::signals::Unfinished;
use crate::stdout::print_line;
use printout::size::{grouped, rounded};

/// The name that the superblock records.
pub const WRITER: &str = concat!("xio ", env!("CARGO_PKG_VERSION"));

/// Runs the command.
pub fn run(arguments: &cli::Pack) -> Result<(), Failure> {
    let Some(element_type) = arguments.elements.dtype else {
        return disk::pack(arguments);
    };
    let started = Instant::now();
    let mut plan = Plan::from_arguments(arguments, element_type)?;
    plan.make_table()?;
    let Packed { finished, loss } = pack(&plan)?;
    let chain = &plan.spec.chain;
    if let Some(note) = notes::destroyed((chain.source(), chain.packing()), &loss) {
        printout::stderr::note(format_args!("--store-as {chain}: {note}"));
    }
    if arguments.volume.json {
        return print_line(to_json(&plan, &finished));
    }
    let seconds = started.elapsed().as_secs_f64();
    print_line(summary(&plan, &finished, seconds))
}

/// A pack that can be begun: everything that can be checked without reading the inputs was.
pub struct Plan {
    /// Files, or '-'.
    pub inputs: Vec<PathBuf>,
    /// How each is stored.
    pub spec: StreamSpec,
    /// Where each goes.
    pub layout: Layout,
    /// Name of the view.
    pub name: String,
    /// Logical block size.
    pub lba_bytes: u32,
    /// Threads that encode.
    pub threads: usize,
    /// The volume.
    pub output: PathBuf,
    /// Whether a file of that name is replaced.
    pub replace: bool,
}

impl Plan {
    fn from_arguments(arguments: &cli::Pack, element_type: ElementType) -> Result<Plan, Failure> {
        let usage = |why: String| Failure::usage(anyhow!(why));
        let storing = &arguments.storing;
        let is_of_files = !storing.rules.is_empty() || storing.unzip;
        if is_of_files || storing.prefer.is_some() || storing.access.is_some() {
            let why = "--store, --prefer, --access and --unzip are for files whose format is recognised; with --dtype, say how the elements are stored with --store-as";
            return Err(usage(why.to_owned()));
        }
        let text = storing.store_as.as_deref().unwrap_or("none");
        if text == disk::AUTO {
            let why = format!(
                "--store-as {text} reads the inputs twice and is for files; leave --dtype out and say --as '*={element_type}', or name a chain"
            );
            return Err(usage(why));
        }
        let chain = Chain::parse(text, element_type)
            .map_err(|error| usage(format!("--store-as {text}: {error}")))?;
        let lba_bytes = cli::lba_bytes(arguments.volume.lba)?;
        if arguments
            .inputs
            .iter()
            .filter(|input| is_stdin(input))
            .count()
            > 1
        {
            return Err(usage(
                "'-' can be given once: there is one standard input".to_owned(),
            ));
        }
        let plan = Plan {
            name: match &arguments.volume.name {
                Some(name) => name.clone(),
                None => default_name(&arguments.inputs)?,
            },
            inputs: arguments.inputs.clone(),
            spec: StreamSpec {
                chain,
                frame_bytes: storing.frame.map_or(FRAME_BYTES_DEFAULT, |it| it.0),
                integrity: arguments.integrity.into(),
            },
            layout: Layout {
                lba_bytes,
                concat: arguments.elements.concat,
            },
            lba_bytes,
            threads: match arguments.threads {
                Some(threads) => threads.get(),
                None => available_threads(),
            },
            output: arguments.volume.output.clone(),
            replace: arguments.volume.force,
        };
        plan.spec.check()?;
        plan.check_inputs()?;
        Ok(plan)
    }

    /// What can be said before hours of packing: files that are not there, lengths that cannot be, an output that would be an input.
    fn check_inputs(&self) -> Result<(), Failure> {
        let element_type = self.spec.chain.source();
        for path in self.inputs.iter().filter(|path| !is_stdin(path)) {
            let metadata =
                std::fs::metadata(path).map_err(|error| Failure::io("reading", path, error))?;
            if metadata.is_dir() {
                let why = anyhow!(
                    "{} is a folder; name the files in it, or leave --dtype out to pack all of it as a disk",
                    path.display()
                );
                return Err(Failure::usage(why));
            }
            if places::are_same(&self.output, path) {
                let why = anyhow!(
                    "{} is one of the inputs, and would be replaced by the volume: choose another name for it",
                    path.display()
                );
                return Err(Failure::usage(why));
            }
            if self.spec.chain.contract().is_lossy() && metadata.is_file() {
                let file = SourceFile::new(path, &metadata);
                elements::refuse_headers(path, &file.open()?)?;
            }
            let bytes = metadata.len();
            if metadata.is_file() && !bytes.is_multiple_of(element_type.bytes() as u64) {
                let error = write::WriteError::PartialElement {
                    bytes,
                    element_type,
                };
                return Err(Failure::from(error).about(path.display()));
            }
        }
        Ok(())
    }

    /// Reads the inputs for the table of the chain, where it takes one: one table for all of them.
    fn make_table(&mut self) -> Result<(), Failure> {
        if !self.spec.chain.needs_table() {
            return Ok(());
        }
        let progress = Progress::start("counting", self.total_bytes());
        let element = self.spec.chain.source();
        let mut counts = IdCounts::new();
        let mut buffer = Vec::new();
        let mut done_bytes = 0;
        for path in &self.inputs {
            let failed = |error| Failure::io("reading", path, error);
            let is_file = !is_stdin(path) && std::fs::metadata(path).map_err(failed)?.is_file();
            if !is_file {
                let why = anyhow!(
                    "{}: {} reads its input twice, first to count the ids; write it to a file, and pack that",
                    shown(path),
                    self.spec.chain
                );
                return Err(Failure::usage(why));
            }
            let mut file = File::open(path).map_err(failed)?;
            let mut at = 0;
            loop {
                buffer.clear();
                let mut part = file.by_ref().take(COUNTED_BYTES);
                let read = part.read_to_end(&mut buffer).map_err(failed)?;
                if read == 0 {
                    break;
                }
                let counted = counts.add(element, &buffer);
                counted.map_err(|error| no_id(error, at, element).about(shown(path)))?;
                at += read as u64;
                done_bytes += read as u64;
                progress.set(done_bytes);
            }
        }
        let of_all = |error| Failure::data(error).about(shown_all(&self.inputs));
        let table = counts.table().map_err(of_all)?;
        let chain = self.spec.chain.with_table(Arc::new(table));
        self.spec.chain = chain.map_err(of_all)?;
        Ok(())
    }

    /// What the volume takes, as far as it is known beforehand.
    fn needed(&self) -> Needed {
        let chain = &self.spec.chain;
        let elements = self.total_bytes().unwrap_or(0) / chain.source().bytes() as u64;
        let bytes = VOLUME_BYTES_MIN.saturating_add(self.spec.bytes_min(elements));
        match chain.is_framed() {
            true => Needed::at_least(bytes),
            false => Needed::exactly(bytes),
        }
    }

    /// Bytes of all inputs, where that is known beforehand.
    fn total_bytes(&self) -> Option<u64> {
        self.inputs
            .iter()
            .map(|path| {
                std::fs::metadata(path)
                    .ok()
                    .filter(std::fs::Metadata::is_file)
                    .map(|m| m.len())
            })
            .sum()
    }
}

/// Bytes that are counted at a time: whole elements of every type.
const COUNTED_BYTES: u64 = 1 << 20;

/// A value that has no rank, in a part that begins at byte `at` of its file.
fn no_id(error: TransformError, at: u64, element: ElementType) -> Failure {
    let TransformError::LargeId { index, .. } = error else {
        return Failure::data(error);
    };
    let element_bytes = element.bytes() as u64;
    let element = at / element_bytes + index;
    Failure::from(write::WriteError::Encode {
        element,
        byte: element * element_bytes,
        error,
    })
}

/// Packs the files of a plan: one stream each, and one view over all.
pub fn pack(plan: &Plan) -> Result<Packed, Failure> {
    let output = FileOutput::create(&plan.output, plan.replace)?;
    let _unfinished = output.partial().map(Unfinished::new);
    room::check(&plan.output, plan.needed())?;
    let options = Options {
        lba_bytes: plan.lba_bytes,
        threads: plan.threads,
        volume_uuid: None,
        writer: WRITER.to_owned(),
    };
    let mut writer = Writer::new(output, options)?;
    let progress = Progress::start("packing", plan.total_bytes());
    let mut done_bytes = 0;
    let mut extents = Vec::new();
    let mut position = 0;
    let mut added = Vec::with_capacity(plan.inputs.len());
    for path in &plan.inputs {
        let on_progress = &mut |now: write::Progress| progress.set(done_bytes + now.source_bytes);
        let (stream, loss) = match is_stdin(path) {
            true => add(&mut writer, plan, path, io::stdin(), on_progress)?,
            false => add_file(&mut writer, plan, path, on_progress)?,
        };
        done_bytes += stream.source_bytes;
        let gap = plan.layout.gap_before(position);
        extents.push(ExtentSpec::Zero { bytes: gap });
        extents.push(whole(&stream));
        position += gap + stream.source_bytes;
        added.push((name(path), stream, loss));
    }
    let view = ViewSpec {
        name: plan.name.clone(),
        manifest: Some(document::for_a_blob(&manifest(plan, &added), false)),
        lossy: plan.spec.chain.contract().is_lossy(),
    };
    writer.add_view(view, extents)?;
    let losses = added.iter().filter_map(|(_, _, loss)| loss.as_ref());
    Ok(Packed {
        loss: elements::loss_of_all(losses),
        finished: writer.finish()?,
    })
}

/// What was packed.
pub struct Packed {
    /// The volume.
    pub finished: Finished,
    /// Of all inputs; nothing where the chain keeps every value.
    pub loss: Loss,
}

/// What the view says: where its elements come from, and what was lost of them.
fn manifest(plan: &Plan, added: &[(Vec<u8>, Written, Option<Loss>)]) -> Vec<u8> {
    let files = added
        .iter()
        .map(|(name, stream, loss)| elements::Presented {
            name,
            bytes: stream.source_bytes,
            sha256: &stream.sha256,
            stream,
            loss: loss.as_ref(),
        });
    elements::manifest(&plan.spec.chain, &files.collect::<Vec<_>>())
}

/// A file that must stay as it is while it is read. Of a pipe nothing can be said.
fn add_file(
    writer: &mut Writer<FileOutput>,
    plan: &Plan,
    path: &Path,
    on_progress: &mut dyn FnMut(write::Progress),
) -> Result<(Written, Option<Loss>), Failure> {
    let failed = |error| Failure::io("reading", path, error);
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        let pipe = File::open(path).map_err(failed)?;
        return add(writer, plan, path, pipe, on_progress);
    }
    let source = SourceFile::new(path, &about);
    let open = source.open()?;
    let added = add(writer, plan, path, open.reader(), on_progress)?;
    open.check()?;
    Ok(added)
}

/// One input, as one stream; what was lost of it, where it is rounded.
fn add(
    writer: &mut Writer<FileOutput>,
    plan: &Plan,
    path: &Path,
    mut input: impl Read + Send,
    on_progress: &mut dyn FnMut(write::Progress),
) -> Result<(Written, Option<Loss>), Failure> {
    let failed = |error| match DatasetError::from(error) {
        DatasetError::Write { error, .. } if is_not_in_table(&error) => Failure::data(anyhow!(
            "{}: it was changed while it was packed, after its ids were counted: {error}; try again when nothing writes to it",
            shown(path)
        )),
        DatasetError::Write { error, .. } => Failure::from(error).about(shown(path)),
        // It names the file itself.
        error => Failure::from(error),
    };
    if !plan.spec.chain.contract().is_lossy() {
        let written = writer.add_stream(&plan.spec, &mut input, on_progress);
        return Ok((written.map_err(failed)?, None));
    }
    let mut metered = Metered::new(input, &plan.spec.chain).map_err(Failure::usage)?;
    let written = writer.add_stream(&plan.spec, &mut metered, on_progress);
    Ok((written.map_err(failed)?, Some(metered.finish())))
}

/// Whether an element has no rank that had one when the table was made.
fn is_not_in_table(error: &write::WriteError) -> bool {
    matches!(error, write::WriteError::Encode { error, .. } if matches!(error, TransformError::NotInTable { .. }))
}

/// All of a stream, as it was.
pub fn whole(stream: &Written) -> ExtentSpec {
    ExtentSpec::Linear {
        stream: stream.stream,
        first_element: 0,
        elements: stream.elements,
        view: ViewChain::identity(),
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file's name, wherever it lies: the same input gives the same volume.
fn name(path: &Path) -> Vec<u8> {
    let name = path.file_name().filter(|_| !is_stdin(path));
    name.map_or_else(|| shown(path).into_bytes(), |name| name.as_bytes().to_vec())
}

fn shown(path: &Path) -> String {
    if is_stdin(path) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// All of them, by the first.
fn shown_all(inputs: &[PathBuf]) -> String {
    match inputs {
        [] => String::new(),
        [only] => shown(only),
        [first, ..] => format!("{} files from {} on", inputs.len(), shown(first)),
    }
}

/// What the view is called where nobody says.
pub fn default_name(inputs: &[PathBuf]) -> Result<String, Failure> {
    let first = inputs.first().filter(|path| !is_stdin(path));
    // '.' and '..' have no name of their own, their real paths do.
    let real = first.and_then(|path| path.canonicalize().ok());
    let name = first.and_then(|path| path.file_name());
    let name = name.or_else(|| real.as_deref()?.file_name());
    let name = name.and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| {
        let why = "the first input has no name to call the view by; give one with --name";
        Failure::usage(anyhow!(why))
    })
}

/// One thread a core.
pub fn available_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn summary(plan: &Plan, finished: &Finished, seconds: f64) -> String {
    let source_bytes: u64 = finished
        .streams
        .iter()
        .map(|stream| stream.source_bytes)
        .sum();
    let per_second = rounded_rate(source_bytes, seconds);
    format!(
        "{}: {} bytes of {} stored as {} in {} bytes (ratio {}), in {seconds:.1} s ({per_second}/s)",
        plan.output.display(),
        grouped(source_bytes),
        plan.spec.chain.source(),
        plan.spec.chain,
        grouped(finished.volume_bytes),
        ratio(source_bytes, finished.volume_bytes),
    )
}

/// Bytes a second, for people.
#[expect(clippy::cast_precision_loss, reason = "shown to three digits")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shown to three digits"
)]
pub fn rounded_rate(bytes: u64, seconds: f64) -> String {
    rounded((bytes as f64 / seconds.max(1e-9)) as u64)
}

fn to_json(plan: &Plan, finished: &Finished) -> serde_json::Value {
    let streams = plan
        .inputs
        .iter()
        .zip(&finished.streams)
        .map(|(path, stream)| {
            json!({
                "input": shown(path),
                "source_bytes": stream.source_bytes,
                "elements": stream.elements,
                "stored_bytes": stream.stored_bytes,
                "range": document::range(stream.proven),
                "sha256": document::hex(&stream.sha256),
            })
        });
    json!({
        "volume": plan.output.display().to_string(),
        "volume_uuid": uuid_text(&finished.volume_uuid),
        "volume_bytes": finished.volume_bytes,
        "dtype": plan.spec.chain.source().name(),
        "stored_chain": plan.spec.chain.to_string(),
        "streams": streams.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Of the file `values` in a folder.
    fn plan(folder: &tempfile::TempDir, chain: Chain) -> Plan {
        let path = folder.path().join("values");
        Plan {
            inputs: vec![path],
            spec: StreamSpec::new(chain),
            layout: Layout {
                lba_bytes: 4096,
                concat: false,
            },
            name: "values".to_owned(),
            lba_bytes: 4096,
            threads: 1,
            output: folder.path().join("v.xio"),
            replace: true,
        }
    }

    /// The ids that are counted are not those that are packed.
    #[test]
    fn a_file_that_changes_between_counting_and_packing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        fs::write(&path, [7u8, 0].repeat(40_000)).unwrap();
        let mut plan = plan(&folder, Chain::parse("rank+lz4", ElementType::U16).unwrap());
        plan.make_table().unwrap();
        fs::write(&path, [[7u8, 0].repeat(39_999), vec![8, 0]].concat()).unwrap();
        let Err(refused) = pack(&plan) else {
            panic!("it was packed");
        };
        let wanted = format!(
            "{}: it was changed while it was packed, after its ids were counted: ",
            path.display()
        );
        let refused = refused.to_string();
        assert!(refused.starts_with(&wanted), "{refused}");
        assert!(!plan.output.exists());
    }

    /// It is cut behind what was read, and inside an element that is still to come; with a chain that keeps all, and with one that is measured.
    #[test]
    fn a_file_that_is_cut_off_while_it_is_packed_says_where() {
        const BYTES: usize = 32 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        let last = BYTES as u64 - 1;
        for (store_as, left) in [("none", 1001), ("none", last), ("f16", last)] {
            fs::write(&path, vec![0; BYTES]).unwrap();
            let chain = Chain::parse(store_as, ElementType::F32).unwrap();
            let plan = plan(&folder, chain);
            let output = FileOutput::create(&plan.output, true).unwrap();
            let options = Options {
                lba_bytes: 4096,
                threads: 1,
                volume_uuid: None,
                writer: WRITER.to_owned(),
            };
            let mut writer = Writer::new(output, options).unwrap();
            let mut cut_off = |_: write::Progress| {
                let file = File::options().write(true).open(&path).unwrap();
                file.set_len(left).unwrap();
            };
            let refused = add_file(&mut writer, &plan, &path, &mut cut_off).unwrap_err();
            let wanted = format!(
                "{}: it was changed meanwhile: it ends at byte {left}, and had {BYTES} bytes; try again when nothing writes to it",
                path.display()
            );
            assert_eq!(refused.to_string(), wanted, "{store_as}");
        }
    }
}
