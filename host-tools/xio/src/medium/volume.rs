//! A volume in a file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use mount::{Medium, ReadFailure};
use transforms::ElementType;
use volume::blocking::{Files, ReadAt, Reader};
use volume::format::{Mapping, Stream};
use volume::{ErrorKind, SourceId, Volume, VolumeError};

use crate::failure::Failure;
use crate::local::LocalVolume;

/// Memory of a reader's cache. There are as many readers as reads at once.
const CACHE_BYTES: usize = 8 << 20;
/// Extents that are looked at to tell the type of the elements.
const EXTENTS_MAX: usize = 100_000;

/// A volume's presented bytes: of its first view.
pub struct VolumeMedium {
    volume: Volume,
    files: Arc<Files>,
    /// When its file was written.
    pub modified: SystemTime,
    idle: Mutex<Vec<Reader<Shared>>>,
}

struct Shared(Arc<Files>);

impl ReadAt for Shared {
    fn read_at(&self, source: SourceId, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(source, offset, bytes)
    }
}

impl VolumeMedium {
    /// Opens the volume at `path`, and what it maps.
    pub fn open(path: &Path, allow_sources: &[PathBuf]) -> Result<VolumeMedium, Failure> {
        let local = LocalVolume::open(path, allow_sources)?;
        if local.volume.views().len() > 1 {
            printout::stderr::note(format_args!(
                "{} has {} views, and this is the first, \"{}\"; 'xio format {} -o DISK' makes a disk with all of them",
                path.display(),
                local.volume.views().len(),
                local.volume.name().escape_debug(),
                path.display()
            ));
        }
        let modified = std::fs::metadata(&local.path).and_then(|about| about.modified());
        Ok(VolumeMedium {
            volume: local.volume,
            files: Arc::new(local.files),
            modified: modified.unwrap_or(SystemTime::UNIX_EPOCH),
            idle: Mutex::default(),
        })
    }

    /// What the view is called.
    pub fn name(&self) -> &str {
        self.volume.name()
    }

    /// The type of the elements that it presents, where all are of one.
    pub fn element(&self) -> Option<ElementType> {
        let reader = Reader::new(self.volume.clone(), &*self.files, 0);
        let extents = reader.extents(0, EXTENTS_MAX).ok()?;
        let all = self.volume.view().extents.entry_count() == extents.len() as u64;
        let mut types = extents.iter().filter_map(|extent| match extent.mapping {
            Mapping::Linear {
                stream,
                view_chain: None,
                ..
            } => Some(self.volume.stream(stream).map(Stream::element_type)),
            Mapping::Linear { .. } | Mapping::Inline(_) => Some(None),
            Mapping::Zero => None,
        });
        let first = types.next().flatten()?;
        (all && types.all(|other| other == Some(first))).then_some(first)
    }

    /// What its view says of itself.
    pub fn manifest(&self) -> Result<Option<Vec<u8>>, Failure> {
        let reader = Reader::new(self.volume.clone(), &*self.files, 0);
        let blob = self.volume.view().manifest;
        let text = blob.map(|blob| reader.read_blob(blob)).transpose();
        text.map_err(Failure::from)
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }
}

impl Medium for VolumeMedium {
    fn bytes(&self) -> u64 {
        self.volume.presented_bytes()
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), ReadFailure> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = idle().pop();
        let mut reader = reader.unwrap_or_else(|| {
            let files = Shared(self.files.clone());
            Reader::new(self.volume.clone(), files, CACHE_BYTES)
        });
        let read = reader.read(at, into);
        idle().push(reader);
        read.map(drop).map_err(|error: VolumeError| ReadFailure {
            // A mapped file that was cut off has what is before the cut.
            is_damage: error.kind() == ErrorKind::Corrupt
                || matches!(error.cause(), VolumeError::ShortFetch { .. }),
            why: error.to_string(),
        })
    }
}
