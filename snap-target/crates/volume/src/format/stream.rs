//! Streams: stored encodings, checked against the source they lie in and the chain they were encoded by.

use transforms::{Chain, ElementType, ValueRange};
use zerocopy::IntoBytes;

use super::directory::{Bounds, Digest, digest_kind, parse_digest, parse_element};
use super::extent::FRAME_GAP_BYTES_MAX;
use super::field::Fields;
use super::raw::{BLOCK_BYTES_U64, RawStream, RawTable};
use super::superblock::PAYLOAD_OFFSET_MIN;
use super::{ChainIndex, ChainUse, Source, SourceId, SourceKind, StreamIndex, Table, TableKind};
use crate::error::{Item, Place, VolumeError};
use crate::limits;

/// How the stored bytes of a stream are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One packed form from end to end.
    Unframed {
        /// Stored bytes before element 0.
        skip_bytes: u16,
        /// CRC of each granule; none for a stream without integrity.
        checksums: Option<Table>,
    },
    /// Frames, each decodable alone.
    Framed {
        /// Elements in each frame but the last.
        frame_elements: u64,
        /// Place and CRC of each frame.
        frames: Table,
    },
}

/// An immutable stored encoding of a run of elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Where it lies.
    pub source: SourceId,
    /// How it was encoded.
    pub chain: Chain,
    /// The same, by its index.
    pub chain_index: ChainIndex,
    /// Frames or not, and their table.
    pub layout: Layout,
    /// First stored byte in the source.
    pub stored_offset: u64,
    /// Exact.
    pub stored_bytes: u64,
    /// How many elements.
    pub elements: u64,
    /// The range that the writer proved.
    pub proven: Option<ValueRange>,
    /// Of the elements as they decode.
    pub digest: Digest,
}

impl Stream {
    /// Type of the source's elements.
    #[must_use]
    pub fn element_type(&self) -> ElementType {
        self.chain.source()
    }

    /// Whether a flipped bit of its stored bytes is reported.
    #[must_use]
    pub fn is_covered(&self) -> bool {
        !matches!(
            self.layout,
            Layout::Unframed {
                checksums: None,
                ..
            }
        )
    }

    /// The element that a frame begins with, if the stream has frames.
    pub(crate) fn first_of_frame(&self, frame: u64) -> Option<u64> {
        let Layout::Framed { frame_elements, .. } = self.layout else {
            return None;
        };
        frame.checked_mul(frame_elements)
    }

    /// Elements of one frame, if the stream has frames and this is one of them.
    #[must_use]
    pub fn elements_of_frame(&self, frame: u64) -> Option<u64> {
        let first = self.first_of_frame(frame)?;
        let Layout::Framed { frame_elements, .. } = self.layout else {
            return None;
        };
        let left = self.elements.checked_sub(first)?;
        Some(left.min(frame_elements)).filter(|count| *count > 0)
    }

    /// Where its first stored byte is.
    pub(crate) fn place(&self, index: StreamIndex) -> Place {
        self.place_of(Item::Stream(index.0), 0)
    }

    /// Where a granule is.
    pub(crate) fn granule_place(&self, index: StreamIndex, granule: u64) -> Place {
        let item = Item::Granule {
            stream: index.0,
            granule,
        };
        self.place_of(item, granule.saturating_mul(BLOCK_BYTES_U64))
    }

    /// Where the granule is that an element of a stream without frames begins in.
    pub(crate) fn element_place(&self, index: StreamIndex, element: u64) -> Place {
        let packed = self.chain.packed_byte_of(element);
        self.granule_place(
            index,
            self.skip_bytes().saturating_add(packed) / BLOCK_BYTES_U64,
        )
    }

    /// Bytes of its first granule that are before its first element.
    pub(crate) fn skip_bytes(&self) -> u64 {
        match self.layout {
            Layout::Unframed { skip_bytes, .. } => u64::from(skip_bytes),
            Layout::Framed { .. } => 0,
        }
    }

    /// Where a frame is; `offset`: from the stream's first stored byte.
    pub(crate) fn frame_place(&self, index: StreamIndex, frame: u64, offset: u64) -> Place {
        let item = Item::Frame {
            stream: index.0,
            frame,
        };
        self.place_of(item, offset)
    }

    fn place_of(&self, item: Item, offset: u64) -> Place {
        Place {
            item,
            source: self.source,
            offset: self.stored_offset.saturating_add(offset),
        }
    }

