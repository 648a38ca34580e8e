//! Volumes of unusual shape: many extents, many frames, long frames, long elements; and what reads of them cost.

use transforms::{Chain, ElementType, ViewChain};

use super::driver::Driver;
use super::edit;
use super::sample::{Builder, Random, Sample, builder, store, store_sample};
use crate::assemble::{Run, StreamSpec, ViewSpec};
use crate::blocking::open;
use crate::format::Layout;
use crate::format::superblock::PAYLOAD_OFFSET_MIN;
use crate::limits::{FETCH_BYTES_MAX, FRAME_PACKED_BYTES_MAX};
use crate::verify::verify;
use crate::{Placement, StreamIndex};

fn named(name: &str) -> ViewSpec {
    ViewSpec {
        name: name.into(),
        ..ViewSpec::default()
    }
}

fn whole(stream: StreamIndex, elements: u64) -> Run {
    Run::Linear {
        stream,
        first_element: 0,
        elements,
        view: ViewChain::identity(),
    }
}

fn finish(builder: Builder) -> Vec<u8> {
    let store = builder.finish().unwrap().into_bytes();
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    store
}

/// 40,000 inline extents of 1 to 3 bytes, and what they present.
fn many_extents() -> (Vec<u8>, Vec<u8>) {
    let mut builder = builder(4096);
    let count = 40_000u32;
    let runs = (0..count).map(|n| Run::Inline(vec![n as u8 ^ (n >> 8) as u8; 4 + n as usize % 3]));
    let expected: Vec<u8> = runs
        .clone()
        .flat_map(|run| match run {
            Run::Inline(data) => data,
            _ => Vec::new(),
        })
        .collect();
    builder.add_view(named("many"), runs).unwrap();
    (finish(builder), expected)
}

#[test]
fn index_blocks_whose_keys_do_not_hold_together_are_refused() {
    let (whole, expected) = many_extents();
    let volume = open(&whole, whole.len() as u64).unwrap();
    let table = volume.view().extents;
    // Key 0, 1 and 2 of the first block above the leaves: first, equal to its neighbour, beyond the end; and a wrong one that ascends.
    let key = |n: usize| 64 + 8 * n..72 + 8 * n;
    let cases: [(usize, u64, &str); 4] = [
        (0, 1, "key of the first child is 1, expected 0"),
        (2, 0, "keys is 0, expected one above"),
        (
            503,
            u64::MAX,
            "keys is 18446744073709551615, expected below",
        ),
        (1, 7, "end_key is"),
    ];
    for (n, value, expected_text) in cases {
        let mut store = whole.clone();
        edit::block(&mut store, &table, 1, 0, |block| {
            block[key(n)].copy_from_slice(&value.to_le_bytes());
        });
        let error = Driver::new(0)
            .read(&volume, &store, 0..expected.len() as u64)
            .unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected_text), "{text}");
        assert!(
            !verify(&store, store.len() as u64, &mut |_| {})
                .unwrap()
                .is_clean()
        );
    }
}

#[test]
fn an_extent_table_with_two_index_levels_is_descended() {
    let (store, expected) = many_extents();
    let volume = open(&store, store.len() as u64).unwrap();
    assert_eq!(volume.view().extents.levels(), 3);
    assert_eq!(volume.view().extents.level_blocks(1), 2);
    let mut driver = Driver::new(0);
    let mut random = Random::new(1);
    // A cold read of one byte: one block a level, and no more.
    let (_, counters) = driver.read(&volume, &store, 30_000..30_001).unwrap();
    assert_eq!(counters.table_bytes, 3 * 4096);
    for _ in 0..50 {
        let from = random.below(expected.len() as u64);
        let to = random.between(from, expected.len() as u64);
        let (found, _) = driver.read(&volume, &store, from..to).unwrap();
        assert!(found == expected[from as usize..to as usize]);
    }
}

#[test]
fn many_frames_are_found_by_arithmetic() {
    let mut random = Random::new(2);
    let sample = Sample::new(&mut random, "u16+lz4", ElementType::U32, 12, 120_000);
    let mut builder = builder(4096);
    let stream = store_sample(&mut builder, &sample, 32);
    builder
        .add_view(named("frames"), [whole(stream, 120_000)])
        .unwrap();
    let store = finish(builder);
    let volume = open(&store, store.len() as u64).unwrap();
    let mut driver = Driver::new(0);
    // 3,750 frames, 101 in a block: a cold read of one frame sees two table blocks and one block of payload.
    let (found, counters) = driver.read(&volume, &store, 64_000..64_004).unwrap();
    assert!(found == sample.data[64_000..64_004]);
    assert_eq!(counters.table_bytes, 2 * 4096);
    assert_eq!(counters.frames_decoded, 1);
    assert!(counters.stored_bytes <= 8192);
    // All frames: neighbours are fetched together.
    let len = sample.data.len() as u64;
    let (found, counters) = driver.read(&volume, &store, 0..len).unwrap();
    assert!(found == sample.data);
    assert_eq!(counters.frames_decoded + counters.frame_hits, 3750);
    let windows = 3750u64.div_ceil(128) + 1;
    let tables = counters.table_bytes / 4096;
    assert!(counters.fetches - tables <= windows, "{counters:?}");
    for _ in 0..200 {
        let from = random.below(len);
        let to = random.between(from, len.min(from + 10_000));
        let (found, _) = driver.read(&volume, &store, from..to).unwrap();
        assert!(found == sample.data[from as usize..to as usize]);
    }
}

