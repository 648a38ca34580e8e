//! From what the configuration names to namespaces.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use namespace::{Backing, Identity, Namespace};
use store::decorate::Limit;
use store::{OpenOptions, SharedStore, StoreError, StoreSpec};
use volume::format::SourceId;
use volume::{ErrorKind, Opening, SourcePolicy, Volume, VolumeError};

use crate::config::{NamespaceConfig, SourceSpec};
use crate::identity::{self, Given};
use crate::{array, remote};

/// Opens what stands behind a namespace. Blocks; not for a reactor. `given` is the UUID of a block device that has no name of its own.
pub fn namespace(
    config: &NamespaceConfig,
    policy: &SourcePolicy,
    given: &mut Given<'_>,
) -> Result<Namespace> {
    let mut namespace = match &config.source {
        SourceSpec::Mixed { parts, lba_bytes } => {
            let open = |part| part_of_mixed(part, *lba_bytes, config, policy, given);
            let parts = parts.iter().map(open).collect::<Result<_>>()?;
            Namespace::mixed(config.nsid, config.source.to_string(), parts)?
        }
        plain => {
            let namespace = of_plain(plain, config, policy, given)?;
            let left_bytes = left_bytes(&namespace);
            if left_bytes > 0 {
                tracing::warn!(store = %plain, left_bytes, lba_bytes = namespace.lba_bytes, "not a whole number of blocks: its last bytes are not presented");
            }
            namespace
        }
    };
    namespace.write_protected |= config.writes.are_refused();
    namespace.is_immutable = config.writes.is_immutable();
    Ok(namespace)
}

/// Opens the last part of a mixed namespace anew, or what any other is as a whole. Blocks, as [`namespace`].
pub fn last_part(
    config: &NamespaceConfig,
    policy: &SourcePolicy,
    given: &mut Given<'_>,
) -> Result<Namespace> {
    match &config.source {
        SourceSpec::Mixed { parts, lba_bytes } => {
            let last = parts.last().context("a mixed namespace has parts")?;
            part_of_mixed(last, *lba_bytes, config, policy, given)
        }
        _ => namespace(config, policy, given),
    }
}

/// Opens a volume or a store.
fn of_plain(
    source: &SourceSpec,
    config: &NamespaceConfig,
    policy: &SourcePolicy,
    given: &mut Given<'_>,
) -> Result<Namespace> {
    let read_only = config.writes.are_refused();
    let mut namespace = match source {
        SourceSpec::Volume { path } => of_volume(config.nsid, path, policy)?,
        SourceSpec::RemoteVolume { url } => remote::of_volume(config.nsid, url)?,
        SourceSpec::Remote { url, lba_bytes } => {
            remote::of_blocks(config.nsid, url, *lba_bytes, read_only)?
        }
        SourceSpec::Array { spec, lba_bytes } => {
            array::of_blocks(config.nsid, spec, *lba_bytes, read_only)?
        }
        SourceSpec::ArrayVolume { spec } => array::of_volume(config.nsid, spec)?,
        SourceSpec::Store { spec, lba_bytes } => {
            let store = open_raw(spec, read_only)?;
            let identity = raw_identity(spec, store.bytes(), given)?;
            Namespace::of_store(config.nsid, store, identity, *lba_bytes)
        }
        SourceSpec::Mixed { .. } => bail!("{source}: a part cannot be mixed itself"),
    };
    if namespace.blocks == 0 {
        bail!(
            "{source}: it presents no block of {} bytes, so there is nothing to serve; leave this STORE out",
            namespace.lba_bytes
        );
    }
    if let Some(limit) = config.limit {
        limited(&mut namespace, limit);
    }
    Ok(namespace)
}

