//! Rows of numbers with a scale, with AVX-512: two vectors are a step. What a run has left is a step that is filled up.

use std::arch::x86_64::*;

use super::avx512_q8::{load, store};
use super::place::Place;
use super::q8::F32;
use super::rows::{STEP_ELEMENTS, StepNumbers, filled_up, number_bytes};
use super::{prefetch, prefetch_wide};

/// A step's magnitudes, the larger of each two, by their bits.
///
/// # Safety
/// A step is readable; the machine has AVX-512 F, BW, VL and DQ.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn magnitudes<const T: u8>(from: *const u8) -> __m512i {
    let sign = _mm512_set1_ps(-0.0);
    // SAFETY: passed on to the caller.
    let numbers = unsafe { [load::<T>(from), load::<T>(from.add(16 * number_bytes(T)))] };
    let [a, b] = numbers.map(|it| _mm512_castps_si512(_mm512_andnot_ps(sign, it)));
    _mm512_max_epu32(a, b)
}

/// Asks for what comes behind a step.
#[inline(always)]
fn ahead<const T: u8>(from: *const u8) {
    prefetch_wide(from);
    if T == F32 {
        prefetch_wide(from.wrapping_add(64));
    }
}

/// # Safety
/// As `rows::largest_of`; the machine has AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn largest<const T: u8>(src: *const u8, count: usize) -> u32 {
    let mut met = _mm512_setzero_si512();
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    for step in 0..steps {
        // SAFETY: `step < steps`.
        unsafe {
            let from = src.add(step * STEP_ELEMENTS * number_bytes(T));
            ahead::<T>(from);
            met = _mm512_max_epu32(met, magnitudes::<T>(from));
        }
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left; a step is readable where they are filled up.
        met = _mm512_max_epu32(met, unsafe {
            let from = src.add(steps * STEP_ELEMENTS * number_bytes(T));
            magnitudes::<T>(filled_up::<T>(from, rest).as_ptr())
        });
    }
    _mm512_reduce_max_epu32(met)
}

/// A step of numbers as multiples.
///
/// # Safety
/// A step is readable, and `to` writable for as many bytes; the machine has AVX-512 F, BW, VL and DQ.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn quantize_step<const T: u8>(from: *const u8, by: __m512, to: *mut u8) {
    // SAFETY: passed on to the caller.
    unsafe {
        for part in 0..2 {
            let numbers = load::<T>(from.add(16 * part * number_bytes(T)));
            // To nearest, ties to even.
            let steps = _mm512_cvtps_epi32(_mm512_mul_ps(numbers, by));
            _mm_storeu_si128(to.add(16 * part).cast(), _mm512_cvtepi32_epi8(steps));
        }
    }
}

/// # Safety
/// As `rows::quantize_run`; the machine has AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn quantize<const T: u8>(
    src: *const u8,
    by: f32,
    place: &mut Place,
    count: usize,
) -> u32 {
    let by = _mm512_set1_ps(by);
    let mut met = _mm512_setzero_si512();
    let mut pen = place.pen();
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    for step in 0..steps {
        // SAFETY: `step < steps`, on both sides.
        unsafe {
            let from = src.add(step * STEP_ELEMENTS * number_bytes(T));
            ahead::<T>(from);
            met = _mm512_max_epu32(met, magnitudes::<T>(from));
            quantize_step::<T>(from, by, pen.at());
            pen.advance(STEP_ELEMENTS, place);
        }
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left, on both sides; a step is readable where they are filled up.
        unsafe {
            let numbers = filled_up::<T>(src.add(steps * STEP_ELEMENTS * number_bytes(T)), rest);
            met = _mm512_max_epu32(met, magnitudes::<T>(numbers.as_ptr()));
            let mut bytes = [0; STEP_ELEMENTS];
            quantize_step::<T>(numbers.as_ptr(), by, bytes.as_mut_ptr());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), pen.at(), rest);
            pen.advance(rest, place);
        }
    }
    place.put_back(pen);
    _mm512_reduce_max_epu32(met)
}

/// A step of multiples as numbers.
///
/// # Safety
/// A step is readable, and `to` writable for as many numbers; the machine has AVX-512 F, BW, VL and DQ.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
unsafe fn dequantize_step<const T: u8>(from: *const u8, scale: __m512, to: *mut u8) {
    // SAFETY: passed on to the caller.
    unsafe {
        for part in 0..2 {
            let bytes = _mm_loadu_si128(from.add(16 * part).cast());
            let steps = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
            let to = to.add(16 * part * number_bytes(T));
            store::<T>(to, _mm512_mul_ps(steps, scale));
        }
    }
}

/// # Safety
/// As `rows::dequantize_run`; the machine has AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn dequantize<const T: u8>(
    src: *const u8,
    scale: f32,
    place: &mut Place,
    count: usize,
) {
    let scale = _mm512_set1_ps(scale);
    let mut pen = place.pen();
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    for step in 0..steps {
        // SAFETY: `step < steps`, on both sides.
        unsafe {
            let from = src.add(step * STEP_ELEMENTS);
            prefetch(from);
            dequantize_step::<T>(from, scale, pen.at());
            pen.advance(STEP_ELEMENTS * number_bytes(T), place);
        }
    }
    if rest > 0 {
        // SAFETY: `rest` multiples are left, on both sides; a step is readable and writable where they are filled up.
        unsafe {
            let mut bytes = [0; STEP_ELEMENTS];
            std::ptr::copy_nonoverlapping(src.add(steps * STEP_ELEMENTS), bytes.as_mut_ptr(), rest);
            let mut numbers: StepNumbers = [0; 4 * STEP_ELEMENTS];
            dequantize_step::<T>(bytes.as_ptr(), scale, numbers.as_mut_ptr());
            std::ptr::copy_nonoverlapping(numbers.as_ptr(), pen.at(), rest * number_bytes(T));
            pen.advance(rest * number_bytes(T), place);
        }
    }
    place.put_back(pen);
}
