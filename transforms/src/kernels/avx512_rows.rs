//! Rows of numbers with a scale, with AVX-512: two vectors are a step.

use std::arch::x86_64::*;

use super::avx512_q8::{load, store};
use super::place::Place;
use super::q8::F32;
use super::rows::by_steps::{self, Step, number_bytes};
use super::{prefetch, prefetch_wide};

struct Vectors;

impl<const T: u8> Step<T> for Vectors {
    type Met = __m512i;
    type Factor = __m512;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn none() -> __m512i {
        _mm512_setzero_si512()
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn meet(met: __m512i, from: *const u8) -> __m512i {
        let sign = _mm512_set1_ps(-0.0);
        // SAFETY: passed on to the caller.
        let numbers = unsafe { [load::<T>(from), load::<T>(from.add(16 * number_bytes(T)))] };
        let [a, b] = numbers.map(|it| _mm512_castps_si512(_mm512_andnot_ps(sign, it)));
        _mm512_max_epu32(met, _mm512_max_epu32(a, b))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn largest(met: __m512i) -> u32 {
        _mm512_reduce_max_epu32(met)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn factor(value: f32) -> __m512 {
        _mm512_set1_ps(value)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn quantize(from: *const u8, by: __m512, to: *mut u8) {
        // SAFETY: passed on to the caller.
        unsafe {
            for part in 0..2 {
                let numbers = load::<T>(from.add(16 * part * number_bytes(T)));
                let steps = _mm512_cvtps_epi32(_mm512_mul_ps(numbers, by));
                _mm_storeu_si128(to.add(16 * part).cast(), _mm512_cvtepi32_epi8(steps));
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    unsafe fn dequantize(from: *const u8, scale: __m512, to: *mut u8) {
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
/// As `rows::largest_of`; the machine has AVX-512 F, BW, VL and DQ.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn largest<const T: u8>(src: *const u8, count: usize) -> u32 {
    // SAFETY: passed on to the caller.
    unsafe { by_steps::largest::<Vectors, T>(src, count) }
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
    // SAFETY: passed on to the caller.
    unsafe { by_steps::quantize::<Vectors, T>(src, by, place, count) }
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
    // SAFETY: passed on to the caller.
    unsafe { by_steps::dequantize::<Vectors, T>(src, scale, place, count) }
}
