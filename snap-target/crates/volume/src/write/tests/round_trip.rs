//! What goes in comes out: every chain, around the ends of frames, granules and batches; read by the reader, and verified.

use super::*;
use crate::blocking::Reader;
use crate::format::ViewIndex;
use crate::verify::verify;

/// A type, the values that all of its chains hold, and the chains.
struct Case {
    element_type: ElementType,
    min: i64,
    max: i64,
    chains: &'static [&'static str],
}

const fn case(
    element_type: ElementType,
    min: i64,
    max: i64,
    chains: &'static [&'static str],
) -> Case {
    Case {
        element_type,
        min,
        max,
        chains,
    }
}

const CASES: [Case; 12] = [
    case(
        ElementType::U8,
        0,
        255,
        &["none", "u16", "bitpack:8", "lz4", "zstd:1"],
    ),
    case(ElementType::I8, -128, 127, &["none", "i64", "i16+lz4"]),
    case(
        ElementType::U16,
        0,
        8191,
        &["none", "bitpack:13", "i16", "u32+shuffle+lz4hc:3"],
    ),
    case(
        ElementType::I16,
        -128,
        127,
        &["none", "i8", "i32+shuffle+lz4", "zstd:3"],
    ),
    case(
        ElementType::U32,
        0,
        65_535,
        &[
            "none",
            "u16",
            "u64",
            "bitpack:16",
            "bitpack:17",
            "bitpack:31",
            "bitpack:32",
            "u16+lz4",
            "u16+lz4hc:4",
            "bitpack:18+zstd:3",
            "shuffle",
            "shuffle+lz4",
            "u16+shuffle+zstd:1",
        ],
    ),
    case(
        ElementType::I32,
        0,
        255,
        &["none", "i16", "u8", "bitpack:9", "lz4hc"],
    ),
    case(
        ElementType::U64,
        0,
        131_071,
        &[
            "none",
            "u32",
            "bitpack:17",
            "u32+lz4",
            "bitpack:20+lz4",
            "shuffle+zstd:3",
        ],
    ),
    case(ElementType::I64, i64::MIN, i64::MAX, &["none", "lz4"]),
    case(
        ElementType::F16,
        0,
        65_535,
        &["none", "zstd:1", "floatsplit"],
    ),
    case(
        ElementType::Bf16,
        0,
        65_535,
        &["none", "shuffle+lz4", "floatsplit"],
    ),
    case(
        ElementType::F32,
        0,
        u32::MAX as i64,
        &["none", "shuffle", "shuffle+zstd:1", "floatsplit"],
    ),
    case(
        ElementType::F64,
        i64::MIN,
        i64::MAX,
        &["none", "shuffle+lz4"],
    ),
];

/// `count` values between `min` and `max`, among them runs, so that compressors have work.
fn source(case: &Case, count: usize) -> Vec<u8> {
    let mut state = count as u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    };
    let values = i128::from(case.max) - i128::from(case.min) + 1;
    let mut value = case.min;
    (0..count)
        .flat_map(|_| {
            if random() % 3 > 0 {
                let wide = i128::from(random()) << 32 ^ i128::from(random());
                value = i64::try_from(i128::from(case.min) + wide % values).unwrap();
            }
            value.to_le_bytes()[..case.element_type.bytes()].to_vec()
        })
        .collect()
}

