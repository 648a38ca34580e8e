//! `int8` against what numpy makes of the same numbers, and against its own contract.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use transforms::{
    Chain, Decoder, ElementType, Isa, LossMeter, OutSegments, PackedWindow, ROWS_MAX, RowMaxima,
    Scales, Scratch, TableKind, TransformError, ViewChain,
};

use ElementType::{Bf16, F16, F32};
use support::{bytes, check_bound, hex, in_type, number, numbers, recorded};

/// The chain with the scales of its elements, which come in two parts.
fn with_scales(chain: &Chain, elements: &[u8]) -> Chain {
    let size = chain.source().bytes();
    let (front, back) = elements.split_at(elements.len() / size / 3 * size);
    let mut maxima = RowMaxima::new(chain).unwrap();
    maxima.add(front).unwrap();
    maxima.add(back).unwrap();
    let scales = maxima.scales().unwrap();
    chain.with_table(Arc::new(scales)).unwrap()
}

fn encoded(chain: &Chain, first: u64, source: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; source.len() / chain.source().bytes()];
    chain
        .encode_frame_at(first, source, &mut Scratch::new(), &mut packed)
        .unwrap();
    packed
}

fn scales_of(chain: &Chain) -> Vec<u8> {
    chain.table(TableKind::Scales).unwrap().to_bytes()
}

#[test]
fn a_quarter_of_a_million_numbers_become_what_numpy_makes_of_them() {
    let mut found = Vec::new();
    for [
        source,
        row,
        rows,
        of_source,
        of_scales,
        of_steps,
        of_presented,
    ] in recorded("int8-digests.txt")
    {
        let source: ElementType = source.parse().unwrap();
        let (row, rows): (u32, u32) = (row.parse().unwrap(), rows.parse().unwrap());
        let numbers = numbers(row * rows, row, source);
        assert_eq!(hex(&numbers), of_source, "{source}");
        for isa in Isa::available() {
            let chain = Chain::parse(&format!("int8:{row}"), source).unwrap();
            let chain = with_scales(&chain.with_isa(isa), &numbers);
            assert_eq!(hex(&scales_of(&chain)), of_scales, "{source} with {isa:?}");
            let steps = encoded(&chain, 0, &numbers);
            assert_eq!(hex(&steps), of_steps, "{source} with {isa:?}");
            let mut back = vec![0; numbers.len()];
            chain.read_back(&numbers, &mut back).unwrap();
            assert_eq!(hex(&back), of_presented, "{source} back with {isa:?}");
        }
        found.push(source);
    }
    assert_eq!(found, [F32, Bf16, F16]);
}

/// Frames begin anywhere in their stream, also inside a row.
#[test]
fn a_frame_is_scaled_by_the_rows_that_it_lies_in() {
    let numbers = bytes((0..7 * 100).map(|n| number(n, 7)));
    let chain = Chain::parse("int8:7+zstd:1", F32).unwrap();
    let chain = with_scales(&chain, &numbers);
    let plain = chain.with_isa(Isa::Portable);
    let unframed = Chain::parse("int8:7", F32).unwrap();
    let unframed = unframed
        .with_table(chain.table(TableKind::Scales).unwrap().clone())
        .unwrap();
    let all = encoded(&unframed, 0, &numbers);
    let mut back = vec![0; numbers.len()];
    unframed.read_back(&numbers, &mut back).unwrap();
    for frame in [8, 64, 104] {
        for (index, part) in numbers.chunks(4 * frame).enumerate() {
            let first = index * frame;
            let count = part.len() / 4;
            let mut stored = vec![0; count];
            let mut scratch = Scratch::new();
            let encoded = chain.encode_frame_at(first as u64, part, &mut scratch, &mut stored);
            let stored = &stored[..encoded.unwrap().stored_bytes];
            let mut packed = vec![0; count];
            chain.unblock(stored, &mut scratch, &mut packed).unwrap();
            assert_eq!(packed, all[first..][..count]);
            let expected = &back[4 * first..][..part.len()];
            let mut part_back = vec![0; part.len()];
            chain
                .read_back_at(first as u64, part, &mut part_back)
                .unwrap();
            assert_eq!(part_back, expected);
            for chain in [&chain, &plain] {
                let decoder = Decoder::new(chain, &ViewChain::identity(), None).unwrap();
                let window = PackedWindow {
                    first_byte: 0,
                    bytes: &packed,
                };
                // From inside an element on.
                let mut out = vec![0; part.len() - 5];
                let range = 5..part.len() as u64;
                let mut segments = OutSegments::from_slice(&mut out);
                decoder
                    .expand_at(first as u64, window, range, &mut segments)
                    .unwrap();
                assert_eq!(out, expected[5..]);
            }
        }
    }
}

