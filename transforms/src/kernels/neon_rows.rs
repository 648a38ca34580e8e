//! Rows of numbers with a scale, with NEON: eight vectors are a step. Else as `avx512_rows.rs`. f16 has no kernel here, as in `neon_q8.rs`.

use std::arch::aarch64::*;

use super::neon_q8::{load, store};
use super::place::Place;
use super::rows::{STEP_ELEMENTS, StepNumbers, filled_up, number_bytes};

/// The largest magnitude of a step, by its bits.
///
/// # Safety
/// A step is readable.
#[inline]
unsafe fn largest_of_step<const T: u8>(from: *const u8) -> u32 {
    // SAFETY: passed on to the caller; NEON is part of every aarch64.
    unsafe {
        let mut met = vdupq_n_u32(0);
        for part in 0..8 {
            let numbers = load::<T>(from.add(4 * part * number_bytes(T)));
            met = vmaxq_u32(met, vreinterpretq_u32_f32(vabsq_f32(numbers)));
        }
        vmaxvq_u32(met)
    }
}

/// # Safety
/// As `rows::largest_of`.
pub(super) unsafe fn largest<const T: u8>(src: *const u8, count: usize) -> u32 {
    let mut met = 0;
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    for step in 0..steps {
        // SAFETY: `step < steps`.
        met = u32::max(met, unsafe {
            largest_of_step::<T>(src.add(step * STEP_ELEMENTS * number_bytes(T)))
        });
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left; a step is readable where they are filled up.
        met = u32::max(met, unsafe {
            let from = src.add(steps * STEP_ELEMENTS * number_bytes(T));
            largest_of_step::<T>(filled_up::<T>(from, rest).as_ptr())
        });
    }
    met
}

/// A step of numbers as multiples.
///
/// # Safety
/// A step is readable, and `to` writable for as many bytes.
#[inline]
unsafe fn quantize_step<const T: u8>(from: *const u8, by: f32, to: *mut u8) {
    // SAFETY: passed on to the caller; NEON is part of every aarch64.
    unsafe {
        for part in 0..4 {
            let steps = [0, 1].map(|half| {
                let numbers = load::<T>(from.add((8 * part + 4 * half) * number_bytes(T)));
                // To nearest, ties to even.
                vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(numbers, by)))
            });
            let bytes = vqmovn_s16(vcombine_s16(steps[0], steps[1]));
            vst1_s8(to.add(8 * part).cast(), bytes);
        }
    }
}

/// # Safety
/// As `rows::quantize_run`.
pub(super) unsafe fn quantize<const T: u8>(
    src: *const u8,
    by: f32,
    place: &mut Place,
    count: usize,
) -> u32 {
    let mut met = 0;
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    for step in 0..steps {
        // SAFETY: `step < steps`, on both sides.
        unsafe {
            let from = src.add(step * STEP_ELEMENTS * number_bytes(T));
            met = u32::max(met, largest_of_step::<T>(from));
            quantize_step::<T>(from, by, place.cursor());
            place.advance(STEP_ELEMENTS);
        }
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left, on both sides; a step is readable where they are filled up.
        unsafe {
            let numbers = filled_up::<T>(src.add(steps * STEP_ELEMENTS * number_bytes(T)), rest);
            met = u32::max(met, largest_of_step::<T>(numbers.as_ptr()));
            let mut bytes = [0; STEP_ELEMENTS];
            quantize_step::<T>(numbers.as_ptr(), by, bytes.as_mut_ptr());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cursor(), rest);
            place.advance(rest);
        }
    }
    met
}

/// A step of multiples as numbers.
///
/// # Safety
/// A step is readable, and `to` writable for as many numbers.
#[inline]
unsafe fn dequantize_step<const T: u8>(from: *const u8, scale: f32, to: *mut u8) {
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

/// # Safety
/// As `rows::dequantize_run`.
pub(super) unsafe fn dequantize<const T: u8>(
    src: *const u8,
    scale: f32,
    place: &mut Place,
    count: usize,
) {
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    for step in 0..steps {
        // SAFETY: `step < steps`, on both sides.
        unsafe {
            dequantize_step::<T>(src.add(step * STEP_ELEMENTS), scale, place.cursor());
            place.advance(STEP_ELEMENTS * number_bytes(T));
        }
    }
    if rest > 0 {
        // SAFETY: `rest` multiples are left, on both sides; a step is readable and writable where they are filled up.
        unsafe {
            let mut bytes = [0; STEP_ELEMENTS];
            std::ptr::copy_nonoverlapping(src.add(steps * STEP_ELEMENTS), bytes.as_mut_ptr(), rest);
            let mut numbers: StepNumbers = [0; 4 * STEP_ELEMENTS];
            dequantize_step::<T>(bytes.as_ptr(), scale, numbers.as_mut_ptr());
            let len = rest * number_bytes(T);
            std::ptr::copy_nonoverlapping(numbers.as_ptr(), place.cursor(), len);
            place.advance(len);
        }
    }
}