fn read_back(image: Vec<u8>) -> Vec<u8> {
    let store_bytes = image.len() as u64;
    let report = verify(&image, store_bytes, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    let mut reader = Reader::open(image, store_bytes, 1 << 20).unwrap();
    let mut presented = vec![0xA5; usize::try_from(reader.volume().presented_bytes()).unwrap()];
    reader.read(0, &mut presented).unwrap();
    presented
}

#[test]
fn every_chain_gives_back_every_length() {
    const FRAME_BYTES: usize = 4096;
    for case in &CASES {
        let frame = FRAME_BYTES / case.element_type.bytes();
        for chain in case.chains {
            let spec = spec(chain, case.element_type, FRAME_BYTES as u64);
            for count in [0, 1, 7, 8, 9, frame - 1, frame, frame + 1, 3 * frame + 5] {
                let source = source(case, count);
                let mut recorder = Recorder::default();
                pack(&mut recorder, 2, &spec, &source).unwrap();
                assert!(
                    read_back(recorder.image()) == source,
                    "{:?} {chain} {count}",
                    case.element_type
                );
            }
        }
    }
}

#[test]
fn batches_meet_without_a_seam() {
    for case in &CASES {
        // 512 KiB are a batch, except where 32 Ki elements are more.
        let batch = ((512 << 10) / case.element_type.bytes()).max(32 << 10);
        // The first two are unframed: as it is, and packed. The last one has frames.
        let (unframed, framed) = (case.chains.iter().take(2), case.chains.last());
        for chain in unframed.chain(framed) {
            for count in [batch - 1, batch + 1, 2 * batch + 77] {
                let source = source(case, count);
                let mut recorder = Recorder::default();
                let spec = spec(chain, case.element_type, 65_536);
                pack(&mut recorder, 3, &spec, &source).unwrap();
                assert!(
                    read_back(recorder.image()) == source,
                    "{:?} {chain} {count}",
                    case.element_type
                );
            }
        }
    }
}

/// Three levels of index need more than 63 x 504 extents: several streams, chains, views and mappings in turn.
#[test]
fn tens_of_thousands_of_extents_and_several_views_are_presented_in_order() {
    let mut recorder = Recorder::default();
    let mut writer = Writer::new(&mut recorder, options(2)).unwrap();
    let (a, b) = (values(40_000, 60_000), values(30_000, 250));
    let mut add = |chain, source: &[u8]| {
        let spec = spec(chain, ElementType::U32, 4096);
        writer
            .add_stream(&spec, &mut &source[..], &mut |_| {})
            .unwrap()
    };
    let (packed, framed) = (add("bitpack:17", &a), add("u16+lz4", &b));
    let narrow = ViewChain::parse("u8", ElementType::U32).unwrap();
    let mut expected = Vec::new();
    let mut extents = Vec::new();
    for at in 0..12_000usize {
        let byte = u8::try_from(at % 251).unwrap();
        let (first, elements) = (at * 3 % 39_000, at % 5 + 1);
        extents.push(ExtentSpec::Linear {
            stream: packed.stream,
            first_element: first as u64,
            elements: elements as u64,
            view: ViewChain::identity(),
        });
        expected.extend_from_slice(&a[first * 4..(first + elements) * 4]);
        extents.push(ExtentSpec::Inline(vec![byte; at % 41]));
        expected.resize(expected.len() + at % 41, byte);
        let first = at * 7 % 29_000;
        extents.push(ExtentSpec::Linear {
            stream: framed.stream,
            first_element: first as u64,
            elements: 3,
            view: narrow.clone(),
        });
        expected.extend(b[first * 4..(first + 3) * 4].iter().step_by(4));
        extents.push(ExtentSpec::Zero {
            bytes: (at % 3) as u64,
        });
        expected.resize(expected.len() + at % 3, 0);
    }
    writer.add_view("many", extents).unwrap();
    writer.add_view("nothing", []).unwrap();
    writer.add_view("one", [whole(&framed)]).unwrap();
    writer.finish().unwrap();

    let image = recorder.image();
    let reader = Reader::open(image.clone(), image.len() as u64, 1 << 20).unwrap();
    let [many, nothing, one] = reader.volume().views() else {
        panic!("three views");
    };
    assert_eq!(many.extents.levels(), 3);
    assert_eq!(
        (nothing.presented_bytes, nothing.extents.entry_count()),
        (0, 0)
    );
    assert_eq!(one.presented_bytes, b.len() as u64);
    assert!(read_back(image.clone()) == expected);

    // As they were added, but for the 4,000 without a byte of zeros and the 293 without a byte inline, which are not stored.
    let count = usize::try_from(many.extents.entry_count()).unwrap();
    assert_eq!(count, 48_000 - 4_000 - 293);
    let all = reader.extents(0, usize::MAX).unwrap();
    assert_eq!(all.len(), count);
    assert!(all.windows(2).all(|pair| pair[0].end() == pair[1].start));
    assert_eq!(all.last().unwrap().end(), expected.len() as u64);
    assert_eq!(reader.extents(1_000, 200).unwrap(), all[1_000..1_200]);
    assert_eq!(reader.extents(count as u64, 5).unwrap(), []);

    let volume = reader.volume().with_view(ViewIndex(2)).unwrap();
    let mut reader = Reader::new(volume, image, 1 << 20);
    let mut presented = vec![0; b.len()];
    reader.read(0, &mut presented).unwrap();
    assert!(presented == b);
}

#[test]
fn tables_that_do_not_fit_into_memory_come_back_from_their_file() {
    // 8.8 MiB of extents.
    let source = values(1_000, 60_000);
    let folder = std::env::temp_dir();
    let path = folder.join(format!("volume-write-{}-spool.xio", std::process::id()));
    let output = super::super::FileOutput::create(&path, true).unwrap();
    let mut writer = Writer::new(output, options(2)).unwrap();
    let spec = spec("shuffle", ElementType::U32, 4096);
    let stream = writer
        .add_stream(&spec, &mut &source[..], &mut |_| {})
        .unwrap();
    let extents = (0..144_000u32).map(|n| ExtentSpec::Inline(n.to_le_bytes().to_vec()));
    writer.add_view("many", extents).unwrap();
    writer.add_view("all", [whole(&stream)]).unwrap();
    writer.finish().unwrap();
    let image = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let expected: Vec<u8> = (0..144_000u32).flat_map(u32::to_le_bytes).collect();
    assert!(read_back(image) == expected);
}
