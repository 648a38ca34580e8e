//! A volume in a file, read without a target.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use volume::blocking::{self, Files, Reader};
use volume::{SourcePolicy, Volume};

use crate::failure::Failure;
use crate::tag::Tagged;

/// Memory of a reader's cache: chunks are read in order, so little is worth keeping.
const CACHE_BYTES: usize = 16 << 20;

/// An open volume and the files that its stored bytes are in.
pub struct LocalVolume {
    /// Where it is, which a tag may have said.
    pub path: PathBuf,
    /// What it holds.
    pub volume: Volume,
    /// Its own file, and those it maps.
    pub files: Files,
    /// Length of its own file, which may be longer than the volume.
    pub store_bytes: u64,
}

impl LocalVolume {
    /// Opens the volume at `path`, and the files that it maps, in its own directory and in those of `allow_sources`.
    pub fn open(path: &Path, allow_sources: &[PathBuf]) -> Result<LocalVolume, Failure> {
        let mut local = LocalVolume::open_alone(path)?;
        let policy = SourcePolicy {
            allowed: allow_sources.to_vec(),
        };
        let opened = local.files.open_sources(&local.volume, &policy);
        opened.map_err(|error| Failure::from(error).about(path.display()))?;
        Ok(local)
    }

    /// Opens the volume at `path`, or with the tag that `path` names (`FOLDER@NAME`), to look at what it says of itself.
    pub fn open_alone(path: &Path) -> Result<LocalVolume, Failure> {
        let tagged = Tagged::resolve(path)?;
        let path = tagged.path.as_path();
        if path.is_dir() {
            return Err(Failure::usage(anyhow!(
                "{} is a folder, not a volume",
                path.display()
            )));
        }
        let about = |error| Failure::from(error).about(path.display());
        let (files, store_bytes) = Files::open(path)?;
        let volume = blocking::open(&files, store_bytes).map_err(about)?;
        tagged.check(&volume)?;
        Ok(LocalVolume {
            path: path.to_owned(),
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
