//! Streams and views that round floating point: what is recorded of them, what is read, and that they are called lossy.

use std::fs;

use transforms::{Chain, ElementType, ViewChain};

use super::edit;
use super::golden::{digests, folder, hex};
use super::sample::Memory;
use crate::blocking::{Reader, open};
use crate::identity::sha256;
use crate::verify::verify;
use crate::write::{ExtentSpec, Options, StreamSpec, ViewSpec, Writer, Written};
use crate::{StreamIndex, ViewIndex};

use ElementType::{Bf16, F16, F32, F64};

/// f32 of every exponent and both signs, none a NaN; more than a batch.
fn numbers(count: u32) -> Vec<u32> {
    (0..count)
        .map(|n| n.wrapping_mul(2_654_435_761))
        .map(|bits| {
            bits & if bits >> 23 & 0xFF == 0xFF {
                !(1 << 23)
            } else {
                !0
            }
        })
        .collect()
}

fn bytes(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
}

/// To nearest, ties to even.
fn bf16(number: u32) -> u16 {
    let rounded = u64::from(number) + 0x7FFF + u64::from(number >> 16 & 1);
    (rounded >> 16) as u16
}

fn options(threads: usize) -> Options {
    Options {
        lba_bytes: 4096,
        threads,
        volume_uuid: Some(*b"volume of floats"),
        writer: "golden volumes, version 1".into(),
    }
}

fn add(writer: &mut Writer<&mut Memory>, chain: &str, of: ElementType, source: &[u8]) -> Written {
    let spec = StreamSpec {
        frame_bytes: 4096,
        ..StreamSpec::new(Chain::parse(chain, of).unwrap())
    };
    writer
        .add_stream(&spec, &mut &source[..], &mut |_| {})
        .unwrap()
}

fn lossy(name: &str) -> ViewSpec {
    ViewSpec {
        name: name.into(),
        manifest: Some(b"{}".to_vec()),
        lossy: true,
    }
}

fn linear(stream: &Written, of: ElementType, view: &str) -> ExtentSpec {
    ExtentSpec::Linear {
        stream: stream.stream,
        first_element: 0,
        elements: stream.elements,
        view: ViewChain::parse(view, of).unwrap(),
    }
}

fn presented(image: &[u8], view: u32) -> Vec<u8> {
    let store_bytes = image.len() as u64;
    let mut reader = Reader::open(image, store_bytes, 1 << 20).unwrap();
    let volume = reader.volume().with_view(ViewIndex(view)).unwrap();
    let mut presented = vec![0; volume.presented_bytes() as usize];
    reader.set_volume(volume);
    reader.read(0, &mut presented).unwrap();
    presented
}

#[test]
fn a_chain_that_rounds_records_what_is_read_back() {
    let numbers = numbers(300_000);
    let source = bytes(&numbers);
    let rounded: Vec<u16> = numbers.iter().map(|n| bf16(*n)).collect();
    let narrow: Vec<u8> = rounded.iter().flat_map(|n| n.to_le_bytes()).collect();
    let wide: Vec<u8> = rounded
        .iter()
        .flat_map(|n| (u32::from(*n) << 16).to_le_bytes())
        .collect();
    for chain in ["bf16", "bf16+shuffle+lz4"] {
        let mut images = Vec::new();
        for threads in [1, 3] {
            let mut memory = Memory::default();
            let mut writer = Writer::new(&mut memory, options(threads)).unwrap();
            let stream = add(&mut writer, chain, F32, &source);
            assert_eq!(stream.sha256, sha256(&source));
            assert_eq!(stream.elements_sha256, sha256(&wide));
            assert_eq!(stream.proven, None);
            for view in ["f32", "bf16"] {
                let extents = [linear(&stream, F32, view)];
                writer.add_view(lossy(view), extents).unwrap();
            }
            writer.finish().unwrap();
            images.push(memory.bytes);
        }
        assert!(images[0] == images[1], "{chain}");
        assert!(presented(&images[0], 0) == wide, "{chain}");
        assert!(presented(&images[0], 1) == narrow, "{chain}");
        let store_bytes = images[0].len() as u64;
        let volume = open(&images[0], store_bytes).unwrap();
        let stream = volume.stream(StreamIndex(0)).unwrap();
        assert_eq!(stream.digest, Some(sha256(&wide)), "{chain}");
        let report = verify(&images[0], store_bytes, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{chain}: {:?}", report.damage);
    }
}

#[test]
fn a_view_of_rounded_values_is_lossy_or_is_refused() {
    let source = bytes(&numbers(100));
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options(1)).unwrap();
    let plain = add(&mut writer, "none", F32, &source);
    let rounded = add(&mut writer, "bf16", F32, &source);
    for (name, stream, view) in [
        ("stored", &rounded, "none"),
        ("stored, as it is", &rounded, "bf16"),
        ("presented", &plain, "f16"),
    ] {
        let extents = [linear(&plain, F32, "none"), linear(stream, F32, view)];
        let refused = writer.add_view(name, extents).unwrap_err().to_string();
        let why = format!(
            "{name:?}: rounded values, from presented byte 400 on; such a view is lossy and has a manifest"
        );
        assert!(refused.contains(&why), "{refused}");
    }
    let wider = [linear(&plain, F32, "f64")];
    writer.add_view("wider", wider).unwrap();
    let all = [linear(&rounded, F32, "none")];
    writer.add_view(lossy("all"), all).unwrap();
    writer.finish().unwrap();
    let mut store = memory.bytes;

    // A writer that keeps quiet about it.
    let store_bytes = store.len() as u64;
    let volume = open(&store, store_bytes).unwrap();
    let views = volume.superblock().directory[4];
    edit::entry(&mut store, &views, 1, |entry| entry[72] = 0);
    let report = verify(&store, store_bytes, &mut |_| {}).unwrap();
    assert_eq!(report.damage_count, 1, "{:?}", report.damage);
    let damage = report.damage[0].to_string();
    let says = "rounded ones, expected only values that the source has, or a lossy view";
    assert!(damage.contains(says), "{damage}");
}

