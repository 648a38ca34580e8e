//! Floating point to floating point: what each conversion is, on bits, and which code runs it.
//!
//! The functions of [`scalar`] are the definition that everything else is held against, and the loop of conversions that nobody wrote vectors
//! for: they have no branches, so the compiler makes vector code of them. They rely on the default floating-point environment (round to nearest,
//! no flushing of subnormals), as all Rust code does. A NaN's bits are made with integers: what the arithmetic leaves in them is not defined.

use crate::element::ElementType;
use crate::kernels::Isa;
use crate::kernels::place::Place;
#[cfg(target_arch = "x86_64")]
use crate::kernels::{avx2_floats, avx512_floats};

/// One element, by its bits.
pub(super) mod scalar {
    const F32_INFINITE: u32 = 0x7F80_0000;
    const F32_QUIET: u32 = 0x0040_0000;

    pub(in crate::kernels) fn same<T>(bits: T) -> T {
        bits
    }

    pub(in crate::kernels) fn bf16_to_f32(bits: u16) -> u32 {
        u32::from(bits) << 16
    }

    pub(in crate::kernels) fn f16_to_f32(bits: u16) -> u32 {
        /// From the bias of one type (15) to that of the other (127).
        const REBIAS: u32 = (127 - 15) << 23;
        /// The smallest normal f16, 2^-14.
        const SMALLEST: u32 = (127 - 14) << 23;
        let bits = u32::from(bits);
        let sign = (bits & 0x8000) << 16;
        let shifted = (bits & 0x7FFF) << 13;
        let normal = shifted + REBIAS;
        // Exponent 31 becomes 255.
        let special = normal + REBIAS;
        // A subnormal m * 2^-24 is 2^-14 (1 + m * 2^-10) - 2^-14: exact.
        let subnormal = f32::from_bits(shifted + SMALLEST) - f32::from_bits(SMALLEST);
        let finite = if shifted < 0x0080_0000 {
            subnormal.to_bits()
        } else {
            normal
        };
        sign | if shifted >= 0x0F80_0000 {
            special
        } else {
            finite
        }
    }

    pub(in crate::kernels) fn f32_to_f64(bits: u32) -> u64 {
        let rest = bits & 0x7FFF_FFFF;
        let nan = u64::from(bits & 0x8000_0000) << 32
            | 0x7FF0_0000_0000_0000
            | u64::from(bits & 0x007F_FFFF) << 29;
        let number = f64::from(f32::from_bits(bits)).to_bits();
        if rest > F32_INFINITE { nan } else { number }
    }

