//! What is in the inputs: read once, and the same when it is read again, or the command fails.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use erofs::{Attributes, Time};
use formats::ByteSource;

use crate::{DatasetError, items, own};

/// A file of the scan, in the order in which they were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// A name in the scan.
#[derive(Debug, Clone)]
pub struct Entry {
    /// From the root on; the root itself has none. Any bytes but NUL.
    pub path: Vec<u8>,
    /// Mode, owner, time.
    pub attributes: Attributes,
    /// What it is.
    pub kind: Kind,
}

impl Entry {
    /// The last name of the path.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        items::split(&self.path).1
    }

    /// The path of the directory that it is in; empty for the root.
    #[must_use]
    pub fn parent(&self) -> &[u8] {
        items::split(&self.path).0
    }

    /// The path for people: what is not UTF-8 is replaced.
    #[must_use]
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// The file behind the name, also behind a link.
    #[must_use]
    pub fn file(&self) -> Option<FileId> {
        match self.kind {
            Kind::File(file) => Some(file),
            Kind::Symlink { file, .. } => file,
            Kind::Directory => None,
        }
    }
}

/// What there can be.
#[derive(Debug, Clone)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File(FileId),
    /// A symbolic link that stays one.
    Symlink {
        /// Where it points to.
        target: Vec<u8>,
        /// The file of the scan that it leads to, if it leads to one.
        file: Option<FileId>,
    },
}

impl Entry {
    /// Whether a link leads out of the disk, wherever that is mounted: by an absolute path, or by one above the root.
    fn leaves_the_disk(&self) -> bool {
        let Kind::Symlink { target, .. } = &self.kind else {
            return false;
        };
        let folders = self.parent().split(|&byte| byte == b'/');
        let mut depth = folders.filter(|name| !name.is_empty()).count();
        for name in target.split(|&byte| byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." if depth == 0 => return true,
                b".." => depth -= 1,
                _ => depth += 1,
            }
        }
        target.starts_with(b"/")
    }
}

/// A regular file of the scan. Hard links, and links from outside, are one file.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Its modification time.
    pub modified: Time,
    /// Where its bytes come from, where they are no input themselves.
    pub origin: Option<Origin>,
}

/// The input that a file was unzipped from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// What it is called, in the folder of the file.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Of its content.
    pub sha256: [u8; 32],
}

impl SourceFile {
    /// The file at `path`, as `about` describes it.
    #[must_use]
    pub fn new(path: &Path, about: &Metadata) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            bytes: about.len(),
            modified: modified(about),
            origin: None,
        }
    }

    /// A file at `path` that was made from an input.
    pub(crate) fn unzipped(path: &Path, origin: Origin) -> Result<SourceFile, DatasetError> {
        let about = fs::metadata(path).map_err(|e| DatasetError::io("reading", path, e))?;
        Ok(SourceFile {
            origin: Some(origin),
            ..SourceFile::new(path, &about)
        })
    }

    /// Opens it.
    ///
    /// # Errors
    /// [`DatasetError::Changed`] where it is not what it was; [`DatasetError::Io`].
    pub fn open(&self) -> Result<OpenFile<'_>, DatasetError> {
        let file =
            File::open(&self.path).map_err(|e| DatasetError::io("opening", &self.path, e))?;
        let open = OpenFile { file, source: self };
        open.check()?;
        Ok(open)
    }
}

/// A file of the scan that is open.
#[derive(Debug)]
pub struct OpenFile<'a> {
    /// For those that read it in other ways.
    pub file: File,
    source: &'a SourceFile,
}

impl OpenFile<'_> {
    /// Whether it is still what it was.
    ///
    /// # Errors
    /// As [`SourceFile::open`].
    pub fn check(&self) -> Result<(), DatasetError> {
        let path = &self.source.path;
        let about = self.file.metadata();
        let about = about.map_err(|error| DatasetError::io("reading", path, error))?;
        if about.len() == self.source.bytes && modified(&about) == self.source.modified {
            return Ok(());
        }
        Err(DatasetError::Changed { path: path.clone() })
    }
}

