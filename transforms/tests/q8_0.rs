//! `q8_0` against what the PyPI package gguf makes of the same numbers, and against its own contract.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

mod support;

use proptest::prelude::*;
use transforms::{
    Chain, Contract, Decoder, ElementType, Isa, LossMeter, OutSegments, PackedWindow, Scratch,
    ViewChain,
};

use ElementType::{Bf16, F16, F32};
use support::{bytes, check_bound, hex, in_type, numbers, numbers_of, recorded};

const GROUP: u32 = 32;

fn encoded(chain: &Chain, source: &[u8]) -> Vec<u8> {
    let elements = (source.len() / chain.source().bytes()) as u64;
    let mut packed = vec![0; usize::try_from(chain.packed_bytes(elements)).unwrap()];
    chain
        .encode_frame(source, &mut Scratch::new(), &mut packed)
        .unwrap();
    packed
}

/// What a view in blocks presents of so many packed elements.
fn in_blocks(chain: &Chain, packed: &[u8], elements: u64) -> Vec<u8> {
    let view = ViewChain::parse("q8_0", chain.source()).unwrap();
    let decoder = Decoder::new(chain, &view, None).unwrap();
    let mut out = vec![0; usize::try_from(decoder.presented().bytes_of(elements)).unwrap()];
    let window = PackedWindow {
        first_byte: 0,
        bytes: packed,
    };
    let range = 0..out.len() as u64;
    decoder
        .expand(window, range, &mut OutSegments::from_slice(&mut out))
        .unwrap();
    out
}

fn read_back(chain: &Chain, source: &[u8]) -> Vec<u8> {
    let mut back = vec![0; source.len()];
    chain.read_back(source, &mut back).unwrap();
    back
}

#[test]
fn a_quarter_of_a_million_numbers_become_what_gguf_makes_of_them() {
    let mut found = Vec::new();
    for [source, count, of_source, of_blocks, of_presented] in recorded("q8_0-digests.txt") {
        let source: ElementType = source.parse().unwrap();
        let count: u32 = count.parse().unwrap();
        let numbers = numbers(count, GROUP, source);
        assert_eq!(hex(&numbers), of_source, "{source}");
        for isa in Isa::available() {
            let chain = Chain::parse("q8_0", source).unwrap().with_isa(isa);
            let blocks = encoded(&chain, &numbers);
            assert_eq!(hex(&blocks), of_blocks, "{source} with {isa:?}");
            let back = read_back(&chain, &numbers);
            assert_eq!(hex(&back), of_presented, "{source} back with {isa:?}");
            // Blocks as a view: of the numbers as they are, and of the blocks themselves.
            let plain = Chain::parse("none", source).unwrap().with_isa(isa);
            for (stored, packed) in [(&plain, &numbers), (&chain, &blocks)] {
                let presented = in_blocks(stored, packed, u64::from(count));
                assert_eq!(
                    hex(&presented),
                    of_blocks,
                    "{stored:?} presented with {isa:?}"
                );
            }
        }
        found.push(source);
    }
    assert_eq!(found, [F32, Bf16, F16]);
}

proptest! {
    /// The bound that the contract gives, for groups of every size, and what the meter measures.
    #[test]
    fn no_number_is_further_off_than_the_contract_says(
        exponent in 0u32..150,
        noise in prop::collection::vec(any::<u32>(), 1..200),
        source in prop::sample::select(vec![F32, Bf16, F16]),
    ) {
        let number = |noise: &u32| {
            let exponent = exponent.saturating_sub(noise >> 23 & 7) << 23;
            f32::from_bits(noise & 0x807F_FFFF | exponent).clamp(-8_321_039.0, 8_321_039.0)
        };
        let limit = if source == F16 { 60_000.0 } else { 8_290_304.0 };
        let numbers = noise.iter().map(number).map(|it| it.clamp(-limit, limit));
        let numbers = in_type(numbers, source);
        let chain = Chain::parse("q8_0", source).unwrap();
        check_bound(&chain, GROUP as usize, &numbers, &read_back(&chain, &numbers))?;
        // Presented in blocks, whoever reads them multiplies in f32: what is read back of the same numbers as f32.
        #[allow(clippy::cast_possible_truncation)] // they were no wider
        let wide = bytes(numbers_of(source, &numbers).iter().map(|it| *it as f32));
        let mut of_f32 = LossMeter::new(&Chain::parse("q8_0", F32).unwrap(), &ViewChain::identity()).unwrap();
        of_f32.add(&wide).unwrap();
        let of_f32 = of_f32.finish();
        let blocks = ViewChain::parse("q8_0", source).unwrap();
        for stored in ["none", "q8_0"] {
            let stored = Chain::parse(stored, source).unwrap();
            let mut of_view = LossMeter::new(&stored, &blocks).unwrap();
            prop_assert!(of_view.is_lossy());
            of_view.add(&numbers).unwrap();
            prop_assert_eq!(of_view.finish(), of_f32);
        }
    }
}

#[test]
fn half_a_step_of_the_largest_is_most_of_the_bound() {
    let Contract::Quantized(bound) = Chain::parse("q8_0", F32).unwrap().contract() else {
        panic!("it is lossy");
    };
    assert!(
        (1.0 / 254.0..1.0 / 225.0).contains(&bound.of_largest),
        "{bound:?}"
    );
    assert!((bound.below - 8_321_040.0).abs() < f64::EPSILON);
    // Half way between two steps, and a scale that f16 rounds down by nearly half an ulp.
    let scale = 1.0 + 0.4999 / 1024.0;
    let numbers = bytes(
        [127.0 * scale, 126.499 * scale]
            .into_iter()
            .chain([0.0; 30]),
    );
    let back = numbers_of(
        F32,
        &read_back(&Chain::parse("q8_0", F32).unwrap(), &numbers),
    );
    let error = (back[1] - f64::from(126.499f32 * scale)).abs() / f64::from(127.0 * scale);
    assert!(
        error > 0.9 * bound.of_largest,
        "{error} of {}",
        bound.of_largest
    );
}
