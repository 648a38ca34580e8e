//! The writer: streams one after the other, then views over them. What comes behind them is written by [`finish`](Writer::finish).

use std::collections::HashSet;
use std::io::Read;

use transforms::{Chain, ElementType, ValueRange, ViewChain};

use super::appender::Appender;
use super::batch::{Batch, Checks, Cut, union};
use super::spool::Spool;
use super::{Output, WriteError, pipeline};
use crate::density::{Crowded, Density};
use crate::format::is_view_name;
use crate::format::raw::INLINE_BYTES_MAX;
use crate::format::superblock::{LBA_BYTES, PAYLOAD_OFFSET_MIN};
use crate::format::{ChainIndex, ChainUse, Extent, Mapping, StreamIndex, ViewIndex};
use crate::identity::Uuid;
use crate::limits;

/// Source bytes of a frame when nobody says otherwise.
pub const FRAME_BYTES_DEFAULT: u64 = 64 << 10;
/// The largest frame that the writer makes, in source bytes; its packed form has the format's limit besides.
pub const FRAME_BYTES_MAX: u64 = limits::FRAME_PACKED_BYTES_MAX;
/// The elements of a frame are a multiple of this, so that packed frames are whole bytes.
const FRAME_ELEMENTS_UNIT: u64 = 8;

/// What concerns the whole volume.
#[derive(Debug, Clone)]
pub struct Options {
    /// Logical block size of every view: 512 or 4096.
    pub lba_bytes: u32,
    /// Threads that encode. The volume is the same for every number.
    pub threads: usize,
    /// The volume's UUID. `None`: derived from the content, so that the same input gives the same volume.
    pub volume_uuid: Option<Uuid>,
    /// The program that writes, for people: up to 32 bytes are kept.
    pub writer: String,
}

/// What vouches for stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Integrity {
    /// A CRC-32C for each frame, or each 4 KiB.
    #[default]
    Crc32c,
    /// Nothing: a flipped bit is presented. Streams without block steps only.
    None,
}

/// How a stream is stored.
#[derive(Debug, Clone)]
pub struct StreamSpec {
    /// The stored chain; its source type is that of the input.
    pub chain: Chain,
    /// Source bytes of a frame, for chains with block steps: rounded down to a multiple of 8 elements.
    pub frame_bytes: u64,
    /// What vouches for it.
    pub integrity: Integrity,
}

impl StreamSpec {
    /// The default frame and integrity.
    #[must_use]
    pub fn new(chain: Chain) -> StreamSpec {
        StreamSpec {
            chain,
            frame_bytes: FRAME_BYTES_DEFAULT,
            integrity: Integrity::Crc32c,
        }
    }

    /// Whether a stream can be stored so.
    ///
    /// # Errors
    /// [`WriteError::Refused`], with the rule.
    pub fn check(&self) -> Result<(), WriteError> {
        self.cut().map(|_| ())
    }

    fn cut(&self) -> Result<Cut, WriteError> {
        let refused = |field, why| Err(WriteError::Refused { field, why });
        if !self.chain.is_framed() {
            return Ok(Cut {
                chain: self.chain.clone(),
                frame_elements: None,
            });
        }
        if self.integrity == Integrity::None {
            let why = format!(
                "{} has frames, and frames always have a checksum",
                self.chain
            );
            return refused("integrity", why);
        }
        let element_bytes = self.chain.source().bytes() as u64;
        let frame_elements =
            self.frame_bytes / element_bytes / FRAME_ELEMENTS_UNIT * FRAME_ELEMENTS_UNIT;
        if frame_elements == 0 {
            let why = format!(
                "{} bytes hold less than {FRAME_ELEMENTS_UNIT} elements of {}; {} bytes are the least",
                self.frame_bytes,
                self.chain.source(),
                FRAME_ELEMENTS_UNIT * element_bytes,
            );
            return refused("frame size", why);
        }
        let packed_bytes = self.chain.packed_bytes(frame_elements);
        if self.frame_bytes > FRAME_BYTES_MAX || packed_bytes > limits::FRAME_PACKED_BYTES_MAX {
            let why = format!(
                "{} source bytes, {packed_bytes} packed: a frame has at most {FRAME_BYTES_MAX} of either",
                self.frame_bytes
            );
            return refused("frame size", why);
        }
        Ok(Cut {
            chain: self.chain.clone(),
            frame_elements: Some(frame_elements),
        })
    }
}

