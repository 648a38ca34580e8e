//! Fields of K bits: dispatch of packing and unpacking to the implementation of an instruction set.

use crate::element::ValueRange;
use crate::kernels::{Isa, portable};

/// Unpacks `count` fields of `bits` bits (1..=32) into elements of `to_bytes` bytes, of which the low bits are kept. The first
/// field starts at bit `first_bit` (0..8) of `src`. Returns the range of the values met.
///
/// # Safety
/// `dst` is writable for `count * to_bytes` bytes and does not overlap `src`. The machine has `isa`.
///
/// # Panics
/// When `src` does not hold the fields, or `count` is 0.
pub(crate) unsafe fn unpack(
    isa: Isa,
    bits: u32,
    to_bytes: usize,
    src: &[u8],
    first_bit: u32,
    dst: *mut u8,
    count: usize,
) -> ValueRange {
    assert!(count > 0 && (1..=32).contains(&bits) && first_bit < 8);
    assert!(src.len() >= packed_bytes(bits, first_bit, count));
    let _ = isa;
    // SAFETY: the source was asserted, the destination is promised by the caller.
    let (min, max) = unsafe {
        match to_bytes {
            1 => portable::unpack::<1>(bits, src, first_bit, dst, count),
            2 => portable::unpack::<2>(bits, src, first_bit, dst, count),
            4 => portable::unpack::<4>(bits, src, first_bit, dst, count),
            8 => portable::unpack::<8>(bits, src, first_bit, dst, count),
            _ => unreachable!("integers have 1, 2, 4 or 8 bytes"),
        }
    };
    ValueRange {
        min: min.into(),
        max: max.into(),
    }
}

/// Packs `count` unsigned elements of `from_bytes` bytes (1, 2 or 4) into fields of `bits` bits (1..=32) from bit 0 of `dst` on; the
/// unused bits of the last byte are 0. Bytes of `dst` behind it may be overwritten. Returns the range of the values met.
///
/// # Panics
/// When a slice is too short, `count` is 0, or the machine lacks `isa`.
pub(crate) fn pack(
    isa: Isa,
    bits: u32,
    from_bytes: usize,
    src: &[u8],
    dst: &mut [u8],
    count: usize,
) -> ValueRange {
    assert!(count > 0 && (1..=32).contains(&bits) && isa.is_available());
    assert!(src.len() / from_bytes >= count && dst.len() >= packed_bytes(bits, 0, count));
    let (min, max) = match from_bytes {
        1 => portable::pack::<1>(bits, src, dst, count),
        2 => portable::pack::<2>(bits, src, dst, count),
        4 => portable::pack::<4>(bits, src, dst, count),
        _ => unreachable!("wider integers are narrowed first"),
    };
    ValueRange {
        min: min.into(),
        max: max.into(),
    }
}

/// Bytes that hold `count` fields of `bits` bits behind `first_bit` other bits.
fn packed_bytes(bits: u32, first_bit: u32, count: usize) -> usize {
    (first_bit as usize + bits as usize * count).div_ceil(8)
}
