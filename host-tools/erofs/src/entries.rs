//! Reading a directory, block by block.

use crate::directory_block::DirectoryBlock;
use crate::error::{ErofsError, Place, shown};
use crate::image::{Image, Inode, Kind, ReadBlocks, corrupt};
use crate::raw::{RawDirent, TYPE_DIRECTORY};

/// One entry of a directory; [`Entries`] gives none for `.` and `..`.
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
    parent: u64,
    directory: Inode,
    block: DirectoryBlock,
    /// The block to be loaded next.
    next_block: u64,
    /// The next entry of the held block.
    next: usize,
    last_name: Vec<u8>,
    dots: [bool; 2],
}

impl Entries {
    /// Begins with the directory `directory`, which was found in the directory with number `parent`: the root in itself.
    ///
    /// # Errors
    /// It is no directory.
    pub fn new(directory: &Inode, parent: u64) -> Result<Entries, ErofsError> {
        require_directory(directory)?;
        Ok(Entries {
            parent,
            directory: *directory,
            block: DirectoryBlock::new(directory.nid),
            next_block: 0,
            next: 0,
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
            if self.next == self.block.count() && !self.load(image)? {
                return if self.dots == [true; 2] {
                    Ok(None)
                } else {
                    let place = Place::Inode(self.directory.nid);
                    Err(corrupt(place, "it has no '.' or no '..'"))
                };
            }
            let (dirent, name) = self.block.entry(self.next)?;
            self.next += 1;
            if name <= self.last_name.as_slice() {
                let (last, name) = (shown(&self.last_name), shown(name));
                let why = format!("\"{name}\" comes after \"{last}\"");
                return Err(self.block.bad(why));
            }
            self.last_name.clear();
            self.last_name.extend_from_slice(name);
            match name {
                b"." => self.check_dots(0, &dirent, self.directory.nid)?,
                b".." => self.check_dots(1, &dirent, self.parent)?,
                _ => return self.block.finish(&dirent, name).map(Some),
            }
        }
    }

    /// Reads the next block. False: there is none.
    fn load<R: ReadBlocks>(&mut self, image: &mut Image<R>) -> Result<bool, ErofsError> {
        self.next = 0;
        let loaded = self.block.load(image, &self.directory, self.next_block)?;
        self.next_block += u64::from(loaded);
        Ok(loaded)
    }

    fn check_dots(&mut self, which: usize, dirent: &RawDirent, nid: u64) -> Result<(), ErofsError> {
        let found = dirent.nid.get();
        if found != nid || dirent.file_type != TYPE_DIRECTORY {
            let name = [".", ".."][which];
            let why = format!("'{name}' is inode {found}, and should be {nid}");
            return Err(self.block.bad(why));
        }
        self.dots[which] = true;
        Ok(())
    }
}

pub(crate) fn require_directory(inode: &Inode) -> Result<(), ErofsError> {
    if inode.kind == Kind::Directory {
        return Ok(());
    }
    Err(corrupt(Place::Inode(inode.nid), "it is not a directory"))
}
