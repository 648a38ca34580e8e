//! Bit packing with AVX2: 4 fields in each 128-bit lane, moved by `vpshufb`. Elements of 1 and 2 bytes: `avx2_narrow.rs`.

#![allow(clippy::cast_possible_wrap)] // vectors are typed signed by the intrinsics

use std::arch::x86_64::*;

use super::avx2_extent::Extent;
use super::avx2_narrow;
use super::place::Place;
use super::tables::LANES;
use super::{prefetch, prefetch_wide};

/// Unpacks most of `count` fields, the first at bit 0 of `src`, into elements of `W` bytes. Returns how many (a multiple of 8), and
/// the smallest and largest.
///
/// # Safety
/// The machine has the features; `src` holds the fields, and `place` has room for `count` elements.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn unpack<const W: usize>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    debug_assert!(bits as usize <= 8 * W && src.len() * 8 >= count * bits as usize);
    // SAFETY: passed on to the caller.
    unsafe {
        match (W, bits) {
            (1, _) => avx2_narrow::unpack_bytes(bits, src, place, count),
            (2, _) => avx2_narrow::unpack_shorts(bits, src, place, count),
            // A field of 27 bits that starts at bit 7 lies in 5 bytes. (None of 26 bits starts at an odd bit.)
            (_, 27..) => unpack_lanes::<W, true>(bits, src, place, count),
            _ => unpack_lanes::<W, false>(bits, src, place, count),
        }
    }
}

/// Elements of 4 and 8 bytes.
///
/// # Safety
/// As [`unpack`].
#[target_feature(enable = "avx2")]
unsafe fn unpack_lanes<const W: usize, const FIFTH: bool>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    let table = &LANES[bits as usize - 1];
    // SAFETY: the tables are 32 bytes each.
    let (gather, fifth, shift) = unsafe {
        (
            _mm256_loadu_si256(table.gather.as_ptr().cast()),
            _mm256_loadu_si256(table.gather_fifth.as_ptr().cast()),
            _mm256_loadu_si256(table.shift.as_ptr().cast()),
        )
    };
    let unshift = _mm256_sub_epi32(_mm256_set1_epi32(32), shift);
    let mask = _mm256_set1_epi32((u32::MAX >> (32 - bits)) as i32);
    let mut seen = Extent::<4>::nothing();
    let eights = whole_steps(8, bits, src.len(), count);
    let mut pen = place.pen();
    for i in 0..eights {
        // SAFETY: `whole_steps` leaves 32 bytes behind the start of every group; the place has 8 elements for it.
        unsafe {
            let from = src.as_ptr().add(i * bits as usize);
            prefetch(from);
            let lanes = _mm256_loadu2_m128i(from.add(table.lane_bytes).cast(), from.cast());
            let mut values = _mm256_srlv_epi32(_mm256_shuffle_epi8(lanes, gather), shift);
            if FIFTH {
                let upper = _mm256_sllv_epi32(_mm256_shuffle_epi8(lanes, fifth), unshift);
                values = _mm256_or_si256(values, upper);
            }
            values = _mm256_and_si256(values, mask);
            seen.add(values);
            let to = pen.at();
            if W == 4 {
                _mm256_storeu_si256(to.cast(), values);
            } else {
                let lower = _mm256_cvtepu32_epi64(_mm256_castsi256_si128(values));
                let upper = _mm256_cvtepu32_epi64(_mm256_extracti128_si256(values, 1));
                _mm256_storeu_si256(to.cast(), lower);
                _mm256_storeu_si256(to.add(32).cast(), upper);
            }
            pen.advance(8 * W, place);
        }
    }
    place.put_back(pen);
    (eights * 8, seen.min(), seen.max())
}

/// Packs most of `count` elements of `W` bytes, the first field at a whole byte. Returns how many (a multiple of 8), and the smallest
/// and largest.
///
/// # Safety
/// The machine has the features; `src` holds `count` elements, and `place` has room for their fields.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn pack<const W: usize>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    debug_assert!(src.len() >= count * W);
    // SAFETY: passed on to the caller.
    unsafe {
        match (W, bits) {
            (1, ..=7) => avx2_narrow::pack_bytes(bits, src, place, count),
            (2, ..=16) => avx2_narrow::pack_shorts(bits, src, place, count),
            (_, 31) => pack_lanes::<W, true>(bits, src, place, count),
            _ => pack_lanes::<W, false>(bits, src, place, count),
        }
    }
}

