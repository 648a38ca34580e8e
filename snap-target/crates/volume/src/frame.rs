//! A stored frame: what its table says of it, and the way from its stored bytes to its packed ones.
//!
//! Undoing a frame is a pure function of its stored bytes, its chain and its lengths, so that it can run on any thread. The packed bytes
//! of a frame are shared ([`Frame`](crate::Frame)); who owns them, and how many may be there, is the [`Cache`](crate::Cache)'s business.

use std::ops::Range;

use transforms::{Chain, ElementType, Packing, Scratch};

use crate::VolumeError;
use crate::error::Place;
use crate::format::{SourceId, StreamIndex};
use crate::pieces::Pieces;
use crate::volume::{Volume, VolumeId};

/// What undoing block steps costs, in picoseconds for a packed byte: the table "Codecs" of docs/transforms.md, less the expansion
/// (u16, 12.5 GB/s of the u32 side). They are estimates, to tell microseconds from milliseconds.
mod cost {
    /// A frame that was stored as it is: a copy.
    pub(super) const COPY_PS: u64 = 100;
    /// `shuffle`, as measured in the cache.
    pub(super) const SHUFFLE_PS: u64 = 100;
    /// `lz4` and `lz4hc`: 64 KiB of `u16+lz4` at 2.9 GB/s are 22.6 us, 5.2 of them the expansion.
    pub(super) const LZ4_PS: u64 = 550;
    /// `rank`, with AVX2, less the expansion.
    pub(super) const RANK_PS: u64 = 500;
    /// `floatsplit` of all but f16: 64 KiB at 2.7 GB/s and more.
    pub(super) const FLOATSPLIT_PS: u64 = 400;
    /// Of f16: 1.5 to 1.9 GB/s.
    pub(super) const FLOATSPLIT_F16_PS: u64 = 600;
    /// What each coded plane of a frame takes before its first byte, in nanoseconds: the table of its code. Which planes are coded only the frame knows;
    /// all may be.
    pub(super) const FLOATSPLIT_PLANE_NS: u64 = 4_000;
    /// `zstd`, and what is not known here: 64 KiB of `u16+zstd:1` at 1.2 GB/s are 54.6 us, 5.2 of them the expansion.
    pub(super) const ZSTD_PS: u64 = 1_550;
}

/// Which frame, in the life of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameId {
    pub(crate) volume: VolumeId,
    pub(crate) content: Content,
    pub(crate) frame: u64,
}

/// What a frame is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Content {
    /// A framed stream; the cache has the packed bytes.
    Stream(StreamIndex),
    /// A source as it is stored, cut into pieces of [`PLAIN_FRAME_BYTES`].
    Plain(SourceId),
}

/// Stored bytes of a plain frame. 16 neighbours, which have one home, are the largest transfer that every store takes.
pub const PLAIN_FRAME_BYTES: u32 = 64 << 10;

impl FrameId {
    /// Its stream; none of a plain frame.
    #[must_use]
    pub fn stream(self) -> Option<StreamIndex> {
        match self.content {
            Content::Stream(stream) => Some(stream),
            Content::Plain(_) => None,
        }
    }

    /// Whether it is stored bytes as they are.
    #[must_use]
    pub fn is_plain(self) -> bool {
        matches!(self.content, Content::Plain(_))
    }

    /// A number that `group_frames` neighbours share and that is spread evenly otherwise: the owner of a frame is chosen by it.
    #[must_use]
    pub fn group_hash(self, group_frames: u64) -> u64 {
        let group = self.frame / group_frames.max(1);
        let content = match self.content {
            Content::Stream(stream) => u64::from(stream.0),
            Content::Plain(source) => u64::from(source.0) | 1 << 32,
        };
        mixed(mixed(mixed(self.volume.number()) ^ content) ^ group)
    }
}

