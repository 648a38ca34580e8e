//! `xio unpack`: the bytes that a volume presents, into a file.

use std::os::unix::fs::FileExt;

use anyhow::anyhow;
use volume::blocking::{Files, Reader};
use volume::write::{FileOutput, Output};

use crate::chunks;
use crate::cli;
use crate::failure::Failure;
use crate::local::LocalVolume;
use crate::pack::available_threads;
use crate::places;
use crate::progress::Progress;
use crate::room::{self, Needed};
use crate::signals::Unfinished;
use crate::stdout::print_line;
use printout::size::grouped;

/// Runs the command.
pub fn run(arguments: &cli::Unpack) -> Result<(), Failure> {
    let local = LocalVolume::open(&arguments.volume, &arguments.allow_sources)?;
    if places::are_same(&arguments.output, &local.path) {
        return Err(Failure::usage(anyhow!(
            "{} is the volume, and would be replaced: choose another name for its bytes",
            arguments.output.display()
        )));
    }
    let total = local.volume.presented_bytes();
    let mut output = FileOutput::create(&arguments.output, arguments.force)?;
    let _unfinished = output.partial().map(Unfinished::new);
    room::check(&arguments.output, Needed::exactly(total))?;
    let progress = Progress::start("unpacking", Some(total));
    chunks::for_each(
        total,
        available_threads(),
        || (local.reader(), Vec::new()),
        |(reader, buffer): &mut (Reader<&Files>, Vec<u8>), range| {
            buffer.resize(
                usize::try_from(range.end - range.start).unwrap_or(usize::MAX),
                0,
            );
            reader
                .read(range.start, buffer)
                .map_err(|error| Failure::from(error).about(arguments.volume.display()))?;
            let written = output.file().write_all_at(buffer, range.start);
            written.map_err(|error| Failure::from(output.failed("writing", error)))
        },
        |done| progress.set(done),
    )?;
    drop(progress);
    output.sync()?;
    output.publish()?;
    let name = arguments.output.display();
    print_line(format_args!("{name}: {} bytes", grouped(total)))
}
