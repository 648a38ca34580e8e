//! Bit packing with NEON: 4 fields in each 128-bit register, moved by `tbl`.

#![allow(clippy::cast_possible_wrap)] // shift counts are signed: right is negative

use std::arch::aarch64::*;

use super::tables::LANES;

/// Unpacks most of `count` fields, the first at bit 0 of `src`, into elements of `W` bytes. Returns how many (a multiple of 8), and
/// the smallest and largest.
///
/// # Safety
/// `src` holds the fields, `dst` is writable for `count * W` bytes.
pub(super) unsafe fn unpack<const W: usize>(
    bits: u32,
    src: &[u8],
    dst: *mut u8,
    count: usize,
) -> (usize, u32, u32) {
    debug_assert!(bits as usize <= 8 * W && src.len() * 8 >= count * bits as usize);
    let table = &LANES[bits as usize - 1];
    let eights = whole_loads(bits, src.len(), count);
    // SAFETY: NEON is part of every aarch64; the tables are 16 bytes each; `whole_loads` leaves 32 bytes behind the start of every
    // group of the source; the destination has 8 elements for it.
    unsafe {
        let mask = vdupq_n_u32(u32::MAX >> (32 - bits));
        let (mut min, mut max) = (vdupq_n_u32(u32::MAX), vdupq_n_u32(0));
        let lane = |lane: usize| {
            let shift = vld1q_u32(table.shift[lane].as_ptr());
            let right = vnegq_s32(vreinterpretq_s32_u32(shift));
            (
                vld1q_u8(table.gather[lane].as_ptr()),
                vld1q_u8(table.gather_fifth[lane].as_ptr()),
                right,
                vaddq_s32(vdupq_n_s32(32), right),
            )
        };
        let lanes = [lane(0), lane(1)];
        let offsets = [0, table.lane_bytes];
        for i in 0..eights {
            let mut halves = [vdupq_n_u32(0); 2];
            for (half, ((gather, fifth, right, left), offset)) in
                halves.iter_mut().zip(lanes.iter().zip(offsets))
            {
                let bytes = vld1q_u8(src.as_ptr().add(i * bits as usize + offset));
                let lower = vreinterpretq_u32_u8(vqtbl1q_u8(bytes, *gather));
                let upper = vreinterpretq_u32_u8(vqtbl1q_u8(bytes, *fifth));
                let field = vorrq_u32(vshlq_u32(lower, *right), vshlq_u32(upper, *left));
                let values = vandq_u32(field, mask);
                min = vminq_u32(min, values);
                max = vmaxq_u32(max, values);
                *half = values;
            }
            let to = dst.add(i * 8 * W);
            match W {
                1 => {
                    let shorts = vcombine_u16(vmovn_u32(halves[0]), vmovn_u32(halves[1]));
                    vst1_u8(to, vmovn_u16(shorts));
                }
                2 => {
                    let shorts = vcombine_u16(vmovn_u32(halves[0]), vmovn_u32(halves[1]));
                    vst1q_u8(to, vreinterpretq_u8_u16(shorts));
                }
                4 => {
                    vst1q_u8(to, vreinterpretq_u8_u32(halves[0]));
                    vst1q_u8(to.add(16), vreinterpretq_u8_u32(halves[1]));
                }
                _ => {
                    for (h, half) in halves.into_iter().enumerate() {
                        let lower = vmovl_u32(vget_low_u32(half));
                        let upper = vmovl_u32(vget_high_u32(half));
                        vst1q_u8(to.add(h * 32), vreinterpretq_u8_u64(lower));
                        vst1q_u8(to.add(h * 32 + 16), vreinterpretq_u8_u64(upper));
                    }
                }
            }
        }
        (eights * 8, vminvq_u32(min), vmaxvq_u32(max))
    }
}

