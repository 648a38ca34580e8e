//! Integer type to integer type: narrow, widen, copy.
//!
//! One generic loop, compiled for the baseline and for AVX2: the compiler makes good vector code of it. AVX-512 is written by hand
//! (`avx512_convert.rs`), for the sake of prefetching.

use crate::element::{ElementType, ValueRange};
use crate::kernels::Isa;
#[cfg(target_arch = "x86_64")]
use crate::kernels::avx512_convert;
use crate::kernels::place::Place;

/// An integer as a kernel needs it.
trait Int: Copy + Ord + Into<i128> {
    const MIN: Self;
    const MAX: Self;
}

/// The low bits of an integer, or its sign-extended value, in another width.
trait Cast<T>: Int {
    fn cast(self) -> T;
}

macro_rules! ints {
    ($($int:ty),*) => {
        $(impl Int for $int {
            const MIN: Self = <$int>::MIN;
            const MAX: Self = <$int>::MAX;
        })*
        $(ints!(@casts $int: u8, u16, u32, u64);)*
    };
    (@casts $int:ty: $($to:ty),*) => {
        $(impl Cast<$to> for $int {
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_lossless, clippy::cast_sign_loss)]
            fn cast(self) -> $to {
                self as $to
            }
        })*
    };
}
ints!(u8, i8, u16, i16, u32, i32, u64, i64);

/// The loop. The caller checked the lengths and that there is an element.
///
/// # Safety
/// `src` is readable for `count` elements, `dst` writable for `count`, and they do not overlap.
#[inline(always)]
unsafe fn body<S: Cast<T>, T: Copy>(src: *const u8, dst: *mut u8, count: usize) -> ValueRange {
    let src = src.cast::<S>();
    let dst = dst.cast::<T>();
    let (mut min, mut max) = (S::MAX, S::MIN);
    for i in 0..count {
        // SAFETY: `i < count`, within what the caller promises; neither side need be aligned.
        let value = unsafe { src.add(i).read_unaligned() };
        min = min.min(value);
        max = max.max(value);
        // SAFETY: as above.
        unsafe { dst.add(i).write_unaligned(value.cast()) };
    }
    ValueRange {
        min: min.into(),
        max: max.into(),
    }
}

/// The smallest and largest of `count` elements.
///
/// # Safety
/// `src` is readable for `count` elements.
#[inline(always)]
unsafe fn extent_body<S: Int>(src: *const u8, count: usize) -> ValueRange {
    let src = src.cast::<S>();
    let (mut min, mut max) = (S::MAX, S::MIN);
    for i in 0..count {
        // SAFETY: `i < count`, within what the caller promises; it need not be aligned.
        let value = unsafe { src.add(i).read_unaligned() };
        min = min.min(value);
        max = max.max(value);
    }
    ValueRange {
        min: min.into(),
        max: max.into(),
    }
}

