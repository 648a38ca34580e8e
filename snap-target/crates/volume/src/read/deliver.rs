//! From fetched bytes to presented ones: checked, then decoded, then written where they belong.

use std::ops::Range;

use transforms::{PackedWindow, TransformError};

use super::elements::Timer;
use super::window::{Body, Unit, Wanted};
use super::{Context, ReadOp};
use crate::VolumeError;
use crate::cache::{Cache, Frame, Key};
use crate::error::{Place, element_of};
use crate::fetch::FrameWantId;
use crate::format::raw::BLOCK_BYTES_U64;
use crate::format::table::check_index;
use crate::format::{Layout, Stream, StreamIndex, Table, extent};
use crate::frame::{FrameId, StoredFrame};
use crate::identity::Uuid;
use crate::pieces::Pieces;
use crate::read::OutBuf;
use crate::units::Units;
use crate::volume::Volume;

/// Elements that are checked and then decoded at a time: packed and presented they lie in a core's first cache, and the next ones with them, which are fetched
/// while these are checked.
const PART_ELEMENTS: u64 = 4 << 10;

/// Where the checksums of a unit's granules are in its window.
#[derive(Clone, Copy)]
struct Sums {
    /// That of the first granule.
    first: usize,
    /// Which one that is.
    granule: u64,
}

/// Granules of a stream that were checked already: neighbours share them.
type Checked = Option<(StreamIndex, Range<u64>)>;

impl ReadOp {
    /// Takes the bytes of a fetch.
    pub(super) fn accept(
        &mut self,
        index: usize,
        bytes: &[&[u8]],
        context: &mut Context<'_>,
    ) -> Result<(), VolumeError> {
        let pending = self.window.pending(index);
        let (fetch, wanted) = (pending.fetch, pending.wanted.clone());
        let found: u64 = bytes.iter().map(|piece| piece.len() as u64).sum();
        if found != u64::from(fetch.len) {
            let error = VolumeError::ShortFetch {
                source_id: fetch.source,
                offset: fetch.offset,
                expected: u64::from(fetch.len),
                found,
            };
            return Err(match wanted {
                Wanted::Block { .. } => error,
                Wanted::Units(Range { start, .. }) | Wanted::PartOf { unit: start, .. } => {
                    error.at_presented(self.window.units[start].at)
                }
            });
        }
        self.counters.fetches += 1;
        let pieces = Pieces {
            pieces: bytes,
            offset: fetch.offset,
        };
        match wanted {
            Wanted::Block {
                table,
                level,
                block,
                keys,
            } => self.accept_block(context, pieces, &table, level, block, keys),
            Wanted::Units(units) => {
                let mut checked = None;
                for index in units {
                    self.deliver(context, index, pieces, &mut checked)?;
                }
                Ok(())
            }
            Wanted::PartOf { unit, .. } => self.accept_part(context, unit, pieces),
        }
    }

    /// Checks a table block, and keeps it.
    fn accept_block(
        &mut self,
        context: &mut Context<'_>,
        pieces: Pieces<'_>,
        table: &Table,
        level: u8,
        block: u64,
        keys: Range<u64>,
    ) -> Result<(), VolumeError> {
        self.counters.table_bytes += BLOCK_BYTES_U64;
        let Context { volume, cache, .. } = context;
        keep_block(table, level, block, keys, pieces, volume, cache)
    }

    /// Adds a part of a frame that is longer than a fetch; delivers it when it is complete.
    fn accept_part(
        &mut self,
        context: &mut Context<'_>,
        index: usize,
        pieces: Pieces<'_>,
    ) -> Result<(), VolumeError> {
        let len = pieces.len();
        let at = usize::try_from(pieces.offset - self.window.assembly_offset).unwrap_or(usize::MAX);
        let part = self.window.assembly.get_mut(at..at.saturating_add(len));
        let part = part.ok_or(VolumeError::Usage("a part lies outside its frame"))?;
        pieces.copy_to(part);
        self.counters.copied_bytes += len as u64;
        self.window.assembly_missing -= len;
        if self.window.assembly_missing > 0 {
            return Ok(());
        }
        let assembly = std::mem::take(&mut self.window.assembly);
        let whole = [&assembly[..]];
        let pieces = Pieces {
            pieces: &whole,
            offset: self.window.assembly_offset,
        };
        let outcome = self.deliver(context, index, pieces, &mut None);
        self.window.assembly = assembly;
        outcome
    }

