//! The golden volumes of `floatsplit`.
//!
//! Which planes are coded, and by which codes, is the writer's choice: what is pinned for ever is that these files decode to what the rules of their
//! elements say, and not that a later writer makes the same bytes again.

use std::fs;
use std::num::Wrapping;

use transforms::ElementType::{Bf16, F16, F32, F64};
use transforms::{Chain, ElementType};

use super::golden::{Golden, Made, Making, assert_recorded, folder, of_chains};
use super::sample::Memory;
use crate::blocking::Reader;
use crate::write::StreamSpec;
use crate::{StreamIndex, Volume};

/// Few exponents, planes of one byte, planes of noise, and a last frame that is shorter.
const GOLDEN: [Golden; 4] = [
    ("floatsplit", Bf16, 16, 0, 9001),
    ("floatsplit", F16, 11, 0, 9001),
    ("floatsplit", F32, 25, 0, 5003),
    ("floatsplit", F64, 20, 0, 3001),
];

/// Type, source bytes of a frame: three groups of 16,384 elements in the first and in the last, of which the third is short and no multiple of
/// six; two in the second, whose last frame is one that is short.
const BLOCKS: [(ElementType, u64); 3] = [(Bf16, 128 << 10), (Bf16, 64 << 10), (F32, 192 << 10)];
const BLOCKS_ELEMENTS: u64 = 45_003;

fn made() -> Made {
    of_chains(*b"golden, floats\x01\x01", &GOLDEN)
}

/// An element by its turned bytes, the highest first: symbols 17 apart whose shares halve, the zeros in front of a hash, 7, and noise.
fn blocks_element(element: ElementType, n: u64) -> Vec<u8> {
    let hash = (Wrapping(n as u32) * Wrapping(2_654_435_761)).0;
    let exponent = 17 * (n + 1).trailing_zeros().min(14);
    let turned: u32 = exponent << 24 | hash.leading_zeros() << 16 | 7 << 8 | hash >> 8 & 255;
    match element {
        Bf16 => ((turned >> 16) as u16)
            .rotate_right(1)
            .to_le_bytes()
            .to_vec(),
        _ => turned.rotate_right(1).to_le_bytes().to_vec(),
    }
}

fn made_of_blocks() -> Made {
    let mut memory = Memory::default();
    let mut making = Making::new(&mut memory, *b"golden, blocks \x01");
    for (element, frame_bytes) in BLOCKS {
        let data: Vec<u8> = (0..BLOCKS_ELEMENTS)
            .flat_map(|n| blocks_element(element, n))
            .collect();
        let spec = StreamSpec {
            frame_bytes,
            ..StreamSpec::new(Chain::parse("floatsplit", element).unwrap())
        };
        let name = format!("{element}, frames of {frame_bytes}");
        // Over the end of the first group, and into the last one.
        let runs = [(16_380, 9), (32_760, 20), (45_000, 3)];
        making.stream(name, &spec, element, data, &runs);
    }
    let views = making.finish();
    Made {
        volume: memory.bytes,
        views,
    }
}

#[test]
#[ignore = "makes files that are made once"]
fn make_the_golden_volumes_of_floatsplit() {
    made().write("floatsplit.vol");
    made_of_blocks().write("floatsplit-blocks.vol");
}

#[test]
fn the_golden_volumes_of_floatsplit_are_recorded_by_their_rules() {
    assert_recorded("floatsplit.vol", &made());
    assert_recorded("floatsplit-blocks.vol", &made_of_blocks());
}

/// What a frame says of a plane.
#[derive(Debug, PartialEq)]
enum Plane {
    Raw,
    Constant(u8),
    /// The most bits of a code, and how many gaps of 16 symbols are told.
    Coded {
        bits_max: u8,
        gaps: usize,
    },
}

/// The planes of a frame, lowest first: read here, by docs/format.md alone.
fn planes(frame: &[u8], width: usize, elements: u32) -> Vec<Plane> {
    let [n0, n1, n2, coded] = frame[..4] else {
        panic!("a head");
    };
    assert_eq!(u32::from_le_bytes([n0, n1, n2, 0]), elements);
    let mut at = 4;
    let mut planes = Vec::new();
    for plane in 0..width {
        if coded >> plane & 1 == 0 {
            planes.push(Plane::Raw);
            continue;
        }
        let (first, last) = (usize::from(frame[at]), usize::from(frame[at + 1]));
        at += 2;
        if first == last {
            planes.push(Plane::Constant(frame[at - 2]));
            continue;
        }
        let (mut symbol, mut half, mut gaps, mut bits_max) = (first, 0, 0, 0);
        while symbol <= last {
            let nibble = frame[at + half / 2] >> (4 * (half % 2)) & 15;
            half += 1;
            if nibble == 15 {
                gaps += 1;
                symbol += 16;
            } else {
                bits_max = bits_max.max(nibble);
                symbol += 1;
            }
        }
        at += half.div_ceil(2);
        planes.push(Plane::Coded { bits_max, gaps });
    }
    planes
}

/// Otherwise the file would pin less than it is there for.
#[test]
fn the_golden_volume_of_blocks_has_what_small_frames_have_not() {
    let store = fs::read(folder().join("floatsplit-blocks.vol")).unwrap();
    let path = folder().join("floatsplit-blocks.vol");
    let reader = Reader::open_file(&path, 1 << 20).unwrap();
    let first_frame = |volume: &Volume, stream| {
        let stream = volume.stream(StreamIndex(stream)).unwrap();
        store[stream.stored_offset as usize..].to_vec()
    };
    let high = Plane::Coded {
        bits_max: 11,
        gaps: 14,
    };
    for (stream, elements) in [(0, 45_003), (1, 32_768)] {
        let frame = first_frame(reader.volume(), stream);
        let found = planes(&frame, 2, elements);
        assert_eq!(found[1], high);
        assert!(matches!(
            found[0],
            Plane::Coded {
                bits_max: 10..=11,
                ..
            }
        ));
    }
    let found = planes(&first_frame(reader.volume(), 2), 4, 45_003);
    assert_eq!(found[..2], [Plane::Raw, Plane::Constant(7)]);
    assert!(matches!(
        found[2],
        Plane::Coded {
            bits_max: 10..=11,
            ..
        }
    ));
    assert_eq!(found[3], high);
}
