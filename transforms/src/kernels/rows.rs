//! Rows of numbers that share a scale, in 8 bits each: what each conversion is, and which code runs it.
//!
//! The functions of [`scalar`] are the definition that everything else is held against, and the loop for machines without a kernel. They rely on the
//! default floating-point environment, as those of `floats.rs`. A kernel is given a run of one row at a time. What no kernel does at once (16 bits in
//! portable code, f16 with NEON, a view of another type behind a rounding one) goes through a tile of f32 in the cache.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) mod by_steps;

use crate::element::ElementType;
use crate::encoder::convert_floats;
use crate::kernels::place::Place;
use crate::kernels::q8::{BF16, F32};
use crate::kernels::{Isa, floats};
#[cfg(target_arch = "x86_64")]
use crate::kernels::{avx2_rows, avx512_rows};

/// Elements of a tile between two kernels: 4 KiB of f32.
const TILE_ELEMENTS: usize = 1024;

/// One number.
pub(super) mod scalar {
    /// 1.5 times 2^23. A number of at most 2^22 that is added to it becomes whole, by rounding to nearest, ties to even, and stands in the low bits.
    const WHOLE: f32 = 12_582_912.0;

    /// Of a row with this largest magnitude: 0 where the scale would have no reciprocal, so that all of the row is 0.
    pub(in crate::kernels) fn scale_of(largest: f32) -> f32 {
        let scale = largest / 127.0;
        if (1.0 / scale).is_finite() {
            scale
        } else {
            0.0
        }
    }

    /// By what the numbers of a row are multiplied.
    pub(in crate::kernels) fn reciprocal(scale: f32) -> f32 {
        if scale == 0.0 { 0.0 } else { 1.0 / scale }
    }

    /// A number as a multiple of its scale: -127 to 127 where the row fits it.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // the low bits
    pub(in crate::kernels) fn steps(number: f32, by: f32) -> u8 {
        (number * by + WHOLE).to_bits() as u8
    }

    /// The number again.
    #[inline(always)]
    pub(in crate::kernels) fn number(steps: u8, scale: f32) -> f32 {
        f32::from(steps.cast_signed()) * scale
    }

    /// Whether numbers up to this magnitude, by its bits, are multiples of -127 to 127 of a scale.
    pub(in crate::kernels) fn fits(largest: u32, scale: f32) -> bool {
        let largest = f32::from_bits(largest);
        if scale == 0.0 {
            return largest.is_finite() && scale_of(largest) == 0.0;
        }
        // 127.5 is rounded to 128.
        largest.is_finite() && largest * reciprocal(scale) < 127.5
    }
}

/// The loops for machines without a kernel, of f32.
mod portable {
    use super::{Place, scalar};

    /// # Safety
    /// As [`largest_of`](super::largest_of).
    pub(super) unsafe fn largest(src: *const u8, count: usize) -> u32 {
        // SAFETY: promised by the caller.
        let numbers = unsafe { std::slice::from_raw_parts(src.cast::<[u8; 4]>(), count) };
        let magnitudes = numbers
            .iter()
            .map(|it| u32::from_le_bytes(*it) & 0x7FFF_FFFF);
        magnitudes.fold(0, u32::max)
    }

    /// # Safety
    /// As [`quantize_run`](super::quantize_run).
    pub(super) unsafe fn quantize(src: *const u8, by: f32, place: &mut Place, count: usize) -> u32 {
        // SAFETY: promised by the caller.
        unsafe {
            let numbers = std::slice::from_raw_parts(src.cast::<[u8; 4]>(), count);
            for (to, number) in place.next(count).iter_mut().zip(numbers) {
                *to = scalar::steps(f32::from_le_bytes(*number), by);
            }
            place.advance(count);
            largest(src, count)
        }
    }

    /// # Safety
    /// As [`dequantize_run`](super::dequantize_run).
    pub(super) unsafe fn dequantize(src: *const u8, scale: f32, place: &mut Place, count: usize) {
        // SAFETY: promised by the caller.
        unsafe {
            let steps = std::slice::from_raw_parts(src, count);
            let numbers = place.next(4 * count).as_chunks_mut().0;
            for (to, steps) in numbers.iter_mut().zip(steps) {
                *to = scalar::number(*steps, scale).to_le_bytes();
            }
            place.advance(4 * count);
        }
    }
}

/// Whether a kernel takes and makes this type itself.
fn is_direct(isa: Isa, element: ElementType) -> bool {
    match (isa, element) {
        (_, ElementType::F32) => true,
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2 | Isa::Avx512, ElementType::Bf16 | ElementType::F16) => true,
        #[cfg(target_arch = "aarch64")]
        (Isa::Neon, ElementType::Bf16) => true,
        _ => false,
    }
}

