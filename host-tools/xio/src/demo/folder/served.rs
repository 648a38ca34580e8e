//! A served disk with a file system, and the volume file behind it.

use std::io;
use std::ops::Range;
use std::path::Path;

use anyhow::anyhow;
use erofs::limits::BLOCK_BYTES;
use erofs::{ErofsError, Image, Inode, ReadBlocks};
use initiator::{Initiator, Options};
use mount::MountError;
use serde_json::Value;
use transforms::ElementType;

use super::f16::Rounding;
use super::member;
use crate::demo::target::NQN;
use crate::failure::Failure;
use crate::local::LocalVolume;

/// What the disk says of itself.
const MANIFEST: &str = ".xio/manifest.json";
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 20;

pub struct Served {
    disk: Disk,
    /// The volume file.
    local: LocalVolume,
    manifest: Value,
}

impl Served {
    /// The namespace `nsid` at `address`, which the volume file at `volume` is behind.
    pub fn connect(address: &str, nsid: u32, volume: &Path) -> Result<Served, Failure> {
        let mut served = Served {
            disk: Disk {
                initiator: Initiator::connect(address, NQN, &Options::default())?,
                nsid,
            },
            local: LocalVolume::open(volume, &[])?,
            manifest: Value::Null,
        };
        let place = served.find(MANIFEST)?;
        let (text, _) = served.read(place)?;
        served.manifest = serde_json::from_slice(&text)
            .map_err(|error| Failure::data(anyhow!("{MANIFEST}: {error}")))?;
        Ok(served)
    }

    /// Where the file at `path` lies on the disk.
    pub fn find(&mut self, path: &str) -> Result<Range<u64>, Failure> {
        let namespace = self.disk.initiator.namespace(self.disk.nsid)?;
        let blocks = namespace.bytes() / BLOCK_BYTES as u64;
        let found = walk(&mut self.disk, blocks, path).map_err(MountError::from)?;
        let place = found.and_then(|inode| {
            let first = u64::from(inode.payload.first_block) * BLOCK_BYTES as u64;
            // Files of a disk of ours lie in blocks of their own.
            (inode.payload.tail_bytes == 0).then_some(first..first + inode.bytes)
        });
        place.ok_or_else(|| Failure::data(anyhow!("the disk has no file {path}")))
    }

    /// Bytes of the disk, and how many came over the connection for them.
    pub fn read(&mut self, place: Range<u64>) -> Result<(Vec<u8>, u64), Failure> {
        let before = self.disk.initiator.io_wire_bytes().received;
        let bytes = usize::try_from(place.end - place.start).unwrap_or(usize::MAX);
        let mut bytes = vec![0xA5; bytes];
        for (at, piece) in (place.start..)
            .step_by(PIECE_BYTES)
            .zip(bytes.chunks_mut(PIECE_BYTES))
        {
            self.disk.read(at, piece)?;
        }
        Ok((bytes, self.disk.initiator.io_wire_bytes().received - before))
    }

    /// Bytes that the same read fetches from the volume file when nothing is in the cache but tables.
    pub fn fetched_bytes(&self, place: Range<u64>) -> Result<u64, Failure> {
        let mut reader = self.local.reader();
        let mut piece = vec![0; PIECE_BYTES];
        let mut fetched = 0;
        for at in place.clone().step_by(PIECE_BYTES) {
            let left = usize::try_from(place.end - at).unwrap_or(usize::MAX);
            piece.truncate(left);
            fetched += reader.read(at, &mut piece)?.stored_bytes;
        }
        Ok(fetched)
    }

    /// What the manifest says of the stream of values of a type.
    pub fn stream(&self, element: ElementType) -> Result<&Value, Failure> {
        let stream = member(&self.manifest["streams"], "type", element.name());
        stream.ok_or_else(|| Failure::data(anyhow!("{MANIFEST}: no stream of {element}")))
    }

    /// What the manifest says of the rounded view.
    pub fn rounding(&self) -> Result<Rounding, Failure> {
        let view = member(&self.manifest["views"], "name", "f16");
        let change = view.and_then(|view| member(&view["changes"], "to", "f16"));
        let rounding = change.and_then(|change| Rounding::of_manifest(&change["loss"]));
        rounding.ok_or_else(|| Failure::data(anyhow!("{MANIFEST} does not say what was lost")))
    }

    pub fn close(self) -> Result<(), Failure> {
        Ok(self.disk.initiator.shutdown()?)
    }
}

/// The namespace.
struct Disk {
    initiator: Initiator,
    nsid: u32,
}

impl Disk {
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), initiator::Error> {
        self.initiator.read(self.nsid, at, into)
    }
}

impl ReadBlocks for &mut Disk {
    fn read_block(&mut self, block: u32, into: &mut [u8; BLOCK_BYTES]) -> io::Result<()> {
        let at = u64::from(block) * BLOCK_BYTES as u64;
        self.read(at, into).map_err(io::Error::other)
    }
}

/// The inode that a path leads to.
fn walk(disk: &mut Disk, blocks: u64, path: &str) -> Result<Option<Inode>, ErofsError> {
    let mut image = Image::open(disk, blocks)?;
    let mut inode = image.root()?;
    for name in path.split('/') {
        let Some(entry) = image.find(&inode, name.as_bytes())? else {
            return Ok(None);
        };
        inode = image.inode(entry.nid)?;
    }
    Ok(Some(inode))
}
