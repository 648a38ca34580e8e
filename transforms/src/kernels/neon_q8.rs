//! Groups of numbers with a scale, with NEON: eight vectors are a group. The scale itself is converted by the definition. f16 has no kernel here: its
//! vectors are no part of every aarch64.

use std::arch::aarch64::*;

use super::floats::scalar::{f16_to_f32, f32_to_f16};
use super::place::Place;
use super::q8::scalar::reciprocal;
use super::q8::{F32, GROUP_BYTES, group_bytes};

/// Four numbers of f32 or bf16, as f32.
///
/// # Safety
/// They are readable.
#[inline]
pub(super) unsafe fn load<const T: u8>(from: *const u8) -> float32x4_t {
    // SAFETY: passed on to the caller; NEON is part of every aarch64.
    unsafe {
        match T {
            F32 => vreinterpretq_f32_u8(vld1q_u8(from)),
            _ => {
                let bits = vreinterpret_u16_u8(vld1_u8(from));
                vreinterpretq_f32_u32(vshll_n_u16::<16>(bits))
            }
        }
    }
}

/// Four numbers as f32, or bf16, rounded to nearest, ties to even: none is a NaN, but in a group whose scale is.
///
/// # Safety
/// There is room for them.
#[inline]
pub(super) unsafe fn store<const T: u8>(to: *mut u8, numbers: float32x4_t) {
    // SAFETY: as above.
    unsafe {
        match T {
            F32 => vst1q_u8(to, vreinterpretq_u8_f32(numbers)),
            _ => {
                let bits = vreinterpretq_u32_f32(numbers);
                let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
                let half = vaddq_u32(odd, vdupq_n_u32(0x7FFF));
                let rounded = vshrn_n_u32::<16>(vaddq_u32(bits, half));
                vst1_u8(to, vreinterpret_u8_u16(rounded));
            }
        }
    }
}

/// # Safety
/// `src` is readable for so many groups, `place` has room for them.
pub(super) unsafe fn quantize<const T: u8>(
    src: *const u8,
    place: &mut Place,
    groups: usize,
) -> u32 {
    let mut met = 0;
    for group in 0..groups {
        // SAFETY: NEON is part of every aarch64; `group < groups`, on both sides; a group is 128 or 64 bytes of numbers, and 34 packed.
        unsafe {
            let from = src.add(group * group_bytes(T));
            let part = group_bytes(T) / 8;
            let numbers = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| load::<T>(from.add(part * at)));
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
pub(super) unsafe fn dequantize<const T: u8>(
    src: *const u8,
    place: &mut Place,
    groups: usize,
) -> u16 {
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
                let eighth = group_bytes(T) / 8;
                let to = to.add(2 * part * eighth);
                store::<T>(to, vmulq_n_f32(low, scale));
                store::<T>(to.add(eighth), vmulq_n_f32(high, scale));
            }
            place.advance(group_bytes(T));
        }
    }
    met
}
