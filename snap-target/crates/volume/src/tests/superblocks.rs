//! Which superblock wins, and what is refused by its name.

use super::edit::{superblock_at, superblocks};
use super::sample::small_volume;
use crate::blocking::open;
use crate::format::Feature;
use crate::format::superblock::{PAYLOAD_OFFSET_MIN, SLOT_OFFSETS};
use crate::verify::verify;
use crate::{CopyState, ErrorKind, Item, VolumeError};

const SLOT_1: usize = SLOT_OFFSETS[1] as usize;

fn slot_1_of_generation_2(store: &mut [u8]) {
    let slot_0 = store[..4096].to_vec();
    store[SLOT_1..SLOT_1 + 4096].copy_from_slice(&slot_0);
    superblock_at(store, SLOT_1, |raw| {
        raw.slot = 1.into();
        raw.own_offset = (SLOT_1 as u64).into();
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
    // What a view presents did not change: the same namespace. Another view, another namespace.
    assert_eq!(first.namespace_uuid(), second.namespace_uuid());
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
            old[SLOT_1..SLOT_1 + 4096].copy_from_slice(&before);
            old[SLOT_1..SLOT_1 + torn].copy_from_slice(&whole[SLOT_1..SLOT_1 + torn]);
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
    let places = [0, SLOT_1, whole.len() - 4096];
    for (slot, at) in (0..).zip(places) {
        let mut store = whole.clone();
        store[at + 100] ^= 1;
        let volume = open(&store, store.len() as u64).unwrap();
        assert_eq!(volume.superblock().slot, u32::from(slot == 0));
        assert_eq!(volume.notices()[0].place.item, Item::Superblock(slot));
        // And when it is the only one.
        let mut store = whole.clone();
        for other in places.into_iter().filter(|other| *other != at) {
            store[other + 100] ^= 1;
        }
        let volume = open(&store, store.len() as u64).unwrap();
        assert_eq!(volume.superblock().slot, slot);
        assert_eq!(volume.notices().len(), 2);
    }
    // An object that was streamed has its tail alone, and that is no damage.
    let mut object = whole.clone();
    object[..PAYLOAD_OFFSET_MIN as usize].fill(0);
    assert!(
        open(&object, object.len() as u64)
            .unwrap()
            .notices()
            .is_empty()
    );
}

/// Who writes a file fills both slots, who streams an object neither: one that is empty beside one that is not is damage, to a reader too.
#[test]
fn one_empty_slot_is_damage_and_two_are_a_stream() {
    let (whole, _) = small_volume();
    for (emptied, damaged, damage) in [
        (&[0][..], None, &[(0, "it is empty")][..]),
        (&[1], None, &[(1, "it is empty")]),
        (&[0, 1], None, &[]),
        (
            &[0],
            Some(1),
            &[(0, "it is empty"), (1, "checksum mismatch")],
        ),
        (
            &[1],
            Some(0),
            &[(0, "checksum mismatch"), (1, "it is empty")],
        ),
    ] {
        let mut store = whole.clone();
        for slot in emptied {
            store[SLOT_OFFSETS[*slot] as usize..][..4096].fill(0);
        }
        if let Some(slot) = damaged {
            store[SLOT_OFFSETS[slot] as usize + 100] ^= 1;
        }
        let report = verify(&store, store.len() as u64, &mut |_| {}).unwrap();
        assert_eq!(report.damage_count, damage.len() as u64);
        let notices = report.volume.notices();
        assert_eq!(notices.len(), damage.len());
        for (((slot, why), said), notice) in damage.iter().zip(&report.damage).zip(notices) {
            assert_eq!(notice.place.item, Item::Superblock(*slot));
            assert!(notice.why.starts_with(why), "{}", notice.why);
            let said = said.to_string();
            let place = format!("superblock slot {slot}, at byte {}", notice.place.offset);
            assert!(said.contains(&place) && said.contains(why), "{said}");
        }
        let states = report.volume.superblock_copies();
        let states: Vec<_> = states.iter().map(|copy| copy.state).collect();
        let state = |slot| match (emptied.contains(&slot), damaged == Some(slot)) {
            (true, _) => CopyState::Empty,
            (false, true) => CopyState::Damaged,
            (false, false) => CopyState::Whole,
        };
        assert_eq!(states, [state(0), state(1), CopyState::Whole]);
        assert_eq!(report.volume.has_tail_alone(), emptied.len() == 2);
    }
}

#[test]
fn no_whole_superblock_is_damage_and_none_at_all_is_no_volume() {
    let (mut store, _) = small_volume();
    let tail = store.len() - 4096;
    for at in [0, SLOT_1, tail] {
        store[at + 200] ^= 1;
    }
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
    let mut store = vec![0; PAYLOAD_OFFSET_MIN as usize];
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
    superblock_at(&mut store, SLOT_1, |raw| raw.incompat = 1.into());
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
    seed.extend_from_slice(&volume.view().view_uuid);
    seed.extend_from_slice(&volume.view().revision_uuid);
    let mut expected = crate::identity::sha256(&seed)[..16].to_vec();
    expected[6] = 0x80 | expected[6] & 0x0F;
    expected[8] = 0x80 | expected[8] & 0x3F;
    assert_eq!(volume.namespace_uuid()[..], expected[..]);
}

/// A volume on a device that is larger, at whose end an older, larger volume left its tail: of another volume, or of a later generation of this
/// one (an older copy was restored).
#[test]
fn the_tail_is_where_the_slots_say_and_not_at_the_end_of_the_store() {
    let (new, _) = small_volume();
    let fresh = open(&new, new.len() as u64).unwrap();
    for volume_uuid in [[7; 16], fresh.superblock().volume_uuid] {
        let mut device = vec![0; new.len() + (1 << 20)];
        let last = device.len() - 4096;
        let bytes = device.len() as u64;
        device[..new.len()].copy_from_slice(&new);
        device[last..].copy_from_slice(&new[new.len() - 4096..]);
        superblock_at(&mut device, last, |raw| {
            raw.volume_uuid = volume_uuid;
            raw.generation = 9.into();
            raw.own_offset = (last as u64).into();
            raw.volume_bytes = bytes.into();
        });
        let volume = open(&device, bytes).unwrap();
        assert_eq!(volume.namespace_uuid(), fresh.namespace_uuid());
        assert_eq!(volume.superblock().generation, 1);
        assert!(volume.notices().is_empty(), "{:?}", volume.notices());
        // The tail of the volume itself is found in the middle of the device.
        device[new.len() - 4096 + 100] ^= 1;
        let volume = open(&device, bytes).unwrap();
        assert_eq!(volume.notices()[0].place.item, Item::Superblock(2));
    }
}

/// The slot of the newest generation is rotten: its tail stands in for it, wherever the store ends.
#[test]
fn a_tail_stands_in_for_its_slot() {
    let (mut store, _) = small_volume();
    slot_1_of_generation_2(&mut store);
    let tail = store.len() - 4096;
    superblock_at(&mut store, tail, |raw| raw.generation = 2.into());
    store[SLOT_1 + 100] ^= 1;
    store.extend_from_slice(&[0; 8192]);
    let volume = open(&store, store.len() as u64).unwrap();
    assert_eq!(volume.superblock().generation, 2);
    assert_eq!(volume.superblock().slot, 2);
}

#[test]
fn a_tail_of_another_volume_at_the_volumes_own_end_is_reported() {
    let (mut store, _) = small_volume();
    let tail = store.len() - 4096;
    superblock_at(&mut store, tail, |raw| raw.volume_uuid = [7; 16]);
    let volume = open(&store, store.len() as u64).unwrap();
    let why = &volume.notices()[0].why;
    assert!(
        why.contains("07070707-0707-0707-0707-070707070707"),
        "{why}"
    );
}

#[test]
fn slots_of_two_volumes_are_refused() {
    let (mut store, _) = small_volume();
    slot_1_of_generation_2(&mut store);
    superblock_at(&mut store, SLOT_1, |raw| raw.volume_uuid = [7; 16]);
    let error = open(&store, store.len() as u64).unwrap_err();
    assert!(
        matches!(error, VolumeError::VolumesMixed { second, .. } if second == [7; 16]),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
