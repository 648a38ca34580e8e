//! Floating-point elements to planes of bytes and back, each element turned left by a bit first: then its exponent starts with the highest
//! bit, and the sign is the lowest one.

use crate::kernels::Isa;

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
        Isa::Avx2 | Isa::Avx512 => unsafe { avx2::join(planes, dst) },
        _ => join_any(planes, dst),
    }
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
