//! A writer that is cut off at any point leaves nothing that a reader takes for a volume, unless all of the volume is there.

use super::*;
use crate::{Opening, VolumeError};

/// The smallest piece that storage writes whole.
const SECTOR_BYTES: usize = 512;

fn open(image: &[u8]) -> Result<(), VolumeError> {
    let mut opening = Opening::new(image.len() as u64);
    while let Some(fetch) = opening.next_fetch() {
        let start = usize::try_from(fetch.offset).unwrap();
        opening.fetched(fetch.id, &image[start..start + fetch.len as usize])?;
    }
    opening.finish().map(|_| ())
}

fn recorded() -> Recorder {
    let mut recorder = Recorder::default();
    let source = values(300_000, 50_000);
    pack(
        &mut recorder,
        2,
        &spec("u16+lz4", ElementType::U32, 65_536),
        &source,
    )
    .unwrap();
    recorder
}

/// Whatever `image` holds, a reader refuses it as no volume, or it is `whole` but for superblocks that are not there yet.
fn check(image: &[u8], whole: &[u8]) -> bool {
    match open(image) {
        Err(VolumeError::NotAVolume { .. } | VolumeError::SuperblocksDamaged { .. }) => false,
        Err(other) => panic!("another error than `not a volume`: {other}"),
        Ok(()) => {
            assert_eq!(image.len(), whole.len());
            let tables_end = whole.len() - 4096;
            assert!(
                image[32_768..tables_end] == whole[32_768..tables_end],
                "taken for a volume before all of it was there"
            );
            true
        }
    }
}

#[test]
fn cut_off_between_and_inside_writes() {
    let recorder = recorded();
    let whole = recorder.image();
    let mut image = Vec::new();
    let (mut refused, mut taken) = (0, 0);
    let mut count = |is_taken: bool| if is_taken { taken += 1 } else { refused += 1 };
    for action in &recorder.actions {
        count(check(&image, &whole));
        if let Action::Write { offset, bytes } = action {
            // A few places inside of long writes, every sector of short ones.
            let step = (bytes.len() / SECTOR_BYTES / 8).max(1) * SECTOR_BYTES;
            for torn in (0..bytes.len()).step_by(step) {
                let mut image = image.clone();
                apply(&mut image, *offset, &bytes[..torn]);
                count(check(&image, &whole));
            }
            apply(&mut image, *offset, bytes);
        }
    }
    assert_eq!(image, whole);
    assert!(open(&whole).is_ok());
    // Superblocks are 8 sectors each; from the tail on it is a volume.
    assert!(refused > 20, "{refused}");
    assert!((1..=22).contains(&taken), "{taken}");
}

#[test]
fn writes_that_no_sync_ordered_are_lost_in_any_combination() {
    let recorder = recorded();
    let whole = recorder.image();
    let mut state = 7u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut seen_refused = false;
    for _ in 0..200 {
        // Power is lost at some action; everything before the last sync is there, and any part of what came after it.
        let end = usize::try_from(random()).unwrap() % (recorder.actions.len() + 1);
        let (before, _) = recorder.actions.split_at(end);
        let synced = before
            .iter()
            .rposition(|action| *action == Action::Sync)
            .unwrap_or(0);
        let mut image = Vec::new();
        for (at, action) in before.iter().enumerate() {
            let Action::Write { offset, bytes } = action else {
                continue;
            };
            if at < synced {
                apply(&mut image, *offset, bytes);
                continue;
            }
            // The file's length may have grown though the bytes are not there.
            apply(&mut image, *offset, &vec![0; bytes.len()]);
            for (sector, piece) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if random() % 2 == 0 {
                    apply(&mut image, offset + (sector * SECTOR_BYTES) as u64, piece);
                }
            }
        }
        seen_refused |= !check(&image, &whole);
    }
    assert!(seen_refused);
}

#[test]
fn superblocks_come_last_each_after_a_sync() {
    let recorder = recorded();
    let volume_bytes = recorder.image().len() as u64;
    let [
        ..,
        before_tail,
        tail,
        after_tail,
        slot_1,
        after_slot_1,
        slot_0,
        after_slot_0,
        publish,
    ] = &recorder.actions[..]
    else {
        panic!("too few actions");
    };
    let place = |action: &Action| match action {
        Action::Write { offset, bytes } => Some((*offset, bytes.len())),
        _ => None,
    };
    assert_eq!(place(tail), Some((volume_bytes - 4096, 4096)));
    assert_eq!(place(slot_1), Some((16_384, 4096)));
    assert_eq!(place(slot_0), Some((0, 4096)));
    for sync in [before_tail, after_tail, after_slot_1, after_slot_0] {
        assert_eq!(*sync, Action::Sync);
    }
    assert_eq!(*publish, Action::Publish);
}
