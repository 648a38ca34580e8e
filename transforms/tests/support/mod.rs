//! What the tests of the quantizing transforms share: numbers in groups of every size, other people's digests of them, and how far off the results are.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use sha2::{Digest, Sha256};
use transforms::{
    Chain, Contract, Decoder, ElementType, LossMeter, OutSegments, PackedWindow, Scratch, ViewChain,
};

use ElementType::{F16, F32};

/// Number `index` of fixtures/golden-vectors/grouped.py, of groups of so many.
pub fn number(index: u32, group: u32) -> f32 {
    let noise = index.wrapping_mul(2_654_435_761);
    let exponent = 15 + index / group % 134 - (noise >> 4) % 8;
    f32::from_bits(noise & 0x807F_FFFF | exponent << 23)
}

/// The first so many of them in a type; those of f16 are clamped to what it holds.
pub fn numbers(count: u32, group: u32, of: ElementType) -> Vec<u8> {
    let limit = if of == F16 { 65_504.0 } else { f32::MAX };
    let numbers = (0..count).map(|n| number(n, group).clamp(-limit, limit));
    in_type(numbers, of)
}

/// Little-endian, one behind the other.
pub fn bytes(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// The bytes of numbers in f32 or a narrower type.
pub fn in_type(numbers: impl IntoIterator<Item = f32>, to: ElementType) -> Vec<u8> {
    let numbers = bytes(numbers);
    if to == F32 {
        return numbers;
    }
    let chain = Chain::parse(to.name(), F32).unwrap();
    let mut out = vec![0; numbers.len() / 4 * to.bytes()];
    chain
        .encode_frame(&numbers, &mut Scratch::new(), &mut out)
        .unwrap();
    out
}

/// Elements as f64, which holds each of them.
pub fn numbers_of(source: ElementType, bytes: &[u8]) -> Vec<f64> {
    let view = Chain::parse("none", source).unwrap();
    let wide = ViewChain::parse("f64", source).unwrap();
    let decoder = Decoder::new(&view, &wide, None).unwrap();
    let mut out = vec![0; bytes.len() / source.bytes() * 8];
    let window = PackedWindow {
        first_byte: 0,
        bytes,
    };
    let range = 0..out.len() as u64;
    decoder
        .expand(window, range, &mut OutSegments::from_slice(&mut out))
        .unwrap();
    let numbers = out.as_chunks().0.iter().map(|it| f64::from_le_bytes(*it));
    numbers.collect()
}

/// The lines of a file of digests beside the golden vectors, by their fields.
pub fn recorded<const FIELDS: usize>(name: &str) -> Vec<[String; FIELDS]> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden-vectors");
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    let fields = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let lines = text.lines().map(fields);
    lines.map(|line| line.try_into().unwrap()).collect()
}

/// SHA-256 in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Holds what became of elements, group by group, against the bound that the chain's contract gives, and against what the meter measures, however they come.
pub fn check_bound(
    chain: &Chain,
    group: usize,
    elements: &[u8],
    back: &[u8],
) -> Result<(), TestCaseError> {
    let Contract::Quantized(bound) = chain.contract() else {
        panic!("it is lossy");
    };
    prop_assert_eq!(bound.group_elements, group as u64);
    let source = chain.source();
    let (was, is) = (numbers_of(source, elements), numbers_of(source, back));
    let mut largest_error = 0f64;
    for (was, is) in was.chunks(group).zip(is.chunks(group)) {
        let largest = was.iter().fold(0f64, |one, other| one.max(other.abs()));
        for (was, is) in was.iter().zip(is) {
            let error = (is - was).abs();
            largest_error = largest_error.max(error);
            let limit = bound.of_largest * largest + bound.absolute;
            prop_assert!(error <= limit, "{was} became {is}");
        }
    }
    let mut meter = LossMeter::new(chain, &ViewChain::identity()).unwrap();
    prop_assert!(meter.is_lossy());
    let size = source.bytes();
    let (front, rest) = elements.split_at(elements.len() / size / 3 * size);
    meter.add(front).unwrap();
    meter.add(rest).unwrap();
    let loss = meter.finish();
    prop_assert_eq!(loss.elements, was.len() as u64);
    prop_assert_eq!(loss.largest_error(), Some(largest_error));
    Ok(())
}
