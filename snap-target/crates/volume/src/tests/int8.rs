//! Streams of `int8`: what is recorded of them, every range of them, scales that nobody wrote, and their golden volume.

use std::fs;
use std::sync::Arc;

use transforms::{Chain, ElementType, RowMaxima, Scratch, ViewChain};

use super::edit;
use super::golden::{digests, folder, hex};
use super::sample::Memory;
use crate::blocking::{Reader, open};
use crate::checksum::crc32c;
use crate::format::{BlobKind, ChainIndex};
use crate::identity::sha256;
use crate::verify::verify;
use crate::write::{ExtentSpec, Options, StreamSpec, ViewSpec, Writer, Written};
use crate::{StreamIndex, ViewIndex};

use ElementType::{Bf16, F16, F32};

/// Elements of a row of the golden volume.
const ROW: u32 = 384;

/// The first numbers of fixtures/golden-vectors/int8.py, in rows of every size.
fn numbers(rows: u32) -> Vec<u8> {
    let number = |index: u32| {
        let noise = index.wrapping_mul(2_654_435_761);
        let exponent = 15 + index / ROW % 134 - (noise >> 4) % 8;
        noise & 0x807F_FFFF | exponent << 23
    };
    (0..ROW * rows)
        .flat_map(|n| number(n).to_le_bytes())
        .collect()
}

/// With the scales of these elements.
fn scaled(chain: &str, source: &[u8], of: ElementType) -> StreamSpec {
    let chain = Chain::parse(chain, of).unwrap();
    let mut maxima = RowMaxima::new(&chain).unwrap();
    maxima.add(source).unwrap();
    let chain = chain
        .with_table(Arc::new(maxima.scales().unwrap()))
        .unwrap();
    StreamSpec {
        frame_bytes: 4096,
        ..StreamSpec::new(chain)
    }
}

fn options(threads: usize) -> Options {
    Options {
        lba_bytes: 4096,
        threads,
        volume_uuid: Some(*b"volume of int8\x01\x01"),
        writer: "golden volumes, version 1".into(),
    }
}

fn view(
    name: impl Into<String>,
    stream: &Written,
    of: ElementType,
    view: &str,
) -> (ViewSpec, [ExtentSpec; 1]) {
    let spec = ViewSpec {
        name: name.into(),
        manifest: Some(b"{}".to_vec()),
        lossy: true,
    };
    let extent = ExtentSpec::Linear {
        stream: stream.stream,
        first_element: 0,
        elements: stream.elements,
        view: ViewChain::parse(view, of).unwrap(),
    };
    (spec, [extent])
}

fn written(spec: &StreamSpec, threads: usize, source: &[u8]) -> (Vec<u8>, Written) {
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options(threads)).unwrap();
    let stream = writer
        .add_stream(spec, &mut &source[..], &mut |_| {})
        .unwrap();
    for presented in ["f32", "bf16", "q8_0"] {
        let (view, extents) = view(presented, &stream, F32, presented);
        writer.add_view(view, extents).unwrap();
    }
    // From inside a row on.
    let (mut part, _) = view("part", &stream, F32, "f32");
    part.name = "part".into();
    let extent = ExtentSpec::Linear {
        stream: stream.stream,
        first_element: 500,
        elements: 900,
        view: ViewChain::identity(),
    };
    writer.add_view(part, [extent]).unwrap();
    writer.finish().unwrap();
    (memory.bytes, stream)
}

fn narrowed(chain: &str, source: &[u8]) -> Vec<u8> {
    let chain = Chain::parse(chain, F32).unwrap();
    let bytes = chain.packed_bytes(source.len() as u64 / 4);
    let mut narrowed = vec![0; usize::try_from(bytes).unwrap()];
    chain
        .encode_frame(source, &mut Scratch::new(), &mut narrowed)
        .unwrap();
    narrowed
}

