//! Opening a volume without doing I/O: superblocks, then the directory, then locators and names, then the tables of chains.
//!
//! ```text
//! let mut opening = Opening::new(store_bytes);
//! while let Some(fetch) = opening.next_fetch() {
//!     opening.fetched(fetch.id, &read(fetch.offset, fetch.len))?;
//! }
//! let volume = opening.finish()?;
//! ```
//! What is read is bounded by the directory (docs/format.md, "Limits"), and does not grow with the data: extents, frames and checksums
//! stay on the store.

mod chain_tables;

use std::collections::{HashMap, HashSet, VecDeque};

use zerocopy::FromBytes;

use crate::VolumeError;
use crate::error::{Item, Place};
use crate::fetch::{Fetch, FetchId, Placement};
use crate::format::field::Fields;
use crate::format::is_view_name;
use crate::format::raw::{
    BLOCK_BYTES, BLOCK_BYTES_U64, RawBlob, RawChain, RawSource, RawStream, RawSuperblock, RawView,
};
use crate::format::superblock::{SLOT_OFFSETS, TAIL_SLOT};
use crate::format::table::TableBounds;
use crate::format::{
    Blob, BlobIndex, BlobKind, Bounds, Candidate, ChainIndex, ChainUse, Source, SourceId,
    SourceKind, Stream, Superblock, Table, TableKind, View, check_blob_kind,
};
use crate::identity::uuid_text;
use crate::limits::{self, FETCH_BYTES_MAX, TEXTS_BYTES_MAX};
use crate::locator::Locator;
use crate::volume::{
    CopyState, Directory, Notice, SuperblockCopy, Volume, VolumeId, blob_place, check_blob_crc,
};

/// A volume being opened.
#[derive(Debug)]
pub struct Opening {
    store_bytes: u64,
    phase: Phase,
    /// Fetches that the driver has not taken yet.
    queue: VecDeque<Fetch>,
    /// Fetches that it has taken and not answered.
    taken: Vec<Fetch>,
    next_id: u64,
    failed: bool,
}

#[derive(Debug)]
enum Phase {
    /// Reading the slots.
    Slots { found: Vec<(u64, Candidate)> },
    /// Reading the tail: where the slots say it is, or at the end of the store.
    Tail { found: Vec<(u64, Candidate)> },
    /// Reading directory tables, then texts, then the tables of chains.
    Directory(Box<Loading>),
}

/// A table of chains, and the chains that refer to it.
#[derive(Debug)]
struct WantedTable {
    blob: BlobIndex,
    chains: Vec<ChainIndex>,
}

/// A directory on its way into memory.
#[derive(Debug)]
struct Loading {
    bounds: Bounds,
    /// Tables in the order in which they refer to each other.
    tables: VecDeque<Table>,
    /// Next block of the first of them.
    block: u64,
    /// Text blobs still to be read, sorted by place; each fetch covers a run of them.
    texts: VecDeque<BlobIndex>,
    /// Tables of chains still to be read, and what was read of the first of them.
    chain_tables: VecDeque<WantedTable>,
    chain_table: Vec<u8>,
    /// Of those that were read, by which they are limited.
    chain_tables_bytes: u64,
    directory: Directory,
}

impl Opening {
    /// Begins to open the volume on a store of `store_bytes`.
    #[must_use]
    pub fn new(store_bytes: u64) -> Opening {
        let mut opening = Opening {
            store_bytes,
            phase: Phase::Slots { found: Vec::new() },
            queue: VecDeque::new(),
            taken: Vec::new(),
            next_id: 0,
            failed: false,
        };
        for offset in SLOT_OFFSETS {
            if offset + BLOCK_BYTES_U64 <= store_bytes {
                opening.ask(offset, BLOCK_BYTES_U64);
            }
        }
        opening
    }

    /// The next bytes to read, if any are wanted now. `None` with fetches under way: answer those first.
    pub fn next_fetch(&mut self) -> Option<Fetch> {
        let fetch = self.queue.pop_front()?;
        self.taken.push(fetch);
        Some(fetch)
    }

    /// Hands over the bytes of a fetch.
    ///
    /// # Errors
    /// Whatever is wrong with the volume; it cannot be opened then. [`VolumeError::ShortFetch`] and [`VolumeError::UnknownFetch`] for
    /// the driver's own.
    pub fn fetched(&mut self, id: FetchId, bytes: &[u8]) -> Result<(), VolumeError> {
        let at = self.taken.iter().position(|fetch| fetch.id == id);
        let at = at.ok_or(VolumeError::UnknownFetch { id: id.0 })?;
        let fetch = self.taken.swap_remove(at);
        let outcome = self.take(fetch, bytes);
        if outcome.is_err() {
            self.failed = true;
            self.queue.clear();
        }
        outcome
    }

