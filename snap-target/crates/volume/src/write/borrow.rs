//! Streams of volumes that exist: they are taken over with their tables, and their bytes stay where they are.

use std::fs::File;

use zerocopy::FromBytes;

use super::batch::Cut;
use super::map::{DraftSource, check_locator, check_unchanged, state_of};
use super::writer::{DraftStream, count};
use super::{Integrity, Output, WriteError, Writer, Written};
use crate::blocking::{ReadAt, read_exactly};
use crate::format::raw::{BLOCK_BYTES, RawFrame};
use crate::format::{ChainUse, Frame, Layout, SourceId, SourceKind, Stream, StreamIndex, Table};
use crate::{Volume, VolumeError, limits};

/// A volume whose streams are taken over.
pub struct Lender<'a, S: ?Sized> {
    /// What it holds.
    pub volume: &'a Volume,
    /// Reads it.
    pub store: &'a S,
    /// The file that it is in, from its first byte on.
    pub file: &'a File,
    /// How readers of the new volume find that file.
    pub locator: Vec<u8>,
}

impl<O: Output> Writer<O> {
    /// Takes over all streams of a volume; their indexes, in their order. Nothing is copied but tables: the volume's file becomes a source, and the files that
    /// it maps as well, `locator_of` says how they are found. The volume's file is read once, for its digest; `on_progress` is told how many bytes.
    ///
    /// # Errors
    /// A volume that is damaged, or has streams without digests or with gaps between their frames, as other writers may make them; what
    /// [`map_file`](Writer::map_file) says of files and locators. The writer is of no use afterwards.
    pub fn borrow_streams<S: ReadAt + ?Sized>(
        &mut self,
        lender: &Lender<'_, S>,
        locator_of: &mut dyn FnMut(SourceId) -> Result<Vec<u8>, WriteError>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Written>, WriteError> {
        let mut sources = Vec::with_capacity(lender.volume.sources().len());
        for (index, source) in (0..).map(SourceId).zip(lender.volume.sources()) {
            let draft = match source.kind {
                SourceKind::Own => self.digested(lender, on_progress)?,
                SourceKind::External => DraftSource {
                    locator: locator_of(index)?,
                    bytes: source.bytes,
                    modified_ns: source.modified_ns,
                    sha256: source
                        .digest
                        .ok_or_else(|| refused(format!("{index} has no digest")))?,
                    blob: None,
                },
            };
            check_locator(&draft.locator)?;
            let taken = count("sources", self.sources.len() + 1, limits::SOURCES_MAX)?;
            sources.push(SourceId(taken));
            self.sources.push(draft);
        }
        let streams = (0..).map(StreamIndex).zip(lender.volume.streams());
        streams
            .map(|(index, stream)| {
                let source = sources.get(stream.source.0 as usize).copied();
                let source = source.ok_or_else(|| refused(format!("{index:?} is in no source")))?;
                self.borrowed(lender, stream, source)
            })
            .collect()
    }

    /// The lender's own file as a source.
    fn digested<S: ReadAt + ?Sized>(
        &mut self,
        lender: &Lender<'_, S>,
        on_progress: &mut dyn FnMut(u64),
    ) -> Result<DraftSource, WriteError> {
        let found = state_of(lender.file)?;
        let (sha256, _) = self.scan(lender.file, found.bytes, Vec::new(), on_progress)?;
        check_unchanged(found, lender.file)?;
        Ok(DraftSource {
            locator: lender.locator.clone(),
            bytes: found.bytes,
            modified_ns: found.modified_ns,
            sha256,
            blob: None,
        })
    }

    fn borrowed<S: ReadAt + ?Sized>(
        &mut self,
        lender: &Lender<'_, S>,
        stream: &Stream,
        source: SourceId,
    ) -> Result<Written, WriteError> {
        let sha256 = stream
            .digest
            .ok_or_else(|| refused("a stream has no digest".to_owned()))?;
        let written = Written {
            stream: StreamIndex(count("streams", self.streams.len(), limits::STREAMS_MAX)?),
            source_bytes: stream.elements * stream.element_type().bytes() as u64,
            elements: stream.elements,
            stored_bytes: stream.stored_bytes,
            proven: stream.proven,
            // What went in is not known any more; where it was rounded, that is another digest.
            sha256,
            elements_sha256: sha256,
        };
        let chain = self.chain_index(ChainUse::Stored(stream.chain.clone()))?;
        let spooled_at = self.spool.len();
        let (table, frame_elements, skip_bytes) = match stream.layout {
            Layout::Framed {
                frame_elements,
                frames,
            } => (Some(frames), Some(frame_elements), 0),
            Layout::Unframed {
                skip_bytes,
                checksums,
            } => (checksums, None, skip_bytes),
        };
        if let Some(table) = &table {
            let mut next = 0;
            each_entry(lender, table, |number, entry| {
                if frame_elements.is_none() {
                    self.spool.append(entry);
                } else {
                    let frame = frame(stream, table, number, entry)?;
                    if frame.offset != next {
                        return Err(refused("there are gaps between its frames".to_owned()));
                    }
                    next += u64::from(frame.stored_bytes);
                    self.spool.append(&frame.stored_bytes.to_le_bytes());
                    self.spool.append(&frame.crc.to_le_bytes());
                }
                self.spool.spill_if_full(&self.out.output)
            })?;
        }
        self.streams.push(DraftStream {
            chain,
            cut: Cut {
                chain: stream.chain.clone(),
                frame_elements,
            },
            integrity: match table {
                Some(_) => Integrity::Crc32c,
                None => Integrity::None,
            },
            source,
            stored_offset: stream.stored_offset,
            skip_bytes,
            written: written.clone(),
            spooled_at,
            spooled_entries: table.map_or(0, |table| table.entry_count()),
        });
        Ok(written)
    }
}

fn frame(stream: &Stream, table: &Table, number: u64, entry: &[u8]) -> Result<Frame, WriteError> {
    let count = stream.elements_of_frame(number).unwrap_or(0);
    let packed_bytes = stream.chain.packed_bytes(count);
    // Later versions may have longer entries.
    let raw = RawFrame::ref_from_prefix(entry);
    let (raw, _) = raw.map_err(|_| refused("a frame's entry is short".to_owned()))?;
    Frame::parse(
        raw,
        table.entry_place(number),
        packed_bytes,
        stream.stored_bytes,
    )
    .map_err(lender_failed)
}

/// The entries of a table that is found by arithmetic, in order; every block is checked.
fn each_entry<S: ReadAt + ?Sized>(
    lender: &Lender<'_, S>,
    table: &Table,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let uuid = lender.volume.superblock().volume_uuid;
    let mut bytes = vec![0; BLOCK_BYTES];
    let mut number = 0;
    for block in 0..table.level_blocks(0) {
        let offset = table.block_offset(0, block);
        read_exactly(lender.store, SourceId::OWN, offset, &mut bytes)
            .and_then(|()| table.check_block(&bytes, 0, block, table.direct_keys(block), uuid))
            .map_err(lender_failed)?;
        let entries = table.entries_in(0, block);
        for slot in 0..usize::try_from(entries).unwrap_or(0) {
            each(number, table.entry(&bytes, slot))?;
            number += 1;
        }
    }
    Ok(())
}

fn refused(why: String) -> WriteError {
    WriteError::Refused {
        field: "volume",
        why,
    }
}

fn lender_failed(error: VolumeError) -> WriteError {
    WriteError::Lender {
        error: Box::new(error),
    }
}
