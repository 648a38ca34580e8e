//! One stream being written: stored bytes in order, with the table that goes with them.

use std::io::Write;

use transforms::{Chain, ValueRange};
use zerocopy::IntoBytes;

use super::builder::{VolumeBuilder, refused};
use super::tables::TableWriter;
use crate::VolumeError;
use crate::checksum::{Crc32c, crc32c};
use crate::format::raw::{BLOCK_BYTES, BLOCK_BYTES_U64};
use crate::format::{Digest, Frame, Layout, SourceId, Stream, StreamIndex, TableKind};
use crate::limits;

/// Where the stored bytes of a stream are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Home {
    /// In the volume: they are written as they are appended.
    Own,
    /// In another source, where they lie already: they are only checksummed.
    Mapped {
        /// Which source.
        source: SourceId,
        /// First byte of the stream there: a multiple of 4096.
        offset: u64,
        /// The bytes between there and element 0, fewer than 4096.
        skip: Vec<u8>,
    },
}

/// What a stream will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamSpec {
    /// How its elements are encoded.
    pub chain: Chain,
    /// Elements in each frame but the last: a multiple of 8 for a framed chain, 0 for another.
    pub frame_elements: u64,
    /// Where the stored bytes are.
    pub home: Home,
    /// Whether granules get checksums. Framed streams always have them.
    pub checksums: bool,
    /// Zeros before each frame but the first.
    pub gap_bytes: usize,
}

impl StreamSpec {
    /// A stream in the volume, with checksums.
    #[must_use]
    pub fn own(chain: Chain, frame_elements: u64) -> StreamSpec {
        StreamSpec {
            chain,
            frame_elements,
            home: Home::Own,
            checksums: true,
            gap_bytes: 0,
        }
    }
}

/// A stream under way. Dropped without [`finish`](Self::finish), it leaves its builder unable to finish.
pub(crate) struct StreamBuilder<'b, W: Write> {
    builder: &'b mut VolumeBuilder<W>,
    spec: StreamSpec,
    table: TableWriter,
    stored_offset: u64,
    stored_bytes: u64,
    elements: u64,
    /// CRC and length of the granule that is not full yet.
    granule: Crc32c,
    granule_bytes: usize,
    range: Option<ValueRange>,
    /// Whether every element so far is within `range`.
    range_known: bool,
    /// A shorter frame, or a piece that ends inside a byte, was appended: nothing may follow.
    ended: bool,
}

