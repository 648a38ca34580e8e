//! Names and inodes, as the kernel asks for them.

use std::sync::{Arc, Mutex, PoisonError};

use erofs::limits::BLOCK_BYTES;
use erofs::{Attributes, ErofsError, Image, Inode, Kind, Place, Position, Walk};

use crate::error::MountError;
use crate::flat::FlatFiles;
use crate::limits::NAMES_SEARCHED_MAX;
use crate::medium::{Medium, ReadFailure};
use crate::metadata_cache::MetadataCache;
use crate::on_disk::{Filesystem, Found, OnDisk};

/// The root's inode number on a FUSE mount.
pub(crate) const ROOT: u64 = 1;

/// A disk without a filesystem, as one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneFile {
    /// Its name; what no file can be called is replaced.
    pub name: Vec<u8>,
    /// Its mode, owner and time.
    pub attributes: Attributes,
}

/// What is mounted.
pub struct Content {
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) files: Files,
    /// What a person should know of the disk.
    pub note: Option<String>,
}

/// What a disk turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKind<'a> {
    /// A filesystem with so many files, folders and links, the root too.
    Filesystem(u64),
    /// A partition table with so many partitions, each of which is a file.
    Partitions(usize),
    /// Neither: one file with this name.
    OneFile(&'a [u8]),
}

impl Content {
    /// Looks what is on a disk: an EROFS, partitions, or bytes, which are presented as `otherwise`. Partitions have its attributes.
    ///
    /// # Errors
    /// As [`OnDisk::look`].
    pub fn of(medium: Arc<dyn Medium>, otherwise: OneFile) -> Result<Content, MountError> {
        let Found { on_disk, note } = OnDisk::look(&medium)?;
        let files = match on_disk {
            OnDisk::Filesystem(Filesystem {
                mut image,
                medium,
                first_byte: _,
            }) => {
                let root = image.root()?.nid;
                let files = Files::Disk(Box::new(DiskFiles {
                    root,
                    image,
                    spare: Mutex::default(),
                }));
                return Ok(Content {
                    medium,
                    files,
                    note,
                });
            }
            OnDisk::Partitions(list) => Files::Partitions(
                FlatFiles::partitions(&list, otherwise.attributes),
                list.len(),
            ),
            OnDisk::Bytes => {
                let name = file_name(&otherwise.name);
                let flat = FlatFiles::one(name.clone(), medium.bytes(), otherwise.attributes);
                Files::One(flat, name)
            }
        };
        Ok(Content {
            medium,
            files,
            note,
        })
    }

    /// What it turned out to be.
    #[must_use]
    pub fn kind(&self) -> ContentKind<'_> {
        match &self.files {
            Files::Disk(_) => ContentKind::Filesystem(self.files.inodes()),
            Files::Partitions(_, count) => ContentKind::Partitions(*count),
            Files::One(_, name) => ContentKind::OneFile(name),
        }
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content: {:?}", self.kind())
    }
}

/// A name that a file can have.
fn file_name(name: &[u8]) -> Vec<u8> {
    let mut name: Vec<u8> = name.iter().take(255).copied().collect();
    for byte in &mut name {
        if matches!(byte, b'/' | 0) {
            *byte = b'_';
        }
    }
    match name.as_slice() {
        b"" | b"." | b".." => b"data".to_vec(),
        _ => name,
    }
}

/// An inode as FUSE numbers it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub number: u64,
    pub kind: Kind,
    pub attributes: Attributes,
    pub links: u32,
    pub bytes: u64,
}

/// An entry of a folder, and where the next one begins.
pub(crate) struct Listed<'a> {
    pub name: &'a [u8],
    pub number: u64,
    pub kind: Kind,
    pub next: u64,
}

/// Bytes of a file that lie in a row on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub at: u64,
    pub bytes: usize,
}

pub(crate) enum Files {
    Disk(Box<DiskFiles>),
    /// With their number.
    Partitions(FlatFiles, usize),
    /// With its name.
    One(FlatFiles, Vec<u8>),
}

impl Files {
    pub(crate) fn node(&self, number: u64) -> Result<Node, ErofsError> {
        match self {
            Files::Disk(disk) => {
                disk.with(|image| image.inode(disk.nid(number)).map(|inode| disk.node(&inode)))
            }
            Files::Partitions(flat, _) | Files::One(flat, _) => {
                flat.node(number).ok_or_else(|| no_inode(number))
            }
        }
    }

