//! Single entries of a directory, without going through all of it: what a filesystem in use asks for.

use std::cmp::Ordering;

use crate::directory_block::DirectoryBlock;
use crate::entries::{Entry, require_directory};
use crate::error::ErofsError;
use crate::image::{Image, Inode, ReadBlocks};
use crate::limits::BLOCK_BYTES;

/// A place in a directory: which of its blocks, and which entry of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// From 0 on.
    pub block: u64,
    /// From 0 on; a block of 4 KiB has room for fewer than 512.
    pub slot: u16,
}

impl<R: ReadBlocks> Image<R> {
    /// The entry of `directory` whose name is `name`, `.` and `..` too, or `None`.
    ///
    /// By halves: of a directory with 100,000 names a dozen blocks are read. In a directory whose names are not sorted a name may not be found.
    ///
    /// # Errors
    /// It is no directory, or a block that was looked into is not as a directory's must be.
    pub fn find(&mut self, directory: &Inode, name: &[u8]) -> Result<Option<Entry>, ErofsError> {
        require_directory(directory)?;
        let mut block = DirectoryBlock::new(directory.nid);
        let (mut low, mut high) = (0, directory.bytes.div_ceil(BLOCK_BYTES as u64));
        while low < high {
            let middle = low + (high - low) / 2;
            if !block.load(self, directory, middle)? {
                break;
            }
            match find_in(&block, name)? {
                Found::Here(entry) => return Ok(Some(entry)),
                Found::Before => high = middle,
                Found::Behind => low = middle + 1,
                Found::Nowhere => break,
            }
        }
        Ok(None)
    }

    /// Calls `visit` for the entry at `at` and for those behind it, `.` and `..` too, each with the position behind it, until it says false or
    /// there are no more.
    ///
    /// # Errors
    /// It is no directory, or a block of it is not as a directory's must be.
    pub fn entries_from(
        &mut self,
        directory: &Inode,
        at: Position,
        mut visit: impl FnMut(&mut Image<R>, Entry, Position) -> Result<bool, ErofsError>,
    ) -> Result<(), ErofsError> {
        require_directory(directory)?;
        let mut block = DirectoryBlock::new(directory.nid);
        let (mut index, mut slot) = (at.block, usize::from(at.slot));
        while block.load(self, directory, index)? {
            while slot < block.count() {
                let (dirent, name) = block.entry(slot)?;
                let entry = block.finish(&dirent, name)?;
                slot += 1;
                let next = Position {
                    block: index,
                    slot: u16::try_from(slot).unwrap_or(u16::MAX),
                };
                if !visit(self, entry, next)? {
                    return Ok(());
                }
            }
            index += 1;
            slot = 0;
        }
        Ok(())
    }
}

enum Found {
    Here(Entry),
    Before,
    Behind,
    Nowhere,
}

fn find_in(block: &DirectoryBlock, name: &[u8]) -> Result<Found, ErofsError> {
    let (mut low, mut high) = (0, block.count());
    while low < high {
        let middle = low + (high - low) / 2;
        let (dirent, found) = block.entry(middle)?;
        match found.cmp(name) {
            Ordering::Equal => return block.finish(&dirent, found).map(Found::Here),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    Ok(match low {
        0 => Found::Before,
        low if low == block.count() => Found::Behind,
        _ => Found::Nowhere,
    })
}
