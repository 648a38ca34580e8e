//! What is transformed: numbers that a packed form holds, and files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use transforms::{ElementType, Scales};

/// Fills `wide` with elements of `size` bytes whose values have `bits` bits.
pub(super) fn fill(wide: &mut [u8], size: usize, bits: u32) {
    let mask = u64::MAX >> (64 - bits);
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for element in wide.chunks_exact_mut(size) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        element.copy_from_slice(&((state >> 31) & mask).to_le_bytes()[..size]);
    }
}

/// Fills `elements` with finite numbers between 2^-8 and 2^8 and of both signs.
pub(super) fn fill_numbers(elements: &mut [u8], element: ElementType) {
    let (fraction_bits, bias) = match element {
        ElementType::F16 => (10, 15),
        ElementType::Bf16 => (7, 127),
        ElementType::F32 => (23, 127),
        _ => (52, 1023),
    };
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    for to in elements.chunks_exact_mut(element.bytes()) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let exponent = bias - 8 + (state >> 60);
        let fraction = (state >> 1) & ((1 << fraction_bits) - 1);
        let sign = (state >> 59 & 1) << (element.bits() - 1);
        let bits = sign | exponent << fraction_bits | fraction;
        to.copy_from_slice(&bits.to_le_bytes()[..element.bytes()]);
    }
}

/// Fills `groups` with those of `q8_0`, whose largest steps are 127: what is made of these numbers again. Scales are powers of two, so that bf16 holds
/// all numbers, too.
pub(super) fn fill_groups(groups: &mut [u8]) {
    let scales = [0x2C00u16, 0x3C00, 0x2000, 0x5400];
    for (group, scale) in groups.chunks_exact_mut(34).zip(scales.iter().cycle()) {
        for (index, steps) in (0u8..).zip(&mut group[2..]) {
            *steps = index.wrapping_mul(89) | 1;
        }
        group[..2].copy_from_slice(&scale.to_le_bytes());
        group[2] = 127;
    }
}

/// Fills `rows` with multiples of every kind.
pub(super) fn fill_rows(rows: &mut [u8]) {
    for (index, steps) in rows.iter_mut().enumerate() {
        #[allow(clippy::cast_possible_truncation)] // any will do, but -128
        let any = (index as u8).wrapping_mul(89);
        *steps = any | 1;
    }
}

/// So many scales, powers of two, so that bf16 holds all multiples, too.
pub(super) fn scales(rows: usize) -> Arc<Scales> {
    let scales = [1.0f32, 0.0625, 8.0, 0.001_953_125];
    let scales = scales.iter().cycle().take(rows);
    let bytes: Vec<u8> = scales.flat_map(|it| it.to_le_bytes()).collect();
    Arc::new(Scales::parse(&bytes).unwrap())
}

/// Real data of this repository.
pub(super) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/data")
        .join(name)
}

/// The elements of a file; the header of a safetensors file, behind its length in eight bytes, is none.
pub(super) fn weights(path: &Path) -> Vec<u8> {
    let mut bytes =
        std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if path.extension().is_some_and(|it| it == "safetensors") {
        let header = u64::from_le_bytes(*bytes.first_chunk().unwrap());
        bytes.drain(..8 + usize::try_from(header).unwrap());
    }
    let whole = bytes.len() / 8 * 8;
    bytes.truncate(whole);
    bytes
}
