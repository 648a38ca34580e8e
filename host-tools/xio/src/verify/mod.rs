//! `xio verify`: a volume by itself, or what a volume or a namespace presents against the files that it was packed from.

mod affected;

use std::fmt;
use std::path::PathBuf;

use anyhow::anyhow;
use initiator::{Options, Url};
use serde_json::{Value, json};
use volume::blocking::{self, Reader};
use volume::verify::{Report, bytes_to_read, verify};
use volume::{CopyState, Volume, VolumeError};

use crate::chunks::{self, CHUNK_BYTES};
use crate::cli;
use crate::contents;
use crate::failure::Failure;
use crate::files::Files;
use crate::inspect::{note_tail_alone, superblocks, superblocks_json};
use crate::layout::Layout;
use crate::local::LocalVolume;
use crate::medium::{self, PATIENCE, Source};
use crate::pack::available_threads;
use crate::progress::Progress;
use crate::stdout::print_line;
use affected::Affected;
use printout::size::grouped;

/// Runs the command.
pub fn run(arguments: &cli::Verify) -> Result<(), Failure> {
    if let Some(folder) = arguments.against.iter().find(|path| path.is_dir()) {
        let (folder, volume) = (folder.display(), arguments.volume.display());
        return Err(Failure::usage(anyhow!(
            "{folder} is a folder, and --against takes the files of a volume without a filesystem; file by file: xio diff {folder} '{volume}'"
        )));
    }
    let url = medium::url(&arguments.volume)?;
    let compared = if let Some(url) = &url {
        verify_namespace(url, arguments)
    } else if arguments.against.is_empty() {
        match check_volume(arguments) {
            Ok((local, report)) => return tell(arguments, &local, &report),
            Err(failure) => Err(failure),
        }
    } else {
        verify_volume(arguments)
    };
    if let Err(failure) = &compared
        && arguments.json
    {
        let difference = failure.cause::<Difference>();
        print_line(match difference {
            Some(difference) => difference_json(arguments, difference),
            None => json!({ "verified": shown(arguments), "error": failure.to_string() }),
        })?;
    }
    let compared_bytes = compared?;
    if arguments.json {
        return print_line(json!({
            "verified": shown(arguments),
            "compared_bytes": compared_bytes,
        }));
    }
    let bytes = grouped(compared_bytes);
    let length = url.map_or("", |_| medium::LENGTH_UNKNOWN);
    print_line(format_args!(
        "{}: {bytes} bytes are the same{length}",
        arguments.volume.display()
    ))
}

/// What is verified, for programs: what is not UTF-8 is replaced.
fn shown(arguments: &cli::Verify) -> String {
    arguments.volume.display().to_string()
}

/// Damaged places that are printed; JSON has all that were listed.
const DAMAGE_SHOWN_MAX: usize = 10;

/// Everything in a volume file: what it presents, what says where that is, and what lies between.
fn check_volume(arguments: &cli::Verify) -> Result<(LocalVolume, Report), Failure> {
    let path = arguments.volume.as_path();
    let local = LocalVolume::open(path, &arguments.opening.allow_sources)?;
    let progress = Progress::start("checking", Some(bytes_to_read(&local.volume)));
    let verified = verify(&local.files, local.store_bytes, &mut |done| {
        progress.set(done)
    });
    drop(progress);
    let report = verified.map_err(|error| Failure::from(error).about(path.display()))?;
    Ok((local, report))
}

