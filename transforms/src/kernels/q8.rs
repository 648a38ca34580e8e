//! Groups of 32 numbers that share a scale, in the layout of GGUF's Q8_0: what each conversion is, and which code runs it.
//!
//! The functions of [`scalar`] are the definition that everything else is held against, and the loop for machines without a kernel. As those of
//! `floats.rs`, they rely on the default floating-point environment. Vectors widen numbers of 16 bits as they load them, and round as they store;
//! what no kernel does at once (portable code, f16 with NEON, a view of another type behind a rounding one) goes through a tile of f32 in the cache.

use crate::element::ElementType;
use crate::encoder::convert_floats;
use crate::kernels::place::Place;
use crate::kernels::{Isa, floats};
#[cfg(target_arch = "x86_64")]
use crate::kernels::{avx2_q8, avx512_q8};

/// Numbers of a group.
pub(crate) const GROUP_ELEMENTS: usize = 32;

/// Bytes of a packed group: the scale as f16, and an i8 for each number.
pub(crate) const GROUP_BYTES: usize = 2 + GROUP_ELEMENTS;

/// Bytes of a group as f32.
pub(super) const GROUP_F32_BYTES: usize = 4 * GROUP_ELEMENTS;

/// Types that kernels take and leave, by their codes.
pub(super) const F32: u8 = ElementType::F32 as u8;
pub(super) const BF16: u8 = ElementType::Bf16 as u8;
#[cfg(target_arch = "x86_64")]
const F16: u8 = ElementType::F16 as u8;

/// Bytes of a group's numbers in a type.
pub(super) const fn group_bytes(element: u8) -> usize {
    match element {
        F32 => GROUP_F32_BYTES,
        _ => GROUP_F32_BYTES / 2,
    }
}

/// Numbers of this magnitude and more have no scale: 127 times 65,520, which an f16 does not hold.
pub(crate) const UNSCALABLE_FROM: f32 = 8_321_040.0;

/// The f16 infinity, above which are NaNs.
const F16_INFINITE: u16 = 0x7C00;

/// Elements of a tile between two kernels: 4 KiB of f32.
const TILE_ELEMENTS: usize = 1024;
const _: () = assert!(TILE_ELEMENTS.is_multiple_of(GROUP_ELEMENTS));

/// One group.
pub(super) mod scalar {
    use super::{GROUP_BYTES, GROUP_ELEMENTS};
    use crate::kernels::floats::scalar::{f16_to_f32, f32_to_f16};

    /// The number just below 0.5: added to a number of at most 128 away from zero, it carries to the next whole one from a half on and not before.
    pub(in crate::kernels) const BELOW_HALF: f32 = 0.5 - f32::EPSILON / 4.0;

    /// By what numbers are multiplied. 0 where the scale is 0, and where its reciprocal is infinite.
    #[inline(always)]
    pub(in crate::kernels) fn reciprocal(scale: f32) -> f32 {
        let reciprocal = 1.0 / scale;
        if reciprocal.is_finite() {
            reciprocal
        } else {
            0.0
        }
    }

    /// The packed group, and the largest magnitude in it by its bits: whether there is a scale for it is the caller's question.
    #[allow(clippy::cast_possible_truncation)] // to -127..=127, or what nobody asks for
    pub(in crate::kernels) fn quantize(
        numbers: &[f32; GROUP_ELEMENTS],
    ) -> ([u8; GROUP_BYTES], u32) {
        let largest = numbers
            .iter()
            .map(|number| number.abs().to_bits())
            .fold(0, u32::max);
        let scale = f32::from_bits(largest) / 127.0;
        let by = reciprocal(scale);
        let mut group = [0; GROUP_BYTES];
        group[..2].copy_from_slice(&f32_to_f16(scale.to_bits()).to_le_bytes());
        for (to, number) in group[2..].iter_mut().zip(numbers) {
            let steps = number * by;
            *to = ((steps + BELOW_HALF.copysign(steps)) as i32) as u8;
        }
        (group, largest)
    }

