//! The dense code of ranks with AVX2. Which bytes go on is asked of 64 bytes at a time; a window of 8 of them is dealt out into 8 lanes by a table
//! over its mask: a code of `b0, b1, b2` becomes the lane `b0, b1, b2, 0`, and two multiplications make its rank.

use std::arch::x86_64::*;

use super::dense::Done;
use crate::rank_table::RankTable;

/// Source bytes whose mask is made at once, and of which a window is loaded.
const GROUP_BYTES: usize = 64;
const WINDOW_BYTES: usize = 8;

/// Decodes whole windows.
///
/// # Safety
/// The machine has the features; `W` is 2 or 4.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn decode<const W: usize>(table: &RankTable, src: &[u8], dst: &mut [u8]) -> Done {
    let (ids, mut done) = (table.ids(), Done::default());
    let elements = dst.len() / W;
    let stopper = _mm256_set1_epi8(table.stoppers().cast_signed());
    // Below 128: `STOPPERS` begins at 129.
    let c = i32::try_from(table.continuers()).unwrap_or(0);
    let by_byte = _mm256_set1_epi32(1 | c << 8 | c << 16);
    let by_pair = _mm256_set1_epi32(1 | c << 16);
    // A table has at most 2^21 entries.
    let last = _mm256_set1_epi32(i32::try_from(ids.len()).unwrap_or(0) - 1);
    // A window may begin at the group's last byte but seven, and 16 bytes are loaded.
    while src.len() - done.bytes >= GROUP_BYTES + WINDOW_BYTES {
        // SAFETY: the group lies in the source.
        let mask = unsafe { continues(src.as_ptr().add(done.bytes), stopper) };
        let mut at = 0;
        while at <= GROUP_BYTES - WINDOW_BYTES {
            let window = (mask >> at & 0xFF) as usize;
            // Three that go on, and room for the lanes.
            if window & window >> 1 & window >> 2 != 0 || elements - done.elements < 8 {
                done.bytes += at;
                return done;
            }
            // SAFETY: 16 bytes from here on lie in the source: `at` is at most 56, and the group has 8 bytes behind it. The table has an entry for
            // each window. Lanes are limited to ranks of the table before ids are gathered. There is room for 8 ids.
            let is_bad = unsafe {
                let bytes = _mm_loadu_si128(src.as_ptr().add(done.bytes + at).cast());
                let lanes = _mm256_loadu_si256(LANES.as_ptr().add(window).cast());
                let codes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), lanes);
                let ranks = _mm256_madd_epi16(_mm256_maddubs_epi16(codes, by_byte), by_pair);
                let known = _mm256_min_epu32(ranks, last);
                let found = _mm256_i32gather_epi32::<4>(ids.as_ptr().cast(), known);
                let to = dst.as_mut_ptr().add(done.elements * W);
                if W == 4 {
                    _mm256_storeu_si256(to.cast(), found);
                } else {
                    let pairs = _mm256_packus_epi32(found, found);
                    let pairs = _mm256_permute4x64_epi64::<0b10_00>(pairs);
                    _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(pairs));
                }
                let same = _mm256_cmpeq_epi32(ranks, known);
                _mm256_movemask_epi8(same) != -1
            };
            if is_bad {
                done.bytes += at;
                return done;
            }
            let stops = !window & 0xFF;
            done.elements += stops.count_ones() as usize;
            // Behind the last byte that ends a code.
            at += (usize::BITS - stops.leading_zeros()) as usize;
        }
        done.bytes += at;
    }
    done
}

/// Which of 64 bytes go on, a bit each.
///
/// # Safety
/// 64 bytes can be read.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn continues(from: *const u8, stopper: __m256i) -> u64 {
    let half = |at: usize| {
        // SAFETY: passed on to the caller.
        let bytes = unsafe { _mm256_loadu_si256(from.add(at).cast()) };
        let is_on = _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, stopper), bytes);
        u64::from(_mm256_movemask_epi8(is_on).cast_unsigned())
    };
    half(0) | half(32) << 32
}

/// For each mask of a window: the byte for each byte of the 8 lanes of its codes, or none.
static LANES: [[u8; 32]; 256] = {
    const NONE: u8 = 0x80;
    let mut table = [[NONE; 32]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut digit, mut byte) = (0, 0, 0);
        while byte < 8 {
            if digit < 3 {
                table[mask][4 * lane + digit] = byte;
            }
            if mask >> byte & 1 == 0 {
                lane += 1;
                digit = 0;
            } else {
                digit += 1;
            }
            byte += 1;
        }
        // What ends outside the window is no code of it.
        while digit > 0 {
            digit -= 1;
            if digit < 3 {
                table[mask][4 * lane + digit] = NONE;
            }
        }
        mask += 1;
    }
    table
};
