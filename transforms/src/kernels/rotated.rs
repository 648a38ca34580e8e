//! Floating-point elements to planes of bytes and back, each element turned left by a bit first: then its exponent starts with the highest
//! bit, and the sign is the lowest one.

use crate::kernels::Isa;
#[cfg(target_arch = "x86_64")]
use crate::kernels::avx512_transpose;
#[cfg(target_arch = "aarch64")]
use crate::kernels::neon_rotated;

/// The widest element.
pub(crate) const PLANES_MAX: usize = 8;

/// Byte `j` of each turned element of `src` goes to plane `j`.
///
/// # Panics
/// When there are not 2, 4 or 8 planes, the lengths differ, or the machine lacks `isa`.
pub(crate) fn split(isa: Isa, src: &[u8], planes: &mut [&mut [u8]]) {
    assert!(isa.is_available(), "kernels for another machine");
    match isa {
        // SAFETY: the machine has the features (asserted).
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => unsafe { avx2::split(src, planes) },
        _ => split_any(src, planes),
    }
}

/// The inverse of [`split`].
///
/// # Panics
/// As [`split`].
pub(crate) fn join(isa: Isa, planes: &[&[u8]], dst: &mut [u8]) {
    assert!(isa.is_available(), "kernels for another machine");
    match isa {
        // SAFETY: the machine has the features (asserted).
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::join(planes, dst) },
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            check_lengths(planes, dst);
            // SAFETY: as above; the lengths were compared.
            let done = unsafe {
                match planes.len() {
                    2 => avx512_transpose::join_planes::<2, true>(exactly(planes), dst),
                    4 => avx512_transpose::join_planes::<4, true>(exactly(planes), dst),
                    _ => avx512_transpose::join_planes::<8, true>(exactly(planes), dst),
                }
            };
            join_from(done, planes, dst);
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => {
            check_lengths(planes, dst);
            // SAFETY: the lengths were compared.
            let done = unsafe {
                match planes.len() {
                    2 => neon_rotated::join::<2>(exactly(planes), dst),
                    4 => neon_rotated::join::<4>(exactly(planes), dst),
                    _ => neon_rotated::join::<8>(exactly(planes), dst),
                }
            };
            join_from(done, planes, dst);
        }
        _ => join_any(planes, dst),
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn check_lengths(planes: &[&[u8]], dst: &[u8]) {
    let elements = dst.len() / planes.len();
    assert!(planes.iter().all(|plane| plane.len() == elements));
    assert_eq!(elements * planes.len(), dst.len());
}

/// Joins what is behind the elements that vectors did.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn join_from(done: usize, planes: &[&[u8]], dst: &mut [u8]) {
    let mut rest = [&[][..]; PLANES_MAX];
    for (rest, plane) in rest.iter_mut().zip(planes) {
        *rest = &plane[done..];
    }
    join_any(&rest[..planes.len()], &mut dst[done * planes.len()..]);
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn exactly<'a, const W: usize>(planes: &[&'a [u8]]) -> [&'a [u8]; W] {
    planes.try_into().expect("2, 4 or 8 planes")
}

/// The plain loops, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    #[target_feature(enable = "avx2")]
    pub(super) fn split(src: &[u8], planes: &mut [&mut [u8]]) {
        super::split_any(src, planes);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn join(planes: &[&[u8]], dst: &mut [u8]) {
        super::join_any(planes, dst);
    }
}

#[inline(always)]
fn split_any(src: &[u8], planes: &mut [&mut [u8]]) {
    match planes {
        [p0, p1] => {
            assert!(p0.len() == src.len() / 2 && p1.len() == p0.len());
            let elements = src.as_chunks().0.iter();
            for ((element, p0), p1) in elements.zip(&mut **p0).zip(&mut **p1) {
                [*p0, *p1] = u16::from_le_bytes(*element).rotate_left(1).to_le_bytes();
            }
        }
        [p0, p1, p2, p3] => {
            let len = src.len() / 4;
            assert!([&p0, &p1, &p2, &p3].iter().all(|plane| plane.len() == len));
            for (i, element) in src.as_chunks().0.iter().enumerate() {
                [p0[i], p1[i], p2[i], p3[i]] =
                    u32::from_le_bytes(*element).rotate_left(1).to_le_bytes();
            }
        }
        _ => {
            assert!(planes.len() == 8 && planes.iter().all(|plane| plane.len() == src.len() / 8));
            for (i, element) in src.as_chunks().0.iter().enumerate() {
                let turned = u64::from_le_bytes(*element).rotate_left(1).to_le_bytes();
                for (plane, byte) in planes.iter_mut().zip(turned) {
                    plane[i] = byte;
                }
            }
        }
    }
}

#[inline(always)]
fn join_any(planes: &[&[u8]], dst: &mut [u8]) {
    match planes {
        [p0, p1] => {
            assert!(p0.len() == dst.len() / 2 && p1.len() == p0.len());
            let elements = dst.as_chunks_mut().0.iter_mut();
            for ((element, p0), p1) in elements.zip(*p0).zip(*p1) {
                *element = u16::from_le_bytes([*p0, *p1]).rotate_right(1).to_le_bytes();
            }
        }
        [p0, p1, p2, p3] => {
            let len = dst.len() / 4;
            let (p0, p1, p2, p3) = (&p0[..len], &p1[..len], &p2[..len], &p3[..len]);
            for (i, element) in dst.as_chunks_mut().0.iter_mut().enumerate() {
                let turned = u32::from_le_bytes([p0[i], p1[i], p2[i], p3[i]]);
                *element = turned.rotate_right(1).to_le_bytes();
            }
        }
        _ => {
            let len = dst.len() / 8;
            let planes: &[&[u8]; 8] = planes.try_into().expect("2, 4 or 8 planes");
            let planes = planes.map(|plane| &plane[..len]);
            for (i, element) in dst.as_chunks_mut().0.iter_mut().enumerate() {
                let turned = u64::from_le_bytes(planes.map(|plane| plane[i]));
                *element = turned.rotate_right(1).to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition.
    fn turned(element: &[u8]) -> Vec<u8> {
        let top = |at: usize| element[(at + element.len() - 1) % element.len()] >> 7;
        let byte = |(at, byte): (usize, &u8)| (byte << 1) | top(at);
        element.iter().enumerate().map(byte).collect()
    }

    #[test]
    fn every_kernel_turns_splits_and_joins_as_the_definition_does() {
        for (width, elements) in [2, 4, 8]
            .into_iter()
            .flat_map(|width| [0, 1, 63, 64, 65, 129, 1000].map(|elements| (width, elements)))
        {
            let bytes = (0u32..).take(width * elements);
            let src: Vec<u8> = bytes
                .map(|i| (i.wrapping_mul(i + 7) >> 3).to_le_bytes()[0])
                .collect();
            let mut expected = vec![vec![]; width];
            for element in src.chunks(width) {
                for (plane, byte) in expected.iter_mut().zip(turned(element)) {
                    plane.push(byte);
                }
            }
            for isa in Isa::available() {
                let mut planes = vec![vec![0xEE; elements]; width];
                let mut parts: Vec<_> = planes.iter_mut().map(|plane| &mut plane[..]).collect();
                split(isa, &src, &mut parts);
                assert!(planes == expected, "{isa:?}, {width} bytes, {elements}");
                let mut out = vec![0xEE; src.len()];
                let parts: Vec<_> = planes.iter().map(|plane| &plane[..]).collect();
                join(isa, &parts, &mut out);
                assert!(out == src, "{isa:?}, {width} bytes, {elements}");
            }
        }
    }
}
