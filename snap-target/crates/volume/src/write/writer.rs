//! The writer: streams one after the other, then views over them. What comes behind them is written by [`finish`](Writer::finish).

use std::collections::HashSet;
use std::io::Read;

use sha2::{Digest, Sha256};
use transforms::{Chain, ElementType, Packing, TableKind, ValueRange, ViewChain};

use super::appender::Appender;
use super::batch::{Batch, Checks, Cut, union};
use super::map::DraftSource;
use super::spec::{ExtentSpec, Integrity, Options, StreamSpec, ViewSpec};
use super::spool::Spool;
use super::{Output, WriteError, pipeline};
use crate::chain_tables::ChainTables;
use crate::density::{Crowded, Density};
use crate::format::is_view_name;
use crate::format::raw::INLINE_BYTES_MAX;
use crate::format::superblock::{LBA_BYTES, PAYLOAD_OFFSET_MIN};
use crate::format::{ChainIndex, ChainUse, Extent, Mapping, SourceId, StreamIndex, ViewIndex};
use crate::limits;
use crate::units::Units;

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
    /// Of the elements as they are read back: another one where the chain rounds. Recorded.
    pub elements_sha256: [u8; 32],
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
    /// Of these chains.
    pub(super) chain_tables: ChainTables,
    /// Files that are mapped: source 1 and on.
    pub(super) sources: Vec<DraftSource>,
    pub(super) streams: Vec<DraftStream>,
    pub(super) views: Vec<DraftView>,
    names: HashSet<String>,
}

/// A stream whose tables are not written yet.
pub(super) struct DraftStream {
    pub(super) chain: ChainIndex,
    pub(super) cut: Cut,
    pub(super) integrity: Integrity,
    /// Where its stored bytes lie: in the volume, or in a file that is mapped.
    pub(super) source: SourceId,
    pub(super) stored_offset: u64,
    /// Stored bytes before element 0.
    pub(super) skip_bytes: u16,
    pub(super) written: Written,
    /// Where its frame sizes and checksums, or its checksums, are in the spool.
    pub(super) spooled_at: u64,
    pub(super) spooled_entries: u64,
}

impl DraftStream {
    pub(super) fn is_mapped(&self) -> bool {
        self.source != SourceId::OWN
    }
}

