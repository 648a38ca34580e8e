//! The metadata as bytes, made block by block.

use std::io::{self, Read};
use std::ops::Range;

use zerocopy::IntoBytes;

use crate::directory::Directory;
use crate::layout::{Layout, Position};
use crate::limits::BLOCK_BYTES;
use crate::raw::{
    BLOCK_BITS, Block, COMPAT_CHECKSUM, COMPAT_MTIME, FORMAT_EXTENDED, FORMAT_LAYOUT_SHIFT,
    INODE_BYTES, LAYOUT_INLINE, LAYOUT_PLAIN, MAGIC, MODE_DIRECTORY, MODE_FILE, MODE_SYMLINK,
    NID_BYTES, ROOT_NID, RawInode, RawSuperblock, SUPERBLOCK_OFFSET, block_of, superblock_checksum,
};
use crate::tree::{Content, Node};

/// The blocks of the metadata, in order: an iterator, and a [`Read`] of the same bytes. Use one of both.
///
/// Memory: one block. Time: each directory is gone through three times in all.
#[derive(Debug)]
pub struct Metadata<'a> {
    layout: &'a Layout,
    inode_blocks: Range<u32>,
    block: u32,
    /// Next in [`Layout::inodes`] whose inode is to be written.
    inode: usize,
    /// Next in [`Layout::inodes`] whose content is to be written, and how much of it was.
    content: usize,
    content_blocks: u64,
    /// The directory's first entry that is not written.
    entry: usize,
    /// What [`Read`] has not handed out of the last block.
    unread: Option<(Box<Block>, usize)>,
}

impl<'a> Metadata<'a> {
    pub(crate) fn new(layout: &'a Layout, inode_blocks: Range<u32>) -> Metadata<'a> {
        Metadata {
            layout,
            inode_blocks,
            block: 0,
            inode: 0,
            content: 0,
            content_blocks: 0,
            entry: 0,
            unread: None,
        }
    }

    /// Bytes of all blocks together.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        u64::from(self.layout.metadata_blocks()) * BLOCK_BYTES as u64
    }

    fn superblock(&self) -> Block {
        let label = &self.layout.label;
        let mut volume_name = [0; 16];
        volume_name[..label.volume_name.len()].copy_from_slice(&label.volume_name);
        let raw = RawSuperblock {
            magic: MAGIC.into(),
            checksum: 0.into(),
            feature_compat: (COMPAT_CHECKSUM | COMPAT_MTIME).into(),
            block_bits: BLOCK_BITS,
            extension_slots: 0,
            root_nid: ROOT_NID.into(),
            inodes: (self.layout.inodes.len() as u64).into(),
            built_seconds: label.built.seconds.cast_unsigned().into(),
            built_nanoseconds: label.built.nanoseconds.into(),
            blocks: self.layout.blocks().into(),
            metadata_block: 0.into(),
            xattr_block: 0.into(),
            uuid: label.uuid,
            volume_name,
            feature_incompat: 0.into(),
            compression: 0.into(),
            extra_devices: 0.into(),
            device_slot: 0.into(),
            directory_block_bits: 0,
            xattr_prefixes: 0,
            xattr_prefix_start: 0.into(),
            packed_nid: 0.into(),
            reserved: [0; 24],
        };
        let mut block = [0; BLOCK_BYTES];
        block[SUPERBLOCK_OFFSET..][..size_of::<RawSuperblock>()].copy_from_slice(raw.as_bytes());
        let checksum = superblock_checksum(&block).to_le_bytes();
        block[SUPERBLOCK_OFFSET + 4..SUPERBLOCK_OFFSET + 8].copy_from_slice(&checksum);
        block
    }

