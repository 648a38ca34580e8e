//! Groups of numbers with a scale, with AVX-512: two vectors are a group. Else as `avx2_q8.rs`.

use std::arch::x86_64::*;

use super::place::Place;
use super::q8::scalar::{BELOW_HALF, reciprocal};
use super::q8::{GROUP_BYTES, GROUP_F32_BYTES};
use super::{prefetch, prefetch_wide};

/// # Safety
/// `src` is readable for so many groups, `place` has room for them; the machine has AVX-512 F, BW, VL and DQ, and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c")]
pub(super) unsafe fn quantize(src: *const u8, place: &mut Place, groups: usize) -> u32 {
    let sign = _mm512_set1_ps(-0.0);
    let below_half = _mm512_set1_ps(BELOW_HALF);
    let mut met = 0;
    let mut pen = place.pen();
    for group in 0..groups {
        // SAFETY: `group < groups`, on both sides; a group is 128 bytes of f32, and 34 packed.
        unsafe {
            let from = src.add(group * GROUP_F32_BYTES);
            prefetch_wide(from);
            prefetch_wide(from.wrapping_add(64));
            let numbers = [0, 64].map(|at| _mm512_loadu_ps(from.add(at).cast()));
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
pub(super) unsafe fn dequantize(src: *const u8, place: &mut Place, groups: usize) -> u16 {
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
                _mm512_storeu_ps(to.add(64 * part).cast(), _mm512_mul_ps(steps, scale));
            }
            pen.advance(GROUP_F32_BYTES, place);
        }
    }
    place.put_back(pen);
    met
}
