//! A byte range of a namespace as block commands, none larger than the controller takes.
//!
//! The ends of the range may fall inside a logical block. Such a block becomes a piece of its own, so that all other
//! pieces move straight between the wire and the caller's buffer.

use std::ops::Range;

use nvme_spec::Lba;

/// What a range is cut by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block; not zero.
    pub lba_bytes: u32,
    /// Logical blocks of the namespace.
    pub blocks: u64,
    /// The most bytes of one command; at least one block.
    pub transfer_bytes_max: u32,
}

/// One command's share of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First logical block.
    pub lba: Lba,
    /// Logical blocks; not zero.
    pub blocks: u32,
    /// Bytes at the front of the first block that are outside the range.
    pub skip_bytes: u32,
    /// Bytes of the blocks, after `skip_bytes`, that are inside the range.
    pub take_bytes: u32,
    /// Where those bytes lie in the caller's buffer.
    pub buffer_offset: u64,
}

impl Piece {
    /// Whether the piece is whole blocks: it needs no block of its own to be cut from or merged into.
    pub fn is_whole(&self, lba_bytes: u32) -> bool {
        self.skip_bytes == 0
            && u64::from(self.take_bytes) == u64::from(self.blocks) * u64::from(lba_bytes)
    }
}

/// The pieces of a byte range, in order; each byte of it is in exactly one.
#[derive(Clone, Debug)]
pub struct Split {
    lba_bytes: u64,
    transfer_blocks_max: u64,
    start: u64,
    next: u64,
    end: u64,
}

impl Split {
    /// Cuts `bytes` of a namespace, or `None` where the range is not inside it.
    pub fn new(geometry: &Geometry, bytes: Range<u64>) -> Option<Split> {
        let lba_bytes = u64::from(geometry.lba_bytes);
        let capacity_bytes = u128::from(geometry.blocks) * u128::from(lba_bytes);
        if bytes.start > bytes.end || u128::from(bytes.end) > capacity_bytes {
            return None;
        }
        // NLB is 16 bits and zero-based.
        let transfer_blocks_max = u64::from(geometry.transfer_bytes_max)
            .checked_div(lba_bytes)?
            .clamp(1, 1 << 16);
        Some(Split {
            lba_bytes,
            transfer_blocks_max,
            start: bytes.start,
            next: bytes.start,
            end: bytes.end,
        })
    }
}

impl Iterator for Split {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let left = self.end - self.next;
        if left == 0 {
            return None;
        }
        let skip = self.next % self.lba_bytes;
        let (blocks, take) = if skip != 0 || left < self.lba_bytes {
            (1, left.min(self.lba_bytes - skip))
        } else {
            let blocks = (left / self.lba_bytes).min(self.transfer_blocks_max);
            (blocks, blocks * self.lba_bytes)
        };
        let piece = Piece {
            lba: Lba(self.next / self.lba_bytes),
            blocks: u32::try_from(blocks).ok()?,
            skip_bytes: u32::try_from(skip).ok()?,
            take_bytes: u32::try_from(take).ok()?,
            buffer_offset: self.next - self.start,
        };
        self.next += take;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            lba_bytes: 512,
            blocks: 100,
            transfer_bytes_max: 4096,
        }
    }

    #[test]
    fn every_range_is_covered_once_in_order() {
        let geometry = geometry();
        for start in (0..2048).step_by(127).chain([511, 512, 513]) {
            for len in (0..20_000).step_by(379).chain([1, 511, 512, 513, 4096]) {
                let range = start..start + len;
                let mut at = start;
                for piece in Split::new(&geometry, range.clone()).unwrap() {
                    let first = piece.lba.0 * 512 + u64::from(piece.skip_bytes);
                    assert_eq!(first, at, "{range:?}");
                    assert_eq!(piece.buffer_offset, at - start);
                    assert!(piece.take_bytes > 0 && piece.blocks > 0);
                    assert!(piece.blocks * 512 <= 4096);
                    assert!(piece.skip_bytes + piece.take_bytes <= piece.blocks * 512);
                    assert!(piece.is_whole(512) || piece.blocks == 1);
                    at += u64::from(piece.take_bytes);
                }
                assert_eq!(at, range.end, "{range:?}");
            }
        }
    }

    #[test]
    fn aligned_ranges_need_the_fewest_commands() {
        let pieces: Vec<_> = Split::new(&geometry(), 0..10_240).unwrap().collect();
        assert_eq!(
            pieces.iter().map(|p| p.blocks).collect::<Vec<_>>(),
            [8, 8, 4]
        );
    }

    #[test]
    fn the_last_byte_is_inside_and_the_next_is_not() {
        assert_eq!(Split::new(&geometry(), 51_199..51_200).unwrap().count(), 1);
        assert!(Split::new(&geometry(), 51_199..51_201).is_none());
        assert!(Split::new(&geometry(), u64::MAX - 1..u64::MAX).is_none());
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = 2..1;
        assert!(Split::new(&geometry(), reversed).is_none());
        assert_eq!(Split::new(&geometry(), 51_200..51_200).unwrap().count(), 0);
    }

    #[test]
    fn a_command_never_exceeds_the_sixteen_bit_block_count() {
        let huge = Geometry {
            lba_bytes: 512,
            blocks: 1 << 40,
            transfer_bytes_max: u32::MAX,
        };
        let first = Split::new(&huge, 0..1 << 40).unwrap().next().unwrap();
        assert_eq!(first.blocks, 1 << 16);
    }
}
