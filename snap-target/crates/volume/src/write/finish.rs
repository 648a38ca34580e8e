//! The end of a volume: tables, names, directory, superblocks; each durable before what refers to it is written.

use std::iter;

use sha2::{Digest as _, Sha256};
use transforms::Table as ChainTable;
use zerocopy::{Immutable, IntoBytes};

use super::appender::Appender;
use super::map::DraftSource;
use super::spec::Integrity;
use super::spool::SpoolReader;
use super::table::write_table;
use super::writer::{DraftStream, DraftView, Writer, count};
use super::{Output, WriteError, Written};
use crate::checksum::crc32c;
use crate::format::raw::{BLOCK_BYTES_U64, MAGIC, RawChain, RawExtent, VERSION, zeroed_superblock};
use crate::format::superblock::{SLOT_OFFSETS, TAIL_SLOT, seal};
use crate::format::{
    Blob, BlobIndex, BlobKind, Frame, Layout, Source, SourceKind, Stream, Table, TableKind, View,
};
use crate::identity::{Uuid, sha256, version_8};
use crate::limits;

/// A volume that is complete and durable under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Of the whole volume.
    pub volume_bytes: u64,
    /// Its identity.
    pub volume_uuid: Uuid,
    /// Every stream.
    pub streams: Vec<Written>,
}

const GENERATION: u64 = 1;

impl<O: Output> Writer<O> {
    /// Writes what is left, and makes the volume visible under its name: the tables first, the tail superblock when they are
    /// durable, the superblock slots last.
    ///
    /// # Errors
    /// A write that failed. Nothing is left then.
    pub fn finish(mut self) -> Result<Finished, WriteError> {
        if self.views.is_empty() {
            return Err(WriteError::Refused {
                field: "view",
                why: "a volume has at least one".to_owned(),
            });
        }
        let content_uuid = self.content_uuid()?;
        let volume_uuid = self.options.volume_uuid.unwrap_or(content_uuid);
        let streams = self.write_stream_tables(volume_uuid)?;
        let mut views = self.write_view_tables(volume_uuid, &content_uuid)?;
        let (blobs, first_table) = self.write_blobs(&mut views)?;
        let blob_of = |table: &ChainTable| {
            let index = self.chain_tables.position(table)?;
            blob_index(first_table + index).ok()
        };
        let chains: Vec<RawChain> = (self.chains.iter())
            .map(|chain| chain.to_raw(blob_of))
            .collect();
        let directory = self.write_directory(volume_uuid, &streams, &views, &blobs, &chains)?;
        self.out.flush()?;
        let volume_bytes = self.write_superblocks(volume_uuid, directory)?;
        self.out.output.publish()?;
        Ok(Finished {
            volume_bytes,
            volume_uuid,
            streams: self
                .streams
                .into_iter()
                .map(|draft| draft.written)
                .collect(),
        })
    }

    /// A UUID that is a function of what the volume holds and presents.
    fn content_uuid(&self) -> Result<Uuid, WriteError> {
        let mut hash = Sha256::new();
        hash.update(b"xio volume uuid 1");
        hash.update(self.options.lba_bytes.to_le_bytes());
        for chain in &self.chains {
            hash.update(chain.to_raw(|_| None).as_bytes());
            for table in chain.tables() {
                hash.update(sha256(&table.to_bytes()));
            }
        }
        hash.update((self.streams.len() as u64).to_le_bytes());
        for draft in &self.streams {
            hash.update(draft.chain.0.to_le_bytes());
            hash.update([u8::from(draft.integrity == Integrity::Crc32c)]);
            hash.update(draft.cut.frame_elements.unwrap_or(0).to_le_bytes());
            hash.update(draft.written.elements.to_le_bytes());
            hash.update(draft.written.elements_sha256);
        }
        self.hash_sources(&mut hash);
        for draft in &self.views {
            hash.update((draft.spec.name.len() as u64).to_le_bytes());
            hash.update(&draft.spec.name);
            if let Some(manifest) = &draft.spec.manifest {
                // No view has as many extents: what follows is no count.
                hash.update(u64::MAX.to_le_bytes());
                hash.update([u8::from(draft.spec.lossy)]);
                hash.update(sha256(manifest));
            }
            hash.update(draft.spooled_entries.to_le_bytes());
            let mut extents = self.spool.reader(draft.spooled_at);
            for _ in 0..draft.spooled_entries {
                hash.update(self.extent_bytes(&mut extents)?);
            }
        }
        Ok(version_8(hash.finalize().into()))
    }

    /// Where mapped streams lie. A volume that maps nothing has nothing here.
    fn hash_sources(&self, hash: &mut Sha256) {
        for source in &self.sources {
            // No name is as long: what follows is no view.
            hash.update(u64::MAX.to_le_bytes());
            hash.update((source.locator.len() as u64).to_le_bytes());
            hash.update(&source.locator);
            hash.update(source.sha256);
        }
        for draft in self.streams.iter().filter(|draft| draft.is_mapped()) {
            hash.update(draft.source.0.to_le_bytes());
            hash.update((draft.stored_offset + u64::from(draft.skip_bytes)).to_le_bytes());
        }
    }

