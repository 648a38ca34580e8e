//! Source elements to packed elements, checked, in one pass.

#![allow(unsafe_code)]

use crate::element::{ElementType, Packing, ValueRange};
use crate::kernels::{BLOCK_ELEMENTS, Isa, convert, pack, reference, stream::Place, widen};
use crate::registry::Layout;

/// The first value that did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Its index in the source.
    pub(crate) index: u64,
    pub(crate) value: i128,
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
        dst.copy_from_slice(src);
        return Ok(None);
    };
    let packed_bits = layout.packing.bits() as usize;
    assert!(isa.is_available(), "kernels for another machine");
    assert_eq!(
        dst.len(),
        (src.len() / source.bytes() * packed_bits).div_ceil(8)
    );

    let element_bytes = source.bytes().max(packed_bits.div_ceil(8));
    // SAFETY: the whole of `dst`, which is not used otherwise until the place is dropped; the instruction set was asserted.
    let mut place = unsafe { Place::new(isa, dst.as_mut_ptr(), dst.len(), element_bytes) };
    let block_elements = place.block_elements();
    let mut seen = None;
    for (block, src) in src.chunks(block_elements * source.bytes()).enumerate() {
        let len = (src.len() / source.bytes() * packed_bits).div_ceil(8);
        // SAFETY: all blocks but the last have a multiple of 64 elements, so that the blocks' bytes make up `dst`; what is made of the
        // pointer is a slice of the bytes that may be written.
        let met = unsafe {
            place.make(len, |dst| {
                let dst = std::slice::from_raw_parts_mut(dst, len);
                encode_block(isa, source, layout.packing, allowed, src, dst)
            })
        };
        if !allowed.encloses(&met) {
            let refused = first_outside(source, src, &allowed);
            return Err(Refused {
                index: (block * block_elements) as u64 + refused.index,
                value: refused.value,
            });
        }
        widen(&mut seen, met);
    }
    Ok(seen)
}

/// The range of the elements of `src`; `None` for floating point and for none.
pub(crate) fn range(isa: Isa, source: ElementType, src: &[u8]) -> Option<ValueRange> {
    let count = src.len() / source.bytes();
    (source.is_integer() && count > 0).then(|| convert::extent(isa, source, src, count))
}

/// Packs one block; returns the range of the values as the kernel met them. A negative value of a narrow signed type may be met
/// as a large unsigned one: it is outside `allowed` either way, since no field of bits holds it.
fn encode_block(
    isa: Isa,
    source: ElementType,
    packing: Packing,
    allowed: ValueRange,
    src: &[u8],
    dst: &mut [u8],
) -> ValueRange {
    let count = src.len() / source.bytes();
    let bits = match packing {
        Packing::Whole(element) => {
            assert!(dst.len() >= count * element.bytes());
            // SAFETY: the destination's length was asserted, the instruction set by `encode`; the slices are distinct.
            return unsafe {
                convert::convert(isa, source, element.bytes(), src, dst.as_mut_ptr(), count)
            };
        }
        Packing::Bits(bits) => bits,
    };
    if source.bytes() <= 4 {
        // SAFETY: `encode` asserted the instruction set.
        return unsafe { pack::pack(isa, bits, source.bytes(), src, dst, count) };
    }

    // 64-bit elements are narrowed a tile at a time, in the cache.
    let mut tile = [0u8; TILE_ELEMENTS * 4];
    let mut seen = None;
    let tiles = src.chunks(TILE_ELEMENTS * source.bytes());
    for (src, dst) in tiles.zip(dst.chunks_mut(TILE_ELEMENTS / 8 * bits as usize)) {
        let count = src.len() / source.bytes();
        // SAFETY: a chunk has at most TILE_ELEMENTS elements, the tile holds 4 bytes for each.
        let met = unsafe { convert::convert(isa, source, 4, src, tile.as_mut_ptr(), count) };
        widen(&mut seen, met);
        if !allowed.encloses(&met) {
            return met;
        }
        // SAFETY: as above.
        unsafe { pack::pack(isa, bits, 4, &tile, dst, count) };
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
            return Refused { index, value };
        }
    }
    unreachable!("a kernel met a value outside {allowed} that is not there")
}
