//! The stored bytes of every stream: checksums, frames, ranges, digests.

use std::ops::Range;

use sha2::{Digest as _, Sha256};
use transforms::{Chain, Decoder, OutSegments, PackedWindow, Scratch, TransformError, ViewChain};
use zerocopy::FromBytes;

use super::Walk;
use crate::VolumeError;
use crate::checksum::crc32c;
use crate::error::{Item, Place, element_of};
use crate::format::extent::FRAME_GAP_BYTES_MAX;
use crate::format::field::Fields;
use crate::format::raw::{BLOCK_BYTES, BLOCK_BYTES_U64, RawFrame, first_nonzero};
use crate::format::{Digest, Frame, Layout, SourceId, Stream, StreamIndex, Table};

/// Elements that are decoded at a time: there the packed form is at a granule's boundary, whatever the bits of an element, or in the middle of one,
/// of `q8_0`.
const PART_ELEMENTS: u64 = BLOCK_BYTES_U64 * 8;

impl Walk<'_> {
    pub(super) fn streams(&mut self) {
        for (index, stream) in (0..).zip(self.volume.streams()) {
            let index = StreamIndex(index);
            if stream.source == SourceId::OWN {
                let bytes = stream.stored_offset..stream.stored_offset + stream.stored_bytes;
                self.claim(bytes, Item::Stream(index.0), true);
            }
            if !stream.is_covered() {
                self.uncovered_bytes += stream.stored_bytes;
            }
            let damage_before = self.damage_count;
            let digest = match stream.layout {
                Layout::Framed { frames, .. } => {
                    self.claim_table(&frames);
                    self.framed(index, stream, &frames)
                }
                Layout::Unframed {
                    skip_bytes,
                    checksums,
                } => {
                    if let Some(table) = &checksums {
                        self.claim_table(table);
                    }
                    self.unframed(index, stream, u64::from(skip_bytes), checksums)
                }
            };
            // Elements that were not decoded are not in the digest.
            let is_whole = self.damage_count == damage_before;
            if is_whole && stream.digest != digest {
                let place = stream.place(index);
                self.note::<()>(Err(VolumeError::Digest { place }));
            }
        }
    }

    fn framed(&mut self, index: StreamIndex, stream: &Stream, table: &Table) -> Digest {
        let mut cursor = Cursor::new(*table);
        let mut elements = Elements::new(stream);
        let mut end = Some(0);
        for number in 0..table.entry_count() {
            let count = stream.elements_of_frame(number).unwrap_or(0);
            let packed_bytes = stream.chain.packed_bytes(count);
            let place = table.entry_place(number);
            let entry = cursor.entry(self, number).and_then(|entry| {
                let raw = RawFrame::ref_from_bytes(entry);
                let raw = raw.map_err(|_| VolumeError::Usage("the block has no such frame"))?;
                Frame::parse(raw, place, packed_bytes, stream.stored_bytes)
            });
            let Some(entry) = self.note_once(&mut cursor, entry) else {
                end = None;
                continue;
            };
            if let Some(end) = end {
                let gap = self.frame_gap(stream, place, end, entry.offset);
                self.note(gap);
            }
            end = Some(entry.offset + u64::from(entry.stored_bytes));
            let checked = self.frame(index, stream, number, &entry, packed_bytes);
            let checked = checked.and_then(|packed| {
                let place = stream.frame_place(index, number, entry.offset);
                let window = PackedWindow {
                    first_byte: 0,
                    bytes: &packed,
                };
                let first = stream.first_of_frame(number).unwrap_or(0);
                elements.check(stream, place, first, 0..count, window)
            });
            self.note(checked);
        }
        if let Some(end) = end
            && end != stream.stored_bytes
        {
            let fields = Fields {
                place: stream.place(index),
            };
            let field = "end of the last frame";
            self.note::<()>(Err(fields.malformed(field, stream.stored_bytes, end)));
        }
        elements.finish()
    }

    /// A frame begins where the one before it ended, or some zeros later.
    fn frame_gap(
        &mut self,
        stream: &Stream,
        place: Place,
        end: u64,
        offset: u64,
    ) -> Result<(), VolumeError> {
        let last = end.saturating_add(FRAME_GAP_BYTES_MAX);
        Fields { place }.within("offset", offset, end, last)?;
        let mut gap = [0; BLOCK_BYTES];
        let gap = &mut gap[..usize::try_from(offset - end).unwrap_or(0)];
        let start = stream.stored_offset + end;
        self.read(stream.source, start, gap)?;
        match first_nonzero(gap) {
            None => Ok(()),
            Some(at) => Err(VolumeError::NotZero {
                place: Place {
                    item: Item::Padding,
                    source: stream.source,
                    offset: start + at as u64,
                },
                found: gap[at],
            }),
        }
    }

    /// The packed form of a frame.
    fn frame(
        &mut self,
        index: StreamIndex,
        stream: &Stream,
        number: u64,
        entry: &Frame,
        packed_bytes: u64,
    ) -> Result<Vec<u8>, VolumeError> {
        let place = stream.frame_place(index, number, entry.offset);
        let mut stored = vec![0; entry.stored_bytes as usize];
        self.read(stream.source, place.offset, &mut stored)?;
        let found = crc32c(&stored);
        if found != entry.crc {
            return Err(VolumeError::Checksum {
                place,
                expected: entry.crc,
                found,
            });
        }
        // At most 4 MiB.
        let mut packed = vec![0; usize::try_from(packed_bytes).unwrap_or(0)];
        stream
            .chain
            .unblock(&stored, &mut self.scratch, &mut packed)
            .map_err(|error| VolumeError::Transform { place, error })?;
        Ok(packed)
    }

    fn unframed(
        &mut self,
        index: StreamIndex,
        stream: &Stream,
        skip: u64,
        table: Option<Table>,
    ) -> Digest {
        let mut cursor = table.map(Cursor::new);
        let mut elements = Elements::new(stream);
        let mut granules_checked = 0;
        for part in 0..stream.elements.div_ceil(PART_ELEMENTS) {
            let first = part * PART_ELEMENTS;
            let count = (stream.elements - first).min(PART_ELEMENTS);
            let packed = stream.chain.packed_bytes(first)..stream.chain.packed_bytes(first + count);
            let granules = (skip + packed.start) / BLOCK_BYTES_U64
                ..(skip + packed.end).div_ceil(BLOCK_BYTES_U64);
            let read = self.granules(stream, &granules);
            let Some(bytes) = self.note(read) else {
                continue;
            };
            let damage_before = self.damage_count;
            if let Some(cursor) = &mut cursor {
                let start = granules.start.max(granules_checked);
                self.checksums(
                    index,
                    stream,
                    cursor,
                    start..granules.end,
                    &granules,
                    &bytes,
                );
                granules_checked = granules.end;
            }
            if self.damage_count > damage_before {
                continue;
            }
            // What the stream skips lies before its first packed byte.
            let start = granules.start * BLOCK_BYTES_U64;
            let skipped = usize::try_from(skip.saturating_sub(start)).unwrap_or(0);
            let window = PackedWindow {
                first_byte: start.saturating_sub(skip),
                bytes: bytes.get(skipped..).unwrap_or_default(),
            };
            let place = stream.granule_place(index, granules.start);
            let checked = elements.check(stream, place, 0, first..first + count, window);
            self.note(checked.map_err(|error| {
                match error {
                    VolumeError::Transform { error, .. } => VolumeError::Transform {
                        place: element_of(&error)
                            .map_or(place, |element| stream.element_place(index, element)),
                        error,
                    },
                    error => error,
                }
            }));
        }
        elements.finish()
    }

    fn granules(&mut self, stream: &Stream, granules: &Range<u64>) -> Result<Vec<u8>, VolumeError> {
        let start = granules.start * BLOCK_BYTES_U64;
        let end = (granules.end * BLOCK_BYTES_U64).min(stream.stored_bytes);
        // At most 256 KiB and a granule.
        let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
        self.read(stream.source, stream.stored_offset + start, &mut bytes)?;
        Ok(bytes)
    }

    /// Checks `granules`, whose bytes are among those of `read`.
    fn checksums(
        &mut self,
        index: StreamIndex,
        stream: &Stream,
        cursor: &mut Cursor,
        granules: Range<u64>,
        read: &Range<u64>,
        bytes: &[u8],
    ) {
        let pieces = (read.start..).zip(bytes.chunks(BLOCK_BYTES));
        for (granule, piece) in pieces.filter(|(granule, _)| granules.contains(granule)) {
            let expected = cursor.entry(self, granule).map(|entry| {
                let entry = entry.first_chunk();
                entry.map_or(0, |entry| u32::from_le_bytes(*entry))
            });
            let Some(expected) = self.note_once(cursor, expected) else {
                continue;
            };
            let found = crc32c(piece);
            if found != expected {
                let place = stream.granule_place(index, granule);
                self.note::<()>(Err(VolumeError::Checksum {
                    place,
                    expected,
                    found,
                }));
            }
        }
    }

    /// Takes note of a damaged table block once, not for each of its entries.
    fn note_once<T>(&mut self, cursor: &mut Cursor, entry: Result<T, VolumeError>) -> Option<T> {
        match entry {
            Err(_) if cursor.is_reported => None,
            other => {
                cursor.is_reported = cursor.block.is_none();
                self.note(other)
            }
        }
    }
}

