//! Which superblock wins, and what is refused by its name.

use super::edit::{superblock_at, superblocks};
use super::sample::small_volume;
use crate::blocking::open;
use crate::format::Feature;
use crate::{ErrorKind, Item, VolumeError};

fn slot_1_of_generation_2(store: &mut [u8]) {
    let slot_0 = store[..4096].to_vec();
    store[4096..8192].copy_from_slice(&slot_0);
    superblock_at(store, 4096, |raw| {
        raw.slot = 1.into();
        raw.own_offset = 4096.into();
        raw.generation = 2.into();
    });
}

#[test]
fn the_highest_generation_wins() {
    let (mut store, _) = small_volume();
    let first = open(&store, store.len() as u64).unwrap();
    slot_1_of_generation_2(&mut store);
    let second = open(&store, store.len() as u64).unwrap();
    assert_eq!(first.superblock().generation, 1);
    assert_eq!(second.superblock().generation, 2);
    // New generation, new namespace; another view, another namespace.
    assert_ne!(first.namespace_uuid(), second.namespace_uuid());
    let narrow = first.with_view_named("narrow").unwrap();
    assert_ne!(first.namespace_uuid(), narrow.namespace_uuid());
    // The tail is of the first generation still: the second was never finished.
    assert!(second.notices()[0].why.contains("generation 1"));
}

#[test]
fn a_slot_torn_at_any_sector_leaves_the_other() {
    let (mut old, _) = small_volume();
    // What the slot held before is zeros, or an older generation.
    for before in [vec![0u8; 4096], vec![0x5A; 4096]] {
        let mut whole = old.clone();
        slot_1_of_generation_2(&mut whole);
        for torn in (512..4096).step_by(512) {
            old[4096..8192].copy_from_slice(&before);
            old[4096..4096 + torn].copy_from_slice(&whole[4096..4096 + torn]);
            let volume = open(&old, old.len() as u64).unwrap();
            assert_eq!(volume.superblock().generation, 1);
            assert_eq!(volume.superblock().slot, 0);
            let [notice] = volume.notices() else {
                panic!("{:?}", volume.notices())
            };
            assert_eq!(notice.place.item, Item::Superblock(1));
        }
    }
}

#[test]
fn any_one_whole_superblock_is_enough() {
    let (whole, _) = small_volume();
    let tail = whole.len() - 4096;
    for (at, slot) in [(0, 0), (tail, 2)] {
        let mut store = whole.clone();
        store[at + 100] ^= 1;
        let volume = open(&store, store.len() as u64).unwrap();
        assert_eq!(volume.superblock().slot, 2 - slot);
        assert_eq!(volume.notices()[0].place.item, Item::Superblock(slot));
    }
    // An object that was streamed has its tail alone, and that is no damage.
    let mut object = whole.clone();
    object[..8192].fill(0);
    assert!(
        open(&object, object.len() as u64)
            .unwrap()
            .notices()
            .is_empty()
    );
}

#[test]
fn no_whole_superblock_is_damage_and_none_at_all_is_no_volume() {
    let (mut store, _) = small_volume();
    let tail = store.len() - 4096;
    store[200] ^= 1;
    store[tail + 200] ^= 1;
    let error = open(&store, store.len() as u64).unwrap_err();
    assert!(
        matches!(error, VolumeError::SuperblocksDamaged { .. }),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    for store in [vec![], vec![0; 100], vec![0; 1 << 16], vec![7; 1 << 16]] {
        let error = open(&store, store.len() as u64).unwrap_err();
        assert!(matches!(error, VolumeError::NotAVolume { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn a_volume_inside_another_file_is_not_taken_for_one() {
    let (inner, _) = small_volume();
    // A writer killed while it packed a volume file: two empty slots, and the inner volume up to its last byte.
    let mut store = vec![0; 8192];
    store.extend_from_slice(&inner);
    let error = open(&store, store.len() as u64).unwrap_err();
    assert!(
        matches!(error, VolumeError::SuperblocksDamaged { .. }),
        "{error}"
    );
}

#[test]
fn equal_generations_must_agree() {
    let (mut store, _) = small_volume();
    superblock_at(&mut store, 0, |raw| raw.lba_bytes = 4096.into());
    let error = open(&store, store.len() as u64).unwrap_err();
    assert!(
        matches!(
            error,
            VolumeError::SuperblocksConflict { generation: 1, .. }
        ),
        "{error}"
    );
}

#[test]
fn unknown_versions_and_features_are_refused_by_name() {
    let (whole, _) = small_volume();
    let mut store = whole.clone();
    superblocks(&mut store, |raw| raw.version = 7.into());
    let error = open(&store, store.len() as u64).unwrap_err();
    assert!(
        matches!(error, VolumeError::Version { found: 7, known: 1 }),
        "{error}"
    );
    for bit in 0..64 {
        let mut store = whole.clone();
        superblocks(&mut store, |raw| raw.incompat = (1 << bit).into());
        let error = open(&store, store.len() as u64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let VolumeError::Features { bits, names } = &error else {
            panic!("{error}")
        };
        assert_eq!(*bits, 1 << bit);
        assert!(names.contains(&format!("bit {bit}")), "{names}");
        if let Some(feature) = Feature::ALL.get(bit as usize) {
            assert!(names.contains(&feature.to_string()), "{names}");
        }
    }
    // The newest is refused: an older generation that could be read is not presented in its place.
    let mut store = whole.clone();
    slot_1_of_generation_2(&mut store);
    superblock_at(&mut store, 4096, |raw| raw.incompat = 1.into());
    let error = open(&store, store.len() as u64).unwrap_err();
    assert!(error.to_string().contains("MUTABLE"), "{error}");
    // Compatible features change nothing.
    let mut store = whole;
    superblocks(&mut store, |raw| {
        raw.compat = u64::MAX.into();
        raw.ro_compat = 5.into();
    });
    assert!(open(&store, store.len() as u64).is_ok());
}

#[test]
fn another_block_size_is_refused() {
    let (store, _) = small_volume();
    let volume = open(&store, store.len() as u64).unwrap();
    assert!(volume.require_lba_bytes(512).is_ok());
    let error = volume.require_lba_bytes(4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("512") && error.to_string().contains("4096"));
}

#[test]
fn the_namespace_uuid_is_the_documented_function() {
    let (store, _) = small_volume();
    let volume = open(&store, store.len() as u64).unwrap();
    let mut seed = b"xio namespace uuid 1".to_vec();
    seed.extend_from_slice(&volume.superblock().volume_uuid);
    seed.extend_from_slice(&1u64.to_le_bytes());
    seed.extend_from_slice(&volume.view().view_uuid);
    let mut expected = crate::identity::sha256(&seed)[..16].to_vec();
    expected[6] = 0x80 | expected[6] & 0x0F;
    expected[8] = 0x80 | expected[8] & 0x3F;
    assert_eq!(volume.namespace_uuid()[..], expected[..]);
}
