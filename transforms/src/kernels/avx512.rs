//! Bit packing with AVX-512 VBMI: `vpermb` moves any byte anywhere, `vpmultishiftqb` picks bytes at any bit of a word.

#![allow(clippy::cast_possible_wrap)] // vectors and shift counts are typed signed by the intrinsics

use std::arch::x86_64::*;

use super::avx512_extent::Extent;
use super::place::Place;
use super::tables::{Bytes64, GATHER, SPREAD, WIDE_31, interleaved};
use super::{prefetch, prefetch_wide};

/// Unpacks as many of `count` fields as fill whole vectors, the first at bit 0 of `src`, into elements of `W` bytes. Returns how
/// many, and the smallest and largest.
///
/// # Safety
/// The machine has the features; `src` holds the fields, and `place` has room for `count` elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn unpack<const W: usize>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    debug_assert!(bits as usize <= 8 * W && src.len() * 8 >= count * bits as usize);
    // SAFETY: passed on to the caller.
    unsafe {
        if W == 4 && bits == 31 {
            let (lower, upper) = (load(&WIDE_31.lower), load(&WIDE_31.upper));
            let shift = _mm512_load_si512(WIDE_31.shift.as_ptr().cast());
            unpack_by::<W>(bits, src, place, count, |packed| {
                let lower = _mm512_permutexvar_epi8(lower, packed);
                let upper = _mm512_permutexvar_epi8(upper, packed);
                _mm512_shrdv_epi32(lower, upper, shift)
            })
        } else {
            let table = &SPREAD[W.trailing_zeros() as usize][bits as usize - 1];
            let (bytes, starts) = (load(&table.bytes), load(&table.bits));
            unpack_by::<W>(bits, src, place, count, |packed| {
                let words = _mm512_permutexvar_epi8(bytes, packed);
                _mm512_multishift_epi64_epi8(starts, words)
            })
        }
    }
}

/// `spread` moves each field of the packed bytes to the bottom of its element.
///
/// # Safety
/// As [`unpack`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
unsafe fn unpack_by<const W: usize>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
    spread: impl Fn(__m512i) -> __m512i,
) -> (usize, u64, u64) {
    let per_vector = 64 / W;
    let step_bytes = per_vector * bits as usize / 8;
    let bytes = u64::MAX >> (64 - step_bytes);
    let mask = splat::<W>(u64::MAX >> (64 - bits));
    let mut extent = Extent::<W, false>::nothing();
    let vectors = count / per_vector;
    let mut pen = place.pen();
    for i in 0..vectors {
        // SAFETY: vector `i` has `step_bytes` bytes of the source, no more are loaded, and 64 of the destination.
        unsafe {
            let from = src.as_ptr().add(i * step_bytes);
            prefetch(from);
            let packed = _mm512_maskz_loadu_epi8(bytes, from.cast());
            let values = _mm512_and_si512(spread(packed), mask);
            extent.add(values);
            _mm512_storeu_si512(pen.at().cast(), values);
            pen.advance(64, place);
        }
    }
    place.put_back(pen);
    met(vectors * per_vector, &extent)
}

/// Packs as many of `count` elements of `W` bytes as fill whole vectors, the first field at a whole byte. Returns how many (a multiple of 8),
/// and the smallest and largest.
///
/// # Safety
/// The machine has the features; `src` holds `count` elements, and `place` has room for their fields.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn pack<const W: usize>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    debug_assert!(src.len() >= count * W);
    // SAFETY: passed on to the caller.
    unsafe {
        match (bits, W) {
            (..=8, 2..) => pack_bytes::<W>(bits, src, place, count),
            (31, 4) => pack_words::<W, 4, true>(bits, src, place, count),
            (..=8, 1) => pack_words::<W, 1, false>(bits, src, place, count),
            (..=16, 2) => pack_words::<W, 2, false>(bits, src, place, count),
            // Fields wider than their elements: of no use, but allowed.
            (31, _) => pack_words::<W, 4, true>(bits, src, place, count),
            _ => pack_words::<W, 4, false>(bits, src, place, count),
        }
    }
}

/// Elements of `W` bytes in lanes of `LANE` bytes, the fields of a word folded together, each word shifted to its bit, then its
/// bytes moved to their place.
///
/// # Safety
/// As [`pack`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
unsafe fn pack_words<const W: usize, const LANE: usize, const SPILL: bool>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    let table = &GATHER[LANE.trailing_zeros() as usize][bits as usize - 1];
    let (even, odd, spill) = (load(&table.even), load(&table.odd), load(&table.spill));
    // SAFETY: 64 bytes.
    let word_shift = unsafe { _mm512_loadu_si512(table.word_shift.as_ptr().cast()) };
    let spill_shift = _mm512_sub_epi64(_mm512_set1_epi64(64), word_shift);
    let folds = Folds::<LANE>::new(bits);
    let per_vector = 64 / LANE;
    let step_bytes = per_vector * bits as usize / 8;
    let bytes = u64::MAX >> (64 - step_bytes);
    let mut extent = Extent::<LANE, false>::nothing();
    let low_halves = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let mut all = _mm512_setzero_si512();
    let vectors = count / per_vector;
    let mut pen = place.pen();
    for i in 0..vectors {
        // SAFETY: step `i` has `per_vector` elements of the source and `step_bytes` bytes of the destination.
        unsafe {
            let from = src.as_ptr().add(i * per_vector * W);
            prefetch_wide(from);
            let values = match (W, LANE) {
                (1, 4) => _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())),
                (2, 4) => _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())),
                (8, 4) => {
                    prefetch_wide(from.add(64));
                    let lower = _mm512_loadu_si512(from.cast());
                    let upper = _mm512_loadu_si512(from.add(64).cast());
                    all = _mm512_or_si512(all, _mm512_or_si512(lower, upper));
                    _mm512_permutex2var_epi32(lower, low_halves, upper)
                }
                _ => _mm512_loadu_si512(from.cast()),
            };
            extent.add(values);
            let words = folds.fold(values);
            let packed = if LANE == 1 {
                _mm512_permutexvar_epi8(even, words)
            } else {
                let placed = _mm512_sllv_epi64(words, word_shift);
                _mm512_or_si512(
                    _mm512_maskz_permutexvar_epi8(table.even_mask, even, placed),
                    _mm512_maskz_permutexvar_epi8(table.odd_mask, odd, placed),
                )
            };
            let packed = if SPILL {
                let spilled = _mm512_srlv_epi64(words, spill_shift);
                let spilled = _mm512_maskz_permutexvar_epi8(table.spill_mask, spill, spilled);
                _mm512_or_si512(packed, spilled)
            } else {
                packed
            };
            _mm512_mask_storeu_epi8(pen.at().cast(), bytes, packed);
            pen.advance(step_bytes, place);
        }
    }
    place.put_back(pen);
    let (done, min, max) = met(vectors * per_vector, &extent);
    let over_32_bits = _mm512_reduce_or_epi64(all).cast_unsigned() & !u64::from(u32::MAX);
    (done, min, max | over_32_bits)
}