/// Bits without pattern, as anyone can compute them: `n * 2654435761`, for f64 `n * 0x9E3779B97F4A7C15`.
fn pattern(of: ElementType, count: u64) -> Vec<u8> {
    let factor = if of == F64 {
        0x9E37_79B9_7F4A_7C15
    } else {
        2_654_435_761
    };
    (0..count)
        .flat_map(|n: u64| n.wrapping_mul(factor).to_le_bytes()[..of.bytes()].to_vec())
        .collect()
}

/// Streams that round, and those that are left alone, in every type that they can be presented in.
const GOLDEN: [(&str, ElementType, u64, &[&str]); 7] = [
    ("bf16", F32, 3001, &["f32", "bf16", "f16", "f64"]),
    ("f16+shuffle+lz4", F32, 3001, &["f32", "f16", "bf16"]),
    ("f32", F64, 1501, &["f64", "f32", "f16", "bf16"]),
    ("bf16+lz4", F64, 1501, &["f64", "f16"]),
    ("none", F32, 3001, &["f32", "bf16", "f16", "f64"]),
    ("none", Bf16, 3001, &["bf16", "f32", "f64"]),
    ("none", F16, 3001, &["f16", "f32", "f64"]),
];

#[test]
#[ignore = "makes a file that is made once"]
fn make_the_golden_volume_of_floats() {
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options(1)).unwrap();
    for (chain, of, count, views) in GOLDEN {
        let stream = add(&mut writer, chain, of, &pattern(of, count));
        for view in views {
            let name = format!("{chain} of {of} as {view}");
            let is_lossy =
                chain != "none" || view.parse::<ElementType>().unwrap().bits() < of.bits();
            let spec = ViewSpec {
                manifest: is_lossy.then(|| b"{}".to_vec()),
                lossy: is_lossy,
                name,
            };
            let extents = [linear(&stream, of, view)];
            writer.add_view(spec, extents).unwrap();
        }
    }
    writer.finish().unwrap();
    fs::write(folder().join("floats.vol"), memory.bytes).unwrap();
}

/// numpy and ml_dtypes made the digests that are recorded (see README.md there); here the volume is what this writer makes of the pattern.
#[test]
fn the_golden_volume_of_floats_holds_every_conversion() {
    let path = folder().join("floats.vol");
    let reader = Reader::open_file(&path, 1 << 20).unwrap();
    let names: Vec<String> = (0..reader.volume().views().len() as u32)
        .map(|view| reader.volume().with_view(ViewIndex(view)).unwrap())
        .map(|volume| volume.name().to_owned())
        .collect();
    let mut recorded: Vec<String> = digests("VIEWS.sha256")
        .into_keys()
        .filter_map(|key| key.strip_prefix("floats.vol:").map(str::to_owned))
        .collect();
    let expected = GOLDEN.iter().flat_map(|(chain, of, _, views)| {
        views
            .iter()
            .map(move |view| format!("{chain} of {of} as {view}"))
    });
    let expected: Vec<String> = expected.collect();
    assert_eq!(names, expected);
    recorded.sort();
    let mut sorted = names;
    sorted.sort();
    assert_eq!(recorded, sorted);
    for (n, (chain, of, count, _)) in (0..).zip(GOLDEN) {
        let stream = reader.volume().stream(StreamIndex(n)).unwrap();
        let source = pattern(of, count);
        let mut read_back = vec![0; source.len()];
        let chain = Chain::parse(chain, of).unwrap();
        chain.read_back(&source, &mut read_back).unwrap();
        assert_eq!(
            stream.digest.map(|d| hex(&d)),
            Some(hex(&sha256(&read_back))),
            "{chain}"
        );
    }
}
