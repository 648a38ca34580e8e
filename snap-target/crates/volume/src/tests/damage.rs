//! Truncated and damaged volumes: every change is reported, and none is presented.

use transforms::{Chain, ElementType, ViewChain};

use super::driver::Driver;
use super::sample::{Memory, Random, small_volume};
use crate::blocking::{Reader, open};
use crate::format::superblock::PAYLOAD_OFFSET_MIN;
use crate::verify::verify;
use crate::write::{ExtentSpec, Options, StreamSpec, ViewSpec, Writer};
use crate::{ErrorKind, Item, VolumeError};

/// Whether opening or verifying reports anything.
fn is_reported(store: &[u8]) -> bool {
    match verify(&store, store.len() as u64, &mut |_| {}) {
        Ok(report) => !report.is_clean(),
        Err(error) => {
            let kind = error.kind();
            assert!(
                matches!(kind, ErrorKind::Corrupt | ErrorKind::Unsupported),
                "{error}"
            );
            true
        }
    }
}

#[test]
fn a_whole_volume_is_clean() {
    let (store, presented) = small_volume();
    let mut told = 0;
    let report = verify(&store, store.len() as u64, &mut |bytes| told = bytes).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    assert_eq!(report.uncovered_bytes, 0);
    assert_eq!(report.checked_bytes, told);
    // Every byte was looked at; rounding out to granules and looking at superblocks again reads a little more.
    assert!(report.checked_bytes >= store.len() as u64);
    let (found, _) = Driver::new(0)
        .read(&report.volume, &store, 0..presented.len() as u64)
        .unwrap();
    assert!(found == presented);
}

#[test]
fn one_flipped_bit_in_each_of_10_000_places_is_reported_and_never_presented() {
    let (mut store, presented) = small_volume();
    let mut random = Random::new(10_000);
    let mut driver = Driver::new(0);
    let (mut refused, mut placed) = (0, 0);
    for round in 0..10_000 {
        let at = random.below(store.len() as u64) as usize;
        let bit = 1 << random.below(8);
        store[at] ^= bit;
        assert!(
            is_reported(&store),
            "bit {bit:#x} of byte {at} was not reported"
        );
        if round % 10 == 0
            && let Ok(volume) = open(&store, store.len() as u64)
        {
            match driver.read(&volume, &store, 0..presented.len() as u64) {
                Ok((found, _)) => assert!(found == presented, "byte {at} was presented wrong"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    // The place is where the damage is: its block alone cannot be read either.
                    let place = error.presented_byte().unwrap();
                    if let VolumeError::Checksum { place: stored, .. } = error.cause()
                        && matches!(stored.item, Item::Granule { .. })
                    {
                        let lba_bytes = u64::from(volume.lba_bytes());
                        let first = place / lba_bytes * lba_bytes;
                        let alone = driver.read(&volume, &store, first..first + lba_bytes);
                        assert!(alone.is_err(), "{error}");
                        placed += 1;
                    }
                    refused += 1;
                }
            }
        }
        store[at] ^= bit;
    }
    // Half of the volume is payload and tables of the first view.
    assert!(refused > 300 && placed > 100, "{refused}, {placed}");
    assert!(!is_reported(&store));
}

#[test]
fn a_volume_cut_at_any_512_bytes_is_refused() {
    let (store, _) = small_volume();
    for len in (0..store.len()).step_by(512) {
        let cut = store[..len].to_vec();
        let error = open(&cut, len as u64).unwrap_err();
        match error {
            VolumeError::Truncated {
                volume_bytes,
                store_bytes,
            } => {
                assert!(len >= 4096);
                assert_eq!(volume_bytes, store.len() as u64);
                assert_eq!(store_bytes, len as u64);
            }
            VolumeError::NotAVolume { .. } => assert!(len < 4096),
            other => panic!("cut at {len}: {other}"),
        }
    }
}

