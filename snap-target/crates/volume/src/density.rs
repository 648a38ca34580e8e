//! How much a reader has to touch for 4 KiB of presented bytes (docs/format.md, "Limits"): a small volume must not be able to ask for hours of
//! decoding.

use std::ops::Range;

use crate::VolumeError;
use crate::error::Place;
use crate::format::StreamIndex;
use crate::format::field::Fields;
use crate::format::raw::BLOCK_BYTES_U64;
use crate::limits::{BLOCK_EXTENTS_MAX, BLOCK_FRAMES_MAX};

/// Follows ascending presented bytes, and refuses what crowds too much into one block.
#[derive(Debug, Clone)]
pub(crate) struct Density {
    /// The block that the last extent ended in, and how many touch it.
    extents_block: u64,
    extents: usize,
    /// The block that the last frame ended in, and which touch it.
    frames_block: u64,
    frames: usize,
    seen: [(StreamIndex, u64); BLOCK_FRAMES_MAX],
}

/// More in one block than a volume may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crowded {
    /// The limit, by its name in docs/format.md.
    pub(crate) what: &'static str,
    pub(crate) max: usize,
    /// What a writer can do.
    pub(crate) advice: &'static str,
}

impl Crowded {
    /// As what is wrong with the extent at `place`.
    pub(crate) fn at(self, place: Place) -> VolumeError {
        let expected = format_args!("at most {}", self.max);
        Fields { place }.malformed(self.what, expected, "more")
    }
}

impl Density {
    pub(crate) fn new() -> Density {
        Density {
            extents_block: 0,
            extents: 0,
            frames_block: 0,
            frames: 0,
            seen: [(StreamIndex(0), 0); BLOCK_FRAMES_MAX],
        }
    }

    /// The next extent presents these bytes; not none.
    pub(crate) fn extent(&mut self, presented: Range<u64>) -> Result<(), Crowded> {
        let (first, last) = blocks(&presented);
        if first != self.extents_block {
            self.extents = 0;
        }
        if self.extents == BLOCK_EXTENTS_MAX {
            return Err(Crowded {
                what: "extents that touch a 4 KiB block",
                max: BLOCK_EXTENTS_MAX,
                advice: "use fewer, longer extents there",
            });
        }
        self.extents = if last == first { self.extents + 1 } else { 1 };
        self.extents_block = last;
        Ok(())
    }

    /// An extent that begins at byte `base` of what a framed stream presents: only the frames at its ends can share a block with others', but
    /// short frames may lie several in a block.
    pub(crate) fn frames(
        &mut self,
        presented: Range<u64>,
        base: u64,
        frame_bytes: u64,
        stream: StreamIndex,
    ) -> Result<(), Crowded> {
        let mut at = presented.start;
        while at < presented.end {
            let in_stream = base + (at - presented.start);
            let frame = in_stream / frame_bytes;
            let end = (at + frame_bytes - in_stream % frame_bytes).min(presented.end);
            self.frame(at..end, stream, frame)?;
            at = end;
        }
        Ok(())
    }

    /// These bytes, next or the same again, are presented out of a frame.
    pub(crate) fn frame(
        &mut self,
        presented: Range<u64>,
        stream: StreamIndex,
        frame: u64,
    ) -> Result<(), Crowded> {
        let (first, last) = blocks(&presented);
        if first != self.frames_block {
            self.frames = 0;
        }
        let key = (stream, frame);
        let is_known = self.seen[..self.frames].contains(&key);
        if !is_known && self.frames == BLOCK_FRAMES_MAX {
            return Err(Crowded {
                what: "frames that touch a 4 KiB block",
                max: BLOCK_FRAMES_MAX,
                advice: "use larger frames, fewer and larger streams, or a chain without compressor and shuffle",
            });
        }
        if last != first {
            self.frames = 0;
        }
        if last != first || !is_known {
            self.seen[self.frames] = key;
            self.frames += 1;
        }
        self.frames_block = last;
        Ok(())
    }
}

/// The first and the last block that bytes lie in.
fn blocks(presented: &Range<u64>) -> (u64, u64) {
    let last = presented.end.saturating_sub(1).max(presented.start);
    (presented.start / BLOCK_BYTES_U64, last / BLOCK_BYTES_U64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_counted_for_each_block_they_touch() {
        let mut density = Density::new();
        // 1,023 in block 0, then one into block 1.
        for at in 0..1023 {
            density.extent(at..at + 1).unwrap();
        }
        density.extent(1023..4097).unwrap();
        for at in 4097..4097 + 1023 {
            density.extent(at..at + 1).unwrap();
        }
        let crowded = density.extent(5120..5121).unwrap_err();
        assert_eq!(crowded.max, 1024);
        // The next block begins anew.
        density.extent(8192..8193).unwrap();
    }

    #[test]
    fn frames_are_counted_once_for_each_block() {
        let mut density = Density::new();
        let mut at = 0;
        let mut piece = |density: &mut Density, frame, bytes| {
            at += bytes;
            density.frame(at - bytes..at, StreamIndex(3), frame)
        };
        for frame in 0..63 {
            piece(&mut density, frame, 10).unwrap();
            piece(&mut density, frame / 2, 10).unwrap();
        }
        // The 64th reaches into the next block, and is its first.
        piece(&mut density, 63, 4096).unwrap();
        piece(&mut density, 63, 1).unwrap();
        for frame in 0..63 {
            piece(&mut density, frame, 1).unwrap();
        }
        let crowded = piece(&mut density, 64, 1).unwrap_err();
        assert_eq!(crowded.what, "frames that touch a 4 KiB block");
        piece(&mut density, 5, 1).unwrap();
    }
}
