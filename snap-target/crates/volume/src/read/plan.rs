//! From presented bytes to units: the extent table is descended, and each extent cut into parts that are read and decoded at once.

use std::ops::Range;

use transforms::{Decoder, ViewChain};

use super::window::{Body, Unit, Wanted};
use super::{Context, ReadOp};
use crate::VolumeError;
use crate::cache::{Cache, Key};
use crate::density::{Crowded, Density};
use crate::error::Place;
use crate::fetch::Placement;
use crate::format::field::Fields;
use crate::format::raw::{BLOCK_BYTES, BLOCK_BYTES_U64};
use crate::format::table::index_child;
use crate::format::{Extent, Layout, Mapping, SourceId, Stream, StreamIndex, Table, extent};
use crate::frame::{Content, FrameId};
use crate::limits::FETCH_BYTES_MAX;
use crate::units::Units;
use crate::volume::Volume;

/// Below this, a part that has ragged ends is read through staging as a whole: one fetch instead of three.
const DIRECT_BYTES_MIN: u64 = 16 << 10;
/// Memory alignment of a direct fetch.
const DIRECT_ALIGNMENT: u64 = 512;
/// Elements after which the packed form is at a granule's boundary, whatever the bits of an element; whole units, too.
const ELEMENTS_UNIT: u64 = BLOCK_BYTES_U64 * 8;

/// Where a descent through the extent table stands: the block that is looked at next.
#[derive(Debug, Clone)]
pub(super) struct Descent {
    level: u8,
    block: u64,
    keys: Range<u64>,
}

impl ReadOp {
    /// Adds units until the range is planned, the window is full, or a block of the extent table is missing and asked for.
    pub(super) fn plan(&mut self, context: &mut Context<'_>) -> Result<(), VolumeError> {
        let table = context.volume.view().extents;
        while self.planned < self.end && !self.window.is_full() {
            let descent = self.descent.take().unwrap_or_else(|| Descent {
                level: table.levels().saturating_sub(1),
                block: 0,
                keys: 0..context.volume.presented_bytes(),
            });
            let Descent { level, block, keys } = descent.clone();
            let (volume, cache) = (context.volume, &*context.cache);
            let found = self.block(volume, cache, &table, level, block, keys.clone())?;
            let Some(bytes) = found else {
                self.descent = Some(descent);
                return Ok(());
            };
            if level > 0 {
                let (child, keys) = index_child(&table, bytes, level, block, &keys, self.planned);
                self.descent = Some(Descent {
                    level: level - 1,
                    block: child,
                    keys,
                });
                continue;
            }
            let (place, extent) = extent_at(&table, bytes, block, &keys, self.planned)?;
            self.plan_extent(context, place, &extent)?;
            if self.planned < keys.end {
                self.descent = Some(descent);
            }
        }
        Ok(())
    }

