//! Rows of numbers with a scale, with AVX2 and F16C: four vectors are a step.

use std::arch::x86_64::*;

use super::avx2_q8::{load, store};
use super::place::Place;
use super::q8::F32;
use super::rows::by_steps::{self, Step, number_bytes};
use super::{prefetch, prefetch_wide};

struct Vectors;

impl<const T: u8> Step<T> for Vectors {
    type Met = __m256i;
    type Factor = __m256;

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn none() -> __m256i {
        _mm256_setzero_si256()
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn meet(mut met: __m256i, from: *const u8) -> __m256i {
        let sign = _mm256_set1_ps(-0.0);
        for part in 0..4 {
            // SAFETY: passed on to the caller.
            let numbers = unsafe { load::<T>(from.add(8 * part * number_bytes(T))) };
            let magnitudes = _mm256_castps_si256(_mm256_andnot_ps(sign, numbers));
            met = _mm256_max_epu32(met, magnitudes);
        }
        met
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn largest(met: __m256i) -> u32 {
        let four = _mm_max_epu32(
            _mm256_castsi256_si128(met),
            _mm256_extracti128_si256::<1>(met),
        );
        let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
        let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
        _mm_cvtsi128_si32(one).cast_unsigned()
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn factor(value: f32) -> __m256 {
        _mm256_set1_ps(value)
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn quantize(from: *const u8, by: __m256, to: *mut u8) {
        // Packed lane by lane: the quarters are put in order again.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        // SAFETY: passed on to the caller.
        unsafe {
            let steps = [0, 1, 2, 3].map(|part| {
                let numbers = load::<T>(from.add(8 * part * number_bytes(T)));
                _mm256_cvtps_epi32(_mm256_mul_ps(numbers, by))
            });
            let front = _mm256_packs_epi32(steps[0], steps[1]);
            let back = _mm256_packs_epi32(steps[2], steps[3]);
            let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(front, back), order);
            _mm256_storeu_si256(to.cast(), bytes);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    unsafe fn dequantize(from: *const u8, scale: __m256, to: *mut u8) {
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

    #[inline(always)]
    fn ahead_of_numbers(from: *const u8) {
        prefetch_wide(from);
        if T == F32 {
            prefetch_wide(from.wrapping_add(64));
        }
    }

    #[inline(always)]
    fn ahead_of_multiples(from: *const u8) {
        prefetch(from);
    }
}

/// # Safety
/// As `rows::largest_of`; the machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn largest<const T: u8>(src: *const u8, count: usize) -> u32 {
    // SAFETY: passed on to the caller.
    unsafe { by_steps::largest::<Vectors, T>(src, count) }
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
    // SAFETY: passed on to the caller.
    unsafe { by_steps::quantize::<Vectors, T>(src, by, place, count) }
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
    // SAFETY: passed on to the caller.
    unsafe { by_steps::dequantize::<Vectors, T>(src, scale, place, count) }
}