    /// Frame and checksum tables.
    fn write_stream_tables(&mut self, volume_uuid: Uuid) -> Result<Vec<Stream>, WriteError> {
        let mut streams = Vec::with_capacity(self.streams.len());
        for (owner, draft) in (0..).zip(&self.streams) {
            let mut spooled = self.spool.reader(draft.spooled_at);
            let failed = |error| WriteError::Spool { error };
            let entries = draft.spooled_entries;
            let layout = match (draft.cut.frame_elements, draft.integrity) {
                (None, Integrity::None) => Layout::Unframed {
                    skip_bytes: draft.skip_bytes,
                    checksums: None,
                },
                (None, Integrity::Crc32c) => {
                    let fill = |index, entry: &mut [u8]| {
                        entry.copy_from_slice(&spooled.take::<4>().map_err(failed)?);
                        Ok(index..index + 1)
                    };
                    let table = write_table(
                        &mut self.out,
                        TableKind::Checksums,
                        owner,
                        entries,
                        volume_uuid,
                        fill,
                    )?;
                    Layout::Unframed {
                        skip_bytes: draft.skip_bytes,
                        checksums: Some(table),
                    }
                }
                (Some(frame_elements), _) => {
                    let mut offset = 0;
                    let fill = |index, entry: &mut [u8]| {
                        let frame = Frame {
                            offset,
                            stored_bytes: u32::from_le_bytes(spooled.take().map_err(failed)?),
                            crc: u32::from_le_bytes(spooled.take().map_err(failed)?),
                        };
                        offset += u64::from(frame.stored_bytes);
                        entry.copy_from_slice(frame.to_raw().as_bytes());
                        Ok(index..index + 1)
                    };
                    let frames = write_table(
                        &mut self.out,
                        TableKind::Frames,
                        owner,
                        entries,
                        volume_uuid,
                        fill,
                    )?;
                    Layout::Framed {
                        frame_elements,
                        frames,
                    }
                }
            };
            streams.push(stream_entry(draft, layout));
        }
        Ok(streams)
    }

    /// Extent tables. The names are blobs in the order of the views; manifests and locators come behind them.
    fn write_view_tables(
        &mut self,
        volume_uuid: Uuid,
        content_uuid: &Uuid,
    ) -> Result<Vec<View>, WriteError> {
        let mut views = Vec::with_capacity(self.views.len());
        for (owner, draft) in (0..).zip(&self.views) {
            let mut spooled = self.spool.reader(draft.spooled_at);
            let fill = |_, entry: &mut [u8]| {
                let bytes = spooled
                    .take::<EXTENT_BYTES>()
                    .map_err(|error| WriteError::Spool { error })?;
                entry.copy_from_slice(&bytes);
                let start = u64_at(&bytes, 0);
                Ok(start..start + u64_at(&bytes, 8))
            };
            let entries = draft.spooled_entries;
            let extents = write_table(
                &mut self.out,
                TableKind::Extents,
                owner,
                entries,
                volume_uuid,
                fill,
            )?;
            views.push(View {
                view_uuid: view_uuid(&draft.spec.name),
                presented_bytes: draft.presented_bytes,
                name: BlobIndex(owner),
                manifest: None,
                extents,
                lossy: draft.spec.lossy,
                revision_uuid: revision_uuid(content_uuid, &draft.spec.name),
            });
        }
        Ok(views)
    }

    /// Names, manifests, locators, tables of chains, in this order; tells the views where their manifests are, and returns which blob the first table is.
    fn write_blobs(&mut self, views: &mut [View]) -> Result<(Vec<Blob>, usize), WriteError> {
        let mut blobs = Vec::with_capacity(self.views.len() + self.sources.len());
        let out = &mut self.out;
        for DraftView { spec, .. } in &self.views {
            blobs.push(write_blob(out, BlobKind::Name, spec.name.as_bytes())?);
        }
        for (draft, view) in self.views.iter().zip(views) {
            if let Some(manifest) = &draft.spec.manifest {
                view.manifest = Some(blob_index(blobs.len())?);
                blobs.push(write_blob(out, BlobKind::Manifest, manifest)?);
            }
        }
        for source in &mut self.sources {
            source.blob = Some(blob_index(blobs.len())?);
            blobs.push(write_blob(out, BlobKind::Locator, &source.locator)?);
        }
        let first_table = blobs.len();
        for table in self.chain_tables.iter() {
            let kind = BlobKind::of_table(table.kind());
            blobs.push(write_blob(out, kind, &table.to_bytes())?);
        }
        out.align()?;
        Ok((blobs, first_table))
    }

