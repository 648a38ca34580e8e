//! The packed form by its definition, one bit at a time, apart from every kernel.

use super::floats::converted_all;
use super::samples::Source;
use crate::{Chain, Packing};

/// What the element steps of `chain` make of `source`.
pub(super) fn packed(chain: &Chain, source: &Source) -> Vec<u8> {
    if let (Packing::Whole(packed), false) = (chain.packing(), source.element.is_integer()) {
        return converted_all(source.element, packed, &source.bytes);
    }
    fields(chain.packing(), &source.values)
}

/// Values one behind the other, each in the low bits that the packing has for it, least significant bit first.
pub(super) fn fields(packing: Packing, values: &[i128]) -> Vec<u8> {
    let bits = packing.bits() as usize;
    let mut packed = vec![0u8; (values.len() * bits).div_ceil(8)];
    for (element, value) in values.iter().enumerate() {
        for bit in 0..bits {
            if value >> bit & 1 == 1 {
                let at = element * bits + bit;
                packed[at / 8] |= 1 << (at % 8);
            }
        }
    }
    packed
}
