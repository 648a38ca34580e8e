//! Floating point to floating point with AVX-512, one vector of the wider type a step. Else as `avx2_floats.rs`.
//!
//! The instructions of AVX512-BF16 are not used: they take subnormal numbers for zeros.

use std::arch::x86_64::*;

use super::float_kernels::{choice, kernel};

choice!();

kernel!(avx512, bf16_to_f32, 16, 2, 4, prefetch, |from, to| {
    let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
    _mm512_storeu_si512(to.cast(), _mm512_slli_epi32::<16>(bits));
});

kernel!(avx512, f16_to_f32, 16, 2, 4, prefetch, |from, to| {
    let bits = _mm256_loadu_si256(from.cast());
    let wide = _mm512_cvtph_ps(bits);
    let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(wide, wide);
    // The quiet bit was set; where the source's is not, it is cleared again.
    let source = _mm512_slli_epi32::<13>(_mm512_cvtepu16_epi32(bits));
    let set = _mm512_andnot_si512(source, _mm512_set1_epi32(0x0040_0000));
    let wide = _mm512_castps_si512(wide);
    let kept = _mm512_mask_andnot_epi32(wide, is_nan, set, wide);
    _mm512_storeu_si512(to.cast(), kept);
});

kernel!(avx512, f32_to_f64, 8, 4, 8, prefetch, |from, to| {
    let narrow = _mm256_loadu_ps(from.cast());
    let wide = _mm512_cvtps_pd(narrow);
    let is_nan = _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(wide, wide);
    let source = _mm512_slli_epi64::<29>(_mm512_cvtepu32_epi64(_mm256_castps_si256(narrow)));
    let set = _mm512_andnot_si512(source, _mm512_set1_epi64(0x0008_0000_0000_0000));
    let wide = _mm512_castpd_si512(wide);
    let kept = _mm512_mask_andnot_epi64(wide, is_nan, set, wide);
    _mm512_storeu_si512(to.cast(), kept);
});

kernel!(avx512, f32_to_bf16, 16, 4, 2, prefetch_wide, |from, to| {
    let bits = _mm512_loadu_si512(from.cast());
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    let numbers = _mm512_castsi512_ps(bits);
    let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(numbers, numbers);
    let rounded = _mm512_add_epi32(bits, bias);
    let quiet = _mm512_set1_epi32(0x0040_0000);
    let result = _mm512_mask_or_epi32(rounded, is_nan, bits, quiet);
    let narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(result));
    _mm256_storeu_si256(to.cast(), narrow);
});

kernel!(avx512, f32_to_f16, 16, 4, 2, prefetch_wide, |from, to| {
    let wide = _mm512_loadu_ps(from.cast());
    let narrow = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(wide);
    _mm256_storeu_si256(to.cast(), narrow);
});

kernel!(avx512, f64_to_f32, 8, 8, 4, prefetch_wide, |from, to| {
    let wide = _mm512_loadu_pd(from.cast());
    _mm256_storeu_ps(to.cast(), _mm512_cvtpd_ps(wide));
});
