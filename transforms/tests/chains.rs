//! Chains end to end, and what they refuse.

#![allow(clippy::unwrap_used)] // a test: a panic is the report

use std::sync::Arc;

use transforms::{
    Chain, Decoder, ElementType, IdCounts, OutSegments, PackedWindow, Scratch, Step, TableKind,
    TransformError, TransformId, ValueRange, ViewChain,
};

/// Encodes, unblocks and expands `src`; returns what is presented.
fn round_trip(chain: &Chain, view: &ViewChain, src: &[u8]) -> Result<Vec<u8>, TransformError> {
    let mut scratch = Scratch::new();
    let elements = (src.len() / chain.source().bytes()) as u64;
    let mut stored = vec![0xAA; usize::try_from(chain.stored_bytes_max(elements)).unwrap()];
    let encoded = chain.encode_frame(src, &mut scratch, &mut stored)?;
    let stored = &stored[..encoded.stored_bytes];
    let mut packed = vec![0x55; usize::try_from(chain.packed_bytes(elements)).unwrap()];
    chain.unblock(stored, &mut scratch, &mut packed)?;
    let decoder = Decoder::new(chain, view, encoded.range)?;
    let presented = decoder.presented().bytes_of(elements);
    let mut out = vec![0; usize::try_from(presented).unwrap()];
    let window = PackedWindow {
        first_byte: 0,
        bytes: &packed,
    };
    decoder.expand(window, 0..presented, &mut OutSegments::from_slice(&mut out))?;
    Ok(out)
}

fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Of the last frame that was undone, and nothing of one that was stored without a step.
#[test]
fn the_time_of_each_block_step_is_known() {
    let compressible = u32s(&[7; 10_000]);
    let mut state = 1_u32;
    let random = u32s(&std::array::from_fn::<u32, 10_000, _>(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    }));
    let mut scratch = Scratch::new();
    for (text, src, compress, reorder) in [
        ("u16+shuffle+zstd:3", &compressible, true, true),
        ("zstd:3", &random, false, false),
        ("u16+lz4", &compressible, true, false),
        ("shuffle", &random, false, true),
        ("u16", &compressible, false, false),
    ] {
        let chain = Chain::parse(text, ElementType::U32).unwrap();
        let elements = src.len() as u64 / 4;
        let mut stored = vec![0; usize::try_from(chain.stored_bytes_max(elements)).unwrap()];
        let encoded = chain.encode_frame(src, &mut scratch, &mut stored).unwrap();
        let mut packed = vec![0; usize::try_from(chain.packed_bytes(elements)).unwrap()];
        let stored = &stored[..encoded.stored_bytes];
        chain.unblock(stored, &mut scratch, &mut packed).unwrap();
        let times = scratch.times();
        let took = (times.compress_ns > 0, times.reorder_ns > 0);
        assert_eq!(took, (compress, reorder), "{text}: {times:?}");
    }
}

#[test]
fn every_kind_of_chain_returns_the_source() {
    let values: Vec<u32> = (0..10_000).map(|i| (i * i) % 50_000).collect();
    let src = u32s(&values);
    for text in [
        "none",
        "u16",
        "i32",
        "u64",
        "bitpack:16",
        "bitpack:17",
        "u16+bitpack:16",
        "lz4",
        "shuffle",
        "u16+shuffle+lz4hc:9",
        "bitpack:24+shuffle+zstd:3",
        "u16+zstd:19",
    ] {
        let chain = Chain::parse(text, ElementType::U32).unwrap();
        assert_eq!(chain.to_string(), text);
        assert_eq!(
            Chain::from_steps(chain.steps(), ElementType::U32).unwrap(),
            chain
        );
        let back = round_trip(&chain, &ViewChain::identity(), &src).unwrap();
        assert_eq!(back, src, "{text}");
    }
}

#[test]
fn a_value_that_does_not_fit_is_named_with_its_place() {
    let mut values = vec![7u32; 5000];
    values[4321] = 65_536;
    let chain = Chain::parse("u16", ElementType::U32).unwrap();
    let error = round_trip(&chain, &ViewChain::identity(), &u32s(&values)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "element 4321 is 65536, which does not fit u16 (0..=65535); choose a wider type"
    );
}

#[test]
fn a_stored_value_outside_the_proven_range_is_named_with_its_place() {
    let chain = Chain::parse("u16", ElementType::U32).unwrap();
    let range = ValueRange { min: 0, max: 99 };
    let decoder = Decoder::new(&chain, &ViewChain::identity(), Some(range)).unwrap();
    let mut packed = [1u8, 0].repeat(6000);
    packed[2 * 5999] = 100;
    let mut out = vec![0; 24_000];
    let window = PackedWindow {
        first_byte: 0,
        bytes: &packed,
    };
    let error = decoder
        .expand(window, 0..24_000, &mut OutSegments::from_slice(&mut out))
        .unwrap_err();
    assert_eq!(
        error,
        TransformError::OutsideProven {
            index: 5999,
            value: 100,
            range
        }
    );
}

