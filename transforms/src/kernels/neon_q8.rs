//! Groups of numbers with a scale, with NEON: eight vectors are a group. The scale itself is converted by the definition.

use std::arch::aarch64::*;

use super::floats::scalar::{f16_to_f32, f32_to_f16};
use super::place::Place;
use super::q8::scalar::reciprocal;
use super::q8::{GROUP_BYTES, GROUP_F32_BYTES};

/// # Safety
/// `src` is readable for so many groups, `place` has room for them.
pub(super) unsafe fn quantize(src: *const u8, place: &mut Place, groups: usize) -> u32 {
    let mut met = 0;
    for group in 0..groups {
        // SAFETY: NEON is part of every aarch64; `group < groups`, on both sides; a group is 128 bytes of f32, and 34 packed.
        unsafe {
            let from = src.add(group * GROUP_F32_BYTES);
            let load = |at: usize| vreinterpretq_f32_u8(vld1q_u8(from.add(16 * at)));
            let numbers = [0, 1, 2, 3, 4, 5, 6, 7].map(load);
            let magnitudes = numbers.map(|it| vreinterpretq_u32_f32(vabsq_f32(it)));
            let all = magnitudes
                .into_iter()
                .fold(vdupq_n_u32(0), |one, other| vmaxq_u32(one, other));
            let largest = vmaxvq_u32(all);
            met = u32::max(met, largest);
            let scale = f32::from_bits(largest) / 127.0;
            let by = reciprocal(scale);
            // To nearest, half away from zero.
            let steps = numbers.map(|it| vqmovn_s32(vcvtaq_s32_f32(vmulq_n_f32(it, by))));
            let to = place.cursor();
            to.cast::<u16>()
                .write_unaligned(f32_to_f16(scale.to_bits()));
            for part in 0..4 {
                let shorts = vcombine_s16(steps[2 * part], steps[2 * part + 1]);
                vst1_s8(to.add(2 + 8 * part).cast(), vqmovn_s16(shorts));
            }
            place.advance(GROUP_BYTES);
        }
    }
    met
}

/// # Safety
/// As [`quantize`].
pub(super) unsafe fn dequantize(src: *const u8, place: &mut Place, groups: usize) -> u16 {
    let mut met = 0;
    for group in 0..groups {
        // SAFETY: as above.
        unsafe {
            let from = src.add(group * GROUP_BYTES);
            let bits = from.cast::<u16>().read_unaligned();
            met = u16::max(met, bits & 0x7FFF);
            let scale = f32::from_bits(f16_to_f32(bits));
            let to = place.cursor();
            for part in 0..4 {
                let shorts = vmovl_s8(vld1_s8(from.add(2 + 8 * part).cast()));
                let low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(shorts)));
                let high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(shorts)));
                let to = to.add(32 * part);
                vst1q_u8(to, vreinterpretq_u8_f32(vmulq_n_f32(low, scale)));
                vst1q_u8(to.add(16), vreinterpretq_u8_f32(vmulq_n_f32(high, scale)));
            }
            place.advance(GROUP_F32_BYTES);
        }
    }
    met
}
