//! The disk that names and sizes alone make: before anything is packed, and for the packing itself.

use volume::identity::Uuid;

use crate::disk::{Disk, Partition};
use crate::presented::{self, Presented};
use crate::{DatasetError, Scan, Shape, View};

/// What decides where each file lies.
#[derive(Debug, Clone, Copy)]
pub struct Form<'a> {
    /// The names and files.
    pub scan: &'a Scan,
    /// What is presented of them.
    pub views: &'a [View],
    /// How the files lie.
    pub shape: Shape,
    /// Bytes of a logical block.
    pub lba_bytes: u32,
    /// Name of the view that the namespace presents.
    pub name: &'a str,
    /// Name of the filesystem: up to 15 bytes.
    pub label: &'a str,
}

/// How large a disk will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// Presented bytes; without those of the manifest, where there is one: its length is known when everything is packed.
    pub bytes: u64,
    /// Of these, the filesystem's or the table's own.
    pub metadata_bytes: u64,
    /// Whether a manifest comes on top.
    pub with_manifest: bool,
    /// Partitions, if the disk has any.
    pub partitions: Vec<Partition>,
}

impl Form<'_> {
    /// Lays the disk out, and forgets where what lies. Reads nothing.
    ///
    /// # Errors
    /// What no disk of this shape holds: more partitions than a table has, a file that is no whole number of blocks, a filesystem of more than 16 TiB, names and labels that cannot be.
    pub fn outline(&self, with_manifest: bool) -> Result<Outline, DatasetError> {
        let with_manifest = with_manifest && !matches!(self.shape, Shape::Partitions { .. });
        let disk = self.disk([0; 16], with_manifest.then_some(&[]))?;
        Ok(Outline {
            bytes: disk.bytes,
            metadata_bytes: disk.metadata_bytes,
            with_manifest,
            partitions: disk.partitions,
        })
    }

    /// The disk with the identity `uuid`.
    pub(crate) fn disk(
        &self,
        uuid: Uuid,
        manifest: Option<&[u8]>,
    ) -> Result<Disk<Presented>, DatasetError> {
        let (scan, views, lba_bytes) = (self.scan, self.views, self.lba_bytes);
        if let Shape::Partitions { pad } = self.shape {
            return presented::partitions(scan, views, uuid, lba_bytes, pad);
        }
        let disk = presented::filesystem(scan, views, uuid, self.label, manifest)?;
        if self.shape == Shape::Filesystem {
            return Ok(disk);
        }
        let name = if self.label.is_empty() {
            self.name
        } else {
            self.label
        };
        disk.in_partition(name, lba_bytes, uuid)
    }
}