    /// The open volume, with its first view.
    ///
    /// # Errors
    /// [`VolumeError::NotAVolume`] for a store too small to hold one; [`VolumeError::Usage`] when fetches are wanted or under way, or one
    /// failed.
    pub fn finish(self) -> Result<Volume, VolumeError> {
        if self.failed || !self.queue.is_empty() || !self.taken.is_empty() {
            return Err(VolumeError::Usage(
                "the volume is not open: a fetch failed or is still wanted",
            ));
        }
        match self.phase {
            Phase::Slots { found } | Phase::Tail { found } => {
                Err(not_a_volume(&found, self.store_bytes))
            }
            Phase::Directory(loading) => Ok(Volume::new(loading.directory)),
        }
    }

    fn chosen(&self, found: &[(u64, Candidate)]) -> Result<Phase, VolumeError> {
        Ok(Phase::Directory(Box::new(choose(found, self.store_bytes)?)))
    }

    fn ask(&mut self, offset: u64, bytes: u64) {
        // Callers pass at most FETCH_BYTES_MAX.
        let len = u32::try_from(bytes).unwrap_or(FETCH_BYTES_MAX);
        self.queue.push_back(Fetch {
            id: FetchId(self.next_id),
            source: SourceId::OWN,
            offset,
            len,
            placement: Placement::Staging,
        });
        self.next_id += 1;
    }

    fn take(&mut self, fetch: Fetch, bytes: &[u8]) -> Result<(), VolumeError> {
        if bytes.len() as u64 != u64::from(fetch.len) {
            return Err(VolumeError::ShortFetch {
                source_id: fetch.source,
                offset: fetch.offset,
                expected: u64::from(fetch.len),
                found: bytes.len() as u64,
            });
        }
        match &mut self.phase {
            Phase::Slots { found } => {
                found.push((fetch.offset, Candidate::judge(bytes, fetch.offset)));
                if !self.queue.is_empty() || !self.taken.is_empty() {
                    return Ok(());
                }
                let found = std::mem::take(found);
                match tail_to_read(&found, self.store_bytes) {
                    Some(offset) => {
                        self.phase = Phase::Tail { found };
                        self.ask(offset, BLOCK_BYTES_U64);
                    }
                    None => self.phase = self.chosen(&found)?,
                }
            }
            Phase::Tail { found } => {
                found.push((fetch.offset, Candidate::judge(bytes, fetch.offset)));
                let found = std::mem::take(found);
                self.phase = self.chosen(&found)?;
            }
            Phase::Directory(loading) if !loading.tables.is_empty() => {
                loading.take_blocks(bytes)?
            }
            Phase::Directory(loading) if !loading.texts.is_empty() => {
                loading.take_texts(fetch.offset, bytes)?
            }
            Phase::Directory(loading) => loading.take_chain_table(fetch.offset, bytes)?,
        }
        if let Phase::Directory(loading) = &mut self.phase
            && let Some((offset, bytes)) = loading.wanted()?
        {
            self.ask(offset, bytes);
        }
        Ok(())
    }
}

/// Where the tail is to be looked for: where the slot of the higher generation says, wherever the store ends; without a slot, at the end of
/// the store. None where a slot was read already, or where the store has no such block.
fn tail_to_read(slots: &[(u64, Candidate)], store_bytes: u64) -> Option<u64> {
    let whole = slots.iter().filter_map(|(_, candidate)| match candidate {
        Candidate::Whole(raw) => Some(raw),
        _ => None,
    });
    let newest = whole.max_by_key(|raw| raw.generation.get());
    let end = newest.map_or(store_bytes, |raw| raw.volume_bytes.get());
    let offset = (end / BLOCK_BYTES_U64).checked_sub(1)? * BLOCK_BYTES_U64;
    let is_there = offset
        .checked_add(BLOCK_BYTES_U64)
        .is_some_and(|end| end <= store_bytes);
    (is_there && !SLOT_OFFSETS.contains(&offset)).then_some(offset)
}

