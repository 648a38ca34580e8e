//! What is in the inputs: read once, and the same when it is read again, or the command fails.

mod entry;
mod left_out;
mod links;
mod lost;
mod source;
mod unfit;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use erofs::Attributes;

use crate::{DatasetError, Pattern, is_volume, own};
pub use entry::{Entry, FileId, Kind};
pub use links::Roots;
use lost::Lost;
use source::attributes;
pub use source::{OpenFile, Origin, SourceFile};
use unfit::{Excluded, Unfit};
pub use unfit::{PATH_BYTES_MAX, shortened};

/// What volumes are called.
pub(crate) const VOLUME_SUFFIX: &[u8] = b".xio";

/// Everything in the inputs.
#[derive(Debug, Default)]
pub struct Scan {
    /// The root first, directories before what is in them, in the order of the names' bytes.
    pub entries: Vec<Entry>,
    /// By [`FileId`].
    pub files: Vec<SourceFile>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Of the notes, those on links that stay links.
    notes_of_links: Range<usize>,
    /// By device and inode.
    known: HashMap<(u64, u64), FileId>,
    directories: HashSet<(u64, u64)>,
    /// By place in `entries`: where each link is.
    links: Vec<(usize, PathBuf)>,
    excluded: Excluded,
    /// What no disk holds and what cannot be read: all of it is said at once.
    unfit: Vec<Unfit>,
    roots: Roots,
    lost: Lost,
    /// Names of extended attributes are read into it.
    attribute_names: Vec<u8>,
    /// Files that are volumes.
    volumes: Vec<FileId>,
}

impl Scan {
    /// Reads the inputs. The contents of a folder that is the only one are the root; otherwise each input stands in the root, by its name.
    ///
    /// A link that leads to a file outside the inputs is that file. Other links stay what they are.
    ///
    /// # Errors
    /// As [`Scan::without`].
    pub fn new(inputs: &[PathBuf]) -> Result<Scan, DatasetError> {
        Scan::without(inputs, &[])
    }

    /// Of files alone, which have no names on a disk.
    pub(crate) fn of_files(files: Vec<SourceFile>) -> Scan {
        Scan {
            files,
            ..Scan::default()
        }
    }

    /// As [`Scan::new`], but for the files and folders that one of `excluded` fits, which are not looked at.
    ///
    /// # Errors
    /// [`DatasetError::Io`]; two inputs of one name; devices, pipes, sockets, and files and folders that cannot be read, all in one error.
    pub fn without(inputs: &[PathBuf], excluded: &[Pattern]) -> Result<Scan, DatasetError> {
        let mut scan = Scan {
            excluded: Excluded::new(excluded),
            ..Scan::default()
        };
        if let [only] = inputs
            && fs::metadata(only).is_ok_and(|about| about.is_dir())
        {
            let about = fs::metadata(only).map_err(|e| DatasetError::io("reading", only, e))?;
            scan.push_directory(Vec::new(), &about);
            scan.roots.add(only, Vec::new())?;
            scan.below(only, &[])?;
        } else {
            scan.push_root();
            let mut names = HashMap::new();
            for input in inputs {
                let name = name_of(input)?;
                if let Some(before) = names.insert(name.clone(), input) {
                    let why = format!("and {} have the same name", before.display());
                    return Err(DatasetError::refused(input.display(), why));
                }
            }
            let mut names: Vec<_> = names.into_iter().collect();
            names.sort_unstable();
            for (name, input) in names {
                scan.roots.add(input, name.clone())?;
                scan.input(input, name)?;
            }
        }
        scan.follow_links()?;
        unfit::check(&scan.unfit)?;
        scan.note_lost();
        scan.note_volumes();
        scan.notes.extend(scan.excluded.note());
        Ok(scan)
    }

    /// What the disk will not have of the files.
    fn note_lost(&mut self) {
        let first_name = |id| {
            let entry = self.entries.iter().find(|it| it.file() == Some(id));
            entry.map_or_else(String::new, Entry::shown)
        };
        let notes = self.lost.notes(first_name);
        self.notes.extend(notes);
    }

