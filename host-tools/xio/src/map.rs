//! `xio map`: a volume of files that stay where they are.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use dataset::document;
use serde_json::json;
use transforms::{Chain, ElementType};
use volume::identity::uuid_text;
use volume::write::{
    ExtentSpec, FileOutput, Finished, Mapped, Options, Region, ViewSpec, WriteError, Writer,
};

use crate::cli;
use crate::disk;
use crate::elements;
use crate::failure::Failure;
use crate::figures::share;
use crate::layout::Layout;
use crate::pack::{WRITER, default_name, rounded_rate, whole};
use crate::places;
use crate::progress::Progress;
use crate::room::{self, Needed, VOLUME_BYTES_MIN};
use crate::signals::Unfinished;
use crate::stdout::print_line;
use printout::size::{counted, grouped};

/// Runs the command.
pub fn run(arguments: &cli::Map) -> Result<(), Failure> {
    let Some(element_type) = arguments.elements.dtype else {
        return disk::map(arguments);
    };
    let started = Instant::now();
    let inputs = Input::open_all(arguments, element_type)?;
    let (mapped, finished) = map(arguments, element_type, &inputs)?;
    if arguments.volume.json {
        return print_line(to_json(
            arguments,
            element_type,
            &inputs,
            &mapped,
            &finished,
        ));
    }
    let seconds = started.elapsed().as_secs_f64();
    print_line(summary(
        arguments,
        element_type,
        &inputs,
        &finished,
        seconds,
    ))
}

/// A file to map.
struct Input {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// How readers of the volume find it.
    locator: PathBuf,
}

impl Input {
    fn open_all(arguments: &cli::Map, element_type: ElementType) -> Result<Vec<Input>, Failure> {
        let folder = disk::folder_of(&arguments.volume.output)?;
        arguments
            .inputs
            .iter()
            .map(|path| Input::open(path, &folder, arguments, element_type))
            .collect()
    }

    fn open(
        path: &Path,
        folder: &Path,
        arguments: &cli::Map,
        element_type: ElementType,
    ) -> Result<Input, Failure> {
        let failed = |error| Failure::io("reading", path, error);
        let real = path.canonicalize().map_err(failed)?;
        let metadata = real.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(Failure::usage(anyhow!(
                "{} is not a regular file, and only such are mapped",
                path.display()
            )));
        }
        if places::are_same(&arguments.volume.output, &real) {
            return Err(Failure::usage(anyhow!(
                "{} is to be mapped, and would be replaced by the volume: choose another name for it",
                path.display()
            )));
        }
        let bytes = metadata.len();
        if !bytes.is_multiple_of(element_type.bytes() as u64) {
            let error = WriteError::PartialElement {
                bytes,
                element_type,
            };
            return Err(Failure::from(error).about(path.display()));
        }
        Ok(Input {
            path: path.to_owned(),
            file: File::open(&real).map_err(failed)?,
            bytes,
            locator: match real.strip_prefix(folder) {
                Ok(inside) => inside.to_owned(),
                Err(_) => real,
            },
        })
    }
}

