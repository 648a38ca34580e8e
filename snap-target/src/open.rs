//! From what the configuration names to namespaces.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use namespace::{Identity, Namespace};
use store::{OpenOptions, SharedStore, StoreError, StoreSpec};
use volume::format::SourceId;
use volume::{ErrorKind, Opening, SourcePolicy, Volume, VolumeError};

use crate::config::{NamespaceConfig, SourceSpec};
use crate::identity::{self, Given};

/// Opens what stands behind a namespace. Blocks; not for a reactor. `given` is the UUID of a block device that has no name of its own.
pub fn namespace(
    config: &NamespaceConfig,
    policy: &SourcePolicy,
    given: &mut Given<'_>,
) -> Result<Namespace> {
    let mut namespace = match &config.source {
        SourceSpec::Volume { path } => of_volume(config.nsid, path, policy)?,
        SourceSpec::Store { spec, lba_bytes } => {
            let store = open_raw(spec, config.read_only)?;
            let identity = raw_identity(spec, store.bytes(), given)?;
            of_raw(config.nsid, spec, store, identity, *lba_bytes)
        }
    };
    if namespace.blocks == 0 {
        bail!(
            "{}: it presents no block of {} bytes, so there is nothing to serve; leave this STORE out",
            config.source,
            namespace.lba_bytes
        );
    }
    namespace.write_protected |= config.read_only;
    Ok(namespace)
}

/// Whether it is the same disk after a restart.
pub fn is_lasting(config: &NamespaceConfig) -> bool {
    !matches!(
        config.source,
        SourceSpec::Store {
            spec: StoreSpec::Mem { .. } | StoreSpec::Null { .. },
            ..
        }
    )
}

/// A volume, served read-only.
fn of_volume(nsid: u32, path: &Path, policy: &SourcePolicy) -> Result<Namespace> {
    let volume = open_volume(path).with_context(|| format!("cannot serve {}", path.display()))?;
    for notice in volume.notices() {
        tracing::warn!(volume = %path.display(), place = %notice.place, why = %notice.why, "the volume is damaged but readable");
    }
    let stores = sources(&volume, path, policy)?;
    Ok(Namespace::of_view(nsid, volume, stores))
}

/// Reads a volume's directory.
fn open_volume(path: &Path) -> Result<Volume> {
    let file = File::open(path)?;
    let bytes = size_of(&file)?;
    match read_directory(&file, bytes) {
        Err(error)
            if error
                .downcast_ref::<VolumeError>()
                .is_some_and(is_no_volume) =>
        {
            Err(error.context(format!(
                "to serve the file as a plain disk, byte for byte, write file:{}",
                path.display()
            )))
        }
        other => other,
    }
}

fn is_no_volume(error: &VolumeError) -> bool {
    error.kind() == ErrorKind::Unsupported && matches!(error, VolumeError::NotAVolume { .. })
}

fn read_directory(file: &File, bytes: u64) -> Result<Volume> {
    let mut opening = Opening::new(bytes);
    let mut buffer = Vec::new();
    while let Some(fetch) = opening.next_fetch() {
        buffer.resize(fetch.len as usize, 0);
        file.read_exact_at(&mut buffer, fetch.offset)
            .with_context(|| format!("reading {} bytes at {}", fetch.len, fetch.offset))?;
        opening.fetched(fetch.id, &buffer)?;
    }
    Ok(opening.finish()?)
}

/// Size of a file or block device.
fn size_of(mut file: &File) -> Result<u64> {
    use std::io::{Seek, SeekFrom};
    Ok(file.seek(SeekFrom::End(0))?)
}

/// The stores of a volume's sources: itself, and the files it maps.
fn sources(volume: &Volume, path: &Path, policy: &SourcePolicy) -> Result<Vec<SharedStore>> {
    let mut stores = Vec::with_capacity(volume.sources().len());
    for (index, source) in volume.sources().iter().enumerate() {
        let id = SourceId(u32::try_from(index)?);
        let place = if id == SourceId::OWN {
            path.to_owned()
        } else {
            located(volume, id, path, policy)?
        };
        let spec = StoreSpec::File {
            path: place.clone(),
        };
        let store = SharedStore::open(&spec, OpenOptions::read_only())
            .with_context(|| format!("source {index} of {}", path.display()))?;
        if id != SourceId::OWN {
            let file =
                File::open(&place).with_context(|| format!("opening {}", place.display()))?;
            source
                .check_unchanged(&file, &place)
                .with_context(|| format!("cannot serve {}", path.display()))?;
        }
        stores.push(store);
    }
    Ok(stores)
}

/// Where a mapped source lies, if it may be opened.
fn located(volume: &Volume, id: SourceId, path: &Path, policy: &SourcePolicy) -> Result<PathBuf> {
    let locator = volume.locator(id);
    let locator =
        locator.with_context(|| format!("source {} of {} has no locator", id.0, path.display()))?;
    let found = policy.resolve(path, id, locator);
    found.with_context(|| format!("cannot serve {}", path.display()))
}

/// For writes, where it can be.
fn open_raw(spec: &StoreSpec, read_only: bool) -> Result<SharedStore> {
    let options = if read_only {
        OpenOptions::read_only()
    } else {
        OpenOptions::read_write()
    };
    match SharedStore::open(spec, options) {
        Err(error) if !read_only && is_permission(&error) => {
            tracing::warn!(store = %spec, "not writable: served read-only");
            Ok(SharedStore::open(spec, OpenOptions::read_only())?)
        }
        other => Ok(other?),
    }
}

/// A store as it is.
fn of_raw(
    nsid: u32,
    spec: &StoreSpec,
    store: SharedStore,
    identity: Identity,
    lba_bytes: u32,
) -> Namespace {
    let left_bytes = store.bytes() % u64::from(lba_bytes);
    if left_bytes > 0 && left_bytes < store.bytes() {
        tracing::warn!(store = %spec, left_bytes, lba_bytes, "not a whole number of blocks: its last bytes are not presented");
    }
    Namespace::of_store(nsid, store, identity, lba_bytes)
}

fn is_permission(error: &StoreError) -> bool {
    matches!(error, StoreError::Open { source, .. } if matches!(*source, nix::errno::Errno::EACCES | nix::errno::Errno::EROFS | nix::errno::Errno::EPERM))
}

/// Memory is new each time.
fn raw_identity(spec: &StoreSpec, bytes: u64, given: &mut Given<'_>) -> Result<Identity> {
    Ok(match spec {
        StoreSpec::File { path } => identity::of_path(path, bytes, given)?,
        StoreSpec::Mem { .. } | StoreSpec::Null { .. } => {
            let mut fresh = [0; 16];
            File::open("/dev/urandom")?.read_exact(&mut fresh)?;
            Identity::of_raw("memory", &fresh)
        }
    })
}