/// Calls the kernel of an instruction set and a type.
macro_rules! dispatch {
    ($isa:expr, $element:expr, $name:ident($($argument:expr),*)) => {
        match ($isa, $element.code()) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, F32) => avx2_rows::$name::<F32>($($argument),*),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, BF16) => avx2_rows::$name::<BF16>($($argument),*),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => avx2_rows::$name::<{ ElementType::F16 as u8 }>($($argument),*),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, F32) => avx512_rows::$name::<F32>($($argument),*),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, BF16) => avx512_rows::$name::<BF16>($($argument),*),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => avx512_rows::$name::<{ ElementType::F16 as u8 }>($($argument),*),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, F32) => crate::kernels::neon_rows::$name::<F32>($($argument),*),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, _) => crate::kernels::neon_rows::$name::<BF16>($($argument),*),
            _ => portable::$name($($argument),*),
        }
    };
}

/// The largest magnitude of numbers of a type that is direct, by its bits as f32.
///
/// # Safety
/// `src` is readable for so many numbers. The machine has `isa`.
unsafe fn largest_of(isa: Isa, element: ElementType, src: *const u8, count: usize) -> u32 {
    debug_assert!(is_direct(isa, element));
    // SAFETY: passed on to the caller.
    unsafe { dispatch!(isa, element, largest(src, count)) }
}

/// Numbers of one row, of a type that is direct, multiplied and rounded; returns their largest magnitude.
///
/// # Safety
/// `src` is readable for so many numbers, `place` has room for as many bytes and does not overlap. They are no more than a block of a kernel's. The
/// machine has `isa`.
unsafe fn quantize_run(
    isa: Isa,
    element: ElementType,
    src: *const u8,
    by: f32,
    place: &mut Place,
    count: usize,
) -> u32 {
    debug_assert!(is_direct(isa, element));
    // SAFETY: passed on to the caller.
    unsafe { dispatch!(isa, element, quantize(src, by, place, count)) }
}

/// Multiples of one scale as numbers of a type that is direct.
///
/// # Safety
/// As [`quantize_run`], the sides changed.
unsafe fn dequantize_run(
    isa: Isa,
    element: ElementType,
    src: *const u8,
    scale: f32,
    place: &mut Place,
    count: usize,
) {
    debug_assert!(is_direct(isa, element));
    // SAFETY: passed on to the caller.
    unsafe { dispatch!(isa, element, dequantize(src, scale, place, count)) }
}

/// The largest magnitude of whole elements, by its bits as f32. Infinities and NaNs are larger than every number.
pub(crate) fn largest(isa: Isa, element: ElementType, src: &[u8]) -> u32 {
    assert!(isa.is_available(), "kernels for another machine");
    let size = element.bytes();
    if is_direct(isa, element) {
        // SAFETY: the whole of `src`; the instruction set was asserted.
        return unsafe { largest_of(isa, element, src.as_ptr(), src.len() / size) };
    }
    let mut tile = [0; 4 * TILE_ELEMENTS];
    let mut met = 0;
    for src in src.chunks(TILE_ELEMENTS * size) {
        let numbers = &mut tile[..src.len() / size * 4];
        convert_floats(isa, element, ElementType::F32, src, numbers);
        // SAFETY: as above, of the tile.
        met = met
            .max(unsafe { largest_of(isa, ElementType::F32, numbers.as_ptr(), numbers.len() / 4) });
    }
    met
}

/// The scale of a row with this largest magnitude, by its bits.
pub(crate) fn scale_of(largest: u32) -> f32 {
    scalar::scale_of(f32::from_bits(largest))
}

/// The scales of rows of so many elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub(crate) row_elements: u32,
    pub(crate) scales: &'a [f32],
}

impl Rows<'_> {
    /// Elements that have a scale.
    pub(crate) fn elements(&self) -> u64 {
        (self.scales.len() as u64).saturating_mul(self.row_elements.into())
    }

    /// The scale of element `index`, and how many of the next `left` elements have it.
    #[allow(clippy::cast_possible_truncation)] // no more than `left`
    fn run(&self, index: u64, left: usize) -> (f32, usize) {
        let row_elements = u64::from(self.row_elements);
        let row = usize::try_from(index / row_elements).unwrap_or(usize::MAX);
        let run = (row_elements - index % row_elements).min(left as u64);
        (self.scales[row], run as usize)
    }
}

