//! What the floating-point kernels of AVX2 and AVX-512 have in common: which pairs of types there are kernels for, and the loop around a step.

/// The function that chooses among the kernels of its module.
macro_rules! choice {
    () => {
        /// Converts most of `count` elements, where there is a kernel for the pair of types. Returns how many.
        ///
        /// # Safety
        /// The machine has the instructions of this module; `src` is readable for `count` elements, `place` has room for `count`.
        pub(super) unsafe fn convert(
            from: crate::element::ElementType,
            to: crate::element::ElementType,
            src: *const u8,
            place: &mut crate::kernels::place::Place,
            count: usize,
        ) -> usize {
            use crate::element::ElementType::{Bf16, F16, F32, F64};
            // SAFETY: passed on to the caller.
            unsafe {
                match (from, to) {
                    (Bf16, F32) => bf16_to_f32(src, place, count),
                    (F16, F32) => f16_to_f32(src, place, count),
                    (F32, F64) => f32_to_f64(src, place, count),
                    (F32, Bf16) => f32_to_bf16(src, place, count),
                    (F32, F16) => f32_to_f16(src, place, count),
                    (F64, F32) => f64_to_f32(src, place, count),
                    _ => 0,
                }
            }
        }
    };
}
pub(super) use choice;

/// A kernel: its instruction set, its name, elements of a step, bytes of an element on both sides, which prefetch, and what a step does, from `from` to
/// `to`.
macro_rules! kernel {
    (avx2, $($rest:tt)*) => {
        kernel!("avx2,f16c", $($rest)*);
    };
    (avx512, $($rest:tt)*) => {
        kernel!("avx512f,avx512bw,avx512vl,avx512dq", $($rest)*);
    };
    ($features:literal, $name:ident, $step:literal, $from_bytes:literal, $to_bytes:literal, $prefetch:ident, |$from:ident, $to:ident| $body:block) => {
        /// # Safety
        /// As [`convert`].
        #[target_feature(enable = $features)]
        unsafe fn $name(
            src: *const u8,
            place: &mut crate::kernels::place::Place,
            count: usize,
        ) -> usize {
            let steps = count / $step;
            let mut pen = place.pen();
            for i in 0..steps {
                // SAFETY: step `i` has so many elements on both sides, and the body touches no more.
                unsafe {
                    let $from = src.add(i * $step * $from_bytes);
                    crate::kernels::$prefetch($from);
                    let $to = pen.at();
                    $body
                    pen.advance($step * $to_bytes, place);
                }
            }
            place.put_back(pen);
            steps * $step
        }
    };
}
pub(super) use kernel;