/// Puts the stores of a volume or a store at the end of one line.
fn limited(namespace: &mut Namespace, limit: Limit) {
    match &mut namespace.backing {
        Backing::Raw(store) => {
            if let Some(limited) = limit.over(vec![store.clone()]).pop() {
                *store = limited;
            }
        }
        Backing::View { stores, .. } => *stores = limit.over(std::mem::take(stores)),
        // Its parts were limited before they were mixed.
        Backing::Mixed(_) => {}
    }
}

/// The same of a part, which fits the others without a gap.
fn part_of_mixed(
    source: &SourceSpec,
    lba_bytes: u32,
    config: &NamespaceConfig,
    policy: &SourcePolicy,
    given: &mut Given<'_>,
) -> Result<Namespace> {
    let part = of_plain(source, config, policy, given)?;
    if part.lba_bytes != lba_bytes {
        bail!(
            "{source} is a volume of blocks of {} bytes, and the mixed namespace has blocks of {lba_bytes}: all parts have the same; give it a block size of {} (--lba, lba = in the configuration)",
            part.lba_bytes,
            part.lba_bytes
        );
    }
    let (bytes, left_bytes) = (part.bytes(), left_bytes(&part));
    if left_bytes > 0 {
        bail!(
            "{source} has {} bytes, which is no whole number of blocks of {lba_bytes}, and a part of a mixed namespace must be: make it {bytes} or {} bytes long (truncate --size)",
            bytes + left_bytes,
            bytes + u64::from(lba_bytes)
        );
    }
    Ok(part)
}

/// A volume, served read-only.
fn of_volume(nsid: u32, path: &Path, policy: &SourcePolicy) -> Result<Namespace> {
    let volume = open_volume(path).with_context(|| format!("cannot serve {}", path.display()))?;
    for notice in volume.notices() {
        tracing::warn!(volume = %path.display(), place = %notice.place, why = %notice.why, "the volume is damaged but readable");
    }
    let stores = sources(&volume, path, policy)?;
    let mut namespace = Namespace::of_view(nsid, volume, stores);
    // As it is named everywhere else: file:PATH is the same file byte for byte.
    namespace.name = path.display().to_string();
    Ok(namespace)
}

/// Reads a volume's directory.
fn open_volume(path: &Path) -> Result<Volume> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        let folder = path.display();
        bail!(
            "it is a folder, and a volume is served: make one with 'xio pack {folder} -o {folder}.xio' (or 'xio map'), and serve that"
        );
    }
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
pub fn open_raw(spec: &StoreSpec, read_only: bool) -> Result<SharedStore> {
    let options = if read_only {
        OpenOptions::read_only()
    } else {
        OpenOptions::read_write()
    };
    match SharedStore::open(spec, options) {
        Err(error) if !read_only && is_permission(&error) => {
            let store = SharedStore::open(spec, OpenOptions::read_only())?;
            tracing::warn!(store = %spec, "not writable: served read-only");
            Ok(store)
        }
        other => Ok(other?),
    }
}

/// Bytes at the end of a store that are no whole block.
fn left_bytes(namespace: &Namespace) -> u64 {
    match &namespace.backing {
        Backing::Raw(store) => store.bytes() % u64::from(namespace.lba_bytes),
        Backing::View { .. } | Backing::Mixed(_) => 0,
    }
}

fn is_permission(error: &StoreError) -> bool {
    matches!(error, StoreError::Open { source, .. } if matches!(*source, nix::errno::Errno::EACCES | nix::errno::Errno::EROFS | nix::errno::Errno::EPERM))
}

/// Memory is new each time.
fn raw_identity(spec: &StoreSpec, bytes: u64, given: &mut Given<'_>) -> Result<Identity> {
    Ok(match spec {
        StoreSpec::File { path } => identity::of_path(path, bytes, given)?,
        StoreSpec::Mem { .. } | StoreSpec::Null { .. } | StoreSpec::Void { .. } => {
            let mut fresh = [0; 16];
            File::open("/dev/urandom")?.read_exact(&mut fresh)?;
            Identity::of_raw("memory", &fresh)
        }
    })
}
