//! The scalar reference: one element at a time, in the plainest way. Kernels are tested against it; the decoder uses it for
//! elements that straddle segments, and to find the exact element that a kernel refused.

use crate::element::{ElementType, Packing};

/// The element of type `element` at the start of `bytes`; 0 bits stand for bytes that are not there.
pub(crate) fn whole(element: ElementType, bytes: &[u8]) -> i128 {
    let mut raw = 0u64;
    for (i, byte) in bytes.iter().take(element.bytes()).enumerate() {
        raw |= u64::from(*byte) << (8 * i);
    }
    if element.is_signed_integer() {
        let unused = 64 - element.bits();
        i128::from((raw << unused).cast_signed() >> unused)
    } else {
        i128::from(raw)
    }
}

/// The field of `bits` bits that starts at bit `first` of `bytes`; 0 bits stand for bytes that are not there.
pub(crate) fn field(bits: u32, bytes: &[u8], first: u64) -> i128 {
    let mut value = 0u64;
    for i in 0..u64::from(bits) {
        let at = first + i;
        let byte = usize::try_from(at / 8).ok().and_then(|b| bytes.get(b));
        let bit = byte.map_or(0, |byte| (byte >> (at % 8)) & 1);
        value |= u64::from(bit) << i;
    }
    i128::from(value)
}

/// The packed element that starts at bit `first` of `bytes`. For whole elements `first` is a multiple of 8.
pub(crate) fn element(packing: Packing, bytes: &[u8], first: u64) -> i128 {
    match packing {
        Packing::Bits(bits) => field(bits, bytes, first),
        Packing::Whole(element) => {
            let start = usize::try_from(first / 8).unwrap_or(usize::MAX);
            whole(element, bytes.get(start..).unwrap_or(&[]))
        }
        Packing::Q8_0 | Packing::Int8 { .. } => unreachable!("they have no integers"),
    }
}

/// The low 8 bytes of a value, little-endian, as every integer type stores its low bytes.
pub(crate) fn low_bytes(value: i128) -> [u8; 8] {
    let bytes = value.to_le_bytes();
    let mut low = [0; 8];
    low.copy_from_slice(&bytes[..8]);
    low
}
