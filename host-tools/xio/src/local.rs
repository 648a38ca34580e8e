//! A volume in a file, read without a target.

use std::path::Path;

use anyhow::anyhow;
use volume::Volume;
use volume::blocking::{self, Files, Reader};

use crate::failure::Failure;

/// Memory of a reader's cache: chunks are read in order, so little is worth keeping.
const CACHE_BYTES: usize = 16 << 20;

/// An open volume and the files that its stored bytes are in.
pub struct LocalVolume {
    /// What it holds.
    pub volume: Volume,
    /// Its own file, and those it maps.
    pub files: Files,
    /// Length of its own file, which may be longer than the volume.
    pub store_bytes: u64,
}

impl LocalVolume {
    /// Opens the volume at `path`, and the files that it maps.
    pub fn open(path: &Path) -> Result<LocalVolume, Failure> {
        if path.is_dir() {
            return Err(Failure::usage(anyhow!(
                "{} is a folder, not a volume",
                path.display()
            )));
        }
        let about = |error| Failure::from(error).about(path.display());
        let (mut files, store_bytes) = Files::open(path)?;
        let volume = blocking::open(&files, store_bytes).map_err(about)?;
        files.open_sources(&volume).map_err(about)?;
        Ok(LocalVolume {
            volume,
            files,
            store_bytes,
        })
    }

    /// Something to read presented bytes with: one for each thread.
    pub fn reader(&self) -> Reader<&Files> {
        Reader::new(self.volume.clone(), &self.files, CACHE_BYTES)
    }
}
