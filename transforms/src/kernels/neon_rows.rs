//! Rows of numbers with a scale, with NEON: eight vectors are a step. f16 has no kernel here, as in `neon_q8.rs`.

use std::arch::aarch64::*;

use super::neon_q8::{load, store};
use super::place::Place;
use super::rows::by_steps::{self, Step, number_bytes};

struct Vectors;

impl<const T: u8> Step<T> for Vectors {
    type Met = uint32x4_t;
    type Factor = f32;

    #[inline]
    unsafe fn none() -> uint32x4_t {
        // SAFETY: NEON is part of every aarch64.
        unsafe { vdupq_n_u32(0) }
    }

    #[inline]
    unsafe fn meet(mut met: uint32x4_t, from: *const u8) -> uint32x4_t {
        // SAFETY: passed on to the caller; NEON is part of every aarch64.
        unsafe {
            for part in 0..8 {
                let numbers = load::<T>(from.add(4 * part * number_bytes(T)));
                met = vmaxq_u32(met, vreinterpretq_u32_f32(vabsq_f32(numbers)));
            }
        }
        met
    }

    #[inline]
    unsafe fn largest(met: uint32x4_t) -> u32 {
        // SAFETY: NEON is part of every aarch64.
        unsafe { vmaxvq_u32(met) }
    }

    #[inline]
    unsafe fn factor(value: f32) -> f32 {
        value
    }

    #[inline]
    unsafe fn quantize(from: *const u8, by: f32, to: *mut u8) {
        // SAFETY: passed on to the caller; NEON is part of every aarch64.
        unsafe {
            for part in 0..4 {
                let steps = [0, 1].map(|half| {
                    let numbers = load::<T>(from.add((8 * part + 4 * half) * number_bytes(T)));
                    vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(numbers, by)))
                });
                let bytes = vqmovn_s16(vcombine_s16(steps[0], steps[1]));
                vst1_s8(to.add(8 * part).cast(), bytes);
            }
        }
    }

    #[inline]
    unsafe fn dequantize(from: *const u8, scale: f32, to: *mut u8) {
        // SAFETY: passed on to the caller; NEON is part of every aarch64.
        unsafe {
            for part in 0..4 {
                let shorts = vmovl_s8(vld1_s8(from.add(8 * part).cast()));
                let low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(shorts)));
                let high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(shorts)));
                let to = to.add(8 * part * number_bytes(T));
                store::<T>(to, vmulq_n_f32(low, scale));
                store::<T>(to.add(4 * number_bytes(T)), vmulq_n_f32(high, scale));
            }
        }
    }
}

/// # Safety
/// As `rows::largest_of`.
pub(super) unsafe fn largest<const T: u8>(src: *const u8, count: usize) -> u32 {
    // SAFETY: passed on to the caller.
    unsafe { by_steps::largest::<Vectors, T>(src, count) }
}

/// # Safety
/// As `rows::quantize_run`.
pub(super) unsafe fn quantize<const T: u8>(
    src: *const u8,
    by: f32,
    place: &mut Place,
    count: usize,
) -> u32 {
    // SAFETY: passed on to the caller.
    unsafe { by_steps::quantize::<Vectors, T>(src, by, place, count) }
}

/// # Safety
/// As `rows::dequantize_run`.
pub(super) unsafe fn dequantize<const T: u8>(
    src: *const u8,
    scale: f32,
    place: &mut Place,
    count: usize,
) {
    // SAFETY: passed on to the caller.
    unsafe { by_steps::dequantize::<Vectors, T>(src, scale, place, count) }
}