/// Packs most of `count` elements of `W` bytes, from bit 0 of `dst` on. Returns how many (a multiple of 8), and the smallest and
/// largest.
///
/// # Safety
/// `src` holds `count` elements, `dst` their fields.
pub(super) unsafe fn pack<const W: usize>(
    bits: u32,
    src: &[u8],
    dst: &mut [u8],
    count: usize,
) -> (usize, u32, u32) {
    debug_assert!(src.len() >= count * W && dst.len() * 8 >= count * bits as usize);
    let table = &LANES[bits as usize - 1];
    let eights = whole_loads(bits, dst.len(), count);
    // SAFETY: NEON is part of every aarch64; the tables are 16 bytes each; the source has 8 elements for group `i`; `whole_loads`
    // leaves 32 bytes of the destination behind the start of every group.
    unsafe {
        let field = vdupq_n_s64(i64::from(bits));
        let low = vdupq_n_u64(0xFFFF_FFFF);
        let (mut min, mut max) = (vdupq_n_u32(u32::MAX), vdupq_n_u32(0));
        let lane = |lane: usize| {
            let shift = vreinterpretq_s64_u64(vld1q_u64(table.pair_shift[lane].as_ptr()));
            (
                vld1q_u8(table.scatter_even[lane].as_ptr()),
                vld1q_u8(table.scatter_odd[lane].as_ptr()),
                vld1q_u8(table.scatter_spill[lane].as_ptr()),
                shift,
                vsubq_s64(shift, vdupq_n_s64(64)),
            )
        };
        let lanes = [lane(0), lane(1)];
        let carry = vld1q_u8(table.carry.as_ptr());
        for i in 0..eights {
            let from = src.as_ptr().add(i * 8 * W);
            let halves = match W {
                1 => {
                    let shorts = vmovl_u8(vld1_u8(from));
                    [
                        vmovl_u16(vget_low_u16(shorts)),
                        vmovl_u16(vget_high_u16(shorts)),
                    ]
                }
                2 => {
                    let shorts = vreinterpretq_u16_u8(vld1q_u8(from));
                    [
                        vmovl_u16(vget_low_u16(shorts)),
                        vmovl_u16(vget_high_u16(shorts)),
                    ]
                }
                _ => [
                    vreinterpretq_u32_u8(vld1q_u8(from)),
                    vreinterpretq_u32_u8(vld1q_u8(from.add(16))),
                ],
            };
            let mut packed = [vdupq_n_u8(0); 2];
            for ((values, (even, odd, spill, shift, unshift)), packed) in
                halves.into_iter().zip(lanes).zip(&mut packed)
            {
                min = vminq_u32(min, values);
                max = vmaxq_u32(max, values);
                let words = vreinterpretq_u64_u32(values);
                let upper = vshlq_u64(vshrq_n_u64::<32>(words), field);
                let pairs = vorrq_u64(vandq_u64(words, low), upper);
                let placed = vreinterpretq_u8_u64(vshlq_u64(pairs, shift));
                let spilled = vreinterpretq_u8_u64(vshlq_u64(pairs, unshift));
                *packed = vorrq_u8(
                    vorrq_u8(vqtbl1q_u8(placed, even), vqtbl1q_u8(placed, odd)),
                    vqtbl1q_u8(spilled, spill),
                );
            }
            let lane_1 = vorrq_u8(packed[1], vqtbl1q_u8(packed[0], carry));
            // Each store's zeros behind its fields are overwritten by the next one.
            let to = dst.as_mut_ptr().add(i * bits as usize);
            vst1q_u8(to, packed[0]);
            vst1q_u8(to.add(table.lane_bytes), lane_1);
        }
        (eights * 8, vminvq_u32(min), vmaxvq_u32(max))
    }
}

/// How many groups of 8 fields out of `count` have 32 bytes behind their start, when there are `bytes` bytes in all.
fn whole_loads(bits: u32, bytes: usize, count: usize) -> usize {
    match bytes.checked_sub(32) {
        Some(last) => (count / 8).min(last / bits as usize + 1),
        None => 0,
    }
}