#[test]
fn what_is_read_back_is_recorded_and_read_in_every_range() {
    // Blocks of q8_0 of all of them have scales: none is infinite.
    let source: Vec<u8> = (numbers(800).as_chunks().0.iter())
        .flat_map(|it| f32::from_le_bytes(*it).clamp(-8e6, 8e6).to_le_bytes())
        .collect();
    for (chain, is_framed) in [
        ("int8:384", false),
        ("int8:384+zstd:1", true),
        ("int8:768", false),
    ] {
        let spec = scaled(chain, &source, F32);
        let (image, stream) = written(&spec, 1, &source);
        assert!(image == written(&spec, 3, &source).0, "{chain}");
        let mut expected = vec![0; source.len()];
        spec.chain.read_back(&source, &mut expected).unwrap();
        assert_ne!(expected, source);
        assert_eq!(stream.elements_sha256, sha256(&expected));
        assert!(
            is_framed || stream.stored_bytes == stream.elements,
            "{chain}"
        );

        let store_bytes = image.len() as u64;
        let report = verify(&image, store_bytes, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{chain}: {:?}", report.damage);
        let mut reader = Reader::open(&image, store_bytes, 1 << 20).unwrap();
        // Around elements, rows, granules and frames, and over many of each.
        for start in [
            0, 1, 4095, 1531, 1535, 1536, 16_383, 16_384, 524_287, 1_000_001,
        ] {
            for len in [1, 3, 4, 128, 1535, 1536, 4096, 70_001] {
                let mut part = vec![0; len];
                reader.read(start as u64, &mut part).unwrap();
                assert!(
                    part == expected[start..start + len],
                    "{chain}: {len} from {start}"
                );
            }
        }
        let all_of = |reader: &mut Reader<_>, view: u32, bytes: usize| {
            let volume = reader.volume().with_view(ViewIndex(view)).unwrap();
            reader.set_volume(volume);
            let mut all = vec![0; bytes];
            reader.read(0, &mut all).unwrap();
            all
        };
        assert!(
            all_of(&mut reader, 0, expected.len()) == expected,
            "{chain}"
        );
        for (view, target) in [(1, "bf16"), (2, "q8_0")] {
            let wanted = narrowed(target, &expected);
            assert!(
                all_of(&mut reader, view, wanted.len()) == wanted,
                "{chain} as {target}"
            );
        }
        let part = all_of(&mut reader, 3, 3600);
        assert!(part == expected[2000..5600], "{chain}");
    }
}

#[test]
fn what_is_beyond_its_scale_leaves_no_volume_and_is_named_with_its_place() {
    let mut source = numbers(800);
    let spec = scaled("int8:384", &source, F32);
    source[4 * 200_001..][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options(2)).unwrap();
    let refused = |source: &[u8], writer: &mut Writer<_>| {
        let refused = writer.add_stream(&spec, &mut &source[..], &mut |_| {});
        refused.unwrap_err().to_string()
    };
    let why = "element 200001 (byte 800004) is inf, and the scale of its row is too small for it";
    assert_eq!(refused(&source, &mut writer), why);
    // As many rows as there are scales.
    let short = numbers(799);
    let why = "scales: they are of 307200 elements, and the input has 306816";
    assert!(refused(&short, &mut writer).contains(why));
    let long = numbers(801);
    let why = "800 rows of 384 elements, and element";
    let said = refused(&long, &mut writer);
    assert!(said.contains(why), "{said}");
    // And none at all.
    let bare = StreamSpec::new(Chain::parse("int8:384", F32).unwrap());
    let said = writer.add_stream(&bare, &mut &short[..], &mut |_| {});
    assert!(said.unwrap_err().to_string().contains("needs a table"));
}

/// Each is refused at open, before anything of the stream is read.
#[test]
fn scales_that_nobody_wrote_are_refused_at_open() {
    let source = numbers(10);
    let (image, _) = written(&scaled("int8:384", &source, F32), 1, &source);
    let volume = open(&image, image.len() as u64).unwrap();
    let index = volume.table_blob(ChainIndex(0)).unwrap();
    let blob = volume.blobs()[index.0 as usize].clone();
    assert_eq!((blob.kind, blob.bytes), (BlobKind::Scales, 40));
    let [_, streams, chains, blobs, _] = volume.superblock().directory;
    let refused = |image: &[u8]| match open(image, image.len() as u64) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    };
    // The blob's own entry follows what is changed: its bytes, its length, its kind.
    let changed = |scale: f32, bytes: u64, kind: u32| {
        let mut image = image.clone();
        let start = usize::try_from(blob.offset).unwrap();
        image[start + 8..][..4].copy_from_slice(&scale.to_le_bytes());
        let of = image[start..][..usize::try_from(bytes).unwrap()].to_vec();
        edit::entry(&mut image, &blobs, index.0.into(), |entry| {
            entry[..4].copy_from_slice(&kind.to_le_bytes());
            entry[4..8].copy_from_slice(&crc32c(&of).to_le_bytes());
            entry[16..24].copy_from_slice(&bytes.to_le_bytes());
            entry[32..64].copy_from_slice(&sha256(&of));
        });
        image
    };
    assert!(open(&changed(0.0, 40, 6)[..], image.len() as u64).is_ok());
    for (scale, bytes, kind, why) in [
        (f32::NAN, 40, 6, "that of row 2 is NaN (0x7fc00000)"),
        (f32::INFINITY, 40, 6, "that of row 2 is inf (0x7f800000)"),
        (-1.0, 40, 6, "that of row 2 is -1 (0xbf800000)"),
        (
            1.0,
            36,
            6,
            "elements of a stream whose chain has scales is 3840, expected 3456",
        ),
        (1.0, 38, 6, "38 bytes, where 1 to 16777216 rows have 4 each"),
        (1.0, 0, 6, "bytes of scales is 0, expected 4 to 67108864"),
        (1.0, 40, 4, "blob of a step"),
        (1.0, 40, 3, "blob of a step"),
    ] {
        let error = refused(&changed(scale, bytes, kind));
        assert!(error.contains(why), "{scale} {bytes} {kind}: {error}");
    }
    // The chain: rows of no elements, of others, and no blob.
    for (at, value, why) in [
        (20, 0, "int8 does not take \"0\""),
        (
            20,
            383,
            "elements of a stream whose chain has scales is 3840, expected 3830",
        ),
        (
            20,
            u32::MAX,
            "elements of a stream whose chain has scales is 3840, expected 42949672950",
        ),
        (24, u32::MAX, "expected that of its scales"),
    ] {
        let mut image = image.clone();
        edit::entry(&mut image, &chains, 0, |entry| {
            entry[at..at + 4].copy_from_slice(&value.to_le_bytes());
        });
        let error = refused(&image);
        assert!(error.contains(why), "{at} {value}: {error}");
    }
    // The stream: elements that have no scale, with as many stored bytes.
    let mut image = image.clone();
    edit::entry(&mut image, &streams, 0, |entry| {
        entry[24..32].copy_from_slice(&3841u64.to_le_bytes());
        entry[32..40].copy_from_slice(&3841u64.to_le_bytes());
    });
    let error = refused(&image);
    let why = "elements of a stream whose chain has scales is 3841, expected 3840";
    assert!(error.contains(why), "{error}");
}

