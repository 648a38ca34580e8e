//! The serialiser of volumes: payload as it comes, tables behind it, superblocks last.

mod finish;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt as _;

use transforms::{Chain, ElementType, ViewChain};
use zerocopy::IntoBytes;

use super::stream::{StreamBuilder, StreamSpec};
use super::tables::TableWriter;
use crate::VolumeError;
use crate::chain_tables::ChainTables;
use crate::checksum::crc32c;
use crate::format::raw::{BLOCK_BYTES, BLOCK_BYTES_U64, INLINE_BYTES_MAX};
use crate::format::superblock::{LBA_BYTES, PAYLOAD_OFFSET_MIN};
use crate::format::{
    Blob, BlobIndex, BlobKind, ChainIndex, ChainUse, Digest, Extent, Layout, Mapping, Source,
    SourceId, SourceKind, Stream, StreamIndex, Table, TableKind, View, ViewIndex,
};
use crate::identity::{Uuid, sha256, version_8};
use crate::limits;
use crate::units::Units;

/// Where table blocks wait until the payload is written: a temporary file, or a `Cursor<Vec<u8>>`. Empty at first.
pub(crate) trait Spill: Read + Write + Seek {}

impl<T: Read + Write + Seek> Spill for T {}

/// What is said of a volume as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// RFC 9562 order; not zero. New content, new UUID.
    pub volume_uuid: Uuid,
    /// 512 or 4096.
    pub lba_bytes: u32,
    /// Program and version, for people: at most 32 bytes are kept.
    pub writer: String,
}

/// A source other than the volume itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExternalSource {
    /// Path relative to the volume's directory, absolute path, or URL.
    pub locator: OsString,
    /// Exact size.
    pub bytes: u64,
    /// Modification time, nanoseconds since 1970 UTC.
    pub modified_ns: Option<i64>,
    /// SHA-256 of the whole content.
    pub digest: Digest,
}

/// What is said of a view as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ViewSpec {
    /// 1 to 255 bytes, unique in the volume.
    pub name: String,
    /// RFC 9562 order. `None`: derived from the volume's UUID and the name.
    pub view_uuid: Option<Uuid>,
    /// JSON: what the view was made of. A lossy view has one.
    pub manifest: Option<Vec<u8>>,
    /// Whether it presents other values than the source's.
    pub lossy: bool,
    /// `None`: the same for every view.
    pub revision_uuid: Option<Uuid>,
}

/// Presented bytes, of one kind after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Run {
    /// This many zeros.
    Zero(u64),
    /// These bytes: any number; cut into inline extents of 40.
    Inline(Vec<u8>),
    /// Elements of a stream.
    Linear {
        /// The stream; finished.
        stream: StreamIndex,
        /// The first element.
        first_element: u64,
        /// How many.
        elements: u64,
        /// How they are presented.
        view: ViewChain,
    },
}

/// Builds one volume. See the module.
pub(crate) struct VolumeBuilder<W: Write> {
    out: W,
    spill: Box<dyn Spill>,
    options: Options,
    position: u64,
    spill_bytes: u64,
    sources: Vec<Source>,
    streams: Vec<Stream>,
    chains: Vec<ChainUse>,
    chain_tables: ChainTables,
    /// Where each of these tables is.
    chain_table_blobs: Vec<BlobIndex>,
    blobs: Vec<Blob>,
    /// Locators and names: small, many, and written without padding between them.
    texts: Vec<u8>,
    views: Vec<View>,
    names: Vec<String>,
    /// A stream was begun and not finished.
    stream_open: bool,
}

impl<W: Write> VolumeBuilder<W> {
    /// Begins a volume: writes the two empty slots.
    ///
    /// # Errors
    /// [`VolumeError::Refused`] for options that no volume can have; [`VolumeError::Io`].
    pub fn new(
        mut out: W,
        spill: Box<dyn Spill>,
        options: Options,
    ) -> Result<VolumeBuilder<W>, VolumeError> {
        if options.volume_uuid == [0; 16] {
            return Err(refused("volume_uuid", "it is zero"));
        }
        if !LBA_BYTES.contains(&options.lba_bytes) {
            let why = format_args!("{}, which is neither 512 nor 4096", options.lba_bytes);
            return Err(refused("lba_bytes", why));
        }
        io::copy(&mut io::repeat(0).take(PAYLOAD_OFFSET_MIN), &mut out).map_err(writing)?;
        Ok(VolumeBuilder {
            out,
            spill,
            options,
            position: PAYLOAD_OFFSET_MIN,
            spill_bytes: 0,
            sources: vec![Source {
                kind: SourceKind::Own,
                locator: None,
                // Known at the end.
                bytes: 0,
                modified_ns: None,
                store_uuid: None,
                digest: None,
            }],
            streams: Vec::new(),
            chains: Vec::new(),
            chain_tables: ChainTables::default(),
            chain_table_blobs: Vec::new(),
            blobs: Vec::new(),
            texts: Vec::new(),
            views: Vec::new(),
            names: Vec::new(),
            stream_open: false,
        })
    }

