//! Conversions of floating point: every number of 16 bits, and the numbers of 32 and 64 at which conversions go wrong, against the definition and
//! against what numpy and ml_dtypes made of them (fixtures/golden-vectors/float-digests.txt).

#![allow(clippy::unwrap_used)] // a test: a panic is the report
#![allow(clippy::cast_possible_truncation)] // numbers are cut to width on purpose

use std::path::Path;

use sha2::{Digest, Sha256};
use transforms::conformance::floats::converted;
use transforms::{Chain, Decoder, ElementType, Isa, OutSegments, PackedWindow, Scratch, ViewChain};

use ElementType::{Bf16, F16, F32, F64};

/// Elements at a time.
const PART: usize = 1 << 16;

/// Elements of `from` as a view presents them.
fn viewed(isa: Isa, from: ElementType, to: ElementType, elements: &[u8]) -> Vec<u8> {
    let chain = Chain::parse("none", from).unwrap().with_isa(isa);
    let view = ViewChain::parse(to.name(), from).unwrap();
    let decoder = Decoder::new(&chain, &view, None).unwrap();
    let mut out = vec![0; elements.len() / from.bytes() * to.bytes()];
    let window = PackedWindow {
        first_byte: 0,
        bytes: elements,
    };
    let presented = 0..out.len() as u64;
    let mut segments = OutSegments::from_slice(&mut out);
    decoder.expand(window, presented, &mut segments).unwrap();
    out
}

/// Elements of `from` as a chain stores them.
fn stored(isa: Isa, from: ElementType, to: ElementType, elements: &[u8]) -> Vec<u8> {
    let chain = Chain::parse(to.name(), from).unwrap().with_isa(isa);
    let mut out = vec![0; elements.len() / from.bytes() * to.bytes()];
    let encoded = chain.encode_frame(elements, &mut Scratch::new(), &mut out);
    assert_eq!(encoded.unwrap().stored_bytes, out.len());
    out
}

fn bytes(element: ElementType, numbers: &[u64]) -> Vec<u8> {
    let bytes = |n: &u64| n.to_le_bytes()[..element.bytes()].to_vec();
    numbers.iter().flat_map(bytes).collect()
}

fn number(bytes: &[u8]) -> u64 {
    let mut bits = [0; 8];
    bits[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(bits)
}

/// Fails with the first number that is converted to something else than the definition says.
fn compare(what: &str, from: ElementType, to: ElementType, numbers: &[u64], made: &[u8]) {
    assert_eq!(made.len(), numbers.len() * to.bytes());
    for (bits, made) in numbers.iter().zip(made.chunks(to.bytes())) {
        let expected = converted(from, to, *bits);
        let made = number(made);
        assert_eq!(
            made, expected,
            "{what}: {from} {bits:#x} became {to} {made:#x}, {expected:#x} is right"
        );
    }
}

/// Every sign and exponent with fractions around every bit: powers of two, what ties to an even and to an odd number, all ones, and their
/// neighbours. In ascending order.
fn edges(element: ElementType) -> impl Iterator<Item = u64> {
    let fraction_bits = if element == F32 { 23 } else { 52 };
    let mask = (1u64 << fraction_bits) - 1;
    let mut fractions: Vec<u64> = (0..=fraction_bits)
        .flat_map(|s| [0, 1, 3, 5, u64::MAX].map(|base: u64| base << s))
        .flat_map(|base| [base.wrapping_sub(1), base, base.wrapping_add(1)])
        .map(|fraction| fraction & mask)
        .collect();
    fractions.sort_unstable();
    fractions.dedup();
    let exponents = 1u64 << (element.bits() - fraction_bits);
    (0..exponents).flat_map(move |exponent| {
        let fractions = fractions.clone();
        fractions
            .into_iter()
            .map(move |fraction| exponent << fraction_bits | fraction)
    })
}

/// Numbers without pattern: splitmix64 of a counter.
fn noise(element: ElementType, count: u64) -> impl Iterator<Item = u64> {
    let mask = u64::MAX >> (64 - element.bits());
    (1..=count).map(move |i| {
        let z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) & mask
    })
}