/// SplitMix64's finalizer.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A frame and where its stored bytes are, from its entry in the frame table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredFrame {
    /// Which frame.
    pub id: FrameId,
    /// Which store.
    pub source: SourceId,
    /// First stored byte there.
    pub offset: u64,
    /// Stored bytes: at least 1.
    pub stored_bytes: u32,
    /// Bytes after its block steps are undone: at most [`FRAME_PACKED_BYTES_MAX`](crate::limits::FRAME_PACKED_BYTES_MAX).
    pub packed_bytes: u32,
    pub(crate) crc: u32,
    /// Where the store ends.
    pub(crate) source_end: u64,
}

impl StoredFrame {
    /// The stored bytes `number * PLAIN_FRAME_BYTES` and on of a source, as they are: less at the end of the source, at `source_end`. None where that
    /// is before them. Nothing is checked and nothing undone: who reads them does that.
    #[must_use]
    pub fn plain(
        of: VolumeId,
        source: SourceId,
        number: u64,
        source_end: u64,
    ) -> Option<StoredFrame> {
        let offset = number.checked_mul(u64::from(PLAIN_FRAME_BYTES))?;
        let left = source_end.checked_sub(offset).filter(|left| *left > 0)?;
        let bytes =
            u32::try_from(left).map_or(PLAIN_FRAME_BYTES, |left| left.min(PLAIN_FRAME_BYTES));
        Some(StoredFrame {
            id: FrameId {
                volume: of,
                content: Content::Plain(source),
                frame: number,
            },
            source,
            offset,
            stored_bytes: bytes,
            packed_bytes: bytes,
            crc: 0,
            source_end,
        })
    }

    /// Copies a plain frame's bytes out of `pieces`, whose first byte is byte `offset` of the source.
    ///
    /// # Errors
    /// [`VolumeError::Usage`] for pieces that do not hold the frame.
    pub fn copy_plain(
        &self,
        pieces: &[&[u8]],
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), VolumeError> {
        Pieces { pieces, offset }.copy_range(self.stored(), to)
    }

    /// The bytes of the source to fetch for it: its stored bytes rounded out to 4096, but not beyond the source's end.
    #[must_use]
    pub fn blocks(&self) -> Range<u64> {
        crate::read::rounded_out(self.stored(), self.source_end)
    }

    /// The bytes of the source that it is stored in.
    pub(crate) fn stored(&self) -> Range<u64> {
        // Offsets were checked against the source, which ends below 2^56.
        self.offset..self.offset + u64::from(self.stored_bytes)
    }

    /// About how long undoing it takes, in nanoseconds.
    #[must_use]
    pub fn decode_ns(&self, volume: &Volume) -> u64 {
        let bytes = u64::from(self.packed_bytes);
        let is_copy = self.stored_bytes == self.packed_bytes;
        match self.chain(volume).filter(|_| !is_copy) {
            None => bytes * cost::COPY_PS / 1000,
            Some(chain) => (chain.steps().iter())
                .map(|step| step_ns(step.id.0, chain.packing(), bytes))
                .sum(),
        }
    }

    /// Checks the stored bytes, which lie in `pieces` whose first byte is byte `offset` of the source, and undoes the block steps into
    /// `packed`, which is [`packed_bytes`](Self::packed_bytes) long. Stored bytes that lie in several pieces are gathered in `assembly`; returned
    /// is how many were.
    ///
    /// # Errors
    /// [`VolumeError::Checksum`], checked first; [`VolumeError::Transform`]; [`VolumeError::Usage`] for pieces that do not hold the frame. What
    /// `packed` holds then is unspecified.
    pub fn decode(
        &self,
        volume: &Volume,
        pieces: &[&[u8]],
        offset: u64,
        scratch: &mut Scratch,
        assembly: &mut Vec<u8>,
        packed: &mut [u8],
    ) -> Result<u64, VolumeError> {
        let lost = VolumeError::Usage("the frame's stream is gone");
        let (place, chain) = self.place(volume).zip(self.chain(volume)).ok_or(lost)?;
        let pieces = Pieces { pieces, offset };
        let found = pieces.crc32c(self.stored())?;
        if found != self.crc {
            return Err(VolumeError::Checksum {
                place,
                expected: self.crc,
                found,
            });
        }
        let (bytes, copied) = pieces.contiguous(self.stored(), assembly)?;
        chain
            .unblock(bytes, scratch, packed)
            .map_err(|error| VolumeError::Transform { place, error })?;
        Ok(copied)
    }

