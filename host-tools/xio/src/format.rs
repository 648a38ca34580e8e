//! `xio format`: one disk over volumes that exist.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::anyhow;
use dataset::{Collection, MadeCollection};
use serde_json::json;
use volume::identity::uuid_text;
use volume::write::{FileOutput, Options};

use crate::cli;
use crate::disk::folder_of;
use crate::failure::Failure;
use crate::pack::{WRITER, default_name};
use crate::places;
use crate::progress::Progress;
use crate::room::{self, Needed, VOLUME_BYTES_MIN};
use crate::signals::Unfinished;
use crate::stdout::print_line;
use crate::tag;
use printout::size::{counted, grouped};

/// Runs the command.
pub fn run(arguments: &cli::Format) -> Result<(), Failure> {
    let started = Instant::now();
    let inputs = arguments.inputs.iter().map(|path| tag::file_of(path));
    let inputs: Vec<PathBuf> = inputs.collect::<Result<_, _>>()?;
    check_inputs(&inputs, &arguments.volume.output)?;
    let options = Options {
        lba_bytes: cli::lba_bytes(arguments.volume.lba)?,
        threads: 1,
        volume_uuid: None,
        writer: WRITER.to_owned(),
    };
    let name = match &arguments.volume.name {
        Some(name) => name.clone(),
        None => default_name(&inputs)?,
    };
    let collection = Collection::new(&inputs)?;
    let output = FileOutput::create(&arguments.volume.output, arguments.volume.force)?;
    let _unfinished = output.partial().map(Unfinished::new);
    room::check(&arguments.volume.output, Needed::exactly(VOLUME_BYTES_MIN))?;
    let folder = folder_of(&arguments.volume.output)?;
    let made = {
        let progress = Progress::start("reading", Some(collection.volume_bytes()));
        collection.make(
            output,
            &folder,
            options,
            (&name, &arguments.filesystem.label),
            &mut |bytes| progress.set(bytes),
        )?
    };
    for note in &collection.notes {
        printout::stderr::note(note);
    }
    if arguments.volume.json {
        return print_line(to_json(arguments, &made));
    }
    print_line(format_args!(
        "{}: {} of {} bytes, a disk of {} bytes, by {} bytes, in {:.1} s",
        arguments.volume.output.display(),
        counted(made.files as u64, "file"),
        grouped(made.file_bytes),
        grouped(made.disk_bytes),
        grouped(made.finished.volume_bytes),
        started.elapsed().as_secs_f64(),
    ))?;
    match places::to_allow(collection.outside(&folder)) {
        None => Ok(()),
        Some(options) => print_line(format_args!(
            "to serve or verify it, allow the place of the volumes: {options}"
        )),
    }
}

fn check_inputs(inputs: &[PathBuf], output: &Path) -> Result<(), Failure> {
    for path in inputs {
        let real = path
            .canonicalize()
            .map_err(|error| Failure::io("reading", path, error))?;
        if places::are_same(output, &real) {
            return Err(Failure::usage(anyhow!(
                "{} is one of the volumes, and would be replaced: choose another name for the disk",
                path.display()
            )));
        }
        if real.is_dir() || !dataset::is_volume(path) {
            return Err(Failure::usage(anyhow!(
                "{} is no volume; make one of it with xio pack, or with xio map, which copies nothing",
                path.display()
            )));
        }
    }
    Ok(())
}

fn to_json(arguments: &cli::Format, made: &MadeCollection) -> serde_json::Value {
    json!({
        "volume": arguments.volume.output.display().to_string(),
        "volume_uuid": uuid_text(&made.finished.volume_uuid),
        "volume_bytes": made.finished.volume_bytes,
        "disk_uuid": uuid_text(&made.disk_uuid),
        "disk_bytes": made.disk_bytes,
        "files": made.files,
        "file_bytes": made.file_bytes,
    })
}
