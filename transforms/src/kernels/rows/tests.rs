//! Every kernel against the definition, wherever a row begins and ends.

use proptest::prelude::*;

use super::*;

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_le_bytes()).collect()
}

/// Rows of so many elements, their numbers, and where a part of them begins.
fn rows() -> impl Strategy<Value = (u32, Vec<f32>, usize)> {
    let number = prop_oneof![
        6 => -2.0f32..2.0,
        1 => any::<i8>().prop_map(|steps| (f32::from(steps) + 0.5) / 128.0),
        1 => (0u32..0x0100_0000).prop_map(f32::from_bits),
        1 => prop_oneof![Just(0.0f32), Just(-0.0), Just(127.0), Just(f32::MAX), Just(f32::MIN)],
    ];
    (1u32..400, 0usize..9)
        .prop_flat_map(move |(row_elements, count)| {
            let elements = count * row_elements as usize;
            let numbers = prop::collection::vec(number.clone(), elements);
            (Just(row_elements), numbers, 0..elements.max(1))
        })
        .prop_map(|(row_elements, numbers, first)| {
            let first = first.min(numbers.len());
            (row_elements, numbers, first)
        })
}

fn scales_of(row_elements: u32, numbers: &[f32]) -> Vec<f32> {
    let rows = numbers.chunks(row_elements as usize);
    let largest = rows.map(|row| row.iter().fold(0f32, |one, other| one.max(other.abs())));
    largest.map(scalar::scale_of).collect()
}

proptest! {
    #[test]
    fn every_kernel_packs_and_unpacks_as_the_definition((row_elements, numbers, first) in rows()) {
        let scales = scales_of(row_elements, &numbers);
        let rows = Rows { row_elements, scales: &scales };
        let scale = |index: usize| scales[index / row_elements as usize];
        let expected: Vec<u8> = (numbers.iter().enumerate())
            .map(|(index, number)| {
                let steps = (number * scalar::reciprocal(scale(index))).round_ties_even();
                assert!(steps.abs() <= 127.0, "{number} of {}", scale(index));
                #[allow(clippy::cast_possible_truncation)] // asserted
                let steps = steps as i8;
                steps.cast_unsigned()
            })
            .collect();
        let numbers_again: Vec<f32> = (expected.iter().enumerate())
            .map(|(index, steps)| f32::from(steps.cast_signed()) * scale(index))
            .collect();
        for isa in Isa::available() {
            let src = bytes(&numbers[first..]);
            let met = largest(isa, ElementType::F32, &src);
            let most = numbers[first..].iter().fold(0f32, |one, other| one.max(other.abs()));
            prop_assert_eq!(met, most.to_bits(), "{:?}", isa);
            let mut packed = vec![0xEE; numbers.len() - first];
            quantize(isa, ElementType::F32, rows, first as u64, &src, &mut packed).unwrap();
            prop_assert!(packed == expected[first..], "{isa:?}");
            let mut back = vec![0xEE; src.len()];
            let types = (ElementType::F32, ElementType::F32);
            present(isa, types, rows, first as u64, &packed, &mut back);
            prop_assert!(back == bytes(&numbers_again[first..]), "{isa:?}");
        }
    }

    #[test]
    fn what_is_beyond_its_scale_is_found_by_every_kernel_wherever_it_stands(
        (row_elements, mut numbers, _) in rows(),
        at in any::<prop::sample::Index>(),
        is_number in any::<bool>(),
    ) {
        prop_assume!(!numbers.is_empty());
        numbers.iter_mut().for_each(|it| *it = it.clamp(-2.0, 2.0));
        let scales = scales_of(row_elements, &numbers);
        let rows = Rows { row_elements, scales: &scales };
        let at = at.index(numbers.len());
        numbers[at] = if is_number { -2.02 } else { f32::NAN };
        for isa in Isa::available() {
            let mut packed = vec![0; numbers.len()];
            let found = quantize(isa, ElementType::F32, rows, 0, &bytes(&numbers), &mut packed);
            prop_assert_eq!(found, Err((at as u64, numbers[at].to_bits())), "{:?}", isa);
        }
    }
}

#[test]
fn a_scale_is_that_of_a_127th_of_the_largest_or_zero() {
    assert!(scalar::scale_of(127.0) == 1.0 && scalar::scale_of(0.0) == 0.0);
    let smallest = 127.0 * 2f32.powi(-127);
    let scale = scalar::scale_of(smallest);
    assert!(scale > 0.0 && scalar::fits(smallest.to_bits(), scale));
    let below = 127.0 * 2f32.powi(-129);
    assert!(scalar::scale_of(below) == 0.0 && scalar::fits(below.to_bits(), 0.0));
    assert!(!scalar::fits(smallest.to_bits(), 0.0));
    // 127.5 is a tie, and 128 the even side of it.
    let tie = 127.5f32.to_bits();
    assert!(scalar::fits(tie - 1, 1.0) && !scalar::fits(tie, 1.0));
    for bits in [0x7F80_0000, 0x7FC0_0000, 0x7F80_0001] {
        assert!(!scalar::fits(bits, 0.0) && !scalar::fits(bits, f32::MAX));
    }
    let scale = scalar::scale_of(f32::MAX);
    assert!(scalar::fits(f32::MAX.to_bits(), scale) && scale.is_finite());
}
