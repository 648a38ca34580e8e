//! Files that lie: every byte changed, every length cut, and noise. Nothing panics, and what is described lies inside the file.

#![allow(clippy::unwrap_used)] // tests

mod common;

use std::path::{Path, PathBuf};

use common::presented;
use formats::megatron::Index;
use formats::rules::Rules;
use formats::{Dtype, FormatError, describe, mds};
use proptest::prelude::*;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

fn fixtures() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/formats");
    let mut found = Vec::new();
    for format in [
        "safetensors",
        "npy",
        "megatron",
        "llmc",
        "gguf",
        "mds",
        "model",
        "other",
    ] {
        files(&folder.join(format), &mut found);
    }
    assert!(found.len() > 50);
    let read = found.iter().map(|path| std::fs::read(path).unwrap());
    // Long files show nothing more here, and take long.
    read.map(|mut bytes| {
        bytes.truncate(if bytes.len() > 2500 { 0 } else { bytes.len() });
        bytes
    })
    .filter(|bytes| !bytes.is_empty())
    .collect()
}

/// Describes and presents; whatever comes of it is consistent.
fn look_at(bytes: &[u8]) {
    let _ = mds::Index::read(&bytes).map(|index| index.present(&vec![None; index.shards().len()]));
    if let Ok(index) = Index::read(&bytes, 1292) {
        let view = index.present(&bytes, Dtype::U16).unwrap();
        presented(bytes, &view);
    }
    let Ok(description) = describe(&bytes) else {
        return;
    };
    assert_eq!(description.file_bytes, bytes.len() as u64);
    let mut position = 0;
    for payload in &description.payloads {
        assert!(position <= payload.offset, "{payload:?} overlaps");
        position = payload.range().end;
        assert_eq!(position, payload.offset + payload.bytes);
    }
    assert!(position <= bytes.len() as u64, "{description:?}");
    for rules in ["*@2+=f16,f64=f32", "u16"] {
        let rules: Rules = rules.parse().unwrap();
        match description.present(&bytes, &|p| rules.target(p), 64) {
            Ok(view) => {
                let total: u64 = view.parts().iter().map(formats::Part::bytes).sum();
                assert_eq!(total, view.bytes());
            }
            Err(error) => assert!(
                matches!(
                    error,
                    FormatError::Refused { .. } | FormatError::Limit { .. }
                ),
                "{error}"
            ),
        }
    }
}

#[test]
fn every_byte_changed_and_every_length_cut() {
    for file in fixtures() {
        let mut changed = file.clone();
        for place in 0..file.len() {
            for value in [file[place] ^ 1, file[place] ^ 0x80, 0, 0xFF] {
                changed[place] = value;
                look_at(&changed);
            }
            changed[place] = file[place];
            look_at(&file[..place]);
        }
    }
}

proptest! {
    #[test]
    fn noise_behind_a_magic_number(
        magic in prop::sample::select(vec![
            &b"GGUF\x03\0\0\0"[..], b"\x93NUMPY\x01\0", b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x04", b"PK\x03\x04",
            b"\x10\0\0\0\0\0\0\0{\"a\":", b"\x01\0\0\0\x10\0\0\0\x40\0\0\0{", b"{\"shards\":[", b"",
        ]),
        noise in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => Just(1u8), 4 => any::<u8>()], 0..300),
    ) {
        look_at(&[magic, &noise].concat());
    }

    #[test]
    fn fixtures_with_pieces_moved(
        which in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        piece in 1usize..40,
    ) {
        let fixtures = fixtures();
        let mut file = fixtures[which.index(fixtures.len())].clone();
        let (from, to) = (from.index(file.len()), to.index(file.len()));
        let moved: Vec<u8> = file.iter().copied().skip(from).take(piece).collect();
        file.splice(to..to, moved);
        look_at(&file);
    }
}

#[test]
fn lengths_that_lie_take_no_memory() {
    let gguf = |tensors: u64, pairs: u64, rest: &[u8]| {
        [
            b"GGUF\x03\0\0\0",
            &tensors.to_le_bytes()[..],
            &pairs.to_le_bytes(),
            rest,
        ]
        .concat()
    };
    let malformed = |bytes: &[u8], place: u64| {
        let error = describe(&bytes).unwrap_err();
        assert!(
            matches!(error, FormatError::Malformed { offset, .. } if offset == place),
            "{error}"
        );
    };
    malformed(&gguf(1, u64::MAX, &[]), 24);
    malformed(&gguf(0, 1, &u64::MAX.to_le_bytes()), 32);
    let error = describe(&gguf(u64::MAX, 0, &[]).as_slice()).unwrap_err();
    assert!(matches!(
        error,
        FormatError::Limit {
            what: "tensors",
            ..
        }
    ));
    // An array of 2^61 numbers of 8 bytes: the product is 2^64.
    let key = [
        &1u64.to_le_bytes()[..],
        b"k",
        &9u32.to_le_bytes(),
        &10u32.to_le_bytes(),
    ]
    .concat();
    malformed(
        &gguf(0, 1, &[&key[..], &(1u64 << 61).to_le_bytes()].concat()),
        49,
    );
    // A header of 100 MB in a file of 20 bytes: one that was cut off where a name begins it, otherwise no safetensors at all.
    let short = [&100_000_000u64.to_le_bytes()[..], b"{\"a\":1}     "].concat();
    malformed(&short, 8);
    let short = [&100_000_000u64.to_le_bytes()[..], b"{ \"a\":1}    "].concat();
    assert_eq!(
        describe(&short.as_slice()).unwrap().format,
        formats::Format::Unknown
    );
    let twice = b"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
    malformed(
        &[&(twice.len() as u64).to_le_bytes()[..], twice].concat(),
        8,
    );
    let idx = [
        &b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08"[..],
        &u64::MAX.to_le_bytes(),
        &0u64.to_le_bytes(),
    ]
    .concat();
    malformed(&idx, 18);
}

