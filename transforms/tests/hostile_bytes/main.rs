//! The bodies of fuzz targets, on bytes that are drawn: fewer of them, at every change.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics has failed"
)]

mod bodies;

use std::sync::LazyLock;

use proptest::prelude::*;

/// Bytes, and ones that begin as `right` does: deeper than the first check.
fn like(right: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let noise = prop::collection::vec(any::<u8>(), 0..600);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let edited = edits.prop_map(|edits| {
        let mut bytes = right.to_vec();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    });
    prop_oneof![noise, edited]
}

/// Three ids.
const TABLE: &[u8] = &[3, 0, 0, 0, 200, 1, 0, 0, 7, 9, 8];
/// 300 packed ids: the blob of docs/format.md (*Rank tables*).
const PACKED_TABLE: &[u8] = &[
    44, 1, 0, 0, 254, 0, 0, 0, 0x28, 0xB5, 0x2F, 0xFD, 0x60, 44, 0, 8, 0, 0, 0, 0x5B, 9, 0, 1,
];
/// bf16: the frame of docs/format.md (*Floatsplit*).
const SPLIT: &[u8] = &[
    1, 16, 0, 16, 0, 0, 3, 0, 0, 0x7E, 0x80, 0x12, 2, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0xD0,
    0x80, 0, 0x30, 0x40,
];
/// A frame of 1,200 bytes by the dictionary that is beside it, or that is before it: the first of fixtures/golden-vectors/zstd-dict.txt.
static BY_RIGHT_DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| by_dictionary(&[]));
static BY_DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| by_dictionary(bodies::DICTIONARY));

fn by_dictionary(dictionary: &[u8]) -> Vec<u8> {
    let vectors = include_str!("../../../fixtures/golden-vectors/zstd-dict.txt");
    let stored = vectors
        .lines()
        .find_map(|line| line.strip_prefix("stored "));
    let digits = stored.unwrap().as_bytes().chunks(2);
    let frame = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16));
    let length = u16::try_from(dictionary.len()).unwrap();
    let mut bytes = [1200u16.to_le_bytes(), length.to_le_bytes()].concat();
    bytes.extend(dictionary);
    bytes.extend(frame.map(Result::unwrap));
    bytes
}

/// Five ids of u16.
const RANKS: &[u8] = &[0, 5, 5, 253, 254, 0, 255, 1, 254, 90];

/// Two rows of three elements of f32, with the scales 1 and 0.5, from element 1 on.
const ROWS: &[u8] = &[
    0, 0, 3, 2, 1, 0, 0, 0x80, 0x3F, 0, 0, 0, 0x3F, 1, 0xFF, 127, 0x80, 5,
];

proptest! {
    #[test]
    fn rows_are_refused_or_the_same_by_every_kernel(data in like(ROWS)) {
        bodies::rows(&data);
    }

    #[test]
    fn dictionaries_are_refused_or_read_and_written_by(data in like(&BY_DICTIONARY)) {
        bodies::dictionary(&data);
    }

    #[test]
    fn frames_by_a_right_dictionary_are_refused_or_read(data in like(&BY_RIGHT_DICTIONARY)) {
        bodies::dictionary(&data);
    }

    #[test]
    fn rank_tables_are_refused_or_right(data in prop_oneof![like(TABLE), like(PACKED_TABLE)]) {
        bodies::rank_table(&data);
    }

    #[test]
    fn split_frames_are_refused_or_the_same_by_every_kernel(data in like(SPLIT)) {
        bodies::split_frame(&data);
    }

    #[test]
    fn ranks_are_refused_or_the_same_by_every_kernel(data in like(RANKS)) {
        bodies::ranks(&data);
    }
}

/// What the properties begin with is right, so that an edit of it goes deep.
#[test]
fn the_beginnings_are_right() {
    use std::sync::Arc;
    use transforms::{Chain, Dictionary, ElementType, RankTable, Scratch};
    RankTable::parse(TABLE).unwrap();
    RankTable::parse(PACKED_TABLE).unwrap();
    for begun in [&*BY_DICTIONARY, &*BY_RIGHT_DICTIONARY] {
        let dictionary = Arc::new(Dictionary::parse(bodies::DICTIONARY).unwrap());
        let chain = Chain::parse("zstd-dict:3", ElementType::U8).unwrap();
        let chain = chain.with_table(dictionary).unwrap();
        let length = usize::from(u16::from_le_bytes([begun[2], begun[3]]));
        let mut packed = [0; 1200];
        chain
            .unblock(&begun[4 + length..], &mut Scratch::new(), &mut packed)
            .unwrap();
    }
    let chain = Chain::parse("floatsplit", ElementType::Bf16).unwrap();
    chain
        .unblock(&SPLIT[3..], &mut Scratch::new(), &mut [0; 32])
        .unwrap();
}