    /// The bits of a group's scale, as f16.
    #[inline(always)]
    pub(in crate::kernels) fn scale_of(group: &[u8; GROUP_BYTES]) -> u16 {
        u16::from_le_bytes([group[0], group[1]])
    }

    /// The numbers of a group.
    pub(in crate::kernels) fn dequantize(group: &[u8; GROUP_BYTES]) -> [f32; GROUP_ELEMENTS] {
        let scale = f32::from_bits(f16_to_f32(scale_of(group)));
        let mut numbers = [0.0; GROUP_ELEMENTS];
        for (number, steps) in numbers.iter_mut().zip(&group[2..]) {
            *number = f32::from(steps.cast_signed()) * scale;
        }
        numbers
    }
}

/// The loops for machines without a kernel.
mod portable {
    use super::{GROUP_BYTES, GROUP_ELEMENTS, GROUP_F32_BYTES, Place, scalar};

    /// # Safety
    /// As [`quantize_groups`](super::quantize_groups).
    pub(super) unsafe fn quantize(src: *const u8, place: &mut Place, groups: usize) -> u32 {
        let mut met = 0;
        for group in 0..groups {
            // SAFETY: `group < groups`, on both sides; neither need be aligned, and any bits are numbers.
            unsafe {
                let from = src
                    .add(group * GROUP_F32_BYTES)
                    .cast::<[f32; GROUP_ELEMENTS]>();
                let (packed, largest) = scalar::quantize(&from.read_unaligned());
                place.next(GROUP_BYTES).copy_from_slice(&packed);
                place.advance(GROUP_BYTES);
                met = met.max(largest);
            }
        }
        met
    }

    /// # Safety
    /// As [`dequantize_groups`](super::dequantize_groups).
    pub(super) unsafe fn dequantize(src: *const u8, place: &mut Place, groups: usize) -> u16 {
        let mut met = 0;
        for group in 0..groups {
            // SAFETY: as above.
            unsafe {
                let packed = &*src.add(group * GROUP_BYTES).cast::<[u8; GROUP_BYTES]>();
                met = met.max(scalar::scale_of(packed) & 0x7FFF);
                let to = place.cursor().cast::<[f32; GROUP_ELEMENTS]>();
                to.write_unaligned(scalar::dequantize(packed));
                place.advance(GROUP_F32_BYTES);
            }
        }
        met
    }
}

/// Whether groups are made of this type, and become it, without a tile of f32.
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

/// Packs groups of a type that is direct; returns the largest magnitude met, by its bits as f32.
///
/// # Safety
/// `src` is readable for so many groups, `place` has room for them and does not overlap. The machine has `isa`.
unsafe fn quantize_groups(
    isa: Isa,
    source: ElementType,
    src: *const u8,
    place: &mut Place,
    groups: usize,
) -> u32 {
    debug_assert!(is_direct(isa, source));
    // SAFETY: passed on to the caller.
    unsafe {
        match (isa, source.code()) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, F32) => avx2_q8::quantize::<F32>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, BF16) => avx2_q8::quantize::<BF16>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => avx2_q8::quantize::<F16>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, F32) => avx512_q8::quantize::<F32>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, BF16) => avx512_q8::quantize::<BF16>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => avx512_q8::quantize::<F16>(src, place, groups),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, F32) => crate::kernels::neon_q8::quantize::<F32>(src, place, groups),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, _) => crate::kernels::neon_q8::quantize::<BF16>(src, place, groups),
            _ => portable::quantize(src, place, groups),
        }
    }
}