/// The numbers of a set, in parts.
fn parts(set: &str, element: ElementType) -> Vec<Vec<u64>> {
    let numbers: Box<dyn Iterator<Item = u64>> = match set {
        "all" => Box::new(0..1 << 16),
        "edges" => Box::new(edges(element)),
        "noise" => Box::new(noise(element, 10 << 20)),
        _ => panic!("no set is named {set:?}"),
    };
    let mut parts = vec![Vec::with_capacity(PART)];
    for number in numbers {
        if parts.last().unwrap().len() == PART {
            parts.push(Vec::with_capacity(PART));
        }
        parts.last_mut().unwrap().push(number);
    }
    parts
}

#[test]
fn every_number_of_16_bits_is_as_defined_in_every_type() {
    let numbers: Vec<u64> = (0..1 << 16).collect();
    for isa in Isa::available() {
        for (from, to) in [(Bf16, F32), (F16, F32), (Bf16, F64), (F16, F64)] {
            let made = viewed(isa, from, to, &bytes(from, &numbers));
            compare(&format!("{isa:?}"), from, to, &numbers, &made);
            // What was widened comes back, but for the NaNs that become quiet.
            let wide: Vec<u64> = made.chunks(to.bytes()).map(number).collect();
            let back = stored(isa, to, from, &made);
            compare(&format!("{isa:?}, back"), to, from, &wide, &back);
            for (bits, back) in numbers.iter().zip(back.chunks(2)) {
                let is_nan = f32::from_bits(converted(from, F32, *bits) as u32).is_nan();
                assert!(is_nan || number(back) == *bits, "{isa:?} {from} {bits:#x}");
            }
        }
    }
}

#[test]
fn numbers_around_every_tie_and_limit_are_as_defined() {
    for (from, to) in [(F32, Bf16), (F32, F16), (F32, F64)] {
        for numbers in parts("edges", from) {
            let elements = bytes(from, &numbers);
            for isa in Isa::available() {
                let made = viewed(isa, from, to, &elements);
                compare(&format!("{isa:?}"), from, to, &numbers, &made);
            }
        }
    }
}

#[test]
fn numbers_of_64_bits_around_every_tie_and_limit_are_as_defined() {
    for (n, numbers) in parts("edges", F64).iter().enumerate() {
        let elements = bytes(F64, numbers);
        for to in [F32, Bf16, F16] {
            // Each part with the kernels of one instruction set, by turns: every exponent meets every set.
            let available = Isa::available();
            let isa = available[n % available.len()];
            let made = viewed(isa, F64, to, &elements);
            compare(&format!("{isa:?}"), F64, to, numbers, &made);
        }
    }
}

/// A line of the file: what numpy or ml_dtypes made of a set of numbers.
struct Golden {
    set: String,
    from: ElementType,
    to: ElementType,
    numbers: usize,
    sha256: String,
}

fn golden() -> Vec<Golden> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden-vectors/float-digests.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [set, from, to, numbers, sha256, ..] = words[..] else {
            panic!("{line:?}");
        };
        Golden {
            set: set.into(),
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            numbers: numbers.parse().unwrap(),
            sha256: sha256.into(),
        }
    };
    text.lines()
        .filter(|text| !text.starts_with('#'))
        .map(line)
        .collect()
}

/// Compares with the lines of these sets, among which are those `needed`.
fn compare_with_golden(sets: &[&str], needed: &[(&str, ElementType, ElementType)]) {
    let golden = golden();
    let mut seen = Vec::new();
    for line in golden
        .iter()
        .filter(|line| sets.contains(&line.set.as_str()))
    {
        let mut hashes: Vec<(Isa, Sha256)> = Isa::available()
            .into_iter()
            .map(|isa| (isa, Sha256::new()))
            .collect();
        let mut numbers = 0;
        for part in parts(&line.set, line.from) {
            numbers += part.len();
            let elements = bytes(line.from, &part);
            for (isa, hash) in &mut hashes {
                hash.update(viewed(*isa, line.from, line.to, &elements));
            }
        }
        assert_eq!(numbers, line.numbers, "{} {}", line.set, line.from);
        for (isa, hash) in hashes {
            let digest: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
            let what = format!("{isa:?}: {} {} to {}", line.set, line.from, line.to);
            assert_eq!(digest, line.sha256, "{what}");
        }
        seen.push((line.set.as_str(), line.from, line.to));
    }
    for needed in needed {
        assert!(seen.contains(needed), "no line for {needed:?}");
    }
}