/// Chain, source, and the types that it is presented in.
const GOLDEN: [(&str, ElementType, &[&str]); 4] = [
    ("int8:384", F32, &["f32", "bf16", "f16", "f64"]),
    ("int8:384+lz4", F32, &["f32", "bf16"]),
    ("int8:384", Bf16, &["bf16", "f32"]),
    ("int8:384", F16, &["f16", "f32"]),
];

/// Twelve rows of int8.py in a type; those of f16 are clamped to what it holds.
fn golden_source(of: ElementType) -> Vec<u8> {
    let limit = if of == F16 { 65_504.0 } else { f32::MAX };
    let clamped: Vec<u8> = (numbers(12).as_chunks().0.iter())
        .flat_map(|it| f32::from_le_bytes(*it).clamp(-limit, limit).to_le_bytes())
        .collect();
    narrowed(of.name(), &clamped)
}

#[test]
#[ignore = "makes a file that is made once"]
fn make_the_golden_volume_of_int8() {
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options(1)).unwrap();
    for (chain, of, views) in GOLDEN {
        let source = golden_source(of);
        let stream = writer
            .add_stream(&scaled(chain, &source, of), &mut &source[..], &mut |_| {})
            .unwrap();
        for presented in views {
            let name = format!("{chain} of {of} as {presented}");
            let (view, extents) = view(name, &stream, of, presented);
            writer.add_view(view, extents).unwrap();
        }
    }
    writer.finish().unwrap();
    fs::write(folder().join("int8.vol"), memory.bytes).unwrap();
}

/// numpy made the digests that are recorded (int8.py); here the volume is what this writer makes of the numbers.
#[test]
fn the_golden_volume_of_int8_holds_every_view() {
    let reader = Reader::open_file(&folder().join("int8.vol"), 1 << 20).unwrap();
    let expected = GOLDEN.iter().flat_map(|(chain, of, views)| {
        let name = move |view| format!("int8.vol:{chain} of {of} as {view}");
        views.iter().map(name)
    });
    let mut expected: Vec<String> = expected.collect();
    expected.sort();
    let recorded: Vec<String> = digests("VIEWS.sha256")
        .into_keys()
        .filter(|key| key.starts_with("int8.vol:"))
        .collect();
    assert_eq!(recorded, expected);
    for (n, (chain, of, _)) in (0..).zip(GOLDEN) {
        let stream = reader.volume().stream(StreamIndex(n)).unwrap();
        let source = golden_source(of);
        let spec = scaled(chain, &source, of);
        assert_eq!(stream.chain, spec.chain, "{chain} of {of}");
        let mut read_back = vec![0; source.len()];
        spec.chain.read_back(&source, &mut read_back).unwrap();
        let digest = stream.digest.map(|digest| hex(&digest));
        assert_eq!(digest, Some(hex(&sha256(&read_back))), "{chain} of {of}");
    }
}
