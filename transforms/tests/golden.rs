//! The golden vectors in fixtures/golden-vectors: bytes of today, read for ever.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

use std::path::Path;

use transforms::{
    Chain, Decoder, ElementType, OutSegments, PackedWindow, Scratch, Table, TableKind, ViewChain,
    descriptors,
};

struct Vector {
    chain: Chain,
    source: Vec<u8>,
    packed: Vec<u8>,
    stored: Vec<u8>,
    /// What a reader gets.
    presented: Vec<u8>,
    made_by: String,
}

/// The vectors of one transform.
fn vectors(name: &str) -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/golden-vectors");
    let path = folder.join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.split("\n\n").map(vector).collect()
}

fn vector(entry: &str) -> Vector {
    let line = |word: &str| {
        let found = entry.lines().find_map(|line| line.strip_prefix(word));
        found.unwrap_or_else(|| panic!("no {word:?} in {entry:?}"))
    };
    let element: ElementType = line("source ").parse().unwrap();
    let source = elements(element, line("values "));
    let is_rounded = entry.contains("\npresented ");
    let mut chain = Chain::parse(line("chain "), element).unwrap();
    for kind in chain.clone().table_kinds() {
        let word = match kind {
            TableKind::Dictionary => "dictionary ",
            _ => "table ",
        };
        let table = Table::parse(kind, &bytes(line(word))).unwrap();
        chain = chain.with_table(table).unwrap();
    }
    Vector {
        chain,
        presented: if is_rounded {
            elements(element, line("presented "))
        } else {
            source.clone()
        },
        source,
        packed: bytes(line("packed ")),
        stored: bytes(line("stored ")),
        made_by: line("made-by ").into(),
    }
}

/// Integers are decimal, floating point is its bits, hexadecimal.
fn elements(element: ElementType, values: &str) -> Vec<u8> {
    let value = |text: &str| match element.is_integer() {
        true => text.parse().unwrap(),
        false => i128::from_str_radix(text, 16).unwrap(),
    };
    values
        .split(' ')
        .flat_map(|text| value(text).to_le_bytes()[..element.bytes()].to_vec())
        .collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn every_transform_reads_its_golden_vectors() {
    let mut scratch = Scratch::new();
    for descriptor in descriptors() {
        let vectors = vectors(descriptor.name);
        assert!(vectors.len() >= 5, "{}: few vectors", descriptor.name);
        for (index, vector) in vectors.iter().enumerate() {
            let what = format!(
                "{} vector {index}, {:?}, made by {}",
                descriptor.name, vector.chain, vector.made_by
            );
            let named = vector.chain.steps().iter().any(|s| s.id == descriptor.id);
            assert!(named, "{what}: another transform's");

            let mut packed = vec![0; vector.packed.len()];
            vector
                .chain
                .unblock(&vector.stored, &mut scratch, &mut packed)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(packed, vector.packed, "{what}");

            let decoder = Decoder::new(&vector.chain, &ViewChain::identity(), None).unwrap();
            let mut out = vec![0; vector.source.len()];
            let window = PackedWindow {
                first_byte: 0,
                bytes: &packed,
            };
            let range = 0..out.len() as u64;
            decoder
                .expand(window, range, &mut OutSegments::from_slice(&mut out))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(out, vector.presented, "{what}");
        }
    }
}

#[test]
fn what_a_definition_fixes_is_encoded_byte_for_byte() {
    let mut scratch = Scratch::new();
    let mut fixed = 0;
    for name in [
        "integer", "bitpack", "float", "q8_0", "int8", "shuffle", "rank",
    ] {
        for vector in vectors(name) {
            if vector.made_by.contains("zstandard") {
                continue;
            }
            if !["float", "q8_0", "int8"].contains(&name) {
                assert_eq!(vector.made_by, "definition");
            }
            let mut stored = vec![0; vector.packed.len()];
            let encoded = vector
                .chain
                .encode_frame(&vector.source, &mut scratch, &mut stored)
                .unwrap();
            stored.truncate(encoded.stored_bytes);
            assert_eq!(stored, vector.stored, "{:?}", vector.chain);
            fixed += 1;
        }
    }
    assert_eq!(fixed, 10 + 36 + 6 + 8 + 9 + 5 + 7);
}

/// An element of floatsplit-blocks.txt, by the rule in README.md.
fn blocks_element(element: ElementType, n: u32) -> Vec<u8> {
    let hash = n.wrapping_mul(2_654_435_761);
    let exponent = 17 * (n + 1).trailing_zeros().min(14);
    let turned = exponent << 24 | hash.leading_zeros() << 16 | 7 << 8 | hash >> 8 & 255;
    match element {
        ElementType::F32 => turned.rotate_right(1).to_le_bytes().to_vec(),
        _ => {
            let upper = u16::try_from(turned >> 16).unwrap();
            upper.rotate_right(1).to_le_bytes().to_vec()
        }
    }
}

/// Frames longer than a block, whose codes have up to 11 bits and gaps: of the encoder of the definition, and of this one.
#[test]
fn frames_of_several_blocks_are_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/golden-vectors/floatsplit-blocks.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut scratch = Scratch::new();
    let mut found = Vec::new();
    for entry in text.split("\n\n") {
        let line = |word: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(word));
            line.unwrap_or_else(|| panic!("no {word:?}"))
        };
        let element: ElementType = line("source ").parse().unwrap();
        let count: u32 = line("elements ").parse().unwrap();
        let expected: Vec<u8> = (0..count)
            .flat_map(|n| blocks_element(element, n))
            .collect();
        let chain = Chain::parse(line("chain "), element).unwrap();
        let mut packed = vec![0; expected.len()];
        let stored = bytes(line("stored "));
        chain.unblock(&stored, &mut scratch, &mut packed).unwrap();
        assert!(packed == expected, "{element} by {}", line("made-by "));
        found.push((element, count, line("made-by ")));
    }
    let (bf16, f32) = ((ElementType::Bf16, 33_333), (ElementType::F32, 17_001));
    let both = |(element, count)| ["definition", "transforms"].map(|by| (element, count, by));
    assert_eq!(found, [both(bf16), both(f32)].concat());
}
