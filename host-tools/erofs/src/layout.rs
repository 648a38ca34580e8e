//! Where everything of a tree lies: inodes, directories, targets, and the blocks that each file's payload is to be presented at.

use std::ops::Range;

use crate::directory::Directory;
use crate::error::ErofsError;
use crate::limits::{BLOCK_BYTES, BLOCKS_MAX, INLINE_BYTES_MAX, VOLUME_NAME_BYTES_MAX};
use crate::metadata::Metadata;
use crate::raw::{INODE_BYTES, NID_BYTES, ROOT_NID, block_of};
use crate::tree::{Content, FileId, Node, Time, Tree};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What tells one disk from another. The same tree with the same label gives the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// In the order in which it is printed.
    pub uuid: [u8; 16],
    /// When the disk was made.
    pub built: Time,
    /// What `blkid` calls LABEL: up to 15 bytes, none of them NUL.
    pub volume_name: Vec<u8>,
}

impl Label {
    fn check(&self) -> Result<(), ErofsError> {
        self.built.check()?;
        if self.volume_name.len() <= VOLUME_NAME_BYTES_MAX && !self.volume_name.contains(&0) {
            return Ok(());
        }
        Err(ErofsError::Attribute {
            what: "the filesystem's label",
            found: crate::error::shown(&self.volume_name),
            rule: "a label has up to 15 bytes, without NUL; choose a shorter one (--label)",
        })
    }
}

/// What the layout knows of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Position {
    /// Number of its inode.
    pub nid: u64,
    /// Of its content; 0 where there is none outside the inode.
    pub first_block: u32,
    /// A directory's first child, in [`Layout::children`].
    pub first_child: u32,
    /// Of its content.
    pub bytes: u64,
}

impl Position {
    /// Bytes of a directory's or link's content that lie behind its inode.
    pub fn inline_bytes(&self) -> usize {
        let (_, rest) = block_of(self.bytes);
        if rest <= INLINE_BYTES_MAX { rest } else { 0 }
    }

    /// Blocks of its content that lie elsewhere.
    pub fn blocks(&self) -> u64 {
        self.bytes.div_ceil(BLOCK) - u64::from(self.inline_bytes() > 0)
    }
}

/// Where a file's payload is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePlace {
    /// Which file.
    pub file: FileId,
    /// The block of the disk that its first byte is in. 0 for a file without bytes.
    pub first_block: u32,
    /// Its exact length; the rest of its last block is to be presented as zeros, because mmap() shows it.
    pub bytes: u64,
}

/// A tree with its places. Metadata first: the superblock's block, inodes, directories and long targets; then the files in the order in which
/// they were added, each from a block on, without gaps.
///
/// Memory: the tree's, and 40 bytes an inode.
#[derive(Debug)]
pub struct Layout {
    pub(crate) tree: Tree,
    pub(crate) label: Label,
    /// By node.
    pub(crate) positions: Vec<Position>,
    /// All nodes but the root, sorted by parent and name: each directory's children are a run.
    pub(crate) children: Vec<u32>,
    /// Nodes in the order of their inodes: the root, its children, theirs.
    pub(crate) inodes: Vec<u32>,
    /// Where the inodes end and the directories begin.
    inode_blocks: Range<u32>,
    metadata_blocks: u32,
}

impl Tree {
    /// Gives everything its place.
    ///
    /// # Errors
    /// A name that a directory has twice, a label that cannot be, or more blocks than can be numbered.
    pub fn lay_out(self, label: Label) -> Result<Layout, ErofsError> {
        label.check()?;
        let mut layout = Layout {
            positions: vec![Position::default(); self.nodes.len()],
            children: Vec::new(),
            inodes: Vec::new(),
            inode_blocks: 0..0,
            metadata_blocks: 0,
            tree: self,
            label,
        };
        layout.sort_children()?;
        layout.order_inodes();
        layout.measure();
        let end = layout.place_inodes();
        let end = layout.place_contents(end)?;
        layout.place_files(end)?;
        Ok(layout)
    }
}

impl Layout {
    /// Blocks that [`metadata`](Self::metadata) gives, from block 0 of the disk on.
    #[must_use]
    pub fn metadata_blocks(&self) -> u32 {
        self.metadata_blocks
    }

