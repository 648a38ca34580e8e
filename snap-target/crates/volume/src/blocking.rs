//! A driver that waits: for tools and tests. It reads a volume through the same operations as the reactors do, one fetch at a time.

mod frames;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use transforms::Scratch;
use zerocopy::FromBytes;

use crate::cache::Cache;
use crate::fetch::{Fetch, Placement};
use crate::format::extent::leaf_extent;
use crate::format::raw::{BLOCK_BYTES, RawBlockHeader};
use crate::format::{Extent, SourceId};
use crate::opening::Opening;
use crate::read::{OutBuf, Progress, ReadCounters, ReadOp, check_block};
use crate::volume::Volume;
use crate::{BlobIndex, SourcePolicy, VolumeError};

pub use frames::RawFrames;

/// The bytes of a volume and of its external sources.
pub trait ReadAt {
    /// Reads into `bytes` from `offset` on; returns how many there were.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, source: SourceId, offset: u64, bytes: &mut [u8]) -> io::Result<usize>;
}

/// A volume in memory, without external sources.
impl ReadAt for [u8] {
    fn read_at(&self, source: SourceId, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        if source != SourceId::OWN {
            return Err(io::Error::other(format!("{source} is not open")));
        }
        let rest = usize::try_from(offset).ok().and_then(|at| self.get(at..));
        let rest = rest.unwrap_or_default();
        let len = rest.len().min(bytes.len());
        bytes[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, source: SourceId, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_at(source, offset, bytes)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn read_at(&self, source: SourceId, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(source, offset, bytes)
    }
}

/// A volume file and the files that it is mapped on.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    own: File,
    /// Index = source - 1.
    external: Vec<File>,
}

impl Files {
    /// Opens a volume file (or block device); its length is returned with it.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn open(path: &Path) -> Result<(Files, u64), VolumeError> {
        let opening = |error| VolumeError::io(format!("opening {}", path.display()), error);
        let own = File::open(path).map_err(opening)?;
        // Seeking tells the length of block devices too.
        let bytes = io::Seek::seek(&mut &own, io::SeekFrom::End(0)).map_err(opening)?;
        let files = Files {
            path: path.to_owned(),
            own,
            external: Vec::new(),
        };
        Ok((files, bytes))
    }

    /// Opens the files that the volume is mapped on, where `policy` allows it, and checks that each is what it was.
    ///
    /// # Errors
    /// [`VolumeError::SourceRefused`]; [`VolumeError::SourceChanged`]; [`VolumeError::Io`], with the file's name.
    pub fn open_sources(
        &mut self,
        volume: &Volume,
        policy: &SourcePolicy,
    ) -> Result<(), VolumeError> {
        for (index, source) in (0..).zip(volume.sources()).skip(1) {
            let id = SourceId(index);
            let locator = volume.locator(id);
            let locator = locator.ok_or(VolumeError::Usage("an external source has a locator"))?;
            let path = policy.resolve(&self.path, id, locator)?;
            let opening = |error| {
                let action = format!("opening {}, which the volume is mapped on", path.display());
                VolumeError::io(action, error)
            };
            let file = File::open(&path).map_err(opening)?;
            source.check_unchanged(&file, &path)?;
            self.external.push(file);
        }
        Ok(())
    }
}

