//! Groups of numbers with a scale, with AVX-512: two vectors are a group. Else as `avx2_q8.rs`.

use std::arch::x86_64::*;

use super::place::Place;
use super::q8::scalar::{BELOW_HALF, reciprocal};
use super::q8::{BF16, F32, GROUP_BYTES, group_bytes};
use super::{prefetch, prefetch_wide};

/// Sixteen numbers of type `T`, as f32.
///
/// # Safety
/// They are readable; the machine has AVX-512 F, BW, VL and DQ.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn load<const T: u8>(from: *const u8) -> __m512 {
    // SAFETY: passed on to the caller.
    unsafe {
        match T {
            F32 => _mm512_loadu_ps(from.cast()),
            BF16 => {
                let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
            }
            _ => _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())),
        }
    }
}

/// Sixteen numbers as type `T`, rounded to nearest, ties to even: none is a NaN, but in a group whose scale is.
///
/// # Safety
/// There is room for them; the machine has AVX-512 F, BW, VL and DQ.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) unsafe fn store<const T: u8>(to: *mut u8, numbers: __m512) {
    // SAFETY: passed on to the caller.
    unsafe {
        match T {
            F32 => _mm512_storeu_ps(to.cast(), numbers),
            BF16 => {
                let bits = _mm512_castps_si512(numbers);
                let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
                let half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
                let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, half));
                _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(rounded));
            }
            _ => {
                let rounded = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(numbers);
                _mm256_storeu_si256(to.cast(), rounded);
            }
        }
    }
}

/// # Safety
/// `src` is readable for so many groups, `place` has room for them; the machine has AVX-512 F, BW, VL and DQ, and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c")]
pub(super) unsafe fn quantize<const T: u8>(
    src: *const u8,
    place: &mut Place,
    groups: usize,
) -> u32 {
    let sign = _mm512_set1_ps(-0.0);
    let below_half = _mm512_set1_ps(BELOW_HALF);
    let mut met = 0;
    let mut pen = place.pen();
    for group in 0..groups {
        // SAFETY: `group < groups`, on both sides; a group is 128 or 64 bytes of numbers, and 34 packed.
        unsafe {
            let from = src.add(group * group_bytes(T));
            prefetch_wide(from);
            if T == F32 {
                prefetch_wide(from.wrapping_add(64));
            }
            let numbers = [load::<T>(from), load::<T>(from.add(group_bytes(T) / 2))];
            let [a, b] = numbers.map(|it| _mm512_castps_si512(_mm512_andnot_ps(sign, it)));
            let largest = _mm512_reduce_max_epi32(_mm512_max_epi32(a, b)).cast_unsigned();
            met = u32::max(met, largest);
            let scale = f32::from_bits(largest) / 127.0;
            let by = _mm512_set1_ps(reciprocal(scale));
            let [front, back] = numbers.map(|it| {
                let steps = _mm512_mul_ps(it, by);
                let half = _mm512_or_ps(_mm512_and_ps(steps, sign), below_half);
                _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(steps, half)))
            });
            let scale = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(scale));
            let to = pen.at();
            #[allow(clippy::cast_possible_truncation)] // the lowest 16 bits
            to.cast::<u16>()
                .write_unaligned(_mm_cvtsi128_si32(scale) as u16);
            _mm_storeu_si128(to.add(2).cast(), front);
            _mm_storeu_si128(to.add(18).cast(), back);
            pen.advance(GROUP_BYTES, place);
        }
    }
    place.put_back(pen);
    met
}

/// # Safety
/// As [`quantize`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c")]
pub(super) unsafe fn dequantize<const T: u8>(
    src: *const u8,
    place: &mut Place,
    groups: usize,
) -> u16 {
    let mut met = 0;
    let mut pen = place.pen();
    for group in 0..groups {
        // SAFETY: as above.
        unsafe {
            let from = src.add(group * GROUP_BYTES);
            prefetch(from);
            let bits = from.cast::<u16>().read_unaligned();
            met = u16::max(met, bits & 0x7FFF);
            let scale = _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))));
            let to = pen.at();
            for part in 0..2 {
                let bytes = _mm_loadu_si128(from.add(2 + 16 * part).cast());
                let steps = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
                let numbers = _mm512_mul_ps(steps, scale);
                store::<T>(to.add(part * group_bytes(T) / 2), numbers);
            }
            pen.advance(group_bytes(T), place);
        }
    }
    place.put_back(pen);
    met
}