#[test]
fn scales_that_are_none_are_refused() {
    let refused = |bytes: &[u8]| Scales::parse(bytes).unwrap_err().to_string();
    for bytes in [vec![], vec![0; 3], vec![0; 5], vec![0; 4 * ROWS_MAX + 4]] {
        let why = format!(
            "{} bytes, where 1 to 16777216 rows have 4 each",
            bytes.len()
        );
        assert_eq!(refused(&bytes), format!("not the scales of int8: {why}"));
    }
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -1.0, -0.0] {
        let why = format!("that of row 2 is {bad} ({:#010x})", bad.to_bits());
        let error = refused(&bytes([1.0, 0.0, bad]));
        assert!(error.contains(&why), "{error}");
    }
    for good in [0.0, f32::MAX, f32::from_bits(1)] {
        let bytes = bytes([good, 1.0]);
        assert_eq!(Scales::parse(&bytes).unwrap().to_bytes(), bytes);
    }
}

#[test]
fn rows_that_have_no_scales_are_refused_with_their_place() {
    let chain = Chain::parse("int8:4", F32).unwrap();
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        for at in 0..9 {
            let mut numbers = [-1.0; 9];
            numbers[at] = bad;
            let found = RowMaxima::new(&chain).unwrap().add(&bytes(numbers));
            let expected = TransformError::NotFinite {
                index: at as u64,
                bits: bad.to_bits(),
            };
            assert_eq!(found, Err(expected));
        }
    }
    let partial = RowMaxima::new(&chain).unwrap().add(&[0; 7]);
    let expected = TransformError::PartialElement {
        bytes: 7,
        element: F32,
    };
    assert_eq!(partial, Err(expected));
    let scales = |count: usize| {
        let mut maxima = RowMaxima::new(&chain).unwrap();
        maxima.add(&bytes(vec![1.0; count])).unwrap();
        maxima.scales().map_err(|error| error.to_string())
    };
    assert!(scales(8).is_ok());
    assert!(scales(0).unwrap_err().contains("there are no rows"));
    let partial = scales(7).unwrap_err();
    assert!(
        partial.contains("the last row has 3 of 4 elements"),
        "{partial}"
    );

    // Behind the last row, and without scales at all.
    let scaled = chain.with_table(Arc::new(scales(8).unwrap())).unwrap();
    let (mut scratch, mut out) = (Scratch::new(), [0; 4]);
    let numbers = bytes([1.0; 4]);
    for first in [5, u64::MAX - 1] {
        let behind = scaled.encode_frame_at(first, &numbers, &mut scratch, &mut out);
        assert!(matches!(behind, Err(TransformError::Scales { .. })));
        let decoder = Decoder::new(&scaled, &ViewChain::identity(), None).unwrap();
        let window = PackedWindow {
            first_byte: 0,
            bytes: &[1; 4],
        };
        let mut out = [0; 16];
        let mut out = OutSegments::from_slice(&mut out);
        let behind = decoder.expand_at(first, window, 0..16, &mut out);
        assert!(matches!(behind, Err(TransformError::Scales { .. })));
    }
    let mut meter = LossMeter::new(&scaled, &ViewChain::identity()).unwrap();
    meter.add(&bytes([1.0; 8])).unwrap();
    assert!(matches!(
        meter.add(&numbers),
        Err(TransformError::Scales { .. })
    ));
    let bare = chain.encode_frame(&numbers, &mut scratch, &mut out);
    assert!(matches!(bare, Err(TransformError::TableNeeded { .. })));
    let bare = Decoder::new(&chain, &ViewChain::identity(), None);
    assert!(matches!(bare, Err(TransformError::TableNeeded { .. })));
}

#[test]
fn rows_are_as_many_as_a_blob_of_scales_may_have() {
    const PART: usize = 1 << 16;
    let chain = Chain::parse("int8:1", Bf16).unwrap();
    let mut maxima = RowMaxima::new(&chain).unwrap();
    let part = vec![0; 2 * PART];
    for _ in 0..ROWS_MAX / PART {
        maxima.add(&part).unwrap();
    }
    let one_more = maxima.add(&part[..2]).unwrap_err().to_string();
    let why = "more than 16777216 rows: use q8_0, or longer rows";
    assert!(one_more.contains(why), "{one_more}");
}

proptest! {
    /// The bound that the contract gives, for rows of every size, and what the meter measures, however the elements come.
    #[test]
    fn no_number_is_further_off_than_the_contract_says(
        exponent in 0u32..250,
        row in 1usize..70,
        noise in prop::collection::vec(any::<u32>(), 1..200),
        source in prop::sample::select(vec![F32, Bf16, F16]),
    ) {
        let number = |noise: &u32| {
            let exponent = exponent.saturating_sub(noise >> 23 & 7) << 23;
            f32::from_bits(noise & 0x807F_FFFF | exponent)
        };
        let limit = if source == F16 { 60_000.0 } else { f32::MAX };
        let count = noise.len().next_multiple_of(row);
        let numbers = noise.iter().map(number).map(|it| it.clamp(-limit, limit));
        let numbers = in_type(numbers.chain(std::iter::repeat(0.0)).take(count), source);
        let chain = Chain::parse(&format!("int8:{row}"), source).unwrap();
        let chain = with_scales(&chain, &numbers);
        let mut back = vec![0; numbers.len()];
        chain.read_back(&numbers, &mut back).unwrap();
        check_bound(&chain, row, &numbers, &back)?;
    }
}
