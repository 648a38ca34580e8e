//! From units to stored bytes: frame entries and checksums are copied out of table blocks.

use zerocopy::FromBytes;

use super::issue::source_end;
use super::window::Body;
use super::{Context, ReadOp};
use crate::VolumeError;
use crate::format::raw::RawFrame;
use crate::format::{Frame, Layout, Stream, Table};
use crate::frame::{FrameId, StoredFrame};

impl ReadOp {
    /// Gives each unit what the tables say of it; asks for blocks that are missing.
    pub(super) fn resolve(&mut self, context: &mut Context<'_>) -> Result<(), VolumeError> {
        for index in 0..self.window.units.len() {
            let unit = &self.window.units[index];
            let stream = context.volume.stream(unit.stream);
            let stream = stream.ok_or(VolumeError::Usage("the unit's stream is gone"))?;
            let at = unit.at;
            match (&unit.body, stream.layout) {
                (
                    Body::Frame {
                        id,
                        packed_bytes,
                        stored: None,
                    },
                    Layout::Framed { frames, .. },
                ) => {
                    let (id, packed_bytes) = (*id, *packed_bytes);
                    self.resolve_frame(context, stream, &frames, index, id, packed_bytes)
                }
                (
                    Body::Granules {
                        checksums: Some(first),
                        ..
                    },
                    Layout::Unframed {
                        checksums: Some(table),
                        ..
                    },
                ) => {
                    let first = *first;
                    self.resolve_granules(context, &table, index, first)
                }
                _ => Ok(()),
            }
            .map_err(|error| error.at_presented(at))?;
        }
        Ok(())
    }

    fn resolve_frame(
        &mut self,
        context: &mut Context<'_>,
        stream: &Stream,
        table: &Table,
        index: usize,
        id: FrameId,
        packed_bytes: u64,
    ) -> Result<(), VolumeError> {
        let frame = id.frame;
        let (block, slot) = table.locate(frame);
        let keys = table.direct_keys(block);
        let (volume, cache) = (context.volume, &*context.cache);
        let Some(bytes) = self.block(volume, cache, table, 0, block, keys)? else {
            return Ok(());
        };
        let raw = RawFrame::ref_from_bytes(table.entry(bytes, slot));
        let raw = raw.map_err(|_| VolumeError::Usage("the block has no such frame"))?;
        let place = table.entry_place(frame);
        let entry = Frame::parse(raw, place, packed_bytes, stream.stored_bytes)?;
        let source_end = source_end(volume, stream.source)
            .ok_or(VolumeError::Usage("the stream's source is gone"))?;
        if let Body::Frame { stored, .. } = &mut self.window.units[index].body {
            *stored = Some(StoredFrame {
                id,
                source: stream.source,
                offset: stream.stored_offset + entry.offset,
                stored_bytes: entry.stored_bytes,
                // At most 4 MiB: the stream was refused otherwise.
                packed_bytes: u32::try_from(packed_bytes).unwrap_or(0),
                crc: entry.crc,
                source_end,
            });
        }
        self.name_onward(context, table, block);
        Ok(())
    }

    fn resolve_granules(
        &mut self,
        context: &mut Context<'_>,
        table: &Table,
        index: usize,
        first: usize,
    ) -> Result<(), VolumeError> {
        loop {
            let Body::Granules {
                granules, resolved, ..
            } = &self.window.units[index].body
            else {
                return Ok(());
            };
            let (granules, from) = (granules.clone(), *resolved);
            if from == granules.end {
                return Ok(());
            }
            if self.survey.is_some() {
                self.name_blocks(context, table, &granules);
                self.resolved(index, granules.end);
                return Ok(());
            }
            let (block, slot) = table.locate(from);
            let keys = table.direct_keys(block);
            let to = granules.end.min(keys.end);
            let (volume, cache) = (context.volume, &*context.cache);
            let Some(bytes) = self.block(volume, cache, table, 0, block, keys)? else {
                return Ok(());
            };
            // A unit has at most 257 granules.
            let into = usize::try_from(from - granules.start).unwrap_or(0) + first;
            let count = usize::try_from(to - from).unwrap_or(0);
            let checksums = &mut self.window.checksums[into..into + count];
            for (slot, checksum) in (slot..).zip(checksums) {
                let entry = table.entry(bytes, slot).first_chunk();
                *checksum = entry.map_or(0, |entry| u32::from_le_bytes(*entry));
            }
            self.resolved(index, to);
        }
    }

    fn resolved(&mut self, index: usize, to: u64) {
        if let Body::Granules { resolved, .. } = &mut self.window.units[index].body {
            *resolved = to;
        }
    }
}