/// A view whose table is not written yet.
pub(super) struct DraftView {
    pub(super) spec: ViewSpec,
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
            chain_tables: ChainTables::default(),
            sources: Vec::new(),
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
        self.add(spec, input, None, on_progress)
    }

    /// As [`add_stream`](Writer::add_stream), of an input whose SHA-256 is known: it is not made again, which is half of what storing plain elements costs.
    /// Who knows it vouches that `input` gives the bytes that it is of, to the last.
    ///
    /// # Errors
    /// As [`add_stream`](Writer::add_stream).
    pub fn add_stream_of_digest(
        &mut self,
        spec: &StreamSpec,
        input: &mut (dyn Read + Send),
        sha256: [u8; 32],
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Written, WriteError> {
        self.add(spec, input, Some(sha256), on_progress)
    }

    fn add(
        &mut self,
        spec: &StreamSpec,
        input: &mut (dyn Read + Send),
        known: Option<[u8; 32]>,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<Written, WriteError> {
        let cut = spec.cut()?;
        check_tables(&spec.chain)?;
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
        let mut read_back = cut.rounds().then(Sha256::new);
        let mut spooled_entries = 0;
        let input = pipeline::run(input, known, &cut, self.options.threads, |batch| {
            out.append(&batch.stored)?;
            if spec.integrity == Integrity::Crc32c {
                spooled_entries += spool_checks(batch, spool, &out.output)?;
            }
            proven = union(proven, batch.range);
            if let Some(hash) = &mut read_back {
                hash.update(&batch.read_back);
            }
            progress.source_bytes += batch.source.len() as u64;
            progress.stored_bytes += batch.stored.len() as u64;
            on_progress(progress);
            Ok(())
        })?;
        self.out.align()?;
        let elements = input.bytes / spec.chain.source().bytes() as u64;
        if let Some(scaled) = spec.chain.scaled_elements()
            && scaled != elements
        {
            return Err(WriteError::Refused {
                field: "scales",
                why: format!("they are of {scaled} elements, and the input has {elements}"),
            });
        }
        let written = Written {
            stream,
            source_bytes: input.bytes,
            elements,
            stored_bytes: progress.stored_bytes,
            proven,
            sha256: input.sha256,
            elements_sha256: read_back.map_or(input.sha256, |hash| hash.finalize().into()),
        };
        self.streams.push(DraftStream {
            chain,
            cut,
            integrity: spec.integrity,
            source: SourceId::OWN,
            stored_offset,
            skip_bytes: 0,
            written: written.clone(),
            spooled_at,
            spooled_entries,
        });
        Ok(written)
    }

    /// Presents `extents`, one after the other, under a name.
    ///
    /// # Errors
    /// A name that is taken or not of 1 to 255 bytes, a lossy view without a manifest or a manifest that is too long, an extent outside
    /// its stream, or one of rounded values in a view that is not lossy.
    pub fn add_view(
        &mut self,
        view: impl Into<ViewSpec>,
        extents: impl IntoIterator<Item = ExtentSpec>,
    ) -> Result<ViewIndex, WriteError> {
        let refused = |field, why: String| Err(WriteError::Refused { field, why });
        let spec = view.into();
        let view = ViewIndex(count("views", self.views.len(), limits::VIEWS_MAX)?);
        check_manifest(&spec)?;
        let name = &spec.name;
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
        if !self.names.insert(name.clone()) {
            return refused("name", format!("{name:?} is a view of this volume already"));
        }
        let spooled_at = self.spool.len();
        let mut start = 0;
        let mut spooled_entries = 0;
        let mut density = Density::new();
        for extent in extents {
            let extent = self.extent(start, extent)?;
            if extent.bytes == 0 {
                continue;
            }
            if !spec.lossy && self.is_rounded(&extent) {
                let why = format!(
                    "{:?}: rounded values, from presented byte {start} on; such a view is lossy and has a manifest",
                    spec.name
                );
                return refused("view", why);
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
            spec,
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
                let frame_elements = draft.cut.frame_elements;
                let (view_chain, presented) = self.view_chain(view, source)?;
                let bytes = Units::of(presented)
                    .presented_bytes(first_element..first_element + elements, frame_elements)
                    .map_err(refused)?;
                let mapping = Mapping::Linear {
                    stream,
                    first_element,
                    view_chain,
                };
                (bytes, mapping)
            }
        };
        Ok(Extent {
            start,
            bytes,
            mapping,
        })
    }

    /// Whether an extent's values are not those of the source.
    fn is_rounded(&self, extent: &Extent) -> bool {
        let Mapping::Linear {
            stream, view_chain, ..
        } = extent.mapping
        else {
            return false;
        };
        let draft = self.streams.get(stream.0 as usize);
        let view = view_chain.and_then(|index| self.chains.get(index.0 as usize));
        draft.is_some_and(|draft| draft.cut.rounds())
            || matches!(view, Some(ChainUse::View(_, view)) if view.contract().is_lossy())
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
        let whole = Packing::Whole(source);
        let units = Units::of(match view {
            Some(ChainUse::View(_, view)) => view.presented(source).unwrap_or(whole),
            _ => whole,
        });
        let base = units.bytes_before(first_element);
        density.frames(presented, base, units.bytes_before(frame_elements), stream)
    }

    fn view_chain(
        &mut self,
        view: ViewChain,
        source: ElementType,
    ) -> Result<(Option<ChainIndex>, Packing), WriteError> {
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
    pub(super) fn chain_index(&mut self, chain: ChainUse) -> Result<ChainIndex, WriteError> {
        if let Some(found) = (0..).zip(&self.chains).find(|(_, known)| **known == chain) {
            return Ok(ChainIndex(found.0));
        }
        let index = count("chains", self.chains.len(), limits::CHAINS_MAX)?;
        for table in chain.tables() {
            let added = self.chain_tables.add(table);
            added.map_err(|why| WriteError::Refused {
                field: "tables of chains",
                why,
            })?;
        }
        self.chains.push(chain);
        Ok(ChainIndex(index))
    }
}

/// A chain has the tables that its steps take.
pub(super) fn check_tables(chain: &Chain) -> Result<(), WriteError> {
    let why = match chain.missing_table() {
        None => return Ok(()),
        Some(TableKind::Ranks | TableKind::Scales) => {
            format!("{chain} needs a table, which is made of all that is stored by it")
        }
        Some(TableKind::Dictionary) => {
            format!("{chain} needs a dictionary, which is trained on what is stored by it")
        }
    };
    Err(WriteError::Refused {
        field: "chain",
        why,
    })
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

fn check_manifest(view: &ViewSpec) -> Result<(), WriteError> {
    let refused = |why: String| {
        Err(WriteError::Refused {
            field: "manifest",
            why: format!("{:?}: {why}", view.name),
        })
    };
    match &view.manifest {
        None if view.lossy => refused("a lossy view says what was lost".to_owned()),
        Some(manifest) if manifest.len() as u64 > limits::BLOB_BYTES_MAX => {
            let bytes_max = limits::BLOB_BYTES_MAX;
            refused(format!("{} bytes; at most {bytes_max} fit", manifest.len()))
        }
        _ => Ok(()),
    }
}

/// The index of one more of `what`.
pub(super) fn count(what: &'static str, have: usize, max: u64) -> Result<u32, WriteError> {
    match u32::try_from(have) {
        Ok(index) if u64::from(index) < max => Ok(index),
        _ => Err(WriteError::Refused {
            field: what,
            why: format!("a volume has at most {max}"),
        }),
    }
}
