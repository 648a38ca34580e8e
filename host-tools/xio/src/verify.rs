//! `xio verify`: a volume by itself, or what a volume or a namespace presents against the files that it was packed from.

use std::path::Path;

use anyhow::anyhow;
use initiator::{Initiator, Url};
use serde_json::json;
use volume::ViewIndex;
use volume::blocking::{self, Reader};

use crate::chunks::{self, CHUNK_BYTES};
use crate::cli;
use crate::failure::Failure;
use crate::files::Files;
use crate::layout::Layout;
use crate::local::LocalVolume;
use crate::pack::available_threads;
use crate::progress::Progress;
use crate::size::grouped;

/// Runs the command.
pub fn run(arguments: &cli::Verify) -> Result<(), Failure> {
    let compared_bytes = if arguments.volume.contains("://") {
        let url: Url = arguments
            .volume
            .parse()
            .map_err(|error: initiator::UrlError| Failure::usage(error))?;
        verify_namespace(&url, arguments)?
    } else if arguments.against.is_empty() {
        let bytes = check_volume(arguments)?;
        report(
            arguments,
            "checked_bytes",
            "presented bytes were read and checked",
            bytes,
        );
        return Ok(());
    } else {
        verify_volume(arguments)?
    };
    report(
        arguments,
        "compared_bytes",
        "bytes are the same",
        compared_bytes,
    );
    Ok(())
}

fn report(arguments: &cli::Verify, field: &str, what: &str, bytes: u64) {
    if arguments.json {
        println!("{}", json!({ "verified": arguments.volume, field: bytes }));
    } else {
        println!("{}: {} {what}", arguments.volume, grouped(bytes));
    }
}

/// What every view of a volume presents, read and decoded; returns how many bytes that is.
fn check_volume(arguments: &cli::Verify) -> Result<u64, Failure> {
    let path = Path::new(&arguments.volume);
    let mut local = LocalVolume::open(path)?;
    let mut bytes = 0;
    for view in (0..).map(ViewIndex).take(local.volume.views().len()) {
        local.volume = local.volume.with_view(view)?;
        let presented_bytes = local.volume.presented_bytes();
        let progress = Progress::start("checking", Some(presented_bytes));
        chunks::for_each(
            presented_bytes,
            available_threads(),
            || (local.reader(), Vec::new()),
            |(reader, buffer): &mut (Reader<&blocking::Files>, Vec<u8>), range| {
                buffer.resize(
                    usize::try_from(range.end - range.start).unwrap_or(usize::MAX),
                    0,
                );
                let read = reader.read(range.start, buffer);
                read.map_err(|error| Failure::from(error).about(path.display()))?;
                Ok(())
            },
            |done| progress.set(done),
        )?;
        bytes += presented_bytes;
    }
    Ok(bytes)
}

/// A volume file against files; returns how many bytes were compared.
fn verify_volume(arguments: &cli::Verify) -> Result<u64, Failure> {
    let path = Path::new(&arguments.volume);
    let local = LocalVolume::open(path)?;
    let layout = Layout {
        lba_bytes: local.volume.lba_bytes(),
        concat: arguments.concat,
    };
    let files = Files::open(&arguments.against, layout)?;
    let presented_bytes = local.volume.presented_bytes();
    if presented_bytes != files.bytes {
        return Err(other_length(
            &arguments.volume,
            presented_bytes,
            files.bytes,
            arguments,
        ));
    }
    let progress = Progress::start("comparing", Some(files.bytes));
    chunks::for_each(
        files.bytes,
        available_threads(),
        || (local.reader(), Buffers::default()),
        |(reader, buffers): &mut (Reader<&blocking::Files>, Buffers), range| {
            buffers.resize(range.end - range.start);
            reader
                .read(range.start, &mut buffers.presented)
                .map_err(|error| Failure::from(error).about(path.display()))?;
            buffers.compare(&files, range.start, &arguments.volume)
        },
        |done| progress.set(done),
    )?;
    Ok(files.bytes)
}

/// A served namespace against files; returns how many bytes were compared, the zeros at its end included.
fn verify_namespace(url: &Url, arguments: &cli::Verify) -> Result<u64, Failure> {
    if arguments.against.is_empty() {
        let why = "a namespace can only be compared: name the files that it was packed from with --against";
        return Err(Failure::usage(anyhow!(why)));
    }
    let mut initiator =
        Initiator::connect(&url.address(), &url.subnqn, &initiator::Options::default())?;
    let nsid = the_namespace(&initiator, url)?;
    let (lba_bytes, namespace_bytes) = {
        let namespace = initiator.namespace(nsid)?;
        (namespace.lba_bytes, namespace.bytes())
    };
    let layout = Layout {
        lba_bytes,
        concat: arguments.concat,
    };
    let files = Files::open(&arguments.against, layout)?;
    if namespace_bytes != files.bytes.next_multiple_of(u64::from(lba_bytes)) {
        return Err(other_length(
            &arguments.volume,
            namespace_bytes,
            files.bytes,
            arguments,
        ));
    }
    let progress = Progress::start("comparing", Some(namespace_bytes));
    let mut buffers = Buffers::default();
    for start in (0..namespace_bytes).step_by(usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX)) {
        let end = (start + CHUNK_BYTES).min(namespace_bytes);
        buffers.resize(end - start);
        initiator.read(nsid, start, &mut buffers.presented)?;
        buffers.compare(&files, start, &arguments.volume)?;
        progress.set(end);
    }
    initiator.shutdown()?;
    Ok(namespace_bytes)
}

/// The namespace that was named, or the only one.
fn the_namespace(initiator: &Initiator, url: &Url) -> Result<u32, Failure> {
    match (url.nsid, initiator.namespaces()) {
        (Some(nsid), _) => Ok(nsid),
        (None, [only]) => Ok(only.nsid.0),
        (None, several) => {
            let count = several.len();
            let why = anyhow!(
                "the subsystem has {count} namespaces; choose one with ?nsid=N behind the NQN"
            );
            Err(Failure::usage(why))
        }
    }
}

fn other_length(
    what: &str,
    presented_bytes: u64,
    files_bytes: u64,
    arguments: &cli::Verify,
) -> Failure {
    let files = match &arguments.against[..] {
        [only] => format!("{} has", only.display()),
        several => format!("the {} files have", several.len()),
    };
    Failure::data(anyhow!(
        "{what} presents {} bytes, {files} {}",
        grouped(presented_bytes),
        grouped(files_bytes)
    ))
}

/// A chunk as it is presented, and as it should be.
#[derive(Default)]
struct Buffers {
    presented: Vec<u8>,
    expected: Vec<u8>,
}

impl Buffers {
    fn resize(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.presented.resize(bytes, 0);
        self.expected.resize(bytes, 0);
    }

    /// Compares what is presented from `offset` on.
    fn compare(&mut self, files: &Files, offset: u64, what: &str) -> Result<(), Failure> {
        files.read(offset, &mut self.expected)?;
        if self.presented == self.expected {
            return Ok(());
        }
        let pairs = self.presented.iter().zip(&self.expected);
        let (at, (presented, expected)) = (offset..)
            .zip(pairs)
            .find(|(_, (presented, expected))| presented != expected)
            .unwrap_or((offset, (&0, &0)));
        let place = match files.locate(at) {
            Some((path, byte)) => format!("byte {byte} of {} is {expected:#04x}", path.display()),
            None => "it must be zero, between and behind the files".to_owned(),
        };
        Err(Failure::data(anyhow!(
            "{what}: presented byte {at} is {presented:#04x}; {place}"
        )))
    }
}
