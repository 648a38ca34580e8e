//! Elements to planes of their bytes, and back.

use crate::kernels::Isa;
#[cfg(target_arch = "x86_64")]
use crate::kernels::avx512_transpose;

/// Elements of one turn: the compiler makes vector code of a turn of fixed length.
const TURN: usize = 64;

/// Byte `j` of element `e` of `src` goes to `dst[j * elements + e]`. `width` is 2, 3, 4 or 8.
///
/// # Panics
/// When the lengths differ or are no multiple of `width`, or the machine lacks `isa`.
pub(crate) fn split(isa: Isa, width: usize, src: &[u8], dst: &mut [u8]) {
    check(isa, width, src, dst);
    match width {
        2 => split_width::<2>(isa, src, dst),
        3 => split_from::<3>(0, src, dst),
        4 => split_width::<4>(isa, src, dst),
        8 => split_width::<8>(isa, src, dst),
        _ => unreachable!("packed elements have 2, 3, 4 or 8 whole bytes"),
    }
}

/// The inverse of [`split`].
///
/// # Panics
/// As [`split`].
pub(crate) fn join(isa: Isa, width: usize, src: &[u8], dst: &mut [u8]) {
    check(isa, width, src, dst);
    match width {
        2 => join_width::<2>(isa, src, dst),
        3 => join_from::<3>(0, src, dst),
        4 => join_width::<4>(isa, src, dst),
        8 => join_width::<8>(isa, src, dst),
        _ => unreachable!("packed elements have 2, 3, 4 or 8 whole bytes"),
    }
}

fn check(isa: Isa, width: usize, src: &[u8], dst: &[u8]) {
    assert!(isa.is_available(), "kernels for another machine");
    assert!(src.len() == dst.len() && src.len().is_multiple_of(width));
}

fn split_width<const W: usize>(isa: Isa, src: &[u8], dst: &mut [u8]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            // SAFETY: `check` asserted the lengths and the instruction set.
            let done = unsafe { avx512_transpose::split::<W>(src, dst) };
            split_from::<W>(done, src, dst);
        }
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::split::<W>(src, dst) },
        _ => split_from::<W>(0, src, dst),
    }
}

fn join_width<const W: usize>(isa: Isa, src: &[u8], dst: &mut [u8]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            // SAFETY: `check` asserted the lengths and the instruction set.
            let done = unsafe { avx512_transpose::join::<W>(src, dst) };
            join_from::<W>(done, src, dst);
        }
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::join::<W>(src, dst) },
        _ => join_from::<W>(0, src, dst),
    }
}

/// The plain loops, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    #[target_feature(enable = "avx2")]
    pub(super) fn split<const W: usize>(src: &[u8], dst: &mut [u8]) {
        super::split_from::<W>(0, src, dst);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn join<const W: usize>(src: &[u8], dst: &mut [u8]) {
        super::join_from::<W>(0, src, dst);
    }
}

/// Splits the elements from `first` on.
#[inline(always)]
fn split_from<const W: usize>(mut first: usize, src: &[u8], dst: &mut [u8]) {
    let elements = src.len() / W;
    let mut turns = src[first * W..].chunks_exact(TURN * W);
    for turn in &mut turns {
        for j in 0..W {
            let plane = &mut dst[j * elements + first..][..TURN];
            for e in 0..TURN {
                plane[e] = turn[e * W + j];
            }
        }
        first += TURN;
    }
    for (e, element) in (first..).zip(turns.remainder().chunks_exact(W)) {
        for (j, byte) in element.iter().enumerate() {
            dst[j * elements + e] = *byte;
        }
    }
}

/// Joins the elements from `first` on.
#[inline(always)]
fn join_from<const W: usize>(mut first: usize, src: &[u8], dst: &mut [u8]) {
    let elements = dst.len() / W;
    let mut turns = dst[first * W..].chunks_exact_mut(TURN * W);
    for turn in &mut turns {
        let planes: [&[u8]; W] = std::array::from_fn(|j| &src[j * elements + first..][..TURN]);
        for e in 0..TURN {
            for j in 0..W {
                turn[e * W + j] = planes[j][e];
            }
        }
        first += TURN;
    }
    for (e, element) in (first..).zip(turns.into_remainder().chunks_exact_mut(W)) {
        for (j, byte) in element.iter_mut().enumerate() {
            *byte = src[j * elements + e];
        }
    }
}