/// How far a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Input bytes that are encoded and written.
    pub source_bytes: u64,
    /// What they became.
    pub stored_bytes: u64,
}

/// A stream that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its index, for extents.
    pub stream: StreamIndex,
    /// Exact length of the input.
    pub source_bytes: u64,
    /// How many elements that is.
    pub elements: u64,
    /// Exact length of what is stored, checksums and padding not counted.
    pub stored_bytes: u64,
    /// The smallest and largest element: proven, and recorded. `None` for floating point and for no elements.
    pub proven: Option<ValueRange>,
    /// Of the input.
    pub sha256: [u8; 32],
}

/// A run of presented bytes, to follow the one before.
#[derive(Debug, Clone)]
pub enum ExtentSpec {
    /// So many zeros.
    Zero {
        /// Presented bytes.
        bytes: u64,
    },
    /// These bytes, at most 40.
    Inline(Vec<u8>),
    /// Elements of a stream.
    Linear {
        /// The stream.
        stream: StreamIndex,
        /// The first of them.
        first_element: u64,
        /// How many.
        elements: u64,
        /// How they are presented.
        view: ViewChain,
    },
}

/// Writes one volume. Dropped before [`finish`](Writer::finish), it leaves nothing.
///
/// Memory: below 256 MiB for any length of input, with the default frame size and any chain. It grows with the number of streams
/// (about 500 bytes each) and of extents (about 1 byte each).
pub struct Writer<O> {
    pub(super) out: Appender<O>,
    pub(super) options: Options,
    pub(super) spool: Spool,
    pub(super) chains: Vec<ChainUse>,
    pub(super) streams: Vec<DraftStream>,
    pub(super) views: Vec<DraftView>,
    names: HashSet<String>,
}

/// A stream whose tables are not written yet.
pub(super) struct DraftStream {
    pub(super) chain: ChainIndex,
    pub(super) cut: Cut,
    pub(super) integrity: Integrity,
    pub(super) stored_offset: u64,
    pub(super) written: Written,
    /// Where its frame sizes and checksums, or its checksums, are in the spool.
    pub(super) spooled_at: u64,
    pub(super) spooled_entries: u64,
}

/// A view whose table is not written yet.
pub(super) struct DraftView {
    pub(super) name: String,
    pub(super) presented_bytes: u64,
    /// Where its extents are in the spool.
    pub(super) spooled_at: u64,
    pub(super) spooled_entries: u64,
}

impl<O: Output> Writer<O> {
    /// A volume with nothing in it yet.
    ///
    /// # Errors
    /// Options that no volume has.
    pub fn new(output: O, options: Options) -> Result<Writer<O>, WriteError> {
        if !LBA_BYTES.contains(&options.lba_bytes) {
            return Err(WriteError::Refused {
                field: "logical block size",
                why: format!("{} bytes; 512 and 4096 are possible", options.lba_bytes),
            });
        }
        Ok(Writer {
            out: Appender::new(output, PAYLOAD_OFFSET_MIN),
            options,
            spool: Spool::default(),
            chains: Vec::new(),
            streams: Vec::new(),
            views: Vec::new(),
            names: HashSet::new(),
        })
    }

