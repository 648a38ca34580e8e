//! The dense code of ranks with AVX2. Which bytes go on is asked of 64 bytes at a time; a window of 8 of them is dealt out into 8 lanes by a table
//! over its mask: a code of `b0, b1, b2` becomes the lane `b0, b1, b2, 0`, and two multiplications make its rank. Ranks are collected, and become
//! ids some hundreds at a time: by single loads, of which a core does more than of lanes that are gathered.

use std::arch::x86_64::*;

use super::dense::Done;
use crate::rank_table::RankTable;

/// Source bytes whose mask is made at once, and of which a window is loaded.
const GROUP_BYTES: usize = 64;
const WINDOW_BYTES: usize = 8;
const GROUP_WINDOWS: usize = GROUP_BYTES / WINDOW_BYTES;
/// Ranks that are collected.
const RANKS: usize = 256;
/// Lanes of a window: it has at most so many codes.
const LANES_MAX: usize = 8;

/// Decodes while there is input for a group and room for all ranks that are collected.
///
/// # Safety
/// The machine has the features; `W` is 2 or 4.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn decode<const W: usize>(table: &RankTable, src: &[u8], dst: &mut [u8]) -> Done {
    let (ids, mut done) = (table.ids(), Done::default());
    let elements = dst.len() / W;
    let code = Code::of(table);
    let mut ranks = [0u32; RANKS];
    while elements - done.elements >= RANKS {
        let (read, largest) = code.collect(&src[done.bytes..], &mut ranks);
        if read.elements == 0 || largest as usize >= ids.len() {
            break;
        }
        let to = &mut dst[done.elements * W..][..read.elements * W];
        for (rank, to) in ranks.iter().zip(to.chunks_exact_mut(W)) {
            // SAFETY: no rank is larger than `largest`, which was compared with the length.
            let id = unsafe { ids.get_unchecked(*rank as usize) };
            to.copy_from_slice(&id.to_le_bytes()[..W]);
        }
        done.bytes += read.bytes;
        done.elements += read.elements;
    }
    done
}

/// What makes ranks of bytes.
struct Code {
    stoppers: __m256i,
    /// Factors of the bytes of a lane: 1, c, c, 0; and of the two sums of those: 1, c.
    by_byte: __m256i,
    by_pair: __m256i,
}

impl Code {
    #[target_feature(enable = "avx2")]
    fn of(table: &RankTable) -> Code {
        // Below 128: `STOPPERS` begins at 129.
        let c = i32::try_from(table.continuers()).unwrap_or(0);
        Code {
            stoppers: _mm256_set1_epi8(table.stoppers().cast_signed()),
            by_byte: _mm256_set1_epi32(1 | c << 8 | c << 16),
            by_pair: _mm256_set1_epi32(1 | c << 16),
        }
    }

    /// Ranks from the start of `src` on, as many as there is room and input for, before a code that does not end; and the largest of them.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    fn collect(&self, src: &[u8], ranks: &mut [u32; RANKS]) -> (Done, u32) {
        let mut done = Done::default();
        let mut largest = _mm256_setzero_si256();
        // A window may begin at the group's last byte but seven, and 16 bytes are loaded.
        while src.len() - done.bytes >= GROUP_BYTES + WINDOW_BYTES
            && done.elements <= RANKS - GROUP_WINDOWS * LANES_MAX
        {
            // SAFETY: the group lies in the source.
            let mask = unsafe { self.continues(src.as_ptr().add(done.bytes)) };
            let mut at = 0;
            // As many as there are bytes for, however many each takes: a number that is always the same is foreseen.
            for _ in 0..GROUP_WINDOWS {
                let window = (mask >> at & 0xFF) as usize;
                // Three that go on.
                if window & window >> 1 & window >> 2 != 0 {
                    done.bytes += at;
                    return (done, greatest(largest));
                }
                // SAFETY: 16 bytes from here on lie in the source: each window took at most 8, so that `at` is at most 56, and the group has 8
                // bytes behind it. The table has an entry for each window. There is room for 8 ranks of each window.
                unsafe {
                    let bytes = _mm_loadu_si128(src.as_ptr().add(done.bytes + at).cast());
                    let lanes = _mm256_loadu_si256(LANES.as_ptr().add(window).cast());
                    let codes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), lanes);
                    let pairs = _mm256_maddubs_epi16(codes, self.by_byte);
                    let found = _mm256_madd_epi16(pairs, self.by_pair);
                    largest = _mm256_max_epu32(largest, found);
                    _mm256_storeu_si256(ranks.as_mut_ptr().add(done.elements).cast(), found);
                }
                let stops = !window & 0xFF;
                done.elements += stops.count_ones() as usize;
                // Behind the last byte that ends a code.
                at += (usize::BITS - stops.leading_zeros()) as usize;
            }
            done.bytes += at;
        }
        (done, greatest(largest))
    }

    /// Which of 64 bytes go on, a bit each.
    ///
    /// # Safety
    /// 64 bytes can be read.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn continues(&self, from: *const u8) -> u64 {
        let half = |at: usize| {
            // SAFETY: passed on to the caller.
            let bytes = unsafe { _mm256_loadu_si256(from.add(at).cast()) };
            let is_on = _mm256_cmpeq_epi8(_mm256_max_epu8(bytes, self.stoppers), bytes);
            u64::from(_mm256_movemask_epi8(is_on).cast_unsigned())
        };
        half(0) | half(32) << 32
    }
}

/// The greatest of 8 lanes.
#[target_feature(enable = "avx2")]
fn greatest(lanes: __m256i) -> u32 {
    let mut all = [0u32; 8];
    // SAFETY: 32 bytes.
    unsafe { _mm256_storeu_si256(all.as_mut_ptr().cast(), lanes) };
    all.into_iter().fold(0, u32::max)
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