/// One set of loops per instruction set.
macro_rules! for_isa {
    ($name:ident $(, $feature:literal)?) => {
        mod $name {
            use super::*;

            $(#[target_feature(enable = $feature)])?
            pub(super) unsafe fn convert(
                from: ElementType,
                to_bytes: usize,
                src: *const u8,
                dst: *mut u8,
                count: usize,
            ) -> ValueRange {
                macro_rules! to {
                    ($s:ty) => {
                        match to_bytes {
                            // SAFETY: passed on to the caller.
                            1 => unsafe { body::<$s, u8>(src, dst, count) },
                            // SAFETY: passed on to the caller.
                            2 => unsafe { body::<$s, u16>(src, dst, count) },
                            // SAFETY: passed on to the caller.
                            4 => unsafe { body::<$s, u32>(src, dst, count) },
                            // SAFETY: passed on to the caller.
                            8 => unsafe { body::<$s, u64>(src, dst, count) },
                            _ => unreachable!("integers have 1, 2, 4 or 8 bytes"),
                        }
                    };
                }
                by_type!(from, to)
            }

            $(#[target_feature(enable = $feature)])?
            pub(super) unsafe fn extent(from: ElementType, src: *const u8, count: usize) -> ValueRange {
                macro_rules! of {
                    ($s:ty) => {
                        // SAFETY: passed on to the caller.
                        unsafe { extent_body::<$s>(src, count) }
                    };
                }
                by_type!(from, of)
            }
        }
    };
}

/// Calls a macro with the Rust type of an integer element type.
macro_rules! by_type {
    ($element:expr, $call:ident) => {
        match $element {
            ElementType::U8 => $call!(u8),
            ElementType::I8 => $call!(i8),
            ElementType::U16 => $call!(u16),
            ElementType::I16 => $call!(i16),
            ElementType::U32 => $call!(u32),
            ElementType::I32 => $call!(i32),
            ElementType::U64 => $call!(u64),
            ElementType::I64 => $call!(i64),
            _ => unreachable!("only integers are converted"),
        }
    };
}

for_isa!(baseline);
#[cfg(target_arch = "x86_64")]
for_isa!(avx2, "avx2,bmi2");

/// Converts `count` integers of type `from` into integers of `to_bytes` bytes, and returns the range of the values met.
///
/// # Safety
/// `place` has room for `count` elements, at most a block of them, and does not overlap `src`. The machine has `isa`.
///
/// # Panics
/// When `src` is shorter than `count` elements, `count` is 0, or a type is no integer.
pub(crate) unsafe fn convert(
    isa: Isa,
    from: ElementType,
    to_bytes: usize,
    src: &[u8],
    place: &mut Place,
    count: usize,
) -> ValueRange {
    assert!(count > 0 && src.len() / from.bytes() >= count);
    debug_assert!(isa.is_available());
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx512 {
        // SAFETY: the source was asserted, the place and the instruction set are promised by the caller.
        return unsafe { avx512_convert::convert(from, to_bytes, src.as_ptr(), place, count) };
    }
    let step = if place.is_far() {
        FAR_STEP_ELEMENTS
    } else {
        count
    };
    let (mut done, mut seen) = (0, None);
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx2 && place.is_far() && from.bytes() == to_bytes {
        let src = src.as_ptr();
        // SAFETY: as above.
        let (copied, min, max) = unsafe {
            match from {
                ElementType::U8 => super::avx2::copy::<1>(src, place, count),
                ElementType::U16 => super::avx2::copy::<2>(src, place, count),
                ElementType::U32 => super::avx2::copy::<4>(src, place, count),
                _ => (0, 0, 0),
            }
        };
        let (min, max) = (min.into(), max.into());
        seen = (copied > 0).then_some(ValueRange { min, max });
        done = copied;
    }
    while done < count {
        let now = (count - done).min(step);
        // SAFETY: as above: the next `now` of the `count` elements, on both sides.
        let met = unsafe {
            let (from_at, to) = (src.as_ptr().add(done * from.bytes()), place.cursor());
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2::convert(from, to_bytes, from_at, to, now),
                _ => baseline::convert(from, to_bytes, from_at, to, now),
            }
        };
        // SAFETY: they have been written.
        unsafe { place.advance(now * to_bytes) };
        super::widen(&mut seen, met);
        done += now;
    }
    seen.unwrap_or(NOTHING)
}

/// Elements that are converted between two copies out of the cache: few, so that these overlap with what is read.
const FAR_STEP_ELEMENTS: usize = 512;

/// The range of no elements, for which no kernel is called.
pub(super) const NOTHING: ValueRange = ValueRange { min: 0, max: 0 };

/// The range of the first `count` integers of `src`.
///
/// # Panics
/// When `src` is shorter than `count` elements, `count` is 0, the type is no integer, or the machine lacks `isa`.
pub(crate) fn extent(isa: Isa, from: ElementType, src: &[u8], count: usize) -> ValueRange {
    assert!(count > 0 && src.len() / from.bytes() >= count && isa.is_available());
    let src = src.as_ptr();
    match isa {
        // SAFETY: the length and the instruction set were asserted.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::extent(from, src, count) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512_convert::extent(from, src, count) },
        // SAFETY: as above.
        _ => unsafe { baseline::extent(from, src, count) },
    }
}