    /// A block of a table out of the cache; when it is not there, it is asked for.
    pub(super) fn block<'c>(
        &mut self,
        volume: &Volume,
        cache: &'c Cache,
        table: &Table,
        level: u8,
        block: u64,
        keys: Range<u64>,
    ) -> Result<Option<&'c [u8]>, VolumeError> {
        let offset = table.block_offset(level, block);
        let key = Key::Block {
            volume: volume.id(),
            offset,
        };
        if let Some(bytes) = cache.get(key) {
            table.check_header(bytes, level, block, keys, volume.volume_uuid())?;
            return Ok(Some(bytes));
        }
        if !self.window.is_asked(offset) {
            let wanted = Wanted::Block {
                table: *table,
                level,
                block,
                keys,
            };
            #[allow(clippy::cast_possible_truncation)]
            let len = BLOCK_BYTES as u32;
            self.window
                .ask(SourceId::OWN, offset, len, Placement::Staging, wanted);
        }
        Ok(None)
    }

    /// Delivers or plans the part of an extent from the planned byte on.
    fn plan_extent(
        &mut self,
        context: &mut Context<'_>,
        place: Place,
        extent: &Extent,
    ) -> Result<(), VolumeError> {
        let to = extent.end().min(self.end);
        let len = to - self.planned;
        // An extent that was begun in an earlier window was counted there.
        if self.planned <= extent.start.max(self.range.start) {
            let counted = self.density.extent(self.planned..extent.end());
            counted.map_err(|crowded| crowded.at(place))?;
        }
        match extent.mapping {
            // A survey wants nothing for them.
            Mapping::Zero | Mapping::Inline(_) if self.survey.is_some() => {}
            Mapping::Zero => {
                let mut out = self.destination(context.out, self.planned, len)?;
                out.write_zeros(out.remaining());
            }
            Mapping::Inline(data) => {
                let mut out = self.destination(context.out, self.planned, len)?;
                // Parsed inline extents have at most 40 bytes.
                let from = usize::try_from(self.planned - extent.start).unwrap_or(data.len());
                let to = usize::try_from(to - extent.start).unwrap_or(data.len());
                out.write(&data[from..to]);
                self.counters.copied_bytes += len;
            }
            Mapping::Linear { .. } => return self.plan_linear(context, place, extent),
        }
        self.counters.delivered_bytes += len;
        self.planned = to;
        Ok(())
    }

    fn plan_linear(
        &mut self,
        context: &mut Context<'_>,
        place: Place,
        extent: &Extent,
    ) -> Result<(), VolumeError> {
        let linear = Linear::new(context.volume, place, extent)?;
        let end = extent.end().min(self.end);
        while self.planned < end && !self.window.is_full() {
            let from = linear.base + (self.planned - extent.start);
            let to = linear.base + (end - extent.start);
            let len = match linear.stream.layout {
                Layout::Framed { frame_elements, .. } => {
                    self.plan_frame(context, place, &linear, frame_elements, from..to)?
                }
                Layout::Unframed {
                    skip_bytes,
                    checksums,
                } => self.plan_granules(&linear, u64::from(skip_bytes), checksums, from..to),
            };
            self.planned += len;
        }
        Ok(())
    }

    /// Plans the part of `wanted` (presented bytes of the stream) that lies in its first frame, or delivers it out of the cache. Returns
    /// its length.
    fn plan_frame(
        &mut self,
        context: &mut Context<'_>,
        place: Place,
        linear: &Linear<'_>,
        frame_elements: u64,
        wanted: Range<u64>,
    ) -> Result<u64, VolumeError> {
        let frame_bytes = linear.units.bytes_before(frame_elements);
        let frame = wanted.start / frame_bytes;
        let base = frame * frame_bytes;
        let presented = wanted.start - base..wanted.end.min(base + frame_bytes) - base;
        let len = presented.end - presented.start;
        self.density
            .frame(self.planned..self.planned + len, linear.index, frame)
            .map_err(|crowded| crowded.at(place))?;
        let elements = linear.stream.elements_of_frame(frame).unwrap_or(0);
        let id = FrameId {
            volume: context.volume.id(),
            content: Content::Stream(linear.index),
            frame,
        };
        let unit = Unit {
            at: self.planned,
            presented,
            stream: linear.index,
            decoder: linear.decoder.clone(),
            body: Body::Frame {
                id,
                packed_bytes: linear.stream.chain.packed_bytes(elements),
                stored: None,
            },
        };
        // In a survey whoever has the frames says which of them are there.
        if self.survey.is_none() && self.deliver_cached(context, &unit, id)? {
            self.counters.frame_hits += 1;
        } else {
            self.window.units.push(unit);
        }
        Ok(len)
    }

    /// Plans the first part of `wanted` (presented bytes of the stream) that is read at once. Returns its length.
    fn plan_granules(
        &mut self,
        linear: &Linear<'_>,
        skip_bytes: u64,
        checksums: Option<Table>,
        wanted: Range<u64>,
    ) -> u64 {
        let stream = linear.stream;
        let out_offset = self.planned - self.range.start;
        let (presented, direct) = match linear.decoder.is_copy() {
            true => copy_part(&wanted, skip_bytes, out_offset),
            false => {
                let end = wanted.end.min(linear.part_end(wanted.start));
                (wanted.start..end, false)
            }
        };
        let packed = linear.decoder.packed_window(presented.clone());
        let granules = (skip_bytes + packed.start) / BLOCK_BYTES_U64
            ..(skip_bytes + packed.end).div_ceil(BLOCK_BYTES_U64);
        let stored = granules.start * BLOCK_BYTES_U64
            ..(granules.end * BLOCK_BYTES_U64).min(stream.stored_bytes);
        let count = usize::try_from(granules.end - granules.start).unwrap_or(0);
        let first_checksum = checksums.map(|_| {
            let first = self.window.checksums.len();
            self.window.checksums.resize(first + count, 0);
            first
        });
        let len = presented.end - presented.start;
        self.window.units.push(Unit {
            at: self.planned,
            presented,
            stream: linear.index,
            decoder: linear.decoder.clone(),
            body: Body::Granules {
                resolved: granules.start,
                granules,
                stored,
                checksums: first_checksum,
                direct,
            },
        });
        len
    }
}

