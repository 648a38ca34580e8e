//! Every transform through the conformance suite: alone, with its smallest and largest parameter, and in company.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

use std::sync::Arc;
use transforms::conformance::check_chain;

use transforms::{Chain, DictionaryTrainer, ElementType, IdCounts, Scales, TransformId};

fn check(source: ElementType, texts: &[&str]) {
    for text in texts {
        check_chain(&Chain::parse(text, source).unwrap());
    }
}

#[test]
fn identity_of_every_type() {
    for source in ElementType::ALL {
        check(source, &["none"]);
    }
}

#[test]
fn integer_from_every_type_to_every_type() {
    for source in ElementType::INTEGERS {
        for target in ElementType::INTEGERS {
            check(source, &[target.name()]);
        }
    }
    check(ElementType::I64, &["i32+u16+u64", "u8+i8"]);
}

#[test]
fn bitpack_of_every_width() {
    for bits in 1..=32 {
        check(ElementType::U32, &[&format!("bitpack:{bits}")]);
    }
}

#[test]
fn bitpack_from_every_type() {
    for source in ElementType::INTEGERS {
        for bits in [1, 5, 8, 13, 17, 31, 32] {
            check(source, &[&format!("bitpack:{bits}")]);
        }
    }
    check(ElementType::I64, &["i16+bitpack:10"]);
}

#[test]
fn float_from_every_type_to_every_narrower_type() {
    use ElementType::{Bf16, F16, F32, F64};
    check(F32, &["bf16", "f16", "f32", "bf16+shuffle", "f16+lz4"]);
    check(F64, &["f32", "bf16", "f16", "f64", "f32+shuffle+zstd:3"]);
    check(Bf16, &["bf16"]);
    check(F16, &["f16", "f16+lz4"]);
    for (text, source) in [
        ("f32", F16),
        ("f64", F32),
        ("f16", Bf16),
        ("bf16", F16),
        ("f32+bf16", F64),
        ("bf16+bf16", F32),
        ("bf16+bitpack:16", F32),
        ("f32", ElementType::U32),
        ("bitpack:16+f32", ElementType::U32),
        ("lz4+bf16", F32),
    ] {
        assert!(Chain::parse(text, source).is_err(), "{text} of {source}");
    }
}

#[test]
fn shuffle_of_every_width() {
    for source in ElementType::ALL {
        if source.bytes() > 1 {
            check(source, &["shuffle"]);
        }
    }
    check(ElementType::U32, &["bitpack:24+shuffle", "u16+shuffle"]);
}

/// A table with so many ids, the last of them the largest that the type and the format hold.
fn check_rank(source: ElementType, ids: u32, texts: &[&str]) {
    let end = source
        .range()
        .unwrap()
        .max
        .min(i128::from(transforms::IDS_END) - 1);
    let last = u32::try_from(end).unwrap();
    let mut counts = IdCounts::new();
    for id in (0..ids - 1).map(|n| n * 3).chain([last]) {
        counts
            .add(source, &u64::from(id).to_le_bytes()[..source.bytes()])
            .unwrap();
    }
    let table = Arc::new(counts.table().unwrap());
    for text in texts {
        let chain = Chain::parse(text, source).unwrap();
        check_chain(&chain.with_table(table.clone()).unwrap());
    }
}

#[test]
fn rank() {
    use ElementType::{I16, I32, U16, U32, U64};
    check_rank(
        U32,
        50_000,
        &["rank", "rank+lz4", "rank+lz4hc:9", "rank+zstd:1"],
    );
    check_rank(U32, 2, &["rank+zstd:3"]);
    check_rank(U16, 300, &["rank", "rank+zstd:3"]);
    check_rank(I16, 9_000, &["rank+lz4"]);
    check_rank(I32, 130, &["rank"]);
    check_rank(U64, 20_000, &["u32+rank+zstd:1"]);
    for (text, source) in [
        ("rank", ElementType::U8),
        ("rank", U64),
        ("rank", ElementType::F32),
        ("bitpack:17+rank", U32),
        ("rank+rank", U32),
        ("rank+shuffle", U32),
        ("shuffle+rank", U32),
        ("lz4+rank", U32),
        ("rank+u16", U32),
    ] {
        assert!(Chain::parse(text, source).is_err(), "{text} of {source}");
    }
}