/// # Safety
/// As [`pack`].
#[target_feature(enable = "avx2")]
unsafe fn pack_lanes<const W: usize, const SPILL: bool>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    let table = &LANES[bits as usize - 1];
    // SAFETY: the tables are 32 bytes each, `carry` 16.
    let (even, odd, spill, pair_shift, carry) = unsafe {
        (
            _mm256_loadu_si256(table.scatter_even.as_ptr().cast()),
            _mm256_loadu_si256(table.scatter_odd.as_ptr().cast()),
            _mm256_loadu_si256(table.scatter_spill.as_ptr().cast()),
            _mm256_loadu_si256(table.pair_shift.as_ptr().cast()),
            _mm_loadu_si128(table.carry.as_ptr().cast()),
        )
    };
    let spill_shift = _mm256_sub_epi64(_mm256_set1_epi64x(64), pair_shift);
    let low = _mm256_set1_epi64x(0xFFFF_FFFF);
    let field = _mm_cvtsi32_si128(bits as i32);
    let mut seen = Extent::<4>::nothing();
    let mut all = _mm256_setzero_si256();
    let eights = whole_steps(8, bits, place.room(), count);
    let mut pen = place.pen();
    for i in 0..eights {
        // SAFETY: the source has 8 elements for group `i`; `whole_steps` leaves 32 bytes of the place behind its start.
        unsafe {
            let from = src.as_ptr().add(i * 8 * W);
            prefetch_wide(from);
            let values = match W {
                1 => _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())),
                2 => _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())),
                4 => _mm256_loadu_si256(from.cast()),
                _ => {
                    let lower = _mm256_loadu_si256(from.cast());
                    let upper = _mm256_loadu_si256(from.add(32).cast());
                    all = _mm256_or_si256(all, _mm256_or_si256(lower, upper));
                    low_halves(lower, upper)
                }
            };
            seen.add(values);
            let pairs = _mm256_or_si256(
                _mm256_and_si256(values, low),
                _mm256_sll_epi64(_mm256_srli_epi64(values, 32), field),
            );
            let placed = _mm256_sllv_epi64(pairs, pair_shift);
            let mut packed = _mm256_or_si256(
                _mm256_shuffle_epi8(placed, even),
                _mm256_shuffle_epi8(placed, odd),
            );
            if SPILL {
                let spilled = _mm256_srlv_epi64(pairs, spill_shift);
                packed = _mm256_or_si256(packed, _mm256_shuffle_epi8(spilled, spill));
            }
            let lane_0 = _mm256_castsi256_si128(packed);
            let carried = _mm_shuffle_epi8(lane_0, carry);
            let lane_1 = _mm_or_si128(_mm256_extracti128_si256(packed, 1), carried);
            // Each store's zeros behind its fields are overwritten by the next one.
            _mm_storeu_si128(pen.at().cast(), lane_0);
            _mm_storeu_si128(pen.at().add(table.lane_bytes).cast(), lane_1);
            pen.advance(bits as usize, place);
        }
    }
    place.put_back(pen);
    (eights * 8, seen.min(), seen.max() | upper_half(all))
}

/// The lower 32 bits of each of 8 words, in order.
#[inline]
#[target_feature(enable = "avx2")]
fn low_halves(a: __m256i, b: __m256i) -> __m256i {
    let (a, b) = (_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
    let mixed = _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(a, b));
    _mm256_permute4x64_epi64::<0b11_01_10_00>(mixed)
}

/// The upper 32 bits that are set in any word, where they are.
#[target_feature(enable = "avx2")]
fn upper_half(words: __m256i) -> u64 {
    let v = _mm256_or_si256(words, _mm256_permute4x64_epi64::<0b01_00_11_10>(words));
    let v = _mm256_or_si256(v, _mm256_permute4x64_epi64::<0b10_11_00_01>(v));
    let any = _mm_cvtsi128_si64(_mm256_castsi256_si128(v)).cast_unsigned();
    any & !u64::from(u32::MAX)
}

/// How many steps of `fields` fields, a multiple of 8, out of `count` have 32 bytes behind their start, when there are `bytes` in all.
pub(super) fn whole_steps(fields: usize, bits: u32, bytes: usize, count: usize) -> usize {
    match bytes.checked_sub(32) {
        Some(last) => (count / fields).min(last / (fields / 8 * bits as usize) + 1),
        None => 0,
    }
}

/// Copies unsigned elements of `W` bytes (1, 2 or 4), 64 bytes a step. Returns how many, and the smallest and largest.
///
/// # Safety
/// The machine has the feature; `src` is readable for `count` elements, and `place` has room for them.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy<const W: usize>(
    src: *const u8,
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    let mut seen = Extent::<W>::nothing();
    let steps = count * W / 64;
    let mut pen = place.pen();
    for i in 0..steps {
        // SAFETY: step `i` has 64 bytes on both sides.
        unsafe {
            let from = src.add(i * 64);
            prefetch(from);
            for half in [0, 32] {
                let values = _mm256_loadu_si256(from.add(half).cast());
                seen.add(values);
                _mm256_storeu_si256(pen.at().add(half).cast(), values);
            }
            pen.advance(64, place);
        }
    }
    place.put_back(pen);
    (steps * 64 / W, seen.min(), seen.max())
}