    /// What is called `name` in the folder `parent`, or `None`.
    pub(crate) fn find(&self, parent: u64, name: &[u8]) -> Result<Option<Node>, ErofsError> {
        let disk = match self {
            Files::Disk(disk) => disk,
            Files::Partitions(flat, _) | Files::One(flat, _) => return Ok(flat.find(parent, name)),
        };
        disk.with(|image| {
            let directory = image.inode(disk.nid(parent))?;
            let Some(entry) = image.find(&directory, name)? else {
                return Ok(None);
            };
            disk.of_entry(image, &entry).map(Some)
        })
    }

    /// Calls `visit` for the entries from `at` on until it says false. With `nodes`, each comes with its inode.
    pub(crate) fn list(
        &self,
        folder: u64,
        at: u64,
        nodes: bool,
        mut visit: impl FnMut(&Listed<'_>, Option<&Node>) -> bool,
    ) -> Result<(), ErofsError> {
        let disk = match self {
            Files::Disk(disk) => disk,
            Files::Partitions(flat, _) | Files::One(flat, _) => {
                flat.list(folder, at, nodes, visit);
                return Ok(());
            }
        };
        disk.with(|image| {
            let directory = image.inode(disk.nid(folder))?;
            image.entries_from(&directory, position(at), |image, entry, next| {
                let node = match nodes {
                    true => Some(disk.of_entry(image, &entry)?),
                    false => None,
                };
                let listed = Listed {
                    name: &entry.name,
                    number: disk.number(entry.nid),
                    kind: entry.kind,
                    next: cookie(next),
                };
                Ok(visit(&listed, node.as_ref()))
            })
        })
    }

    /// Where a symbolic link leads.
    pub(crate) fn target(&self, number: u64) -> Result<Vec<u8>, ErofsError> {
        match self {
            Files::Disk(disk) => disk.with(|image| {
                let inode = image.inode(disk.nid(number))?;
                image.target(&inode)
            }),
            Files::Partitions(..) | Files::One(..) => Err(no_inode(number)),
        }
    }

    /// Where up to `bytes` bytes of a file from byte `from` on lie: fewer at its end.
    pub(crate) fn locate(
        &self,
        number: u64,
        (from, bytes): (u64, usize),
    ) -> Result<[Run; 2], ErofsError> {
        let disk = match self {
            Files::Disk(disk) => disk,
            Files::Partitions(flat, _) | Files::One(flat, _) => {
                let run = flat.locate(number, from, bytes);
                let run = run.ok_or_else(|| no_inode(number))?;
                return Ok([run, Run { at: 0, bytes: 0 }]);
            }
        };
        let inode = disk.with(|image| image.inode(disk.nid(number)))?;
        if inode.kind != Kind::File {
            return Err(no_inode(number));
        }
        let payload = inode.payload;
        let blocks = u64::from(payload.first_block) * BLOCK_BYTES as u64;
        let first = part((blocks, payload.bytes), from, bytes);
        let behind = from.saturating_sub(payload.bytes);
        let tail = (payload.tail_offset, payload.tail_bytes as u64);
        Ok([first, part(tail, behind, bytes - first.bytes)])
    }

    pub(crate) fn inodes(&self) -> u64 {
        match self {
            Files::Disk(disk) => disk.image.superblock().inodes,
            Files::Partitions(flat, _) | Files::One(flat, _) => flat.inodes(),
        }
    }

    /// Blocks of the disk, of 4 KiB.
    pub(crate) fn blocks(&self, medium: &dyn Medium) -> u64 {
        match self {
            Files::Disk(disk) => disk.image.superblock().blocks.into(),
            Files::Partitions(..) | Files::One(..) => medium.bytes().div_ceil(BLOCK_BYTES as u64),
        }
    }

    /// What a file is called, for people.
    pub(crate) fn path(&self, number: u64) -> String {
        let path = match self {
            Files::Disk(disk) => disk.path(disk.nid(number)),
            Files::Partitions(flat, _) | Files::One(flat, _) => flat.path(number),
        };
        match path {
            Some(path) => erofs::shown(&path),
            None => format!("inode {number}"),
        }
    }
}

/// What of `bytes` bytes from `from` on there is in `run`.
pub(crate) fn part((at, run_bytes): (u64, u64), from: u64, bytes: usize) -> Run {
    let left = run_bytes.saturating_sub(from);
    Run {
        at: at.saturating_add(from),
        bytes: usize::try_from(left).map_or(bytes, |left| left.min(bytes)),
    }
}

fn no_inode(number: u64) -> ErofsError {
    ErofsError::Corrupt {
        place: Place::Inode(number),
        why: "it is of another kind".to_owned(),
    }
}

/// A place in a folder as a number that is not 0, which is the beginning; a block has fewer than 512 entries.
fn cookie(at: Position) -> u64 {
    (at.block << 9 | u64::from(at.slot)) + 1
}

fn position(cookie: u64) -> Position {
    let at = cookie.saturating_sub(1);
    Position {
        block: at >> 9,
        slot: u16::try_from(at & 511).unwrap_or(0),
    }
}

/// An EROFS that several threads look into.
pub(crate) struct DiskFiles {
    root: u64,
    /// What the others are cloned from.
    image: Image<MetadataCache>,
    spare: Mutex<Vec<Image<MetadataCache>>>,
}

impl DiskFiles {
    fn with<T>(
        &self,
        work: impl FnOnce(&mut Image<MetadataCache>) -> Result<T, ErofsError>,
    ) -> Result<T, ErofsError> {
        let lock = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = lock().pop();
        let mut image = spare.unwrap_or_else(|| self.image.clone());
        let result = work(&mut image);
        lock().push(image);
        result
    }

