//! Reading a directory, block by block.

use zerocopy::FromBytes;

use crate::error::{ErofsError, Place, shown};
use crate::image::{Image, Inode, Kind, ReadBlocks, corrupt};
use crate::limits::{BLOCK_BYTES, NAME_BYTES_MAX};
use crate::raw::{Block, DIRENT_BYTES, RawDirent, TYPE_DIRECTORY, TYPE_FILE, TYPE_SYMLINK};

/// One entry of a directory; never `.` or `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its bytes.
    pub name: Vec<u8>,
    /// Number of its inode.
    pub nid: u64,
    /// What that inode must be.
    pub kind: Kind,
}

/// A directory that is being read: its entries in the order of their names' bytes.
///
/// It is checked that names are such as Linux has them, sorted and each there once, and that `.` and `..` lead where they must. Memory: one block.
#[derive(Debug)]
pub struct Entries {
    nid: u64,
    parent: u64,
    directory: Inode,
    /// Which block of the directory is held, and what there is of it.
    index: u64,
    block: Box<Block>,
    used: usize,
    /// The next entry of the held block, and how many that block has.
    next: usize,
    count: usize,
    last_name: Vec<u8>,
    dots: [bool; 2],
}

impl Entries {
    /// Begins with the directory `directory`, which was found in the directory with number `parent`: the root in itself.
    ///
    /// # Errors
    /// It is no directory.
    pub fn new(directory: &Inode, parent: u64) -> Result<Entries, ErofsError> {
        if directory.kind != Kind::Directory {
            return Err(corrupt(
                Place::Inode(directory.nid),
                "it is not a directory",
            ));
        }
        Ok(Entries {
            nid: directory.nid,
            parent,
            directory: *directory,
            index: 0,
            block: Box::new([0; BLOCK_BYTES]),
            used: 0,
            next: 0,
            count: 0,
            last_name: Vec::new(),
            dots: [false; 2],
        })
    }

    /// The next entry, or `None` after the last.
    ///
    /// # Errors
    /// A block that cannot be read, or one that is not as a directory's must be.
    pub fn next<R: ReadBlocks>(
        &mut self,
        image: &mut Image<R>,
    ) -> Result<Option<Entry>, ErofsError> {
        loop {
            if self.next == self.count && !self.load(image)? {
                return if self.dots == [true; 2] {
                    Ok(None)
                } else {
                    Err(corrupt(Place::Inode(self.nid), "it has no '.' or no '..'"))
                };
            }
            let (dirent, name) = self.entry(self.next)?;
            self.next += 1;
            self.check_order(&name)?;
            match name.as_slice() {
                b"." => self.check_dots(0, &dirent, self.nid)?,
                b".." => self.check_dots(1, &dirent, self.parent)?,
                _ => return self.finish(&dirent, name).map(Some),
            }
        }
    }

    /// Reads the next block. False: there is none.
    fn load<R: ReadBlocks>(&mut self, image: &mut Image<R>) -> Result<bool, ErofsError> {
        // `used` is 0 before the first block alone.
        self.index += u64::from(self.used > 0);
        let from = self.index * BLOCK_BYTES as u64;
        if from >= self.directory.bytes {
            return Ok(false);
        }
        self.used = image.read(&self.directory, from, &mut self.block[..])?;
        let first = self.dirent(0)?;
        let names_at = usize::from(first.name_offset.get());
        if names_at == 0 || !names_at.is_multiple_of(DIRENT_BYTES) || names_at >= self.used {
            return Err(self.bad(format!("its first name is said to be at byte {names_at}")));
        }
        self.next = 0;
        self.count = names_at / DIRENT_BYTES;
        Ok(true)
    }

    fn dirent(&self, index: usize) -> Result<RawDirent, ErofsError> {
        let bytes = self.block.get(..self.used).unwrap_or_default();
        let bytes = bytes.get(index * DIRENT_BYTES..).unwrap_or_default();
        let read = RawDirent::read_from_prefix(bytes);
        read.map(|(dirent, _)| dirent)
            .map_err(|_| self.bad(format!("entry {index} is cut off")))
    }

    fn entry(&self, index: usize) -> Result<(RawDirent, Vec<u8>), ErofsError> {
        let dirent = self.dirent(index)?;
        let start = usize::from(dirent.name_offset.get());
        let bytes = self.block.get(..self.used).unwrap_or_default();
        let name = if index + 1 < self.count {
            let end = usize::from(self.dirent(index + 1)?.name_offset.get());
            bytes.get(start..end)
        } else {
            // The last name ends with the block, or before its first NUL.
            let rest = bytes.get(start..).unwrap_or_default();
            rest.split(|&byte| byte == 0).next()
        };
        let name = name.filter(|_| start >= self.count * DIRENT_BYTES);
        let name =
            name.ok_or_else(|| self.bad(format!("the name of entry {index} is not in it")))?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(self.bad(format!(
                "the name of entry {index} has {} bytes",
                name.len()
            )));
        }
        if name.iter().any(|&byte| matches!(byte, b'/' | 0)) {
            return Err(self.bad(format!(
                "the name \"{}\" has a '/' or NUL in it",
                shown(name)
            )));
        }
        Ok((dirent, name.to_vec()))
    }

    fn check_order(&mut self, name: &[u8]) -> Result<(), ErofsError> {
        if name <= self.last_name.as_slice() {
            let (last, name) = (shown(&self.last_name), shown(name));
            return Err(self.bad(format!("\"{name}\" comes after \"{last}\"")));
        }
        self.last_name.clear();
        self.last_name.extend_from_slice(name);
        Ok(())
    }

    fn check_dots(&mut self, which: usize, dirent: &RawDirent, nid: u64) -> Result<(), ErofsError> {
        let found = dirent.nid.get();
        if found != nid || dirent.file_type != TYPE_DIRECTORY {
            let name = [".", ".."][which];
            return Err(self.bad(format!("'{name}' is inode {found}, and should be {nid}")));
        }
        self.dots[which] = true;
        Ok(())
    }

    fn finish(&self, dirent: &RawDirent, name: Vec<u8>) -> Result<Entry, ErofsError> {
        let kind = match dirent.file_type {
            TYPE_FILE => Kind::File,
            TYPE_DIRECTORY => Kind::Directory,
            TYPE_SYMLINK => Kind::Symlink,
            other => return Err(self.bad(format!("\"{}\" is of type {other}", shown(&name)))),
        };
        let nid = dirent.nid.get();
        Ok(Entry { name, nid, kind })
    }

    fn bad(&self, why: String) -> ErofsError {
        let (nid, block) = (self.nid, self.index);
        corrupt(Place::Directory { nid, block }, why)
    }
}
