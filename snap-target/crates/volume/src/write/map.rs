//! Files that stay where they are: they are read once, for their checksums, digests and ranges, and become streams of another source.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use sha2::{Digest, Sha256};
use transforms::{Chain, ElementType, ValueRange, range_of};

use super::batch::union;
use super::spec::{Integrity, StreamSpec};
use super::spool::Spool;
use super::writer::{DraftStream, count};
use super::{Output, WriteError, Writer, Written};
use crate::checksum::crc32c;
use crate::file_state::FileState;
use crate::format::raw::{BLOCK_BYTES, BLOCK_BYTES_U64};
use crate::format::{BlobIndex, ChainUse, Source, SourceId, SourceKind, StreamIndex};
use crate::limits;

/// What is read at a time: whole granules, so that a granule never lies in two chunks.
const CHUNK_BYTES: usize = 1 << 20;
const _: () = assert!(CHUNK_BYTES.is_multiple_of(BLOCK_BYTES));

/// Chunks that wait for the thread that digests the whole file.
const CHUNKS_WAITING_MAX: usize = 8;

/// A run of elements of a file that becomes a stream where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// What they are.
    pub element: ElementType,
    /// First byte of the first, any byte of the file.
    pub offset: u64,
    /// How many.
    pub elements: u64,
}

impl Region {
    fn bytes(&self) -> Option<Range<u64>> {
        let bytes = self.elements.checked_mul(self.element.bytes() as u64)?;
        Some(self.offset..self.offset.checked_add(bytes)?)
    }
}

/// A file that was mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// Its index among the volume's sources.
    pub source: SourceId,
    /// Its length.
    pub bytes: u64,
    /// Of its whole content.
    pub sha256: [u8; 32],
    /// A stream for each region.
    pub streams: Vec<Written>,
}

/// A file that is mapped, before the tables are written.
pub(super) struct DraftSource {
    pub(super) locator: Vec<u8>,
    pub(super) bytes: u64,
    pub(super) modified_ns: Option<i64>,
    pub(super) sha256: [u8; 32],
    /// The locator's blob, once it is written.
    pub(super) blob: Option<BlobIndex>,
}

impl DraftSource {
    pub(super) fn entry(&self) -> Source {
        Source {
            kind: SourceKind::External,
            locator: self.blob,
            bytes: self.bytes,
            modified_ns: self.modified_ns,
            store_uuid: None,
            digest: Some(self.sha256),
        }
    }
}

