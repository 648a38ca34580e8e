//! Source elements to packed elements, checked, in one pass.

#![allow(unsafe_code)]

use crate::element::{ElementType, Packing, ValueRange};
use crate::kernels::{
    BLOCK_ELEMENTS, Isa, convert, floats, pack, place::Place, q8, reference, widen,
};
use crate::registry::Layout;

/// The first value that did not fit, and its index in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Integer {
        index: u64,
        value: i128,
    },
    /// A number that no group has a scale for, by its bits as f32.
    Number {
        index: u64,
        bits: u32,
    },
}

impl Refused {
    /// The same, counted from `first` elements earlier.
    pub(crate) fn behind(self, first: u64) -> Refused {
        match self {
            Refused::Integer { index, value } => Refused::Integer {
                index: first + index,
                value,
            },
            Refused::Number { index, bits } => Refused::Number {
                index: first + index,
                bits,
            },
        }
    }
}

/// Packs the elements of `src` into `dst`, which is exactly as long as they need; returns the range of the values.
///
/// # Panics
/// When the lengths do not belong together: the chain computed them.
pub(crate) fn encode(
    isa: Isa,
    source: ElementType,
    layout: &Layout,
    src: &[u8],
    dst: &mut [u8],
) -> Result<Option<ValueRange>, Refused> {
    let Some(allowed) = layout.range else {
        match layout.packing {
            Packing::Q8_0 => encode_q8_0(isa, source, src, dst)?,
            Packing::Int8 { .. } => unreachable!("the chain has the scales"),
            packing => encode_floats(isa, source, packing, src, dst),
        }
        return Ok(None);
    };
    assert!(isa.is_available(), "kernels for another machine");
    let elements = (src.len() / source.bytes()) as u64;
    assert_eq!(dst.len() as u64, layout.packing.bytes_of(elements));

    // SAFETY: the whole of `dst`, which is not used otherwise until the place is dropped; the instruction set was asserted.
    let mut place = unsafe { Place::new(isa, dst.as_mut_ptr(), dst.len()) };
    let mut seen = None;
    for (block, src) in src.chunks(BLOCK_ELEMENTS * source.bytes()).enumerate() {
        // SAFETY: the blocks' elements are those of `src`, for which `dst` has room (asserted). All blocks but the last have a multiple
        // of 8 elements, so that each starts at a whole byte.
        let met = unsafe { encode_block(isa, source, layout.packing, allowed, src, &mut place) };
        if !allowed.encloses(&met) {
            let refused = first_outside(source, src, &allowed);
            return Err(refused.behind((block * BLOCK_ELEMENTS) as u64));
        }
        widen(&mut seen, met);
    }
    Ok(seen)
}

/// Rounds the elements of `src` to the type that `packing` has, or copies them.
///
/// # Panics
/// When the lengths do not belong together.
fn encode_floats(isa: Isa, source: ElementType, packing: Packing, src: &[u8], dst: &mut [u8]) {
    match packing {
        Packing::Whole(packed) if packed != source => convert_floats(isa, source, packed, src, dst),
        _ => dst.copy_from_slice(src),
    }
}

/// The elements of `src` in another floating-point type, into `dst`, which is exactly as long as they need.
///
/// # Panics
/// When the lengths do not belong together, or a type is no floating point.
pub(crate) fn convert_floats(
    isa: Isa,
    from: ElementType,
    to: ElementType,
    src: &[u8],
    dst: &mut [u8],
) {
    assert!(isa.is_available(), "kernels for another machine");
    assert_eq!(dst.len(), src.len() / from.bytes() * to.bytes());
    // SAFETY: the whole of `dst`, which is not used otherwise until the place is dropped; the instruction set was asserted.
    let mut place = unsafe { Place::new(isa, dst.as_mut_ptr(), dst.len()) };
    for src in src.chunks(BLOCK_ELEMENTS * from.bytes()) {
        let count = src.len() / from.bytes();
        // SAFETY: the blocks' elements are those of `src`, for which `dst` has room (asserted).
        unsafe { floats::convert(isa, from, to, src, &mut place, count) };
    }
}

/// Packs the elements of `src` in groups with a scale into `dst`, which is exactly as long as they need.
///
/// # Panics
/// When the lengths do not belong together, or the type is no floating point of at most 32 bits.
pub(crate) fn encode_q8_0(
    isa: Isa,
    source: ElementType,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), Refused> {
    q8::quantize(isa, source, src, dst).map_err(|(index, bits)| Refused::Number { index, bits })
}

/// The smallest and largest of the whole elements of `bytes`; `None` for floating point, and where there is none.
#[must_use]
pub fn range_of(element: ElementType, bytes: &[u8]) -> Option<ValueRange> {
    range(Isa::best(), element, bytes)
}

/// The range of the elements of `src`; `None` for floating point and for none.
pub(crate) fn range(isa: Isa, source: ElementType, src: &[u8]) -> Option<ValueRange> {
    let count = src.len() / source.bytes();
    (source.is_integer() && count > 0).then(|| convert::extent(isa, source, src, count))
}

/// Packs one block; returns the range of the values as the kernel met them. A negative value of a narrow signed type may be met
/// as a large unsigned one: it is outside `allowed` either way, since no field of bits holds it.
///
/// # Safety
/// `place` has room for the elements of `src`; the machine has `isa`.
unsafe fn encode_block(
    isa: Isa,
    source: ElementType,
    packing: Packing,
    allowed: ValueRange,
    src: &[u8],
    place: &mut Place,
) -> ValueRange {
    let count = src.len() / source.bytes();
    let bits = match packing {
        Packing::Whole(element) => {
            // SAFETY: passed on to the caller.
            return unsafe { convert::convert(isa, source, element.bytes(), src, place, count) };
        }
        Packing::Bits(bits) => bits,
        Packing::Q8_0 | Packing::Int8 { .. } => unreachable!("they have no integers"),
    };
    if pack::packs(isa, source.bytes()) {
        // SAFETY: passed on to the caller.
        return unsafe { pack::pack(isa, bits, source.bytes(), src, place, count) };
    }

    // 64-bit elements are narrowed a tile at a time, in the cache.
    let mut tile = [0u8; TILE_ELEMENTS * 4];
    let mut seen = None;
    for src in src.chunks(TILE_ELEMENTS * source.bytes()) {
        let count = src.len() / source.bytes();
        // SAFETY: a chunk has at most TILE_ELEMENTS elements, the tile holds 4 bytes for each, and is not used otherwise meanwhile.
        let met = unsafe {
            let mut narrowed = Place::new(isa, tile.as_mut_ptr(), tile.len());
            convert::convert(isa, source, 4, src, &mut narrowed, count)
        };
        widen(&mut seen, met);
        if !allowed.encloses(&met) {
            return met;
        }
        // SAFETY: passed on to the caller.
        unsafe { pack::pack(isa, bits, 4, &tile, place, count) };
    }
    seen.unwrap_or(allowed)
}

/// Elements of a tile between two kernels: 4 KiB of 32-bit values.
const TILE_ELEMENTS: usize = 1024;
const _: () = assert!(BLOCK_ELEMENTS.is_multiple_of(TILE_ELEMENTS));

fn first_outside(source: ElementType, src: &[u8], allowed: &ValueRange) -> Refused {
    for (index, bytes) in (0u64..).zip(src.chunks_exact(source.bytes())) {
        let value = reference::whole(source, bytes);
        if !allowed.contains(value) {
            return Refused::Integer { index, value };
        }
    }
    unreachable!("a kernel met a value outside {allowed} that is not there")
}
