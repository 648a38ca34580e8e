//! One of the two that are compared.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use erofs::{Attributes, Kind, Time};
use mount::Medium;

use crate::contents::{self, Item, Items};
use crate::failure::Failure;
use crate::medium::{self, PATIENCE, Source};

/// What a disk says of itself; a copy of the disk has it too.
const OWN_FOLDER: &[u8] = b".xio";

/// A folder, or what a volume or a namespace presents.
pub enum Side {
    /// Files of this machine.
    Folder(PathBuf),
    /// A disk, or bytes.
    Source(String, Source),
}

/// Names and what lies behind them, without the disk's own folder.
pub struct Tree<'a> {
    side: &'a Side,
    /// By path from the root, which is empty.
    pub items: Items,
    /// What it says of itself, where it does.
    pub manifest: Option<Item>,
}

impl Side {
    /// Opens a folder, a volume or a namespace.
    pub fn open(side: &Path, allow_sources: &[PathBuf]) -> Result<Side, Failure> {
        if medium::url(side)?.is_none() && side.is_dir() {
            return Ok(Side::Folder(side.to_owned()));
        }
        let source = Source::open(side, allow_sources, PATIENCE)?;
        Ok(Side::Source(side.display().to_string(), source))
    }

    /// What a person calls it.
    pub fn name(&self) -> String {
        match self {
            Side::Folder(folder) => folder.display().to_string(),
            Side::Source(name, _) => name.clone(),
        }
    }

    /// Ends connections.
    pub fn close(&self) {
        if let Side::Source(_, source) = self {
            source.close();
        }
    }

    /// What it holds, or `None` where it has no files.
    pub fn tree(&self) -> Result<Option<Tree<'_>>, Failure> {
        let listed = match self {
            Side::Folder(folder) => Some(of_folder(folder)?),
            Side::Source(name, source) => {
                contents::of(source).map_err(|failure| failure.about(name))?
            }
        };
        let Some(mut items) = listed else {
            return Ok(None);
        };
        let is_own = |path: &[u8]| {
            path.strip_prefix(OWN_FOLDER)
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let manifest = items.remove(&b".xio/manifest.json"[..]);
        items.retain(|path, _| !is_own(path));
        let manifest = manifest.filter(|item| item.kind == Kind::File);
        Ok(Some(Tree {
            side: self,
            items,
            manifest,
        }))
    }
}

/// A file that is read.
pub enum Reading<'a> {
    /// From a folder.
    File(PathBuf, File),
    /// From a disk.
    Disk(&'a str, Arc<dyn Medium>, [(u64, u64); 2]),
}

impl Tree<'_> {
    /// Opens a file of it.
    pub fn open(&self, path: &[u8], item: &Item) -> Result<Reading<'_>, Failure> {
        match self.side {
            Side::Folder(folder) => {
                let path = folder.join(OsStr::from_bytes(path));
                let file = File::open(&path);
                let file = file.map_err(|error| Failure::io("reading", &path, error))?;
                Ok(Reading::File(path, file))
            }
            Side::Source(name, source) => Ok(Reading::Disk(name, source.medium(), item.runs)),
        }
    }
}

impl Reading<'_> {
    /// Fills `into` with the file's bytes from `from` on, which it has.
    pub fn read(&self, from: u64, into: &mut [u8]) -> Result<(), Failure> {
        match self {
            Reading::File(path, file) => {
                let read = file.read_exact_at(into, from);
                read.map_err(|error| Failure::io("reading", path, error))
            }
            Reading::Disk(name, medium, runs) => {
                let read = contents::read(medium, *runs, from, into);
                read.map_err(|failure| Failure::from(failure).about(name))
            }
        }
    }
}

fn of_folder(root: &Path) -> Result<Items, Failure> {
    let failed = |path: &Path, error| Failure::io("reading", path, error);
    let about = fs::metadata(root).map_err(|error| failed(root, error))?;
    let mut items = BTreeMap::from([(Vec::new(), in_folder(&about, Kind::Directory))]);
    let mut left = vec![root.to_owned()];
    while let Some(folder) = left.pop() {
        let names = fs::read_dir(&folder).map_err(|error| failed(&folder, error))?;
        for name in names {
            let path = name.map_err(|error| failed(&folder, error))?.path();
            let about = fs::symlink_metadata(&path).map_err(|error| failed(&path, error))?;
            let kind = match about.file_type() {
                kind if kind.is_dir() => Kind::Directory,
                kind if kind.is_symlink() => Kind::Symlink,
                kind if kind.is_file() => Kind::File,
                _ => {
                    let why =
                        "is neither a file nor a folder nor a symbolic link, and is not compared";
                    return Err(Failure::usage(anyhow!("{} {why}", path.display())));
                }
            };
            let mut item = in_folder(&about, kind);
            if kind == Kind::Symlink {
                let target = fs::read_link(&path).map_err(|error| failed(&path, error))?;
                item.target = target.into_os_string().as_bytes().to_vec();
            }
            if let Ok(below) = path.strip_prefix(root) {
                items.insert(below.as_os_str().as_bytes().to_vec(), item);
            }
            if kind == Kind::Directory {
                left.push(path);
            }
        }
    }
    Ok(items)
}

fn in_folder(about: &Metadata, kind: Kind) -> Item {
    Item {
        kind,
        attributes: Attributes {
            permissions: u16::try_from(about.mode() & 0o7777).unwrap_or(0),
            uid: about.uid(),
            gid: about.gid(),
            modified: Time {
                seconds: about.mtime(),
                nanoseconds: u32::try_from(about.mtime_nsec()).unwrap_or(0),
            },
        },
        bytes: if kind == Kind::File { about.len() } else { 0 },
        target: Vec::new(),
        runs: [(0, 0); 2],
    }
}
