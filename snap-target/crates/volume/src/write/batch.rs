//! A batch: consecutive elements of a stream that are read, encoded and written as one piece.

use transforms::{Chain, Scratch, TransformError, ValueRange, codecs};

use super::WriteError;
use crate::checksum::crc32c;
use crate::format::raw::BLOCK_BYTES;

/// Source bytes that a batch aims at: enough to make the hand-over between threads cheap, small enough to stay in the L2 cache.
const SOURCE_BYTES_AIM: u64 = 512 << 10;

/// Elements whose packed form is a whole number of checksum granules, whatever their width: 8 elements of K bits are K bytes, and
/// 65,536 of `q8_0` are 17 granules.
const GRANULE_ELEMENTS: u64 = 16 * BLOCK_BYTES as u64;

/// How a stream is cut.
#[derive(Debug, Clone)]
pub(super) struct Cut {
    pub(super) chain: Chain,
    /// Elements of a frame; `None` for an unframed chain, whose unit of checking is a granule of stored bytes.
    pub(super) frame_elements: Option<u64>,
}

impl Cut {
    /// Elements of every batch but the last: whole frames, or whole granules.
    pub(super) fn batch_elements(&self) -> u64 {
        let unit = self.frame_elements.unwrap_or(GRANULE_ELEMENTS);
        let aim = SOURCE_BYTES_AIM / self.chain.source().bytes() as u64;
        (aim / unit).max(1) * unit
    }

    /// Source bytes of every batch but the last.
    pub(super) fn batch_source_bytes(&self) -> usize {
        usize_of(self.batch_elements() * self.chain.source().bytes() as u64)
    }

    /// Memory of a batch.
    pub(super) fn batch_memory_bytes(&self) -> usize {
        let sources = if self.rounds() { 2 } else { 1 };
        sources * self.batch_source_bytes()
            + usize_of(self.chain.stored_bytes_max(self.batch_elements()))
    }

    /// Whether elements are read back as others than they were.
    pub(super) fn rounds(&self) -> bool {
        self.chain.contract().is_lossy()
    }

    /// Memory that one worker needs beside its batch: the forms between steps and the codec's tables.
    pub(super) fn scratch_bytes_max(&self) -> usize {
        let Some(frame_elements) = self.frame_elements else {
            return 0;
        };
        let packed = usize_of(self.chain.packed_bytes(frame_elements));
        let last = self.chain.steps().last();
        let codec = match last.map(|step| (step.id, step.parameter)) {
            Some((codecs::zstd::ID, level)) => zstd_tables_bytes_max(level, packed),
            // As of a frame that is longer by the dictionary, with which the tables are shared.
            Some((codecs::zstd_dict::ID, level)) => {
                let dictionary = self.chain.dictionary();
                let bytes = dictionary.map_or(0, |it| usize_of(it.stored_bytes()));
                zstd_tables_bytes_max(level, packed.saturating_add(bytes))
            }
            // The planes are a form between steps; the streams grow by doubling.
            Some((codecs::floatsplit::ID, _)) => 2 * packed + LZ4_TABLES_BYTES,
            _ => LZ4_TABLES_BYTES,
        };
        // A rank between the two forms may be longer than its element.
        let between = match self.chain.rank_table().is_some() {
            true => usize_of(frame_elements).saturating_mul(3).max(packed),
            false => packed,
        };
        packed + between + codec
    }
}

/// The tables of LZ4 HC, the larger of the two.
const LZ4_TABLES_BYTES: usize = 256 << 10;

/// Hash and chain tables of 32-bit entries. Zstandard sizes them by level and cuts them to twice the window, which is the frame.
/// (`ZSTD_getCParams` and `ZSTD_adjustCParams`; the constants are upper bounds of its tables by level.)
fn zstd_tables_bytes_max(level: u32, frame_bytes: usize) -> usize {
    let by_level_bits = match level {
        0..=4 => 18,
        5..=9 => 21,
        _ => 27,
    };
    let by_frame = frame_bytes.next_power_of_two() * 2;
    let entries = by_frame.min(1 << by_level_bits);
    2 * 4 * entries + (2 << 20)
}

/// A frame, as the frame table will have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameCheck {
    pub(super) stored_bytes: u32,
    pub(super) crc: u32,
}

