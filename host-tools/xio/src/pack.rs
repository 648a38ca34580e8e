//! `xio pack`: files into a volume.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::anyhow;
use dataset::{DatasetError, SourceFile, document};
use serde_json::json;
use transforms::{Chain, ElementType, Loss, TransformError, ViewChain};
use volume::identity::uuid_text;
use volume::write::{
    self, ExtentSpec, FRAME_BYTES_DEFAULT, FileOutput, Finished, Options, StreamSpec, ViewSpec,
    Writer, Written,
};

use crate::chosen;
use crate::chosen_elements;
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
use crate::tables;
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
    let wish = arguments.storing.wish();
    let choice = match is_chosen(arguments) {
        true => Some(chosen_elements::choose(&mut plan, &wish)?),
        false => None,
    };
    tables::make(&mut plan)?;
    let Packed { finished, loss } = pack(&plan)?;
    let chain = &plan.spec.chain;
    if let Some(note) = notes::destroyed((chain.source(), chain.packing()), &loss) {
        printout::stderr::note(format_args!("--store-as {chain}: {note}"));
    }
    if arguments.volume.json {
        let choice = choice.map(|it| chosen::to_json(&it, &wish, arguments.explain));
        return print_line(to_json(&plan, &finished, choice));
    }
    let seconds = started.elapsed().as_secs_f64();
    print_line(summary(&plan, &finished, seconds))?;
    match choice {
        Some(group) => {
            let explained = chosen::explained(&group, &wish, arguments.explain);
            print_line(format_args!("\n{explained}"))
        }
        None => Ok(()),
    }
}

/// Whether the chain of elements without a header is chosen, and not named.
fn is_chosen(arguments: &cli::Pack) -> bool {
    arguments.storing.store_as.as_deref() == Some(disk::AUTO)
}

/// A pack that can be begun: everything that can be checked without reading the inputs was.
pub struct Plan {
    /// Files, or '-'.
    pub inputs: Vec<PathBuf>,
    /// How each is stored.
    pub spec: StreamSpec,
    /// The chain of each, where each has scales of its own. Otherwise empty.
    pub scaled: Vec<Chain>,
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
        if !storing.rules.is_empty() || storing.unzip {
            let why = "--store and --unzip are for files whose format is recognised; with --dtype, say how the elements are stored with --store-as";
            return Err(usage(why.to_owned()));
        }
        let is_chosen = is_chosen(arguments);
        let is_asked = storing.prefer.is_some() || storing.access.is_some() || arguments.explain;
        if is_asked && !is_chosen {
            let why = "--prefer, --access and --explain are for chains that are chosen; with --dtype, say --store-as auto:lossless";
            return Err(usage(why.to_owned()));
        }
        let text = storing.store_as.as_deref().filter(|_| !is_chosen);
        let text = text.unwrap_or("none");
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
            scaled: Vec::new(),
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

    /// Its inputs, of which something is read before they are packed: files.
    ///
    /// # Errors
    /// One is not; `why` says what wants to read it twice.
    pub fn files_read_twice(&self, why: &str) -> Result<Vec<SourceFile>, Failure> {
        let file = |path: &PathBuf| {
            let refused = || Failure::usage(anyhow!("{}: {why}", shown(path)));
            if is_stdin(path) {
                return Err(refused());
            }
            let about = std::fs::metadata(path);
            let about = about.map_err(|error| Failure::io("reading", path, error))?;
            match about.is_file() {
                true => Ok(SourceFile::new(path, &about)),
                false => Err(refused()),
            }
        };
        self.inputs.iter().map(file).collect()
    }

    /// The chain of an input: with its own scales, where the chain has some.
    fn chain_of(&self, input: usize) -> &Chain {
        self.scaled.get(input).unwrap_or(&self.spec.chain)
    }