    /// Numbers 0 and 1 are FUSE's.
    fn number(&self, nid: u64) -> u64 {
        if nid == self.root {
            return ROOT;
        }
        nid.saturating_add(2)
    }

    fn nid(&self, number: u64) -> u64 {
        if number == ROOT {
            return self.root;
        }
        number.saturating_sub(2)
    }

    fn node(&self, inode: &Inode) -> Node {
        Node {
            number: self.number(inode.nid),
            kind: inode.kind,
            attributes: inode.attributes,
            links: inode.links,
            bytes: inode.bytes,
        }
    }

    fn of_entry(
        &self,
        image: &mut Image<MetadataCache>,
        entry: &erofs::Entry,
    ) -> Result<Node, ErofsError> {
        let inode = image.inode(entry.nid)?;
        if inode.kind == entry.kind {
            return Ok(self.node(&inode));
        }
        Err(ErofsError::Corrupt {
            place: Place::Inode(entry.nid),
            why: "its directory says that it is something else".to_owned(),
        })
    }

    /// By going through the names, as only a complaint needs it.
    fn path(&self, nid: u64) -> Option<Vec<u8>> {
        let found = self.with(|image| {
            let mut walk = Walk::new();
            for _ in 0..NAMES_SEARCHED_MAX {
                match walk.next(image)? {
                    Some(visit) if visit.inode.nid == nid => return Ok(Some(visit.path)),
                    Some(_) => {}
                    None => break,
                }
            }
            Ok(None)
        });
        found.ok().flatten()
    }
}

impl From<ErofsError> for ReadFailure {
    fn from(error: ErofsError) -> ReadFailure {
        ReadFailure {
            why: error.to_string(),
            is_damage: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_folder_is_a_number_and_back() {
        assert_eq!(position(0), Position::default());
        for at in [(0, 0), (0, 341), (1, 0), (77_777, 5), (u64::MAX >> 10, 1)] {
            let (block, slot) = at;
            let at = Position { block, slot };
            assert_eq!(position(cookie(at)), at);
            assert_ne!(cookie(at), 0);
        }
    }

    #[test]
    fn a_view_of_any_name_is_a_file() {
        for (name, file) in [
            (&b"tokens.bin"[..], &b"tokens.bin"[..]),
            (b"a/b\0c", b"a_b_c"),
            (b"", b"data"),
            (b"..", b"data"),
            (b"\xff", b"\xff"),
        ] {
            assert_eq!(file_name(name), file);
        }
        assert_eq!(file_name(&[b'x'; 300]).len(), 255);
    }

    #[test]
    fn a_part_ends_where_its_run_ends() {
        let run = (4096, 100);
        assert_eq!(
            part(run, 0, 10),
            Run {
                at: 4096,
                bytes: 10
            }
        );
        assert_eq!(part(run, 95, 10), Run { at: 4191, bytes: 5 });
        assert_eq!(part(run, 200, 10).bytes, 0);
        assert_eq!(part(run, u64::MAX, 10).bytes, 0);
    }
}