/// Reads the entries of a table in order.
struct Cursor {
    table: Table,
    number: Option<u64>,
    block: Option<Box<[u8; BLOCK_BYTES]>>,
    /// The block at hand is damaged, and that was said.
    is_reported: bool,
}

impl Cursor {
    fn new(table: Table) -> Cursor {
        Cursor {
            table,
            number: None,
            block: None,
            is_reported: false,
        }
    }

    fn entry(&mut self, walk: &mut Walk<'_>, index: u64) -> Result<&[u8], VolumeError> {
        let (number, slot) = self.table.locate(index);
        if self.number != Some(number) {
            self.number = Some(number);
            self.block = None;
            self.is_reported = false;
            let keys = self.table.direct_keys(number);
            self.block = Some(walk.block(&self.table, 0, number, keys)?);
        }
        match &self.block {
            Some(block) => Ok(self.table.entry(&block[..], slot)),
            None => Err(VolumeError::Usage("the block is damaged")),
        }
    }
}

/// The elements of a stream, decoded: their range and digest.
struct Elements {
    decoder: Result<Decoder, TransformError>,
    /// Measures the range of elements that a decoder hands on without looking at them.
    plain: Result<Chain, TransformError>,
    scratch: Scratch,
    out: Vec<u8>,
    again: Vec<u8>,
    /// Of the elements, where one is recorded to compare with.
    hash: Option<Sha256>,
}

