//! Streams of `q8_0`: what is recorded of them, every range of them, scales that nobody wrote, and their golden volume.

use std::fs;

use transforms::{Chain, ElementType, ViewChain};

use super::golden::{digests, folder, hex};
use super::lossy::{
    self, Golden, all_of, check_ranges, in_type, narrowed, numbers, options, present, read_back,
    reader_of, view,
};
use super::sample::Memory;
use crate::StreamIndex;
use crate::blocking::{Reader, open};
use crate::identity::sha256;
use crate::verify::verify;
use crate::write::{ExtentSpec, Integrity, StreamSpec, ViewSpec, Writer, Written};

use ElementType::{Bf16, F16, F32};

const VOLUME_UUID: &[u8; 16] = b"volume of q8_0\x01\x01";

/// In groups of every size.
fn groups(from: u32, count: u32) -> Vec<u8> {
    numbers(32, from, count)
}

fn spec(chain: &str, of: ElementType) -> StreamSpec {
    StreamSpec {
        frame_bytes: 4096,
        ..StreamSpec::new(Chain::parse(chain, of).unwrap())
    }
}

fn written(spec: &StreamSpec, threads: usize, source: &[u8]) -> (Vec<u8>, Written) {
    let options = options(VOLUME_UUID, threads);
    lossy::written(options, spec, source, |writer, stream| {
        present(writer, stream, &["f32", "bf16"]);
    })
}

#[test]
fn what_is_read_back_is_recorded_and_read_in_every_range() {
    let source = groups(0, 300_007);
    for (chain, packed_bytes) in [("q8_0", 9376 * 34), ("q8_0+zstd:1", 0)] {
        let spec = spec(chain, F32);
        let (image, stream) = written(&spec, 1, &source);
        assert!(image == written(&spec, 3, &source).0, "{chain}");
        let expected = read_back(&spec, &source, &stream);
        assert!(
            packed_bytes == 0 || stream.stored_bytes == packed_bytes,
            "{chain}"
        );

        let mut reader = reader_of(&image, chain);
        // Around elements, groups, granules (3,855 elements and a part) and frames, and over many of each.
        let starts = [
            0, 1, 127, 128, 4095, 15_359, 15_420, 15_421, 524_287, 1_200_000,
        ];
        let lens = [1, 3, 4, 128, 129, 4096, 28];
        check_ranges(&mut reader, &expected, &starts, &lens, chain);
        assert!(
            all_of(&mut reader, 0, expected.len()) == expected,
            "{chain}"
        );
        let wanted = narrowed("bf16", &expected);
        assert!(
            all_of(&mut reader, 1, wanted.len()) == wanted,
            "{chain} as bf16"
        );
    }
}

#[test]
fn a_number_without_a_scale_leaves_no_volume_and_is_named_with_its_place() {
    let mut source = groups(0, 300_000);
    source[4 * 200_001..][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options(VOLUME_UUID, 2)).unwrap();
    let refused = writer
        .add_stream(&spec("q8_0", F32), &mut &source[..], &mut |_| {})
        .unwrap_err();
    let why = "element 200001 (byte 800004) is inf, for which q8_0 has no scale: it takes finite numbers below 8,321,040; store it as it is, or f32 as bf16";
    assert_eq!(refused.to_string(), why);
}

/// Without checksums: with them such bytes are not looked at.
#[test]
fn a_scale_that_is_no_number_is_an_error_of_the_reads_that_touch_its_group() {
    let spec = StreamSpec {
        integrity: Integrity::None,
        ..spec("q8_0", F32)
    };
    let (mut image, _) = written(&spec, 1, &groups(0, 10_000));
    let store_bytes = image.len() as u64;
    let stored_offset = {
        let volume = open(&image, store_bytes).unwrap();
        volume.stream(StreamIndex(0)).unwrap().stored_offset as usize
    };
    // Group 241, the first that begins in granule 2.
    image[stored_offset + 241 * 34..][..2].copy_from_slice(&0x7C00u16.to_le_bytes());
    let mut reader = Reader::open(&image, store_bytes, 1 << 20).unwrap();
    let mut part = [0; 4];
    for (element, is_bad) in [(7711, false), (7712, true), (7743, true), (7744, false)] {
        let read = reader.read(element * 4, &mut part);
        match read {
            Ok(_) => assert!(!is_bad, "{element}"),
            Err(refused) => {
                assert!(is_bad, "{element}");
                let why = format!(
                    "presented byte {}: stream 0, granule 2, at byte {} of the volume: the elements from 7712 on have a scale that is no finite number (0x7c00): the stored bytes are not what was packed",
                    element * 4,
                    stored_offset + 8192
                );
                assert_eq!(refused.to_string(), why, "{element}");
            }
        }
    }
    let report = verify(&image, store_bytes, &mut |_| {}).unwrap();
    assert_eq!(report.damage_count, 1, "{:?}", report.damage);
}