#[test]
fn numpy_and_ml_dtypes_make_the_same_of_all_numbers_of_16_bits_and_around_ties() {
    let needed = [
        ("all", Bf16, F32),
        ("all", F16, F32),
        ("edges", F32, Bf16),
        ("edges", F32, F16),
        ("edges", F64, F32),
    ];
    compare_with_golden(&["all", "edges"], &needed);
}

#[test]
#[cfg_attr(
    not(target_arch = "x86_64"),
    ignore = "takes minutes where it is emulated"
)]
fn numpy_and_ml_dtypes_make_the_same_of_ten_million_numbers() {
    let needed = [
        ("noise", F32, Bf16),
        ("noise", F32, F16),
        ("noise", F64, F32),
    ];
    compare_with_golden(&["noise"], &needed);
}

#[test]
fn a_contract_says_how_far_off_a_number_may_be() {
    let contract = |text: &str, source| Chain::parse(text, source).unwrap().contract();
    for (text, source) in [("none", F32), ("f32", F32), ("u16", ElementType::U32)] {
        assert!(!contract(text, source).is_lossy(), "{text} of {source}");
    }
    for (to, from, infinite_from) in [
        (F16, F32, 65520.0),
        (Bf16, F32, f64::from(f32::from_bits(0x7F7F_8000))),
        (F32, F64, f64::from_bits(0x47EF_FFFF_F000_0000)),
        (Bf16, F64, f64::from(f32::from_bits(0x7F7F_8000))),
    ] {
        let contract = contract(to.name(), from);
        let transforms::Contract::Rounded(rounding) = contract else {
            panic!("{to} of {from} is {contract:?}");
        };
        assert_eq!(
            ViewChain::parse(to.name(), from).unwrap().contract(),
            contract
        );
        assert_eq!(rounding.to, to);
        assert_eq!(rounding.infinite_from, infinite_from);
        let value = |element, bits| f64::from_bits(converted(element, F64, bits));
        let (mut relative, mut absolute) = (0f64, 0f64);
        for bits in parts("edges", from).into_iter().flatten() {
            let source = value(from, bits).abs();
            let rounded = value(to, converted(from, to, bits)).abs();
            assert_eq!(
                source.is_finite() && rounded.is_infinite(),
                source.is_finite() && source >= infinite_from,
                "{from} {bits:#x}"
            );
            if source.is_finite() && rounded.is_finite() {
                let error = (rounded - source).abs();
                if error > rounding.absolute {
                    relative = relative.max(error / source);
                } else {
                    absolute = absolute.max(error);
                }
            }
        }
        // Met, and in the case of ties just so.
        assert!(relative <= rounding.relative && relative > rounding.relative * 0.99);
        assert_eq!(absolute, rounding.absolute, "{from} to {to}");
    }
}

/// All 2^32 numbers, by both conversions and every instruction set: some minutes. `cargo test --release -p transforms --test floats -- --ignored`
#[test]
#[ignore = "takes minutes"]
fn every_number_of_32_bits_is_as_defined() {
    for part in 0..1u64 << 16 {
        let numbers: Vec<u64> = (part << 16..(part + 1) << 16).collect();
        let elements = bytes(F32, &numbers);
        for to in [Bf16, F16] {
            let expected: Vec<u64> = numbers.iter().map(|n| converted(F32, to, *n)).collect();
            let expected = bytes(to, &expected);
            for isa in Isa::available() {
                let made = viewed(isa, F32, to, &elements);
                if made != expected {
                    compare(&format!("{isa:?}"), F32, to, &numbers, &made);
                }
            }
        }
    }
}
