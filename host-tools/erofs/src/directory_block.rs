//! One block of a directory that nobody vouches for: its entries, each checked before it is handed out.

use zerocopy::FromBytes;

use crate::entries::Entry;
use crate::error::{ErofsError, Place, shown};
use crate::image::{Image, Inode, Kind, ReadBlocks, corrupt};
use crate::limits::{BLOCK_BYTES, NAME_BYTES_MAX};
use crate::raw::{Block, DIRENT_BYTES, RawDirent, TYPE_DIRECTORY, TYPE_FILE, TYPE_SYMLINK};

/// A block that is held. Before the first is loaded it has no entries.
#[derive(Debug)]
pub(crate) struct DirectoryBlock {
    /// The directory's inode.
    nid: u64,
    /// Which of its blocks.
    index: u64,
    bytes: Box<Block>,
    used: usize,
    count: usize,
}

impl DirectoryBlock {
    pub(crate) fn new(nid: u64) -> DirectoryBlock {
        DirectoryBlock {
            nid,
            index: 0,
            bytes: Box::new([0; BLOCK_BYTES]),
            used: 0,
            count: 0,
        }
    }

    /// Reads block `index` of `directory`. False: it has no such block.
    pub(crate) fn load<R: ReadBlocks>(
        &mut self,
        image: &mut Image<R>,
        directory: &Inode,
        index: u64,
    ) -> Result<bool, ErofsError> {
        self.index = index;
        self.count = 0;
        let from = index.checked_mul(BLOCK_BYTES as u64);
        let Some(from) = from.filter(|&from| from < directory.bytes) else {
            return Ok(false);
        };
        self.used = image.read(directory, from, &mut self.bytes[..])?;
        let first = self.dirent(0)?;
        let names_at = usize::from(first.name_offset.get());
        if names_at == 0 || !names_at.is_multiple_of(DIRENT_BYTES) || names_at >= self.used {
            return Err(self.bad(format!("its first name is said to be at byte {names_at}")));
        }
        self.count = names_at / DIRENT_BYTES;
        Ok(true)
    }

    /// Entries of the block; at least 1 once it is loaded.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn dirent(&self, slot: usize) -> Result<RawDirent, ErofsError> {
        let bytes = self.bytes.get(..self.used).unwrap_or_default();
        let bytes = bytes.get(slot * DIRENT_BYTES..).unwrap_or_default();
        let read = RawDirent::read_from_prefix(bytes);
        read.map(|(dirent, _)| dirent)
            .map_err(|_| self.bad(format!("entry {slot} is cut off")))
    }

    /// An entry and its name, which is one that Linux has.
    pub(crate) fn entry(&self, slot: usize) -> Result<(RawDirent, &[u8]), ErofsError> {
        let dirent = self.dirent(slot)?;
        let start = usize::from(dirent.name_offset.get());
        let bytes = self.bytes.get(..self.used).unwrap_or_default();
        let name = if slot + 1 < self.count {
            let end = usize::from(self.dirent(slot + 1)?.name_offset.get());
            bytes.get(start..end)
        } else {
            // The last name ends with the block, or before its first NUL.
            let rest = bytes.get(start..).unwrap_or_default();
            rest.split(|&byte| byte == 0).next()
        };
        let name = name.filter(|_| start >= self.count * DIRENT_BYTES);
        let name =
            name.ok_or_else(|| self.bad(format!("the name of entry {slot} is not in it")))?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let bytes = name.len();
            return Err(self.bad(format!("the name of entry {slot} has {bytes} bytes")));
        }
        if name.iter().any(|&byte| matches!(byte, b'/' | 0)) {
            let name = shown(name);
            return Err(self.bad(format!("the name \"{name}\" has a '/' or NUL in it")));
        }
        Ok((dirent, name))
    }

    /// An entry as others see it.
    pub(crate) fn finish(&self, dirent: &RawDirent, name: &[u8]) -> Result<Entry, ErofsError> {
        let kind = match dirent.file_type {
            TYPE_FILE => Kind::File,
            TYPE_DIRECTORY => Kind::Directory,
            TYPE_SYMLINK => Kind::Symlink,
            other => return Err(self.bad(format!("\"{}\" is of type {other}", shown(name)))),
        };
        Ok(Entry {
            name: name.to_vec(),
            nid: dirent.nid.get(),
            kind,
        })
    }

    pub(crate) fn bad(&self, why: String) -> ErofsError {
        let (nid, block) = (self.nid, self.index);
        corrupt(Place::Directory { nid, block }, why)
    }
}