fn golden() -> Golden<'static> {
    Golden {
        file: "q8_0.vol",
        volume_uuid: VOLUME_UUID,
        streams: &[
            ("q8_0", F32, &["f32", "bf16", "f16", "f64"]),
            ("q8_0+lz4", F32, &["f32", "bf16"]),
            ("q8_0", Bf16, &["bf16", "f32"]),
            ("q8_0", F16, &["f16", "f32"]),
        ],
        numbers: groups(1600, 3001),
        spec: |chain, of, _| spec(chain, of),
    }
}

#[test]
#[ignore = "makes a file that is made once"]
fn make_the_golden_volume_of_q8_0() {
    golden().make();
}

/// Chain and source of streams that are presented in blocks, but for their last elements, which are none.
const IN_BLOCKS: [(&str, ElementType); 7] = [
    ("none", F32),
    ("zstd:1", F32),
    ("bf16", F32),
    ("q8_0", F32),
    ("none", Bf16),
    ("lz4", F16),
    ("q8_0+lz4", F16),
];

/// Whole blocks of the golden sources.
const BLOCK_ELEMENTS: u64 = 2976;

fn in_blocks(name: String, stream: &Written, of: ElementType) -> (ViewSpec, [ExtentSpec; 1]) {
    let (spec, [extent]) = view(name, stream, of, "q8_0");
    let extent = match extent {
        ExtentSpec::Linear { stream, view, .. } => ExtentSpec::Linear {
            stream,
            first_element: 0,
            elements: BLOCK_ELEMENTS,
            view,
        },
        other => other,
    };
    (spec, [extent])
}

fn image_in_blocks() -> Vec<u8> {
    let mut memory = Memory::default();
    let mut writer = Writer::new(&mut memory, options(VOLUME_UUID, 1)).unwrap();
    for (chain, of) in IN_BLOCKS {
        let source = in_type(&groups(1600, 3001), of);
        let stream = writer
            .add_stream(&spec(chain, of), &mut &source[..], &mut |_| {})
            .unwrap();
        let name = format!("{chain} of {of} as q8_0");
        let (view, extents) = in_blocks(name, &stream, of);
        writer.add_view(view, extents).unwrap();
    }
    writer.finish().unwrap();
    memory.bytes
}

#[test]
#[ignore = "makes a file that is made once"]
fn make_the_golden_volume_of_views_in_blocks() {
    fs::write(folder().join("q8_0-view.vol"), image_in_blocks()).unwrap();
}

/// Each view of blocks, in every range: what gguf makes of the numbers (VIEWS.sha256), and of a part of it the same bytes.
#[test]
fn views_in_blocks_are_what_gguf_makes_of_the_stored_numbers_in_every_range() {
    let recorded = digests("VIEWS.sha256");
    let image = image_in_blocks();
    for (index, (chain, of)) in (0..).zip(IN_BLOCKS) {
        let mut reader = reader_of(&image, "views in blocks");
        let all = all_of(&mut reader, index, (BLOCK_ELEMENTS / 32 * 34) as usize);
        let name = format!("q8_0-view.vol:{chain} of {of} as q8_0");
        assert_eq!(recorded.get(&name), Some(&hex(&sha256(&all))), "{name}");
        assert_eq!(reader.volume().presented_bytes(), all.len() as u64);
        // Blocks lie over ends of logical blocks, granules and frames (of f32, 1,024 elements: 1,088 bytes).
        let starts = [0, 1, 33, 34, 35, 1087, 1088, 1089, 2047, 3000, 3161];
        let lens = [1, 2, 33, 34, 35, 512, 1088];
        check_ranges(&mut reader, &all, &starts, &lens, &name);
    }
}

/// The writer refuses what would split a block, by words; the reader what somebody else wrote.
#[test]
fn no_extent_begins_or_ends_inside_a_block() {
    let source = groups(1600, 4096);
    for (spec, first_element, elements, why) in [
        (
            spec("none", F32),
            8,
            32,
            "an extent that begins at element, 8, where the view presents 32 at a time",
        ),
        (
            spec("none", F32),
            32,
            40,
            "an extent that has elements, 40, where the view presents 32 at a time",
        ),
        (
            StreamSpec {
                frame_bytes: 4000,
                ..spec("lz4", F32)
            },
            0,
            64,
            "an extent that is of a stream whose frames have elements, 1000, where the view presents 32 at a time",
        ),
    ] {
        let mut memory = Memory::default();
        let mut writer = Writer::new(&mut memory, options(VOLUME_UUID, 1)).unwrap();
        let stream = writer
            .add_stream(&spec, &mut &source[..], &mut |_| {})
            .unwrap();
        let (view, _) = view("blocks", &stream, F32, "q8_0");
        let extent = ExtentSpec::Linear {
            stream: stream.stream,
            first_element,
            elements,
            view: ViewChain::parse("q8_0", F32).unwrap(),
        };
        let refused = writer.add_view(view, [extent]).unwrap_err().to_string();
        assert!(refused.ends_with(why), "{refused}");
    }
}

/// gguf made the digests that are recorded (q8.py).
#[test]
fn the_golden_volume_of_q8_0_holds_every_view() {
    golden().check();
}
