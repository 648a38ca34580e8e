//! The units that an operation works on at a time, and the fetches it waits for.

use std::ops::Range;

use transforms::Decoder;

use crate::VolumeError;
use crate::fetch::{Fetch, FetchId, Placement};
use crate::format::{SourceId, StreamIndex, Table};
use crate::limits::READ_UNITS_MAX;

/// The part of one extent that lies in one frame, or in one run of granules.
#[derive(Debug)]
pub(super) struct Unit {
    /// First presented byte of the view.
    pub(super) at: u64,
    /// Presented bytes, counted from the start of the frame; from the start of the stream when it has no frames.
    pub(super) presented: Range<u64>,
    pub(super) stream: StreamIndex,
    pub(super) decoder: Decoder,
    pub(super) body: Body,
}

impl Unit {
    pub(super) fn len(&self) -> u64 {
        self.presented.end - self.presented.start
    }
}

/// What a unit is read from.
#[derive(Debug)]
pub(super) enum Body {
    /// Whole granules of an unframed stream; the last one may be short.
    Granules {
        /// First granule, and the one after the last.
        granules: Range<u64>,
        /// Stored bytes from the stream's start.
        stored: Range<u64>,
        /// Where the checksum of the first one is in the window; `None` for a stream without.
        checksums: Option<usize>,
        /// Granules before this one have their checksum.
        resolved: u64,
        /// Whether the bytes are wanted in the destination itself.
        direct: bool,
    },
    /// A frame.
    Frame {
        frame: u64,
        packed_bytes: u64,
        /// Stored bytes from the stream's start, and their CRC, once the table was seen.
        stored: Option<(Range<u64>, u32)>,
    },
}

/// A fetch, from when it is wanted until the window ends.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) fetch: Fetch,
    pub(super) wanted: Wanted,
    is_answered: bool,
}

/// What a fetch is for.
#[derive(Debug, Clone)]
pub(super) enum Wanted {
    /// A block of a table, and the keys it must cover.
    Block {
        table: Table,
        level: u8,
        block: u64,
        keys: Range<u64>,
    },
    /// The stored bytes of these units.
    Units(Range<usize>),
    /// A part of the stored bytes of this unit, whose frame is longer than a fetch.
    PartOf(usize),
}

/// Units, their checksums, and the fetches for them.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) units: Vec<Unit>,
    /// Checksums of the units' granules.
    pub(super) checksums: Vec<u32>,
    /// Units before this one have been issued.
    pub(super) issued: usize,
    /// A frame that comes in several fetches, or a run that comes in several pieces.
    pub(super) assembly: Vec<u8>,
    /// Where its first byte is in the source.
    pub(super) assembly_offset: u64,
    /// Bytes of the assembly that are still to come.
    pub(super) assembly_missing: usize,
    pending: Vec<Pending>,
    /// Id of the first pending fetch.
    first_id: u64,
    /// Pending fetches that the driver has taken.
    taken: usize,
    /// Pending fetches that were not answered.
    open: usize,
}

impl Window {
    pub(super) fn new() -> Window {
        Window {
            units: Vec::new(),
            checksums: Vec::new(),
            issued: 0,
            assembly: Vec::new(),
            assembly_offset: 0,
            assembly_missing: 0,
            pending: Vec::new(),
            first_id: 0,
            taken: 0,
            open: 0,
        }
    }

    /// Forgets units and fetches; keeps the memory. Ids go on.
    pub(super) fn reset(&mut self) {
        self.units.clear();
        self.checksums.clear();
        self.issued = 0;
        self.forget_fetches();
    }

    /// Forgets fetches, answered or not.
    pub(super) fn forget_fetches(&mut self) {
        self.first_id += self.pending.len() as u64;
        self.pending.clear();
        self.taken = 0;
        self.open = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.units.len() >= READ_UNITS_MAX
    }

    /// Whether fetches are wanted or under way.
    pub(super) fn is_waiting(&self) -> bool {
        self.open > 0
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.issued == self.units.len() && self.open == 0
    }

    pub(super) fn ask(
        &mut self,
        source: SourceId,
        offset: u64,
        len: u32,
        placement: Placement,
        wanted: Wanted,
    ) {
        let id = FetchId(self.first_id + self.pending.len() as u64);
        self.pending.push(Pending {
            fetch: Fetch {
                id,
                source,
                offset,
                len,
                placement,
            },
            wanted,
            is_answered: false,
        });
        self.open += 1;
    }

    /// Whether the block at `offset` is already on its way.
    pub(super) fn is_asked(&self, offset: u64) -> bool {
        self.pending.iter().any(|pending| {
            let is_block = matches!(pending.wanted, Wanted::Block { .. });
            is_block && !pending.is_answered && pending.fetch.offset == offset
        })
    }

    pub(super) fn next_fetch(&mut self) -> Option<Fetch> {
        let pending = self.pending.get(self.taken)?;
        self.taken += 1;
        Some(pending.fetch)
    }

    /// The index of a fetch that the driver took and did not answer yet; it is answered from now on.
    pub(super) fn taken(&mut self, id: FetchId) -> Result<usize, VolumeError> {
        let index = id.0.checked_sub(self.first_id);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let index = index.filter(|index| *index < self.taken);
        match index.and_then(|index| self.pending.get_mut(index).zip(Some(index))) {
            Some((pending, index)) if !pending.is_answered => {
                pending.is_answered = true;
                self.open -= 1;
                Ok(index)
            }
            _ => Err(VolumeError::UnknownFetch { id: id.0 }),
        }
    }

    pub(super) fn pending(&self, index: usize) -> &Pending {
        &self.pending[index]
    }
}
