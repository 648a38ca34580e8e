//! A directory's entries, as blocks: sorted by the bytes of their names, which is what the kernel's binary search wants.

use zerocopy::IntoBytes;

use crate::layout::Layout;
use crate::limits::BLOCK_BYTES;
use crate::raw::{DIRENT_BYTES, RawDirent, TYPE_DIRECTORY, TYPE_FILE, TYPE_SYMLINK};
use crate::tree::Content;

/// One entry.
struct Entry<'a> {
    name: &'a [u8],
    node: u32,
}

/// The entries of one directory, `.` and `..` among them.
pub(crate) struct Directory<'a> {
    layout: &'a Layout,
    node: u32,
    children: &'a [u32],
    /// Where `.` is among the entries, and `..`.
    dots: [usize; 2],
}

impl<'a> Directory<'a> {
    pub fn new(layout: &'a Layout, node: u32) -> Directory<'a> {
        let (of, position) = layout.node(node);
        let children = match of.content {
            Content::Directory { children, .. } => {
                let first = position.first_child as usize;
                &layout.children[first..first + children as usize]
            }
            _ => &[],
        };
        let before =
            |dots: &[u8]| children.partition_point(|&child| layout.tree.name(child) < dots);
        Directory {
            layout,
            node,
            children,
            dots: [before(b"."), before(b"..") + 1],
        }
    }

    fn entries(&self) -> usize {
        self.children.len() + self.dots.len()
    }

    fn entry(&self, index: usize) -> Entry<'a> {
        let tree = &self.layout.tree;
        let dots = self.dots;
        if index == dots[0] {
            let node = self.node;
            return Entry { name: b".", node };
        }
        if index == dots[1] {
            let node = tree.nodes[self.node as usize].parent;
            return Entry { name: b"..", node };
        }
        let before = usize::from(index > dots[0]) + usize::from(index > dots[1]);
        let node = self.children[index - before];
        Entry {
            name: tree.name(node),
            node,
        }
    }

    /// How many entries from `first` on share a block, and the bytes of it that they take.
    fn block(&self, first: usize) -> (usize, usize) {
        let mut used = 0;
        for index in first..self.entries() {
            let more = DIRENT_BYTES + self.entry(index).name.len();
            if used + more > BLOCK_BYTES {
                return (index - first, used);
            }
            used += more;
        }
        (self.entries() - first, used)
    }

    /// Length of the directory: whole blocks, and what is used of the last.
    pub fn bytes(&self) -> u64 {
        let (mut first, mut blocks) = (0, 0);
        loop {
            let (entries, used) = self.block(first);
            first += entries;
            if first == self.entries() {
                return blocks * BLOCK_BYTES as u64 + used as u64;
            }
            blocks += 1;
        }
    }

    /// The first entry of the last block.
    pub fn last_block(&self) -> usize {
        let mut first = 0;
        loop {
            let (entries, _) = self.block(first);
            if first + entries == self.entries() {
                return first;
            }
            first += entries;
        }
    }

    /// Writes the block whose first entry is `first` into `bytes`, which are zeros; returns the first entry of the next block.
    pub fn write(&self, first: usize, bytes: &mut [u8]) -> usize {
        let (entries, _) = self.block(first);
        let mut name_at = entries * DIRENT_BYTES;
        for (slot, index) in (first..first + entries).enumerate() {
            let entry = self.entry(index);
            let (node, position) = self.layout.node(entry.node);
            let dirent = RawDirent {
                nid: position.nid.into(),
                name_offset: offset_in_block(name_at).into(),
                file_type: match node.content {
                    Content::Directory { .. } => TYPE_DIRECTORY,
                    Content::File { .. } => TYPE_FILE,
                    Content::Symlink { .. } => TYPE_SYMLINK,
                },
                reserved: 0,
            };
            bytes[slot * DIRENT_BYTES..][..DIRENT_BYTES].copy_from_slice(dirent.as_bytes());
            bytes[name_at..][..entry.name.len()].copy_from_slice(entry.name);
            name_at += entry.name.len();
        }
        first + entries
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "names start inside a block of 4096 bytes"
)]
fn offset_in_block(at: usize) -> u16 {
    at as u16
}
