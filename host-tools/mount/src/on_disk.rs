//! What lies on a disk: a filesystem, partitions, or bytes without names.

use std::collections::HashSet;
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

impl OnDisk {
    /// Looks at the beginning of a disk, and of its only partition.
    ///
    /// # Errors
    /// [`MountError::Medium`]; [`MountError::Disk`]: an EROFS that is damaged, or one with features that are not read here; [`MountError::Table`]: a partition
    /// table of which the same is true.
    pub fn look(medium: &Arc<dyn Medium>) -> Result<OnDisk, MountError> {
        if let Some(found) = filesystem(medium, 0..medium.bytes())? {
            return Ok(OnDisk::Filesystem(found));
        }
        let head_bytes = medium.bytes().min(gpt::HEAD_BYTES as u64);
        let mut head = vec![0; usize::try_from(head_bytes).unwrap_or(0)];
        medium.read(0, &mut head).map_err(MountError::Medium)?;
        let places = gpt::parse(&head, medium.bytes()).map_err(MountError::Table)?;
        let Some(places) = places else {
            return Ok(OnDisk::Bytes);
        };
        if let [only] = places.as_slice() {
            let part = only.first_byte..only.first_byte + only.bytes;
            if let Some(found) = filesystem(medium, part)? {
                return Ok(OnDisk::Filesystem(found));
            }
        }
        Ok(OnDisk::Partitions(files(&places)))
    }
}

/// The EROFS of a part of a disk, if there is one.
fn filesystem(
    disk: &Arc<dyn Medium>,
    part: std::ops::Range<u64>,
) -> Result<Option<Filesystem>, MountError> {
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
    part: std::ops::Range<u64>,
}

impl Medium for Part {
    fn bytes(&self) -> u64 {
        self.part.end - self.part.start
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), ReadFailure> {
        self.disk.read(self.part.start.saturating_add(at), into)
    }
}

/// Each partition with a path that no other has; a name that can be one is not taken from its partition by an earlier one that needs another.
fn files(places: &[Place]) -> Vec<PartitionFile> {
    let mut taken = Paths::default();
    let named: Vec<bool> = places.iter().map(|it| taken.take(&it.name)).collect();
    let files = (1..).zip(places).zip(named);
    files
        .map(|((number, place), is_named)| {
            let mut path = place.name.clone();
            if !is_named {
                path = format!("partition-{number}");
                while !taken.take(&path) {
                    path.push('_');
                }
            }
            PartitionFile {
                path,
                first_byte: place.first_byte,
                bytes: place.bytes,
            }
        })
        .collect()
}

#[derive(Default)]
struct Paths {
    files: HashSet<String>,
    folders: HashSet<String>,
}

impl Paths {
    /// Whether `path` can be a file beside the others; it is one from then on.
    fn take(&mut self, path: &str) -> bool {
        let above = || path.match_indices('/').map(|(at, _)| &path[..at]);
        let is_name = |name: &str| !matches!(name, "" | "." | "..");
        let fits = path.split('/').all(is_name)
            && !self.files.contains(path)
            && !self.folders.contains(path)
            && !above().any(|folder| self.files.contains(folder));
        if fits {
            self.files.insert(path.to_owned());
            self.folders.extend(above().map(str::to_owned));
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_paths_get_others() {
        let names = [
            "a",
            "a/b",
            "c/d",
            "c",
            "",
            "..",
            "c/../x",
            "/e",
            "f/",
            "a",
            "partition-5",
            "c/d/e",
            "ü",
        ];
        let places: Vec<Place> = names
            .iter()
            .map(|name| Place {
                name: (*name).to_owned(),
                first_byte: 0,
                bytes: 1,
            })
            .collect();
        let paths: Vec<String> = files(&places).into_iter().map(|it| it.path).collect();
        let expected = [
            "a",
            "partition-2",
            "c/d",
            "partition-4",
            "partition-5_",
            "partition-6",
            "partition-7",
            "partition-8",
            "partition-9",
            "partition-10",
            "partition-5",
            "partition-12",
            "ü",
        ];
        assert_eq!(paths, expected);
    }
}