    /// Volumes that lie among the files, perhaps from an earlier time: bytes like any others, which may not be meant.
    fn note_volumes(&mut self) {
        let name = |id: &FileId| {
            let entry = self.entries.iter().find(|it| it.file() == Some(*id));
            entry.map_or_else(String::new, Entry::shown)
        };
        let Some(first) = self.volumes.first().map(name) else {
            return;
        };
        self.notes.push(match self.volumes.len() {
            1 => format!("{first} is a volume itself, and is taken for a file; to leave it out: --exclude '*.xio'"),
            count => format!("{count} files are volumes themselves ({first} is the first), and are taken for files; to leave them out: --exclude '*.xio'"),
        });
    }

    /// Of the patterns that leave something out, those that fit nothing.
    pub fn useless_exclusions(&self) -> impl Iterator<Item = &Pattern> {
        self.excluded.useless()
    }

    /// The file that `id` stands for.
    #[must_use]
    pub fn file(&self, id: FileId) -> Option<&SourceFile> {
        self.files.get(id.0 as usize)
    }

    /// All files with their ids.
    pub fn files(&self) -> impl Iterator<Item = (FileId, &SourceFile)> {
        (0..).map(FileId).zip(&self.files)
    }

    /// Bytes of all files, each counted once.
    #[must_use]
    pub fn source_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    fn push_root(&mut self) {
        self.entries.push(Entry {
            path: Vec::new(),
            attributes: Attributes::new(0o755),
            kind: Kind::Directory,
        });
    }

    fn push_directory(&mut self, path: Vec<u8>, about: &Metadata) {
        self.directories.insert((about.dev(), about.ino()));
        self.entries.push(Entry {
            path,
            attributes: attributes(about),
            kind: Kind::Directory,
        });
    }

    /// One of several inputs. It may be named by a link.
    fn input(&mut self, input: &Path, name: Vec<u8>) -> Result<(), DatasetError> {
        if self.excluded.fit(&name) {
            return Ok(());
        }
        let about = fs::metadata(input).map_err(|e| DatasetError::io("reading", input, e))?;
        if about.is_dir() {
            self.push_directory(name.clone(), &about);
            return self.below(input, &name);
        }
        self.push_file(input, name, &about)
    }