/// Chooses among the superblocks found, and begins to load the winner's directory.
fn choose(found: &[(u64, Candidate)], store_bytes: u64) -> Result<Loading, VolumeError> {
    let whole: Vec<RawSuperblock> = found
        .iter()
        .filter_map(|(_, candidate)| match candidate {
            Candidate::Whole(raw) => Some((**raw).clone()),
            _ => None,
        })
        .collect();
    let winner = Superblock::choose(&whole)?;
    let winner = winner.ok_or_else(|| not_a_volume(found, store_bytes))?;
    let superblock = Superblock::parse(winner, store_bytes)?;
    let notices = notices(found, &superblock);
    let copies = copies(found);
    let [sources, streams, chains, blobs, views] = superblock.directory;
    let bounds = Bounds {
        table: TableBounds {
            volume_bytes: superblock.volume_bytes,
            generation: superblock.generation,
        },
        blobs: blobs.entry_count(),
    };
    Ok(Loading {
        bounds,
        tables: VecDeque::from([blobs, sources, chains, streams, views]),
        block: 0,
        texts: VecDeque::new(),
        chain_tables: VecDeque::new(),
        chain_table: Vec::new(),
        chain_tables_bytes: 0,
        directory: Directory {
            superblock,
            sources: Vec::new(),
            chains: Vec::new(),
            chain_tables: HashMap::new(),
            streams: Vec::new(),
            blobs: Vec::new(),
            views: Vec::new(),
            texts: HashMap::new(),
            notices,
            copies,
            id: VolumeId::next(),
        },
    })
}

/// Superblocks that are not what they should be, beside the winner.
fn notices(found: &[(u64, Candidate)], winner: &Superblock) -> Vec<Notice> {
    let mut notices = Vec::new();
    // Who writes a file fills both slots; who streams an object, neither.
    let mut slots = found.iter().filter(|it| SLOT_OFFSETS.contains(&it.0));
    let is_stream = slots.all(|it| matches!(it.1, Candidate::Empty));
    for (offset, candidate) in found {
        let slot = slot_at(*offset);
        let why = match candidate {
            Candidate::Damaged(why) => why.clone(),
            Candidate::Foreign => "it holds something that is no superblock".into(),
            Candidate::Empty if slot == TAIL_SLOT || !is_stream => "it is empty".into(),
            Candidate::Whole(raw) if raw.volume_uuid != winner.volume_uuid => {
                format!("it is of volume {}", uuid_text(&raw.volume_uuid))
            }
            Candidate::Whole(raw) if slot == TAIL_SLOT => {
                if raw.generation.get() == winner.generation {
                    continue;
                }
                format!("it is of generation {}", raw.generation)
            }
            Candidate::Whole(_) | Candidate::Empty => continue,
        };
        notices.push(Notice {
            place: superblock_place(*offset),
            why,
        });
    }
    notices
}

/// What each place held, in the order of the places.
fn copies(found: &[(u64, Candidate)]) -> Vec<SuperblockCopy> {
    let mut copies: Vec<SuperblockCopy> = found
        .iter()
        .map(|(offset, candidate)| SuperblockCopy {
            place: superblock_place(*offset),
            state: match candidate {
                Candidate::Whole(_) => CopyState::Whole,
                Candidate::Empty => CopyState::Empty,
                Candidate::Damaged(_) => CopyState::Damaged,
                Candidate::Foreign => CopyState::Foreign,
            },
        })
        .collect();
    copies.sort_unstable_by_key(|copy| copy.place.offset);
    copies
}

fn slot_at(offset: u64) -> u32 {
    match SLOT_OFFSETS.iter().position(|slot| *slot == offset) {
        Some(slot) => u32::try_from(slot).unwrap_or(TAIL_SLOT),
        None => TAIL_SLOT,
    }
}

fn superblock_place(offset: u64) -> Place {
    Place {
        item: Item::Superblock(slot_at(offset)),
        source: SourceId::OWN,
        offset,
    }
}

fn not_a_volume(found: &[(u64, Candidate)], store_bytes: u64) -> VolumeError {
    let mut parts = Vec::new();
    let mut damaged = false;
    for (offset, candidate) in found {
        let what = match candidate {
            Candidate::Empty => "empty".into(),
            Candidate::Foreign => "no superblock".into(),
            Candidate::Whole(_) => "whole".into(),
            Candidate::Damaged(why) => {
                damaged = true;
                format!("damaged: {why}")
            }
        };
        parts.push(format!("byte {offset}: {what}"));
    }
    match (damaged, parts.is_empty()) {
        (true, _) => VolumeError::SuperblocksDamaged {
            why: parts.join("; "),
        },
        (false, true) => VolumeError::NotAVolume {
            store_bytes,
            why: "it is too small".into(),
        },
        (false, false) => VolumeError::NotAVolume {
            store_bytes,
            why: parts.join("; "),
        },
    }
}

