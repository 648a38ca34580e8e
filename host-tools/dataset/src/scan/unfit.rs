//! What is left out of a scan because the user says so, and what would have to be.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::{DatasetError, Pattern};

/// So many are named.
const NAMED: usize = 5;
/// Characters at each end of a path that is shortened.
const SHOWN_CHARS: usize = 60;
/// Bytes of a path that Linux takes: PATH_MAX has a zero behind them.
pub const PATH_BYTES_MAX: usize = 4095;

/// The patterns of what is left out.
#[derive(Debug, Default)]
pub(super) struct Excluded {
    /// Each with how often it was the first that fits.
    patterns: Vec<(Pattern, u64)>,
}

impl Excluded {
    pub(super) fn new(patterns: &[Pattern]) -> Excluded {
        let patterns = patterns.iter().map(|pattern| (pattern.clone(), 0));
        Excluded {
            patterns: patterns.collect(),
        }
    }

    /// Whether what is found at `path` is left out; counted.
    pub(super) fn fit(&mut self, path: &[u8]) -> bool {
        let mut patterns = self.patterns.iter_mut();
        let fitting = patterns.find(|(pattern, _)| pattern.fits(path));
        fitting.map(|(_, count)| *count += 1).is_some()
    }

    /// Whether `path`, or a folder that it is in, is left out.
    pub(super) fn fits(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let ends = slashes.map(|(at, _)| at).chain([path.len()]);
        let mut paths = ends.filter_map(|end| path.get(..end));
        paths.any(|path| self.patterns.iter().any(|(pattern, _)| pattern.fits(path)))
    }

    pub(super) fn useless(&self) -> impl Iterator<Item = &Pattern> {
        let useless = self.patterns.iter().filter(|(_, count)| *count == 0);
        useless.map(|(pattern, _)| pattern)
    }

    /// How much is missing, for whoever looks for it.
    pub(super) fn note(&self) -> Option<String> {
        let count: u64 = self.patterns.iter().map(|(_, count)| count).sum();
        match count {
            0 => None,
            1 => Some("--exclude leaves out 1 file or folder".to_owned()),
            several => Some(format!("--exclude leaves out {several} files or folders")),
        }
    }
}

/// Something that no disk can hold.
#[derive(Debug)]
pub(super) struct Unfit {
    /// Where it is and what it is, for people.
    said: String,
    /// Its last name, for the advice.
    name: String,
}

impl Unfit {
    fn new(at: &Path, path: &[u8], what: impl std::fmt::Display) -> Unfit {
        Unfit {
            said: format!("{}: {what}", at.display()),
            name: last_name(path),
        }
    }

    pub(super) fn unreadable(at: &Path, path: &[u8], error: &io::Error) -> Unfit {
        Unfit::new(at, path, format_args!("cannot be read: {error}"))
    }

    /// Deep folders, made one in the other, have paths that the system takes from nobody.
    pub(super) fn too_long(at: &Path, path: &[u8]) -> Option<Unfit> {
        let bytes = at.as_os_str().len();
        let said = || {
            format!(
                "{}: the path has {bytes} bytes, and Linux takes {PATH_BYTES_MAX}: name a folder nearer to it as the input, in which you are",
                shortened(path)
            )
        };
        (bytes > PATH_BYTES_MAX).then(|| Unfit {
            said: said(),
            name: last_name(path),
        })
    }

    /// Why what is at `at` is no file of a disk, if it is none. A file is opened: that it can be read is found out before the work.
    pub(super) fn of(at: &Path, path: &[u8], about: &Metadata) -> Option<Unfit> {
        let kind = about.file_type();
        if about.is_file() {
            let opened = File::open(at);
            return opened.err().map(|it| Unfit::unreadable(at, path, &it));
        }
        let what = match () {
            () if kind.is_fifo() => "a pipe",
            () if kind.is_socket() => "a socket",
            () if kind.is_block_device() || kind.is_char_device() => "a device",
            () => "neither a file nor a folder nor a symbolic link",
        };
        Some(Unfit::new(at, path, what))
    }
}

fn last_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    String::from_utf8_lossy(name).into_owned()
}

/// A path for people, its beginning and its end: screens full of it tell less.
#[must_use]
pub fn shortened(path: &[u8]) -> String {
    let shown = erofs::shown(path);
    let count = shown.chars().count();
    if count <= 2 * SHOWN_CHARS {
        return shown;
    }
    let head: String = shown.chars().take(SHOWN_CHARS).collect();
    let tail: String = shown.chars().skip(count - SHOWN_CHARS).collect();
    format!("{head}...{tail}")
}

/// Refuses all of them at once.
pub(super) fn check(unfit: &[Unfit]) -> Result<(), DatasetError> {
    let Some(first) = unfit.first() else {
        return Ok(());
    };
    let what = match unfit.len() {
        1 => "1 name cannot be on a disk".to_owned(),
        count => format!("{count} names cannot be on a disk"),
    };
    let mut why = format!(
        "(it holds files, folders and links); leave them out with --exclude PATTERN, such as --exclude '{}':",
        first.name
    );
    for one in unfit.iter().take(NAMED) {
        why.push_str(&format!("\n  {}", one.said));
    }
    let more = unfit.len().saturating_sub(NAMED);
    if more > 0 {
        why.push_str(&format!("\n  and {more} more"));
    }
    Err(DatasetError::refused(what, why))
}