    /// Checks, decodes and writes one unit.
    fn deliver(
        &mut self,
        context: &mut Context<'_>,
        index: usize,
        pieces: Pieces<'_>,
        checked: &mut Checked,
    ) -> Result<(), VolumeError> {
        // The unit is taken out while it is delivered: it borrows nothing of the window, and the window is written to.
        let mut units = std::mem::take(&mut self.window.units);
        let outcome = match units.get(index) {
            Some(unit) => self
                .deliver_unit(context, unit, pieces, checked)
                .map_err(|error| error.at_presented(unit.at)),
            None => Err(VolumeError::Usage("no such unit")),
        };
        units.append(&mut self.window.units);
        self.window.units = units;
        outcome
    }

    fn deliver_unit(
        &mut self,
        context: &mut Context<'_>,
        unit: &Unit,
        pieces: Pieces<'_>,
        checked: &mut Checked,
    ) -> Result<(), VolumeError> {
        let stream = context.volume.stream(unit.stream);
        let stream = stream.ok_or(VolumeError::Usage("the unit's stream is gone"))?;
        match &unit.body {
            Body::Granules {
                granules,
                stored,
                checksums,
                direct,
                ..
            } => {
                let sums = checksums.map(|first| Sums {
                    first,
                    granule: granules.start,
                });
                if *direct {
                    if let Some(sums) = sums {
                        self.check_granules(stream, unit, granules, sums, pieces, checked)?;
                    }
                    self.counters.delivered_bytes += unit.len();
                    return Ok(());
                }
                self.deliver_granules(context, stream, unit, stored, sums, pieces, checked)
            }
            Body::Frame { id, stored, .. } => {
                let Some(stored) = stored else {
                    return Err(VolumeError::Usage("the frame's entry was not seen"));
                };
                // An earlier unit of this window may have wanted the same frame.
                if !self.deliver_cached(context, unit, *id)? {
                    let packed = self.decode(context, stored, pieces)?;
                    self.expand(context.volume, context.out, unit, &packed)?;
                }
                Ok(())
            }
        }
    }

