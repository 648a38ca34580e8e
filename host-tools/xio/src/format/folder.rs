//! What is in a folder: read once, and the same when it is packed, or the command fails.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use erofs::{Attributes, Time};

use crate::failure::Failure;

/// Something in the folder.
pub struct Found {
    /// From the folder on; the folder itself has none.
    pub path: Vec<u8>,
    /// Mode, owner, time.
    pub attributes: Attributes,
    /// What it is.
    pub kind: Kind,
}

/// What there can be.
pub enum Kind {
    Directory,
    /// So many bytes.
    File(u64),
    /// Its target.
    Symlink(Vec<u8>),
}

/// Everything in `folder`, itself first, directories before what is in them, in the order of the names' bytes.
pub fn scan(folder: &Path) -> Result<Vec<Found>, Failure> {
    let about = fs::metadata(folder).map_err(|error| Failure::io("reading", folder, error))?;
    if !about.is_dir() {
        let why = anyhow!("{} is not a folder", folder.display());
        return Err(Failure::usage(why));
    }
    let mut found = vec![Found {
        path: Vec::new(),
        attributes: attributes(&about),
        kind: Kind::Directory,
    }];
    let mut left = vec![Vec::new()];
    while let Some(directory) = left.pop() {
        let path = full(folder, &directory);
        let failed = |error| Failure::io("reading", &path, error);
        let mut names = fs::read_dir(&path)
            .and_then(|entries| {
                entries
                    .map(|entry| entry.map(|entry| entry.file_name()))
                    .collect::<io::Result<Vec<_>>>()
            })
            .map_err(failed)?;
        names.sort_unstable();
        let mut below = Vec::new();
        for name in names {
            let one = look(folder, joined(&directory, &name))?;
            if matches!(one.kind, Kind::Directory) {
                below.push(one.path.clone());
            }
            found.push(one);
        }
        left.extend(below.into_iter().rev());
    }
    Ok(found)
}

/// The file system's path of something found.
pub fn full(folder: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() {
        return folder.to_owned();
    }
    folder.join(OsString::from_vec(path.to_vec()))
}

fn joined(directory: &[u8], name: &OsString) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    path
}

fn look(folder: &Path, path: Vec<u8>) -> Result<Found, Failure> {
    let at = full(folder, &path);
    let failed = |error| Failure::io("reading", &at, error);
    let about = fs::symlink_metadata(&at).map_err(failed)?;
    let kind = if about.is_dir() {
        Kind::Directory
    } else if about.is_file() {
        Kind::File(about.len())
    } else if about.is_symlink() {
        let target = fs::read_link(&at).map_err(failed)?;
        Kind::Symlink(target.into_os_string().into_vec())
    } else {
        let why = "is neither a file nor a folder nor a symbolic link; a disk holds no devices, pipes and sockets";
        return Err(Failure::usage(anyhow!("{} {why}", at.display())));
    };
    Ok(Found {
        path,
        attributes: attributes(&about),
        kind,
    })
}

fn attributes(about: &Metadata) -> Attributes {
    Attributes {
        // The mask leaves 12 bits, and nanoseconds are below 10^9.
        permissions: u16::try_from(about.mode() & 0o7777).unwrap_or_default(),
        uid: about.uid(),
        gid: about.gid(),
        modified: Time {
            seconds: about.mtime(),
            nanoseconds: u32::try_from(about.mtime_nsec()).unwrap_or_default(),
        },
    }
}

/// One of the files that are read one after the other.
pub struct Source {
    pub path: PathBuf,
    pub bytes: u64,
    pub modified: Time,
}

/// Files end to end. One that is not as long as it was when the folder was read, or was modified since, is an error.
pub struct Sources<'a> {
    left: std::slice::Iter<'a, Source>,
    open: Option<(File, &'a Source, u64)>,
}

impl<'a> Sources<'a> {
    pub fn new(sources: &'a [Source]) -> Sources<'a> {
        Sources {
            left: sources.iter(),
            open: None,
        }
    }
}

impl Read for Sources<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.open.is_none() {
                let Some(source) = self.left.next() else {
                    return Ok(0);
                };
                let file = File::open(&source.path).map_err(|error| named(source, &error))?;
                self.open = Some((file, source, source.bytes));
            }
            let Some((file, source, left)) = &mut self.open else {
                return Ok(0);
            };
            let wanted = usize::try_from(*left).map_or(into.len(), |left| left.min(into.len()));
            let read = file.read(&mut into[..wanted]);
            let read = read.map_err(|error| named(source, &error))?;
            *left -= read as u64;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            let about = file.metadata().map_err(|error| named(source, &error))?;
            let same =
                about.len() == source.bytes && attributes(&about).modified == source.modified;
            if *left > 0 || !same {
                return Err(named(source, &"it was changed meanwhile; try again"));
            }
            self.open = None;
        }
    }
}

fn named(source: &Source, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {error}", source.path.display()))
}