    /// How an input is stored.
    fn spec_of(&self, input: usize) -> StreamSpec {
        StreamSpec {
            chain: self.chain_of(input).clone(),
            ..self.spec.clone()
        }
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
    pub fn total_bytes(&self) -> Option<u64> {
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
    for (input, path) in plan.inputs.iter().enumerate() {
        let spec = plan.spec_of(input);
        let on_progress = &mut |now: write::Progress| progress.set(done_bytes + now.source_bytes);
        let (stream, loss) = match is_stdin(path) {
            true => add(&mut writer, &spec, path, io::stdin(), on_progress)?,
            false => add_file(&mut writer, &spec, path, on_progress)?,
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
    let files =
        (added.iter().enumerate()).map(|(input, (name, stream, loss))| elements::Presented {
            chain: plan.chain_of(input),
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
    spec: &StreamSpec,
    path: &Path,
    on_progress: &mut dyn FnMut(write::Progress),
) -> Result<(Written, Option<Loss>), Failure> {
    let failed = |error| Failure::io("reading", path, error);
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        let pipe = File::open(path).map_err(failed)?;
        return add(writer, spec, path, pipe, on_progress);
    }
    let source = SourceFile::new(path, &about);
    let open = source.open()?;
    let added = add(writer, spec, path, open.reader(), on_progress)?;
    open.check()?;
    Ok(added)
}

/// One input, as one stream; what was lost of it, where it is rounded.
fn add(
    writer: &mut Writer<FileOutput>,
    spec: &StreamSpec,
    path: &Path,
    mut input: impl Read + Send,
    on_progress: &mut dyn FnMut(write::Progress),
) -> Result<(Written, Option<Loss>), Failure> {
    let failed = |error| match DatasetError::from(error) {
        DatasetError::Write { error, .. } if is_not_of_table(&error) => Failure::data(anyhow!(
            "{}: it was changed while it was packed, after its table was made: {error}; try again when nothing writes to it",
            shown(path)
        )),
        DatasetError::Write { error, .. } => Failure::from(error).about(shown(path)),
        // It names the file itself.
        error => Failure::from(error),
    };
    if !spec.chain.contract().is_lossy() {
        let written = writer.add_stream(spec, &mut input, on_progress);
        return Ok((written.map_err(failed)?, None));
    }
    let mut metered = Metered::new(input, &spec.chain).map_err(Failure::usage)?;
    let written = writer.add_stream(spec, &mut metered, on_progress);
    Ok((written.map_err(failed)?, Some(metered.finish())))
}

/// Whether an element has no rank, or is beyond its scale, that was taken in when the table was made.
fn is_not_of_table(error: &write::WriteError) -> bool {
    let write::WriteError::Encode { error, .. } = error else {
        return false;
    };
    matches!(
        error,
        TransformError::NotInTable { .. } | TransformError::BeyondScale { .. }
    )
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

pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// A file's name, wherever it lies: the same input gives the same volume.
fn name(path: &Path) -> Vec<u8> {
    let name = path.file_name().filter(|_| !is_stdin(path));
    name.map_or_else(|| shown(path).into_bytes(), |name| name.as_bytes().to_vec())
}

pub fn shown(path: &Path) -> String {
    if is_stdin(path) {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// All of them, by the first.
pub fn shown_all(inputs: &[PathBuf]) -> String {
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

fn to_json(
    plan: &Plan,
    finished: &Finished,
    choice: Option<serde_json::Value>,
) -> serde_json::Value {
    let inputs = (0..).zip(&plan.inputs).zip(&finished.streams);
    let streams = inputs.map(|((input, path), stream)| {
        json!({
            "input": shown(path),
            "source_bytes": stream.source_bytes,
            "elements": stream.elements,
            "stored_bytes": stream.stored_bytes,
            "table_bytes": disk::table_bytes(plan.chain_of(input)),
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
        "choice": choice,
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
            scaled: Vec::new(),
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
        tables::make(&mut plan).unwrap();
        fs::write(&path, [[7u8, 0].repeat(39_999), vec![8, 0]].concat()).unwrap();
        let Err(refused) = pack(&plan) else {
            panic!("it was packed");
        };
        let wanted = format!(
            "{}: it was changed while it was packed, after its table was made: ",
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
            let refused = add_file(&mut writer, &plan.spec, &path, &mut cut_off).unwrap_err();
            let wanted = format!(
                "{}: it was changed meanwhile: it ends at byte {left}, and had {BYTES} bytes; try again when nothing writes to it",
                path.display()
            );
            assert_eq!(refused.to_string(), wanted, "{store_as}");
        }
    }
}
