//! The dense code of ranks with AVX-512 VBMI2: 64 bytes at a time, wherever codes begin in them. Three vectors of the same bytes, the second and third one and two
//! bytes further on, hold at the place of each first byte all that a code can have; the places of first bytes are brought together in all three.

use std::arch::x86_64::*;

use super::dense::{At, Collected, GROUP_BYTES, LOADED_BYTES, Ranks};
use crate::rank_table::RankTable;

/// What makes ranks of bytes.
pub(super) struct Code {
    stoppers: __m512i,
    /// Factors of the first two bytes of a code, 1 and c, and of the third.
    by_byte: __m512i,
    by_third: __m512i,
}

impl Code {
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) fn of(table: &RankTable) -> Code {
        // Below 128: `STOPPERS` begins at 129.
        let c = i16::try_from(table.continuers()).unwrap_or(0);
        Code {
            stoppers: _mm512_set1_epi8(table.stoppers().cast_signed()),
            by_byte: _mm512_set1_epi16(1 | (c << 8)),
            by_third: _mm512_set1_epi32(i32::from(c) * i32::from(c)),
        }
    }

    /// Collects ranks from `at` on, as long as there is input and, of `room`, room for a group's.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
    pub(super) fn collect(
        &self,
        src: &[u8],
        mut at: At,
        ranks: &mut Ranks,
        room: usize,
    ) -> Collected {
        let room = room.min(ranks.len());
        let (mut done, mut largest) = (0, _mm512_setzero_si512());
        while src.len() - at.byte >= LOADED_BYTES && done + GROUP_BYTES <= room {
            // SAFETY: a group and two bytes lie in the source; there is room for a rank of each of its bytes.
            unsafe {
                let from = src.as_ptr().add(at.byte);
                let bytes = [0, 1, 2].map(|i| _mm512_loadu_si512(from.add(i).cast()));
                let first = _mm512_cmpge_epu8_mask(bytes[0], self.stoppers);
                let both = first & _mm512_cmpge_epu8_mask(bytes[1], self.stoppers);
                let starts = (!first << 1) | u64::from(at.is_start);
                let b0 = _mm512_maskz_compress_epi8(starts, bytes[0]);
                let b1 = _mm512_maskz_mov_epi8(first, bytes[1]);
                let b1 = _mm512_maskz_compress_epi8(starts, b1);
                let b2 = _mm512_maskz_mov_epi8(both, bytes[2]);
                let b2 = _mm512_maskz_compress_epi8(starts, b2);
                for (i, found) in self.ranks(b0, b1, b2).into_iter().enumerate() {
                    // Lanes without a code are zero.
                    largest = _mm512_max_epu32(largest, found);
                    _mm512_storeu_si512(ranks.as_mut_ptr().add(done + 16 * i).cast(), found);
                }
                done += starts.count_ones() as usize;
                at.is_start = first >> 63 == 0;
            }
            at.byte += GROUP_BYTES;
        }
        Collected {
            count: done,
            largest: _mm512_reduce_max_epu32(largest),
            next: at,
        }
    }

    /// The ranks of 64 codes, by their first, second and third bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn ranks(&self, b0: __m512i, b1: __m512i, b2: __m512i) -> [__m512i; 4] {
        let [lower, upper] = [&LOWER, &UPPER].map(|index| {
            // SAFETY: 64 bytes.
            let index = unsafe { _mm512_loadu_si512(index.as_ptr().cast()) };
            let pairs = _mm512_permutex2var_epi8(b0, index, b1);
            _mm512_maddubs_epi16(pairs, self.by_byte)
        });
        let rank = |two: __m256i, third: __m128i| {
            let third = _mm512_madd_epi16(_mm512_cvtepu8_epi32(third), self.by_third);
            _mm512_add_epi32(_mm512_cvtepu16_epi32(two), third)
        };
        [
            rank(_mm512_castsi512_si256(lower), _mm512_castsi512_si128(b2)),
            rank(
                _mm512_extracti64x4_epi64::<1>(lower),
                _mm512_extracti32x4_epi32::<1>(b2),
            ),
            rank(
                _mm512_castsi512_si256(upper),
                _mm512_extracti32x4_epi32::<2>(b2),
            ),
            rank(
                _mm512_extracti64x4_epi64::<1>(upper),
                _mm512_extracti32x4_epi32::<3>(b2),
            ),
        ]
    }
}

/// Bytes of two vectors by turns, 64 and on being the second's: from byte `first` of both on.
const fn by_turns(first: u8) -> [u8; 64] {
    let mut index = [0; 64];
    let mut i = 0;
    while i < 64 {
        index[i as usize] = first + i / 2 + 64 * (i % 2);
        i += 1;
    }
    index
}

static LOWER: [u8; 64] = by_turns(0);
static UPPER: [u8; 64] = by_turns(32);
