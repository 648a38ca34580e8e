//! What lies on a disk: a filesystem, partitions, or bytes without names.

use std::ops::Range;
use std::sync::Arc;

use erofs::limits::BLOCK_BYTES;
use erofs::{ErofsError, Image};
use gpt::Place;

use crate::error::MountError;
use crate::medium::{Medium, ReadFailure};
use crate::metadata_cache::MetadataCache;

/// What was found.
pub enum OnDisk {
    /// An EROFS: on the whole disk, or in the only partition of its table.
    Filesystem(Filesystem),
    /// A partition table with anything else.
    Partitions(Vec<PartitionFile>),
    /// Neither.
    Bytes,
}

/// An EROFS, and the part of the disk that it has.
pub struct Filesystem {
    /// Its metadata, read through a cache; clones share the cache.
    pub image: Image<MetadataCache>,
    /// The bytes of its part: offsets of the filesystem are offsets here.
    pub medium: Arc<dyn Medium>,
    /// Where that part begins on the disk.
    pub first_byte: u64,
}

/// A partition as a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionFile {
    /// Its name in the table, which may lead through folders; `partition-N` where that cannot be a path, or is another's.
    pub path: String,
    /// Where it begins on the disk.
    pub first_byte: u64,
    /// Whole logical blocks.
    pub bytes: u64,
}

/// What was found, and what a person should know of it.
pub struct Found {
    /// What it is.
    pub on_disk: OnDisk,
    /// That the disk's partition table is damaged, and its backup was read.
    pub note: Option<String>,
}

impl OnDisk {
    /// Looks at the beginning of a disk, and of its only partition; where the partition table there is damaged, at the backup at the disk's end.
    ///
    /// # Errors
    /// [`MountError::Medium`]; [`MountError::Disk`]: an EROFS that is damaged, or one with features that are not read here; [`MountError::Table`]: a partition
    /// table of which the same is true.
    pub fn look(medium: &Arc<dyn Medium>) -> Result<Found, MountError> {
        let plain = |on_disk| {
            let note = None;
            Ok(Found { on_disk, note })
        };
        if let Some(found) = filesystem(medium, 0..medium.bytes())? {
            return plain(OnDisk::Filesystem(found));
        }
        let bytes = medium.bytes();
        let Some([head, tail]) = gpt::ends(bytes, |range| piece(medium, range).map(Some))? else {
            return plain(OnDisk::Bytes);
        };
        let parsed = gpt::parse(&head, &tail, bytes).map_err(MountError::Table)?;
        let Some(parsed) = parsed else {
            return plain(OnDisk::Bytes);
        };
        let note = parsed.note();
        let places = parsed.places;
        if let [only] = places.as_slice() {
            let part = only.first_byte..only.first_byte + only.bytes;
            if let Some(found) = filesystem(medium, part)? {
                let on_disk = OnDisk::Filesystem(found);
                return Ok(Found { on_disk, note });
            }
        }
        let on_disk = OnDisk::Partitions(files(&places));
        Ok(Found { on_disk, note })
    }
}

/// Bytes of a disk.
fn piece(medium: &Arc<dyn Medium>, range: Range<u64>) -> Result<Vec<u8>, MountError> {
    let mut piece = vec![0; usize::try_from(range.end - range.start).unwrap_or_default()];
    let read = medium.read(range.start, &mut piece);
    read.map_err(MountError::Medium)?;
    Ok(piece)
}

/// The EROFS of a part of a disk, if there is one.
fn filesystem(disk: &Arc<dyn Medium>, part: Range<u64>) -> Result<Option<Filesystem>, MountError> {
    let first_byte = part.start;
    let medium: Arc<dyn Medium> = if part == (0..disk.bytes()) {
        disk.clone()
    } else {
        Arc::new(Part {
            disk: disk.clone(),
            part,
        })
    };
    let blocks = medium.bytes() / BLOCK_BYTES as u64;
    match Image::open(MetadataCache::new(medium.clone()), blocks) {
        Ok(image) => Ok(Some(Filesystem {
            image,
            medium,
            first_byte,
        })),
        Err(ErofsError::NotErofs { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A part of a disk.
struct Part {
    disk: Arc<dyn Medium>,
    part: Range<u64>,
}

impl Medium for Part {
    fn bytes(&self) -> u64 {
        self.part.end - self.part.start
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), ReadFailure> {
        self.disk.read(self.part.start.saturating_add(at), into)
    }
}

fn files(places: &[Place]) -> Vec<PartitionFile> {
    let named = gpt::paths(places).into_iter().zip(places);
    let files = named.map(|(path, place)| PartitionFile {
        path,
        first_byte: place.first_byte,
        bytes: place.bytes,
    });
    files.collect()
}