impl<'b, W: Write> StreamBuilder<'b, W> {
    pub(crate) fn new(
        builder: &'b mut VolumeBuilder<W>,
        spec: StreamSpec,
    ) -> Result<StreamBuilder<'b, W>, VolumeError> {
        check_spec(&spec)?;
        let owner = builder.next_stream()?.0;
        let kind = match spec.chain.is_framed() {
            true => TableKind::Frames,
            false => TableKind::Checksums,
        };
        let stored_offset = match &spec.home {
            Home::Own => builder.position(),
            Home::Mapped { offset, .. } => *offset,
        };
        let mut stream = StreamBuilder {
            table: TableWriter::new(kind, owner, builder.volume_uuid()),
            builder,
            stored_offset,
            stored_bytes: 0,
            elements: 0,
            granule: Crc32c::new(),
            granule_bytes: 0,
            range: None,
            range_known: spec.chain.source().is_integer(),
            ended: false,
            spec,
        };
        if let Home::Mapped { skip, .. } = &stream.spec.home {
            let skip = skip.clone();
            stream.checksum(&skip)?;
            stream.stored_bytes = skip.len() as u64;
        }
        Ok(stream)
    }

    /// Appends `elements` elements: for a framed chain one frame as [`Chain::encode_frame`] made it, for another a piece of any length.
    /// Only the last call may hold fewer than the frame's elements, or elements that are no multiple of 8. `range`: of these elements;
    /// `None` when it is not known.
    ///
    /// # Errors
    /// [`VolumeError::Refused`] when lengths do not belong together; [`VolumeError::Io`].
    pub fn append(
        &mut self,
        stored: &[u8],
        elements: u64,
        range: Option<ValueRange>,
    ) -> Result<(), VolumeError> {
        self.check_piece(stored, elements)?;
        if elements == 0 {
            return Ok(());
        }
        if self.elements > 0 && self.spec.gap_bytes > 0 {
            self.builder.write(&vec![0; self.spec.gap_bytes])?;
            self.stored_bytes += self.spec.gap_bytes as u64;
        }
        if self.spec.chain.is_framed() {
            let frame = Frame {
                offset: self.stored_bytes,
                stored_bytes: u32::try_from(stored.len())
                    .map_err(|_| refused("stored frame", "longer than 4 GiB"))?,
                crc: crc32c(stored),
            };
            let entry = frame.to_raw();
            self.builder
                .spill(|spill| self.table.push(entry.as_bytes(), spill))?;
        } else {
            self.checksum(stored)?;
        }
        if self.spec.home == Home::Own {
            self.builder.write(stored)?;
        }
        self.stored_bytes += stored.len() as u64;
        self.elements += elements;
        self.range_known &= range.is_some();
        self.range = match (self.range, range) {
            (Some(a), Some(b)) => Some(a.union(&b)),
            (a, b) => a.or(b),
        };
        Ok(())
    }

    /// Ends the stream. `digest`: SHA-256 of its elements in source form, where it was computed.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn finish(mut self, digest: Digest) -> Result<StreamIndex, VolumeError> {
        if self.granule_bytes > 0 {
            self.end_granule()?;
        }
        let framed = self.spec.chain.is_framed();
        let table = match framed || self.spec.checksums {
            true => Some(self.builder.finish_table(self.table)?),
            false => None,
        };
        let layout = match table {
            Some(frames) if framed => Layout::Framed {
                frame_elements: self.spec.frame_elements,
                frames,
            },
            checksums => Layout::Unframed {
                skip_bytes: skip_bytes(&self.spec.home)?,
                checksums,
            },
        };
        let source = match self.spec.home {
            Home::Own => SourceId::OWN,
            Home::Mapped { source, .. } => source,
        };
        let chain_index = self.builder.stored_chain(&self.spec.chain)?;
        self.builder.finish_stream(Stream {
            source,
            chain: self.spec.chain,
            chain_index,
            layout,
            stored_offset: self.stored_offset,
            stored_bytes: self.stored_bytes,
            elements: self.elements,
            proven: self.range.filter(|_| self.range_known),
            digest,
        })
    }

    fn check_piece(&mut self, stored: &[u8], elements: u64) -> Result<(), VolumeError> {
        if elements == 0 && stored.is_empty() {
            return Ok(());
        }
        if self.ended {
            return Err(refused("piece", "it follows one that ended the stream"));
        }
        let total = self.elements.checked_add(elements);
        if total.is_none_or(|total| total > limits::ELEMENTS_MAX) {
            return Err(refused("elements", "more than a stream may have"));
        }
        let (packed_bytes, found) = (self.spec.chain.packed_bytes(elements), stored.len() as u64);
        if self.spec.chain.is_framed() {
            let full = self.spec.frame_elements;
            if elements == 0 || elements > full {
                return Err(refused(
                    "elements of a frame",
                    format_args!("{elements}, of at most {full}"),
                ));
            }
            if found == 0 || found > packed_bytes {
                return Err(refused(
                    "stored frame",
                    format_args!("{found} bytes, of at most {packed_bytes}"),
                ));
            }
            self.ended = elements < full;
        } else {
            if found != packed_bytes {
                return Err(refused(
                    "stored piece",
                    format_args!(
                        "{found} bytes for {elements} elements, which take {packed_bytes}"
                    ),
                ));
            }
            self.ended = !elements.is_multiple_of(self.spec.chain.whole_elements());
        }
        Ok(())
    }

    /// Adds stored bytes to the granules' CRCs.
    fn checksum(&mut self, mut stored: &[u8]) -> Result<(), VolumeError> {
        while self.spec.checksums && !stored.is_empty() {
            let now = stored.len().min(BLOCK_BYTES - self.granule_bytes);
            let (piece, rest) = stored.split_at(now);
            self.granule.update(piece);
            self.granule_bytes += now;
            if self.granule_bytes == BLOCK_BYTES {
                self.end_granule()?;
            }
            stored = rest;
        }
        Ok(())
    }

    fn end_granule(&mut self) -> Result<(), VolumeError> {
        let entry = self.granule.value().to_le_bytes();
        self.builder.spill(|spill| self.table.push(&entry, spill))?;
        self.granule = Crc32c::new();
        self.granule_bytes = 0;
        Ok(())
    }
}

fn check_spec(spec: &StreamSpec) -> Result<(), VolumeError> {
    if let Home::Mapped { offset, .. } = &spec.home {
        if !offset.is_multiple_of(BLOCK_BYTES_U64) {
            let why = format_args!("{offset} is no multiple of 4096");
            return Err(refused("offset of a mapped stream", why));
        }
        if spec.chain.is_framed() && skip_bytes(&spec.home)? > 0 {
            return Err(refused(
                "skip",
                "a framed stream starts with its first frame",
            ));
        }
    }
    if !spec.chain.is_framed() {
        return match spec.frame_elements {
            0 => Ok(()),
            other => Err(refused(
                "frame_elements",
                format_args!("{other}, and {} has no frames", spec.chain),
            )),
        };
    }
    let elements = spec.frame_elements;
    let packed_bytes = spec.chain.packed_bytes(elements);
    let unit = spec.chain.whole_elements().max(8);
    if elements == 0
        || !elements.is_multiple_of(unit)
        || packed_bytes > limits::FRAME_PACKED_BYTES_MAX
    {
        return Err(refused(
            "frame_elements",
            format_args!(
                "{elements}, which is {packed_bytes} packed bytes; expected a multiple of {unit} and at most {} bytes",
                limits::FRAME_PACKED_BYTES_MAX
            ),
        ));
    }
    Ok(())
}

fn skip_bytes(home: &Home) -> Result<u16, VolumeError> {
    match home {
        Home::Own => Ok(0),
        Home::Mapped { skip, .. } => u16::try_from(skip.len())
            .ok()
            .filter(|bytes| u64::from(*bytes) < BLOCK_BYTES_U64)
            .ok_or_else(|| refused("skip", "4096 bytes or more")),
    }
}
