//! `xio unpack`: the bytes that a volume presents, into a file.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

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
use crate::sparse;
use crate::stdout::print_line;
use printout::size::grouped;

/// What standard output is called, as `xio pack` calls standard input.
const STDOUT: &str = "-";

/// Runs the command.
pub fn run(arguments: &cli::Unpack) -> Result<(), Failure> {
    let local = LocalVolume::open(&arguments.volume, &arguments.allow_sources)?;
    if arguments.output == Path::new(STDOUT) {
        return to_stdout(arguments, &local);
    }
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
            let written = sparse::write(output.file(), buffer, range.start);
            written.map_err(|error| Failure::from(output.failed("writing", error)))
        },
        |done| progress.set(done),
    )?;
    drop(progress);
    let whole = output.file().set_len(total);
    whole.map_err(|error| Failure::from(output.failed("writing", error)))?;
    output.sync()?;
    output.publish()?;
    let name = arguments.output.display();
    print_line(format_args!("{name}: {} bytes", grouped(total)))
}

/// The bytes in their order, and nothing else.
fn to_stdout(arguments: &cli::Unpack, local: &LocalVolume) -> Result<(), Failure> {
    let failed = |error| Failure::system(anyhow!("writing standard output: {error}"));
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(Failure::usage(anyhow!(
            "standard output is a terminal, which is not for bytes: lead it into a file or a program, or name a file with -o"
        )));
    }
    // Not through a buffer that looks for the ends of lines.
    let mut output = File::from(stdout.as_fd().try_clone_to_owned().map_err(failed)?);
    let total = local.volume.presented_bytes();
    let progress = Progress::start("unpacking", Some(total));
    let mut reader = local.reader();
    let mut buffer = Vec::new();
    let mut done = 0;
    while done < total {
        let bytes = (total - done).min(chunks::CHUNK_BYTES);
        buffer.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        reader
            .read(done, &mut buffer)
            .map_err(|error| Failure::from(error).about(arguments.volume.display()))?;
        match output.write_all(&buffer) {
            // A reader that has seen enough is no error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(failed)?,
        }
        done += bytes;
        progress.set(done);
    }
    Ok(())
}
