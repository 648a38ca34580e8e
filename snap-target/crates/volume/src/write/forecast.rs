//! How long a volume will be, before its streams are encoded: they are taken for as long as the caller says, all the rest is laid out as it will be.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use nix::sys::memfd::{MFdFlags, memfd_create};
use transforms::Table as ChainTable;

use super::map::{DraftSource, check_locator};
use super::spec::{Integrity, StreamSpec};
use super::writer::{DraftStream, check_tables, count};
use super::{Output, Region, WriteError, Writer, Written};
use crate::format::raw::BLOCK_BYTES_U64;
use crate::format::{ChainUse, SourceId, StreamIndex, Table, TableKind};
use crate::limits;

/// An output that keeps nothing: for a volume of which only the length is asked.
#[derive(Debug, Default)]
pub struct Nowhere;

impl Output for Nowhere {
    fn write_at(&mut self, _offset: u64, _bytes: &[u8]) -> Result<(), WriteError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn publish(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn scratch_file(&self) -> Result<File, WriteError> {
        let file = memfd_create(c"xio tables", MFdFlags::MFD_CLOEXEC);
        let file = file.map_err(|error| self.failed("creating", error.into()))?;
        Ok(File::from(file))
    }

    fn failed(&self, action: &'static str, error: io::Error) -> WriteError {
        WriteError::Output {
            action,
            path: PathBuf::from("a file in memory"),
            error,
        }
    }
}

impl Writer<Nowhere> {
    /// A stream of `source_bytes` that takes `stored_bytes` in the volume. Its digests are those of its number: as long as real ones.
    ///
    /// # Errors
    /// As [`Writer::add_stream`], of the specification.
    pub fn assume_stream(
        &mut self,
        spec: &StreamSpec,
        source_bytes: u64,
        stored_bytes: u64,
    ) -> Result<Written, WriteError> {
        let cut = spec.cut()?;
        check_tables(&spec.chain)?;
        let elements = source_bytes / spec.chain.source().bytes() as u64;
        let entries = match (cut.frame_elements, spec.integrity) {
            (Some(frame_elements), _) => elements.div_ceil(frame_elements),
            (None, Integrity::Crc32c) => stored_bytes.div_ceil(BLOCK_BYTES_U64),
            (None, Integrity::None) => 0,
        };
        let stored_offset = self.out.position();
        self.out.skip(stored_bytes)?;
        self.out.align()?;
        let written = self.assumed(source_bytes, elements, stored_bytes)?;
        let chain = self.chain_index(ChainUse::Stored(spec.chain.clone()))?;
        self.streams.push(DraftStream {
            chain,
            cut,
            integrity: spec.integrity,
            source: SourceId::OWN,
            stored_offset,
            skip_bytes: 0,
            written: written.clone(),
            spooled_at: 0,
            spooled_entries: entries,
        });
        Ok(written)
    }

    /// A file of `file_bytes` that is mapped: a stream for each region.
    ///
    /// # Errors
    /// As [`Writer::map_file`], of the locator and the regions.
    pub fn assume_file(
        &mut self,
        locator: &[u8],
        file_bytes: u64,
        regions: &[Region],
    ) -> Result<Vec<Written>, WriteError> {
        check_locator(locator)?;
        let have = self.sources.len() + 1;
        let source = SourceId(count("sources", have, limits::SOURCES_MAX)?);
        let scans = self.scans(regions, file_bytes)?;
        let mut streams = Vec::with_capacity(scans.len());
        for scan in scans {
            let granules = scan.stored_bytes().div_ceil(BLOCK_BYTES_U64);
            let mut draft = self.mapped_stream(source, scan, [0; 32])?;
            draft.elements_sha256 = sha256_of_number(draft.stream);
            draft.sha256 = draft.elements_sha256;
            if let Some(last) = self.streams.last_mut() {
                last.spooled_entries = granules;
            }
            streams.push(draft);
        }
        self.sources.push(DraftSource {
            locator: locator.to_owned(),
            bytes: file_bytes,
            modified_ns: None,
            sha256: [0; 32],
            blob: None,
        });
        Ok(streams)
    }

    /// The length that [`finish`](Writer::finish) gives such a volume.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        let table = |kind, entries: u64| Table::at(kind, 0, entries, 0).bytes();
        let of_streams = self.streams.iter().map(|draft| {
            let is_framed = draft.cut.frame_elements.is_some();
            let kind = if is_framed {
                TableKind::Frames
            } else {
                TableKind::Checksums
            };
            table(kind, draft.spooled_entries)
        });
        let of_views = self.views.iter();
        let of_views = of_views.map(|draft| table(TableKind::Extents, draft.spooled_entries));
        let names = self.views.iter().map(|draft| draft.spec.name.len());
        let manifests = self.views.iter().filter_map(|it| it.spec.manifest.as_ref());
        let manifests = manifests.map(Vec::len);
        let locators = self.sources.iter().map(|source| source.locator.len());
        let texts = names.chain(manifests).chain(locators);
        let texts = texts.map(|bytes| bytes as u64);
        let tables = self.chain_tables.iter();
        let tables = tables.map(ChainTable::stored_bytes);
        let blobs: Vec<u64> = texts.chain(tables).collect();
        let blob_bytes: u64 = blobs.iter().sum();
        let directory = [
            (TableKind::Sources, 1 + self.sources.len()),
            (TableKind::Streams, self.streams.len()),
            (TableKind::Chains, self.chains.len()),
            (TableKind::Blobs, blobs.len()),
            (TableKind::Views, self.views.len()),
        ];
        let directory = directory.map(|(kind, entries)| table(kind, entries as u64));
        self.out.position()
            + of_streams.sum::<u64>()
            + of_views.sum::<u64>()
            + blob_bytes.next_multiple_of(BLOCK_BYTES_U64)
            + directory.iter().sum::<u64>()
            + BLOCK_BYTES_U64
    }

    fn assumed(
        &self,
        source_bytes: u64,
        elements: u64,
        stored_bytes: u64,
    ) -> Result<Written, WriteError> {
        let have = self.streams.len();
        let stream = StreamIndex(count("streams", have, limits::STREAMS_MAX)?);
        let digest = sha256_of_number(stream);
        Ok(Written {
            stream,
            source_bytes,
            elements,
            stored_bytes,
            proven: None,
            sha256: digest,
            elements_sha256: digest,
        })
    }
}

/// Something that compresses as little as a digest.
fn sha256_of_number(stream: StreamIndex) -> [u8; 32] {
    crate::identity::sha256(&stream.0.to_le_bytes())
}