/// A result so large that it is written past the cache, to an odd address.
#[test]
fn a_result_larger_than_the_cache_is_as_right_and_as_checked() {
    let count = 12usize << 20;
    let mut src: Vec<u8> = (0..12u32 << 20)
        .flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 8).to_le_bytes())
        .collect();
    let chain = Chain::parse("bitpack:24", ElementType::U32).unwrap();
    let mut scratch = Scratch::new();
    let mut packed = vec![0; 1 + 3 * count];
    let encoded = chain
        .encode_frame(&src, &mut scratch, &mut packed[1..])
        .unwrap();
    assert_eq!(encoded.stored_bytes, 3 * count);
    for (element, field) in src.chunks_exact(4).zip(packed[1..].chunks_exact(3)) {
        assert_eq!(element[..3], *field);
    }

    let decoder = Decoder::new(&chain, &ViewChain::identity(), encoded.range).unwrap();
    let mut out = vec![0; 1 + 4 * count];
    let presented = 0..4 * count as u64;
    let window = PackedWindow {
        first_byte: 0,
        bytes: &packed[1..],
    };
    let mut segments = OutSegments::from_slice(&mut out[1..]);
    decoder
        .expand(window, presented.clone(), &mut segments)
        .unwrap();
    assert!(out[1..] == src, "presented something else");

    let bad = count - 3;
    src[4 * bad + 3] = 1;
    let error = chain
        .encode_frame(&src, &mut scratch, &mut packed[1..])
        .unwrap_err();
    assert!(
        matches!(error, TransformError::OutOfRange { index, .. } if index == bad as u64),
        "{error}"
    );
    let proven = ValueRange {
        min: 0,
        max: encoded.range.unwrap().max - 1,
    };
    let decoder = Decoder::new(&chain, &ViewChain::identity(), Some(proven)).unwrap();
    let first = packed[1..]
        .chunks_exact(3)
        .position(|f| i128::from(u32::from_le_bytes([f[0], f[1], f[2], 0])) > proven.max);
    let window = PackedWindow {
        first_byte: 0,
        bytes: &packed[1..],
    };
    let mut segments = OutSegments::from_slice(&mut out[1..]);
    let error = decoder
        .expand(window, presented, &mut segments)
        .unwrap_err();
    let place = first.unwrap() as u64;
    assert!(
        matches!(error, TransformError::OutsideProven { index, .. } if index == place),
        "{error}"
    );
}

#[test]
fn a_parameter_that_a_step_does_not_take_is_named_as_text_and_as_stored() {
    let stored = |id, parameter| {
        let step = Step {
            id: TransformId(id),
            version: 1,
            parameter,
        };
        Chain::from_steps(&[step], ElementType::U32)
    };
    let refused = |name, found: &str, expected| {
        Err(TransformError::Parameter {
            name,
            found: found.into(),
            expected,
        })
    };
    for (name, id, last, grammar) in [
        ("bitpack", 0x0002, 32, "bitpack:1..32"),
        ("lz4hc", 0x0102, 12, "lz4hc[:1..12]"),
        ("zstd", 0x0103, 22, "zstd:1..22"),
        ("zstd-dict", 0x0105, 22, "zstd-dict:1..22"),
    ] {
        for taken in [1, last] {
            let text = format!("{name}:{taken}");
            let chain = Chain::parse(&text, ElementType::U32).unwrap();
            assert_eq!(chain.to_string(), text);
            assert_eq!(stored(id, taken).unwrap(), chain);
        }
        for other in [0, last + 1, u32::MAX] {
            let parsed = Chain::parse(&format!("{name}:{other}"), ElementType::U32);
            let error = refused(name, &other.to_string(), grammar);
            assert_eq!(parsed, error, "{name}:{other}");
            assert_eq!(stored(id, other), error, "{name}:{other}");
        }
        let text = format!("{name}:1x");
        let parsed = Chain::parse(&text, ElementType::U32);
        assert_eq!(parsed, refused(name, &text, grammar));
    }
    for (name, id) in [("shuffle", 0x0100), ("lz4", 0x0101)] {
        assert_eq!(stored(id, 1), refused(name, "1", name));
        let text = format!("{name}:1");
        let unknown = Err(TransformError::Unknown { name: text.clone() });
        assert_eq!(Chain::parse(&text, ElementType::U32), unknown);
    }
}

fn ranked(text: &str, ids: &[u32]) -> Chain {
    let mut counts = IdCounts::new();
    counts.add(ElementType::U32, &u32s(ids)).unwrap();
    let chain = Chain::parse(text, ElementType::U32).unwrap();
    chain.with_table(Arc::new(counts.table().unwrap())).unwrap()
}