/// Packs the elements of `src`, the first of which is element `first`. The error: the first element that is beyond its scale, in `src`, and its
/// bits as f32.
///
/// # Panics
/// When `dst` has not a byte for each element, an element has no scale, or the machine does not have `isa`.
pub(crate) fn quantize(
    isa: Isa,
    source: ElementType,
    rows: Rows<'_>,
    first: u64,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), (u64, u32)> {
    assert!(isa.is_available(), "kernels for another machine");
    let size = source.bytes();
    let count = src.len() / size;
    assert_eq!(dst.len(), count);
    assert!(first + count as u64 <= rows.elements());
    // SAFETY: the whole of `dst`, which is not used otherwise until the place is dropped; the instruction set was asserted.
    let mut place = unsafe { Place::new(isa, dst.as_mut_ptr(), count) };
    let mut tile = [0; 4 * TILE_ELEMENTS];
    for (index, src) in src.chunks(TILE_ELEMENTS * size).enumerate() {
        let done = (index * TILE_ELEMENTS) as u64;
        let count = src.len() / size;
        let (element, numbers) = if is_direct(isa, source) {
            (source, src)
        } else {
            let numbers = &mut tile[..4 * count];
            convert_floats(isa, source, ElementType::F32, src, numbers);
            (ElementType::F32, &*numbers)
        };
        let mut at = 0;
        while at < count {
            let (scale, run) = rows.run(first + done + at as u64, count - at);
            let numbers = &numbers[at * element.bytes()..];
            let by = scalar::reciprocal(scale);
            // SAFETY: the run ends where `numbers` does or before, and the runs together are those of `dst`.
            let met = unsafe { quantize_run(isa, element, numbers.as_ptr(), by, &mut place, run) };
            if !scalar::fits(met, scale) {
                let (beyond, bits) = first_beyond(source, &src[at * size..], scale);
                return Err((done + at as u64 + beyond, bits));
            }
            at += run;
        }
    }
    Ok(())
}

fn first_beyond(source: ElementType, src: &[u8], scale: f32) -> (u64, u32) {
    for (index, element) in (0..).zip(src.chunks(source.bytes())) {
        let number = floats::one(source, ElementType::F32, element);
        let bits = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
        if !scalar::fits(bits & 0x7FFF_FFFF, scale) {
            return (index, bits);
        }
    }
    unreachable!("a kernel met a number that is not there")
}

/// Writes so many elements from `packed`, the first of which is element `first`: of type `source`, as `presented`.
///
/// # Safety
/// `place` has room for the elements, at most a block of a kernel's, and does not overlap `packed`. The machine has `isa`.
///
/// # Panics
/// When an element has no scale.
pub(crate) unsafe fn expand(
    isa: Isa,
    (source, presented): (ElementType, ElementType),
    rows: Rows<'_>,
    first: u64,
    packed: &[u8],
    place: &mut Place,
) {
    // Of f32 nothing is rounded before it is presented.
    let is_one_rounding = source == ElementType::F32 || source == presented;
    if is_one_rounding && is_direct(isa, presented) {
        let mut at = 0;
        while at < packed.len() {
            let (scale, run) = rows.run(first + at as u64, packed.len() - at);
            let src = packed[at..].as_ptr();
            // SAFETY: the run ends where `packed` does or before; the rest is passed on to the caller.
            unsafe { dequantize_run(isa, presented, src, scale, place, run) };
            at += run;
        }
        return;
    }
    for (index, packed) in packed.chunks(TILE_ELEMENTS).enumerate() {
        let first = first + (index * TILE_ELEMENTS) as u64;
        let mut tile = [0; 4 * TILE_ELEMENTS];
        let numbers = &mut tile[..4 * packed.len()];
        // SAFETY: the tile has room for them, and is not used otherwise until the place is dropped.
        unsafe {
            let mut numbers = Place::new(isa, numbers.as_mut_ptr(), numbers.len());
            let types = (ElementType::F32, ElementType::F32);
            expand(isa, types, rows, first, packed, &mut numbers);
        }
        let mut rounded = [0; 4 * TILE_ELEMENTS];
        let rounded = &mut rounded[..packed.len() * source.bytes()];
        convert_floats(isa, ElementType::F32, source, numbers, rounded);
        // SAFETY: passed on to the caller.
        unsafe { floats::convert(isa, source, presented, rounded, place, packed.len()) };
    }
}

/// The same into a slice, which is exactly as long as the elements.
pub(crate) fn present(
    isa: Isa,
    (source, presented): (ElementType, ElementType),
    rows: Rows<'_>,
    first: u64,
    packed: &[u8],
    dst: &mut [u8],
) {
    assert!(isa.is_available(), "kernels for another machine");
    assert_eq!(dst.len(), packed.len() * presented.bytes());
    // SAFETY: the whole of `dst`, which is not used otherwise until the place is dropped; the instruction set was asserted.
    let mut place = unsafe { Place::new(isa, dst.as_mut_ptr(), dst.len()) };
    for (index, packed) in packed.chunks(TILE_ELEMENTS).enumerate() {
        let first = first + (index * TILE_ELEMENTS) as u64;
        // SAFETY: the parts together are `dst`.
        unsafe { expand(isa, (source, presented), rows, first, packed, &mut place) };
    }
}

#[cfg(test)]
mod tests;
