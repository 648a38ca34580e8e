//! Rows of numbers with a scale, with AVX2 and F16C: four vectors are a step. Else as `avx512_rows.rs`.

use std::arch::x86_64::*;

use super::avx2_q8::{load, store};
use super::place::Place;
use super::q8::F32;
use super::rows::{STEP_ELEMENTS, StepNumbers, filled_up, number_bytes};
use super::{prefetch, prefetch_wide};

/// A step's magnitudes, the largest of each four, by their bits.
///
/// # Safety
/// A step is readable; the machine has AVX2 and F16C.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn magnitudes<const T: u8>(from: *const u8) -> __m256i {
    let sign = _mm256_set1_ps(-0.0);
    let mut met = _mm256_setzero_si256();
    for part in 0..4 {
        // SAFETY: passed on to the caller.
        let numbers = unsafe { load::<T>(from.add(8 * part * number_bytes(T))) };
        let magnitudes = _mm256_castps_si256(_mm256_andnot_ps(sign, numbers));
        met = _mm256_max_epu32(met, magnitudes);
    }
    met
}

/// The largest of all lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_lane(eight: __m256i) -> u32 {
    let four = _mm_max_epu32(
        _mm256_castsi256_si128(eight),
        _mm256_extracti128_si256::<1>(eight),
    );
    let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
    _mm_cvtsi128_si32(one).cast_unsigned()
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
/// As `rows::largest_of`; the machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn largest<const T: u8>(src: *const u8, count: usize) -> u32 {
    let mut met = _mm256_setzero_si256();
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    for step in 0..steps {
        // SAFETY: `step < steps`.
        unsafe {
            let from = src.add(step * STEP_ELEMENTS * number_bytes(T));
            ahead::<T>(from);
            met = _mm256_max_epu32(met, magnitudes::<T>(from));
        }
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left; a step is readable where they are filled up.
        met = _mm256_max_epu32(met, unsafe {
            let from = src.add(steps * STEP_ELEMENTS * number_bytes(T));
            magnitudes::<T>(filled_up::<T>(from, rest).as_ptr())
        });
    }
    largest_lane(met)
}

/// A step of numbers as multiples.
///
/// # Safety
/// A step is readable, and `to` writable for as many bytes; the machine has AVX2 and F16C.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn quantize_step<const T: u8>(from: *const u8, by: __m256, to: *mut u8) {
    // Packed lane by lane: the quarters are put in order again.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    // SAFETY: passed on to the caller.
    unsafe {
        let steps = [0, 1, 2, 3].map(|part| {
            let numbers = load::<T>(from.add(8 * part * number_bytes(T)));
            // To nearest, ties to even.
            _mm256_cvtps_epi32(_mm256_mul_ps(numbers, by))
        });
        let front = _mm256_packs_epi32(steps[0], steps[1]);
        let back = _mm256_packs_epi32(steps[2], steps[3]);
        let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(front, back), order);
        _mm256_storeu_si256(to.cast(), bytes);
    }
}

/// # Safety
/// As `rows::quantize_run`; the machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn quantize<const T: u8>(
    src: *const u8,
    by: f32,
    place: &mut Place,
    count: usize,
) -> u32 {
    let by = _mm256_set1_ps(by);
    let mut met = _mm256_setzero_si256();
    let mut pen = place.pen();
    let (steps, rest) = (count / STEP_ELEMENTS, count % STEP_ELEMENTS);
    for step in 0..steps {
        // SAFETY: `step < steps`, on both sides.
        unsafe {
            let from = src.add(step * STEP_ELEMENTS * number_bytes(T));
            ahead::<T>(from);
            met = _mm256_max_epu32(met, magnitudes::<T>(from));
            quantize_step::<T>(from, by, pen.at());
            pen.advance(STEP_ELEMENTS, place);
        }
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left, on both sides; a step is readable where they are filled up.
        unsafe {
            let numbers = filled_up::<T>(src.add(steps * STEP_ELEMENTS * number_bytes(T)), rest);
            met = _mm256_max_epu32(met, magnitudes::<T>(numbers.as_ptr()));
            let mut bytes = [0; STEP_ELEMENTS];
            quantize_step::<T>(numbers.as_ptr(), by, bytes.as_mut_ptr());
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), pen.at(), rest);
            pen.advance(rest, place);
        }
    }
    place.put_back(pen);
    largest_lane(met)
}

/// A step of multiples as numbers.
///
/// # Safety
/// A step is readable, and `to` writable for as many numbers; the machine has AVX2 and F16C.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn dequantize_step<const T: u8>(from: *const u8, scale: __m256, to: *mut u8) {
    // SAFETY: passed on to the caller.
    unsafe {
        for half in 0..2 {
            let numbers = [0, 8].map(|at| {
                let bytes = _mm_loadl_epi64(from.add(16 * half + at).cast());
                let steps = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
                _mm256_mul_ps(steps, scale)
            });
            store::<T>(to.add(16 * half * number_bytes(T)), numbers);
        }
    }
}

/// # Safety
/// As `rows::dequantize_run`; the machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn dequantize<const T: u8>(
    src: *const u8,
    scale: f32,
    place: &mut Place,
    count: usize,
) {
    let scale = _mm256_set1_ps(scale);
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