    /// Blocks of the whole disk.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        let ends = self.files().map(|place| {
            let blocks = u32::try_from(place.bytes.div_ceil(BLOCK)).unwrap_or(u32::MAX);
            place.first_block.saturating_add(blocks)
        });
        ends.max().unwrap_or(0).max(self.metadata_blocks)
    }

    /// Each file's place, in the order in which they were added.
    pub fn files(&self) -> impl Iterator<Item = FilePlace> {
        let nodes = (0u32..).zip(&self.tree.nodes).zip(&self.positions);
        nodes.filter_map(|((node, of), position)| match of.content {
            Content::File { bytes } => Some(FilePlace {
                file: FileId(node),
                first_block: position.first_block,
                bytes,
            }),
            _ => None,
        })
    }

    /// A file's path from the root, for people: bytes that are not printable ASCII are escaped.
    ///
    /// # Errors
    /// [`ErofsError::NotInTree`].
    pub fn path(&self, file: FileId) -> Result<String, ErofsError> {
        self.file_bytes(file)?;
        Ok(self.tree.path(file.0))
    }

    /// Puts a file elsewhere: behind a gap, or where another file's bytes are presented already, because they are the same.
    ///
    /// # Errors
    /// A place inside the metadata, or beyond what can be numbered.
    pub fn place(&mut self, file: FileId, first_block: u32) -> Result<(), ErofsError> {
        let bytes = self.file_bytes(file)?;
        let refused = |why| ErofsError::Place {
            path: self.tree.path(file.0),
            block: first_block,
            why,
        };
        if bytes > 0 && first_block < self.metadata_blocks {
            return Err(refused("metadata lies there"));
        }
        if u64::from(first_block) + bytes.div_ceil(BLOCK) > BLOCKS_MAX {
            return Err(refused("its end would be beyond 16 TiB"));
        }
        self.positions[file.0 as usize].first_block = first_block;
        Ok(())
    }

    /// The metadata, block by block, from block 0 of the disk on.
    #[must_use]
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::new(self, self.inode_blocks.clone())
    }

    pub(crate) fn node(&self, node: u32) -> (&Node, &Position) {
        (
            &self.tree.nodes[node as usize],
            &self.positions[node as usize],
        )
    }

    fn file_bytes(&self, file: FileId) -> Result<u64, ErofsError> {
        match self
            .tree
            .nodes
            .get(file.0 as usize)
            .map(|node| &node.content)
        {
            Some(Content::File { bytes }) => Ok(*bytes),
            _ => Err(ErofsError::NotInTree("the file")),
        }
    }

    fn sort_children(&mut self) -> Result<(), ErofsError> {
        let tree = &self.tree;
        let key = |&node: &u32| (tree.nodes[node as usize].parent, tree.name(node));
        let mut children: Vec<u32> = (0u32..).zip(&tree.nodes).map(|(node, _)| node).collect();
        children.remove(0);
        children.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        if let Some(twice) = children
            .windows(2)
            .find(|pair| key(&pair[0]) == key(&pair[1]))
        {
            let path = tree.path(twice[0]);
            return Err(ErofsError::Duplicate { path });
        }
        let mut last_parent = None;
        for (index, &node) in (0u32..).zip(&children) {
            let parent = tree.nodes[node as usize].parent;
            if last_parent.replace(parent) != Some(parent) {
                self.positions[parent as usize].first_child = index;
            }
        }
        self.children = children;
        Ok(())
    }

    /// Breadth first, so that the inodes of a directory's children lie together.
    fn order_inodes(&mut self) {
        self.inodes.reserve_exact(self.tree.nodes.len());
        self.inodes.push(0);
        let mut next = 0;
        while let Some(&node) = self.inodes.get(next) {
            if let Content::Directory { children, .. } = self.tree.nodes[node as usize].content {
                let first = self.positions[node as usize].first_child as usize;
                let run = first..first + children as usize;
                self.inodes.extend_from_slice(&self.children[run]);
            }
            next += 1;
        }
    }

    /// Lengths of contents.
    fn measure(&mut self) {
        for node in (0u32..).take(self.tree.nodes.len()) {
            self.positions[node as usize].bytes = match self.tree.nodes[node as usize].content {
                Content::Directory { .. } => Directory::new(self, node).bytes(),
                Content::File { bytes } => bytes,
                Content::Symlink { target } => self.tree.text(target).len() as u64,
            };
        }
    }

    /// Each inode with what is inline lies in one block. Returns where they end.
    fn place_inodes(&mut self) -> u64 {
        let mut at = u64::from(ROOT_NID) * NID_BYTES;
        for &node in &self.inodes {
            let position = &mut self.positions[node as usize];
            let inline = match self.tree.nodes[node as usize].content {
                Content::File { .. } => 0,
                _ => position.inline_bytes(),
            };
            let bytes = (INODE_BYTES + inline) as u64;
            if at % BLOCK + bytes > BLOCK {
                at = at.next_multiple_of(BLOCK);
            }
            position.nid = at / NID_BYTES;
            at = (at + bytes).next_multiple_of(NID_BYTES);
        }
        at.div_ceil(BLOCK)
    }

    /// Directories and long targets, from block `at` on. Returns where they end, which is where the metadata end.
    fn place_contents(&mut self, at: u64) -> Result<u64, ErofsError> {
        let inodes_end = block_number(at)?;
        let mut at = at;
        for &node in &self.inodes {
            let position = &mut self.positions[node as usize];
            let is_file = matches!(self.tree.nodes[node as usize].content, Content::File { .. });
            if !is_file && position.blocks() > 0 {
                position.first_block = block_number(at)?;
                at += position.blocks();
            }
        }
        self.inode_blocks = 1..inodes_end;
        self.metadata_blocks = block_number(at)?;
        Ok(at)
    }

    fn place_files(&mut self, at: u64) -> Result<(), ErofsError> {
        let mut at = at;
        for (node, position) in self.tree.nodes.iter().zip(&mut self.positions) {
            let Content::File { bytes } = node.content else {
                continue;
            };
            if bytes > 0 {
                position.first_block = block_number(at)?;
                // Files of 2^64 bytes, and 2^26 of them, do not make it overflow.
                at = at.saturating_add(bytes.div_ceil(BLOCK));
            }
        }
        if at > BLOCKS_MAX {
            return Err(ErofsError::DiskTooLarge { blocks: at });
        }
        Ok(())
    }
}

fn block_number(block: u64) -> Result<u32, ErofsError> {
    u32::try_from(block).map_err(|_| ErofsError::DiskTooLarge { blocks: block })
}
