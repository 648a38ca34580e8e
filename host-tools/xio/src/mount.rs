//! `xio mount`: the files of a disk in a folder, through FUSE.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ::mount::{Content, ContentKind, MountError, Mounted, Options, Unmounter};
use anyhow::anyhow;
use printout::size::grouped;

use crate::cli;
use crate::failure::Failure;
use crate::medium::Source;
use crate::signals::Signals;
use crate::stdout::print_line;

/// Time for what is open to be closed, once the mount was taken away.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Runs the command.
pub fn run(arguments: &cli::Mount) -> Result<(), Failure> {
    if arguments.background {
        return in_background();
    }
    let patience = Duration::from_secs(arguments.reconnect);
    let source = Source::open(&arguments.source, &arguments.opening, patience)?;
    if let Source::Namespace(namespace) = &source
        && !namespace.is_write_protected()
    {
        printout::stderr::note(format_args!(
            "hosts can write to {}; what they write is not seen in a mount that has read the old",
            arguments.source.display()
        ));
    }
    let content = Content::of(source.medium(), source.as_one_file());
    let content = content.map_err(|error| failure(arguments, error))?;
    if let Some(note) = &content.note {
        printout::stderr::note(format_args!("{}: {note}", arguments.source.display()));
    }
    let what = match content.kind() {
        // The root.
        ContentKind::Filesystem(1) => "1 folder".to_owned(),
        ContentKind::Filesystem(inodes) => {
            format!("{} files, folders and links", grouped(inodes))
        }
        ContentKind::Partitions(1) => "no filesystem, 1 partition as a file".to_owned(),
        ContentKind::Partitions(count) => format!("no filesystem, {count} partitions as files"),
        ContentKind::OneFile(name) => format!("no filesystem, one file: {}", erofs::shown(name)),
    };
    // Before there is a mount, a signal ends the program as any other.
    let signals = Signals::listen()?;
    let options = Options {
        source: arguments.source.display().to_string(),
        allow_other: arguments.allow_other,
        threads: usize::from(arguments.threads),
    };
    let about = arguments.folder.clone();
    let mounted = Mounted::new(content, &arguments.folder, &options, move |why| {
        printout::stderr::error(format_args!("{}: {why}", about.display()));
    });
    let (mounted, unmounter) = mounted.map_err(|error| failure(arguments, error))?;
    serve(arguments, mounted, unmounter, signals, &what)?;
    source.close();
    Ok(())
}

/// What a person is told, and what to do instead.
fn failure(arguments: &cli::Mount, error: MountError) -> Failure {
    match error {
        MountError::Disk(_) | MountError::Table(_) | MountError::Medium(_) => {
            Failure::from(error).about(arguments.source.display())
        }
        MountError::NoDevice | MountError::NoHelper(_) => Failure::system(anyhow!(
            "{error}; or copy the files without a mount: xio cp '{}' FOLDER",
            arguments.source.display()
        )),
        error => Failure::from(error),
    }
}

enum Event {
    Signal,
    Ended(Result<(), MountError>),
}

fn serve(
    arguments: &cli::Mount,
    mounted: Mounted,
    mut unmounter: Unmounter,
    signals: Signals,
    what: &str,
) -> Result<(), Failure> {
    let folder = arguments.folder.display();
    let (events, next) = mpsc::channel();
    let ended = events.clone();
    // Neither is waited for: at the end of the program they end.
    spawn("xio-mount", move || {
        let _ = ended.send(Event::Ended(mounted.ended()));
    })?;
    spawn("xio-signals", move || {
        signals.wait();
        let _ = events.send(Event::Signal);
    })?;
    print_line(format_args!("{folder}: mounted, {what}"))?;
    let ended = match next.recv() {
        Ok(Event::Ended(result)) => Some(result),
        Ok(Event::Signal) | Err(_) => {
            let unmounted = unmounter.unmount();
            unmounted.map_err(|error| Failure::system(anyhow!("unmounting {folder}: {error}")))?;
            match next.recv_timeout(CLOSED_WITHIN) {
                Ok(Event::Ended(result)) => Some(result),
                Ok(Event::Signal) | Err(_) => None,
            }
        }
    };
    match ended {
        Some(result) => result.map_err(|error| failure(arguments, error)),
        None => {
            printout::stderr::note(format_args!(
                "{folder} was in use; what is open in it fails from now on"
            ));
            Ok(())
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map_err(|error| Failure::system(anyhow!("starting a thread: {error}")))?;
    Ok(())
}

/// Starts this command again without `--background`, and waits until its mount is ready.
fn in_background() -> Result<(), Failure> {
    let failed = |error| Failure::system(anyhow!("starting the program again: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let arguments = std::env::args_os().skip(1);
    let mut child = Command::new(program)
        .args(arguments.filter(|argument| argument != "--background"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // The terminal's Ctrl-C is not for it.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut ready = String::new();
    if let Some(stdout) = child.stdout.take() {
        let read = BufReader::new(stdout).read_line(&mut ready);
        read.map_err(failed)?;
    }
    if !ready.is_empty() {
        return print_line(ready.trim_end());
    }
    // It has said why.
    let status = child.wait().map_err(failed)?;
    std::process::exit(status.code().unwrap_or(3))
}