/// A linear extent whose references were resolved.
pub(crate) struct Linear<'v> {
    index: StreamIndex,
    stream: &'v Stream,
    decoder: Decoder,
    /// Whether the view chain rounds.
    view_rounds: bool,
    /// What is presented at a time.
    units: Units,
    /// The extent's first byte, in presented bytes of the whole stream.
    base: u64,
}

impl<'v> Linear<'v> {
    pub(crate) fn new(
        volume: &'v Volume,
        place: Place,
        extent: &Extent,
    ) -> Result<Linear<'v>, VolumeError> {
        let fields = Fields { place };
        let Mapping::Linear {
            stream: index,
            first_element,
            view_chain,
        } = extent.mapping
        else {
            return Err(VolumeError::Usage("the extent is not linear"));
        };
        let stream = volume.stream(index).ok_or_else(|| {
            let expected = format_args!("an index below {}", volume.streams().len());
            fields.malformed("stream", expected, index.0)
        })?;
        let identity = ViewChain::identity();
        let view = match view_chain {
            None => &identity,
            Some(chain) => volume
                .view_chain(chain, stream.element_type())
                .ok_or_else(|| {
                    let expected = format_args!("a view chain of {}", stream.element_type());
                    fields.malformed("view_chain", expected, chain.0)
                })?,
        };
        let decoder = Decoder::new(&stream.chain, view, stream.proven)
            .map_err(|error| VolumeError::Transform { place, error })?;
        let units = Units::of(decoder.presented());
        fields.multiple("bytes", extent.bytes, units.bytes)?;
        fields.multiple("first_element", first_element, units.elements)?;
        if let Layout::Framed { frame_elements, .. } = stream.layout {
            fields.multiple(
                "frame_elements of its stream",
                frame_elements,
                units.elements,
            )?;
        }
        let elements = units.elements_in(extent.bytes);
        let end = fields.sum("first_element", first_element, elements)?;
        if end > stream.elements {
            let expected = format_args!("within the stream's {}", stream.elements);
            let found = format_args!("{first_element} to {end}");
            return Err(fields.malformed("elements", expected, found));
        }
        Ok(Linear {
            index,
            stream,
            decoder,
            view_rounds: view.contract().is_lossy(),
            units,
            // At most 2^56 elements of 8 bytes.
            base: units.bytes_before(first_element),
        })
    }

    /// Counts the frames that an extent touches.
    pub(crate) fn crowds(&self, density: &mut Density, extent: &Extent) -> Result<(), Crowded> {
        let Layout::Framed { frame_elements, .. } = self.stream.layout else {
            return Ok(());
        };
        let frame_bytes = self.units.bytes_before(frame_elements);
        density.frames(
            extent.start..extent.end(),
            self.base,
            frame_bytes,
            self.index,
        )
    }

    /// Whether every element that the writer proved to be there fits the presented type.
    pub(crate) fn fits(&self) -> bool {
        let range = self.stream.proven.or(self.stream.chain.range());
        match (range, self.decoder.presented().range()) {
            (Some(range), Some(presented)) => presented.encloses(&range),
            _ => true,
        }
    }

    /// Whether the values presented are not those of the source.
    pub(crate) fn is_rounded(&self) -> bool {
        self.stream.chain.contract().is_lossy() || self.view_rounds
    }

    /// Where a part that begins at presented byte `start` ends, if it is to fit into one fetch.
    fn part_end(&self, start: u64) -> u64 {
        let unit_bytes = self.stream.chain.packed_bytes(ELEMENTS_UNIT);
        // A granule less: a stream that skips bytes is rounded out at both ends, and so is one whose units are no whole granules.
        let units = (u64::from(FETCH_BYTES_MAX) - BLOCK_BYTES_U64) / unit_bytes;
        let first = self.units.elements_in(start) / ELEMENTS_UNIT;
        self.units
            .bytes_before((first + units.max(1)) * ELEMENTS_UNIT)
    }
}

