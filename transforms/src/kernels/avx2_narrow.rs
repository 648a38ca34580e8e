//! Bit packing with AVX2 of elements of 1 and 2 bytes: a 128-bit lane holds 16 and 8 of them. AVX2 shifts each 32 bits by a distance of
//! their own, but not each 16: 2-byte elements are unpacked in two halves, bytes by multiplications.

#![allow(clippy::cast_possible_wrap)] // vectors and shift counts are typed signed by the intrinsics

use std::arch::x86_64::*;

use super::avx2::whole_steps;
use super::avx2_extent::Extent;
use super::place::Place;
use super::tables::{PACK_BYTES, PACK_SHORTS, UNPACK_BYTES, UNPACK_SHORTS};
use super::{prefetch, prefetch_wide};

/// Unpacks fields of up to 16 bits into 2-byte elements, 16 a step. Else as [`super::avx2::unpack`].
///
/// # Safety
/// As [`super::avx2::unpack`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn unpack_shorts(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    let table = &UNPACK_SHORTS[bits as usize - 1];
    let (even, odd) = (both(&table.even), both(&table.odd));
    let (down, up) = (both(&table.down), both(&table.up));
    let mask = _mm256_set1_epi16((u16::MAX >> (16 - bits)) as i16);
    let mut seen = Extent::<2>::nothing();
    let lane_bytes = bits as usize;
    let steps = whole_steps(16, bits, src.len(), count);
    let mut pen = place.pen();
    for i in 0..steps {
        // SAFETY: `whole_steps` leaves 32 bytes behind the start of every step, and lane 1 starts at most 16 behind it; the place has
        // 16 elements for it.
        unsafe {
            let from = src.as_ptr().add(i * 2 * lane_bytes);
            prefetch(from);
            let lanes = _mm256_loadu2_m128i(from.add(lane_bytes).cast(), from.cast());
            let even = _mm256_srlv_epi32(_mm256_shuffle_epi8(lanes, even), down);
            let odd = _mm256_sllv_epi32(_mm256_shuffle_epi8(lanes, odd), up);
            let values = _mm256_and_si256(_mm256_blend_epi16::<0xAA>(even, odd), mask);
            seen.add(values);
            _mm256_storeu_si256(pen.at().cast(), values);
            pen.advance(32, place);
        }
    }
    place.put_back(pen);
    (steps * 16, seen.min(), seen.max())
}

/// Unpacks fields of up to 8 bits into single bytes, 32 a step. Else as [`super::avx2::unpack`].
///
/// # Safety
/// As [`super::avx2::unpack`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn unpack_bytes(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    let table = &UNPACK_BYTES[bits as usize - 1];
    let (even, odd) = (both(&table.even), both(&table.odd));
    let (even_up, odd_up) = (both(&table.even_up), both(&table.odd_up));
    let to_even = _mm_cvtsi32_si128(16 - bits as i32);
    let to_odd = _mm_cvtsi32_si128(8 - bits as i32);
    let odd_bytes = _mm256_set1_epi16(0xFF00_u16 as i16);
    let mut seen = Extent::<1>::nothing();
    let lane_bytes = 2 * bits as usize;
    let steps = whole_steps(32, bits, src.len(), count);
    let mut pen = place.pen();
    for i in 0..steps {
        // SAFETY: as in `unpack_shorts`, with 32 elements.
        unsafe {
            let from = src.as_ptr().add(i * 2 * lane_bytes);
            prefetch(from);
            let lanes = _mm256_loadu2_m128i(from.add(lane_bytes).cast(), from.cast());
            // Each field to the top of its 16 bits, then down to its byte.
            let even = _mm256_mullo_epi16(_mm256_shuffle_epi8(lanes, even), even_up);
            let odd = _mm256_mullo_epi16(_mm256_shuffle_epi8(lanes, odd), odd_up);
            let odd = _mm256_and_si256(_mm256_srl_epi16(odd, to_odd), odd_bytes);
            let values = _mm256_or_si256(_mm256_srl_epi16(even, to_even), odd);
            seen.add(values);
            _mm256_storeu_si256(pen.at().cast(), values);
            pen.advance(32, place);
        }
    }
    place.put_back(pen);
    (steps * 32, seen.min(), seen.max())
}

