//! An open volume: its directory, in memory and immutable. Tables that grow with the data stay on the store.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use transforms::{ElementType, TableKind as ChainTableKind, ViewChain};

use crate::VolumeError;
use crate::checksum::crc32c;
use crate::error::{Item, Place};
use crate::format::superblock::SLOT_OFFSETS;
use crate::format::{
    Blob, BlobIndex, ChainIndex, ChainUse, Source, SourceId, Stream, StreamIndex, Superblock, View,
    ViewIndex,
};
use crate::identity::{Uuid, namespace_uuid, sha256};
use crate::locator::Locator;

/// One view of an open volume. Cheap to clone, immutable, shared between threads.
#[derive(Debug, Clone)]
pub struct Volume {
    directory: Arc<Directory>,
    view: ViewIndex,
}

/// What an open volume holds in memory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) superblock: Superblock,
    pub(crate) sources: Vec<Source>,
    pub(crate) chains: Vec<ChainUse>,
    /// The blobs of chains' tables.
    pub(crate) chain_tables: HashMap<(ChainIndex, ChainTableKind), BlobIndex>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) blobs: Vec<Blob>,
    pub(crate) views: Vec<View>,
    /// Locators and names.
    pub(crate) texts: HashMap<BlobIndex, Vec<u8>>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) copies: Vec<SuperblockCopy>,
    /// Distinguishes open volumes in caches.
    pub(crate) id: VolumeId,
}

/// Whose frames a cache has: an open volume, or whoever else keeps stored bytes there. Never used again in the life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VolumeId(u64);

impl VolumeId {
    /// One that nobody has had.
    #[must_use]
    pub fn next() -> VolumeId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        VolumeId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Damage that does not keep the volume from being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub why: String,
}

/// What was found at one of the places that hold superblocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuperblockCopy {
    /// Where.
    pub place: Place,
    /// What.
    pub state: CopyState,
}

/// What a place for a superblock holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// A whole superblock.
    Whole,
    /// Zeros.
    Empty,
    /// A superblock that is damaged.
    Damaged,
    /// Something else.
    Foreign,
}

impl fmt::Display for CopyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CopyState::Whole => "whole",
            CopyState::Empty => "empty",
            CopyState::Damaged => "damaged",
            CopyState::Foreign => "no superblock",
        })
    }
}

impl Volume {
    /// The volume with its first view.
    pub(crate) fn new(directory: Directory) -> Volume {
        Volume {
            directory: Arc::new(directory),
            view: ViewIndex(0),
        }
    }

    /// The same volume, with another view.
    ///
    /// # Errors
    /// [`VolumeError::NoView`].
    pub fn with_view(&self, view: ViewIndex) -> Result<Volume, VolumeError> {
        if (view.0 as usize) < self.directory.views.len() {
            return Ok(Volume {
                directory: self.directory.clone(),
                view,
            });
        }
        Err(self.no_view(format!("{}", view.0)))
    }

    /// The same volume, with the view of this name.
    ///
    /// # Errors
    /// [`VolumeError::NoView`].
    pub fn with_view_named(&self, name: &str) -> Result<Volume, VolumeError> {
        let mut views = self.view_indexes();
        let found = views.find(|view| self.view_name(*view) == name);
        match found {
            Some(view) => self.with_view(view),
            None => Err(self.no_view(format!("{name:?}"))),
        }
    }

    fn no_view(&self, asked: String) -> VolumeError {
        let names: Vec<_> = self
            .view_indexes()
            .map(|view| format!("{:?}", self.view_name(view)))
            .collect();
        VolumeError::NoView {
            asked,
            known: names.join(", "),
        }
    }

