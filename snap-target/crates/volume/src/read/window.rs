//! The units that an operation works on at a time, and the fetches it waits for.

use std::ops::Range;

use transforms::Decoder;

use crate::VolumeError;
use crate::fetch::{Fetch, FetchId, FrameWant, FrameWantId, Placement, Want};
use crate::format::{SourceId, StreamIndex, Table};
use crate::frame::{FrameId, StoredFrame};
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
        id: FrameId,
        packed_bytes: u64,
        /// Where its stored bytes are, once the table was seen.
        stored: Option<StoredFrame>,
    },
}

/// A fetch, from when it is wanted until the window ends.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) fetch: Fetch,
    pub(super) wanted: Wanted,
    /// Frames that were asked for one by one and have not come, by unit from the first one on; see [`Window::next_want`].
    frames_open: FrameSet,
    is_answered: bool,
}

/// Units of one fetch: a window has no more.
type FrameSet = u128;

const _: () = assert!(READ_UNITS_MAX <= FrameSet::BITS as usize);

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
    PartOf { unit: usize, part: usize },
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
    /// Units of the next one whose frames it has taken.
    taken_units: usize,
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
            taken_units: 0,
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
        self.taken_units = 0;
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
            frames_open: 0,
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

    /// As [`Window::next_fetch`], but frames are asked for one by one, neighbours one after the other.
    pub(super) fn next_want(&mut self) -> Option<Want> {
        loop {
            let pending = self.pending.get_mut(self.taken)?;
            let (units, is_rest) = match &pending.wanted {
                Wanted::Block { .. } => (0..0, false),
                Wanted::Units(units) => (units.clone(), false),
                Wanted::PartOf { unit, part } => (*unit..*unit + 1, *part > 0),
            };
            let index = units.start + self.taken_units;
            let frame = self.units.get(index).and_then(|unit| match &unit.body {
                Body::Frame { stored, .. } if units.contains(&index) => *stored,
                _ => None,
            });
            let Some(frame) = frame else {
                return self.next_fetch().map(Want::Fetch);
            };
            if is_rest {
                // The frame was asked for with its first part.
                pending.is_answered = true;
                self.open -= 1;
                self.taken += 1;
                continue;
            }
            let id = FrameWantId {
                fetch: pending.fetch.id,
                // At most READ_UNITS_MAX.
                unit: u32::try_from(index).unwrap_or(u32::MAX),
            };
            pending.frames_open |= 1 << self.taken_units;
            self.taken_units += 1;
            if index + 1 == units.end {
                self.taken += 1;
                self.taken_units = 0;
            }
            return Some(Want::Frame(FrameWant { id, frame }));
        }
    }

    /// Notes that a wanted frame has come: not one that was not asked for, and none twice.
    pub(super) fn taken_frame(&mut self, id: FrameWantId) -> Result<(), VolumeError> {
        let unknown = VolumeError::UnknownFetch { id: id.fetch.0 };
        let index = id.fetch.0.checked_sub(self.first_id);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let Some((index, pending)) =
            index.and_then(|index| Some((index, self.pending.get_mut(index)?)))
        else {
            return Err(unknown);
        };
        let (first, count) = match &pending.wanted {
            Wanted::Block { .. } => return Err(unknown),
            Wanted::Units(units) => (units.start, units.len()),
            Wanted::PartOf { unit, .. } => (*unit, 1),
        };
        let at = (id.unit as usize).checked_sub(first);
        let Some(bit) = at.filter(|at| *at < count).map(|at| 1 << at) else {
            return Err(unknown);
        };
        if pending.frames_open & bit == 0 {
            return Err(unknown);
        }
        pending.frames_open &= !bit;
        let is_asked = index < self.taken;
        if is_asked && pending.frames_open == 0 {
            pending.is_answered = true;
            self.open -= 1;
        }
        Ok(())
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