/// What came of that.
fn tell(arguments: &cli::Verify, local: &LocalVolume, report: &Report) -> Result<(), Failure> {
    let path = arguments.volume.as_path();
    note_tail_alone(path, &report.volume);
    if report.is_clean() {
        return match arguments.json {
            true => print_line(report_json(arguments, report, json!([]))),
            false => print_line(clean_text(arguments, report)),
        };
    }
    let affected = Affected::of(arguments, local, report);
    if arguments.json {
        print_line(report_json(arguments, report, affected.to_json()))?;
    }
    let shown = report.damage.iter().take(DAMAGE_SHOWN_MAX);
    let mut places: Vec<String> = shown
        .map(|error| format!("\n  {}", said(report, error)))
        .collect();
    let more = report.damage_count - places.len() as u64;
    if more > 0 {
        places.push(format!("\n  and {} more", grouped(more)));
    }
    let count = match report.damage_count {
        1 => "1 place is damaged".to_owned(),
        count => format!("{} places are damaged", grouped(count)),
    };
    let path = path.display();
    let is_mapped = |error: &VolumeError| error.mapped(&report.volume).is_some();
    let advice = match report.damage.iter().all(is_mapped) {
        true => "restore what it maps, or map or format it again",
        false => "restore it from a copy, or pack it again",
    };
    Err(Failure::data(anyhow!(
        "{path}: {count}; {advice}:{}{}{}",
        places.concat(),
        incomplete(&report.volume),
        affected.text()
    )))
}

/// Which superblocks are there, if not all of them are.
fn incomplete(volume: &Volume) -> String {
    let mut copies = volume.superblock_copies().iter();
    match copies.all(|copy| copy.state == CopyState::Whole) {
        true => String::new(),
        false => format!("\nsuperblocks: {}", superblocks(volume)),
    }
}

/// A damaged place, with the name of the mapped file that it is in.
fn said(report: &Report, error: &VolumeError) -> String {
    match error.mapped(&report.volume) {
        Some(locator) => format!("{error}; that source is {locator}"),
        None => error.to_string(),
    }
}

fn clean_text(arguments: &cli::Verify, report: &Report) -> String {
    let said = |bytes, what: &str| match bytes {
        0 => String::new(),
        bytes => format!("; {} {what}", grouped(bytes)),
    };
    let uncovered = said(report.uncovered_bytes, "stored bytes have no checksum");
    let what = "bytes are left from earlier generations";
    let unreferenced = said(report.unreferenced_bytes, what);
    format!(
        "{}: {} bytes were checked, nothing is damaged{uncovered}{unreferenced}",
        arguments.volume.display(),
        grouped(report.checked_bytes)
    )
}

fn report_json(arguments: &cli::Verify, report: &Report, damaged_files: Value) -> Value {
    json!({
        "verified": shown(arguments),
        "checked_bytes": report.checked_bytes,
        "uncovered_bytes": report.uncovered_bytes,
        "unreferenced_bytes": report.unreferenced_bytes,
        "damage_count": report.damage_count,
        "superblocks": superblocks_json(&report.volume),
        "damaged_files": damaged_files,
        "damage": report.damage.iter().map(|error| said(report, error)).collect::<Vec<_>>(),
    })
}

/// A volume file against files; returns how many bytes were compared.
fn verify_volume(arguments: &cli::Verify) -> Result<u64, Failure> {
    let path = arguments.volume.as_path();
    let local = LocalVolume::open(path, &arguments.opening.allow_sources)?;
    let layout = Layout {
        lba_bytes: local.volume.lba_bytes(),
        concat: arguments.concat,
    };
    let files = Files::open(&arguments.against, layout)?;
    let presented_bytes = local.volume.presented_bytes();
    if presented_bytes != files.bytes {
        return Err(other_length(arguments, presented_bytes, files.bytes));
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
            buffers.compare(&files, range.start, arguments)
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
    let options = Options::of_host(arguments.opening.hostnqn.as_ref());
    let mut initiator = medium::connect(url, &options)?;
    let (nsid, lba_bytes, namespace_bytes) = {
        let namespace = initiator.namespace_of(url)?;
        (namespace.nsid.0, namespace.lba_bytes, namespace.bytes())
    };
    let layout = Layout {
        lba_bytes,
        concat: arguments.concat,
    };
    let files = Files::open(&arguments.against, layout)?;
    if namespace_bytes != files.bytes.next_multiple_of(u64::from(lba_bytes)) {
        return Err(other_length(arguments, namespace_bytes, files.bytes));
    }
    let progress = Progress::start("comparing", Some(namespace_bytes));
    let mut buffers = Buffers::default();
    for start in (0..namespace_bytes).step_by(usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX)) {
        let end = (start + CHUNK_BYTES).min(namespace_bytes);
        buffers.resize(end - start);
        initiator.read(nsid, start, &mut buffers.presented)?;
        buffers.compare(&files, start, arguments)?;
        progress.set(end);
    }
    initiator.shutdown()?;
    Ok(namespace_bytes)
}