impl Loading {
    /// The next bytes to read; `None` when everything is loaded.
    fn wanted(&mut self) -> Result<Option<(u64, u64)>, VolumeError> {
        while let Some(table) = self.tables.front() {
            let left = table.level_blocks(0) - self.block;
            if left > 0 {
                let blocks = left.min(u64::from(FETCH_BYTES_MAX) / BLOCK_BYTES_U64);
                let offset = table.block_offset(0, self.block);
                return Ok(Some((offset, blocks * BLOCK_BYTES_U64)));
            }
            let kind = table.kind();
            self.tables.pop_front();
            self.block = 0;
            self.table_loaded(kind)?;
        }
        Ok(self.texts_wanted().or_else(|| self.chain_table_wanted()))
    }

    /// Parses blocks of the table that is being read.
    fn take_blocks(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        let Some(table) = self.tables.front().copied() else {
            return Err(VolumeError::Usage("no table is being read"));
        };
        let volume_uuid = self.directory.superblock.volume_uuid;
        for block in bytes.chunks(BLOCK_BYTES) {
            let keys = table.direct_keys(self.block);
            table.check_block(block, 0, self.block, keys.clone(), volume_uuid)?;
            for index in keys {
                let (_, slot) = table.locate(index);
                self.take_entry(&table, index, table.entry(block, slot))?;
            }
            self.block += 1;
        }
        Ok(())
    }

    fn take_entry(&mut self, table: &Table, index: u64, entry: &[u8]) -> Result<(), VolumeError> {
        let place = table.entry_place(index);
        // Directory tables have at most 2^22 entries.
        let index_u32 = u32::try_from(index).unwrap_or(u32::MAX);
        let (directory, bounds) = (&mut self.directory, &self.bounds);
        match table.kind() {
            TableKind::Sources => {
                let raw: &RawSource = entry_of(entry, place)?;
                let source = Source::parse(raw, place, index, bounds)?;
                if let Some(locator) = source.locator {
                    let fields = Fields { place };
                    let kind = BlobKind::Locator;
                    check_blob_kind(fields, "locator", locator, kind, &directory.blobs)?;
                }
                directory.sources.push(source);
            }
            TableKind::Streams => {
                let raw: &RawStream = entry_of(entry, place)?;
                let (sources, chains) = (&directory.sources, &directory.chains);
                let stream = Stream::parse(raw, place, index_u32, bounds, sources, chains)?;
                directory.streams.push(stream);
            }
            TableKind::Chains => {
                let raw: &RawChain = entry_of(entry, place)?;
                let (chain, tables) = ChainUse::parse(raw, place, bounds, &directory.blobs)?;
                directory.chains.push(chain);
                for (kind, blob) in tables {
                    let key = (ChainIndex(index_u32), kind);
                    directory.chain_tables.insert(key, blob);
                }
            }
            TableKind::Blobs => {
                let raw: &RawBlob = entry_of(entry, place)?;
                directory.blobs.push(Blob::parse(raw, place, bounds)?);
            }
            TableKind::Views => {
                let raw: &RawView = entry_of(entry, place)?;
                let view = View::parse(raw, place, index_u32, bounds, &directory.blobs)?;
                directory.views.push(view);
            }
            TableKind::Extents | TableKind::Frames | TableKind::Checksums => {
                return Err(VolumeError::Usage("not a directory table"));
            }
        }
        Ok(())
    }

    /// What must hold of a table as a whole.
    fn table_loaded(&mut self, kind: TableKind) -> Result<(), VolumeError> {
        let fields = Fields {
            place: Place {
                item: Item::Superblock(self.directory.superblock.slot),
                source: SourceId::OWN,
                offset: self.directory.superblock.own_offset(),
            },
        };
        match kind {
            TableKind::Sources if self.directory.sources.is_empty() => {
                Err(fields.malformed("entry_count of sources", "1 and more", 0))
            }
            TableKind::Views if self.directory.views.is_empty() => {
                Err(fields.malformed("entry_count of views", "1 and more", 0))
            }
            TableKind::Views => self.check_view_uuids(),
            TableKind::Blobs => self.plan_texts(fields),
            TableKind::Chains => self.plan_chain_tables(fields),
            _ => Ok(()),
        }
    }

    fn check_view_uuids(&self) -> Result<(), VolumeError> {
        let [.., table] = &self.directory.superblock.directory;
        let mut seen = HashSet::new();
        for (index, view) in (0..).zip(&self.directory.views) {
            if !seen.insert(view.view_uuid) {
                let fields = Fields {
                    place: table.entry_place(index),
                };
                return Err(fields.malformed("view_uuid", "unique", "another view's"));
            }
        }
        Ok(())
    }