/// The first part of bytes that are presented as they are stored, and whether it can be read straight into the destination. `out_offset`:
/// where it goes there.
fn copy_part(wanted: &Range<u64>, skip_bytes: u64, out_offset: u64) -> (Range<u64>, bool) {
    // Granules are counted from the stored start, which is `skip_bytes` before the first presented byte.
    let start = wanted.start + skip_bytes;
    let end = wanted.end + skip_bytes;
    let fetch_end = start / BLOCK_BYTES_U64 * BLOCK_BYTES_U64 + u64::from(FETCH_BYTES_MAX);
    let end = end.min(fetch_end);
    let body = start.next_multiple_of(BLOCK_BYTES_U64)..end / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
    let is_aligned =
        (out_offset + body.start.saturating_sub(start)).is_multiple_of(DIRECT_ALIGNMENT);
    let is_whole = body == (start..end);
    let is_long = body.end.saturating_sub(body.start) >= DIRECT_BYTES_MIN;
    let (part_end, direct) = match is_aligned && !body.is_empty() && (is_whole || is_long) {
        // The ragged head first, then whole granules, then the ragged tail.
        true if start < body.start => (body.start, false),
        true => (body.end, true),
        false => (end, false),
    };
    (wanted.start..part_end - skip_bytes, direct)
}

/// The extent of a leaf that covers a presented byte, and its place. The leaf's extents follow each other: that was checked when it was
/// loaded.
fn extent_at(
    table: &Table,
    leaf: &[u8],
    block: u64,
    keys: &Range<u64>,
    presented: u64,
) -> Result<(Place, Extent), VolumeError> {
    // At most 63.
    let count = usize::try_from(table.entries_in(0, block)).unwrap_or(0);
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match extent::leaf_extent(table, leaf, middle) {
            Some(raw) if raw.start.get() <= presented => low = middle + 1,
            _ => high = middle,
        }
    }
    let slot = low.saturating_sub(1);
    let place = table.entry_place(block * table.per_block() + slot as u64);
    let raw = extent::leaf_extent(table, leaf, slot);
    let raw = raw.ok_or(VolumeError::Usage("the leaf has no such extent"))?;
    let extent = Extent::parse(raw, place, keys)?;
    if extent.start > presented || extent.end() <= presented {
        let expected = format_args!("one that covers byte {presented}");
        let found = format_args!("{} to {}", extent.start, extent.end());
        return Err(Fields { place }.malformed("extent", expected, found));
    }
    Ok((place, extent))
}