#[test]
fn a_chain_with_a_table_does_nothing_without_it() {
    let chain = Chain::parse("rank+lz4", ElementType::U32).unwrap();
    assert!(chain.needs_table() && chain.is_framed());
    let src = u32s(&[3; 100]);
    let error = round_trip(&chain, &ViewChain::identity(), &src).unwrap_err();
    assert_eq!(error.to_string(), "rank+lz4: its rank table is not here");
    let error = chain
        .unblock(&[1, 2], &mut Scratch::new(), &mut [0; 400])
        .unwrap_err();
    assert_eq!(error.to_string(), "rank+lz4: its rank table is not here");

    let one = ranked("rank+lz4", &[3, 7]);
    assert_ne!(one, chain);
    assert_ne!(one, ranked("rank+lz4", &[3, 8]));
    assert_eq!(one, ranked("rank+lz4", &[3, 7]));
    assert_eq!(round_trip(&one, &ViewChain::identity(), &src).unwrap(), src);
    let table = one.table(TableKind::Ranks).unwrap().clone();
    let other = Chain::parse("lz4", ElementType::U32).unwrap();
    let error = other.with_table(table).unwrap_err();
    assert_eq!(error.to_string(), "lz4: no step of it takes a table");
    let wide = ranked("rank", &[70_000]);
    let wide = wide.table(TableKind::Ranks).unwrap().clone();
    let narrow = Chain::parse("rank", ElementType::U16).unwrap();
    let error = narrow.with_table(wide).unwrap_err();
    assert_eq!(
        error.to_string(),
        "not a rank table: it has id 70000, which u16 does not hold"
    );
}

/// Sixteen bits of bitpack are no u16, and 32 no u32: what has no type has no ids.
#[test]
fn rank_is_refused_of_all_but_four_types_with_what_to_write() {
    for (text, source, why) in [
        ("bitpack:16+rank", ElementType::U32, "not behind bitpack"),
        ("bitpack:32+rank", ElementType::U32, "not behind bitpack"),
        ("rank", ElementType::U64, "write u32+rank"),
        ("rank", ElementType::I64, "write u32+rank"),
        ("rank", ElementType::U8, "it takes u16, i16, u32 and i32"),
        ("rank", ElementType::F32, "it takes u16, i16, u32 and i32"),
        ("lz4+rank", ElementType::U32, "it is the first block step"),
        ("rank+floatsplit", ElementType::U32, "rank"),
        (
            "shuffle+rank",
            ElementType::U32,
            "it is the first block step",
        ),
    ] {
        let error = Chain::parse(text, source).unwrap_err().to_string();
        assert!(error.contains(why), "{text} of {source}: {error}");
    }
    for source in [
        ElementType::U16,
        ElementType::I16,
        ElementType::U32,
        ElementType::I32,
    ] {
        Chain::parse("rank+zstd:9", source).unwrap();
    }
}

#[test]
fn a_value_that_the_table_has_not_is_named_with_its_place() {
    let mut values = vec![7u32; 5000];
    for text in ["rank", "rank+zstd:1"] {
        let chain = ranked(text, &[7, 9, 30]);
        for strange in [8, 31, u32::MAX] {
            values[4321] = strange;
            let error = round_trip(&chain, &ViewChain::identity(), &u32s(&values)).unwrap_err();
            let expected = TransformError::NotInTable {
                index: 4321,
                value: i128::from(strange),
            };
            assert_eq!(error, expected, "{text}");
        }
    }
}

/// What is stored of ranks is their code, byte by byte, and each thing that can be wrong with it is named.
#[test]
fn ranks_that_nobody_wrote_are_refused_by_name() {
    let ids: Vec<u32> = (0..600).collect();
    let chain = ranked("rank", &ids);
    let stoppers = chain.rank_table().unwrap().stoppers();
    assert_eq!(stoppers, 254, "with 255 some would take three bytes");
    let read = |stored: &[u8]| {
        let mut packed = [0; 8 * 4];
        let read = chain.unblock(stored, &mut Scratch::new(), &mut packed);
        read.map(|()| packed).map_err(|error| error.to_string())
    };
    let good = [0, 1, 253, 254, 0, 255, 0, 254, 1, 5, 6];
    assert_eq!(
        read(&good).unwrap().to_vec(),
        u32s(&[0, 1, 253, 254, 255, 256, 5, 6])
    );
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        read(&bytes).unwrap_err()
    };
    assert_eq!(
        with(8, 173),
        "rank: corrupt frame: element 5 has rank 600, the table has 600"
    );
    assert_eq!(
        with(9, 254),
        "rank: corrupt frame: it ends in element 7 of 8"
    );
    assert_eq!(
        with(7, 0),
        "rank: corrupt frame: 1 bytes behind the last element"
    );
    let endless = [&good[..3], &[254, 255, 254, 0, 1, 2, 3, 4]].concat();
    assert_eq!(
        read(&endless).unwrap_err(),
        "rank: corrupt frame: element 3 has more than 3 bytes"
    );
    assert_eq!(
        read(&good[..10]).unwrap_err(),
        "rank: corrupt frame: it ends in element 7 of 8"
    );
    let long = [0; 33];
    assert_eq!(
        read(&long).unwrap_err(),
        "rank: corrupt frame: 33 bytes where 32 belong"
    );
}
