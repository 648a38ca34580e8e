//! Arbitrary bytes, and arbitrary contents behind right checksums: nothing panics, and memory stays bounded.

use proptest::prelude::*;

use super::driver::Driver;
use super::edit;
use super::sample::small_volume;
use crate::blocking::open;
use crate::format::raw::{BLOCK_BYTES, MAGIC};
use crate::format::superblock::PAYLOAD_OFFSET_MIN;
use crate::limits::{CACHE_BYTES_MIN, FRAME_PACKED_BYTES_MAX};
use crate::verify::verify;
use crate::{ErrorKind, ViewIndex};

/// Opens, verifies, and reads every view in pieces.
fn exercise(store: &[u8]) {
    let Ok(volume) = open(store, store.len() as u64) else {
        return;
    };
    let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
    assert!(report.damage_count >= report.damage.len() as u64);
    let mut driver = Driver::new(0);
    for view in 0..volume.views().len() as u32 {
        let volume = volume.with_view(ViewIndex(view)).unwrap();
        let blocks = volume.block_count() * u64::from(volume.lba_bytes());
        let step = (volume.presented_bytes() / 7).clamp(1, 50_000);
        for piece in 0..8 {
            let from = (piece * step).min(blocks);
            let to = (from + step).min(blocks);
            if let Err(error) = driver.read(&volume, &store, from..to) {
                let kind = error.kind();
                let is_damage = matches!(kind, ErrorKind::Corrupt | ErrorKind::Unsupported);
                assert!(is_damage, "{error}");
            }
        }
    }
    let used = driver.cache.counters().used_bytes as u64;
    assert!(used <= CACHE_BYTES_MIN as u64 + FRAME_PACKED_BYTES_MAX);
}

/// Makes every checksum right that can be: of superblocks, and of blocks that are a table's in the original.
fn reseal(store: &mut [u8], tables: &[usize]) {
    let tail = store.len() - BLOCK_BYTES;
    for at in [0, tail] {
        edit::superblock_at(store, at, |_| {});
    }
    for at in tables {
        edit::reseal(store, *at);
    }
}

/// Where table blocks are: between the payload and the tail, what has a right CRC.
fn table_blocks(store: &[u8]) -> Vec<usize> {
    (PAYLOAD_OFFSET_MIN as usize..store.len() - BLOCK_BYTES)
        .step_by(BLOCK_BYTES)
        .filter(|at| {
            let block = &store[*at..*at + BLOCK_BYTES];
            let crc = crate::checksum::crc32c(&block[4..]);
            block[..4] == crc.to_le_bytes()
        })
        .collect()
}

/// Values that break arithmetic more often than others do.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(u64::MAX / 2),
        Just(u64::from(u32::MAX)),
        any::<u64>(),
        0u64..100_000,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_volume_with_anything_in_its_tables(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..300, value(), 1usize..=8), 1..6),
    ) {
        let (mut store, _) = small_volume();
        let tables = table_blocks(&store);
        assert!(tables.len() > 10);
        let mut places = tables.clone();
        places.extend([0, store.len() - BLOCK_BYTES]);
        for (which, at, value, len) in edits {
            let at = which.get(&places) + at;
            store[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        reseal(&mut store, &tables);
        exercise(&store);
    }

    #[test]
    fn anything_with_a_superblock_at_its_front(
        mut bytes in prop::collection::vec(any::<u8>(), 12_288..40_000),
        sane in any::<bool>(),
    ) {
        bytes.truncate(bytes.len() / BLOCK_BYTES * BLOCK_BYTES);
        bytes[..8].copy_from_slice(&MAGIC);
        if sane {
            // Past the checks of the superblock itself, into the directory.
            bytes[8..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            bytes[32..40].fill(0);
            bytes[64..72].fill(0);
            let len = bytes.len() as u64;
            bytes[72..80].copy_from_slice(&len.to_le_bytes());
            bytes[80..96].fill(0);
            bytes[81] = 2;
            bytes[640..4092].fill(0);
        }
        edit::superblock_at(&mut bytes, 0, |_| {});
        exercise(&bytes);
    }

    #[test]
    fn anything_at_all(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        exercise(&bytes);
    }
}