#[test]
fn lz4() {
    check(ElementType::U32, &["lz4", "u16+lz4", "bitpack:17+lz4"]);
    check(ElementType::F32, &["shuffle+lz4"]);
    check(ElementType::U8, &["lz4"]);
}

#[test]
fn lz4hc() {
    check(ElementType::U32, &["u16+lz4hc", "u16+shuffle+lz4hc:12"]);
    check(ElementType::I64, &["lz4hc:1"]);
}

#[test]
fn zstd() {
    check(ElementType::U32, &["u16+zstd:1", "bitpack:18+zstd:3"]);
    check(ElementType::Bf16, &["shuffle+zstd:3"]);
    check(ElementType::U8, &["zstd:9"]);
    check(ElementType::U64, &["u32+shuffle+zstd:22"]);
}

/// A chain with its tables, of ids that are not few and not spread evenly: below 3,000.
fn check_dictionary(source: ElementType, texts: &[&str]) {
    let id = |n: u32| u64::from(n.wrapping_mul(2_654_435_761) >> (20 + n % 7) & 0xFFF) % 3_000;
    let frame = |first: u32| -> Vec<u8> {
        let elements = (first..first + 500).map(|n| match source {
            // Finite, and not so large that a scale would be.
            ElementType::F32 => u64::from((id(n) as f32).to_bits()),
            _ => id(n / 3),
        });
        elements
            .flat_map(|it| it.to_le_bytes()[..source.bytes()].to_vec())
            .collect()
    };
    let frames: Vec<Vec<u8>> = (0..200).map(|n| frame(n * 500)).collect();
    for text in texts {
        let mut chain = Chain::parse(text, source).unwrap();
        if text.contains("rank") {
            let mut counts = IdCounts::new();
            // The suite has every value that the type holds.
            let all = (0..=0xFFFFu32).flat_map(|id| id.to_le_bytes()[..source.bytes()].to_vec());
            counts.add(source, &all.collect::<Vec<_>>()).unwrap();
            chain = chain.with_table(Arc::new(counts.table().unwrap())).unwrap();
        }
        let mut trainer = DictionaryTrainer::new(&chain).unwrap();
        for frame in &frames {
            assert!(trainer.add_frame(frame).unwrap());
        }
        let dictionary = trainer.train(0).unwrap();
        check_chain(&chain.with_table(Arc::new(dictionary)).unwrap());
    }
}

#[test]
fn zstd_dict() {
    use ElementType::{F32, I16, U8, U16, U32};
    check_dictionary(U32, &["zstd-dict:3", "u16+zstd-dict:9"]);
    check_dictionary(U16, &["rank+zstd-dict:9", "shuffle+zstd-dict:1"]);
    check_dictionary(I16, &["bitpack:12+zstd-dict:3"]);
    check_dictionary(F32, &["bf16+shuffle+zstd-dict:3", "q8_0+zstd-dict:19"]);
    for (text, source) in [
        ("zstd-dict", U32),
        ("zstd-dict:0", U32),
        ("zstd-dict:23", U32),
        ("zstd-dict:3+zstd:3", U32),
        ("zstd:3+zstd-dict:3", U32),
        ("lz4+zstd-dict:3", U32),
        ("zstd-dict:3+rank", U32),
        ("zstd-dict:3+u16", U32),
        ("floatsplit+zstd-dict:3", F32),
        ("zstd-dict:3+zstd-dict:3", U8),
    ] {
        assert!(Chain::parse(text, source).is_err(), "{text} of {source}");
    }
}

#[test]
fn q8_0_of_every_type() {
    for source in [ElementType::F32, ElementType::Bf16, ElementType::F16] {
        check(source, &["q8_0", "q8_0+lz4", "q8_0+zstd:3"]);
    }
    for (text, source) in [
        ("q8_0", ElementType::F64),
        ("q8_0", ElementType::U32),
        ("bf16+q8_0", ElementType::F32),
        ("q8_0+bf16", ElementType::F32),
        ("q8_0+q8_0", ElementType::F32),
        ("q8_0+u8", ElementType::F32),
        ("q8_0+bitpack:8", ElementType::F32),
        ("q8_0+shuffle+lz4", ElementType::F32),
        ("q8_0+floatsplit", ElementType::F32),
        ("q8_0+rank", ElementType::F32),
        ("q8_0:1", ElementType::F32),
    ] {
        assert!(Chain::parse(text, source).is_err(), "{text} of {source}");
    }
    for source in [ElementType::F64, ElementType::U32, ElementType::I8] {
        let refused = transforms::ViewChain::parse("q8_0", source).unwrap_err();
        let why = format!("q8_0 cannot take {source}: it takes f32, bf16 and f16");
        assert_eq!(refused.to_string(), why);
    }
}