    /// The view's entry.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.directory.views[self.view.0 as usize]
    }

    /// Which view it is.
    #[must_use]
    pub fn view_index(&self) -> ViewIndex {
        self.view
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.view_name(self.view)
    }

    /// The views of the volume.
    #[must_use]
    pub fn views(&self) -> &[View] {
        &self.directory.views
    }

    /// Name of any view of the volume.
    #[must_use]
    pub fn view_name(&self, view: ViewIndex) -> &str {
        let name = self.directory.views.get(view.0 as usize).map(|v| v.name);
        name.map_or("", |name| self.text(name))
    }

    fn view_indexes(&self) -> impl Iterator<Item = ViewIndex> {
        (0..).map(ViewIndex).take(self.directory.views.len())
    }

    /// Bytes that the view presents, exactly.
    #[must_use]
    pub fn presented_bytes(&self) -> u64 {
        self.view().presented_bytes
    }

    /// Logical block size.
    #[must_use]
    pub fn lba_bytes(&self) -> u32 {
        self.directory.superblock.lba_bytes
    }

    /// Logical blocks of the view; the last one may be filled up with zeros.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        self.presented_bytes().div_ceil(u64::from(self.lba_bytes()))
    }

    /// Refuses to be served at another block size than the volume was made for.
    ///
    /// # Errors
    /// [`VolumeError::LbaBytes`].
    pub fn require_lba_bytes(&self, asked: u32) -> Result<(), VolumeError> {
        match asked == self.lba_bytes() {
            true => Ok(()),
            false => Err(VolumeError::LbaBytes {
                volume: self.lba_bytes(),
                asked,
            }),
        }
    }

    /// UUID and NGUID of the namespace that presents this view.
    #[must_use]
    pub fn namespace_uuid(&self) -> Uuid {
        let view = self.view();
        namespace_uuid(&self.volume_uuid(), &view.view_uuid, &view.revision_uuid)
    }

    /// What the superblock says: UUID, generation, size, features, writer.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.directory.superblock
    }

    /// Where stored bytes live; index = [`SourceId`].
    #[must_use]
    pub fn sources(&self) -> &[Source] {
        &self.directory.sources
    }

    /// One source.
    #[must_use]
    pub fn source(&self, source: SourceId) -> Option<&Source> {
        self.directory.sources.get(source.0 as usize)
    }

    /// Path or URL of an external source.
    #[must_use]
    pub fn locator(&self, source: SourceId) -> Option<Locator<'_>> {
        let text = self.directory.texts.get(&self.source(source)?.locator?)?;
        Locator::parse(text)
    }

    /// Stored encodings; index = [`StreamIndex`].
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.directory.streams
    }

    /// One stream.
    #[must_use]
    pub fn stream(&self, stream: StreamIndex) -> Option<&Stream> {
        self.directory.streams.get(stream.0 as usize)
    }

    /// Stored and view chains; index = [`ChainIndex`].
    #[must_use]
    pub fn chains(&self) -> &[ChainUse] {
        &self.directory.chains
    }

    /// The blob that is this table of a chain, where it has one.
    #[must_use]
    pub fn table_blob(&self, chain: ChainIndex, kind: ChainTableKind) -> Option<BlobIndex> {
        self.directory.chain_tables.get(&(chain, kind)).copied()
    }

    /// A view chain for streams of this element type.
    pub(crate) fn view_chain(&self, chain: ChainIndex, element: ElementType) -> Option<&ViewChain> {
        match self.directory.chains.get(chain.0 as usize) {
            Some(ChainUse::View(source, view)) if *source == element => Some(view),
            _ => None,
        }
    }

    /// Bytes of any length; index = [`BlobIndex`].
    #[must_use]
    pub fn blobs(&self) -> &[Blob] {
        &self.directory.blobs
    }

    /// Checks bytes that were read from where a blob lies: CRC and SHA-256.
    ///
    /// # Errors
    /// [`VolumeError::Checksum`], [`VolumeError::Digest`], [`VolumeError::Usage`] for no such blob or another length.
    pub fn check_blob(&self, index: BlobIndex, bytes: &[u8]) -> Result<(), VolumeError> {
        let blob = self.directory.blobs.get(index.0 as usize);
        let blob = blob.ok_or(VolumeError::Usage("no blob has this index"))?;
        check_blob(index, blob, bytes)
    }

    /// Text of a name, which was seen to be text at open.
    fn text(&self, blob: BlobIndex) -> &str {
        let bytes = self.directory.texts.get(&blob);
        bytes.map_or("", |bytes| std::str::from_utf8(bytes).unwrap_or(""))
    }

    /// Damage met at open that does not keep the volume from being read.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.directory.notices
    }

    /// What the slots and the tail held at open, in this order.
    #[must_use]
    pub fn superblock_copies(&self) -> &[SuperblockCopy] {
        &self.directory.copies
    }

    /// Whether both slots are empty, as in an object that cannot be written at its beginning again. A file that lost both looks the same: it is no notice.
    #[must_use]
    pub fn has_tail_alone(&self) -> bool {
        let mut slots = self.directory.copies.iter().take(SLOT_OFFSETS.len());
        slots.all(|copy| copy.state == CopyState::Empty)
    }

    /// Its name in caches.
    #[must_use]
    pub fn id(&self) -> VolumeId {
        self.directory.id
    }

    pub(crate) fn volume_uuid(&self) -> Uuid {
        self.directory.superblock.volume_uuid
    }
}

pub(crate) fn blob_place(index: BlobIndex, blob: &Blob) -> Place {
    Place {
        item: Item::Blob(index.0, blob.kind),
        source: SourceId::OWN,
        offset: blob.offset,
    }
}

pub(crate) fn check_blob(index: BlobIndex, blob: &Blob, bytes: &[u8]) -> Result<(), VolumeError> {
    check_blob_crc(index, blob, bytes)?;
    match sha256(bytes) == blob.sha256 {
        true => Ok(()),
        false => Err(VolumeError::Digest {
            place: blob_place(index, blob),
        }),
    }
}

pub(crate) fn check_blob_crc(
    index: BlobIndex,
    blob: &Blob,
    bytes: &[u8],
) -> Result<(), VolumeError> {
    if bytes.len() as u64 != blob.bytes {
        return Err(VolumeError::Usage("the blob has another length"));
    }
    let found = crc32c(bytes);
    match found == blob.crc {
        true => Ok(()),
        false => Err(VolumeError::Checksum {
            place: blob_place(index, blob),
            expected: blob.crc,
            found,
        }),
    }
}
