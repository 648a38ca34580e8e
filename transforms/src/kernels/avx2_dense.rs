//! The dense code of ranks with AVX2: the rank that begins at each of 64 bytes, 8 at a time in lanes of 32 bits, of which a table over the mask of first bytes picks
//! those that are there.

use std::arch::x86_64::*;

use super::dense::{At, Collected, GROUP_BYTES, LOADED_BYTES, Ranks};
use crate::rank_table::RankTable;

/// Bytes of which vectors make ranks, and of which a mask picks some.
const VECTOR_BYTES: usize = 32;
const LANES: usize = 8;

/// What makes ranks of bytes.
pub(super) struct Code {
    stoppers: __m256i,
    /// Factors of the first two bytes of a code, 1 and c.
    by_byte: __m256i,
    /// Factors of their sum, and of the third byte: 1 and c^2.
    by_third: __m256i,
}

/// 32 bytes: the ranks that begin at them, and which of them go on, a bit each.
struct Vector {
    ranks: [__m256i; VECTOR_BYTES / LANES],
    goes_on: u64,
}

impl Code {
    #[target_feature(enable = "avx2")]
    pub(super) fn of(table: &RankTable) -> Code {
        // Below 128: `STOPPERS` begins at 129.
        let c = i32::try_from(table.continuers()).unwrap_or(0);
        Code {
            stoppers: _mm256_set1_epi8(table.stoppers().cast_signed()),
            by_byte: _mm256_set1_epi32(1 | (c << 8) | (1 << 16) | (c << 24)),
            by_third: _mm256_set1_epi32(1 | ((c * c) << 16)),
        }
    }

    /// Collects ranks from `at` on, as long as there is input and, of `room`, room for a group's.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub(super) fn collect(
        &self,
        src: &[u8],
        mut at: At,
        ranks: &mut Ranks,
        room: usize,
    ) -> Collected {
        let room = room.min(ranks.len());
        let (mut count, mut largest) = (0, _mm256_setzero_si256());
        while src.len() - at.byte >= LOADED_BYTES && count + GROUP_BYTES <= room {
            // SAFETY: a group and two bytes lie in the source.
            let (front, back) = unsafe {
                let from = src.as_ptr().add(at.byte);
                (self.vector(from), self.vector(from.add(VECTOR_BYTES)))
            };
            let goes_on = front.goes_on | (back.goes_on << VECTOR_BYTES);
            let mut starts = (!goes_on << 1) | u64::from(at.is_start);
            let [[a, b, c, d], [e, f, g, h]] = [front.ranks, back.ranks];
            for begin in [a, b, c, d, e, f, g, h] {
                let mask = (starts & 0xFF) as usize;
                starts >>= LANES;
                // SAFETY: an entry is 8 bytes; there is room for a rank of each byte of the group.
                unsafe {
                    let lanes =
                        _mm256_cvtepu8_epi32(_mm_loadl_epi64(PICKED.as_ptr().add(mask).cast()));
                    let found = _mm256_permutevar8x32_epi32(begin, lanes);
                    largest = _mm256_max_epu32(largest, found);
                    _mm256_storeu_si256(ranks.as_mut_ptr().add(count).cast(), found);
                }
                count += mask.count_ones() as usize;
            }
            at.is_start = goes_on >> (GROUP_BYTES - 1) == 0;
            at.byte += GROUP_BYTES;
        }
        Collected {
            count,
            largest: greatest(largest),
            next: at,
        }
    }

    /// # Safety
    /// 34 bytes can be read.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn vector(&self, from: *const u8) -> Vector {
        // SAFETY: promised by the caller.
        let bytes = [0, 1, 2].map(|i| unsafe { _mm256_loadu_si256(from.add(i).cast()) });
        let goes_on = |bytes| _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, self.stoppers), bytes);
        let first = goes_on(bytes[0]);
        let both = _mm256_and_si256(first, goes_on(bytes[1]));
        let b1 = _mm256_and_si256(bytes[1], first);
        let b2 = _mm256_and_si256(bytes[2], both);
        // In each half of a vector: the lower 8 bytes of its 16, and the upper ones.
        let zero = _mm256_setzero_si256();
        let lower = (
            _mm256_unpacklo_epi8(bytes[0], b1),
            _mm256_unpacklo_epi8(b2, zero),
        );
        let upper = (
            _mm256_unpackhi_epi8(bytes[0], b1),
            _mm256_unpackhi_epi8(b2, zero),
        );
        let [lower, upper] = [lower, upper].map(|(two, third)| {
            let two = _mm256_maddubs_epi16(two, self.by_byte);
            let front = _mm256_madd_epi16(_mm256_unpacklo_epi16(two, third), self.by_third);
            let back = _mm256_madd_epi16(_mm256_unpackhi_epi16(two, third), self.by_third);
            [
                _mm256_permute2x128_si256::<0x20>(front, back),
                _mm256_permute2x128_si256::<0x31>(front, back),
            ]
        });
        Vector {
            ranks: [lower[0], upper[0], lower[1], upper[1]],
            goes_on: u64::from(_mm256_movemask_epi8(first).cast_unsigned()),
        }
    }
}

/// The greatest of 8 lanes.
#[target_feature(enable = "avx2")]
fn greatest(lanes: __m256i) -> u32 {
    let mut all = [0u32; LANES];
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(all.as_mut_ptr().cast(), lanes) };
    all.into_iter().fold(0, u32::max)
}

/// For each mask of 8 lanes, those that are in it, one behind the other; then the first of them again, so that no lane has a rank that is not there. (None is in
/// the mask 0, which no 8 bytes of codes have.)
#[allow(clippy::cast_possible_truncation)] // lanes are below 8
static PICKED: [[u8; LANES]; 1 << LANES] = {
    let mut table = [[0; LANES]; 1 << LANES];
    let mut mask = 1usize;
    while mask < table.len() {
        table[mask] = [mask.trailing_zeros() as u8; LANES];
        let (mut lane, mut to) = (0, 0);
        while lane < LANES {
            if mask >> lane & 1 == 1 {
                table[mask][to] = lane as u8;
                to += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    table
};