    /// Encodes `input` to its end and stores it as a stream. `on_progress` is called after each batch of about 512 KiB.
    ///
    /// # Errors
    /// The first in the order of the input: a value that does not fit, an input that ends inside an element, a read or write that
    /// failed. The writer is of no use afterwards.
    pub fn add_stream(
        &mut self,
        spec: &StreamSpec,
        input: &mut (dyn Read + Send),
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Written, WriteError> {
        let cut = spec.cut()?;
        let stream = StreamIndex(count("streams", self.streams.len(), limits::STREAMS_MAX)?);
        let chain = self.chain_index(ChainUse::Stored(spec.chain.clone()))?;
        let stored_offset = self.out.position();
        let spooled_at = self.spool.len();
        let (out, spool) = (&mut self.out, &mut self.spool);
        let mut progress = Progress {
            source_bytes: 0,
            stored_bytes: 0,
        };
        let mut proven = None;
        let mut spooled_entries = 0;
        let input = pipeline::run(input, &cut, self.options.threads, |batch| {
            out.append(&batch.stored)?;
            if spec.integrity == Integrity::Crc32c {
                spooled_entries += spool_checks(batch, spool, &out.output)?;
            }
            proven = union(proven, batch.range);
            progress.source_bytes += batch.source.len() as u64;
            progress.stored_bytes += batch.stored.len() as u64;
            on_progress(progress);
            Ok(())
        })?;
        self.out.align()?;
        let written = Written {
            stream,
            source_bytes: input.bytes,
            elements: input.bytes / spec.chain.source().bytes() as u64,
            stored_bytes: progress.stored_bytes,
            proven,
            sha256: input.sha256,
        };
        self.streams.push(DraftStream {
            chain,
            cut,
            integrity: spec.integrity,
            stored_offset,
            written: written.clone(),
            spooled_at,
            spooled_entries,
        });
        Ok(written)
    }

    /// Presents `extents`, one after the other, under `name`.
    ///
    /// # Errors
    /// A name that is taken or not of 1 to 255 bytes, or an extent outside its stream.
    pub fn add_view(
        &mut self,
        name: &str,
        extents: impl IntoIterator<Item = ExtentSpec>,
    ) -> Result<ViewIndex, WriteError> {
        let refused = |field, why: String| Err(WriteError::Refused { field, why });
        let view = ViewIndex(count("views", self.views.len(), limits::VIEWS_MAX)?);
        let name_bytes_max = limits::VIEW_NAME_BYTES_MAX;
        if name.is_empty() || name.len() as u64 > name_bytes_max {
            return refused(
                "name",
                format!("{} bytes; 1 to {name_bytes_max} are possible", name.len()),
            );
        }
        if !is_view_name(name.as_bytes()) {
            let why = format!(
                "{name:?}: a name has no control characters and no `/`, and is not `.` or `..`"
            );
            return refused("name", why);
        }
        if !self.names.insert(name.to_owned()) {
            return refused("name", format!("{name:?} is a view of this volume already"));
        }
        let spooled_at = self.spool.len();
        let mut start = 0;
        let mut spooled_entries = 0;
        let mut density = Density::new();
        for spec in extents {
            let extent = self.extent(start, spec)?;
            if extent.bytes == 0 {
                continue;
            }
            if let Err(crowded) = self.crowds(&mut density, &extent) {
                let Crowded { what, max, advice } = crowded;
                return refused(
                    "view",
                    format!("more than {max} {what}, at presented byte {start}; {advice}"),
                );
            }
            start = extent.start.saturating_add(extent.bytes);
            if start > limits::BYTES_MAX {
                return refused(
                    "view",
                    format!("it presents more than {} bytes", limits::BYTES_MAX),
                );
            }
            spooled_entries += 1;
            if spooled_entries > limits::EXTENTS_MAX {
                return refused(
                    "view",
                    format!("it has more than {} extents", limits::EXTENTS_MAX),
                );
            }
            self.spool
                .append(zerocopy::IntoBytes::as_bytes(&extent.to_raw()));
            self.spool.spill_if_full(&self.out.output)?;
        }
        self.views.push(DraftView {
            name: name.to_owned(),
            presented_bytes: start,
            spooled_at,
            spooled_entries,
        });
        Ok(view)
    }

    fn extent(&mut self, start: u64, spec: ExtentSpec) -> Result<Extent, WriteError> {
        let refused = |why: String| WriteError::Refused {
            field: "extent",
            why,
        };
        let (bytes, mapping) = match spec {
            ExtentSpec::Zero { bytes } => (bytes, Mapping::Zero),
            ExtentSpec::Inline(data) => {
                let mut body = [0; INLINE_BYTES_MAX];
                body.get_mut(..data.len())
                    .ok_or_else(|| {
                        refused(format!(
                            "{} inline bytes; at most {INLINE_BYTES_MAX} fit",
                            data.len()
                        ))
                    })?
                    .copy_from_slice(&data);
                (data.len() as u64, Mapping::Inline(body))
            }
            ExtentSpec::Linear {
                stream,
                first_element,
                elements,
                view,
            } => {
                let draft = self
                    .streams
                    .get(stream.0 as usize)
                    .ok_or_else(|| refused(format!("there is no stream {}", stream.0)))?;
                let end = first_element.checked_add(elements);
                if end.is_none_or(|end| end > draft.written.elements) {
                    let has = draft.written.elements;
                    return Err(refused(format!(
                        "{elements} elements from {first_element} on, of stream {}, which has {has}",
                        stream.0
                    )));
                }
                let source = draft.cut.chain.source();
                let (view_chain, presented) = self.view_chain(view, source)?;
                let mapping = Mapping::Linear {
                    stream,
                    first_element,
                    view_chain,
                };
                (elements * presented.bytes() as u64, mapping)
            }
        };
        Ok(Extent {
            start,
            bytes,
            mapping,
        })
    }

    /// Counts an extent and the frames it touches.
    fn crowds(&self, density: &mut Density, extent: &Extent) -> Result<(), Crowded> {
        let presented = extent.start..extent.start + extent.bytes;
        density.extent(presented.clone())?;
        let Mapping::Linear {
            stream,
            first_element,
            view_chain,
        } = extent.mapping
        else {
            return Ok(());
        };
        let Some(draft) = self.streams.get(stream.0 as usize) else {
            return Ok(());
        };
        let Some(frame_elements) = draft.cut.frame_elements else {
            return Ok(());
        };
        let source = draft.cut.chain.source();
        let view = view_chain.and_then(|index| self.chains.get(index.0 as usize));
        let element = match view {
            Some(ChainUse::View(_, view)) => view.presented(source).unwrap_or(source),
            _ => source,
        };
        let element_bytes = element.bytes() as u64;
        let base = first_element * element_bytes;
        density.frames(presented, base, frame_elements * element_bytes, stream)
    }

    fn view_chain(
        &mut self,
        view: ViewChain,
        source: ElementType,
    ) -> Result<(Option<ChainIndex>, ElementType), WriteError> {
        let presented = view
            .presented(source)
            .map_err(|error| WriteError::Refused {
                field: "view chain",
                why: error.to_string(),
            })?;
        if view.is_identity() {
            return Ok((None, presented));
        }
        let index = self.chain_index(ChainUse::View(source, view))?;
        Ok((Some(index), presented))
    }

    /// The index of a chain, which is stored once.
    fn chain_index(&mut self, chain: ChainUse) -> Result<ChainIndex, WriteError> {
        if let Some(found) = (0..).zip(&self.chains).find(|(_, known)| **known == chain) {
            return Ok(ChainIndex(found.0));
        }
        let index = count("chains", self.chains.len(), limits::CHAINS_MAX)?;
        self.chains.push(chain);
        Ok(ChainIndex(index))
    }
}

/// Puts a batch's entries on the spool; returns how many.
fn spool_checks(batch: &Batch, spool: &mut Spool, output: &impl Output) -> Result<u64, WriteError> {
    let entries = match &batch.checks {
        Checks::Frames(frames) => {
            for frame in frames {
                spool.append(&frame.stored_bytes.to_le_bytes());
                spool.append(&frame.crc.to_le_bytes());
            }
            frames.len()
        }
        Checks::Granules(granules) => {
            for crc in granules {
                spool.append(&crc.to_le_bytes());
            }
            granules.len()
        }
    };
    spool.spill_if_full(output)?;
    Ok(entries as u64)
}

/// The index of one more of `what`.
fn count(what: &'static str, have: usize, max: u64) -> Result<u32, WriteError> {
    match u32::try_from(have) {
        Ok(index) if u64::from(index) < max => Ok(index),
        _ => Err(WriteError::Refused {
            field: what,
            why: format!("a volume has at most {max}"),
        }),
    }
}