    fn plan_texts(&mut self, fields: Fields) -> Result<(), VolumeError> {
        let blobs = &self.directory.blobs;
        let mut texts: Vec<_> = (0u32..)
            .zip(blobs)
            .filter(|(_, blob)| blob.kind.is_text())
            .map(|(index, blob)| (blob.offset, blob.bytes, BlobIndex(index)))
            .collect();
        let total = texts.iter().map(|(_, bytes, _)| bytes).sum();
        fields.within("locators and names together", total, 0, TEXTS_BYTES_MAX)?;
        texts.sort_unstable_by_key(|(offset, bytes, index)| (*offset, *bytes, index.0));
        self.texts = texts.into_iter().map(|(_, _, index)| index).collect();
        Ok(())
    }

    /// The blocks that hold the next texts: as many as lie close together.
    fn texts_wanted(&self) -> Option<(u64, u64)> {
        let first = self.blob(*self.texts.front()?)?;
        let start = first.offset / BLOCK_BYTES_U64 * BLOCK_BYTES_U64;
        let mut end = start;
        for index in &self.texts {
            let blob = self.blob(*index)?;
            let blob_end = (blob.offset + blob.bytes).next_multiple_of(BLOCK_BYTES_U64);
            let near = blob.offset <= end.max(start + BLOCK_BYTES_U64);
            if !near || blob_end.max(end) - start > u64::from(FETCH_BYTES_MAX) {
                break;
            }
            end = end.max(blob_end);
        }
        Some((start, end - start))
    }

    fn blob(&self, index: BlobIndex) -> Option<&Blob> {
        self.directory.blobs.get(index.0 as usize)
    }

    fn take_texts(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        let end = offset + bytes.len() as u64;
        while let Some(index) = self.texts.front().copied() {
            let Some(blob) = self.blob(index) else { break };
            if blob.offset < offset || blob.offset + blob.bytes > end {
                break;
            }
            let range = usize::try_from(blob.offset - offset)
                .ok()
                .zip(usize::try_from(blob.bytes).ok());
            let text = range.and_then(|(at, len)| bytes.get(at..at + len));
            let text = text.ok_or(VolumeError::Usage("a text lies outside its fetch"))?;
            check_blob_crc(index, blob, text)?;
            let fields = Fields {
                place: blob_place(index, blob),
            };
            match blob.kind {
                BlobKind::Locator if Locator::parse(text).is_none() => {
                    let expected = "a path without NUL, or a URL in UTF-8";
                    return Err(fields.malformed("locator", expected, "other bytes"));
                }
                BlobKind::Name if std::str::from_utf8(text).is_err() => {
                    return Err(fields.malformed("text", "UTF-8", "other bytes"));
                }
                _ => {}
            }
            let text = text.to_owned();
            self.directory.texts.insert(index, text);
            self.texts.pop_front();
        }
        match self.texts.is_empty() {
            true => self.check_names(),
            false => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), VolumeError> {
        let [.., table] = &self.directory.superblock.directory;
        let mut seen = HashSet::new();
        for (index, view) in (0..).zip(&self.directory.views) {
            let fields = Fields {
                place: table.entry_place(index),
            };
            let name: &[u8] = self.directory.texts.get(&view.name).map_or(&[], |n| n);
            let bytes = name.len() as u64;
            fields.within("bytes of the name", bytes, 1, limits::VIEW_NAME_BYTES_MAX)?;
            if !is_view_name(name) {
                let expected = "text without control characters and `/`, not `.` or `..`";
                return Err(fields.malformed(
                    "name",
                    expected,
                    format_args!("{:?}", String::from_utf8_lossy(name)),
                ));
            }
            if !seen.insert(name) {
                return Err(fields.malformed(
                    "name",
                    "unique",
                    format_args!("{:?}", String::from_utf8_lossy(name)),
                ));
            }
        }
        Ok(())
    }
}

fn entry_of<E>(entry: &[u8], place: Place) -> Result<&E, VolumeError>
where
    E: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned,
{
    E::ref_from_bytes(entry).map_err(|_| VolumeError::Malformed {
        place,
        field: "entry",
        expected: format!("{} bytes", size_of::<E>()),
        found: format!("{} bytes", entry.len()),
    })
}

/// External sources are opened by the driver, which must find them as they were when they were mapped.
impl Source {
    /// Whether the driver has to open it.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.kind == SourceKind::External
    }
}