/// A disk has another length than the files on it.
fn other_length(arguments: &cli::Verify, presented_bytes: u64, files_bytes: u64) -> Failure {
    let what = arguments.volume.display();
    let source = Source::open(&arguments.volume, &arguments.opening, PATIENCE);
    if let Ok(Some(_)) = source.and_then(|source| contents::of(&source, &what)) {
        return Failure::usage(anyhow!(
            "{what} is a disk, and --against takes the files of a volume without a filesystem; file by file: xio diff FOLDER '{what}'"
        ));
    }
    let files = match &arguments.against[..] {
        [only] => format!("{} has", only.display()),
        several => format!("the {} files have", several.len()),
    };
    let text = format!(
        "{what} presents {} bytes, {files} {}",
        grouped(presented_bytes),
        grouped(files_bytes)
    );
    Failure::data(Difference {
        text,
        place: Place::Length {
            presented_bytes,
            files_bytes,
        },
    })
}

/// Where what is presented is not what the files hold.
#[derive(Debug)]
struct Difference {
    /// For a person.
    text: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// The lengths differ: no byte was compared.
    Length {
        presented_bytes: u64,
        files_bytes: u64,
    },
    /// The first byte that differs.
    Byte {
        at: u64,
        presented: u8,
        expected: u8,
        /// The file that holds it, and its byte there; `None` between and behind the files.
        file: Option<(PathBuf, u64)>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Difference {}

fn difference_json(arguments: &cli::Verify, difference: &Difference) -> Value {
    let difference = match &difference.place {
        Place::Length {
            presented_bytes,
            files_bytes,
        } => json!({
            "what": "length",
            "presented_bytes": presented_bytes,
            "files_bytes": files_bytes,
        }),
        Place::Byte {
            at,
            presented,
            expected,
            file,
        } => json!({
            "what": "byte",
            "presented_offset": at,
            "presented": presented,
            "expected": expected,
            "file": file.as_ref().map(|(path, _)| path.display().to_string()),
            "file_offset": file.as_ref().map(|(_, byte)| byte),
        }),
    };
    json!({ "verified": shown(arguments), "difference": difference })
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
    fn compare(
        &mut self,
        files: &Files,
        offset: u64,
        arguments: &cli::Verify,
    ) -> Result<(), Failure> {
        files.read(offset, &mut self.expected)?;
        if self.presented == self.expected {
            return Ok(());
        }
        let pairs = self.presented.iter().zip(&self.expected);
        let (at, (&presented, &expected)) = (offset..)
            .zip(pairs)
            .find(|(_, (presented, expected))| presented != expected)
            .unwrap_or((offset, (&0, &0)));
        let file = files.locate(at);
        let place = match file {
            Some((path, byte)) => format!("byte {byte} of {} is {expected:#04x}", path.display()),
            None => "it must be zero, between and behind the files".to_owned(),
        };
        Err(Failure::data(Difference {
            text: format!(
                "{}: presented byte {at} is {presented:#04x}; {place}",
                shown(arguments)
            ),
            place: Place::Byte {
                at,
                presented,
                expected,
                file: file.map(|(path, byte)| (path.to_owned(), byte)),
            },
        }))
    }
}