/// Packs 2-byte elements into fields of up to 16 bits, 16 a step. Else as [`super::avx2::pack`].
///
/// # Safety
/// As [`super::avx2::pack`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn pack_shorts(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    let table = &PACK_SHORTS[bits as usize - 1];
    let (even, odd) = (both(&table.even), both(&table.odd));
    let word_shift = both(&table.word_shift);
    let (low_2, low_4) = (_mm256_set1_epi32(0xFFFF), _mm256_set1_epi64x(0xFFFF_FFFF));
    let down_2 = _mm_cvtsi32_si128(16 - bits as i32);
    let down_4 = _mm_cvtsi32_si128(32 - 2 * bits as i32);
    let mut seen = Extent::<2>::nothing();
    let steps = whole_steps(16, bits, place.room(), count);
    let mut pen = place.pen();
    for i in 0..steps {
        // SAFETY: the source has 16 elements for step `i`; `whole_steps` leaves 32 bytes of the place behind its start.
        unsafe {
            let from = src.as_ptr().add(i * 32);
            prefetch_wide(from);
            let values = _mm256_loadu_si256(from.cast());
            seen.add(values);
            let pairs = _mm256_or_si256(
                _mm256_and_si256(values, low_2),
                _mm256_srl_epi32(_mm256_andnot_si256(low_2, values), down_2),
            );
            let words = _mm256_or_si256(
                _mm256_and_si256(pairs, low_4),
                _mm256_srl_epi64(_mm256_andnot_si256(low_4, pairs), down_4),
            );
            let placed = _mm256_sllv_epi64(words, word_shift);
            let packed = _mm256_or_si256(
                _mm256_shuffle_epi8(placed, even),
                _mm256_shuffle_epi8(placed, odd),
            );
            store_lanes(packed, pen.at(), bits as usize);
            pen.advance(2 * bits as usize, place);
        }
    }
    place.put_back(pen);
    (steps * 16, seen.min(), seen.max())
}

/// Packs bytes into fields of up to 7 bits, 32 a step. Else as [`super::avx2::pack`].
///
/// # Safety
/// As [`super::avx2::pack`].
#[target_feature(enable = "avx2")]
pub(super) unsafe fn pack_bytes(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    debug_assert!(bits < 8);
    let order = both(&PACK_BYTES[bits as usize - 1]);
    // 1 for the lower, 2^K for the upper of two fields, and 2^2K of two pairs.
    let fold_1 = _mm256_set1_epi16(1 | (0x100_i16 << bits));
    let fold_2 = _mm256_set1_epi32(1 | (0x1_0000 << (2 * bits)));
    let low_4 = _mm256_set1_epi64x(0xFFFF_FFFF);
    let down_4 = _mm_cvtsi32_si128(32 - 4 * bits as i32);
    let mut seen = Extent::<1>::nothing();
    let steps = whole_steps(32, bits, place.room(), count);
    let mut pen = place.pen();
    for i in 0..steps {
        // SAFETY: as in `pack_shorts`, with 32 elements.
        unsafe {
            let from = src.as_ptr().add(i * 32);
            prefetch_wide(from);
            let values = _mm256_loadu_si256(from.cast());
            seen.add(values);
            let pairs = _mm256_maddubs_epi16(fold_1, values);
            let fours = _mm256_madd_epi16(pairs, fold_2);
            let words = _mm256_or_si256(
                _mm256_and_si256(fours, low_4),
                _mm256_srl_epi64(_mm256_andnot_si256(low_4, fours), down_4),
            );
            let packed = _mm256_shuffle_epi8(words, order);
            store_lanes(packed, pen.at(), 2 * bits as usize);
            pen.advance(4 * bits as usize, place);
        }
    }
    place.put_back(pen);
    (steps * 32, seen.min(), seen.max())
}

/// Stores lane 1 `lane_bytes` behind lane 0: over what lane 0 holds behind its fields.
///
/// # Safety
/// `to` is writable for `lane_bytes + 16` bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_lanes(lanes: __m256i, to: *mut u8, lane_bytes: usize) {
    // SAFETY: promised by the caller.
    unsafe {
        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(lanes));
        _mm_storeu_si128(
            to.add(lane_bytes).cast(),
            _mm256_extracti128_si256(lanes, 1),
        );
    }
}

/// 16 bytes of a table in both lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn both<T>(table: &T) -> __m256i {
    const { assert!(size_of::<T>() == 16) };
    // SAFETY: 16 bytes, of a type without padding.
    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(std::ptr::from_ref(table).cast())) }
}
