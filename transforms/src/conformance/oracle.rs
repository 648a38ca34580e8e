//! The packed form by its definition, one bit at a time, apart from every kernel.

use super::floats::converted_all;
use super::samples::Source;
use super::{q8, rows};
use crate::{Chain, ElementType, Packing};

/// What the element steps of `chain` make of `source`.
pub(super) fn packed(chain: &Chain, source: &Source) -> Vec<u8> {
    match (chain.packing(), source.element.is_integer()) {
        (Packing::Whole(packed), false) => converted_all(source.element, packed, &source.bytes),
        (Packing::Q8_0, _) => q8::packed(source.element, &source.bytes),
        (Packing::Int8 { .. }, _) => rows::packed(chain, &source.bytes),
        (packing, _) => fields(packing, &source.values),
    }
}

/// What floating point is presented of packed elements: `count` of them.
pub(super) fn presented(chain: &Chain, packed: &[u8], to: ElementType, count: usize) -> Vec<u8> {
    match chain.packing() {
        Packing::Whole(from) => converted_all(from, to, packed),
        Packing::Q8_0 => {
            let numbers = q8::numbers(packed);
            let rounded = converted_all(ElementType::F32, chain.source(), &numbers[..4 * count]);
            converted_all(chain.source(), to, &rounded)
        }
        Packing::Int8 { .. } => {
            let numbers = rows::presented(chain, &packed[..count]);
            let rounded = converted_all(ElementType::F32, chain.source(), &numbers);
            converted_all(chain.source(), to, &rounded)
        }
        Packing::Bits(_) => panic!("floating point in fields of bits"),
    }
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