    /// Parses an entry. `chains` and `sources` are those of the volume.
    pub(crate) fn parse(
        raw: &RawStream,
        place: Place,
        index: u32,
        bounds: &Bounds,
        sources: &[Source],
        chains: &[ChainUse],
    ) -> Result<Stream, VolumeError> {
        let fields = Fields { place };
        let element = parse_element(fields, raw.element_type)?;
        let chain = stored_chain(fields, raw.chain.get(), element, chains)?;
        let elements = fields.within("elements", raw.elements.get(), 0, limits::ELEMENTS_MAX)?;
        check_extent_in_source(fields, raw, bounds, sources)?;
        if raw.cipher.get() != 0 {
            return Err(fields.unsupported("cipher", raw.cipher, "0 (none)"));
        }
        fields.equal("flags", raw.flags.get(), 0)?;
        fields.equal("reserved bytes 124 to 127", raw.reserved_124.get(), 0)?;
        fields.zero("reserved bytes 160 to 255", &raw.reserved_160)?;
        let layout = match raw.layout {
            0 => parse_unframed(fields, raw, index, bounds, chain)?,
            1 => parse_framed(fields, raw, index, bounds, chain)?,
            2 => return Err(fields.unsupported("layout", "2 (mutable)", LAYOUTS)),
            other => return Err(fields.unsupported("layout", other, LAYOUTS)),
        };
        Ok(Stream {
            source: SourceId(raw.source.get()),
            chain: chain.clone(),
            chain_index: ChainIndex(raw.chain.get()),
            layout,
            stored_offset: raw.stored_offset.get(),
            stored_bytes: raw.stored_bytes.get(),
            elements,
            proven: parse_range(fields, raw, chain)?,
            digest: parse_digest(fields, raw.digest_kind.get(), &raw.digest)?,
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawStream {
        let (layout, integrity, skip_bytes, frame_elements, table) = match self.layout {
            Layout::Unframed {
                skip_bytes,
                checksums: None,
            } => (0, 0, skip_bytes, 0, RawTable::default()),
            Layout::Unframed {
                skip_bytes,
                checksums: Some(table),
            } => (0, 1, skip_bytes, 0, table.to_raw()),
            Layout::Framed {
                frame_elements,
                frames,
            } => (1, 1, 0, frame_elements, frames.to_raw()),
        };
        RawStream {
            source: self.source.0.into(),
            chain: self.chain_index.0.into(),
            element_type: self.element_type().code(),
            layout,
            integrity,
            range_known: u8::from(self.proven.is_some()),
            skip_bytes: skip_bytes.into(),
            flags: 0.into(),
            stored_offset: self.stored_offset.into(),
            stored_bytes: self.stored_bytes.into(),
            elements: self.elements.into(),
            frame_elements: frame_elements.into(),
            range_min: self.proven.map_or(0, |range| range.min).into(),
            range_max: self.proven.map_or(0, |range| range.max).into(),
            table,
            digest_kind: digest_kind(&self.digest).into(),
            cipher: 0.into(),
            reserved_124: 0.into(),
            digest: self.digest.unwrap_or_default(),
            reserved_160: [0; 96],
        }
    }
}

const LAYOUTS: &str = "0 (unframed), 1 (framed)";

fn stored_chain(
    fields: Fields,
    index: u32,
    element: ElementType,
    chains: &[ChainUse],
) -> Result<&Chain, VolumeError> {
    let found = usize::try_from(index).ok().and_then(|at| chains.get(at));
    match found {
        Some(ChainUse::Stored(chain)) if chain.source() == element => Ok(chain),
        Some(ChainUse::Stored(chain)) => {
            let expected = format_args!("{}, as chain {index} takes", chain.source());
            Err(fields.malformed("element_type", expected, element))
        }
        Some(ChainUse::View(..)) => {
            let found = format_args!("{index}, a view chain");
            Err(fields.malformed("chain", "a stored chain", found))
        }
        None => {
            let expected = format_args!("an index below {}", chains.len());
            Err(fields.malformed("chain", expected, index))
        }
    }
}

fn check_extent_in_source(
    fields: Fields,
    raw: &RawStream,
    bounds: &Bounds,
    sources: &[Source],
) -> Result<(), VolumeError> {
    let index = raw.source.get();
    let source = usize::try_from(index).ok().and_then(|at| sources.get(at));
    let Some(source) = source else {
        let expected = format_args!("an index below {}", sources.len());
        return Err(fields.malformed("source", expected, index));
    };
    let (first, last) = match source.kind {
        SourceKind::Own => (PAYLOAD_OFFSET_MIN, bounds.tail_offset()),
        SourceKind::External => (0, source.bytes),
    };
    let offset = fields.multiple("stored_offset", raw.stored_offset.get(), BLOCK_BYTES_U64)?;
    let end = fields.sum("stored_bytes", offset, raw.stored_bytes.get())?;
    if offset < first || end > last {
        let expected = format_args!("inside bytes {first} to {last}");
        let found = format_args!("at {offset} to {end}");
        return Err(fields.malformed("stored bytes", expected, found));
    }
    Ok(())
}

fn parse_unframed(
    fields: Fields,
    raw: &RawStream,
    index: u32,
    bounds: &Bounds,
    chain: &Chain,
) -> Result<Layout, VolumeError> {
    if chain.is_framed() {
        return Err(fields.malformed("layout", format_args!("1 (framed), for {chain}"), 0));
    }
    let skip_bytes = raw.skip_bytes.get();
    fields.within("skip_bytes", u64::from(skip_bytes), 0, BLOCK_BYTES_U64 - 1)?;
    fields.equal("frame_elements", raw.frame_elements.get(), 0)?;
    let packed_bytes = chain.packed_bytes(raw.elements.get());
    let expected = fields.sum("elements", packed_bytes, u64::from(skip_bytes))?;
    let stored_bytes = raw.stored_bytes.get();
    fields.equal("stored_bytes", stored_bytes, expected)?;
    let checksums = match raw.integrity {
        0 => {
            fields.zero("table of a stream without integrity", raw.table.as_bytes())?;
            None
        }
        1 => Some(Table::parse(
            fields,
            &raw.table,
            TableKind::Checksums,
            index,
            limits::FRAMES_MAX,
            &bounds.table,
        )?),
        other => return Err(fields.unsupported("integrity", other, INTEGRITIES)),
    };
    if let Some(table) = checksums {
        let granules = stored_bytes.div_ceil(BLOCK_BYTES_U64);
        fields.equal("entry_count of checksums", table.entry_count(), granules)?;
    }
    Ok(Layout::Unframed {
        skip_bytes,
        checksums,
    })
}

fn parse_framed(
    fields: Fields,
    raw: &RawStream,
    index: u32,
    bounds: &Bounds,
    chain: &Chain,
) -> Result<Layout, VolumeError> {
    if !chain.is_framed() {
        return Err(fields.malformed("layout", format_args!("0 (unframed), for {chain}"), 1));
    }
    match raw.integrity {
        1 => {}
        0 => return Err(fields.malformed("integrity", "1 (crc32c) for a framed stream", 0)),
        other => return Err(fields.unsupported("integrity", other, INTEGRITIES)),
    }
    fields.equal("skip_bytes", raw.skip_bytes.get(), 0)?;
    let frame_elements = raw.frame_elements.get();
    fields.within(
        "frame_elements",
        frame_elements,
        8,
        limits::FRAME_PACKED_BYTES_MAX * 8,
    )?;
    fields.multiple(
        "frame_elements",
        frame_elements,
        chain.whole_elements().max(8),
    )?;
    let packed_bytes = chain.packed_bytes(frame_elements);
    fields.within(
        "packed bytes of a frame",
        packed_bytes,
        1,
        limits::FRAME_PACKED_BYTES_MAX,
    )?;
    let frames = Table::parse(
        fields,
        &raw.table,
        TableKind::Frames,
        index,
        limits::FRAMES_MAX,
        &bounds.table,
    )?;
    let expected = raw.elements.get().div_ceil(frame_elements);
    fields.equal("entry_count of frames", frames.entry_count(), expected)?;
    // Each frame is 1 byte to its packed length, after a gap: a total outside that cannot be met by any frame table. Frames are at most 2^44,
    // elements at most 2^56, so nothing overflows.
    let stored_bytes_max = chain.packed_bytes(raw.elements.get()) + expected * FRAME_GAP_BYTES_MAX;
    fields.within(
        "stored_bytes",
        raw.stored_bytes.get(),
        expected,
        stored_bytes_max,
    )?;
    Ok(Layout::Framed {
        frame_elements,
        frames,
    })
}

const INTEGRITIES: &str = "0 (none), 1 (crc32c)";

fn parse_range(
    fields: Fields,
    raw: &RawStream,
    chain: &Chain,
) -> Result<Option<ValueRange>, VolumeError> {
    let range = ValueRange {
        min: raw.range_min.get(),
        max: raw.range_max.get(),
    };
    match raw.range_known {
        0 => {
            fields.equal("range_min", range.min, 0)?;
            fields.equal("range_max", range.max, 0)?;
            Ok(None)
        }
        1 => {
            let possible = chain.range().ok_or_else(|| {
                fields.malformed("range_known", format_args!("0, for {}", chain.source()), 1)
            })?;
            fields.within("range_max", range.max, range.min, i128::MAX)?;
            if !possible.encloses(&range) {
                return Err(fields.malformed("range", format_args!("within {possible}"), range));
            }
            Ok(Some(range))
        }
        other => Err(fields.malformed("range_known", "0 or 1", other)),
    }
}
