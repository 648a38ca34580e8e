//! Bit packing with AVX-512 VBMI: `vpermb` moves any byte anywhere, `vpmultishiftqb` picks bytes at any bit of a word.

#![allow(clippy::cast_possible_wrap)] // vectors and masks are typed signed by the intrinsics

use std::arch::x86_64::*;

use super::tables::{Bytes64, GATHER, JOIN, SPREAD, interleaved};

/// Unpacks as many of `count` fields as fill whole vectors, the first at bit 0 of `src`, into elements of `W` bytes. Returns how
/// many, and the smallest and largest.
///
/// # Safety
/// The machine has the features; `src` holds the fields, `dst` is writable for `count * W` bytes.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn unpack<const W: usize>(
    bits: u32,
    src: &[u8],
    dst: *mut u8,
    count: usize,
) -> (usize, u32, u32) {
    debug_assert!(bits as usize <= 8 * W && src.len() * 8 >= count * bits as usize);
    if W == 4 && bits == 31 {
        // SAFETY: passed on to the caller.
        return unsafe { unpack_31(src, dst, count) };
    }
    let table = &SPREAD[W.trailing_zeros() as usize][bits as usize - 1];
    let per_vector = 64 / W;
    let step_bytes = per_vector * bits as usize / 8;
    let load = u64::MAX >> (64 - step_bytes);
    // SAFETY: the tables are 64 bytes each.
    let (bytes, shifts) = unsafe {
        (
            _mm512_load_si512(table.bytes.as_ptr().cast()),
            _mm512_load_si512(table.bits.as_ptr().cast()),
        )
    };
    let mask = splat::<W>(u64::MAX >> (64 - bits));
    let (mut min, mut max) = (splat::<W>(u64::MAX), _mm512_setzero_si512());
    let vectors = count / per_vector;
    for i in 0..vectors {
        // SAFETY: vector `i` has `step_bytes` bytes of the source, no more are loaded, and 64 of the destination.
        unsafe {
            let packed = _mm512_maskz_loadu_epi8(load, src.as_ptr().add(i * step_bytes).cast());
            let words = _mm512_permutexvar_epi8(bytes, packed);
            let values = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, words), mask);
            min = lesser::<W>(min, values);
            max = greater::<W>(max, values);
            _mm512_storeu_si512(dst.add(i * 64).cast(), values);
        }
    }
    (
        vectors * per_vector,
        reduce_min::<W>(min),
        reduce_max::<W>(max),
    )
}

/// 31-bit fields to 4-byte elements: two of them and their offset do not fit a word, so through 8-byte elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
unsafe fn unpack_31(src: &[u8], dst: *mut u8, count: usize) -> (usize, u32, u32) {
    let table = &SPREAD[3][30];
    // SAFETY: the tables are 64 bytes each.
    let (bytes, shifts) = unsafe {
        (
            _mm512_load_si512(table.bytes.as_ptr().cast()),
            _mm512_load_si512(table.bits.as_ptr().cast()),
        )
    };
    let mask = _mm512_set1_epi64(0x7FFF_FFFF);
    let (mut min, mut max) = (_mm512_set1_epi64(-1), _mm512_setzero_si512());
    let vectors = count / 8;
    for i in 0..vectors {
        // SAFETY: vector `i` has 31 bytes of the source, no more are loaded, and 32 of the destination.
        unsafe {
            let packed = _mm512_maskz_loadu_epi8(0x7FFF_FFFF, src.as_ptr().add(i * 31).cast());
            let words = _mm512_permutexvar_epi8(bytes, packed);
            let values = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, words), mask);
            min = _mm512_min_epu64(min, values);
            max = _mm512_max_epu64(max, values);
            _mm256_storeu_si256(dst.add(i * 32).cast(), _mm512_cvtepi64_epi32(values));
        }
    }
    (vectors * 8, reduce_min::<8>(min), reduce_max::<8>(max))
}

