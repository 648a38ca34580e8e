//! The smallest and largest of what went through AVX2 registers.

use std::arch::x86_64::*;

/// The smallest and largest unsigned value so far in each lane of `BYTES` bytes: 1, 2 or 4.
pub(super) struct Extent<const BYTES: usize> {
    min: __m256i,
    max: __m256i,
}

impl<const BYTES: usize> Extent<BYTES> {
    /// Of no values: the smallest is the largest of the type, and the other way round.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn nothing() -> Self {
        Extent {
            min: _mm256_set1_epi8(-1),
            max: _mm256_setzero_si256(),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn add(&mut self, values: __m256i) {
        self.min = Self::lesser(self.min, values);
        self.max = Self::greater(self.max, values);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn min(&self) -> u64 {
        Self::fold(self.min, |a, b| Self::lesser(a, b))
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn max(&self) -> u64 {
        Self::fold(self.max, |a, b| Self::greater(a, b))
    }

    /// Halves the vector onto itself until one lane is left.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn fold(mut v: __m256i, pick: impl Fn(__m256i, __m256i) -> __m256i) -> u64 {
        v = pick(v, _mm256_permute2x128_si256::<1>(v, v));
        v = pick(v, _mm256_shuffle_epi32::<0b01_00_11_10>(v));
        v = pick(v, _mm256_shuffle_epi32::<0b10_11_00_01>(v));
        if BYTES <= 2 {
            v = pick(v, _mm256_srli_epi32::<16>(v));
        }
        if BYTES == 1 {
            v = pick(v, _mm256_srli_epi16::<8>(v));
        }
        let low = _mm_cvtsi128_si32(_mm256_castsi256_si128(v)).cast_unsigned();
        u64::from(low & (u32::MAX >> (32 - 8 * BYTES)))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn lesser(a: __m256i, b: __m256i) -> __m256i {
        match BYTES {
            1 => _mm256_min_epu8(a, b),
            2 => _mm256_min_epu16(a, b),
            _ => _mm256_min_epu32(a, b),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn greater(a: __m256i, b: __m256i) -> __m256i {
        match BYTES {
            1 => _mm256_max_epu8(a, b),
            2 => _mm256_max_epu16(a, b),
            _ => _mm256_max_epu32(a, b),
        }
    }
}