/// Unpacks groups to a type that is direct; returns the largest magnitude of their scales, by its bits.
///
/// # Safety
/// As [`quantize_groups`].
unsafe fn dequantize_groups(
    isa: Isa,
    presented: ElementType,
    src: *const u8,
    place: &mut Place,
    groups: usize,
) -> u16 {
    debug_assert!(is_direct(isa, presented));
    // SAFETY: passed on to the caller.
    unsafe {
        match (isa, presented.code()) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, F32) => avx2_q8::dequantize::<F32>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, BF16) => avx2_q8::dequantize::<BF16>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => avx2_q8::dequantize::<F16>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, F32) => avx512_q8::dequantize::<F32>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, BF16) => avx512_q8::dequantize::<BF16>(src, place, groups),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512, _) => avx512_q8::dequantize::<F16>(src, place, groups),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, F32) => crate::kernels::neon_q8::dequantize::<F32>(src, place, groups),
            #[cfg(target_arch = "aarch64")]
            (Isa::Neon, _) => crate::kernels::neon_q8::dequantize::<BF16>(src, place, groups),
            _ => portable::dequantize(src, place, groups),
        }
    }
}

/// Packs the elements of `src`, a last group filled up with zeros. The error: the first element that has no scale, and its bits as f32.
///
/// # Panics
/// When `dst` is not exactly as long as the groups, or the machine does not have `isa`.
pub(crate) fn quantize(
    isa: Isa,
    source: ElementType,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), (u64, u32)> {
    assert!(isa.is_available(), "kernels for another machine");
    let elements = src.len() / source.bytes();
    assert_eq!(dst.len(), elements.div_ceil(GROUP_ELEMENTS) * GROUP_BYTES);
    // SAFETY: the whole of `dst`, which is not used otherwise until the place is dropped; the instruction set was asserted, and the length.
    unsafe {
        let mut place = Place::new(isa, dst.as_mut_ptr(), dst.len());
        quantize_at(isa, source, src, &mut place)
    }
}

/// The same at a place. The error as there; something may have been written.
///
/// # Safety
/// `place` has room for the groups, and does not overlap `src`. The machine has `isa`.
pub(crate) unsafe fn quantize_at(
    isa: Isa,
    source: ElementType,
    src: &[u8],
    place: &mut Place,
) -> Result<(), (u64, u32)> {
    let size = source.bytes();
    for (index, src) in src.chunks(TILE_ELEMENTS * size).enumerate() {
        let count = src.len() / size;
        let is_direct = is_direct(isa, source) && count.is_multiple_of(GROUP_ELEMENTS);
        let largest = match is_direct {
            // SAFETY: the tiles' groups together are those that there is room for, which the caller promises.
            true => unsafe {
                quantize_groups(isa, source, src.as_ptr(), place, count / GROUP_ELEMENTS)
            },
            // SAFETY: as above.
            false => unsafe { quantize_by_tile(isa, source, src, place) },
        };
        if largest >= UNSCALABLE_FROM.to_bits() {
            let first = (index * TILE_ELEMENTS) as u64;
            return Err(first_unscalable(source, src, first));
        }
    }
    Ok(())
}

/// At most a tile of elements, the last group filled up with zeros.
///
/// # Safety
/// As [`quantize_at`].
unsafe fn quantize_by_tile(isa: Isa, source: ElementType, src: &[u8], place: &mut Place) -> u32 {
    let mut tile = [0; 4 * TILE_ELEMENTS];
    let count = src.len() / source.bytes();
    let tile = &mut tile[..count.next_multiple_of(GROUP_ELEMENTS) * 4];
    convert_floats(isa, source, ElementType::F32, src, &mut tile[..count * 4]);
    let groups = tile.len() / GROUP_F32_BYTES;
    // SAFETY: passed on to the caller.
    unsafe { quantize_groups(isa, ElementType::F32, tile.as_ptr(), place, groups) }
}

fn first_unscalable(source: ElementType, src: &[u8], first: u64) -> (u64, u32) {
    for (index, element) in (first..).zip(src.chunks(source.bytes())) {
        let number = floats::one(source, ElementType::F32, element);
        let bits = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
        if bits & 0x7FFF_FFFF >= UNSCALABLE_FROM.to_bits() {
            return (index, bits);
        }
    }
    unreachable!("a kernel met a number that is not there")
}

/// A group whose scale is infinite or no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadScale {
    /// Which of the groups.
    pub(crate) group: usize,
    /// Its bits, as f16.
    pub(crate) bits: u16,
}