impl<O: Output> Writer<O> {
    /// Makes streams of `regions` of `file`, which stays where it is: nothing is copied. `locator` is how readers of the volume find it: a path,
    /// absolute or relative to the volume's directory. The file is read once, from its beginning to its end; `on_progress` is told how many
    /// bytes that are.
    ///
    /// # Errors
    /// Regions that overlap, descend or lie outside the file; a locator of no or more than 4,096 bytes, or with a NUL in it; a file that changes
    /// meanwhile. The writer is of no use afterwards.
    pub fn map_file(
        &mut self,
        locator: &[u8],
        file: &File,
        regions: &[Region],
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Mapped, WriteError> {
        check_locator(locator)?;
        // Source 0 is the volume itself.
        let source = SourceId(count(
            "sources",
            self.sources.len() + 1,
            limits::SOURCES_MAX,
        )?);
        let found = state_of(file)?;
        let scans = self.scans(regions, found.bytes)?;
        let (sha256, scans) = self.scan(file, found.bytes, scans, on_progress)?;
        check_unchanged(found, file)?;
        let mut streams = Vec::with_capacity(scans.len());
        for scan in scans {
            streams.push(self.mapped_stream(source, scan, sha256)?);
        }
        self.sources.push(DraftSource {
            locator: locator.to_owned(),
            bytes: found.bytes,
            modified_ns: found.modified_ns,
            sha256,
            blob: None,
        });
        Ok(Mapped {
            source,
            bytes: found.bytes,
            sha256,
            streams,
        })
    }

    pub(super) fn scans(
        &self,
        regions: &[Region],
        file_bytes: u64,
    ) -> Result<Vec<Scan>, WriteError> {
        let refused = |why: String| WriteError::Refused {
            field: "region",
            why,
        };
        let mut end = 0;
        let mut scans = Vec::with_capacity(regions.len());
        for region in regions {
            let data = region.bytes().filter(|data| data.end <= file_bytes);
            let data = data.ok_or_else(|| {
                refused(format!(
                    "{} elements of {} from byte {} on, of a file of {file_bytes} bytes",
                    region.elements, region.element, region.offset
                ))
            })?;
            if data.start < end {
                return Err(refused(format!(
                    "one begins at byte {}, inside or before the one that ends at byte {end}",
                    data.start
                )));
            }
            end = data.end;
            scans.push(Scan::new(region, data, file_bytes));
        }
        Ok(scans)
    }

    /// Reads the whole file.
    pub(super) fn scan(
        &mut self,
        file: &File,
        file_bytes: u64,
        mut scans: Vec<Scan>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<([u8; 32], Vec<Scan>), WriteError> {
        let (spool, output) = (&mut self.spool, &self.out.output);
        let (to_hash, chunks) = sync_channel::<Arc<Vec<u8>>>(CHUNKS_WAITING_MAX);
        thread::scope(|scope| {
            let hashing = scope.spawn(move || {
                let mut hash = Sha256::new();
                chunks.iter().for_each(|chunk| hash.update(&*chunk));
                <[u8; 32]>::from(hash.finalize())
            });
            let over = |at, chunk: &[u8]| {
                let end = at + chunk.len() as u64;
                // Regions ascend: those that are complete, then those that this chunk has a part of.
                let first = scans.partition_point(|scan| scan.end <= at);
                for scan in scans.iter_mut().skip(first) {
                    if scan.stored.start >= end {
                        break;
                    }
                    scan.take(at, chunk, spool);
                }
                spool.spill_if_full(output)?;
                on_progress(end);
                Ok(())
            };
            let read = read_whole(file, file_bytes, to_hash, over);
            let sha256 = hashing
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            read.map(|()| sha256)
        })
        .map(|sha256| (sha256, scans))
    }

    pub(super) fn mapped_stream(
        &mut self,
        source: SourceId,
        scan: Scan,
        file_sha256: [u8; 32],
    ) -> Result<Written, WriteError> {
        let chain = Chain::from_steps(&[], scan.element).map_err(|error| WriteError::Refused {
            field: "region",
            why: error.to_string(),
        })?;
        let cut = StreamSpec::new(chain.clone()).cut()?;
        let sha256 = scan
            .digest
            .map_or(file_sha256, |hash| hash.finalize().into());
        let written = Written {
            stream: StreamIndex(count("streams", self.streams.len(), limits::STREAMS_MAX)?),
            source_bytes: scan.stored.end - scan.data_start,
            elements: scan.elements,
            stored_bytes: scan.stored.end - scan.stored.start,
            proven: scan.range,
            sha256,
            elements_sha256: sha256,
        };
        let chain = self.chain_index(ChainUse::Stored(chain))?;
        self.streams.push(DraftStream {
            chain,
            cut,
            // Others may write to the file at any time.
            integrity: Integrity::Crc32c,
            source,
            stored_offset: scan.stored.start,
            skip_bytes: scan.skip_bytes,
            written: written.clone(),
            spooled_at: scan.spooled_at.unwrap_or_default(),
            spooled_entries: scan.spooled_entries,
        });
        Ok(written)
    }
}

pub(super) fn check_locator(locator: &[u8]) -> Result<(), WriteError> {
    let refused = |why: String| {
        Err(WriteError::Refused {
            field: "locator",
            why,
        })
    };
    let bytes_max = limits::TEXT_BYTES_MAX;
    if locator.is_empty() || locator.len() as u64 > bytes_max {
        return refused(format!(
            "{} bytes; 1 to {bytes_max} are possible",
            locator.len()
        ));
    }
    if locator.contains(&0) {
        return refused("it has a NUL in it, as no path has".to_owned());
    }
    Ok(())
}

pub(super) fn state_of(file: &File) -> Result<FileState, WriteError> {
    FileState::of(file).map_err(|error| WriteError::Input { offset: 0, error })
}

pub(super) fn check_unchanged(was: FileState, file: &File) -> Result<(), WriteError> {
    let now = state_of(file)?;
    let what = match () {
        () if now.bytes != was.bytes => "its length",
        () if now.modified_ns != was.modified_ns => "its modification time",
        () => return Ok(()),
    };
    Err(WriteError::Changed { what })
}

/// Reads chunk after chunk to `file_bytes`, and hands each to `over` with its offset, and to the thread that digests the whole.
fn read_whole(
    file: &File,
    file_bytes: u64,
    to_hash: SyncSender<Arc<Vec<u8>>>,
    mut over: impl FnMut(u64, &[u8]) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let mut at = 0;
    while at < file_bytes {
        let rest = usize::try_from(file_bytes - at).unwrap_or(usize::MAX);
        let mut chunk = vec![0; CHUNK_BYTES.min(rest)];
        file.read_exact_at(&mut chunk, at)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => WriteError::Changed { what: "its length" },
                _ => WriteError::Input { offset: at, error },
            })?;
        let chunk = Arc::new(chunk);
        // The thread takes until this end is gone.
        let _ = to_hash.send(Arc::clone(&chunk));
        over(at, &chunk)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

/// A region on its way through the file.
pub(super) struct Scan {
    element: ElementType,
    elements: u64,
    /// Of the file: from the granule that the region begins in.
    stored: Range<u64>,
    data_start: u64,
    /// Where the next region may begin.
    end: u64,
    skip_bytes: u16,
    spooled_at: Option<u64>,
    spooled_entries: u64,
    /// `None`: it is the whole file, whose digest is made anyway.
    digest: Option<Sha256>,
    range: Option<ValueRange>,
    /// The beginning of an element whose end is in the next chunk.
    begun: Vec<u8>,
}

impl Scan {
    /// Bytes of the file that its checksums cover.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.stored.end - self.stored.start
    }

    fn new(region: &Region, data: Range<u64>, file_bytes: u64) -> Scan {
        let granule_start = data.start / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
        // Without elements there is nothing to skip to.
        let (data_start, stored_end) = match data.is_empty() {
            true => (granule_start, granule_start),
            false => (data.start, data.end),
        };
        Scan {
            element: region.element,
            elements: region.elements,
            stored: granule_start..stored_end,
            data_start,
            skip_bytes: u16::try_from(data_start - granule_start).unwrap_or(0),
            spooled_at: None,
            spooled_entries: 0,
            digest: (data != (0..file_bytes)).then(Sha256::new),
            end: data.end,
            range: None,
            begun: Vec::new(),
        }
    }

    /// Takes its part of the chunk that lies at `at`.
    fn take(&mut self, at: u64, chunk: &[u8], spool: &mut Spool) {
        let part = |range: Range<u64>| {
            let index = |position: u64| usize::try_from(position.saturating_sub(at)).unwrap_or(0);
            let to = index(range.end).min(chunk.len());
            chunk.get(index(range.start)..to).unwrap_or_default()
        };
        let spooled_at = spool.len();
        self.spooled_at.get_or_insert(spooled_at);
        for granule in part(self.stored.clone()).chunks(BLOCK_BYTES) {
            spool.append(&crc32c(granule).to_le_bytes());
            self.spooled_entries += 1;
        }
        let data = part(self.data_start..self.stored.end);
        if let Some(digest) = &mut self.digest {
            digest.update(data);
        }
        self.widen(data);
    }

    /// Proves the range of the elements of `data`, the first of which may have begun in the chunk before.
    fn widen(&mut self, mut data: &[u8]) {
        if !self.element.is_integer() {
            return;
        }
        let element_bytes = self.element.bytes();
        if !self.begun.is_empty() {
            let missing = (element_bytes - self.begun.len()).min(data.len());
            let (rest, behind) = data.split_at(missing);
            self.begun.extend_from_slice(rest);
            data = behind;
            if self.begun.len() < element_bytes {
                return;
            }
            self.range = union(self.range, range_of(self.element, &self.begun));
            self.begun.clear();
        }
        let (whole, begun) = data.split_at(data.len() / element_bytes * element_bytes);
        self.range = union(self.range, range_of(self.element, whole));
        self.begun.extend_from_slice(begun);
    }
}