/// Packs as many of `count` elements of `W` bytes as fill whole vectors, from bit 0 of `dst` on. Returns how many (a multiple of 8),
/// and the smallest and largest.
///
/// # Safety
/// The machine has the features; `src` holds `count` elements, `dst` their fields.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn pack<const W: usize>(
    bits: u32,
    src: &[u8],
    dst: &mut [u8],
    count: usize,
) -> (usize, u32, u32) {
    debug_assert!(src.len() >= count * W && dst.len() * 8 >= count * bits as usize);
    // SAFETY: passed on to the caller.
    unsafe {
        match bits {
            ..=8 => pack_bytes::<W>(bits, src, dst, count),
            31 => pack_words::<W, true>(bits, src, dst, count),
            _ => pack_words::<W, false>(bits, src, dst, count),
        }
    }
}

/// K <= 8: 64 elements, one byte each, then halved three times: 8 fields in each word, then the words together.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
unsafe fn pack_bytes<const W: usize>(
    bits: u32,
    src: &[u8],
    dst: &mut [u8],
    count: usize,
) -> (usize, u32, u32) {
    static FROM_2: Bytes64 = interleaved(2);
    static FROM_4: Bytes64 = interleaved(4);
    let step_bytes = 8 * bits as usize;
    let store = u64::MAX >> (64 - step_bytes);
    // SAFETY: the tables are 64 bytes each.
    let (join, from_2, from_4) = unsafe {
        (
            _mm512_load_si512(JOIN[bits as usize - 1].0.as_ptr().cast()),
            _mm512_load_si512(FROM_2.0.as_ptr().cast()),
            _mm512_load_si512(FROM_4.0.as_ptr().cast()),
        )
    };
    let shift = |times: u32| _mm_cvtsi32_si128((times * bits) as i32);
    let (by_1, by_2, by_4) = (shift(1), shift(2), shift(4));
    let (mut min, mut max) = (splat::<W>(u64::MAX), _mm512_setzero_si512());
    let vectors = count / 64;
    for i in 0..vectors {
        // SAFETY: step `i` has 64 elements, W vectors, of the source, and `step_bytes` bytes of the destination.
        unsafe {
            let mut load = |part: usize| {
                let values = _mm512_loadu_si512(src.as_ptr().add((i * W + part) * 64).cast());
                min = lesser::<W>(min, values);
                max = greater::<W>(max, values);
                values
            };
            let elements = match W {
                1 => load(0),
                2 => {
                    let mixed = _mm512_or_si512(load(0), _mm512_slli_epi16(load(1), 8));
                    _mm512_permutexvar_epi8(from_2, mixed)
                }
                _ => {
                    let lower = _mm512_or_si512(load(0), _mm512_slli_epi32(load(1), 8));
                    let upper = _mm512_or_si512(load(2), _mm512_slli_epi32(load(3), 8));
                    let mixed = _mm512_or_si512(lower, _mm512_slli_epi32(upper, 16));
                    _mm512_permutexvar_epi8(from_4, mixed)
                }
            };
            let pairs = _mm512_or_si512(
                _mm512_and_si512(elements, _mm512_set1_epi16(0xFF)),
                _mm512_sll_epi16(_mm512_srli_epi16(elements, 8), by_1),
            );
            let fours = _mm512_or_si512(
                _mm512_and_si512(pairs, _mm512_set1_epi32(0xFFFF)),
                _mm512_sll_epi32(_mm512_srli_epi32(pairs, 16), by_2),
            );
            let eights = _mm512_or_si512(
                _mm512_and_si512(fours, _mm512_set1_epi64(0xFFFF_FFFF)),
                _mm512_sll_epi64(_mm512_srli_epi64(fours, 32), by_4),
            );
            let packed = _mm512_permutexvar_epi8(join, eights);
            _mm512_mask_storeu_epi8(dst.as_mut_ptr().add(i * step_bytes).cast(), store, packed);
        }
    }
    (vectors * 64, reduce_min::<W>(min), reduce_max::<W>(max))
}