    /// The five directory tables. The source's entry holds the length of the volume, which ends a block after them.
    fn write_directory(
        &mut self,
        volume_uuid: Uuid,
        streams: &[Stream],
        views: &[View],
        blobs: &[Blob],
        chains: &[RawChain],
    ) -> Result<[Table; 5], WriteError> {
        let counts = [
            (TableKind::Sources, 1 + self.sources.len()),
            (TableKind::Streams, streams.len()),
            (TableKind::Chains, self.chains.len()),
            (TableKind::Blobs, blobs.len()),
            (TableKind::Views, views.len()),
        ];
        let directory_bytes: u64 = counts
            .iter()
            .map(|(kind, count)| Table::at(*kind, 0, *count as u64, 0).bytes())
            .sum();
        let own = Source {
            kind: SourceKind::Own,
            locator: None,
            bytes: self.out.position() + directory_bytes + BLOCK_BYTES_U64,
            modified_ns: None,
            store_uuid: None,
            digest: None,
        };
        let sources: Vec<Source> = iter::once(own)
            .chain(self.sources.iter().map(DraftSource::entry))
            .collect();
        let out = &mut self.out;
        Ok([
            write_entries(
                out,
                TableKind::Sources,
                volume_uuid,
                &sources,
                Source::to_raw,
            )?,
            write_entries(
                out,
                TableKind::Streams,
                volume_uuid,
                streams,
                Stream::to_raw,
            )?,
            write_entries(out, TableKind::Chains, volume_uuid, chains, RawChain::clone)?,
            write_entries(out, TableKind::Blobs, volume_uuid, blobs, Blob::to_raw)?,
            write_entries(out, TableKind::Views, volume_uuid, views, View::to_raw)?,
        ])
    }

    /// Returns the length of the volume.
    fn write_superblocks(
        &mut self,
        volume_uuid: Uuid,
        directory: [Table; 5],
    ) -> Result<u64, WriteError> {
        let tail_offset = self.out.position();
        let volume_bytes = tail_offset + BLOCK_BYTES_U64;
        let mut superblock = zeroed_superblock();
        superblock.magic = MAGIC;
        superblock.version = VERSION.into();
        superblock.volume_uuid = volume_uuid;
        superblock.generation = GENERATION.into();
        superblock.volume_bytes = volume_bytes.into();
        superblock.lba_bytes = self.options.lba_bytes.into();
        for (to, byte) in superblock
            .writer
            .iter_mut()
            .zip(self.options.writer.bytes())
        {
            *to = byte;
        }
        for (slot, table) in superblock.directory.iter_mut().zip(directory) {
            *slot = table.to_raw();
        }
        let output = &mut self.out.output;
        output.sync()?;
        let [slot_0, slot_1] = SLOT_OFFSETS;
        for (slot, offset) in [(TAIL_SLOT, tail_offset), (1, slot_1), (0, slot_0)] {
            superblock.slot = slot.into();
            superblock.own_offset = offset.into();
            seal(&mut superblock);
            output.write_at(offset, superblock.as_bytes())?;
            output.sync()?;
        }
        Ok(volume_bytes)
    }

    fn extent_bytes(
        &self,
        spooled: &mut SpoolReader<'_>,
    ) -> Result<[u8; EXTENT_BYTES], WriteError> {
        spooled.take().map_err(|error| WriteError::Spool { error })
    }
}

const EXTENT_BYTES: usize = size_of::<RawExtent>();

fn write_blob<O: Output>(
    out: &mut Appender<O>,
    kind: BlobKind,
    bytes: &[u8],
) -> Result<Blob, WriteError> {
    let offset = out.position();
    out.append(bytes)?;
    Ok(Blob {
        kind,
        crc: crc32c(bytes),
        offset,
        bytes: bytes.len() as u64,
        sha256: sha256(bytes),
    })
}

fn blob_index(have: usize) -> Result<BlobIndex, WriteError> {
    count("blobs", have, limits::BLOBS_MAX).map(BlobIndex)
}

/// A table of the directory.
fn write_entries<O: Output, T, R: IntoBytes + Immutable>(
    out: &mut Appender<O>,
    kind: TableKind,
    volume_uuid: Uuid,
    entries: &[T],
    to_raw: impl Fn(&T) -> R,
) -> Result<Table, WriteError> {
    let mut rest = entries.iter();
    write_table(
        out,
        kind,
        0,
        entries.len() as u64,
        volume_uuid,
        |index, entry| {
            if let Some(next) = rest.next() {
                entry.copy_from_slice(to_raw(next).as_bytes());
            }
            Ok(index..index + 1)
        },
    )
}

fn stream_entry(draft: &DraftStream, layout: Layout) -> Stream {
    Stream {
        source: draft.source,
        chain: draft.cut.chain.clone(),
        chain_index: draft.chain,
        layout,
        stored_offset: draft.stored_offset,
        stored_bytes: draft.written.stored_bytes,
        elements: draft.written.elements,
        proven: draft.written.proven,
        digest: Some(draft.written.elements_sha256),
    }
}

/// A view is known by its name: names are unique in a volume.
fn view_uuid(name: &str) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"xio view uuid 1");
    hash.update(name);
    version_8(hash.finalize().into())
}

/// The same views of the same content are the same revisions, so that a dataset packed twice is the same namespaces.
fn revision_uuid(content_uuid: &Uuid, name: &str) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"xio view revision 1");
    hash.update(content_uuid);
    hash.update(name);
    version_8(hash.finalize().into())
}

fn u64_at(bytes: &[u8; EXTENT_BYTES], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}