    /// What is in the directory that the scan calls `prefix`.
    fn below(&mut self, folder: &Path, prefix: &[u8]) -> Result<(), DatasetError> {
        let mut left = vec![prefix.to_vec()];
        while let Some(directory) = left.pop() {
            let at = full(folder, directory.get(prefix.len()..).unwrap_or_default());
            let mut below = Vec::new();
            let names = match names_in(&at) {
                Ok(names) => names,
                Err(DatasetError::Io { error, .. }) if !directory.is_empty() => {
                    self.unfit.push(Unfit::unreadable(&at, &directory, &error));
                    continue;
                }
                Err(error) => return Err(error),
            };
            for name in names {
                let path = joined(&directory, &name);
                if self.look(&at.join(&name), path.clone())? {
                    below.push(path);
                }
            }
            left.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// Adds what is at `at`; whether it is a directory.
    fn look(&mut self, at: &Path, path: Vec<u8>) -> Result<bool, DatasetError> {
        if self.excluded.fit(&path) {
            return Ok(false);
        }
        if let Some(unfit) = Unfit::too_long(at, &path) {
            self.unfit.push(unfit);
            return Ok(false);
        }
        let failed = |error| DatasetError::io("reading", at, error);
        let about = fs::symlink_metadata(at).map_err(failed)?;
        if is_own(at, &path, &about)? {
            let shown = erofs::shown(&path);
            let why = "what the disk that this is a copy of says of itself; it is left out";
            self.notes.push(format!("{shown}: {why}"));
            return Ok(false);
        }
        self.lost.look(at, &path, &mut self.attribute_names);
        if about.is_dir() {
            self.push_directory(path, &about);
            return Ok(true);
        }
        if about.is_symlink() {
            let target = fs::read_link(at).map_err(failed)?;
            self.links.push((self.entries.len(), at.to_owned()));
            self.entries.push(Entry {
                path,
                attributes: attributes(&about),
                kind: Kind::Symlink {
                    target: target.into_os_string().into_vec(),
                    file: None,
                },
            });
            return Ok(false);
        }
        self.push_file(at, path, &about)?;
        Ok(false)
    }

    fn push_file(
        &mut self,
        at: &Path,
        path: Vec<u8>,
        about: &Metadata,
    ) -> Result<(), DatasetError> {
        if let Some(unfit) = Unfit::of(at, &path, about) {
            self.unfit.push(unfit);
            return Ok(());
        }
        let files = self.files.len();
        let file = self.file_id(at, about)?;
        if self.files.len() == files {
            self.lost.shares(&path, file, about);
        } else if path.ends_with(VOLUME_SUFFIX) && is_volume(at) {
            self.volumes.push(file);
        }
        self.entries.push(Entry {
            path,
            attributes: attributes(about),
            kind: Kind::File(file),
        });
        Ok(())
    }

    fn file_id(&mut self, at: &Path, about: &Metadata) -> Result<FileId, DatasetError> {
        if let Some(known) = self.known.get(&(about.dev(), about.ino())) {
            return Ok(*known);
        }
        let next = u32::try_from(self.files.len()).ok();
        let next =
            next.ok_or_else(|| DatasetError::refused(at.display(), "is one file too many"))?;
        self.files.push(SourceFile::new(at, about));
        self.known.insert((about.dev(), about.ino()), FileId(next));
        Ok(FileId(next))
    }
}

/// Whether it is what a disk says of itself that the inputs are a copy of: its folder with nothing else in it, or the file.
fn is_own(at: &Path, path: &[u8], about: &Metadata) -> Result<bool, DatasetError> {
    let is_manifest = |at: &Path| {
        let file = File::open(at).map(io::BufReader::new);
        file.is_ok_and(own::is_manifest)
    };
    Ok(match path {
        own::OWN_FOLDER if about.is_dir() => {
            let manifest = at.join(own::MANIFEST_NAME);
            let is_file = || fs::symlink_metadata(&manifest).is_ok_and(|about| about.is_file());
            names_in(at)? == [own::MANIFEST_NAME] && is_file() && is_manifest(&manifest)
        }
        own::MANIFEST => about.is_file() && is_manifest(at),
        _ => false,
    })
}

/// The file system's path of something found.
fn full(folder: &Path, below: &[u8]) -> PathBuf {
    let below = below.strip_prefix(b"/").unwrap_or(below);
    if below.is_empty() {
        return folder.to_owned();
    }
    folder.join(OsStr::from_bytes(below))
}

fn names_in(folder: &Path) -> Result<Vec<OsString>, DatasetError> {
    let mut names = fs::read_dir(folder)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.file_name()))
                .collect::<io::Result<Vec<_>>>()
        })
        .map_err(|error| DatasetError::io("reading", folder, error))?;
    names.sort_unstable();
    Ok(names)
}

/// Without symbolic links.
fn real(path: &Path) -> Result<PathBuf, DatasetError> {
    let real = path.canonicalize();
    real.map_err(|error| DatasetError::io("reading", path, error))
}

/// What an input is called in the root: `..` and `/` have no name of their own, their real paths do.
fn name_of(input: &Path) -> Result<Vec<u8>, DatasetError> {
    let name = |path: &Path| path.file_name().map(|name| name.as_bytes().to_vec());
    if let Some(name) = name(input) {
        return Ok(name);
    }
    name(&real(input)?).ok_or_else(|| DatasetError::refused(input.display(), "has no name"))
}

fn joined(directory: &[u8], name: &OsStr) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name.as_bytes());
    path
}

#[cfg(test)]
mod tests;
