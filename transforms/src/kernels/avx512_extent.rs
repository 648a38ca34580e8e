//! The smallest and largest of what went through AVX-512 registers.

#![allow(clippy::cast_possible_wrap)] // vectors are typed signed by the intrinsics

use std::arch::x86_64::*;

/// The smallest and largest value so far in each lane of `BYTES` bytes.
pub(super) struct Extent<const BYTES: usize, const SIGNED: bool> {
    min: __m512i,
    max: __m512i,
}

impl<const BYTES: usize, const SIGNED: bool> Extent<BYTES, SIGNED> {
    /// Of no values: the smallest is the largest of the type, and the other way round.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn nothing() -> Self {
        let ones = _mm512_set1_epi64(-1);
        let lowest = match (BYTES, SIGNED) {
            (_, false) => _mm512_setzero_si512(),
            (1, true) => _mm512_set1_epi8(i8::MIN),
            (2, true) => _mm512_set1_epi16(i16::MIN),
            (4, true) => _mm512_set1_epi32(i32::MIN),
            (_, true) => _mm512_set1_epi64(i64::MIN),
        };
        Extent {
            min: _mm512_xor_si512(lowest, ones),
            max: lowest,
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn add(&mut self, values: __m512i) {
        self.min = Self::lesser(self.min, values);
        self.max = Self::greater(self.max, values);
    }

    /// The bits of the smallest value, sign-extended when the type is signed.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn min(&self) -> u64 {
        Self::fold(self.min, |a, b| Self::lesser(a, b))
    }

    /// The bits of the largest value, sign-extended when the type is signed.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn max(&self) -> u64 {
        Self::fold(self.max, |a, b| Self::greater(a, b))
    }

    /// Halves the vector onto itself until one lane is left.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn fold(mut v: __m512i, pick: impl Fn(__m512i, __m512i) -> __m512i) -> u64 {
        v = pick(v, _mm512_shuffle_i64x2::<0b01_00_11_10>(v, v));
        v = pick(v, _mm512_shuffle_i64x2::<0b10_11_00_01>(v, v));
        v = pick(v, _mm512_shuffle_epi32::<0b01_00_11_10>(v));
        if BYTES <= 4 {
            v = pick(v, _mm512_shuffle_epi32::<0b10_11_00_01>(v));
        }
        if BYTES <= 2 {
            v = pick(v, _mm512_srli_epi32::<16>(v));
        }
        if BYTES == 1 {
            v = pick(v, _mm512_srli_epi16::<8>(v));
        }
        let low = _mm_cvtsi128_si64(_mm512_castsi512_si128(v)).cast_unsigned();
        let unused = 64 - 8 * BYTES;
        if SIGNED {
            ((low << unused).cast_signed() >> unused).cast_unsigned()
        } else {
            (low << unused) >> unused
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn lesser(a: __m512i, b: __m512i) -> __m512i {
        match (BYTES, SIGNED) {
            (1, false) => _mm512_min_epu8(a, b),
            (1, true) => _mm512_min_epi8(a, b),
            (2, false) => _mm512_min_epu16(a, b),
            (2, true) => _mm512_min_epi16(a, b),
            (4, false) => _mm512_min_epu32(a, b),
            (4, true) => _mm512_min_epi32(a, b),
            (_, false) => _mm512_min_epu64(a, b),
            (_, true) => _mm512_min_epi64(a, b),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn greater(a: __m512i, b: __m512i) -> __m512i {
        match (BYTES, SIGNED) {
            (1, false) => _mm512_max_epu8(a, b),
            (1, true) => _mm512_max_epi8(a, b),
            (2, false) => _mm512_max_epu16(a, b),
            (2, true) => _mm512_max_epi16(a, b),
            (4, false) => _mm512_max_epu32(a, b),
            (4, true) => _mm512_max_epi32(a, b),
            (_, false) => _mm512_max_epu64(a, b),
            (_, true) => _mm512_max_epi64(a, b),
        }
    }
}
