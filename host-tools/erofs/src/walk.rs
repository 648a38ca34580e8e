//! Going through a whole disk.

use crate::entries::{Entries, Entry};
use crate::error::{ErofsError, Place};
use crate::image::{Image, Inode, Kind, ReadBlocks, corrupt};
use crate::limits::DEPTH_MAX;

/// What a walk comes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// From the root, its names separated by `/`, without one at the beginning.
    pub path: Vec<u8>,
    /// What lies there.
    pub inode: Inode,
}

/// Every file, directory and symbolic link but the root, a directory before what is in it, in the order of the names' bytes.
///
/// Contract: it ends on every disk. A directory is only gone into from the one that its `..` names, so there is no way round in a circle, and no
/// more is visited than the superblock counts inodes, which the disk's size bounds. Memory: a block for each directory above.
#[derive(Debug, Default)]
pub struct Walk {
    open: Vec<Open>,
    path: Vec<u8>,
    started: bool,
    visited: u64,
}

#[derive(Debug)]
struct Open {
    entries: Entries,
    nid: u64,
    /// Length of its own path.
    path_bytes: usize,
}

impl Walk {
    /// Before the first.
    #[must_use]
    pub fn new() -> Walk {
        Walk::default()
    }

    /// The next, or `None` after the last. After an error the walk is of no more use.
    ///
    /// # Errors
    /// What [`Image::inode`] and [`Entries::next`] say; an entry that is of another kind than its inode; more entries than inodes; more than
    /// 2,048 directories above each other.
    pub fn next<R: ReadBlocks>(
        &mut self,
        image: &mut Image<R>,
    ) -> Result<Option<Visit>, ErofsError> {
        if !self.started {
            let root = image.root()?;
            self.open(&root, root.nid)?;
            self.visited = 1;
            self.started = true;
        }
        while let Some(above) = self.open.last_mut() {
            self.path.truncate(above.path_bytes);
            let nid = above.nid;
            if let Some(entry) = above.entries.next(image)? {
                return self.visit(image, nid, &entry).map(Some);
            }
            self.open.pop();
        }
        Ok(None)
    }

    fn visit<R: ReadBlocks>(
        &mut self,
        image: &mut Image<R>,
        parent: u64,
        entry: &Entry,
    ) -> Result<Visit, ErofsError> {
        let place = Place::Inode(entry.nid);
        self.visited += 1;
        if self.visited > image.superblock().inodes {
            return Err(corrupt(
                place,
                "there are more names than the superblock counts inodes",
            ));
        }
        let inode = image.inode(entry.nid)?;
        if inode.kind != entry.kind {
            return Err(corrupt(
                place,
                "its directory says that it is something else",
            ));
        }
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&entry.name);
        if inode.kind == Kind::Directory {
            self.open(&inode, parent)?;
        }
        let path = self.path.clone();
        Ok(Visit { path, inode })
    }

    fn open(&mut self, directory: &Inode, parent: u64) -> Result<(), ErofsError> {
        if self.open.len() == DEPTH_MAX {
            let why = "more than 2048 directories lie above it";
            return Err(corrupt(Place::Inode(directory.nid), why));
        }
        self.open.push(Open {
            entries: Entries::new(directory, parent)?,
            nid: directory.nid,
            path_bytes: self.path.len(),
        });
        Ok(())
    }
}
