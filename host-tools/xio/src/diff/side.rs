//! One of the two that are compared.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use dataset::{Roots, own};
use erofs::{Attributes, Kind, Time};
use mount::Medium;

use crate::cli::Opening;
use crate::contents::{self, Item, Items};
use crate::failure::Failure;
use crate::medium::{self, PATIENCE, Source};

/// A folder, or what a volume or a namespace presents.
pub enum Side {
    /// Files of this machine.
    Folder(PathBuf),
    /// A disk, or bytes.
    Source(String, Source),
}

/// Names and what lies behind them, without what a disk says of itself: that a copy of the disk has too.
pub struct Tree<'a> {
    /// Whose they are.
    pub side: &'a Side,
    /// By path from the root, which is empty.
    pub items: Items,
    /// Of a folder: what a disk that is made of it has instead.
    as_disk: AsDisk,
    /// What it says of itself, where it does.
    pub manifest: Option<Item>,
}

/// What a disk that is made of a folder has in the place of the folder's links.
#[derive(Default)]
struct AsDisk {
    /// Links that lead out of the folder to a file, as that file.
    followed: Items,
    /// Where links lead that would lead nowhere on a disk.
    targets: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Side {
    /// Opens a folder, a volume or a namespace.
    pub fn open(side: &Path, opening: &Opening) -> Result<Side, Failure> {
        if medium::url(side)?.is_none() && side.is_dir() {
            return Ok(Side::Folder(side.to_owned()));
        }
        let source = Source::open(side, opening, PATIENCE)?;
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
                let items = contents::of(source, name)?;
                items.map(|items| (items, AsDisk::default()))
            }
        };
        let Some((items, as_disk)) = listed else {
            return Ok(None);
        };
        let mut tree = Tree {
            side: self,
            items,
            as_disk,
            manifest: None,
        };
        tree.take_manifest()?;
        Ok(Some(tree))
    }
}

/// A file that is read.
pub enum Reading {
    /// From a folder.
    File(PathBuf, File),
    /// From a disk.
    Disk {
        /// What a person calls the disk, and the file.
        about: String,
        medium: Arc<dyn Medium>,
        runs: [(u64, u64); 2],
    },
}

impl Tree<'_> {
    /// Takes what the disk says of itself from the names, and its folder if nothing else is in it. Other files of that name are the user's.
    fn take_manifest(&mut self) -> Result<(), Failure> {
        let is_file = |item: &&Item| item.kind == Kind::File;
        let Some(item) = self.items.get(own::MANIFEST).filter(is_file) else {
            return Ok(());
        };
        let text = Text {
            file: self.open(own::MANIFEST, item)?,
            at: 0,
            bytes: item.bytes,
        };
        if !own::is_manifest(BufReader::new(text)) {
            return Ok(());
        }
        self.manifest = self.items.remove(own::MANIFEST);
        let below = [own::OWN_FOLDER, b"/"].concat();
        let mut others = self.items.range(below.clone()..);
        if !others
            .next()
            .is_some_and(|(path, _)| path.starts_with(&below))
        {
            self.items.remove(own::OWN_FOLDER);
        }
        Ok(())
    }

    /// What is called `path`; where the other side has a file, a link that leads out of the folder is the file behind it.
    pub fn item(&self, path: &[u8], other: Option<&Item>) -> Option<&Item> {
        let followed = self.as_disk.followed.get(path);
        let followed = followed.filter(|_| other.is_some_and(|other| other.kind == Kind::File));
        followed.or_else(|| self.items.get(path))
    }

    /// Where a link leads, on a disk that is made of this.
    pub fn target_on_disk<'a>(&'a self, path: &[u8], link: &'a Item) -> &'a [u8] {
        self.as_disk.targets.get(path).unwrap_or(&link.target)
    }

    /// Opens a file of it.
    pub fn open(&self, path: &[u8], item: &Item) -> Result<Reading, Failure> {
        match self.side {
            Side::Folder(folder) => {
                let path = folder.join(OsStr::from_bytes(path));
                let file = File::open(&path);
                let file = file.map_err(|error| Failure::io("reading", &path, error))?;
                Ok(Reading::File(path, file))
            }
            Side::Source(name, source) => Ok(Reading::Disk {
                about: format!("{name}: {}", erofs::shown(path)),
                medium: source.medium(),
                runs: item.runs,
            }),
        }
    }
}

impl Reading {
    /// Fills `into` with the file's bytes from `from` on, which it has.
    pub fn read(&self, from: u64, into: &mut [u8]) -> Result<(), Failure> {
        match self {
            Reading::File(path, file) => {
                let read = file.read_exact_at(into, from);
                read.map_err(|error| Failure::io("reading", path, error))
            }
            Reading::Disk {
                about,
                medium,
                runs,
            } => {
                let read = contents::read(medium, *runs, from, into);
                read.map_err(|failure| Failure::from(failure).about(about))
            }
        }
    }
}

/// A file from its beginning to its end.
struct Text {
    file: Reading,
    at: u64,
    bytes: u64,
}

impl Read for Text {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes - self.at;
        let now = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let read = self.file.read(self.at, &mut into[..now]);
        read.map_err(|failure| io::Error::other(failure.to_string()))?;
        self.at += now as u64;
        Ok(now)
    }
}

/// What is in a folder.
fn of_folder(root: &Path) -> Result<(Items, AsDisk), Failure> {
    let failed = |path: &Path, error| Failure::io("reading", path, error);
    let about = fs::metadata(root).map_err(|error| failed(root, error))?;
    let mut items = BTreeMap::from([(Vec::new(), in_folder(&about, Kind::Directory))]);
    let (mut inside, mut outside) = (HashSet::new(), Vec::new());
    let roots = Roots::of_folder(root)?;
    let mut targets = BTreeMap::new();
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
            let Ok(below) = path.strip_prefix(root) else {
                continue;
            };
            let below = below.as_os_str().as_bytes().to_vec();
            let behind = fs::metadata(&path);
            if kind == Kind::Symlink
                && behind.is_ok()
                && let Some(target) = roots.target_on_disk(&path, &below, &item.target)?
            {
                targets.insert(below.clone(), target);
            }
            match (kind, behind) {
                (Kind::File, _) => {
                    inside.insert((about.dev(), about.ino()));
                }
                (Kind::Symlink, Ok(behind)) if behind.is_file() => {
                    outside.push((below.clone(), behind));
                }
                _ => {}
            }
            items.insert(below, item);
            if kind == Kind::Directory {
                left.push(path);
            }
        }
    }
    outside.retain(|(_, behind)| !inside.contains(&(behind.dev(), behind.ino())));
    let outside = outside.into_iter();
    let followed = outside.map(|(path, behind)| (path, in_folder(&behind, Kind::File)));
    let followed = followed.collect();
    Ok((items, AsDisk { followed, targets }))
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
