//! Streams of `int8`: what is recorded of them, every range of them, scales that nobody wrote, and their golden volume.

use std::sync::Arc;

use transforms::{Chain, ElementType, RowMaxima, TableKind, ViewChain};

use super::edit;
use super::lossy::{
    self, Golden, all_of, check_ranges, clamped, narrowed, numbers, options, present, read_back,
    reader_of, view,
};
use super::sample::Memory;
use crate::blocking::open;
use crate::checksum::crc32c;
use crate::format::{BlobKind, ChainIndex};
use crate::identity::sha256;
use crate::write::{ExtentSpec, StreamSpec, Writer, Written};

use ElementType::{Bf16, F16, F32};

/// Elements of a row of the golden volume.
const ROW: u32 = 384;

const VOLUME_UUID: &[u8; 16] = b"volume of int8\x01\x01";

/// In rows of every size.
fn rows(rows: u32) -> Vec<u8> {
    numbers(ROW, 0, ROW * rows)
}

/// With the scales of these elements.
fn scaled(chain: &str, of: ElementType, source: &[u8]) -> StreamSpec {
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

/// Presented in every type, and from inside a row on.
fn written(spec: &StreamSpec, threads: usize, source: &[u8]) -> (Vec<u8>, Written) {
    let options = lossy::options(VOLUME_UUID, threads);
    lossy::written(options, spec, source, |writer, stream| {
        present(writer, stream, &["f32", "bf16", "q8_0"]);
        let (part, _) = view("part", stream, F32, "f32");
        let extent = ExtentSpec::Linear {
            stream: stream.stream,
            first_element: 500,
            elements: 900,
            view: ViewChain::identity(),
        };
        writer.add_view(part, [extent]).unwrap();
    })
}

#[test]
fn what_is_read_back_is_recorded_and_read_in_every_range() {
    // Blocks of q8_0 of all of them have scales: none is infinite.
    let source = clamped(&rows(800), 8e6);
    for (chain, is_framed) in [
        ("int8:384", false),
        ("int8:384+zstd:1", true),
        ("int8:768", false),
    ] {
        let spec = scaled(chain, F32, &source);
        let (image, stream) = written(&spec, 1, &source);
        assert!(image == written(&spec, 3, &source).0, "{chain}");
        let expected = read_back(&spec, &source, &stream);
        assert!(
            is_framed || stream.stored_bytes == stream.elements,
            "{chain}"
        );

        let mut reader = reader_of(&image, chain);
        // Around elements, rows, granules and frames, and over many of each.
        let starts = [
            0, 1, 4095, 1531, 1535, 1536, 16_383, 16_384, 524_287, 1_000_001,
        ];
        let lens = [1, 3, 4, 128, 1535, 1536, 4096, 70_001];
        check_ranges(&mut reader, &expected, &starts, &lens, chain);
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
    let mut source = rows(800);
    let spec = scaled("int8:384", F32, &source);
    source[4 * 200_001..][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options(VOLUME_UUID, 2)).unwrap();
    let refused = |source: &[u8], writer: &mut Writer<_>| {
        let refused = writer.add_stream(&spec, &mut &source[..], &mut |_| {});
        refused.unwrap_err().to_string()
    };
    let why = "element 200001 (byte 800004) is inf, and the scale of its row is too small for it";
    assert_eq!(refused(&source, &mut writer), why);
    // As many rows as there are scales.
    let short = rows(799);
    let why = "scales: they are of 307200 elements, and the input has 306816";
    assert!(refused(&short, &mut writer).contains(why));
    let long = rows(801);
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
    let source = rows(10);
    let (image, _) = written(&scaled("int8:384", F32, &source), 1, &source);
    let volume = open(&image, image.len() as u64).unwrap();
    let index = volume.table_blob(ChainIndex(0), TableKind::Scales).unwrap();
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

fn golden() -> Golden<'static> {
    Golden {
        file: "int8.vol",
        volume_uuid: VOLUME_UUID,
        streams: &[
            ("int8:384", F32, &["f32", "bf16", "f16", "f64"]),
            ("int8:384+lz4", F32, &["f32", "bf16"]),
            ("int8:384", Bf16, &["bf16", "f32"]),
            ("int8:384", F16, &["f16", "f32"]),
        ],
        numbers: rows(12),
        spec: scaled,
    }
}

#[test]
#[ignore = "makes a file that is made once"]
fn make_the_golden_volume_of_int8() {
    golden().make();
}

/// numpy made the digests that are recorded (int8.py).
#[test]
fn the_golden_volume_of_int8_holds_every_view() {
    golden().check();
}