    /// Adds a source that streams can be mapped on.
    ///
    /// # Errors
    /// [`VolumeError::Refused`] when a limit is passed.
    pub fn add_source(&mut self, source: &ExternalSource) -> Result<SourceId, VolumeError> {
        check_limit("sources", self.sources.len(), limits::SOURCES_MAX)?;
        if source.bytes > limits::BYTES_MAX {
            return Err(refused("source", "larger than a source may be"));
        }
        let locator = self.add_text(BlobKind::Locator, source.locator.as_bytes())?;
        self.sources.push(Source {
            kind: SourceKind::External,
            locator: Some(locator),
            bytes: source.bytes,
            modified_ns: source.modified_ns,
            store_uuid: None,
            digest: source.digest,
        });
        Ok(SourceId(index_of(&self.sources)))
    }

    /// Adds bytes that are known by their SHA-256.
    ///
    /// # Errors
    /// [`VolumeError::Refused`] when a limit is passed; [`VolumeError::Io`].
    pub fn add_blob(&mut self, kind: BlobKind, bytes: &[u8]) -> Result<BlobIndex, VolumeError> {
        check_limit("blobs", self.blobs.len(), limits::BLOBS_MAX)?;
        if bytes.len() as u64 > limits::BLOB_BYTES_MAX {
            return Err(refused("blob", format_args!("{} bytes", bytes.len())));
        }
        let offset = self.spill_bytes;
        self.spill(|spill| {
            spill.write_all(bytes)?;
            spill.write_all(padding(bytes.len() as u64))
        })?;
        self.blobs.push(blob(kind, bytes, offset));
        Ok(BlobIndex(index_of(&self.blobs)))
    }