    /// Checks some granules of a unit.
    fn check_granules(
        &self,
        stream: &Stream,
        unit: &Unit,
        granules: &Range<u64>,
        sums: Sums,
        pieces: Pieces<'_>,
        checked: &mut Checked,
    ) -> Result<(), VolumeError> {
        let index = unit.stream;
        // A unit has at most 257 granules.
        let from = usize::try_from(granules.start - sums.granule).unwrap_or(usize::MAX);
        let expected = &self.window.checksums[sums.first..][from..];
        for (granule, expected) in granules.clone().zip(expected) {
            if let Some((stream, done)) = checked
                && *stream == index
                && done.contains(&granule)
            {
                continue;
            }
            let start = granule * BLOCK_BYTES_U64;
            let end = (start + BLOCK_BYTES_U64).min(stream.stored_bytes);
            let offset = stream.stored_offset + start;
            let found = pieces.crc32c(offset..stream.stored_offset + end)?;
            if found != *expected {
                let error = VolumeError::Checksum {
                    place: stream.granule_place(index, granule),
                    expected: *expected,
                    found,
                };
                return Err(error.at_presented(first_of_granule(stream, unit, granule)));
            }
        }
        *checked = Some((index, granules.clone()));
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn deliver_granules(
        &mut self,
        context: &mut Context<'_>,
        stream: &Stream,
        unit: &Unit,
        stored: &Range<u64>,
        sums: Option<Sums>,
        pieces: Pieces<'_>,
        checked: &mut Checked,
    ) -> Result<(), VolumeError> {
        let Layout::Unframed { skip_bytes, .. } = stream.layout else {
            return Err(VolumeError::Usage("the unit's stream has frames"));
        };
        let skip = u64::from(skip_bytes);
        // Packed byte 0 lies `skip` bytes after the stored start.
        let from = stored.start.max(skip);
        let wanted = stream.stored_offset + from..stream.stored_offset + stored.end;
        let mut assembly = std::mem::take(&mut self.window.assembly);
        let outcome = self.expand_granules(
            context,
            stream,
            unit,
            wanted,
            from - skip,
            sums,
            pieces,
            checked,
            &mut assembly,
        );
        self.window.assembly = assembly;
        outcome
    }

    /// Checks and decodes, some elements at a time: what was checked is still in the cache when it is decoded.
    #[allow(clippy::too_many_arguments)]
    fn expand_granules(
        &mut self,
        context: &mut Context<'_>,
        stream: &Stream,
        unit: &Unit,
        wanted: Range<u64>,
        first_byte: u64,
        sums: Option<Sums>,
        pieces: Pieces<'_>,
        checked: &mut Checked,
        assembly: &mut Vec<u8>,
    ) -> Result<(), VolumeError> {
        let (bytes, copied) = pieces.contiguous(wanted, assembly)?;
        let window = PackedWindow { first_byte, bytes };
        let mut out = self.destination(context.out, unit.at, unit.len())?;
        let mut timer = Timer::new();
        let mut at = unit.presented.start;
        while at < unit.presented.end {
            let mut part = at..unit.presented.end;
            if let Some(sums) = sums {
                part.end = part_end(unit, at);
                let packed = unit.decoder.packed_window(part.clone());
                let granules = (stream.skip_bytes() + packed.start) / BLOCK_BYTES_U64
                    ..(stream.skip_bytes() + packed.end).div_ceil(BLOCK_BYTES_U64);
                self.check_granules(stream, unit, &granules, sums, pieces, checked)?;
            }
            let expand = || unit.decoder.expand(window, part.clone(), &mut out);
            timer
                .part(unit, part.end - part.start, expand)
                .map_err(|error| refused_granules(stream, unit, error))?;
            at = part.end;
        }
        self.elements.add(unit, &timer);
        self.counters.delivered_bytes += unit.len();
        self.counters.copied_bytes += copied;
        if unit.decoder.is_copy() {
            self.counters.copied_bytes += unit.len();
        }
        Ok(())
    }

    /// Checks a frame and undoes its block steps, into the cache.
    fn decode(
        &mut self,
        context: &mut Context<'_>,
        stored: &StoredFrame,
        pieces: Pieces<'_>,
    ) -> Result<Frame, VolumeError> {
        let mut buffer = context
            .cache
            .reserve_frame(stored.packed_bytes as usize)
            .ok_or(VolumeError::Usage("all frames of the cache are held"))?;
        let decoded = stored.decode(
            context.volume,
            pieces.pieces,
            pieces.offset,
            context.scratch,
            &mut self.window.assembly,
            buffer.bytes(),
        );
        match decoded {
            Ok(copied) => {
                self.counters.copied_bytes += copied;
                self.counters.frames_decoded += 1;
                Ok(context.cache.insert(Key::Frame(stored.id), buffer))
            }
            Err(error) => {
                context.cache.give_back(buffer);
                Err(error)
            }
        }
    }

    /// Writes a unit whose frame is in the cache; false when it is not.
    pub(super) fn deliver_cached(
        &mut self,
        context: &mut Context<'_>,
        unit: &Unit,
        id: FrameId,
    ) -> Result<bool, VolumeError> {
        let Some(packed) = context.cache.get(Key::Frame(id)) else {
            return Ok(false);
        };
        self.expand(context.volume, context.out, unit, packed)?;
        Ok(true)
    }

    /// Takes the packed bytes of a frame that the driver had elsewhere.
    pub(super) fn accept_frame(
        &mut self,
        id: FrameWantId,
        packed: &[u8],
        context: &mut Context<'_>,
    ) -> Result<(), VolumeError> {
        let units = std::mem::take(&mut self.window.units);
        let outcome = match units.get(id.unit as usize) {
            Some(unit) => self
                .expand(context.volume, context.out, unit, packed)
                .map_err(|error| error.at_presented(unit.at)),
            None => Err(VolumeError::Usage("no such unit")),
        };
        self.window.units = units;
        outcome
    }

    /// Writes a unit out of the packed bytes of its frame.
    fn expand(
        &mut self,
        volume: &Volume,
        out: &OutBuf<'_>,
        unit: &Unit,
        packed: &[u8],
    ) -> Result<(), VolumeError> {
        let Body::Frame {
            id,
            packed_bytes,
            stored,
        } = &unit.body
        else {
            return Err(VolumeError::Usage("the unit has no frame"));
        };
        if packed.len() as u64 != *packed_bytes {
            return Err(VolumeError::Usage("the frame has another length"));
        }
        let window = PackedWindow {
            first_byte: 0,
            bytes: packed,
        };
        let stream = volume.stream(unit.stream);
        let frame_first = stream.and_then(|stream| stream.first_of_frame(id.frame));
        let frame_first = frame_first.ok_or(VolumeError::Usage("no such frame"))?;
        let mut out = self.destination(out, unit.at, unit.len())?;
        let mut timer = Timer::new();
        let presented = unit.presented.clone();
        let expand = || {
            unit.decoder
                .expand_at(frame_first, window, presented, &mut out)
        };
        let expanded = timer.part(unit, unit.len(), expand);
        expanded.map_err(|error| {
            let place = match stored {
                Some(stored) => stored.place(volume),
                None => volume
                    .stream(unit.stream)
                    .map(|stream| stream.frame_place(unit.stream, id.frame, 0)),
            };
            refused(unit, place, error)
        })?;
        self.elements.add(unit, &timer);
        self.counters.delivered_bytes += unit.len();
        self.counters.copied_bytes += unit.len();
        Ok(())
    }
}

/// Checks a block of a table, and keeps it.
pub(crate) fn keep_block(
    table: &Table,
    level: u8,
    block: u64,
    keys: Range<u64>,
    pieces: Pieces<'_>,
    volume: &Volume,
    cache: &mut Cache,
) -> Result<(), VolumeError> {
    let mut buffer = cache.reserve_block();
    pieces.copy_to(buffer.bytes());
    let volume_uuid = volume.volume_uuid();
    if let Err(error) = check_block(table, buffer.bytes(), level, block, keys, volume_uuid) {
        cache.give_back(buffer);
        return Err(error);
    }
    let key = Key::Block {
        volume: volume.id(),
        offset: table.block_offset(level, block),
    };
    cache.insert(key, buffer);
    Ok(())
}

/// Checks a table block that was read: its CRC, what it says of itself, and that its keys hold together.
pub(crate) fn check_block(
    table: &Table,
    bytes: &[u8],
    level: u8,
    block: u64,
    keys: Range<u64>,
    volume_uuid: Uuid,
) -> Result<(), VolumeError> {
    table.check_block(bytes, level, block, keys.clone(), volume_uuid)?;
    match (table.kind().is_indexed(), level) {
        (false, _) => Ok(()),
        (true, 0) => extent::check_leaf(table, bytes, block, keys),
        (true, _) => check_index(table, bytes, level, block, keys),
    }
}

/// The first presented byte of a unit whose element lies in a granule, or partly so.
fn first_of_granule(stream: &Stream, unit: &Unit, granule: u64) -> u64 {
    let packed = (granule * BLOCK_BYTES_U64).saturating_sub(stream.skip_bytes());
    let element = stream.chain.elements_in(packed..packed).start;
    let byte = Units::of(unit.decoder.presented()).bytes_before(element);
    unit.at + byte.clamp(unit.presented.start, unit.presented.end) - unit.presented.start
}

/// Where the part of a unit ends that begins at presented byte `at` of the stream: behind a whole number of parts' elements.
fn part_end(unit: &Unit, at: u64) -> u64 {
    let units = Units::of(unit.decoder.presented());
    let part = units.elements_in(at) / PART_ELEMENTS + 1;
    units
        .bytes_before(part.saturating_mul(PART_ELEMENTS))
        .min(unit.presented.end)
}

/// The error for elements that the decoder refused, with the granule of the first one.
fn refused_granules(stream: &Stream, unit: &Unit, error: TransformError) -> VolumeError {
    let place = stream.element_place(unit.stream, element_of(&error).unwrap_or(0));
    refused(unit, Some(place), error)
}

/// The error for elements that the decoder refused, with the presented byte of the first one.
fn refused(unit: &Unit, place: Option<Place>, error: TransformError) -> VolumeError {
    let Some(place) = place else {
        return VolumeError::Usage("the unit's stream is gone");
    };
    let units = Units::of(unit.decoder.presented());
    let at = element_of(&error)
        .map(|element| units.bytes_before(element))
        .filter(|byte| unit.presented.contains(byte))
        .map_or(unit.at, |byte| unit.at + byte - unit.presented.start);
    VolumeError::Transform { place, error }.at_presented(at)
}
