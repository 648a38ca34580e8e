//! Groups of numbers with a scale, with AVX2 and F16C: four vectors are a group. Of 16 bits they are widened as they are loaded, and rounded as
//! they are stored.

use std::arch::x86_64::*;

use super::place::Place;
use super::q8::scalar::{BELOW_HALF, reciprocal};
use super::q8::{BF16, F32, GROUP_BYTES, group_bytes};
use super::{prefetch, prefetch_wide};

/// Eight numbers of type `T`, as f32.
///
/// # Safety
/// They are readable; the machine has AVX2 and F16C.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn load<const T: u8>(from: *const u8) -> __m256 {
    // SAFETY: passed on to the caller.
    unsafe {
        match T {
            F32 => _mm256_loadu_ps(from.cast()),
            BF16 => {
                let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
            }
            _ => _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
        }
    }
}

/// Sixteen numbers as type `T`, rounded to nearest, ties to even: none is a NaN, but in a group whose scale is.
///
/// # Safety
/// There is room for them; the machine has AVX2 and F16C.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn store<const T: u8>(to: *mut u8, [front, back]: [__m256; 2]) {
    // SAFETY: passed on to the caller.
    unsafe {
        match T {
            F32 => {
                _mm256_storeu_ps(to.cast(), front);
                _mm256_storeu_ps(to.add(32).cast(), back);
            }
            BF16 => {
                let [front, back] = [front, back].map(|it| {
                    let bits = _mm256_castps_si256(it);
                    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                    let half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
                    _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, half))
                });
                let packed = _mm256_packus_epi32(front, back);
                let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
                _mm256_storeu_si256(to.cast(), packed);
            }
            _ => {
                let front = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(front);
                let back = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(back);
                _mm_storeu_si128(to.cast(), front);
                _mm_storeu_si128(to.add(16).cast(), back);
            }
        }
    }
}

/// From numbers of type `T`.
///
/// # Safety
/// `src` is readable for so many groups, `place` has room for them; the machine has AVX2 and F16C.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn quantize<const T: u8>(
    src: *const u8,
    place: &mut Place,
    groups: usize,
) -> u32 {
    let sign = _mm256_set1_ps(-0.0);
    let below_half = _mm256_set1_ps(BELOW_HALF);
    // Packed lane by lane: the quarters are put in order again.
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
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
            let quarter = group_bytes(T) / 4;
            let numbers = [0, 1, 2, 3].map(|part| load::<T>(from.add(part * quarter)));
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

/// To numbers of type `T`.
///
/// # Safety
/// As [`quantize`].
#[target_feature(enable = "avx2,f16c")]
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
            let scale = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits))));
            let to = pen.at();
            for half in 0..2 {
                let numbers = [0, 8].map(|at| {
                    let bytes = _mm_loadl_epi64(from.add(2 + 16 * half + at).cast());
                    let steps = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
                    _mm256_mul_ps(steps, scale)
                });
                store::<T>(to.add(half * group_bytes(T) / 2), numbers);
            }
            pen.advance(group_bytes(T), place);
        }
    }
    place.put_back(pen);
    met
}
