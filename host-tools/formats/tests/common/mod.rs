//! A view's bytes, for tests: parts put together, elements converted one by one by the definition.

#![allow(dead_code)] // each test uses a part

use formats::{Part, Presentation};
use transforms::{Chain, ElementType, Packing, Scratch};

/// The bytes of a view of `source`.
pub fn presented(source: &[u8], view: &Presentation) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in view.parts() {
        match part {
            Part::New(new) => bytes.extend(new),
            Part::Zero { bytes: zeros } => bytes.resize(bytes.len() + index(*zeros), 0),
            Part::Source {
                offset,
                bytes: count,
            } => bytes.extend(&source[index(*offset)..index(offset + count)]),
            Part::Converted {
                offset,
                elements,
                stored,
                presented,
                ..
            } => {
                let end = index(*offset) + index(*elements) * stored.bytes();
                if *presented == Packing::Q8_0 {
                    bytes.extend(in_blocks(&source[index(*offset)..end], *stored));
                    continue;
                }
                let elements = source[index(*offset)..end].chunks_exact(stored.bytes());
                let Packing::Whole(presented) = *presented else {
                    panic!("{presented} is in no test")
                };
                bytes.extend(elements.flat_map(|element| converted(element, *stored, presented)));
            }
        }
    }
    assert_eq!(bytes.len() as u64, view.bytes());
    bytes
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

/// As transforms makes them, which its own tests hold against gguf.
fn in_blocks(elements: &[u8], stored: ElementType) -> Vec<u8> {
    let chain = Chain::parse("q8_0", stored).unwrap();
    let count = elements.len() / stored.bytes();
    let mut blocks = vec![0; index(chain.packed_bytes(count as u64))];
    chain
        .encode_frame(elements, &mut Scratch::new(), &mut blocks)
        .unwrap();
    blocks
}

fn converted(element: &[u8], stored: ElementType, presented: ElementType) -> Vec<u8> {
    let mut wide = [0; 8];
    wide[..element.len()].copy_from_slice(element);
    let bits = u64::from_le_bytes(wide);
    let result = if stored.is_integer() {
        assert!(presented.range().unwrap().contains(i128::from(bits)));
        bits
    } else {
        let value = match stored {
            ElementType::F32 => f64::from(f32::from_bits(u32::try_from(bits).unwrap())),
            ElementType::F64 => f64::from_bits(bits),
            _ => panic!("{stored} is in no test"),
        };
        match presented {
            ElementType::F16 => rounded(value, 5, 10),
            ElementType::Bf16 => rounded(value, 8, 7),
            ElementType::F32 => rounded(value, 8, 23),
            ElementType::F64 => value.to_bits(),
            _ => panic!("{presented} is in no test"),
        }
    };
    result.to_le_bytes()[..presented.bytes()].to_vec()
}

/// `value` to the nearest number of a type with so many bits, ties to even: IEEE 754, 4.3.1.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn rounded(value: f64, exponent_bits: u32, fraction_bits: u32) -> u64 {
    let sign = u64::from(value.is_sign_negative()) << (exponent_bits + fraction_bits);
    let infinity = ((1u64 << exponent_bits) - 1) << fraction_bits;
    if value.is_nan() {
        return sign | infinity | 1 << (fraction_bits - 1);
    }
    if value.is_infinite() {
        return sign | infinity;
    }
    let bias = (1i32 << (exponent_bits - 1)) - 1;
    let magnitude = value.abs();
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let quanta = magnitude / 2f64.powi(exponent - fraction_bits as i32);
    let quanta = quanta.round_ties_even() as u64;
    // The leading one of a normal number adds one to the exponent field, and so does a carry.
    let bits = quanta + (((exponent + bias - 1) as u64) << fraction_bits);
    sign | bits.min(infinity)
}