#[test]
fn a_frame_longer_than_a_fetch_comes_in_several() {
    // Random bytes do not shrink: the frame is stored as it is, with the longest packed form there may be.
    let mut random = Random::new(3);
    let len = FRAME_PACKED_BYTES_MAX + 100_000;
    let data: Vec<u8> = (0..len / 8 + 1)
        .flat_map(|_| random.next().to_le_bytes())
        .collect();
    let data = &data[..len as usize];
    let chain = Chain::parse("lz4", ElementType::U8).unwrap();
    let mut builder = builder(4096);
    let spec = StreamSpec::own(chain, FRAME_PACKED_BYTES_MAX);
    let stream = store(&mut builder, spec, FRAME_PACKED_BYTES_MAX, data);
    let runs = [Run::Inline(vec![9]), whole(stream, len)];
    builder.add_view(named("long"), runs).unwrap();
    let store = finish(builder);
    let volume = open(&store, store.len() as u64).unwrap();
    let mut driver = Driver::new(0);
    for range in [4_000_000..4_000_010, 0..len + 1, 4_194_000..4_200_000] {
        let (found, _) = driver.read(&volume, &store, range.clone()).unwrap();
        let mut expected = vec![9];
        expected.extend_from_slice(data);
        assert!(found == expected[range.start as usize..range.end as usize]);
    }
    // The smallest cache holds one such frame, and no more.
    assert!(driver.cache.counters().used_bytes as u64 <= FRAME_PACKED_BYTES_MAX + 4096);
}

#[test]
fn a_long_read_goes_in_windows() {
    // The driver asserts how much is under way at a time.
    let mut random = Random::new(6);
    for chain in ["none", "bitpack:8"] {
        let sample = Sample::new(&mut random, chain, ElementType::U8, 8, 11 << 20);
        let mut builder = builder(4096);
        let stream = store_sample(&mut builder, &sample, 1 << 20);
        let run = whole(stream, 11 << 20);
        builder
            .add_view(named("long"), [Run::Inline(vec![1]), run])
            .unwrap();
        let store = finish(builder);
        let volume = open(&store, store.len() as u64).unwrap();
        for start in [0, 1] {
            let (found, _) = Driver::new(0)
                .read(&volume, &store, start..(11 << 20) + 1)
                .unwrap();
            assert!(found[1 - start as usize..] == sample.data);
        }
    }
}

#[test]
fn copies_per_delivered_byte_are_none_or_one() {
    let mut random = Random::new(4);
    let samples = [
        Sample::new(&mut random, "none", ElementType::U32, 32, 1 << 18),
        Sample::new(&mut random, "u16", ElementType::U32, 16, 1 << 18),
        Sample::new(&mut random, "bitpack:17", ElementType::U32, 17, 1 << 18),
        Sample::new(&mut random, "u16+lz4", ElementType::U32, 12, 1 << 18),
    ];
    for (sample, copies) in samples.iter().zip([0, 0, 0, 1]) {
        let mut builder = builder(4096);
        let stream = store_sample(&mut builder, sample, 1 << 14);
        builder
            .add_view(named("whole"), [whole(stream, 1 << 18)])
            .unwrap();
        let store = finish(builder);
        let volume = open(&store, store.len() as u64).unwrap();
        let mut driver = Driver::new(4 << 20);
        // Pieces would be gathered first: the driver hands everything over in one.
        driver.cut_pieces = false;
        let (found, counters) = driver.read(&volume, &store, 0..1 << 20).unwrap();
        assert!(found == sample.data);
        assert_eq!(counters.delivered_bytes, 1 << 20);
        assert_eq!(counters.copied_bytes, copies << 20, "{}", sample.chain);
        if sample.chain.is_framed() {
            // The second time nothing is fetched.
            let (found, counters) = driver.read(&volume, &store, 0..1 << 20).unwrap();
            assert!(found == sample.data);
            assert_eq!((counters.fetches, counters.frame_hits), (0, 16));
        } else {
            let payload: Vec<_> = driver
                .fetches
                .iter()
                .filter(|fetch| {
                    fetch.offset < volume.streams()[0].stored_bytes + PAYLOAD_OFFSET_MIN
                })
                .collect();
            let bytes: u64 = payload.iter().map(|fetch| u64::from(fetch.len)).sum();
            assert_eq!(
                bytes,
                volume.streams()[0].stored_bytes.next_multiple_of(4096)
            );
            assert!(payload.len() <= 2, "{payload:?}");
            let is_direct = payload
                .iter()
                .all(|fetch| matches!(fetch.placement, Placement::Direct { .. }));
            assert_eq!(is_direct, sample.chain.is_identity());
        }
    }
}