/// Maps the files: one stream each, and one view over all.
fn map(
    arguments: &cli::Map,
    element_type: ElementType,
    inputs: &[Input],
) -> Result<(Vec<Mapped>, Finished), Failure> {
    let name = match &arguments.volume.name {
        Some(name) => name.clone(),
        None => default_name(&arguments.inputs)?,
    };
    let layout = Layout {
        lba_bytes: cli::lba_bytes(arguments.volume.lba)?,
        concat: arguments.elements.concat,
    };
    let output = FileOutput::create(&arguments.volume.output, arguments.volume.force)?;
    let _unfinished = output.partial().map(Unfinished::new);
    room::check(&arguments.volume.output, Needed::exactly(VOLUME_BYTES_MIN))?;
    let options = Options {
        lba_bytes: layout.lba_bytes,
        threads: 1,
        volume_uuid: None,
        writer: WRITER.to_owned(),
    };
    let mut writer = Writer::new(output, options)?;
    let progress = Progress::start("mapping", Some(total_bytes(inputs)));
    let (mut extents, mut position, mut done_bytes) = (Vec::new(), 0, 0);
    let mut mapped = Vec::with_capacity(inputs.len());
    for input in inputs {
        let region = region(input, element_type);
        let file = writer
            .map_file(
                input.locator.as_os_str().as_bytes(),
                &input.file,
                &[region],
                &mut |bytes| progress.set(done_bytes + bytes),
            )
            .map_err(|error| Failure::from(error).about(input.path.display()))?;
        done_bytes += input.bytes;
        let gap = layout.gap_before(position);
        extents.push(ExtentSpec::Zero { bytes: gap });
        extents.extend(file.streams.iter().map(whole));
        position += gap + input.bytes;
        mapped.push(file);
    }
    let view = ViewSpec {
        name,
        manifest: Some(manifest(element_type, inputs, &mapped)?),
        lossy: false,
    };
    writer.add_view(view, extents)?;
    Ok((mapped, writer.finish()?))
}

/// What the view says: where its elements come from.
fn manifest(element: ElementType, inputs: &[Input], mapped: &[Mapped]) -> Result<Vec<u8>, Failure> {
    // What is mapped is as it is.
    let chain = Chain::from_steps(&[], element).map_err(Failure::usage)?;
    let files = inputs.iter().zip(mapped).flat_map(|(input, file)| {
        file.streams.iter().map(|stream| elements::Presented {
            chain: &chain,
            name: input.path.file_name().unwrap_or_default().as_bytes(),
            bytes: file.bytes,
            sha256: &file.sha256,
            stream,
            loss: None,
        })
    });
    let manifest = elements::manifest(&chain, &files.collect::<Vec<_>>());
    Ok(document::for_a_blob(&manifest, false))
}

fn region(input: &Input, element: ElementType) -> Region {
    Region {
        element,
        offset: 0,
        elements: input.bytes / element.bytes() as u64,
    }
}

fn total_bytes(inputs: &[Input]) -> u64 {
    inputs.iter().map(|input| input.bytes).sum()
}

fn summary(
    arguments: &cli::Map,
    element_type: ElementType,
    inputs: &[Input],
    finished: &Finished,
    seconds: f64,
) -> String {
    let bytes = total_bytes(inputs);
    let mut text = format!(
        "{}: {} bytes of {} in {} mapped by {} bytes ({} of them), in {seconds:.1} s ({}/s)",
        arguments.volume.output.display(),
        grouped(bytes),
        element_type,
        counted(inputs.len() as u64, "file"),
        grouped(finished.volume_bytes),
        share(finished.volume_bytes, bytes),
        rounded_rate(bytes, seconds),
    );
    let locators = inputs.iter().map(|input| &input.locator);
    let outside = locators.filter(|locator| locator.is_absolute()).cloned();
    if let Some(options) = places::to_allow(outside) {
        text.push_str(&format!(
            "\nto serve or verify it, allow the place of the files: {options}"
        ));
    }
    text
}

fn to_json(
    arguments: &cli::Map,
    element_type: ElementType,
    inputs: &[Input],
    mapped: &[Mapped],
    finished: &Finished,
) -> serde_json::Value {
    let sources = inputs.iter().zip(mapped).flat_map(|(input, file)| {
        file.streams.iter().map(move |stream| {
            json!({
                "input": input.path.display().to_string(),
                "locator": input.locator.display().to_string(),
                "bytes": file.bytes,
                "elements": stream.elements,
                "range": document::range(stream.proven),
                "sha256": document::hex(&file.sha256),
            })
        })
    });
    json!({
        "volume": arguments.volume.output.display().to_string(),
        "volume_uuid": uuid_text(&finished.volume_uuid),
        "volume_bytes": finished.volume_bytes,
        "dtype": element_type.name(),
        "sources": sources.collect::<Vec<_>>(),
    })
}