    /// Copies the stored bytes out of `pieces`, whose first byte is byte `offset` of the source, so that they can go to another thread.
    ///
    /// # Errors
    /// [`VolumeError::Usage`] for pieces that do not hold the frame.
    pub fn copy_stored(
        &self,
        pieces: &[&[u8]],
        offset: u64,
        to: &mut Vec<u8>,
    ) -> Result<(), VolumeError> {
        Pieces { pieces, offset }.gather(self.stored(), to)
    }

    /// Where it is, for errors.
    pub(crate) fn place(&self, volume: &Volume) -> Option<Place> {
        let index = self.id.stream()?;
        let stream = volume.stream(index)?;
        let offset = self.offset.saturating_sub(stream.stored_offset);
        Some(stream.frame_place(index, self.id.frame, offset))
    }

    fn chain<'v>(&self, volume: &'v Volume) -> Option<&'v Chain> {
        Some(&volume.stream(self.id.stream()?)?.chain)
    }
}

/// The cost of a step by its number in docs/format.md; element steps are undone when a read expands the frame.
fn step_ns(id: u16, packing: Packing, bytes: u64) -> u64 {
    let ps = match id {
        ..0x0100 => 0,
        0x0100 => cost::SHUFFLE_PS,
        0x0101 | 0x0102 => cost::LZ4_PS,
        0x0104 if packing == Packing::Whole(ElementType::F16) => cost::FLOATSPLIT_F16_PS,
        0x0104 => cost::FLOATSPLIT_PS,
        0x0200 => cost::RANK_PS,
        _ => cost::ZSTD_PS,
    };
    let planes = match id {
        0x0104 => u64::from(packing.bits() / 8),
        _ => 0,
    };
    bytes * ps / 1000 + planes * cost::FLOATSPLIT_PLANE_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_floatsplit_costs_its_tables_however_short_it_is() {
        let ns = |element, bytes| step_ns(0x0104, Packing::Whole(element), bytes);
        assert_eq!(ns(ElementType::Bf16, 65_536), 26_214 + 2 * 4_000);
        assert_eq!(ns(ElementType::F16, 65_536), 39_321 + 2 * 4_000);
        assert_eq!(ns(ElementType::F32, 4_096), 1_638 + 4 * 4_000);
        let u16 = Packing::Whole(ElementType::U16);
        assert_eq!(step_ns(0x0200, u16, 65_536), 32_768);
        assert_eq!(step_ns(0x0001, u16, 65_536), 0);
    }

    #[test]
    fn neighbours_share_their_hash_and_groups_are_spread_evenly() {
        let id = |stream, frame| FrameId {
            volume: VolumeId::next(),
            content: Content::Stream(StreamIndex(stream)),
            frame,
        };
        let volume = id(0, 0).volume;
        let hash = |stream, frame| {
            FrameId {
                volume,
                ..id(stream, frame)
            }
            .group_hash(16)
        };
        assert!((0..16).all(|frame| hash(3, frame) == hash(3, 0)));
        assert_ne!(hash(3, 16), hash(3, 15));
        for reactors in 2..=7 {
            let groups = (0..10).flat_map(|stream| (0..1000).map(move |group| (stream, group)));
            let homes: Vec<_> = groups
                .map(|(stream, group)| hash(stream, group * 16) % reactors)
                .collect();
            let fair = 10_000 / reactors;
            for reactor in 0..reactors {
                let share = homes.iter().filter(|home| **home == reactor).count() as u64;
                // Five standard deviations of a fair choice are less than 10 %.
                let off = share.abs_diff(fair);
                assert!(off < fair / 5, "{share} of {fair}, {reactor} of {reactors}");
            }
        }
    }
}