#[test]
fn a_volume_without_its_slots_is_refused_when_it_is_cut() {
    let (mut store, _) = small_volume();
    store[..PAYLOAD_OFFSET_MIN as usize].fill(0);
    for len in (0..store.len()).step_by(512) {
        let cut = store[..len].to_vec();
        let error = open(&cut, len as u64).unwrap_err();
        assert!(
            matches!(error, VolumeError::NotAVolume { .. }),
            "cut at {len}: {error}"
        );
    }
}

#[test]
fn a_store_larger_than_its_volume_is_opened_and_verified() {
    let (mut store, presented) = small_volume();
    let volume_bytes = store.len();
    store.resize(volume_bytes + 50_000, 0xEE);
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.damage);
    let (found, _) = Driver::new(0)
        .read(&report.volume, &store, 0..presented.len() as u64)
        .unwrap();
    assert!(found == presented);

    // The slots say where the tail is.
    store[volume_bytes - 10] ^= 1;
    let volume = open(&store, store.len() as u64).unwrap();
    assert_eq!(volume.notices()[0].place.item, Item::Superblock(2));
    assert!(is_reported(&store));
}

#[test]
fn a_store_that_cannot_be_read_in_one_place_is_reported_with_that_place() {
    struct Hole(Vec<u8>);
    impl crate::blocking::ReadAt for Hole {
        fn read_at(
            &self,
            source: crate::SourceId,
            offset: u64,
            bytes: &mut [u8],
        ) -> std::io::Result<usize> {
            if offset <= PAYLOAD_OFFSET_MIN && offset + bytes.len() as u64 > PAYLOAD_OFFSET_MIN {
                return Err(std::io::Error::other("the disk says no"));
            }
            self.0.read_at(source, offset, bytes)
        }
    }
    let (store, _) = small_volume();
    let len = store.len() as u64;
    let report = verify(&Hole(store), len, &mut |_| {}).unwrap();
    assert_eq!(report.damage_count, 1);
    let text = report.damage[0].to_string();
    assert!(
        text.contains("byte 32768") && text.contains("the disk says no"),
        "{text}"
    );
}

/// A long read is checked and decoded in parts: each granule of each part is checked, whatever the part is.
#[test]
fn a_flipped_bit_in_any_granule_of_a_long_read_is_reported() {
    const ELEMENTS: u32 = 150_001;
    let source: Vec<u8> = (0..ELEMENTS)
        .flat_map(|n| (n % 65_536).to_le_bytes())
        .collect();
    for chain in ["u16", "bitpack:17", "none"] {
        let mut memory = Memory::default();
        let options = Options {
            lba_bytes: 4096,
            threads: 1,
            volume_uuid: Some([7; 16]),
            writer: "test".into(),
        };
        let mut writer = Writer::new(&mut memory, options).unwrap();
        let chain = Chain::parse(chain, ElementType::U32).unwrap();
        let spec = StreamSpec::new(chain.clone());
        let stream = writer
            .add_stream(&spec, &mut &source[..], &mut |_| {})
            .unwrap();
        let extent = ExtentSpec::Linear {
            stream: stream.stream,
            first_element: 0,
            elements: stream.elements,
            view: ViewChain::identity(),
        };
        writer.add_view(ViewSpec::from("all"), [extent]).unwrap();
        writer.finish().unwrap();
        let mut image = memory.bytes;
        let store_bytes = image.len() as u64;
        let mut out = vec![0; source.len()];
        let stored_offset = open(&image, store_bytes).unwrap().streams()[0].stored_offset as usize;
        for granule in 0..stream.stored_bytes.div_ceil(4096) {
            let at = (stored_offset as u64 + (granule * 4096 + 17).min(stream.stored_bytes - 1))
                as usize;
            image[at] ^= 4;
            let mut reader = Reader::open(&image, store_bytes, 1 << 20).unwrap();
            let refused = reader.read(0, &mut out).unwrap_err().to_string();
            let place = format!("stream 0, granule {granule}, ");
            assert!(refused.contains(&place), "{chain}: {refused}");
            image[at] ^= 4;
        }
        let mut reader = Reader::open(&image, store_bytes, 1 << 20).unwrap();
        reader.read(0, &mut out).unwrap();
        assert!(out == source, "{chain}");
    }
}
