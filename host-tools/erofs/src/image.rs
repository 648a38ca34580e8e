//! Reading: the superblock and inodes of a disk that nobody vouches for.

use std::io;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::error::{ErofsError, Place};
use crate::limits::BLOCK_BYTES;
use crate::raw::{
    BLOCK_BITS, Block, COMPAT_CHECKSUM, FORMAT_EXTENDED, FORMAT_KNOWN, FORMAT_LAYOUT_MASK,
    FORMAT_LAYOUT_SHIFT, INODE_BYTES, LAYOUT_INLINE, LAYOUT_PLAIN, MAGIC, MODE_DIRECTORY,
    MODE_FILE, MODE_PERMISSIONS, MODE_SYMLINK, MODE_TYPE, NID_BYTES, RawInode, RawSuperblock,
    SUPERBLOCK_OFFSET, block_of, superblock_checksum,
};
use crate::tree::{Attributes, Time};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The blocks of a disk, which the caller reads.
pub trait ReadBlocks {
    /// Reads a block of 4 KiB.
    ///
    /// # Errors
    /// What the medium says; it is handed on.
    fn read_block(&mut self, block: u32, into: &mut [u8; BLOCK_BYTES]) -> io::Result<()>;
}

/// A disk in memory.
impl ReadBlocks for &[u8] {
    fn read_block(&mut self, block: u32, into: &mut [u8; BLOCK_BYTES]) -> io::Result<()> {
        let at = usize::try_from(u64::from(block) * BLOCK).map_err(io::Error::other)?;
        let bytes = self.get(at..).and_then(|rest| rest.get(..BLOCK_BYTES));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// What an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// With [`Walk`](crate::Walk) and [`Entries`](crate::Entries) gone through.
    Directory,
    /// Its payload lies where [`Payload`] says.
    File,
    /// Its target is read with [`Image::target`].
    Symlink,
}

/// Where an inode's bytes lie: blocks in a row, and then, where there is one, a tail that is not a whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// First block of the disk.
    pub first_block: u32,
    /// Bytes from the beginning of that block on.
    pub bytes: u64,
    /// Byte of the disk at which the tail starts; it is the caller's to read where `tail_bytes` is not 0.
    pub tail_offset: u64,
    /// Up to 4096, inside one block.
    pub tail_bytes: usize,
}

/// An inode whose fields hold together and whose payload lies on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    /// Its number.
    pub nid: u64,
    /// What it is.
    pub kind: Kind,
    /// Mode, owner, time.
    pub attributes: Attributes,
    /// Names that it has; a directory's are `.` and the `..` of others too.
    pub links: u32,
    /// Length of its content, in bytes.
    pub bytes: u64,
    /// Where the content lies.
    pub payload: Payload,
}

/// What the superblock says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// In the order in which it is printed.
    pub uuid: [u8; 16],
    /// Without the NULs.
    pub volume_name: Vec<u8>,
    /// When the disk was made.
    pub built: Time,
    /// Blocks of the whole disk.
    pub blocks: u32,
    /// How many inodes there are.
    pub inodes: u64,
    root: u64,
    metadata_block: u32,
}

/// A disk that is open.
///
/// What is read is what [`Layout`](crate::Layout) writes; anything else is refused by its name.
/// Each field is checked before it is used. Memory: one block; a clone reads for itself.
#[derive(Debug, Clone)]
pub struct Image<R> {
    reader: R,
    superblock: Superblock,
    held: Held,
}

/// The block that was read last.
#[derive(Debug, Clone)]
struct Held {
    block: Option<u32>,
    bytes: Box<Block>,
}

impl<R: ReadBlocks> Image<R> {
    /// Reads the superblock of a disk of `disk_blocks` blocks.
    ///
    /// # Errors
    /// No EROFS, one that is damaged, one with features that are not read here, or one that is longer than its disk.
    pub fn open(mut reader: R, disk_blocks: u64) -> Result<Image<R>, ErofsError> {
        let why = "the disk is shorter than a block";
        if disk_blocks == 0 {
            return Err(ErofsError::NotErofs { why });
        }
        let mut bytes: Box<Block> = Box::new([0; BLOCK_BYTES]);
        let block = 0;
        let read = reader.read_block(block, &mut bytes);
        read.map_err(|error| ErofsError::Read { block, error })?;
        let superblock = parse_superblock(&bytes, disk_blocks)?;
        Ok(Image {
            reader,
            superblock,
            held: Held {
                block: Some(block),
                bytes,
            },
        })
    }

    /// What the superblock says.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The root directory.
    ///
    /// # Errors
    /// As [`inode`](Self::inode); or it is no directory.
    pub fn root(&mut self) -> Result<Inode, ErofsError> {
        let root = self.inode(self.superblock.root)?;
        if root.kind == Kind::Directory {
            return Ok(root);
        }
        Err(corrupt(Place::Superblock, "the root is not a directory"))
    }