/// K > 8: 16 elements, two fields in each word, each word shifted to its bit, then its bytes moved to their place.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
unsafe fn pack_words<const W: usize, const SPILL: bool>(
    bits: u32,
    src: &[u8],
    dst: &mut [u8],
    count: usize,
) -> (usize, u32, u32) {
    let table = &GATHER[bits as usize - 1];
    let step_bytes = 2 * bits as usize;
    let store = u64::MAX >> (64 - step_bytes);
    // SAFETY: the tables are 64 bytes each.
    let (even, odd, spill, pair_shift) = unsafe {
        (
            _mm512_load_si512(table.even.as_ptr().cast()),
            _mm512_load_si512(table.odd.as_ptr().cast()),
            _mm512_load_si512(table.spill.as_ptr().cast()),
            _mm512_load_si512(table.pair_shift.as_ptr().cast()),
        )
    };
    let spill_shift = _mm512_sub_epi64(_mm512_set1_epi64(64), pair_shift);
    let low = _mm512_set1_epi64(0xFFFF_FFFF);
    let field = _mm_cvtsi32_si128(bits as i32);
    let (mut min, mut max) = (_mm512_set1_epi32(-1), _mm512_setzero_si512());
    let vectors = count / 16;
    for i in 0..vectors {
        // SAFETY: step `i` has 16 elements of the source and `step_bytes` bytes of the destination.
        unsafe {
            let from = src.as_ptr().add(i * 16 * W);
            let values = match W {
                1 => _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())),
                2 => _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())),
                _ => _mm512_loadu_si512(from.cast()),
            };
            min = _mm512_min_epu32(min, values);
            max = _mm512_max_epu32(max, values);
            let pairs = _mm512_or_si512(
                _mm512_and_si512(values, low),
                _mm512_sll_epi64(_mm512_srli_epi64(values, 32), field),
            );
            let placed = _mm512_sllv_epi64(pairs, pair_shift);
            let mut packed = _mm512_or_si512(
                _mm512_maskz_permutexvar_epi8(table.even_mask, even, placed),
                _mm512_maskz_permutexvar_epi8(table.odd_mask, odd, placed),
            );
            if SPILL {
                let spilled = _mm512_srlv_epi64(pairs, spill_shift);
                packed = _mm512_or_si512(
                    packed,
                    _mm512_maskz_permutexvar_epi8(table.spill_mask, spill, spilled),
                );
            }
            _mm512_mask_storeu_epi8(dst.as_mut_ptr().add(i * step_bytes).cast(), store, packed);
        }
    }
    (vectors * 16, reduce_min::<4>(min), reduce_max::<4>(max))
}

/// `value` in every element of `W` bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
#[allow(clippy::cast_possible_truncation)] // the low bits are what is wanted
fn splat<const W: usize>(value: u64) -> __m512i {
    match W {
        1 => _mm512_set1_epi8(value as i8),
        2 => _mm512_set1_epi16(value as i16),
        4 => _mm512_set1_epi32(value as i32),
        _ => _mm512_set1_epi64(value as i64),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn lesser<const W: usize>(a: __m512i, b: __m512i) -> __m512i {
    match W {
        1 => _mm512_min_epu8(a, b),
        2 => _mm512_min_epu16(a, b),
        4 => _mm512_min_epu32(a, b),
        _ => _mm512_min_epu64(a, b),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn greater<const W: usize>(a: __m512i, b: __m512i) -> __m512i {
    match W {
        1 => _mm512_max_epu8(a, b),
        2 => _mm512_max_epu16(a, b),
        4 => _mm512_max_epu32(a, b),
        _ => _mm512_max_epu64(a, b),
    }
}

/// The smallest element of `W` bytes; none is over 32 bits but the start value, which stands for no element.
#[target_feature(enable = "avx512f,avx512bw")]
fn reduce_min<const W: usize>(v: __m512i) -> u32 {
    elements::<W>(v)
        .min()
        .and_then(|value| u32::try_from(value).ok())
        .unwrap_or(u32::MAX)
}

/// The largest element of `W` bytes.
#[target_feature(enable = "avx512f,avx512bw")]
fn reduce_max<const W: usize>(v: __m512i) -> u32 {
    elements::<W>(v)
        .max()
        .and_then(|value| u32::try_from(value).ok())
        .unwrap_or(0)
}

#[target_feature(enable = "avx512f")]
fn elements<const W: usize>(v: __m512i) -> impl Iterator<Item = u64> {
    let mut bytes = [0u8; 64];
    // SAFETY: 64 bytes are stored into 64 bytes.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), v) };
    (0..64 / W).map(move |i| {
        let mut word = [0; 8];
        word[..W].copy_from_slice(&bytes[i * W..(i + 1) * W]);
        u64::from_le_bytes(word)
    })
}