#[test]
fn ragged_reads_of_identity_streams_go_direct_where_it_pays() {
    let mut random = Random::new(5);
    let sample = Sample::new(&mut random, "none", ElementType::U8, 8, 3 << 20);
    let mut builder = builder(512);
    let stream = store_sample(&mut builder, &sample, 1 << 20);
    builder
        .add_view(named("whole"), [whole(stream, 3 << 20)])
        .unwrap();
    let store = finish(builder);
    let volume = open(&store, store.len() as u64).unwrap();
    let mut driver = Driver::new(1 << 20);
    let mut placements = |range: std::ops::Range<u64>| {
        let (found, _) = driver.read(&volume, &store, range.clone()).unwrap();
        assert!(found == sample.data[range.start as usize..range.end as usize]);
        let payload = driver
            .fetches
            .iter()
            .filter(|fetch| fetch.offset < (3 << 20) + PAYLOAD_OFFSET_MIN);
        payload
            .map(|fetch| (fetch.placement, fetch.len))
            .collect::<Vec<_>>()
    };
    let staging = Placement::Staging;
    assert_eq!(placements(512..1024), [(staging, 4096)]);
    assert_eq!(placements(512..9 * 1024), [(staging, 3 * 4096)]);
    assert_eq!(
        placements(512..65_536 + 512),
        [
            (staging, 4096),
            (Placement::Direct { out_offset: 3584 }, 15 * 4096),
            (staging, 4096),
        ]
    );
    // At a place that no direct read can go to, everything goes through staging, in fetches of at most 1 MiB.
    assert_eq!(
        placements(1..(1 << 20) + 8000),
        [(staging, FETCH_BYTES_MAX), (staging, 8192)]
    );
}

/// A stream of frames with `gap_bytes` before each, the data, and the store.
fn with_gaps(gap_bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let mut random = Random::new(12);
    let sample = Sample::new(&mut random, "u16+lz4", ElementType::U32, 12, 5000);
    let mut builder = builder(512);
    let spec = StreamSpec {
        gap_bytes,
        ..StreamSpec::own(sample.chain.clone(), 1024)
    };
    let stream = store(&mut builder, spec, 1024, &sample.data);
    let run = Run::Linear {
        stream,
        first_element: 0,
        elements: sample.count(),
        view: ViewChain::identity(),
    };
    let view = ViewSpec {
        name: "gaps".into(),
        ..ViewSpec::default()
    };
    builder.add_view(view, [run]).unwrap();
    (builder.finish().unwrap().into_bytes(), sample.data)
}

#[test]
fn frames_may_have_room_between_them() {
    for gap_bytes in [1, 511, 4095] {
        let (mut store, data) = with_gaps(gap_bytes);
        let volume = open(&store, store.len() as u64).unwrap();
        let mut driver = Driver::new(0);
        let (found, _) = driver.read(&volume, &store, 0..data.len() as u64).unwrap();
        assert!(found == data, "{gap_bytes}");
        let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
        assert!(report.is_clean(), "{gap_bytes}: {:?}", report.damage);
        // The byte before frame 1.
        let stream = &volume.streams()[0];
        let Layout::Framed { frames, .. } = stream.layout else {
            panic!("frames")
        };
        let entry = frames.entry_place(1).offset as usize;
        let offset = u64::from_le_bytes(store[entry..entry + 8].try_into().unwrap());
        let at = (stream.stored_offset + offset) as usize - 1;
        assert_eq!(store[at], 0);
        store[at] = 7;
        let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
        let [error] = &report.damage[..] else {
            panic!("{:?}", report.damage)
        };
        let expected = format!("padding, at byte {at} of the volume: expected zeros, found 0x07");
        assert_eq!(error.to_string(), expected);
    }
    let (store, _) = with_gaps(4096);
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert_eq!(report.damage_count, 4, "{:?}", report.damage);
    let told = report.damage[0].to_string();
    assert!(
        told.contains("offset is") && told.contains("entry 1"),
        "{told}"
    );
}

/// What earlier generations left behind is not looked at, padding of a stream still is.
#[test]
fn blocks_that_nothing_refers_to_are_zero_in_the_first_generation_only() {
    let (mut store, _) = with_gaps(0);
    let volume = open(&store, store.len() as u64).unwrap();
    let stream = &volume.streams()[0];
    let padding = (stream.stored_offset + stream.stored_bytes) as usize;
    assert_ne!(padding % 4096, 0);
    // The name ends in the middle of its block.
    let after_name = (volume.blobs()[0].offset + volume.blobs()[0].bytes) as usize;
    assert_eq!((store[padding], store[after_name]), (0, 0));
    store[after_name] = 1;
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert_eq!((report.damage_count, report.unreferenced_bytes), (1, 0));
    edit::superblocks(&mut store, |raw| raw.generation = 2.into());
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    let unreferenced = 4096 - volume.blobs()[0].bytes;
    assert_eq!(
        (report.damage_count, report.unreferenced_bytes),
        (0, unreferenced),
        "{:?}",
        report.damage
    );
    store[padding] = 1;
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert_eq!(report.damage_count, 1);
}
