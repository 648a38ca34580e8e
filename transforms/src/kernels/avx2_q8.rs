//! Groups of numbers with a scale, with AVX2 and F16C: four vectors are a group.

use std::arch::x86_64::*;

use super::place::Place;
use super::q8::scalar::{BELOW_HALF, reciprocal};
use super::q8::{GROUP_BYTES, GROUP_F32_BYTES};
use super::{prefetch, prefetch_wide};

/// # Safety
/// `src` is readable for so many groups, `place` has room for them; the machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn quantize(src: *const u8, place: &mut Place, groups: usize) -> u32 {
    let sign = _mm256_set1_ps(-0.0);
    let below_half = _mm256_set1_ps(BELOW_HALF);
    // Packed lane by lane: the quarters are put in order again.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let mut met = 0;
    let mut pen = place.pen();
    for group in 0..groups {
        // SAFETY: `group < groups`, on both sides; a group is 128 bytes of f32, and 34 packed.
        unsafe {
            let from = src.add(group * GROUP_F32_BYTES);
            prefetch_wide(from);
            prefetch_wide(from.wrapping_add(64));
            let numbers = [0, 32, 64, 96].map(|at| _mm256_loadu_ps(from.add(at).cast()));
            let magnitudes = numbers.map(|it| _mm256_castps_si256(_mm256_andnot_ps(sign, it)));
            let largest = largest(magnitudes);
            met = u32::max(met, largest);
            let scale = f32::from_bits(largest) / 127.0;
            let by = _mm256_set1_ps(reciprocal(scale));
            let steps = numbers.map(|it| {
                let steps = _mm256_mul_ps(it, by);
                let half = _mm256_or_ps(_mm256_and_ps(steps, sign), below_half);
                _mm256_cvttps_epi32(_mm256_add_ps(steps, half))
            });
            let front = _mm256_packs_epi32(steps[0], steps[1]);
            let back = _mm256_packs_epi32(steps[2], steps[3]);
            let bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(front, back), order);
            let scale = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(scale));
            let to = pen.at();
            #[allow(clippy::cast_possible_truncation)] // the lowest 16 bits
            to.cast::<u16>()
                .write_unaligned(_mm_cvtsi128_si32(scale) as u16);
            _mm256_storeu_si256(to.add(2).cast(), bytes);
            pen.advance(GROUP_BYTES, place);
        }
    }
    place.put_back(pen);
    met
}

/// The largest of all lanes, none of which is negative.
#[inline]
#[target_feature(enable = "avx2")]
fn largest([a, b, c, d]: [__m256i; 4]) -> u32 {
    let eight = _mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d));
    let four = _mm_max_epi32(
        _mm256_castsi256_si128(eight),
        _mm256_extracti128_si256::<1>(eight),
    );
    let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
    let one = _mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two));
    _mm_cvtsi128_si32(one).cast_unsigned()
}

/// # Safety
/// As [`quantize`].
#[target_feature(enable = "avx2,f16c")]
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
            let scale = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))));
            let to = pen.at();
            for part in 0..4 {
                let bytes = _mm_loadl_epi64(from.add(2 + 8 * part).cast());
                let steps = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
                _mm256_storeu_ps(to.add(32 * part).cast(), _mm256_mul_ps(steps, scale));
            }
            pen.advance(GROUP_F32_BYTES, place);
        }
    }
    place.put_back(pen);
    met
}
