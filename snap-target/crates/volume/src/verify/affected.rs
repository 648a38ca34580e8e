//! What damage means for whoever reads: which presented bytes it is about.

use std::ops::Range;

use transforms::Packing;

use super::Report;
use crate::VolumeError;
use crate::blocking::{ReadAt, Reader};
use crate::error::Item;
use crate::format::raw::BLOCK_BYTES_U64;
use crate::format::{ChainUse, Extent, Layout, Mapping, Stream, TableKind};
use crate::units::Units;

/// Extents that are read at a time.
const EXTENTS_AT_ONCE: usize = 4096;
/// Elements that are decoded together, where an error names the first granule of them: a few more than that.
const PART_ELEMENTS: u64 = BLOCK_BYTES_U64 * 9;

/// Elements of a stream that cannot be had, or are wrong.
struct Lost {
    stream: u32,
    elements: Range<u64>,
}

impl Report {
    /// The presented bytes of the volume's view that the listed damage is about, in the order of the view. What is about no stored elements (padding,
    /// blobs, a table of extents) is about none of them.
    ///
    /// # Errors
    /// An extent table that cannot be read.
    pub fn damaged_bytes<S: ReadAt>(&self, store: S) -> Result<Vec<Range<u64>>, VolumeError> {
        let lost = self.lost();
        let reader = Reader::new(self.volume.clone(), store, 0);
        let count = self.volume.view().extents.entry_count();
        let (mut first, mut damaged) = (0, Vec::new());
        while first < count && !lost.is_empty() {
            let extents = reader.extents(first, EXTENTS_AT_ONCE)?;
            first += extents.len() as u64;
            for extent in &extents {
                damaged.extend(lost.iter().filter_map(|lost| self.presented(extent, lost)));
            }
        }
        Ok(damaged)
    }

    fn lost(&self) -> Vec<Lost> {
        let streams = self.volume.streams();
        let of_place = |error: &VolumeError| {
            let place = error.place()?;
            let stream = match place.item {
                Item::Granule { stream, .. } | Item::Frame { stream, .. } => stream,
                Item::Stream(stream) => stream,
                Item::Block { table, owner, .. } | Item::Entry { table, owner, .. }
                    if matches!(table, TableKind::Frames | TableKind::Checksums) =>
                {
                    owner
                }
                _ => return None,
            };
            let elements = elements_at(streams.get(stream as usize)?, place.item, error);
            Some(Lost { stream, elements })
        };
        let short = self.damage.iter().flat_map(|error| self.cut_off(error));
        let places = self.damage.iter().filter_map(of_place);
        places.chain(short).collect()
    }

    /// What of the streams lies behind the end of a source that is too short.
    fn cut_off(&self, error: &VolumeError) -> Vec<Lost> {
        let VolumeError::ShortFetch {
            source_id, offset, ..
        } = error.cause()
        else {
            return Vec::new();
        };
        let streams = (0..).zip(self.volume.streams());
        let behind = streams.filter(|(_, stream)| {
            stream.source == *source_id && stream.stored_offset + stream.stored_bytes > *offset
        });
        behind
            .map(|(number, stream)| {
                let from = offset.saturating_sub(stream.stored_offset);
                let elements = match stream.layout {
                    Layout::Unframed { .. } => stored_elements(stream, from..stream.stored_bytes),
                    Layout::Framed { .. } => 0..stream.elements,
                };
                Lost {
                    stream: number,
                    elements,
                }
            })
            .collect()
    }

    fn presented(&self, extent: &Extent, lost: &Lost) -> Option<Range<u64>> {
        let Mapping::Linear {
            stream,
            first_element,
            view_chain,
        } = extent.mapping
        else {
            return None;
        };
        if stream.0 != lost.stream {
            return None;
        }
        let source = self.volume.stream(stream)?.element_type();
        let view = view_chain.and_then(|index| self.volume.chains().get(index.0 as usize));
        let presented = match view {
            Some(ChainUse::View(_, view)) => view.presented(source).ok()?,
            _ => Packing::Whole(source),
        };
        let units = Units::of(presented);
        let elements = first_element..first_element + units.elements_in(extent.bytes);
        let start = lost.elements.start.max(elements.start);
        let end = lost.elements.end.min(elements.end);
        (start < end).then(|| {
            // All of a unit is lost with one of its elements.
            let before = |element: u64| units.bytes_before(element - elements.start);
            let end = before(end.next_multiple_of(units.elements));
            extent.start + before(start)..extent.start + end
        })
    }
}

/// The elements that are stored at a place of a stream.
fn elements_at(stream: &Stream, item: Item, error: &VolumeError) -> Range<u64> {
    let frames = |frames: Range<u64>| {
        let Layout::Framed { frame_elements, .. } = stream.layout else {
            return 0..stream.elements;
        };
        let at = |frame: u64| frame.saturating_mul(frame_elements).min(stream.elements);
        at(frames.start)..at(frames.end)
    };
    let granules = |granules: Range<u64>| {
        stored_elements(
            stream,
            granules.start * BLOCK_BYTES_U64..granules.end * BLOCK_BYTES_U64,
        )
    };
    match item {
        Item::Frame { frame, .. } => frames(frame..frame + 1),
        Item::Entry {
            index,
            table: TableKind::Frames,
            ..
        } => frames(index..index + 1),
        Item::Entry { index, .. } => granules(index..index + 1),
        Item::Granule { granule, .. } => {
            let elements = granules(granule..granule + 1);
            match error {
                VolumeError::Checksum { .. } => elements,
                _ => elements.start..(elements.start + PART_ELEMENTS).min(stream.elements),
            }
        }
        Item::Block {
            table,
            level: 0,
            block,
            ..
        } => match (stream.layout, table) {
            (Layout::Framed { frames: table, .. }, TableKind::Frames) => {
                let per_block = table.per_block();
                frames(block * per_block..(block + 1) * per_block)
            }
            (
                Layout::Unframed {
                    checksums: Some(table),
                    ..
                },
                TableKind::Checksums,
            ) => {
                let per_block = table.per_block();
                granules(block * per_block..(block + 1) * per_block)
            }
            _ => 0..stream.elements,
        },
        _ => 0..stream.elements,
    }
}

/// The elements of an unframed stream of which any bit is in these of its stored bytes.
fn stored_elements(stream: &Stream, stored: Range<u64>) -> Range<u64> {
    let Layout::Unframed { skip_bytes, .. } = stream.layout else {
        return 0..stream.elements;
    };
    let packed = |byte: u64| byte.saturating_sub(u64::from(skip_bytes));
    let touched = stream
        .chain
        .elements_in(packed(stored.start)..packed(stored.end));
    touched.start.min(stream.elements)..touched.end.min(stream.elements)
}