    /// The inodes that lie in this block, with what is inline.
    fn inodes(&mut self) -> Block {
        let mut block = [0; BLOCK_BYTES];
        while let Some(&number) = self.layout.inodes.get(self.inode) {
            let (node, position) = self.layout.node(number);
            let (inode_block, at) = block_of(position.nid * NID_BYTES);
            if inode_block != u64::from(self.block) {
                break;
            }
            let raw = raw_inode(node, position, self.inode);
            block[at..at + INODE_BYTES].copy_from_slice(raw.as_bytes());
            self.write_inline(number, &mut block[at + INODE_BYTES..]);
            self.inode += 1;
        }
        block
    }

    /// The last bytes of a directory or target, where they lie behind the inode.
    fn write_inline(&self, number: u32, into: &mut [u8]) {
        let (node, position) = self.layout.node(number);
        let inline = position.inline_bytes();
        match node.content {
            Content::Directory { .. } if inline > 0 => {
                let directory = Directory::new(self.layout, number);
                directory.write(directory.last_block(), into);
            }
            Content::Symlink { target } if inline > 0 => {
                into[..inline].copy_from_slice(self.layout.tree.text(target));
            }
            _ => {}
        }
    }

    /// The next block of a directory, or a long target.
    fn contents(&mut self) -> Block {
        let mut block = [0; BLOCK_BYTES];
        while let Some(&number) = self.layout.inodes.get(self.content) {
            let (node, position) = self.layout.node(number);
            let is_file = matches!(node.content, Content::File { .. });
            if is_file || self.content_blocks == position.blocks() {
                self.content += 1;
                self.content_blocks = 0;
                self.entry = 0;
                continue;
            }
            if let Content::Symlink { target } = node.content {
                let target = self.layout.tree.text(target);
                block[..target.len()].copy_from_slice(target);
            } else {
                let directory = Directory::new(self.layout, number);
                self.entry = directory.write(self.entry, &mut block);
            }
            self.content_blocks += 1;
            break;
        }
        block
    }
}

impl Iterator for Metadata<'_> {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        if self.block == self.layout.metadata_blocks() {
            return None;
        }
        let block = if self.block == 0 {
            self.superblock()
        } else if self.inode_blocks.contains(&self.block) {
            self.inodes()
        } else {
            self.contents()
        };
        self.block += 1;
        Some(block)
    }
}

impl Read for Metadata<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.unread.is_none() {
            self.unread = self.next().map(|block| (Box::new(block), 0));
        }
        let Some((block, done)) = &mut self.unread else {
            return Ok(0);
        };
        let bytes = into.len().min(BLOCK_BYTES - *done);
        into[..bytes].copy_from_slice(&block[*done..*done + bytes]);
        *done += bytes;
        if *done == BLOCK_BYTES {
            self.unread = None;
        }
        Ok(bytes)
    }
}

/// `serial`: the inode's place among all.
fn raw_inode(node: &Node, position: &Position, serial: usize) -> RawInode {
    let (file_type, links, inline) = match node.content {
        Content::Directory { subdirectories, .. } => {
            (MODE_DIRECTORY, subdirectories + 2, position.inline_bytes())
        }
        Content::File { .. } => (MODE_FILE, 1, 0),
        Content::Symlink { .. } => (MODE_SYMLINK, 1, position.inline_bytes()),
    };
    let layout = if inline > 0 {
        LAYOUT_INLINE
    } else {
        LAYOUT_PLAIN
    };
    let attributes = &node.attributes;
    RawInode {
        format: (FORMAT_EXTENDED | layout << FORMAT_LAYOUT_SHIFT).into(),
        xattr_count: 0.into(),
        mode: (file_type | attributes.permissions).into(),
        start_block_high: 0.into(),
        size: position.bytes.into(),
        start_block: position.first_block.into(),
        ino: u32::try_from(serial)
            .map_or(u32::MAX, |serial| serial + 1)
            .into(),
        uid: attributes.uid.into(),
        gid: attributes.gid.into(),
        mtime_seconds: attributes.modified.seconds.cast_unsigned().into(),
        mtime_nanoseconds: attributes.modified.nanoseconds.into(),
        links: links.into(),
        reserved: [0; 16],
    }
}
