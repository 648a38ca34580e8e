//! Floating point to floating point with AVX2 and F16C. Each step works on 8 or 16 elements.
//!
//! The instructions round as the definition does, subnormal numbers included, and narrow a NaN as it does; where they widen one they make it
//! quiet, which is undone.

use std::arch::x86_64::*;

use super::float_kernels::{choice, kernel};

choice!();

kernel!(avx2, bf16_to_f32, 16, 2, 4, prefetch, |from, to| {
    for half in 0..2 {
        let bits = _mm_loadu_si128(from.add(half * 16).cast());
        let wide = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits));
        _mm256_storeu_si256(to.add(half * 32).cast(), wide);
    }
});

kernel!(avx2, f16_to_f32, 16, 2, 4, prefetch, |from, to| {
    for half in 0..2 {
        let bits = _mm_loadu_si128(from.add(half * 16).cast());
        let wide = _mm256_cvtph_ps(bits);
        let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(wide, wide));
        // The quiet bit was set; where the source's is not, it is cleared again.
        let source = _mm256_slli_epi32::<13>(_mm256_cvtepu16_epi32(bits));
        let quiet = _mm256_and_si256(is_nan, _mm256_set1_epi32(0x0040_0000));
        let set = _mm256_andnot_si256(source, quiet);
        let kept = _mm256_andnot_si256(set, _mm256_castps_si256(wide));
        _mm256_storeu_si256(to.add(half * 32).cast(), kept);
    }
});

kernel!(avx2, f32_to_f64, 8, 4, 8, prefetch, |from, to| {
    for half in 0..2 {
        let narrow = _mm_loadu_ps(from.add(half * 16).cast());
        let wide = _mm256_cvtps_pd(narrow);
        let is_nan = _mm256_castpd_si256(_mm256_cmp_pd::<_CMP_UNORD_Q>(wide, wide));
        let source = _mm256_slli_epi64::<29>(_mm256_cvtepu32_epi64(_mm_castps_si128(narrow)));
        let quiet = _mm256_and_si256(is_nan, _mm256_set1_epi64x(0x0008_0000_0000_0000));
        let set = _mm256_andnot_si256(source, quiet);
        let kept = _mm256_andnot_si256(set, _mm256_castpd_si256(wide));
        _mm256_storeu_si256(to.add(half * 32).cast(), kept);
    }
});

kernel!(avx2, f32_to_bf16, 16, 4, 2, prefetch_wide, |from, to| {
    let low = rounded_to_bf16(_mm256_loadu_si256(from.cast()));
    let high = rounded_to_bf16(_mm256_loadu_si256(from.add(32).cast()));
    // Packed lane by lane: the quarters are put in order again.
    let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
    _mm256_storeu_si256(to.cast(), packed);
});

/// The upper halves of the rounded elements, in the lower halves of theirs.
#[inline]
#[target_feature(enable = "avx2")]
fn rounded_to_bf16(bits: __m256i) -> __m256i {
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
    let rounded = _mm256_add_epi32(bits, bias);
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
    let numbers = _mm256_castsi256_ps(bits);
    let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(numbers, numbers));
    _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, is_nan))
}

kernel!(avx2, f32_to_f16, 16, 4, 2, prefetch_wide, |from, to| {
    for half in 0..2 {
        let wide = _mm256_loadu_ps(from.add(half * 32).cast());
        let narrow = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
        _mm_storeu_si128(to.add(half * 16).cast(), narrow);
    }
});

kernel!(avx2, f64_to_f32, 8, 8, 4, prefetch_wide, |from, to| {
    for half in 0..2 {
        let wide = _mm256_loadu_pd(from.add(half * 32).cast());
        _mm_storeu_ps(to.add(half * 16).cast(), _mm256_cvtpd_ps(wide));
    }
});