    /// Begins a stream. One at a time.
    ///
    /// # Errors
    /// [`VolumeError::Refused`] for a specification that no stream can have.
    pub fn begin_stream(&mut self, spec: StreamSpec) -> Result<StreamBuilder<'_, W>, VolumeError> {
        StreamBuilder::new(self, spec)
    }

    /// Adds a view of `runs`, which are presented one after the other.
    ///
    /// # Errors
    /// [`VolumeError::Refused`] for a run that is not there or does not fit, or a limit that is passed; [`VolumeError::Io`].
    pub fn add_view(
        &mut self,
        spec: ViewSpec,
        runs: impl IntoIterator<Item = Run>,
    ) -> Result<ViewIndex, VolumeError> {
        check_limit("views", self.views.len(), limits::VIEWS_MAX)?;
        self.check_view(&spec)?;
        let owner = u32::try_from(self.views.len()).unwrap_or(u32::MAX);
        let mut table = TableWriter::new(TableKind::Extents, owner, self.volume_uuid());
        let (mut at, mut count) = (0u64, 0u64);
        for run in runs {
            for extent in self.extents_of(&run, at)? {
                at = extent.end();
                count += 1;
                if at > limits::BYTES_MAX || count > limits::EXTENTS_MAX {
                    return Err(refused("view", "more than a view may present"));
                }
                let raw = extent.to_raw();
                self.spill(|spill| table.push_until(raw.as_bytes(), at, spill))?;
            }
        }
        let extents = self.finish_table(table)?;
        let name = self.add_text(BlobKind::Name, spec.name.as_bytes())?;
        let manifest = match &spec.manifest {
            Some(bytes) => Some(self.add_blob(BlobKind::Manifest, bytes)?),
            None => None,
        };
        self.views.push(View {
            view_uuid: spec
                .view_uuid
                .unwrap_or_else(|| self.derived_view_uuid(&spec.name)),
            presented_bytes: at,
            name,
            manifest,
            extents,
            lossy: spec.lossy,
            revision_uuid: spec.revision_uuid.unwrap_or(*b"first revision 0"),
        });
        self.names.push(spec.name);
        Ok(ViewIndex(index_of(&self.views)))
    }

    /// Bytes of `out` written so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn volume_uuid(&self) -> Uuid {
        self.options.volume_uuid
    }

    pub(crate) fn next_stream(&mut self) -> Result<StreamIndex, VolumeError> {
        if self.stream_open {
            return Err(VolumeError::Usage(
                "another stream was begun and not finished",
            ));
        }
        check_limit("streams", self.streams.len(), limits::STREAMS_MAX)?;
        self.stream_open = true;
        Ok(StreamIndex(
            u32::try_from(self.streams.len()).unwrap_or(u32::MAX),
        ))
    }

    pub(crate) fn finish_stream(&mut self, stream: Stream) -> Result<StreamIndex, VolumeError> {
        if let Some(source) = self.sources.get(stream.source.0 as usize) {
            let end = stream.stored_offset.saturating_add(stream.stored_bytes);
            if source.kind == SourceKind::External && end > source.bytes {
                let why = format_args!("it ends at {end}, the source at {}", source.bytes);
                return Err(refused("mapped stream", why));
            }
        } else {
            return Err(refused(
                "mapped stream",
                format_args!("no {}", stream.source),
            ));
        }
        self.write(padding(self.position))?;
        self.streams.push(stream);
        self.stream_open = false;
        Ok(StreamIndex(index_of(&self.streams)))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.out.write_all(bytes).map_err(writing)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    /// Lets `write` append to the spill.
    pub(crate) fn spill(
        &mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), VolumeError> {
        let mut counted = Counted {
            out: &mut self.spill,
            bytes: 0,
        };
        write(&mut counted).map_err(|error| VolumeError::io("writing the spill file", error))?;
        self.spill_bytes += counted.bytes;
        Ok(())
    }

    /// Ends a table whose blocks went to the spill. Its offset counts from the spill's start until [`finish`](Self::finish) places it.
    ///
    /// Other tables' blocks may lie between those of one table only if they are written in turn: streams and views are written one at
    /// a time, so each table is contiguous.
    pub(crate) fn finish_table(&mut self, writer: TableWriter) -> Result<Table, VolumeError> {
        let mut table = None;
        self.spill(|spill| {
            table = Some(writer.finish(spill)?);
            Ok(())
        })?;
        let table = table.ok_or(VolumeError::Usage("the table was not written"))?;
        Ok(table.moved_to(self.spill_bytes - table.bytes()))
    }

    pub(crate) fn stored_chain(&mut self, chain: &Chain) -> Result<ChainIndex, VolumeError> {
        self.intern(ChainUse::Stored(chain.clone()))
    }

    fn view_chain(
        &mut self,
        element: ElementType,
        view: &ViewChain,
    ) -> Result<Option<ChainIndex>, VolumeError> {
        match view.is_identity() {
            true => Ok(None),
            false => self.intern(ChainUse::View(element, view.clone())).map(Some),
        }
    }

    fn intern(&mut self, chain: ChainUse) -> Result<ChainIndex, VolumeError> {
        let known = self.chains.iter().position(|known| *known == chain);
        if known.is_none() {
            check_limit("chains", self.chains.len(), limits::CHAINS_MAX)?;
            for table in chain.tables() {
                let added = self.chain_tables.add(table);
                if added.map_err(|why| refused("tables of chains", why))? {
                    let kind = BlobKind::of_table(table.kind());
                    let blob = self.add_blob(kind, &table.to_bytes())?;
                    self.chain_table_blobs.push(blob);
                }
            }
            self.chains.push(chain);
        }
        let index = known.unwrap_or(self.chains.len() - 1);
        Ok(ChainIndex(u32::try_from(index).unwrap_or(u32::MAX)))
    }

    fn add_text(&mut self, kind: BlobKind, text: &[u8]) -> Result<BlobIndex, VolumeError> {
        check_limit("blobs", self.blobs.len(), limits::BLOBS_MAX)?;
        let total = (self.texts.len() + text.len()) as u64;
        if text.is_empty()
            || text.len() as u64 > limits::TEXT_BYTES_MAX
            || total > limits::TEXTS_BYTES_MAX
        {
            return Err(refused("text", format_args!("{} bytes long", text.len())));
        }
        self.blobs.push(blob(kind, text, self.texts.len() as u64));
        self.texts.extend_from_slice(text);
        Ok(BlobIndex(index_of(&self.blobs)))
    }

    fn check_view(&self, spec: &ViewSpec) -> Result<(), VolumeError> {
        if spec.name.len() as u64 > limits::VIEW_NAME_BYTES_MAX {
            return Err(refused(
                "view name",
                format_args!("{} bytes", spec.name.len()),
            ));
        }
        if self.names.contains(&spec.name) {
            return Err(refused("view name", format_args!("{:?} twice", spec.name)));
        }
        if spec.lossy && spec.manifest.is_none() {
            return Err(refused("manifest", "a lossy view has one"));
        }
        Ok(())
    }

    /// A run as extents from presented byte `start` on.
    fn extents_of(&mut self, run: &Run, start: u64) -> Result<Vec<Extent>, VolumeError> {
        match run {
            Run::Zero(0) => Ok(Vec::new()),
            Run::Zero(bytes) => Ok(vec![Extent {
                start,
                bytes: *bytes,
                mapping: Mapping::Zero,
            }]),
            Run::Inline(data) => Ok(inline_extents(data, start)),
            Run::Linear {
                stream,
                first_element,
                elements,
                view,
            } => {
                let Some(known) = self.streams.get(stream.0 as usize) else {
                    return Err(refused("run", format_args!("no stream {}", stream.0)));
                };
                let source = known.element_type();
                let presented = view
                    .presented(source)
                    .map_err(|error| refused("run", error))?;
                let end = first_element.checked_add(*elements);
                if end.is_none_or(|end| end > known.elements) {
                    let why = format_args!(
                        "elements {first_element} and {elements} more, of the {} of stream {}",
                        known.elements, stream.0
                    );
                    return Err(refused("run", why));
                }
                let frame_elements = match known.layout {
                    Layout::Framed { frame_elements, .. } => Some(frame_elements),
                    Layout::Unframed { .. } => None,
                };
                let bytes = Units::of(presented)
                    .presented_bytes(*first_element..first_element + elements, frame_elements)
                    .map_err(|why| refused("run", why))?;
                let mapping = Mapping::Linear {
                    stream: *stream,
                    first_element: *first_element,
                    view_chain: self.view_chain(source, view)?,
                };
                Ok(Vec::from_iter((bytes > 0).then_some(Extent {
                    start,
                    bytes,
                    mapping,
                })))
            }
        }
    }

    fn derived_view_uuid(&self, name: &str) -> Uuid {
        let mut seed = b"xio view uuid 1".to_vec();
        seed.extend_from_slice(&self.options.volume_uuid);
        seed.extend_from_slice(name.as_bytes());
        version_8(sha256(&seed))
    }
}

