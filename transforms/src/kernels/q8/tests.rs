//! Every kernel against the definition, and the definition against rounding as it is written down.

use proptest::prelude::*;

use super::*;

/// What `gguf` writes, in its words: floor, and half up, of the magnitude.
fn rounded(number: f32) -> f32 {
    let magnitude = number.abs();
    let floored = magnitude.floor();
    (floored + (2.0 * (magnitude - floored)).floor()).copysign(number)
}

#[test]
fn steps_are_rounded_half_away_from_zero_on_both_sides_of_every_tie() {
    for tie in 0..128u16 {
        for half in [f32::from(tie), f32::from(tie) + 0.5] {
            for bits in half.to_bits().saturating_sub(3)..half.to_bits() + 3 {
                for steps in [f32::from_bits(bits), -f32::from_bits(bits)] {
                    let is = (steps + scalar::BELOW_HALF.copysign(steps)).trunc();
                    assert!(is == rounded(steps), "{steps:?} became {is}");
                }
            }
        }
    }
}

/// Beside ties a number that is added carries where it should not: each kernel is given these, of a scale of 1.
#[test]
fn every_kernel_rounds_on_both_sides_of_every_tie() {
    let ties = (0..127u16).map(|it| f32::from(it) + 0.5);
    let near = ties.flat_map(|tie| (tie.to_bits() - 1..=tie.to_bits() + 1).map(f32::from_bits));
    let near: Vec<f32> = near
        .flat_map(|it| [it, -it])
        .filter(|it| it.abs() < 126.9)
        .collect();
    for part in near.chunks(GROUP_ELEMENTS - 1) {
        let mut numbers = [0.0; GROUP_ELEMENTS];
        numbers[0] = 127.0;
        numbers[1..=part.len()].copy_from_slice(part);
        #[allow(clippy::cast_possible_truncation)] // at most 127
        let steps = numbers.map(|it| (rounded(it) as i8).cast_unsigned());
        for isa in Isa::available() {
            let mut packed = [0; GROUP_BYTES];
            quantize(isa, ElementType::F32, &bytes(&numbers), &mut packed).unwrap();
            assert_eq!(packed[2..], steps, "{isa:?} of {numbers:?}");
        }
    }
}

#[test]
fn a_scale_is_finite_for_all_numbers_below_the_limit_and_for_no_other() {
    let mut group = [0.0; GROUP_ELEMENTS];
    let limit = UNSCALABLE_FROM.to_bits();
    for (bits, is_finite) in [(limit - 1, true), (limit, false)] {
        group[7] = -f32::from_bits(bits);
        let (packed, largest) = scalar::quantize(&group);
        assert_eq!(largest, bits);
        assert_eq!(scalar::scale_of(&packed) < F16_INFINITE, is_finite);
    }
}

/// Numbers of one size, with what is special among them.
fn number() -> impl Strategy<Value = f32> {
    let limit = UNSCALABLE_FROM.to_bits();
    prop_oneof![
        4 => -2.0f32..2.0,
        2 => any::<i8>().prop_map(|steps| (f32::from(steps) + 0.5) / 128.0),
        1 => (0..limit).prop_map(f32::from_bits),
        1 => (0..limit).prop_map(|bits| -f32::from_bits(bits)),
        1 => (0u32..0x0100_0000).prop_map(f32::from_bits),
        1 => prop_oneof![Just(0.0f32), Just(-0.0), Just(127.0), Just(-127.0)],
    ]
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_le_bytes()).collect()
}

/// One group after the other, by the definition.
fn by_definition(numbers: &[f32]) -> Vec<u8> {
    let group = |numbers: &[f32]| {
        let mut group = [0.0; GROUP_ELEMENTS];
        group[..numbers.len()].copy_from_slice(numbers);
        scalar::quantize(&group).0
    };
    numbers.chunks(GROUP_ELEMENTS).flat_map(group).collect()
}

proptest! {
    #[test]
    fn every_kernel_packs_and_unpacks_as_the_definition(
        numbers in prop::collection::vec(number(), 0..2500),
        // Groups of numbers so small that their scales are subnormal, or have no reciprocal.
        factor in prop_oneof![4 => Just(1.0f32), 1 => Just(1e-5), 1 => Just(1e-37), 1 => Just(1e-44)],
    ) {
        let numbers: Vec<f32> = numbers.iter().map(|it| it * factor).collect();
        let expected = by_definition(&numbers);
        let unpacked: Vec<f32> = expected
            .as_chunks()
            .0
            .iter()
            .flat_map(scalar::dequantize)
            .take(numbers.len())
            .collect();
        for isa in Isa::available() {
            let mut packed = vec![0xEE; expected.len()];
            quantize(isa, ElementType::F32, &bytes(&numbers), &mut packed).unwrap();
            prop_assert!(packed == expected, "{isa:?}");
            let mut back = vec![0xEE; numbers.len() * 4];
            present(isa, (ElementType::F32, ElementType::F32), &packed, 0, &mut back).unwrap();
            prop_assert!(back == bytes(&unpacked), "{isa:?}");
        }
    }

    #[test]
    fn what_has_no_scale_is_found_by_every_kernel_wherever_it_stands(
        mut numbers in prop::collection::vec(number(), 1..2500),
        at in any::<prop::sample::Index>(),
        bits in UNSCALABLE_FROM.to_bits()..=0x7FFF_FFFF,
        is_negative in any::<bool>(),
    ) {
        let at = at.index(numbers.len());
        let bits = bits | u32::from(is_negative) << 31;
        numbers[at] = f32::from_bits(bits);
        for isa in Isa::available() {
            let mut packed = vec![0; numbers.len().div_ceil(GROUP_ELEMENTS) * GROUP_BYTES];
            let found = quantize(isa, ElementType::F32, &bytes(&numbers), &mut packed);
            prop_assert_eq!(found, Err((at as u64, bits)), "{:?}", isa);
        }
    }

    #[test]
    fn a_bad_scale_is_found_by_every_kernel_and_only_where_its_group_is_read(
        groups in 1usize..80,
        bad in any::<prop::sample::Index>(),
        bits in prop_oneof![1 => Just(F16_INFINITE), 3 => F16_INFINITE..=0x7FFF],
        is_negative in any::<bool>(),
        presented in prop::sample::select(ElementType::FLOATS.to_vec()),
    ) {
        let bad = bad.index(groups);
        let bits = bits | u16::from(is_negative) << 15;
        let mut packed = vec![1; groups * GROUP_BYTES];
        packed[bad * GROUP_BYTES..][..2].copy_from_slice(&bits.to_le_bytes());
        for isa in Isa::available() {
            for first in [0, bad * GROUP_ELEMENTS + 31, (bad + 1) * GROUP_ELEMENTS] {
                let count = groups * GROUP_ELEMENTS - first;
                let mut out = vec![0; count * presented.bytes()];
                let read = present(isa, (ElementType::F32, presented), &packed, first, &mut out);
                let expected = if first < (bad + 1) * GROUP_ELEMENTS {
                    Err(BadScale { group: bad, bits })
                } else {
                    Ok(())
                };
                prop_assert_eq!(read, expected, "{:?} from {}", isa, first);
            }
        }
    }
}