    /// An inode by its number.
    ///
    /// # Errors
    /// A number or payload that is not on the disk, fields that do not go together, or a kind or layout that is not read here.
    pub fn inode(&mut self, nid: u64) -> Result<Inode, ErofsError> {
        let place = Place::Inode(nid);
        let at = nid.checked_mul(NID_BYTES);
        let at =
            at.and_then(|at| at.checked_add(u64::from(self.superblock.metadata_block) * BLOCK));
        let at = at.ok_or_else(|| corrupt(place, "its number is beyond the disk"))?;
        let mut raw = RawInode::new_zeroed();
        self.read_bytes(place, at, raw.as_mut_bytes())?;
        let format = raw.format.get();
        if format & !FORMAT_KNOWN != 0 || format & FORMAT_EXTENDED == 0 {
            return Err(unsupported("inode format", format!("{format:#x}")));
        }
        if raw.xattr_count.get() != 0 {
            let found = format!("{} units in inode {nid}", raw.xattr_count.get());
            return Err(unsupported("extended attributes", found));
        }
        let tail_offset = at + INODE_BYTES as u64;
        let kind = match raw.mode.get() & MODE_TYPE {
            MODE_DIRECTORY => Kind::Directory,
            MODE_FILE => Kind::File,
            MODE_SYMLINK => Kind::Symlink,
            other => return Err(unsupported("file type", format!("{other:#o}"))),
        };
        let modified = Time {
            seconds: raw.mtime_seconds.get().cast_signed(),
            nanoseconds: raw.mtime_nanoseconds.get(),
        };
        if modified.check().is_err() {
            return Err(corrupt(place, "its nanoseconds are a second or more"));
        }
        Ok(Inode {
            nid,
            kind,
            attributes: Attributes {
                permissions: raw.mode.get() & MODE_PERMISSIONS,
                uid: raw.uid.get(),
                gid: raw.gid.get(),
                modified,
            },
            links: raw.links.get(),
            bytes: raw.size.get(),
            payload: self.payload(place, &raw, tail_offset)?,
        })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Not a symbolic link, or a target that Linux does not have.
    pub fn target(&mut self, link: &Inode) -> Result<Vec<u8>, ErofsError> {
        let place = Place::Inode(link.nid);
        let bytes = usize::try_from(link.bytes).ok();
        let bytes = bytes.filter(|bytes| (1..=crate::limits::TARGET_BYTES_MAX).contains(bytes));
        let (Kind::Symlink, Some(bytes)) = (link.kind, bytes) else {
            return Err(corrupt(
                place,
                "it is no symbolic link with a target of 1 to 4095 bytes",
            ));
        };
        let mut target = vec![0; bytes];
        self.read(link, 0, &mut target)?;
        if target.contains(&0) {
            return Err(corrupt(place, "its target has a NUL in it"));
        }
        Ok(target)
    }

    /// Reads an inode's content from byte `from` of it on; returns how many bytes there were.
    ///
    /// Block by block, through one buffer: for metadata and tests. To copy files, read [`Payload`]'s blocks.
    ///
    /// # Errors
    /// [`ErofsError::Read`].
    pub fn read(&mut self, inode: &Inode, from: u64, into: &mut [u8]) -> Result<usize, ErofsError> {
        let place = Place::Inode(inode.nid);
        let payload = &inode.payload;
        let left = inode.bytes.saturating_sub(from);
        let wanted = usize::try_from(left).map_or(into.len(), |left| left.min(into.len()));
        let in_blocks = payload.bytes.saturating_sub(from);
        let in_blocks = usize::try_from(in_blocks).map_or(wanted, |bytes| bytes.min(wanted));
        let (blocks, tail) = into[..wanted].split_at_mut(in_blocks);
        // Both were checked to lie on the disk, whose bytes are numbered in 44 bits.
        if !blocks.is_empty() {
            self.read_bytes(place, u64::from(payload.first_block) * BLOCK + from, blocks)?;
        }
        if !tail.is_empty() {
            let skipped = from.saturating_sub(payload.bytes);
            self.read_bytes(place, payload.tail_offset + skipped, tail)?;
        }
        Ok(wanted)
    }

    /// Where the content is, checked against the disk's end.
    fn payload(
        &self,
        place: Place,
        raw: &RawInode,
        tail_offset: u64,
    ) -> Result<Payload, ErofsError> {
        let bytes = raw.size.get();
        let whole = match raw.format.get() >> FORMAT_LAYOUT_SHIFT & FORMAT_LAYOUT_MASK {
            LAYOUT_PLAIN => bytes,
            // The last block is behind the inode, also where it is a whole one.
            LAYOUT_INLINE => bytes.saturating_sub(1) / BLOCK * BLOCK,
            other => return Err(unsupported("data layout", other.to_string())),
        };
        let first_block = raw.start_block.get();
        let disk = u64::from(self.superblock.blocks);
        if whole > 0 && u64::from(first_block) + whole.div_ceil(BLOCK) > disk {
            let why =
                format!("{whole} bytes from block {first_block} on; the disk has {disk} blocks");
            return Err(corrupt(place, why));
        }
        let tail_bytes = usize::try_from(bytes - whole).unwrap_or(usize::MAX);
        if tail_bytes > 0 {
            let (tail_block, in_block) = block_of(tail_offset);
            if tail_bytes > BLOCK_BYTES - in_block || tail_block >= disk {
                return Err(corrupt(
                    place,
                    "the end of its content crosses a block or the disk's end",
                ));
            }
        }
        Ok(Payload {
            first_block,
            bytes: whole,
            tail_offset,
            tail_bytes,
        })
    }

    fn read_bytes(&mut self, place: Place, at: u64, into: &mut [u8]) -> Result<(), ErofsError> {
        let (mut at, mut into) = (at, into);
        while !into.is_empty() {
            let (block, skip) = block_of(at);
            let block = u32::try_from(block).ok();
            let block = block.filter(|&block| block < self.superblock.blocks);
            let block =
                block.ok_or_else(|| corrupt(place, "it lies beyond the end of the disk"))?;
            let bytes = into.len().min(BLOCK_BYTES - skip);
            let (now, later) = into.split_at_mut(bytes);
            now.copy_from_slice(&self.block(block)?[skip..skip + bytes]);
            at += bytes as u64;
            into = later;
        }
        Ok(())
    }

    fn block(&mut self, block: u32) -> Result<&Block, ErofsError> {
        if self.held.block != Some(block) {
            self.held.block = None;
            let read = self.reader.read_block(block, &mut self.held.bytes);
            read.map_err(|error| ErofsError::Read { block, error })?;
            self.held.block = Some(block);
        }
        Ok(&self.held.bytes)
    }
}

fn parse_superblock(block: &Block, disk_blocks: u64) -> Result<Superblock, ErofsError> {
    let not_erofs = |why| ErofsError::NotErofs { why };
    let (raw, _) = RawSuperblock::read_from_prefix(&block[SUPERBLOCK_OFFSET..])
        .map_err(|_| not_erofs("the block is too short"))?;
    if raw.magic.get() != MAGIC {
        return Err(not_erofs("its magic number is not at byte 1024"));
    }
    let refused = |why: String| Err(corrupt(Place::Superblock, why));
    if raw.block_bits != BLOCK_BITS {
        return Err(unsupported("block size", format!("2^{}", raw.block_bits)));
    }
    let found = superblock_checksum(block);
    if raw.feature_compat.get() & COMPAT_CHECKSUM != 0 && raw.checksum.get() != found {
        let written = raw.checksum.get();
        return refused(format!(
            "its checksum is {written:#010x}, and its bytes give {found:#010x}"
        ));
    }
    let unknown = raw.feature_incompat.get();
    if unknown != 0 {
        return Err(unsupported(
            "incompatible features",
            format!("{unknown:#x}"),
        ));
    }
    if raw.directory_block_bits != 0 {
        let found = format!("2^{} blocks", raw.directory_block_bits);
        return Err(unsupported("directory block size", found));
    }
    let blocks = raw.blocks.get();
    if u64::from(blocks) > disk_blocks {
        return refused(format!(
            "the filesystem has {blocks} blocks, the disk {disk_blocks}"
        ));
    }
    if raw.built_nanoseconds.get() >= 1_000_000_000 {
        return refused("its nanoseconds are a second or more".to_owned());
    }
    let inodes_max = u64::from(blocks) * (BLOCK / NID_BYTES);
    if raw.inodes.get() > inodes_max {
        let found = raw.inodes.get();
        return refused(format!("{found} inodes do not fit into {blocks} blocks"));
    }
    let name = raw.volume_name;
    let name_bytes = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    Ok(Superblock {
        uuid: raw.uuid,
        volume_name: name[..name_bytes].to_vec(),
        built: Time {
            seconds: raw.built_seconds.get().cast_signed(),
            nanoseconds: raw.built_nanoseconds.get(),
        },
        blocks,
        inodes: raw.inodes.get(),
        root: u64::from(raw.root_nid.get()),
        metadata_block: raw.metadata_block.get(),
    })
}

pub(crate) fn corrupt(place: Place, why: impl Into<String>) -> ErofsError {
    let why = why.into();
    ErofsError::Corrupt { place, why }
}

fn unsupported(what: &'static str, found: String) -> ErofsError {
    ErofsError::Unsupported { what, found }
}
