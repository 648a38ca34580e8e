//! Blocks in an order that somebody gives.

use std::sync::Arc;

use printout::ranges::ReadRange;

use super::{Block, Region};
use crate::limits::ORDER_UNIT_BYTES;
use crate::spec::{JobSpec, Verify};

/// The ranges of an order, and how far they were read.
#[derive(Clone, Debug)]
pub struct Given {
    ranges: Arc<[ReadRange]>,
    region: Region,
    /// Of the longest block.
    block_bytes: u32,
    /// Of a pass.
    bytes: u64,
    /// The range that the next block is of, and where in it that begins.
    next: usize,
    from: u64,
    pass: u32,
}

impl Given {
    /// # Errors
    /// A range that is not within the region, or that cannot be verified; it is named by its place in the order, which is its line.
    pub fn new(spec: &JobSpec, ranges: &Arc<[ReadRange]>, region: Region) -> Result<Self, String> {
        let mut bytes = 0_u64;
        for (range, line) in ranges.iter().zip(1_u64..) {
            let is_within = range.offset >= region.offset
                && range.offset + range.bytes <= region.offset + region.bytes;
            if !is_within {
                return Err(format!(
                    "order: the bytes of range {line}, {range}, are not all within those that are used: {} from {} on",
                    region.bytes, region.offset
                ));
            }
            let unit = u64::from(spec.bs_unit());
            let is_whole = (range.offset - region.offset).is_multiple_of(unit)
                && range.bytes.is_multiple_of(unit);
            if spec.verify != Verify::None && !is_whole {
                return Err(format!(
                    "order: range {line}, {range}, is not whole blocks of {unit} bytes, which alone can be verified"
                ));
            }
            let (start, end) = rounded(range, region);
            bytes = bytes.saturating_add(end - start);
        }
        Ok(Self {
            ranges: ranges.clone(),
            region,
            block_bytes: spec.bs_max(),
            bytes,
            next: 0,
            from: 0,
            pass: 1,
        })
    }

    /// Of one time through the order.
    pub fn pass_bytes(&self) -> u64 {
        self.bytes
    }

    pub fn next(&mut self) -> Block {
        let starts_over = self.next == self.ranges.len();
        if starts_over {
            self.next = 0;
            self.pass += 1;
        }
        let range = self.ranges.get(self.next);
        let (start, end) = range.map_or((0, 0), |range| rounded(range, self.region));
        let offset = start + self.from;
        let left = end - offset;
        let len = u32::try_from(left).map_or(self.block_bytes, |left| left.min(self.block_bytes));
        self.from += u64::from(len);
        if offset + u64::from(len) == end {
            (self.next, self.from) = (self.next + 1, 0);
        }
        Block {
            offset,
            len,
            pass: self.pass,
            starts_over,
        }
    }
}

/// What a disk has to be asked for, so that the range is there: whole units from the region's start on.
fn rounded(range: &ReadRange, region: Region) -> (u64, u64) {
    let (first, behind) = (
        range.offset - region.offset,
        range.offset + range.bytes - region.offset,
    );
    let start = first / ORDER_UNIT_BYTES * ORDER_UNIT_BYTES;
    let end = behind
        .div_ceil(ORDER_UNIT_BYTES)
        .saturating_mul(ORDER_UNIT_BYTES);
    (region.offset + start, region.offset + end.min(region.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offsets::Offsets;
    use crate::spec::Direction;

    fn given(ranges: &[(u64, u64)], settings: &[(&str, &str)]) -> Result<Offsets, String> {
        let mut spec = JobSpec::of(settings);
        let ranges = ranges.iter().copied();
        let ranges = ranges.map(|(offset, bytes)| ReadRange { offset, bytes });
        spec.order = Some(ranges.collect());
        spec.check()?;
        let region = Region {
            offset: 4096,
            bytes: 100 << 10,
        };
        Offsets::new(&spec, region, 1)
    }

    /// As they are given, cut at the block size, in whole units of 4 KiB; again and again.
    #[test]
    fn ranges_come_in_their_order_in_whole_units() {
        let ranges = [(40_960, 20_480), (4096, 1), (12_287, 2), (102_400, 4096)];
        let mut offsets = given(&ranges, &[("bs", "16k")]).unwrap();
        assert_eq!(offsets.pass_bytes(), 20_480 + 4096 + 8192 + 4096);
        for pass in 1..=3 {
            let blocks = [
                (40_960, 16_384),
                (57_344, 4096),
                (4096, 4096),
                (8192, 8192),
                (102_400, 4096),
            ];
            for (at, (offset, len)) in blocks.into_iter().enumerate() {
                let expected = Block {
                    offset,
                    len,
                    pass,
                    starts_over: at == 0 && pass > 1,
                };
                assert_eq!(offsets.next(Direction::Read), expected);
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_its_place() {
        for range in [(0, 4096), (102_400, 4097), (200_000, 1)] {
            let refused = given(&[(4096, 1), range], &[]).unwrap_err();
            assert!(refused.contains("range 2, "), "{refused}");
        }
        let verified = [("bs", "8k"), ("verify", "crc32c")];
        assert!(given(&[(4096, 8192), (20_480, 16_384)], &verified).is_ok());
        for range in [(8192, 8192), (4096, 4096)] {
            let refused = given(&[range], &verified).unwrap_err();
            assert!(refused.contains("whole blocks of 8192"), "{refused}");
        }
        for settings in [
            &[("rw", "randread")][..],
            &[("rw", "write")],
            &[("rw", "rw")],
            &[("bsrange", "4k-16k")],
        ] {
            assert!(given(&[(4096, 1)], settings).is_err(), "{settings:?}");
        }
        assert!(given(&[], &[]).is_err(), "there is nothing to read");
    }
}