#[test]
fn an_index_is_checked_against_its_bin() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/formats/megatron");
    let idx = std::fs::read(folder.join("text-i32.idx")).unwrap();
    let place = |bytes: &[u8], bin_bytes| match Index::read(&bytes, bin_bytes) {
        Err(FormatError::Malformed { offset, why, .. }) => (offset, why),
        other => panic!("{other:?}"),
    };
    let sequences = usize::try_from(Index::read(&idx.as_slice(), 1292).unwrap().sequences).unwrap();
    let pointers = 34 + 4 * sequences;
    let last = pointers + 8 * (sequences - 1);
    assert_eq!(place(&idx, 1288).0, last as u64);
    assert_eq!(
        place(&idx, 1291),
        (
            17,
            "the .bin has 1291 bytes, no whole number of i32".to_owned()
        )
    );
    let mut unaligned = idx.clone();
    unaligned[pointers + 8] += 1;
    assert_eq!(place(&unaligned, 1292).0, pointers as u64 + 8);
    let mut negative = idx.clone();
    negative[37] = 0x80;
    assert_eq!(place(&negative, u64::MAX - 3).0, pointers as u64);
    let mut document = idx.clone();
    let documents = pointers + 8 * sequences;
    document[documents] = 0xFF;
    assert_eq!(place(&document, 1292).0, documents as u64);
}

#[test]
fn safetensors_has_no_holes_and_no_overlaps() {
    let file = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 7);
        bytes
    };
    let one = |name: &str, begin: u64, end: u64| {
        format!(
            "\"{name}\":{{\"dtype\":\"U8\",\"shape\":[{}],\"data_offsets\":[{begin},{end}]}}",
            end.saturating_sub(begin)
        )
    };
    let header = |tensors: &[String]| format!("{{{}}}", tensors.join(","));
    let good = header(&[one("b", 2, 5), one("a", 0, 2)]);
    let names = |bytes: Vec<u8>| -> Vec<String> {
        let described = describe(&bytes.as_slice()).unwrap();
        described.payloads.into_iter().map(|p| p.name).collect()
    };
    assert_eq!(names(file(&good, 5)), ["a", "b"]);
    for (header, data, place) in [
        (&good, 6, 5),
        (&good, 4, 5),
        (&header(&[one("a", 0, 2), one("b", 3, 5)]), 5, 2),
        (&header(&[one("a", 0, 3), one("b", 2, 5)]), 5, 3),
        (&header(&[one("a", 1, 2)]), 2, 0),
    ] {
        let bytes = file(header, data);
        let error = describe(&bytes.as_slice()).unwrap_err();
        let expected = 8 + header.len() as u64 + place;
        assert!(
            matches!(error, FormatError::Malformed { offset, .. } if offset == expected),
            "{header} and {data} bytes: {error}"
        );
    }
    let shape =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}";
    let error = describe(&file(shape, 0).as_slice()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("[4294967296, 4294967296] is not bytes 0 to 0")
    );
}

#[test]
fn an_mds_sample_ends_where_its_columns_end() {
    let config = r#"{"column_encodings": ["str", "ndarray:uint8"], "column_names": ["s", "a"], "column_sizes": [null, null], "format": "mds"}"#;
    let shard = |lengths: [u32; 2], body: &[u8]| {
        let first = u32::try_from(12 + config.len()).unwrap();
        let end = first + 8 + u32::try_from(body.len()).unwrap();
        let mut bytes = Vec::new();
        for number in [1, first, end] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(config.as_bytes());
        lengths
            .iter()
            .for_each(|length| bytes.extend(length.to_le_bytes()));
        bytes.extend(body);
        bytes
    };
    let body = b"hi\x04\x03abc";
    let good = shard([2, 5], body);
    let described = describe(&good.as_slice()).unwrap();
    assert_eq!(described.payloads[0].shape, [3]);
    assert_eq!(
        described.payloads[0].range(),
        good.len() as u64 - 3..good.len() as u64
    );
    let sample = (good.len() - body.len()) as u64;
    for (lengths, place, what) in [
        ([2, 6], sample + 2, "column \"a\" ends behind its sample"),
        ([u32::MAX, 5], sample, "column \"s\" ends behind its sample"),
        ([2, 4], sample + 2, "4 bytes that are no array"),
    ] {
        let error = describe(&shard(lengths, body).as_slice()).unwrap_err();
        assert!(
            matches!(&error, FormatError::Malformed { offset, why, .. } if *offset == place && why.contains(what)),
            "{lengths:?}: {error}"
        );
    }
}