impl ReadAt for Files {
    fn read_at(&self, source: SourceId, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let file = match source {
            SourceId::OWN => &self.own,
            SourceId(index) => self
                .external
                .get(index as usize - 1)
                .ok_or_else(|| io::Error::other(format!("{source} is not open")))?,
        };
        let mut done = 0;
        while done < bytes.len() {
            match file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// A volume that is read by waiting.
#[derive(Debug)]
pub struct Reader<S> {
    volume: Volume,
    store: S,
    cache: Cache,
    scratch: Scratch,
    op: ReadOp,
    staging: Vec<u8>,
}

impl Reader<Files> {
    /// Opens a volume file and the files it is mapped on.
    ///
    /// # Errors
    /// What opening a volume can say; [`VolumeError::Io`].
    pub fn open_file(path: &Path, cache_bytes: usize) -> Result<Reader<Files>, VolumeError> {
        let (mut files, store_bytes) = Files::open(path)?;
        let volume = open(&files, store_bytes)?;
        files.open_sources(&volume, &SourcePolicy::default())?;
        Ok(Reader::new(volume, files, cache_bytes))
    }
}

impl<S: ReadAt> Reader<S> {
    /// Reads an open volume from `store`.
    #[must_use]
    pub fn new(volume: Volume, store: S, cache_bytes: usize) -> Reader<S> {
        Reader {
            volume,
            store,
            cache: Cache::new(cache_bytes),
            scratch: Scratch::new(),
            op: ReadOp::new(),
            staging: Vec::new(),
        }
    }

    /// Opens a volume of `store_bytes`.
    ///
    /// # Errors
    /// What opening a volume can say.
    pub fn open(store: S, store_bytes: u64, cache_bytes: usize) -> Result<Reader<S>, VolumeError> {
        let volume = open(&store, store_bytes)?;
        Ok(Reader::new(volume, store, cache_bytes))
    }

    /// The volume, with the view that is read.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Reads another view from now on. What is cached stays.
    pub fn set_volume(&mut self, volume: Volume) {
        self.volume = volume;
    }

    /// The cache, for its counters.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Reads presented bytes `[offset, offset + out.len())` of the view.
    ///
    /// # Errors
    /// Why they cannot be had.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<ReadCounters, VolumeError> {
        let range = offset..offset.saturating_add(out.len() as u64);
        let out = OutBuf::from_slice(out);
        self.op.start(&self.volume, range)?;
        let mut progress = self
            .op
            .step(&self.volume, &mut self.cache, &mut self.scratch, &out)?;
        while progress != Progress::Done {
            while let Some(fetch) = self.op.next_fetch() {
                // Too few bytes are the machine's to refuse: it knows what they were for.
                read_up_to(&self.store, &fetch, &mut self.staging)?;
                if let Placement::Direct { out_offset } = fetch.placement
                    && let Some(mut out) = out.at(out_offset as usize, self.staging.len())
                {
                    out.write(&self.staging);
                }
                self.op.fetched(
                    fetch.id,
                    &[&self.staging],
                    &self.volume,
                    &mut self.cache,
                    &mut self.scratch,
                    &out,
                )?;
            }
            progress = self.op.progress();
        }
        Ok(self.op.counters())
    }

    /// Up to `count_max` extents of the view, from number `first` on: to show them. Each block is checked by itself; whether the
    /// index leads to it is checked by reads and by [`verify`](crate::verify::verify).
    ///
    /// # Errors
    /// Damage; [`VolumeError::Io`].
    pub fn extents(&self, first: u64, count_max: usize) -> Result<Vec<Extent>, VolumeError> {
        let table = self.volume.view().extents;
        let end = table
            .entry_count()
            .min(first.saturating_add(count_max as u64));
        let mut extents = Vec::new();
        let mut number = first;
        while number < end {
            let (block, mut slot) = table.locate(number);
            let mut bytes = [0; BLOCK_BYTES];
            read_exactly(
                &self.store,
                SourceId::OWN,
                table.block_offset(0, block),
                &mut bytes,
            )?;
            let header = RawBlockHeader::ref_from_prefix(&bytes)
                .map_err(|_| VolumeError::Usage("a block holds its header"))?
                .0;
            let keys = header.first_key.get()..header.end_key.get();
            let volume_uuid = self.volume.superblock().volume_uuid;
            check_block(&table, &bytes, 0, block, keys.clone(), volume_uuid)?;
            while number < end
                && table.locate(number).0 == block
                && let Some(raw) = leaf_extent(&table, &bytes, slot)
            {
                extents.push(Extent::parse(raw, table.entry_place(number), &keys)?);
                number += 1;
                slot += 1;
            }
        }
        Ok(extents)
    }

    /// Reads a blob, and checks it.
    ///
    /// # Errors
    /// [`VolumeError::Usage`] for no such blob; damage; [`VolumeError::Io`].
    pub fn read_blob(&self, index: BlobIndex) -> Result<Vec<u8>, VolumeError> {
        read_blob(&self.volume, &self.store, index)
    }
}

/// Opens a volume of `store_bytes`.
///
/// # Errors
/// What opening a volume can say.
pub fn open(store: &(impl ReadAt + ?Sized), store_bytes: u64) -> Result<Volume, VolumeError> {
    let mut opening = Opening::new(store_bytes);
    let mut bytes = Vec::new();
    while let Some(fetch) = opening.next_fetch() {
        read_fetch(store, &fetch, &mut bytes)?;
        opening.fetched(fetch.id, &bytes)?;
    }
    opening.finish()
}

/// Reads a blob, and checks it.
pub(crate) fn read_blob(
    volume: &Volume,
    store: &(impl ReadAt + ?Sized),
    index: BlobIndex,
) -> Result<Vec<u8>, VolumeError> {
    let blob = volume.blobs().get(index.0 as usize);
    let blob = blob.ok_or(VolumeError::Usage("no blob has this index"))?;
    // At most 64 MiB: the volume was refused otherwise.
    let mut bytes = vec![0; usize::try_from(blob.bytes).unwrap_or(0)];
    read_exactly(store, SourceId::OWN, blob.offset, &mut bytes)?;
    volume.check_blob(index, &bytes)?;
    Ok(bytes)
}

fn read_fetch(
    store: &(impl ReadAt + ?Sized),
    fetch: &Fetch,
    bytes: &mut Vec<u8>,
) -> Result<(), VolumeError> {
    bytes.resize(fetch.len as usize, 0);
    read_exactly(store, fetch.source, fetch.offset, bytes)
}

/// As many bytes of a fetch as the store has.
fn read_up_to(
    store: &(impl ReadAt + ?Sized),
    fetch: &Fetch,
    bytes: &mut Vec<u8>,
) -> Result<(), VolumeError> {
    bytes.resize(fetch.len as usize, 0);
    let found = read_some(store, fetch.source, fetch.offset, bytes)?;
    bytes.truncate(found);
    Ok(())
}

fn read_some(
    store: &(impl ReadAt + ?Sized),
    source: SourceId,
    offset: u64,
    bytes: &mut [u8],
) -> Result<usize, VolumeError> {
    let found = store.read_at(source, offset, bytes);
    found.map_err(|error| VolumeError::io(format!("reading {source} at byte {offset}"), error))
}

pub(crate) fn read_exactly(
    store: &(impl ReadAt + ?Sized),
    source: SourceId,
    offset: u64,
    bytes: &mut [u8],
) -> Result<(), VolumeError> {
    let found = read_some(store, source, offset, bytes)?;
    match found == bytes.len() {
        true => Ok(()),
        false => Err(VolumeError::ShortFetch {
            source_id: source,
            offset,
            expected: bytes.len() as u64,
            found: found as u64,
        }),
    }
}
