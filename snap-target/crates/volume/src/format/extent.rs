//! Extents and frames: the entries of the two tables that are as long as the data.

use std::ops::Range;

use zerocopy::{FromBytes, IntoBytes};

use super::field::Fields;
use super::raw::{
    BLOCK_BYTES_U64, INLINE_BYTES_MAX, NONE, RawExtent, RawFrame, RawLinear, first_nonzero,
};
use super::{ChainIndex, StreamIndex, Table};
use crate::error::{Place, VolumeError};

/// A run of presented bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First presented byte.
    pub start: u64,
    /// Presented bytes; at least 1.
    pub bytes: u64,
    /// Where they come from.
    pub mapping: Mapping,
}

/// How an extent finds its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Zeros.
    Zero,
    /// Bytes in the entry itself: the first `Extent::bytes` of these.
    Inline([u8; INLINE_BYTES_MAX]),
    /// Elements of a stream, in their order.
    Linear {
        /// The stream.
        stream: StreamIndex,
        /// The first of them.
        first_element: u64,
        /// How they are presented; `None` as they were.
        view_chain: Option<ChainIndex>,
    },
}

impl Extent {
    /// The byte after the last.
    #[must_use]
    pub fn end(&self) -> u64 {
        // Parsed extents end at most at presented_bytes.
        self.start.saturating_add(self.bytes)
    }

    /// Parses an entry that must lie within `keys`. What it refers to is checked when it is read: one bad extent does not take
    /// its neighbours with it.
    pub(crate) fn parse(
        raw: &RawExtent,
        place: Place,
        keys: &Range<u64>,
    ) -> Result<Extent, VolumeError> {
        let fields = Fields { place };
        let (start, bytes) = (raw.start.get(), raw.bytes.get());
        let end = fields.sum("bytes", start, bytes)?;
        if bytes == 0 || start < keys.start || end > keys.end {
            return Err(fields.malformed(
                "extent",
                format_args!("at least a byte within {} to {}", keys.start, keys.end),
                format_args!("{start} to {end}"),
            ));
        }
        fields.equal("flags", raw.flags, 0)?;
        fields.equal("reserved bytes 18 to 19", raw.reserved_18.get(), 0)?;
        let mapping = match raw.mapping {
            0 => {
                fields.equal("stream of a zero extent", raw.stream.get(), 0)?;
                fields.zero("body of a zero extent", &raw.body)?;
                Mapping::Zero
            }
            1 => parse_inline(fields, raw)?,
            2 => parse_linear(fields, raw)?,
            3 => return Err(fields.unsupported("mapping", "3 (permuted)", MAPPINGS)),
            4 => return Err(fields.unsupported("mapping", "4 (interleaved)", MAPPINGS)),
            other => return Err(fields.unsupported("mapping", other, MAPPINGS)),
        };
        Ok(Extent {
            start,
            bytes,
            mapping,
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawExtent {
        let (mapping, stream, body) = match self.mapping {
            Mapping::Zero => (0, 0, [0; INLINE_BYTES_MAX]),
            Mapping::Inline(data) => (1, 0, data),
            Mapping::Linear {
                stream,
                first_element,
                view_chain,
            } => {
                let linear = RawLinear {
                    first_element: first_element.into(),
                    view_chain: view_chain.map_or(NONE, |chain| chain.0).into(),
                    map: NONE.into(),
                    reserved_40: [0; 24],
                };
                let mut body = [0; INLINE_BYTES_MAX];
                body.copy_from_slice(linear.as_bytes());
                (2, stream.0, body)
            }
        };
        RawExtent {
            start: self.start.into(),
            bytes: self.bytes.into(),
            mapping,
            flags: 0,
            reserved_18: 0.into(),
            stream: stream.into(),
            body,
        }
    }
}

const MAPPINGS: &str = "0 (zero), 1 (inline), 2 (linear)";

fn parse_inline(fields: Fields, raw: &RawExtent) -> Result<Mapping, VolumeError> {
    fields.equal("stream of an inline extent", raw.stream.get(), 0)?;
    let used = usize::try_from(raw.bytes.get()).ok();
    let unused = used.and_then(|used| raw.body.get(used..));
    let Some(unused) = unused else {
        let expected = format_args!("at most {INLINE_BYTES_MAX} for an inline extent");
        return Err(fields.malformed("bytes", expected, raw.bytes));
    };
    if first_nonzero(unused).is_some() {
        return Err(fields.malformed("body after the inline data", "zeros", "other bytes"));
    }
    Ok(Mapping::Inline(raw.body))
}

fn parse_linear(fields: Fields, raw: &RawExtent) -> Result<Mapping, VolumeError> {
    let Ok(linear) = RawLinear::read_from_bytes(&raw.body) else {
        return Err(fields.malformed("body", "a linear extent's", "another length"));
    };
    if linear.map.get() != NONE {
        return Err(fields.malformed("map", "none, for a linear extent", linear.map));
    }
    fields.zero("reserved bytes 40 to 63", &linear.reserved_40)?;
    Ok(Mapping::Linear {
        stream: StreamIndex(raw.stream.get()),
        first_element: linear.first_element.get(),
        view_chain: Some(linear.view_chain.get())
            .filter(|index| *index != NONE)
            .map(ChainIndex),
    })
}

/// The extents of a leaf block that was checked.
pub(crate) fn leaf_extent<'b>(
    table: &Table,
    block: &'b [u8],
    slot: usize,
) -> Option<&'b RawExtent> {
    RawExtent::ref_from_bytes(table.entry(block, slot)).ok()
}

/// Checks that the extents of a leaf follow each other without gap or overlap, from `keys.start` to `keys.end`.
pub(crate) fn check_leaf(
    table: &Table,
    bytes: &[u8],
    block: u64,
    keys: Range<u64>,
) -> Result<(), VolumeError> {
    let mut at = keys.start;
    let first = block * table.per_block();
    for index in 0..table.entries_in(0, block) {
        let place = table.entry_place(first + index);
        let fields = Fields { place };
        let (_, slot) = table.locate(first + index);
        let Some(raw) = leaf_extent(table, bytes, slot) else {
            return Err(fields.malformed("entry", "64 bytes", "fewer"));
        };
        fields.equal("start", raw.start.get(), at)?;
        fields.within("bytes", raw.bytes.get(), 1, u64::MAX)?;
        at = fields.sum("bytes", at, raw.bytes.get())?;
    }
    let fields = Fields {
        place: table.block_place(0, block),
    };
    fields.equal("end of the last extent", at, keys.end)
}

/// Bytes that a frame may leave empty before it, so that it begins where a device or an engine likes it.
pub const FRAME_GAP_BYTES_MAX: u64 = BLOCK_BYTES_U64 - 1;

/// Stored bytes of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// From the stream's first stored byte.
    pub offset: u64,
    /// Exact.
    pub stored_bytes: u32,
    /// CRC-32C of the stored bytes.
    pub crc: u32,
}

