//! A frame that cannot be had: everyone who waits is told the same, once, and nothing is left behind.

use namespace::{EngineConfig, FrameWorkers, Namespace, NamespaceError};
use reactor::Errno;
use store::decorate::{Fault, Faulty, On, What, When};
use volume::VolumeError;

use crate::crew::Crew;
use crate::support::{Packed, source};
use crate::{BLOCK, BLOCKS_PER_FRAME, by_workers, expected};

/// Where the first frame is stored.
fn first_frame(packed: &Packed) -> u64 {
    packed.volume().streams()[0].stored_offset
}

/// A flipped bit in it.
fn flipped(packed: &Packed) -> What {
    What::Corrupt {
        offset: first_frame(packed) + 808,
        bits: 0x10,
    }
}

fn crew_over(packed: &Packed, what: What, config: &EngineConfig) -> Crew {
    let fault = Fault {
        on: On::Read,
        range: first_frame(packed)..first_frame(packed) + BLOCK,
        when: When::Always,
        what,
    };
    let faulty = Faulty::over(vec![fault], packed.store()).unwrap();
    let namespace = Namespace::of_view(1, packed.volume(), vec![faulty.store()]);
    Crew::new(3, namespace, config)
}

/// The errors of the reads of every block of the first frame on every engine.
fn errors(crew: &mut Crew) -> Vec<(u64, NamespaceError)> {
    let mut token = 0;
    for lba in 0..BLOCKS_PER_FRAME {
        for member in 0..3 {
            crew.submit(member, lba, 1, token);
            token += 1;
        }
    }
    let done = crew.wait(usize::try_from(token).unwrap());
    let errors = done.into_iter().map(|done| {
        assert!(done.buf.is_none());
        (done.token / 3, done.result.unwrap_err())
    });
    errors.collect()
}

/// What is far from the damage reads well, on every engine.
fn the_rest_is_well(crew: &mut Crew, packed: &Packed) {
    let whole = source();
    let last = packed.volume().block_count() - 1;
    for member in 0..3 {
        assert!(crew.read(member, last, 1).unwrap() == expected(&whole, last, 1));
    }
    assert!(crew.is_idle());
}

fn a_damaged_frame_fails_all(name: &str, config: &EngineConfig) -> u64 {
    let packed = Packed::new(name, "u16+zstd:1");
    let mut crew = crew_over(&packed, flipped(&packed), config);
    let mut causes = Vec::new();
    for (lba, error) in errors(&mut crew) {
        assert_eq!(error.first_lba(4096), Some(lba), "{error}");
        let NamespaceError::Volume { nsid: 1, cause } = error else {
            panic!("{error}")
        };
        assert_eq!(cause.presented_byte(), Some(lba * BLOCK));
        let VolumeError::Checksum { place, .. } = cause.cause() else {
            panic!("{cause}")
        };
        assert_eq!(place.offset, first_frame(&packed));
        causes.push(cause.cause().to_string());
    }
    assert!(causes.iter().all(|cause| *cause == causes[0]), "{causes:?}");
    assert!(
        causes[0].starts_with("stream 0, frame 0, at byte"),
        "{causes:?}"
    );
    assert_eq!(crew.sum(|counters| counters.frames_decoded), 0);
    the_rest_is_well(&mut crew, &packed);
    crew.sum(|counters| counters.frames_decoded_by_workers)
}

#[test]
fn a_damaged_frame_fails_everyone_with_the_same_place() {
    let by_workers = a_damaged_frame_fails_all("damaged", &EngineConfig::default());
    assert_eq!(by_workers, 0);
}

#[test]
fn so_does_one_that_a_worker_finds_damaged() {
    let workers = FrameWorkers::start(1, 3).unwrap();
    assert!(a_damaged_frame_fails_all("damaged-by-worker", &crate::by_workers(&workers)) > 0);
}

#[test]
fn a_store_that_fails_or_is_short_fails_everyone() {
    let workers = FrameWorkers::start(1, 3).unwrap();
    for config in [EngineConfig::default(), by_workers(&workers)] {
        for what in [What::Error(Errno::EIO), What::Short { missing: 1 }] {
            let packed = Packed::new("failing-store", "u16+lz4");
            let mut crew = crew_over(&packed, what, &config);
            for (_, error) in errors(&mut crew) {
                match what {
                    What::Short { .. } => assert!(
                        matches!(error, NamespaceError::Short { nsid: 1, wanted, got }
                            if wanted == got as usize + 1),
                        "{error}"
                    ),
                    _ => assert!(
                        matches!(error, NamespaceError::Store { nsid: 1, .. }),
                        "{error}"
                    ),
                }
            }
            assert_eq!(crew.sum(|counters| counters.frames_decoded), 0);
            the_rest_is_well(&mut crew, &packed);
        }
    }
}

/// A read of several frames of which one is damaged ends once, with that error, when its other frames have come; its slot and its
/// answer's memory serve the next.
#[test]
fn a_read_that_has_failed_ends_after_its_other_frames() {
    let packed = Packed::new("failed-late", "u16+lz4");
    let mut crew = crew_over(&packed, flipped(&packed), &EngineConfig::default());
    let whole = source();
    for round in 0..20 {
        let member = round % 3;
        let error = crew.read(member, 0, 256).map(|_bytes| ()).unwrap_err();
        assert_eq!(error.first_lba(4096), Some(0), "{error}");
        let bytes = crew.read(member, 64, 128).unwrap();
        assert!(bytes == expected(&whole, 64, 128));
    }
    assert!(crew.is_idle());
}
