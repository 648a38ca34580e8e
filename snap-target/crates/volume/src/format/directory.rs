//! The directory: sources, chains, streams, blobs and views, each entry checked against its rules and against what it refers to.

use transforms::{Chain, ElementType, Step, TransformId, ValueRange, ViewChain};
use zerocopy::IntoBytes;

use super::field::Fields;
use super::raw::{
    BLOCK_BYTES_U64, NONE, RawBlob, RawChain, RawSource, RawStep, RawStream, RawTable, RawView,
};
use super::superblock::PAYLOAD_OFFSET_MIN;
use super::table::TableBounds;
use super::{BlobIndex, ChainIndex, SourceId, StreamIndex, Table, TableKind};
use crate::error::{Item, Place, VolumeError};
use crate::identity::Uuid;
use crate::limits;

/// A SHA-256, where one was recorded.
pub type Digest = Option<[u8; 32]>;

/// What every entry is checked against: how many there are of each, and where the volume ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) table: TableBounds,
    pub(crate) blobs: u64,
}

impl Bounds {
    fn tail_offset(&self) -> u64 {
        self.table.volume_bytes - BLOCK_BYTES_U64
    }

    fn blob(
        &self,
        fields: Fields,
        field: &'static str,
        index: u32,
    ) -> Result<BlobIndex, VolumeError> {
        if u64::from(index) < self.blobs {
            return Ok(BlobIndex(index));
        }
        Err(fields.malformed(
            field,
            format_args!("a blob index below {}", self.blobs),
            index,
        ))
    }

    fn optional_blob(
        &self,
        fields: Fields,
        field: &'static str,
        index: u32,
    ) -> Result<Option<BlobIndex>, VolumeError> {
        match index {
            NONE => Ok(None),
            index => self.blob(fields, field, index).map(Some),
        }
    }
}

/// What a source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceKind {
    /// The volume's own store.
    Own,
    /// Another file, device or object.
    External,
}

/// Where stored bytes live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Own or external.
    pub kind: SourceKind,
    /// Path or URL; none for the volume's own store.
    pub locator: Option<BlobIndex>,
    /// Exact size.
    pub bytes: u64,
    /// Modification time when it was mapped, nanoseconds since 1970 UTC.
    pub modified_ns: Option<i64>,
    /// Identity of the store it was written to.
    pub store_uuid: Option<Uuid>,
    /// Of its whole content.
    pub digest: Digest,
}