/// Fields of up to 8 bits: `W` vectors of elements are brought together in one of bytes, then folded.
///
/// # Safety
/// As [`pack`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2")]
unsafe fn pack_bytes<const W: usize>(
    bits: u32,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> (usize, u64, u64) {
    static FROM_2: Bytes64 = interleaved(2);
    static FROM_4: Bytes64 = interleaved(4);
    static FROM_8: Bytes64 = interleaved(8);
    let join = load(&GATHER[0][bits as usize - 1].even);
    let order = load(match W {
        2 => &FROM_2.0,
        4 => &FROM_4.0,
        _ => &FROM_8.0,
    });
    let folds = Folds::<1>::new(bits);
    let step_bytes = 8 * bits as usize;
    let bytes = u64::MAX >> (64 - step_bytes);
    let mut extent = Extent::<W, false>::nothing();
    let steps = count / 64;
    let mut pen = place.pen();
    for i in 0..steps {
        // SAFETY: step `i` has 64 elements, W vectors, of the source, and `step_bytes` bytes of the destination.
        unsafe {
            let mut load = |part: usize| {
                let from = src.as_ptr().add((i * W + part) * 64);
                prefetch_wide(from);
                let values = _mm512_loadu_si512(from.cast());
                extent.add(values);
                values
            };
            // What a shift moves out of an element did not fit the field.
            let mut two =
                |first: usize| _mm512_or_si512(load(first), _mm512_slli_epi64(load(first + 1), 8));
            let mut four =
                |first: usize| _mm512_or_si512(two(first), _mm512_slli_epi64(two(first + 2), 16));
            let mixed = match W {
                2 => two(0),
                4 => four(0),
                _ => _mm512_or_si512(four(0), _mm512_slli_epi64(four(4), 32)),
            };
            let words = folds.fold(_mm512_permutexvar_epi8(order, mixed));
            let packed = _mm512_permutexvar_epi8(join, words);
            _mm512_mask_storeu_epi8(pen.at().cast(), bytes, packed);
            pen.advance(step_bytes, place);
        }
    }
    place.put_back(pen);
    met(steps * 64, &extent)
}

/// Moves the upper of two fields down beside the lower one: in 2, then 4, then 8 bytes, starting with fields in lanes of `LANE` bytes.
struct Folds<const LANE: usize> {
    /// For each of the three: the bits of the lower field, and how far the upper one moves.
    steps: [(__m512i, __m128i); 3],
}

impl<const LANE: usize> Folds<LANE> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn new(bits: u32) -> Self {
        let step = |lane_bytes: u32| {
            // What earlier steps have folded together by now. Where a step comes before the first one, this means nothing.
            let folded = (bits * lane_bytes) >> LANE.trailing_zeros();
            let lane_bits = 8 * lane_bytes;
            let low = u64::MAX >> (64 - folded.clamp(1, lane_bits));
            (
                low,
                _mm_cvtsi32_si128(lane_bits.saturating_sub(folded) as i32),
            )
        };
        let [two, four, eight] = [step(1), step(2), step(4)];
        Folds {
            steps: [
                (splat::<2>(two.0), two.1),
                (splat::<4>(four.0), four.1),
                (splat::<8>(eight.0), eight.1),
            ],
        }
    }

    /// The fields of each 8 bytes of elements, one behind the other from bit 0 of their word on.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn fold(&self, elements: __m512i) -> __m512i {
        /// Each bit from the second where the first is set, from the third where it is not.
        const SELECT: i32 = 0xCA;
        let [two, four, eight] = self.steps;
        let mut v = elements;
        if LANE == 1 {
            v = _mm512_ternarylogic_epi64::<SELECT>(two.0, v, _mm512_srl_epi16(v, two.1));
        }
        if LANE <= 2 {
            v = _mm512_ternarylogic_epi64::<SELECT>(four.0, v, _mm512_srl_epi32(v, four.1));
        }
        _mm512_ternarylogic_epi64::<SELECT>(eight.0, v, _mm512_srl_epi64(v, eight.1))
    }
}

/// 64 bytes of a table.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(table: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes.
    unsafe { _mm512_loadu_si512(table.as_ptr().cast()) }
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
fn met<const W: usize>(count: usize, extent: &Extent<W, false>) -> (usize, u64, u64) {
    (count, extent.min(), extent.max())
}