/// What the tables record of a batch.
#[derive(Debug)]
pub(super) enum Checks {
    Frames(Vec<FrameCheck>),
    Granules(Vec<u32>),
}

/// Reused from batch to batch.
#[derive(Debug)]
pub(super) struct Batch {
    /// Index in the input of the first element.
    pub(super) first_element: u64,
    /// Whole elements.
    pub(super) source: Vec<u8>,
    pub(super) stored: Vec<u8>,
    /// What a reader gets of `source`, where the chain rounds; else empty.
    pub(super) read_back: Vec<u8>,
    pub(super) checks: Checks,
    pub(super) range: Option<ValueRange>,
}

impl Batch {
    pub(super) fn new(cut: &Cut) -> Batch {
        Batch {
            first_element: 0,
            source: Vec::with_capacity(cut.batch_source_bytes()),
            stored: Vec::with_capacity(usize_of(cut.chain.stored_bytes_max(cut.batch_elements()))),
            read_back: Vec::new(),
            checks: match cut.frame_elements {
                Some(_) => Checks::Frames(Vec::new()),
                None => Checks::Granules(Vec::new()),
            },
            range: None,
        }
    }

    /// Encodes `source` into `stored` and records its checks and range.
    pub(super) fn encode(&mut self, cut: &Cut, scratch: &mut Scratch) -> Result<(), WriteError> {
        self.stored.clear();
        self.range = None;
        let element_bytes = cut.chain.source().bytes();
        if cut.rounds() {
            self.read_back.resize(self.source.len(), 0);
            cut.chain
                .read_back_at(self.first_element, &self.source, &mut self.read_back)
                .map_err(|error| at_element(error, self.first_element, element_bytes))?;
        }
        let unit_elements = cut.frame_elements.unwrap_or_else(|| cut.batch_elements());
        let unit_bytes = usize_of(unit_elements) * element_bytes;
        match &mut self.checks {
            Checks::Frames(frames) => frames.clear(),
            Checks::Granules(granules) => granules.clear(),
        }
        let mut first_element = self.first_element;
        for source in self.source.chunks(unit_bytes) {
            let elements = (source.len() / element_bytes) as u64;
            let start = self.stored.len();
            self.stored
                .resize(start + usize_of(cut.chain.stored_bytes_max(elements)), 0);
            let encoded = cut
                .chain
                .encode_frame_at(first_element, source, scratch, &mut self.stored[start..])
                .map_err(|error| at_element(error, first_element, element_bytes))?;
            self.stored.truncate(start + encoded.stored_bytes);
            let stored = &self.stored[start..];
            match &mut self.checks {
                Checks::Frames(frames) => frames.push(FrameCheck {
                    stored_bytes: u32::try_from(stored.len()).expect("a frame is at most 4 MiB"),
                    crc: crc32c(stored),
                }),
                Checks::Granules(granules) => {
                    granules.extend(stored.chunks(BLOCK_BYTES).map(crc32c));
                }
            }
            self.range = union(self.range, encoded.range);
            first_element += elements;
        }
        Ok(())
    }
}

/// The smallest range that holds both.
pub(super) fn union(one: Option<ValueRange>, other: Option<ValueRange>) -> Option<ValueRange> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.union(&other)),
        (one, other) => one.or(other),
    }
}

/// Turns an index in a frame into a place in the input.
fn at_element(error: TransformError, first_element: u64, element_bytes: usize) -> WriteError {
    let (element, error) = match error {
        TransformError::OutOfRange {
            index,
            value,
            target,
        } => {
            let index = first_element + index;
            (
                index,
                TransformError::OutOfRange {
                    index,
                    value,
                    target,
                },
            )
        }
        TransformError::Unscalable { index, bits } => {
            let index = first_element + index;
            (index, TransformError::Unscalable { index, bits })
        }
        TransformError::BeyondScale { index, bits } => {
            let index = first_element + index;
            (index, TransformError::BeyondScale { index, bits })
        }
        other => (first_element, other),
    };
    WriteError::Encode {
        element,
        byte: element * element_bytes as u64,
        error,
    }
}

/// Sizes of memory that was bounded before: they fit.
fn usize_of(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a size of memory")
}