/// Writes `count` elements from element `first` of `packed` on: of type `source`, as `presented`. Where a scale is bad, something is written,
/// and the first such group of those that were needed is returned.
///
/// # Safety
/// `place` has room for the elements, at most a block of a kernel's, and does not overlap `packed`. The machine has `isa`.
///
/// # Panics
/// When `packed` does not hold the elements.
pub(crate) unsafe fn expand(
    isa: Isa,
    (source, presented): (ElementType, ElementType),
    packed: &[u8],
    first: usize,
    place: &mut Place,
    count: usize,
) -> Result<(), BadScale> {
    let first_group = first / GROUP_ELEMENTS;
    let end_group = (first + count).div_ceil(GROUP_ELEMENTS);
    let packed = &packed[first_group * GROUP_BYTES..end_group * GROUP_BYTES];
    let mut met = 0;
    let mut at = first % GROUP_ELEMENTS;
    let end = at + count;
    while at < end {
        let group = at / GROUP_ELEMENTS;
        let src = packed[group * GROUP_BYTES..].as_ptr();
        let whole = (end - at) / GROUP_ELEMENTS;
        // Of f32 nothing is rounded before it is presented.
        let is_one_rounding = source == ElementType::F32 || source == presented;
        if is_one_rounding
            && is_direct(isa, presented)
            && at.is_multiple_of(GROUP_ELEMENTS)
            && whole > 0
        {
            // SAFETY: `packed` holds the groups (sliced), the rest is passed on to the caller.
            met = met.max(unsafe { dequantize_groups(isa, presented, src, place, whole) });
            at += whole * GROUP_ELEMENTS;
            continue;
        }
        let inside = at % GROUP_ELEMENTS;
        let now = (end - at).min(TILE_ELEMENTS - inside);
        let groups = (inside + now).div_ceil(GROUP_ELEMENTS);
        let mut tile = [0; 4 * TILE_ELEMENTS];
        // SAFETY: the tile holds a whole number of groups, of which these are no more, and is not used otherwise until the place is dropped;
        // `packed` holds them.
        met = met.max(unsafe {
            let mut numbers = Place::new(isa, tile.as_mut_ptr(), tile.len());
            dequantize_groups(isa, ElementType::F32, src, &mut numbers, groups)
        });
        let numbers = &tile[inside * 4..][..now * 4];
        let mut rounded = [0; 4 * TILE_ELEMENTS];
        let rounded = &mut rounded[..now * source.bytes()];
        convert_floats(isa, ElementType::F32, source, numbers, rounded);
        // SAFETY: passed on to the caller.
        unsafe { floats::convert(isa, source, presented, rounded, place, now) };
        at += now;
    }
    if met < F16_INFINITE {
        return Ok(());
    }
    let scales = packed.as_chunks().0.iter().map(scalar::scale_of);
    let bad = (first_group..)
        .zip(scales)
        .find(|(_, bits)| bits & 0x7FFF >= F16_INFINITE);
    let (group, bits) = bad.expect("a kernel met a scale that is not there");
    Err(BadScale { group, bits })
}

/// The same into a slice, which is exactly as long as the elements.
pub(crate) fn present(
    isa: Isa,
    (source, presented): (ElementType, ElementType),
    packed: &[u8],
    first: usize,
    dst: &mut [u8],
) -> Result<(), BadScale> {
    assert!(isa.is_available(), "kernels for another machine");
    let size = presented.bytes();
    // SAFETY: the whole of `dst`, which is not used otherwise until the place is dropped; the instruction set was asserted.
    let mut place = unsafe { Place::new(isa, dst.as_mut_ptr(), dst.len()) };
    for (index, dst) in dst.chunks(TILE_ELEMENTS * size).enumerate() {
        let first = first + index * TILE_ELEMENTS;
        // SAFETY: the parts together are `dst`.
        unsafe {
            expand(
                isa,
                (source, presented),
                packed,
                first,
                &mut place,
                dst.len() / size,
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