impl Elements {
    fn new(stream: &Stream) -> Elements {
        Elements {
            decoder: Decoder::new(&stream.chain, &ViewChain::identity(), stream.proven),
            plain: Chain::from_steps(&[], stream.element_type()),
            scratch: Scratch::new(),
            out: Vec::new(),
            again: Vec::new(),
            hash: stream.digest.map(|_| Sha256::new()),
        }
    }

    /// Decodes `elements` of a packed form (of a frame, which begins with element `frame_first`, or of the whole stream), of which `window` holds the
    /// bytes.
    fn check(
        &mut self,
        stream: &Stream,
        place: Place,
        frame_first: u64,
        elements: Range<u64>,
        window: PackedWindow<'_>,
    ) -> Result<(), VolumeError> {
        let refused = |error: &TransformError| VolumeError::Transform {
            place,
            error: error.clone(),
        };
        let decoder = self.decoder.as_ref().map_err(refused)?;
        let plain = self.plain.as_ref().map_err(refused)?;
        let size = stream.element_type().bytes() as u64;
        let mut first = elements.start;
        while first < elements.end {
            let end = elements.end.min(first + PART_ELEMENTS);
            // At most 256 KiB.
            let len = usize::try_from((end - first) * size).unwrap_or(0);
            self.out.resize(len, 0);
            let mut out = OutSegments::from_slice(&mut self.out);
            decoder
                .expand_at(frame_first, window, first * size..end * size, &mut out)
                .map_err(|error| refused(&error))?;
            if let Some(hash) = &mut self.hash {
                hash.update(&self.out);
            }
            if let (true, Some(proven)) = (decoder.is_copy(), stream.proven) {
                self.again.resize(len, 0);
                let encoded = plain
                    .encode_frame(&self.out, &mut self.scratch, &mut self.again)
                    .map_err(|error| refused(&error))?;
                if let Some(met) = encoded.range
                    && !proven.encloses(&met)
                {
                    let field = "range of the elements";
                    return Err(Fields { place }.malformed(field, proven, met));
                }
            }
            first = end;
        }
        Ok(())
    }

    fn finish(self) -> Digest {
        self.hash.map(|hash| hash.finalize().into())
    }
}