impl ByteSource for OpenFile<'_> {
    fn bytes(&self) -> u64 {
        self.source.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

/// Everything in the inputs.
#[derive(Debug, Default)]
pub struct Scan {
    /// The root first, directories before what is in them, in the order of the names' bytes.
    pub entries: Vec<Entry>,
    /// By [`FileId`].
    pub files: Vec<SourceFile>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// By device and inode.
    known: HashMap<(u64, u64), FileId>,
    directories: HashSet<(u64, u64)>,
    /// By place in `entries`: where each link is.
    links: Vec<(usize, PathBuf)>,
    /// Where the inputs really are, and what the scan calls them.
    tops: Vec<(PathBuf, Vec<u8>)>,
}

impl Scan {
    /// Reads the inputs. The contents of a folder that is the only one are the root; otherwise each input stands in the root, by its name.
    ///
    /// A link that leads to a file outside the inputs is that file. Other links stay what they are.
    ///
    /// # Errors
    /// [`DatasetError::Io`]; devices, pipes, sockets; two inputs of one name.
    pub fn new(inputs: &[PathBuf]) -> Result<Scan, DatasetError> {
        let mut scan = Scan::default();
        if let [only] = inputs
            && fs::metadata(only).is_ok_and(|about| about.is_dir())
        {
            let about = fs::metadata(only).map_err(|e| DatasetError::io("reading", only, e))?;
            scan.push_directory(Vec::new(), &about);
            scan.tops.push((real(only)?, Vec::new()));
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
                scan.tops.push((real(input)?, name.clone()));
                scan.input(input, name)?;
            }
        }
        scan.follow_links()?;
        Ok(scan)
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
            for name in names_in(&at)? {
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
        let failed = |error| DatasetError::io("reading", at, error);
        let about = fs::symlink_metadata(at).map_err(failed)?;
        if is_own(at, &path, &about)? {
            let shown = String::from_utf8_lossy(&path);
            let why = "what the disk that this is a copy of says of itself; it is left out";
            self.notes.push(format!("{shown}: {why}"));
            return Ok(false);
        }
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
        if !about.is_file() {
            let why = "is neither a file nor a folder nor a symbolic link; a disk holds no devices, pipes and sockets";
            return Err(DatasetError::refused(at.display(), why));
        }
        let file = self.file_id(at, about)?;
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

    /// Links that lead out become what they lead to, if that is a file; the others get to know their file.
    fn follow_links(&mut self) -> Result<(), DatasetError> {
        let inside = self.files.len();
        let mut taken = 0_u64;
        for (index, at) in std::mem::take(&mut self.links) {
            let about = fs::metadata(&at).ok();
            let known = about.as_ref().and_then(|about| {
                let place = (about.dev(), about.ino());
                let known = self.known.get(&place).copied();
                known.filter(|id| (id.0 as usize) < inside)
            });
            let leads_out = match &about {
                None => Some("leads nowhere"),
                Some(about) if about.is_dir() => {
                    let inside = self.directories.contains(&(about.dev(), about.ino()));
                    (!inside).then_some("leads to a folder that is not among the inputs")
                }
                Some(about) if about.is_file() => None,
                Some(_) => Some("leads to something that no disk holds"),
            };
            let outside = match about {
                Some(about) if known.is_none() && about.is_file() => Some(about),
                _ => None,
            };
            let followed = outside
                .map(|about| {
                    Ok::<_, DatasetError>((self.file_id(&real(&at)?, &about)?, attributes(&about)))
                })
                .transpose()?;
            let within = match (leads_out, &followed) {
                (None, None) => self.within(&real(&at)?),
                _ => None,
            };
            let Some(entry) = self.entries.get_mut(index) else {
                continue;
            };
            let shown = entry.shown();
            let leaves = entry.leaves_the_disk();
            let parent = entry.parent().to_vec();
            if let Some((file, attributes)) = followed {
                entry.kind = Kind::File(file);
                entry.attributes = attributes;
                taken += 1;
            } else if let Kind::Symlink { target, file } = &mut entry.kind {
                *file = known;
                if let Some(within) = within.filter(|_| leaves) {
                    let was = String::from_utf8_lossy(target).into_owned();
                    *target = relative(&parent, &within);
                    let now = String::from_utf8_lossy(target);
                    self.notes.push(format!(
                        "{shown}: a link to {was}, which would lead nowhere on the disk; it leads to {now} there"
                    ));
                }
            }
            if let Some(why) = leads_out {
                self.notes
                    .push(format!("{shown}: a link that {why}; it is kept as it is"));
            }
        }
        match taken {
            0 => {}
            1 => self.notes.push(
                "1 link leads to a file outside the inputs: the disk has that file".to_owned(),
            ),
            several => self.notes.push(format!(
                "{several} links lead to files outside the inputs: the disk has these files"
            )),
        }
        Ok(())
    }

    /// What the scan calls something, by where it really is.
    fn within(&self, real: &Path) -> Option<Vec<u8>> {
        self.tops.iter().find_map(|(top, name)| {
            let below = real.strip_prefix(top).ok()?;
            Some(match below.as_os_str() {
                below if below.is_empty() => name.clone(),
                below => joined(name, below),
            })
        })
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

/// The way from a directory to something, both from the root on.
fn relative(directory: &[u8], to: &[u8]) -> Vec<u8> {
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&byte| byte == b'/');
        names
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect()
    };
    let (from, to) = (names(directory), names(to));
    let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from.iter().skip(same).map(|_| b"..".to_vec());
    let way: Vec<Vec<u8>> = up.chain(to.into_iter().skip(same)).collect();
    match way.as_slice() {
        [] => b".".to_vec(),
        way => way.join(&b'/'),
    }
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

fn attributes(about: &Metadata) -> Attributes {
    Attributes {
        // The mask leaves 12 bits.
        permissions: u16::try_from(about.mode() & 0o7777).unwrap_or_default(),
        uid: about.uid(),
        gid: about.gid(),
        modified: modified(about),
    }
}

fn modified(about: &Metadata) -> Time {
    Time {
        seconds: about.mtime(),
        // Below 10^9.
        nanoseconds: u32::try_from(about.mtime_nsec()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn paths(scan: &Scan) -> Vec<String> {
        scan.entries.iter().map(Entry::shown).collect()
    }

    #[test]
    fn the_contents_of_a_single_folder_are_the_root() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("b")).unwrap();
        fs::write(folder.path().join("b/x"), "12").unwrap();
        fs::write(folder.path().join("a"), "1").unwrap();
        fs::hard_link(folder.path().join("a"), folder.path().join("c")).unwrap();
        let scan = Scan::new(&[folder.path().to_owned()]).unwrap();
        assert_eq!(paths(&scan), ["", "a", "b", "c", "b/x"]);
        assert_eq!(scan.files.len(), 2);
        assert_eq!(scan.entries[1].file(), scan.entries[3].file());
        assert_eq!(scan.source_bytes(), 3);
        assert_eq!(scan.entries[4].parent(), b"b");
        assert_eq!(scan.entries[4].name(), b"x");
    }

    #[test]
    fn several_inputs_stand_in_the_root_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("z/inner")).unwrap();
        fs::write(at("z/inner/x"), "1").unwrap();
        fs::write(at("t.bin"), "1").unwrap();
        let scan = Scan::new(&[at("z"), at("t.bin")]).unwrap();
        assert_eq!(paths(&scan), ["", "t.bin", "z", "z/inner", "z/inner/x"]);
        let twice = Scan::new(&[at("t.bin"), at("z/../t.bin")]).unwrap_err();
        assert!(twice.to_string().ends_with("have the same name"), "{twice}");
        let alone = Scan::new(&[at("t.bin")]).unwrap();
        assert_eq!(paths(&alone), ["", "t.bin"]);
    }

    #[test]
    fn links_that_lead_out_are_followed_and_others_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("in/sub")).unwrap();
        fs::create_dir(at("out")).unwrap();
        fs::write(at("out/blob"), "blob").unwrap();
        fs::write(at("in/file"), "x").unwrap();
        symlink("../out/blob", at("in/followed")).unwrap();
        symlink(at("out/blob"), at("in/sub/again")).unwrap();
        symlink("file", at("in/kept")).unwrap();
        symlink("sub", at("in/to-sub")).unwrap();
        symlink("nowhere", at("in/dangling")).unwrap();
        symlink("../out", at("in/to-out")).unwrap();
        symlink(at("in/sub"), at("in/absolute")).unwrap();
        symlink("sub/../../in/file", at("in/above")).unwrap();
        symlink("../file", at("in/sub/inside")).unwrap();
        let scan = Scan::new(&[at("in")]).unwrap();
        let kind = |name: &str| {
            let entry = scan.entries.iter().find(|e| e.path == name.as_bytes());
            entry.unwrap().kind.clone()
        };
        let Kind::File(blob) = kind("followed") else {
            panic!("{:?}", kind("followed"));
        };
        assert_eq!(scan.file(blob).unwrap().bytes, 4);
        assert!(matches!(kind("sub/again"), Kind::File(id) if id == blob));
        let Kind::File(file) = kind("file") else {
            panic!("{:?}", kind("file"));
        };
        assert!(matches!(kind("kept"), Kind::Symlink { file: Some(id), .. } if id == file));
        for name in ["to-sub", "dangling", "to-out"] {
            assert!(
                matches!(kind(name), Kind::Symlink { file: None, .. }),
                "{name}"
            );
        }
        let noted: Vec<_> = scan.notes.iter().map(String::as_str).collect();
        let whole = at("in/sub").display().to_string();
        let nowhere = "which would lead nowhere on the disk; it leads to";
        assert_eq!(
            noted,
            [
                &format!("above: a link to sub/../../in/file, {nowhere} file there"),
                &format!("absolute: a link to {whole}, {nowhere} sub there"),
                "dangling: a link that leads nowhere; it is kept as it is",
                "to-out: a link that leads to a folder that is not among the inputs; it is kept as it is",
                "2 links lead to files outside the inputs: the disk has these files",
            ]
        );
    }

    #[test]
    fn links_inside_lead_there_on_the_disk_too() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("in/sub/deep")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("in/sub/file"), "x").unwrap();
        fs::write(at("other/file"), "y").unwrap();
        symlink(at("in/sub/file"), at("in/absolute")).unwrap();
        symlink(at("in/sub"), at("in/sub/deep/folder")).unwrap();
        symlink("../../../in/sub/file", at("in/sub/deep/above")).unwrap();
        symlink("../file", at("in/sub/deep/plain")).unwrap();
        symlink(at("in"), at("in/root")).unwrap();
        symlink(at("other/file"), at("in/sub/elsewhere")).unwrap();
        let targets = |scan: &Scan, names: &[&str]| -> Vec<String> {
            let of = |name: &&str| {
                let entry = scan.entries.iter().find(|it| it.path == name.as_bytes());
                match &entry.unwrap().kind {
                    Kind::Symlink { target, .. } => String::from_utf8(target.clone()).unwrap(),
                    other => format!("{other:?}"),
                }
            };
            names.iter().map(of).collect()
        };
        let names = [
            "absolute",
            "sub/deep/folder",
            "sub/deep/above",
            "sub/deep/plain",
            "root",
        ];
        let scan = Scan::new(&[at("in")]).unwrap();
        let expected = ["sub/file", "..", "../file", "../file", "."];
        assert_eq!(targets(&scan, &names), expected);
        // One for each that leads elsewhere now, and one for what was outside.
        assert_eq!(scan.notes.len(), 5, "{:?}", scan.notes);
        let note = format!(
            "absolute: a link to {}, which would lead nowhere on the disk; it leads to sub/file there",
            at("in/sub/file").display()
        );
        assert_eq!(scan.notes[0], note);
        // What is outside of one input is inside of two.
        let scan = Scan::new(&[at("in"), at("other")]).unwrap();
        let names = [
            "in/absolute",
            "in/sub/deep/above",
            "in/sub/elsewhere",
            "in/root",
        ];
        let expected = ["sub/file", "../../../in/sub/file", "../../other/file", "."];
        assert_eq!(targets(&scan, &names), expected);
    }

    #[test]
    fn a_copy_of_a_disk_does_not_bring_what_that_says_of_itself() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let ours = br#"{"sources": [], "xio_manifest": 1}"#;
        fs::create_dir_all(at(".xio")).unwrap();
        fs::create_dir_all(at("deep/.xio")).unwrap();
        for name in [".xio/manifest.json", "deep/.xio/manifest.json"] {
            fs::write(at(name), ours).unwrap();
        }
        let scan = || Scan::new(&[folder.path().to_owned()]).unwrap();
        let note = "what the disk that this is a copy of says of itself; it is left out";
        let found = scan();
        assert_eq!(
            paths(&found),
            ["", "deep", "deep/.xio", "deep/.xio/manifest.json"]
        );
        assert_eq!(found.notes, [format!(".xio: {note}")]);
        assert_eq!(found.files.len(), 1);
        // A user's file beside it stays.
        fs::write(at(".xio/mine"), "words").unwrap();
        let found = scan();
        assert_eq!(paths(&found)[..3], ["", ".xio", "deep"]);
        assert_eq!(paths(&found)[3], ".xio/mine");
        assert_eq!(found.notes, [format!(".xio/manifest.json: {note}")]);
        // So does one that is called as ours is.
        fs::write(at(".xio/manifest.json"), "{\"name\": 5}").unwrap();
        fs::remove_file(at(".xio/mine")).unwrap();
        let found = scan();
        assert_eq!(paths(&found)[3], ".xio/manifest.json");
        assert!(found.notes.is_empty());
    }

    #[test]
    fn what_no_disk_holds_is_named_and_what_changed_too() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let refused = Scan::new(&[folder.path().to_owned()]).unwrap_err();
        assert!(
            refused.to_string().contains("socket is neither"),
            "{refused}"
        );
        fs::write(at("file"), "1").unwrap();
        let scan = Scan::new(&[at("file")]).unwrap();
        scan.files[0].open().unwrap();
        fs::write(at("file"), "12").unwrap();
        let changed = scan.files[0].open().unwrap_err();
        assert!(matches!(changed, DatasetError::Changed { .. }), "{changed}");
    }
}