impl Source {
    pub(crate) fn parse(
        raw: &RawSource,
        place: Place,
        index: u64,
        bounds: &Bounds,
    ) -> Result<Source, VolumeError> {
        let fields = Fields { place };
        let kind = match (raw.kind.get(), index) {
            (0, 0) => SourceKind::Own,
            (0, _) => return Err(fields.malformed("kind", "0 (own) for source 0 alone", 0)),
            (1, 0) => return Err(fields.malformed("kind", "0 (own) for source 0", 1)),
            (1, _) => SourceKind::External,
            (2, _) => return Err(fields.unsupported("kind", "2 (striped)", SOURCE_KINDS)),
            (3, _) => return Err(fields.unsupported("kind", "3 (replicated)", SOURCE_KINDS)),
            (other, _) => return Err(fields.unsupported("kind", other, SOURCE_KINDS)),
        };
        let bytes = fields.within("bytes", raw.bytes.get(), 0, limits::BYTES_MAX)?;
        let locator = bounds.optional_blob(fields, "locator", raw.locator.get())?;
        match (kind, locator) {
            (SourceKind::Own, Some(BlobIndex(index))) => {
                return Err(fields.malformed("locator", "none, for the volume itself", index));
            }
            (SourceKind::External, None) => {
                return Err(fields.malformed("locator", "a blob index", "none"));
            }
            (SourceKind::Own, None) => fields.equal("bytes", bytes, bounds.table.volume_bytes)?,
            (SourceKind::External, Some(_)) => {}
        }
        fields.equal("first_member", raw.first_member.get(), 0)?;
        fields.equal("member_count", raw.member_count.get(), 0)?;
        fields.equal("reserved bytes 30 to 31", raw.reserved_30.get(), 0)?;
        fields.equal("stripe_bytes", raw.stripe_bytes.get(), 0)?;
        fields.zero("reserved bytes 40 to 47", &raw.reserved_40)?;
        fields.zero("reserved bytes 96 to 127", &raw.reserved_96)?;
        Ok(Source {
            kind,
            locator,
            bytes,
            modified_ns: Some(raw.modified_ns.get()).filter(|ns| *ns != 0),
            store_uuid: Some(raw.store_uuid).filter(|uuid| *uuid != [0; 16]),
            digest: parse_digest(fields, raw.digest_kind.get(), &raw.digest)?,
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawSource {
        RawSource {
            kind: match self.kind {
                SourceKind::Own => 0,
                SourceKind::External => 1,
            }
            .into(),
            digest_kind: digest_kind(&self.digest).into(),
            locator: self.locator.map_or(NONE, |blob| blob.0).into(),
            bytes: self.bytes.into(),
            modified_ns: self.modified_ns.unwrap_or(0).into(),
            first_member: 0.into(),
            member_count: 0.into(),
            reserved_30: 0.into(),
            stripe_bytes: 0.into(),
            reserved_40: [0; 8],
            store_uuid: self.store_uuid.unwrap_or_default(),
            digest: self.digest.unwrap_or_default(),
            reserved_96: [0; 32],
        }
    }
}

const SOURCE_KINDS: &str = "0 (own), 1 (external)";

/// A chain, by what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainUse {
    /// How a source was encoded.
    Stored(Chain),
    /// How a stream of this element type is presented.
    View(ElementType, ViewChain),
}

impl ChainUse {
    pub(crate) fn parse(raw: &RawChain, place: Place) -> Result<ChainUse, VolumeError> {
        let fields = Fields { place };
        let element = parse_element(fields, raw.element_type)?;
        fields.zero("reserved bytes 3 to 15", &raw.reserved_3)?;
        let count = usize::from(raw.step_count);
        let (used, unused) = raw.steps.split_at_checked(count).ok_or_else(|| {
            fields.malformed(
                "step_count",
                format_args!("0 to {}", raw.steps.len()),
                raw.step_count,
            )
        })?;
        fields.zero("unused steps", unused.as_bytes())?;
        let mut steps = Vec::with_capacity(count);
        for step in used {
            fields.equal("reserved bytes of a step", step.reserved_12.get(), 0)?;
            steps.push(Step {
                id: TransformId(step.transform.get()),
                version: step.version.get(),
                parameter: step.parameter.get(),
            });
        }
        let refused = |error| VolumeError::Transform { place, error };
        let chain = match raw.role {
            0 => ChainUse::Stored(Chain::from_steps(&steps, element).map_err(refused)?),
            1 => {
                let view = ViewChain::from_steps(&steps, element).map_err(refused)?;
                ChainUse::View(element, view)
            }
            other => return Err(fields.unsupported("use", other, "0 (stored), 1 (view)")),
        };
        // Last, so that a transform which needs a blob is refused by its own name first.
        for step in used {
            if step.blob.get() != NONE {
                let known = "none: no transform here takes one";
                return Err(fields.unsupported("blob of a step", step.blob, known));
            }
        }
        Ok(chain)
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawChain {
        let (role, element, used) = match self {
            ChainUse::Stored(chain) => (0, chain.source(), chain.steps()),
            ChainUse::View(element, view) => (1, *element, view.steps()),
        };
        let mut steps = [RawStep {
            transform: 0.into(),
            version: 0.into(),
            parameter: 0.into(),
            blob: 0.into(),
            reserved_12: 0.into(),
        }; super::raw::CHAIN_STEPS_MAX];
        for (to, step) in steps.iter_mut().zip(used) {
            to.transform = step.id.0.into();
            to.version = step.version.into();
            to.parameter = step.parameter.into();
            to.blob = NONE.into();
        }
        // A chain has at most CHAIN_STEPS_MAX steps: the transforms crate has the same limit, asserted below.
        #[allow(clippy::cast_possible_truncation)]
        let step_count = used.len() as u8;
        RawChain {
            element_type: element.code(),
            step_count,
            role,
            reserved_3: [0; 13],
            steps,
        }
    }
}

const _: () = assert!(transforms::CHAIN_STEPS_MAX == super::raw::CHAIN_STEPS_MAX);

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

    /// Elements of one frame, if the stream has frames and this is one of them.
    #[must_use]
    pub fn elements_of_frame(&self, frame: u64) -> Option<u64> {
        let Layout::Framed { frame_elements, .. } = self.layout else {
            return None;
        };
        let first = frame.checked_mul(frame_elements)?;
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
    fields.multiple("frame_elements", frame_elements, 8)?;
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
    // Each frame is 1 byte to its packed length: a total outside that cannot be met by any frame table.
    let stored_bytes_max = chain.packed_bytes(raw.elements.get());
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

/// What the bytes of a blob are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKind {
    /// Path or URL of a source.
    Locator,
    /// Name of a view.
    Name,
    /// What a view was made of, as JSON.
    Manifest,
    /// A kind that this version does not interpret.
    Other(u32),
}

impl BlobKind {
    fn parse(code: u32) -> BlobKind {
        match code {
            1 => BlobKind::Locator,
            2 => BlobKind::Name,
            3 => BlobKind::Manifest,
            other => BlobKind::Other(other),
        }
    }

    fn code(self) -> u32 {
        match self {
            BlobKind::Locator => 1,
            BlobKind::Name => 2,
            BlobKind::Manifest => 3,
            BlobKind::Other(code) => code,
        }
    }

    /// Whether the bytes are text that is read at open.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, BlobKind::Locator | BlobKind::Name)
    }
}

/// Bytes of any length in the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// What the bytes are.
    pub kind: BlobKind,
    /// CRC-32C of the bytes.
    pub crc: u32,
    /// First byte in the volume.
    pub offset: u64,
    /// Exact.
    pub bytes: u64,
    /// What it is known by.
    pub sha256: [u8; 32],
}

impl Blob {
    pub(crate) fn parse(raw: &RawBlob, place: Place, bounds: &Bounds) -> Result<Blob, VolumeError> {
        let fields = Fields { place };
        let kind = BlobKind::parse(raw.kind.get());
        let bytes = match kind.is_text() {
            true => fields.within("bytes", raw.bytes.get(), 1, limits::TEXT_BYTES_MAX)?,
            false => fields.within("bytes", raw.bytes.get(), 0, limits::BLOB_BYTES_MAX)?,
        };
        let end = fields.sum("offset", raw.offset.get(), bytes)?;
        if raw.offset.get() < PAYLOAD_OFFSET_MIN || end > bounds.tail_offset() {
            return Err(fields.malformed(
                "blob",
                format_args!(
                    "inside bytes {PAYLOAD_OFFSET_MIN} to {}",
                    bounds.tail_offset()
                ),
                format_args!("at {} to {end}", raw.offset),
            ));
        }
        fields.zero("reserved bytes 24 to 31", &raw.reserved_24)?;
        Ok(Blob {
            kind,
            crc: raw.crc.get(),
            offset: raw.offset.get(),
            bytes,
            sha256: raw.sha256,
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawBlob {
        RawBlob {
            kind: self.kind.code().into(),
            crc: self.crc.into(),
            offset: self.offset.into(),
            bytes: self.bytes.into(),
            reserved_24: [0; 8],
            sha256: self.sha256,
        }
    }
}

/// What is presented: one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its own identity in the volume.
    pub view_uuid: Uuid,
    /// Exact.
    pub presented_bytes: u64,
    /// Its name.
    pub name: BlobIndex,
    /// What it was made of.
    pub manifest: Option<BlobIndex>,
    /// Sorted by presented byte.
    pub extents: Table,
    /// Whether it presents other values than the source's.
    pub lossy: bool,
}

/// Flag of a view that presents other values than the source's.
const FLAG_LOSSY: u32 = 1;

impl View {
    pub(crate) fn parse(
        raw: &RawView,
        place: Place,
        index: u32,
        bounds: &Bounds,
        blobs: &[Blob],
    ) -> Result<View, VolumeError> {
        let fields = Fields { place };
        if raw.view_uuid == [0; 16] {
            return Err(fields.malformed("view_uuid", "a UUID", "zeros"));
        }
        let presented_bytes = fields.within(
            "presented_bytes",
            raw.presented_bytes.get(),
            0,
            limits::BYTES_MAX,
        )?;
        let name = bounds.blob(fields, "name", raw.name.get())?;
        check_blob_kind(fields, "name", name, BlobKind::Name, blobs)?;
        let manifest = bounds.optional_blob(fields, "manifest", raw.manifest.get())?;
        if let Some(manifest) = manifest {
            check_blob_kind(fields, "manifest", manifest, BlobKind::Manifest, blobs)?;
        }
        let extents = Table::parse(
            fields,
            &raw.extents,
            TableKind::Extents,
            index,
            limits::EXTENTS_MAX,
            &bounds.table,
        )?;
        // Each extent presents at least a byte.
        let extents_max = presented_bytes;
        fields.within(
            "entry_count of extents",
            extents.entry_count(),
            u64::from(presented_bytes > 0),
            extents_max,
        )?;
        let lossy = fields.within("flags", raw.flags.get(), 0, FLAG_LOSSY)? == FLAG_LOSSY;
        if lossy && manifest.is_none() {
            return Err(fields.malformed("manifest", "a blob index, for a lossy view", "none"));
        }
        fields.zero("reserved bytes 76 to 127", &raw.reserved_76)?;
        Ok(View {
            view_uuid: raw.view_uuid,
            presented_bytes,
            name,
            manifest,
            extents,
            lossy,
        })
    }

    /// The entry as it is stored.
    #[must_use]
    pub fn to_raw(&self) -> RawView {
        RawView {
            view_uuid: self.view_uuid,
            presented_bytes: self.presented_bytes.into(),
            name: self.name.0.into(),
            manifest: self.manifest.map_or(NONE, |blob| blob.0).into(),
            extents: self.extents.to_raw(),
            flags: (if self.lossy { FLAG_LOSSY } else { 0 }).into(),
            reserved_76: [0; 52],
        }
    }
}

/// A blob that is referred to must be of the kind that the reference calls for.
pub(crate) fn check_blob_kind(
    fields: Fields,
    field: &'static str,
    index: BlobIndex,
    kind: BlobKind,
    blobs: &[Blob],
) -> Result<(), VolumeError> {
    let found = usize::try_from(index.0).ok().and_then(|at| blobs.get(at));
    match found {
        Some(blob) if blob.kind == kind => Ok(()),
        Some(blob) => Err(fields.malformed(
            field,
            format_args!("a blob of kind {}", kind.code()),
            format_args!("blob {}, of kind {}", index.0, blob.kind.code()),
        )),
        None => Err(fields.malformed(field, "a blob index", index.0)),
    }
}

fn parse_element(fields: Fields, code: u8) -> Result<ElementType, VolumeError> {
    ElementType::from_code(code)
        .ok_or_else(|| fields.unsupported("element_type", code, "codes 1 to 12"))
}

fn parse_digest(fields: Fields, kind: u16, digest: &[u8; 32]) -> Result<Digest, VolumeError> {
    match kind {
        0 => {
            fields.zero("digest of kind none", digest)?;
            Ok(None)
        }
        1 => Ok(Some(*digest)),
        other => Err(fields.unsupported("digest_kind", other, "0 (none), 1 (SHA-256)")),
    }
}

fn digest_kind(digest: &Digest) -> u16 {
    u16::from(digest.is_some())
}
