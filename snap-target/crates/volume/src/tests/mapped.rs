//! Streams that lie on other sources, at any byte, with and without checksums.

use std::io;
use std::path::Path;

use transforms::{Chain, ElementType, ViewChain};

use super::driver::Driver;
use super::sample::{Random, builder};
use crate::assemble::{ExternalSource, Home, Run, StreamSpec, ViewSpec};
use crate::blocking::{ReadAt, open};
use crate::verify::verify;
use crate::{ErrorKind, Item, Locator, Placement, SourceId, StreamIndex, VolumeError};

/// A volume and one other source.
struct Two {
    own: Vec<u8>,
    other: Vec<u8>,
}

impl ReadAt for Two {
    fn read_at(&self, source: SourceId, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        match source {
            SourceId::OWN => self.own.read_at(SourceId::OWN, offset, bytes),
            _ => self.other.read_at(SourceId::OWN, offset, bytes),
        }
    }
}

/// Elements of `element` from byte `start` of `other` on, as many as there are, mapped in place.
fn mapped(other: &[u8], element: ElementType, start: usize, checksums: bool) -> (Two, Vec<u8>) {
    let mut builder = builder(512);
    let source = ExternalSource {
        locator: "data/other.bin".into(),
        bytes: other.len() as u64,
        modified_ns: Some(1_700_000_000_000_000_000),
        digest: None,
    };
    let source = builder.add_source(&source).unwrap();
    let offset = start / 4096 * 4096;
    let elements = (other.len() - start) / element.bytes();
    let data = &other[start..start + elements * element.bytes()];
    let spec = StreamSpec {
        chain: Chain::parse("none", element).unwrap(),
        frame_elements: 0,
        home: Home::Mapped {
            source,
            offset: offset as u64,
            skip: other[offset..start].to_vec(),
        },
        checksums,
        gap_bytes: 0,
    };
    let mut stream = builder.begin_stream(spec).unwrap();
    stream.append(data, elements as u64, None).unwrap();
    let stream = stream.finish(None).unwrap();
    let run = Run::Linear {
        stream,
        first_element: 0,
        elements: elements as u64,
        view: ViewChain::identity(),
    };
    let spec = ViewSpec {
        name: "mapped".into(),
        ..ViewSpec::default()
    };
    builder.add_view(spec, [run]).unwrap();
    let two = Two {
        own: builder.finish().unwrap().into_bytes(),
        other: other.to_vec(),
    };
    (two, data.to_vec())
}

fn other(len: usize) -> Vec<u8> {
    let mut random = Random::new(3);
    (0..len).map(|_| random.next() as u8).collect()
}

#[test]
fn elements_may_start_at_any_byte_of_a_mapped_source() {
    let other = other(300_001);
    for (element, start) in [
        (ElementType::U8, 0),
        (ElementType::U8, 1),
        (ElementType::U32, 3),
        (ElementType::F32, 512),
        (ElementType::U32, 4096),
        (ElementType::F64, 8191),
        (ElementType::U16, 12_345),
    ] {
        for checksums in [true, false] {
            let (two, data) = mapped(&other, element, start, checksums);
            let volume = open(&two.own, two.own.len() as u64).unwrap();
            assert_eq!(
                volume.locator(SourceId(1)),
                Some(Locator::Path(Path::new("data/other.bin")))
            );
            assert_eq!(
                volume.stream(StreamIndex(0)).unwrap().is_covered(),
                checksums
            );
            assert_eq!(volume.presented_bytes(), data.len() as u64);
            let mut padded = data.clone();
            padded.resize(data.len().next_multiple_of(512), 0);
            let mut driver = Driver::new(0);
            let mut random = Random::new(start as u64);
            let blocks = padded.len() as u64 / 512;
            let mut ranges = vec![(0, blocks), (blocks - 1, 1), (0, 1)];
            for _ in 0..100 {
                let first = random.below(blocks);
                ranges.push((first, random.between(1, blocks - first)));
            }
            for (first, count) in ranges {
                let range = first * 512..(first + count) * 512;
                let (found, _) = driver.read(&volume, &two, range.clone()).unwrap();
                assert!(found == padded[range.start as usize..range.end as usize]);
            }
        }
    }
}

#[test]
fn what_changed_under_a_mapped_stream_is_reported_with_its_source() {
    let other = other(100_000);
    let (mut two, data) = mapped(&other, ElementType::U16, 5000, true);
    let volume = open(&two.own, two.own.len() as u64).unwrap();
    two.other[50_000] ^= 4;
    let mut driver = Driver::new(0);
    let error = driver
        .read(&volume, &two, 0..data.len() as u64)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let VolumeError::Checksum { place, .. } = error.cause() else {
        panic!("{error}");
    };
    assert_eq!(place.source, SourceId(1));
    assert_eq!(place.offset, 50_000 / 4096 * 4096);
    assert_eq!(
        place.item,
        Item::Granule {
            stream: 0,
            granule: 50_000 / 4096 - 1
        }
    );
    // The first byte that could not be had, not the first that was asked for.
    assert_eq!(error.presented_byte(), Some(50_000 / 4096 * 4096 - 5000));
}

#[test]
fn whole_granules_of_an_identity_stream_are_read_in_place() {
    let other = other(1 << 20);
    let (two, data) = mapped(&other, ElementType::U8, 0, true);
    let volume = open(&two.own, two.own.len() as u64).unwrap();
    let mut driver = Driver::new(1 << 20);
    driver.read(&volume, &two, 0..data.len() as u64).unwrap();
    for range in [0..4096, 8192..1 << 20, 512 << 10..(512 << 10) + (128 << 10)] {
        let (found, counters) = driver.read(&volume, &two, range.clone()).unwrap();
        assert!(found == data[range.start as usize..range.end as usize]);
        assert_eq!(counters.copied_bytes, 0);
        assert_eq!(counters.stored_bytes, range.end - range.start);
        assert_eq!(counters.delivered_bytes, range.end - range.start);
        let [fetch] = &driver.fetches[..] else {
            panic!("{:?}", driver.fetches)
        };
        assert_eq!(fetch.placement, Placement::Direct { out_offset: 0 });
        assert_eq!(fetch.offset, range.start);
    }
}

/// Streams without checksums tell nothing of the bytes between them: the digest of the whole source does.
#[test]
fn verification_hashes_sources_whose_digest_was_recorded() {
    let other = other(20_000);
    for right in [true, false] {
        let mut builder = builder(512);
        let mut digest = crate::identity::sha256(&other);
        digest[0] ^= u8::from(!right);
        builder
            .add_source(&ExternalSource {
                locator: "data/other.bin".into(),
                bytes: other.len() as u64,
                modified_ns: None,
                digest: Some(digest),
            })
            .unwrap();
        let spec = ViewSpec {
            name: "zeros".into(),
            ..ViewSpec::default()
        };
        builder.add_view(spec, [Run::Zero(512)]).unwrap();
        let two = Two {
            own: builder.finish().unwrap().into_bytes(),
            other: other.clone(),
        };
        let report = verify(&two, two.own.len() as u64, &mut |_| {}).unwrap();
        let told: Vec<_> = report.damage.iter().map(ToString::to_string).collect();
        let expected = ["content, at byte 0 of source 1: SHA-256 mismatch"];
        assert_eq!(told, expected[usize::from(right)..]);
    }
}