    #[allow(clippy::cast_possible_truncation)] // the upper half, moved down
    pub(in crate::kernels) fn f32_to_bf16(bits: u32) -> u16 {
        let quiet = bits | F32_QUIET;
        // Half an ulp less the least bit, and that bit where the result would be odd: ties go to even. It carries into the exponent
        // and up to infinity as it should.
        let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1));
        let is_nan = bits & 0x7FFF_FFFF > F32_INFINITE;
        (if is_nan { quiet } else { rounded } >> 16) as u16
    }

    #[allow(clippy::cast_possible_truncation)] // every case is below 2^16
    pub(in crate::kernels) fn f32_to_f16(bits: u32) -> u16 {
        const REBIAS: u32 = (127 - 15) << 23;
        /// 2^-14, below which an f16 is subnormal.
        const SMALLEST: u32 = (127 - 14) << 23;
        /// 2^16, which is infinite, as everything above it is.
        const TOO_LARGE: u32 = (127 + 16) << 23;
        let sign = bits >> 16 & 0x8000;
        let rest = bits & 0x7FFF_FFFF;
        let nan = 0x7E00 | (rest >> 13 & 0x03FF);
        // As in `f32_to_bf16`. From 65,520 on it carries up to infinity.
        let near = rest.clamp(SMALLEST, TOO_LARGE);
        let normal = (near - REBIAS + 0x0FFF + (near >> 13 & 1)) >> 13;
        // An ulp of 0.5 is 2^-24, as that of every subnormal f16: the sum rounds as it should.
        let subnormal = (f32::from_bits(rest) + 0.5)
            .to_bits()
            .wrapping_sub(0.5f32.to_bits());
        let finite = if rest < SMALLEST { subnormal } else { normal };
        let result = if rest > F32_INFINITE { nan } else { finite };
        (sign | result) as u16
    }

    #[allow(clippy::cast_possible_truncation)] // the conversion itself rounds to nearest even
    pub(in crate::kernels) fn f64_to_f32(bits: u64) -> u32 {
        let number = (f64::from_bits(bits) as f32).to_bits();
        let nan = (bits >> 32) as u32 & 0x8000_0000
            | F32_INFINITE
            | F32_QUIET
            | (bits >> 29) as u32 & 0x007F_FFFF;
        let is_nan = bits & 0x7FFF_FFFF_FFFF_FFFF > 0x7FF0_0000_0000_0000;
        if is_nan { nan } else { number }
    }

    /// To f32 with the last bit set where anything was cut off (rounding to odd). Rounding that again to 16 bits is as good as rounding once:
    /// the last bit keeps what decides a tie, and f32 has more than two bits more than both types.
    fn f64_to_odd_f32(bits: u64) -> u32 {
        let nearest = f64_to_f32(bits);
        let magnitude = f64::from_bits(bits & 0x7FFF_FFFF_FFFF_FFFF);
        let back = f64::from(f32::from_bits(nearest & 0x7FFF_FFFF));
        // The next one toward zero; a NaN is on neither side.
        let cut = nearest.wrapping_sub(u32::from(back > magnitude));
        if back == magnitude || magnitude.is_nan() {
            nearest
        } else {
            cut | 1
        }
    }

    pub(in crate::kernels) fn f64_to_bf16(bits: u64) -> u16 {
        f32_to_bf16(f64_to_odd_f32(bits))
    }

    pub(in crate::kernels) fn f64_to_f16(bits: u64) -> u16 {
        f32_to_f16(f64_to_odd_f32(bits))
    }

    pub(in crate::kernels) fn bf16_to_f64(bits: u16) -> u64 {
        f32_to_f64(bf16_to_f32(bits))
    }

    pub(in crate::kernels) fn f16_to_f64(bits: u16) -> u64 {
        f32_to_f64(f16_to_f32(bits))
    }

    pub(in crate::kernels) fn bf16_to_f16(bits: u16) -> u16 {
        f32_to_f16(bf16_to_f32(bits))
    }

    pub(in crate::kernels) fn f16_to_bf16(bits: u16) -> u16 {
        f32_to_bf16(f16_to_f32(bits))
    }
}

/// Calls a macro with the integers that hold the bits of two types, and the conversion between them.
macro_rules! by_pair {
    ($from:expr, $to:expr, $call:ident) => {
        match ($from, $to) {
            (ElementType::Bf16, ElementType::F32) => $call!(u16, u32, scalar::bf16_to_f32),
            (ElementType::F16, ElementType::F32) => $call!(u16, u32, scalar::f16_to_f32),
            (ElementType::F32, ElementType::F64) => $call!(u32, u64, scalar::f32_to_f64),
            (ElementType::Bf16, ElementType::F64) => $call!(u16, u64, scalar::bf16_to_f64),
            (ElementType::F16, ElementType::F64) => $call!(u16, u64, scalar::f16_to_f64),
            (ElementType::F32, ElementType::Bf16) => $call!(u32, u16, scalar::f32_to_bf16),
            (ElementType::F32, ElementType::F16) => $call!(u32, u16, scalar::f32_to_f16),
            (ElementType::F64, ElementType::F32) => $call!(u64, u32, scalar::f64_to_f32),
            (ElementType::F64, ElementType::Bf16) => $call!(u64, u16, scalar::f64_to_bf16),
            (ElementType::F64, ElementType::F16) => $call!(u64, u16, scalar::f64_to_f16),
            (ElementType::Bf16, ElementType::F16) => $call!(u16, u16, scalar::bf16_to_f16),
            (ElementType::F16, ElementType::Bf16) => $call!(u16, u16, scalar::f16_to_bf16),
            (ElementType::F64, ElementType::F64) => $call!(u64, u64, scalar::same),
            (ElementType::F32, ElementType::F32) => $call!(u32, u32, scalar::same),
            (from, to) => {
                // Both of 16 bits, and the same.
                assert!(
                    from == to && from.bits() == 16,
                    "{from} to {to} is no conversion"
                );
                $call!(u16, u16, scalar::same)
            }
        }
    };
}

