//! Planes of turned floating-point elements put together, with NEON: the bytes of `W` vectors are riffled together by two, as often as `W` can be halved,
//! and each element is turned right by a bit.

use std::arch::aarch64::*;

/// Elements that are joined at a time: a vector of each plane.
const STEP_ELEMENTS: usize = 16;

/// Joins whole steps of elements of `W` bytes, 2, 4 or 8; returns the elements done.
///
/// # Safety
/// Each plane has as many bytes as `dst`, which is whole elements, has elements.
pub(super) unsafe fn join<const W: usize>(planes: [&[u8]; W], dst: &mut [u8]) -> usize {
    let steps = dst.len() / W / STEP_ELEMENTS;
    for step in 0..steps {
        // SAFETY: NEON is part of every aarch64; step `step` is one vector in each of the W planes of the source, and W of the destination.
        unsafe {
            let mut v = planes.map(|plane| vld1q_u8(plane.as_ptr().add(step * STEP_ELEMENTS)));
            for _ in 0..W.trailing_zeros() {
                let halves = v;
                for k in 0..W / 2 {
                    let (a, b) = (halves[k], halves[W / 2 + k]);
                    v[2 * k] = vzip1q_u8(a, b);
                    v[2 * k + 1] = vzip2q_u8(a, b);
                }
            }
            let to = dst.as_mut_ptr().add(step * STEP_ELEMENTS * W);
            for (i, bytes) in v.into_iter().enumerate() {
                vst1q_u8(to.add(16 * i), turned::<W>(bytes));
            }
        }
    }
    steps * STEP_ELEMENTS
}

/// Elements of `W` bytes, turned right by a bit: shifted, and the lowest bit inserted as the highest.
#[inline(always)]
fn turned<const W: usize>(elements: uint8x16_t) -> uint8x16_t {
    // SAFETY: NEON is part of every aarch64.
    unsafe {
        match W {
            2 => {
                let it = vreinterpretq_u16_u8(elements);
                vreinterpretq_u8_u16(vsliq_n_u16::<15>(vshrq_n_u16::<1>(it), it))
            }
            4 => {
                let it = vreinterpretq_u32_u8(elements);
                vreinterpretq_u8_u32(vsliq_n_u32::<31>(vshrq_n_u32::<1>(it), it))
            }
            _ => {
                let it = vreinterpretq_u64_u8(elements);
                vreinterpretq_u8_u64(vsliq_n_u64::<63>(vshrq_n_u64::<1>(it), it))
            }
        }
    }
}