/// Rows whose scales are of every size, zero among them; not so large that a block of `q8_0` would have none.
fn check_int8(source: ElementType, row_elements: usize, block_steps: &[&str]) {
    let scale = |row: usize| match row % 7 {
        0 => 1.0 / 127.0,
        1 => 0.0,
        2 => 3.0e-37,
        3 => 1.0,
        4 => 0.1,
        5 => 7.0e-4,
        _ => 400.0,
    };
    let rows = 10_000usize.div_ceil(row_elements);
    let scales: Vec<u8> = (0..rows)
        .flat_map(|row| f32::to_le_bytes(scale(row)))
        .collect();
    let scales = Arc::new(Scales::parse(&scales).unwrap());
    for block_steps in block_steps {
        let text = format!("int8:{row_elements}{block_steps}");
        let chain = Chain::parse(&text, source).unwrap();
        check_chain(&chain.with_table(scales.clone()).unwrap());
    }
}

#[test]
fn int8_of_every_type() {
    for source in [ElementType::F32, ElementType::Bf16, ElementType::F16] {
        check_int8(source, 7, &["", "+lz4", "+zstd:3"]);
        check_int8(source, 384, &[""]);
    }
    check_int8(ElementType::F32, 1, &[""]);
    check_int8(ElementType::Bf16, 20_000, &[""]);
    for (text, source) in [
        ("int8", ElementType::F32),
        ("int8:0", ElementType::F32),
        ("int8:4294967296", ElementType::F32),
        ("int8:8", ElementType::F64),
        ("int8:8", ElementType::U8),
        ("bf16+int8:8", ElementType::F32),
        ("int8:8+bf16", ElementType::F32),
        ("int8:8+q8_0", ElementType::F32),
        ("int8:8+int8:8", ElementType::F32),
        ("int8:8+bitpack:8", ElementType::F32),
        ("int8:8+shuffle+lz4", ElementType::F32),
        ("int8:8+floatsplit", ElementType::F32),
        ("int8:8+rank", ElementType::F32),
    ] {
        assert!(Chain::parse(text, source).is_err(), "{text} of {source}");
    }
    let refused = transforms::ViewChain::parse("int8:8", ElementType::F32).unwrap_err();
    assert!(refused.to_string().contains("for storing"), "{refused}");
}

#[test]
fn floatsplit_of_every_type() {
    for source in ElementType::FLOATS {
        check(source, &["floatsplit"]);
    }
    check(ElementType::F32, &["bf16+floatsplit"]);
    check(ElementType::F64, &["f32+floatsplit", "f16+floatsplit"]);
    for (text, source) in [
        ("floatsplit", ElementType::U32),
        ("bitpack:16+floatsplit", ElementType::U32),
        ("shuffle+floatsplit", ElementType::F32),
        ("floatsplit+shuffle", ElementType::F32),
        ("floatsplit+zstd:3", ElementType::Bf16),
        ("floatsplit:3", ElementType::Bf16),
    ] {
        assert!(Chain::parse(text, source).is_err(), "{text} of {source}");
    }
}

#[test]
fn nothing_is_registered_that_is_not_tested_here() {
    let tested = [
        transforms::codecs::integer::ID,
        transforms::codecs::bitpack::ID,
        transforms::codecs::float::ID,
        transforms::codecs::q8_0::ID,
        transforms::codecs::int8::ID,
        transforms::codecs::rank::ID,
        transforms::codecs::shuffle::ID,
        transforms::codecs::lz4::ID,
        transforms::codecs::lz4::HC_ID,
        transforms::codecs::zstd::ID,
        transforms::codecs::zstd_dict::ID,
        transforms::codecs::floatsplit::ID,
    ];
    let registered: Vec<TransformId> = transforms::descriptors().map(|d| d.id).collect();
    assert_eq!(registered, tested);
}