/// The loop.
///
/// # Safety
/// `src` is readable for `count` elements, `dst` writable for `count`, and they do not overlap.
#[inline(always)]
unsafe fn body<S: Copy, T>(
    src: *const u8,
    dst: *mut u8,
    count: usize,
    convert: impl Fn(S) -> T + Copy,
) {
    let (src, dst) = (src.cast::<S>(), dst.cast::<T>());
    for i in 0..count {
        // SAFETY: `i < count`, within what the caller promises; neither side need be aligned.
        unsafe {
            dst.add(i)
                .write_unaligned(convert(src.add(i).read_unaligned()));
        }
    }
}

/// The loops, compiled for an instruction set.
macro_rules! for_isa {
    ($name:ident $(, $feature:literal)?) => {
        mod $name {
            use super::*;

            $(#[target_feature(enable = $feature)])?
            pub(super) unsafe fn convert(
                from: ElementType,
                to: ElementType,
                src: *const u8,
                dst: *mut u8,
                count: usize,
            ) {
                macro_rules! run {
                    ($s:ty, $t:ty, $convert:path) => {
                        // SAFETY: passed on to the caller.
                        unsafe { body::<$s, $t>(src, dst, count, |bits| $convert(bits)) }
                    };
                }
                by_pair!(from, to, run);
            }
        }
    };
}

for_isa!(baseline);
#[cfg(target_arch = "x86_64")]
for_isa!(avx2, "avx2,bmi2");
#[cfg(target_arch = "x86_64")]
for_isa!(avx512, "avx512f,avx512bw,avx512vl,avx512dq");

/// Converts `count` elements of type `from` into elements of type `to`, both floating point.
///
/// # Safety
/// `place` has room for `count` elements, at most a block of them, and does not overlap `src`. The machine has `isa`.
///
/// # Panics
/// When `src` is shorter than `count` elements, or a type is no floating point.
pub(crate) unsafe fn convert(
    isa: Isa,
    from: ElementType,
    to: ElementType,
    src: &[u8],
    place: &mut Place,
    count: usize,
) {
    assert!(src.len() / from.bytes() >= count);
    debug_assert!(isa.is_available());
    let src = src.as_ptr();
    let mut done = match isa {
        // SAFETY: the source was asserted, the place and the instruction set are promised by the caller.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2_floats::convert(from, to, src, place, count) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512_floats::convert(from, to, src, place, count) },
        _ => 0,
    };
    while done < count {
        let now = (count - done).min(STEP_ELEMENTS);
        // SAFETY: as above: the next `now` of the `count` elements, on both sides.
        unsafe {
            let (from_at, to_at) = (src.add(done * from.bytes()), place.cursor());
            match isa {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2::convert(from, to, from_at, to_at, now),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512::convert(from, to, from_at, to_at, now),
                _ => baseline::convert(from, to, from_at, to_at, now),
            }
            place.advance(now * to.bytes());
        }
        done += now;
    }
}

/// Elements between two copies out of the cache, where the result goes past it: few, so that these overlap with what is read.
const STEP_ELEMENTS: usize = 512;

/// The first element of `bytes`, of type `from`, as the first bytes of the result; 0 bits stand for bytes that are not there.
pub(crate) fn one(from: ElementType, to: ElementType, bytes: &[u8]) -> [u8; 8] {
    let mut element = [0u8; 8];
    for (to, byte) in element.iter_mut().zip(bytes.iter().take(from.bytes())) {
        *to = *byte;
    }
    let mut result = [0u8; 8];
    // SAFETY: one element of at most 8 bytes on both sides, apart from each other.
    unsafe { baseline::convert(from, to, element.as_ptr(), result.as_mut_ptr(), 1) };
    result
}