impl Frame {
    /// Parses an entry of a stream of `stream_bytes` stored bytes, whose packed form is `packed_bytes`.
    pub(crate) fn parse(
        raw: &RawFrame,
        place: Place,
        packed_bytes: u64,
        stream_bytes: u64,
    ) -> Result<Frame, VolumeError> {
        let fields = Fields { place };
        let stored_bytes = raw.stored_bytes.get();
        fields.within("stored_bytes", u64::from(stored_bytes), 1, packed_bytes)?;
        let end = fields.sum("offset", raw.offset.get(), u64::from(stored_bytes))?;
        if end > stream_bytes {
            let expected = format_args!("within the stream's {stream_bytes} bytes");
            let found = format_args!("{} to {end}", raw.offset);
            return Err(fields.malformed("frame", expected, found));
        }
        fields.zero("tag", &raw.tag)?;
        fields.equal("key_id", raw.key_id.get(), 0)?;
        fields.equal("flags", raw.flags.get(), 0)?;
        Ok(Frame {
            offset: raw.offset.get(),
            stored_bytes,
            crc: raw.crc.get(),
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawFrame {
        RawFrame {
            offset: self.offset.into(),
            stored_bytes: self.stored_bytes.into(),
            crc: self.crc.into(),
            tag: [0; 16],
            key_id: 0.into(),
            flags: 0.into(),
        }
    }
}
