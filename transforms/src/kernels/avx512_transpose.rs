//! Elements to planes of their bytes, and back, with AVX-512 VBMI: the bytes of `W` vectors are dealt out (or riffled together) by
//! two, as often as `W` can be halved.

use std::arch::x86_64::*;

/// Splits whole groups of 64 elements of `W` bytes, 2, 4 or 8; returns the elements done.
///
/// # Safety
/// The machine has the features; `dst` is as long as `src`, which is a whole number of elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn split<const W: usize>(src: &[u8], dst: &mut [u8]) -> usize {
    let elements = src.len() / W;
    let (even, odd) = (load(&EVEN), load(&ODD));
    for group in 0..elements / 64 {
        // SAFETY: group `group` is W vectors of the source, and one in each of the W planes of the destination.
        unsafe {
            let from = src.as_ptr().add(group * 64 * W);
            let mut v: [__m512i; W] =
                std::array::from_fn(|i| _mm512_loadu_si512(from.add(i * 64).cast()));
            for _ in 0..W.trailing_zeros() {
                let pairs = v;
                for k in 0..W / 2 {
                    let (a, b) = (pairs[2 * k], pairs[2 * k + 1]);
                    v[k] = _mm512_permutex2var_epi8(a, even, b);
                    v[W / 2 + k] = _mm512_permutex2var_epi8(a, odd, b);
                }
            }
            for (plane, bytes) in v.into_iter().enumerate() {
                let to = dst.as_mut_ptr().add(plane * elements + group * 64);
                _mm512_storeu_si512(to.cast(), bytes);
            }
        }
    }
    elements / 64 * 64
}

/// Joins whole groups of 64 elements of `W` bytes, 2, 4 or 8; returns the elements done.
///
/// # Safety
/// As [`split`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn join<const W: usize>(src: &[u8], dst: &mut [u8]) -> usize {
    let elements = dst.len() / W;
    let planes = std::array::from_fn(|plane| &src[plane * elements..][..elements]);
    // SAFETY: passed on to the caller.
    unsafe { join_planes::<W, false>(planes, dst) }
}

/// Joins as [`join`], from planes that lie anywhere; `TURN`: each element is then turned right by a bit.
///
/// # Safety
/// The machine has the features; each plane has as many bytes as `dst`, which is whole elements, has elements.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn join_planes<const W: usize, const TURN: bool>(
    planes: [&[u8]; W],
    dst: &mut [u8],
) -> usize {
    let elements = dst.len() / W;
    let (lower, upper) = (load(&LOWER), load(&UPPER));
    for group in 0..elements / 64 {
        // SAFETY: group `group` is one vector in each of the W planes of the source, and W of the destination.
        unsafe {
            let mut v: [__m512i; W] =
                planes.map(|plane| _mm512_loadu_si512(plane.as_ptr().add(group * 64).cast()));
            for _ in 0..W.trailing_zeros() {
                let halves = v;
                for k in 0..W / 2 {
                    let (a, b) = (halves[k], halves[W / 2 + k]);
                    v[2 * k] = _mm512_permutex2var_epi8(a, lower, b);
                    v[2 * k + 1] = _mm512_permutex2var_epi8(a, upper, b);
                }
            }
            let to = dst.as_mut_ptr().add(group * 64 * W);
            for (i, bytes) in v.into_iter().enumerate() {
                let bytes = if TURN { turned::<W>(bytes) } else { bytes };
                _mm512_storeu_si512(to.add(i * 64).cast(), bytes);
            }
        }
    }
    elements / 64 * 64
}

/// Elements of `W` bytes, turned right by a bit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2")]
fn turned<const W: usize>(elements: __m512i) -> __m512i {
    match W {
        2 => _mm512_shrdi_epi16::<1>(elements, elements),
        4 => _mm512_ror_epi32::<1>(elements),
        _ => _mm512_ror_epi64::<1>(elements),
    }
}

/// Bytes of two vectors, 64 and on being the second's: every second one from `first` on.
const fn every_second(first: u8) -> [u8; 64] {
    let mut index = [0; 64];
    let mut i = 0;
    while i < 64 {
        index[i as usize] = first + 2 * i;
        i += 1;
    }
    index
}

/// Bytes of two vectors: by turns one of each, from byte `first` of both on.
const fn by_turns(first: u8) -> [u8; 64] {
    let mut index = [0; 64];
    let mut i = 0;
    while i < 64 {
        index[i as usize] = first + i / 2 + 64 * (i % 2);
        i += 1;
    }
    index
}

static EVEN: [u8; 64] = every_second(0);
static ODD: [u8; 64] = every_second(1);
static LOWER: [u8; 64] = by_turns(0);
static UPPER: [u8; 64] = by_turns(32);

#[inline]
#[target_feature(enable = "avx512f")]
fn load(index: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes.
    unsafe { _mm512_loadu_si512(index.as_ptr().cast()) }
}
