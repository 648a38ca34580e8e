//! A namespace of a thousand extents of 1 to 5,000 bytes, each of another chain: every logical block alone, and in runs.

use transforms::ViewChain;

use super::driver::Driver;
use super::sample::{Random, Sample, builder, samples, store_sample};
use crate::StreamIndex;
use crate::assemble::{Run, ViewSpec};
use crate::blocking::open;

/// What a run presents, computed from the sample alone.
struct Piece {
    run: Run,
    presented: Vec<u8>,
}

fn linear(random: &mut Random, sample: &Sample, stream: StreamIndex) -> Piece {
    let size = sample.element_bytes();
    // Where the elements fit, some extents present them narrower or wider.
    let source = sample.chain.source();
    let view = match (source.name(), random.below(3)) {
        ("u32", 0) => "u64",
        ("u16", 0) => "u32",
        ("i32", 0) => "i64",
        ("u8", 0) => "u16",
        _ => "none",
    };
    let view = ViewChain::parse(view, source).unwrap();
    let presented_size = view.presented(source).unwrap().unit_bytes();
    let elements = random.between(1, 5000).div_ceil(presented_size).max(1);
    let elements = elements.min(5000 / presented_size).min(sample.count());
    let first_element = random.below(sample.count() - elements + 1);
    let from = (first_element * size) as usize;
    let to = ((first_element + elements) * size) as usize;
    let mut presented = Vec::new();
    for element in sample.data[from..to].chunks(size as usize) {
        // The sample's integers are not negative: widening adds zeros.
        let mut wide = [0; 8];
        wide[..element.len()].copy_from_slice(element);
        presented.extend_from_slice(&wide[..presented_size as usize]);
    }
    Piece {
        run: Run::Linear {
            stream,
            first_element,
            elements,
            view,
        },
        presented,
    }
}

fn pieces(random: &mut Random, samples: &[Sample], streams: &[StreamIndex]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for _ in 0..1000 {
        let piece = match random.below(20) {
            0 => {
                let bytes = random.between(1, 5000);
                Piece {
                    run: Run::Zero(bytes),
                    presented: vec![0; bytes as usize],
                }
            }
            1 => {
                let data: Vec<u8> = (0..random.between(1, 40)).map(|n| n as u8 + 1).collect();
                Piece {
                    run: Run::Inline(data.clone()),
                    presented: data,
                }
            }
            _ => {
                let which = random.below(samples.len() as u64) as usize;
                linear(random, &samples[which], streams[which])
            }
        };
        pieces.push(piece);
    }
    pieces
}

fn every_block_alone_and_in_runs(lba_bytes: u32, cache_bytes: usize, runs: u64) {
    let mut random = Random::new(u64::from(lba_bytes));
    let samples = samples(&mut random, 20_000);
    let mut builder = builder(lba_bytes);
    let streams: Vec<_> = (0..)
        .zip(&samples)
        .map(|(n, sample)| store_sample(&mut builder, sample, 512 + 256 * (n % 5)))
        .collect();
    let pieces = pieces(&mut random, &samples, &streams);
    let expected: Vec<u8> = pieces
        .iter()
        .flat_map(|piece| piece.presented.clone())
        .collect();
    let spec = ViewSpec {
        name: "whole".into(),
        ..ViewSpec::default()
    };
    builder
        .add_view(spec, pieces.into_iter().map(|piece| piece.run))
        .unwrap();
    let store = builder.finish().unwrap().into_bytes();
    let volume = open(&store, store.len() as u64).unwrap();
    assert_eq!(volume.view().extents.entry_count(), 1000);
    assert_eq!(volume.presented_bytes(), expected.len() as u64);
    assert!(volume.notices().is_empty());

    let lba_bytes = u64::from(lba_bytes);
    let blocks = volume.block_count();
    assert_eq!(blocks, (expected.len() as u64).div_ceil(lba_bytes));
    let mut padded = expected;
    padded.resize((blocks * lba_bytes) as usize, 0);

    let mut driver = Driver::new(cache_bytes);
    let mut check = |first: u64, count: u64| {
        let range = first * lba_bytes..(first + count) * lba_bytes;
        let (found, counters) = driver.read(&volume, &store, range.clone()).unwrap();
        let expected = &padded[range.start as usize..range.end as usize];
        assert!(found == expected, "blocks {first} and {count} of them");
        assert_eq!(counters.delivered_bytes, range.end - range.start);
    };
    for block in 0..blocks {
        check(block, 1);
    }
    for _ in 0..runs {
        let first = random.below(blocks);
        let count = random.between(1, 64.min(blocks - first));
        check(first, count);
    }
    check(0, blocks);
}

#[test]
fn blocks_of_4096_with_room_in_the_cache() {
    every_block_alone_and_in_runs(4096, 64 << 20, 300);
}

#[test]
fn blocks_of_512_with_the_smallest_cache() {
    every_block_alone_and_in_runs(512, 0, 300);
}