/// Counts what goes through.
struct Counted<'a> {
    out: &'a mut Box<dyn Spill>,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

pub(crate) fn refused(field: &'static str, why: impl Display) -> VolumeError {
    VolumeError::Refused {
        field,
        why: why.to_string(),
    }
}

fn inline_extents(data: &[u8], start: u64) -> Vec<Extent> {
    let mut at = start;
    let mut extents = Vec::new();
    for piece in data.chunks(INLINE_BYTES_MAX) {
        let mut body = [0; INLINE_BYTES_MAX];
        body[..piece.len()].copy_from_slice(piece);
        extents.push(Extent {
            start: at,
            bytes: piece.len() as u64,
            mapping: Mapping::Inline(body),
        });
        at += piece.len() as u64;
    }
    extents
}

fn blob(kind: BlobKind, bytes: &[u8], offset: u64) -> Blob {
    Blob {
        kind,
        crc: crc32c(bytes),
        offset,
        bytes: bytes.len() as u64,
        sha256: sha256(bytes),
    }
}

fn check_limit(field: &'static str, count: usize, limit: u64) -> Result<(), VolumeError> {
    match (count as u64) < limit {
        true => Ok(()),
        false => Err(refused(field, format_args!("more than {limit}"))),
    }
}

/// The index of the last entry. Limits are far below 2^32.
fn index_of<T>(entries: &[T]) -> u32 {
    u32::try_from(entries.len().saturating_sub(1)).unwrap_or(u32::MAX)
}

/// Zeros from `position` to the next block.
fn padding(position: u64) -> &'static [u8] {
    static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let used = position % BLOCK_BYTES_U64;
    match usize::try_from(used) {
        Ok(used) if used > 0 => &ZEROS[used..],
        _ => &[],
    }
}

fn writing(error: io::Error) -> VolumeError {
    VolumeError::io("writing the volume", error)
}
