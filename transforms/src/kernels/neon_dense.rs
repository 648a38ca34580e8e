//! The dense code of ranks with NEON: the rank that begins at each of 64 bytes, 4 at a time in lanes of 32 bits, of which a table over the mask of first bytes picks
//! those that are there.

use std::arch::aarch64::*;

use super::dense::{At, Collected, GROUP_BYTES, LOADED_BYTES, Ranks};
use crate::rank_table::RankTable;

/// Bytes of which vectors make ranks, and of which a mask picks some.
const VECTOR_BYTES: usize = 16;
const LANES: usize = 4;

/// What makes ranks of bytes.
pub(super) struct Code {
    stoppers: uint8x16_t,
    /// Factors of the second and of the third byte of a code: c, c^2.
    by_second: uint8x16_t,
    by_third: uint16x8_t,
}

/// 16 bytes: the ranks that begin at them, and all bits of those that go on.
struct Vector {
    ranks: [uint32x4_t; VECTOR_BYTES / LANES],
    goes_on: uint8x16_t,
}

impl Code {
    #[target_feature(enable = "neon")]
    pub(super) fn of(table: &RankTable) -> Code {
        // Below 128: `STOPPERS` begins at 129.
        let c = u8::try_from(table.continuers()).unwrap_or(0);
        Code {
            stoppers: vdupq_n_u8(table.stoppers()),
            by_second: vdupq_n_u8(c),
            by_third: vdupq_n_u16(u16::from(c) * u16::from(c)),
        }
    }

    /// Collects ranks from `at` on, as long as there is input and, of `room`, room for a group's.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn collect(
        &self,
        src: &[u8],
        mut at: At,
        ranks: &mut Ranks,
        room: usize,
    ) -> Collected {
        let room = room.min(ranks.len());
        let (mut count, mut largest) = (0, vdupq_n_u32(0));
        while src.len() - at.byte >= LOADED_BYTES && count + GROUP_BYTES <= room {
            // SAFETY: a group and two bytes lie in the source.
            let [a, b, c, d] = unsafe {
                let from = src.as_ptr().add(at.byte);
                [
                    self.vector(from),
                    self.vector(from.add(VECTOR_BYTES)),
                    self.vector(from.add(2 * VECTOR_BYTES)),
                    self.vector(from.add(3 * VECTOR_BYTES)),
                ]
            };
            let goes_on = mask([a.goes_on, b.goes_on, c.goes_on, d.goes_on]);
            let mut starts = (!goes_on << 1) | u64::from(at.is_start);
            for vector in [a.ranks, b.ranks, c.ranks, d.ranks] {
                for begin in vector {
                    let picked = &PICKED[(starts & 0xF) as usize];
                    starts >>= LANES;
                    // SAFETY: 16 bytes each; there is room for a rank of each byte of the group.
                    unsafe {
                        let lanes = vld1q_u8(picked.bytes.as_ptr());
                        let found = vqtbl1q_u8(vreinterpretq_u8_u32(begin), lanes);
                        let found = vreinterpretq_u32_u8(found);
                        largest = vmaxq_u32(largest, found);
                        vst1q_u32(ranks.as_mut_ptr().add(count), found);
                    }
                    count += picked.count;
                }
            }
            at.is_start = goes_on >> (GROUP_BYTES - 1) == 0;
            at.byte += GROUP_BYTES;
        }
        Collected {
            count,
            largest: vmaxvq_u32(largest),
            next: at,
        }
    }

    /// # Safety
    /// 18 bytes can be read.
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn vector(&self, from: *const u8) -> Vector {
        // SAFETY: promised by the caller.
        let bytes = [0, 1, 2].map(|i| unsafe { vld1q_u8(from.add(i)) });
        let first = vcgeq_u8(bytes[0], self.stoppers);
        let both = vandq_u8(first, vcgeq_u8(bytes[1], self.stoppers));
        let b1 = vandq_u8(bytes[1], first);
        let b2 = vandq_u8(bytes[2], both);
        let lower = vmovl_u8(vget_low_u8(bytes[0]));
        let lower = vmlal_u8(lower, vget_low_u8(b1), vget_low_u8(self.by_second));
        let upper = vmlal_high_u8(vmovl_high_u8(bytes[0]), b1, self.by_second);
        let [lower, upper] = [
            (lower, vmovl_u8(vget_low_u8(b2))),
            (upper, vmovl_high_u8(b2)),
        ]
        .map(|(two, third)| {
            let front = vmovl_u16(vget_low_u16(two));
            [
                vmlal_u16(front, vget_low_u16(third), vget_low_u16(self.by_third)),
                vmlal_high_u16(vmovl_high_u16(two), third, self.by_third),
            ]
        });
        Vector {
            ranks: [lower[0], lower[1], upper[0], upper[1]],
            goes_on: first,
        }
    }
}

/// A bit of each of 64 bytes, whose bits are all the same.
#[inline]
#[target_feature(enable = "neon")]
fn mask(bytes: [uint8x16_t; 4]) -> u64 {
    static BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: 16 bytes.
    let bits = unsafe { vld1q_u8(BITS.as_ptr()) };
    let [a, b, c, d] = bytes.map(|bytes| vandq_u8(bytes, bits));
    let sums = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
}

/// Lanes that are picked.
struct Picked {
    /// The bytes of each lane.
    bytes: [u8; 16],
    count: usize,
}

/// For each mask of 4 lanes, those that are in it, one behind the other, and zeros. (No 4 bytes of codes have the mask 0.)
static PICKED: [Picked; 1 << LANES] = {
    const NONE: u8 = 0xFF;
    let mut table = [const {
        Picked {
            bytes: [NONE; 16],
            count: 0,
        }
    }; 1 << LANES];
    let mut mask = 0;
    while mask < table.len() {
        let (mut byte, picked) = (0u8, &mut table[mask]);
        while byte < 16 {
            if mask >> (byte / 4) & 1 == 1 {
                picked.bytes[4 * picked.count + (byte % 4) as usize] = byte;
                if byte % 4 == 3 {
                    picked.count += 1;
                }
            }
            byte += 1;
        }
        mask += 1;
    }
    table
};
