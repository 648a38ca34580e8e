//! Exactly once: counted.

use namespace::{EngineConfig, FrameWorkers};

use crate::crew::Crew;
use crate::support::{Packed, source};
use crate::{BLOCKS_PER_FRAME, by_workers, expected, namespace};

/// The same frame, wanted by every block of it on every engine at once.
fn one_frame_wanted_by_all(name: &str, engines: u16, config: &EngineConfig) -> Crew {
    let packed = Packed::new(name, "u16+zstd:1");
    let mut crew = Crew::new(engines, namespace(&packed), config);
    // The tables are seen first, so that nobody is late: each engine reads another frame.
    for member in 0..usize::from(engines) {
        crew.read(member, BLOCKS_PER_FRAME, 1).unwrap();
    }
    let before = [
        crew.sum(|counters| counters.frame_fetches),
        crew.sum(|counters| counters.frames_decoded),
        crew.sum(|counters| counters.joined_misses + counters.frame_hits),
    ];
    assert_eq!(before[..2], [1, 1], "the first frame, too, once for all");
    let mut token = 0;
    for lba in 0..BLOCKS_PER_FRAME {
        for member in 0..usize::from(engines) {
            crew.submit(member, lba, 1, token);
            token += 1;
        }
    }
    let whole = source();
    for done in crew.wait(usize::try_from(token).unwrap()) {
        done.result.unwrap();
        let lba = done.token / u64::from(engines);
        assert!(
            done.buf.unwrap().to_vec() == expected(&whole, lba, 1),
            "LBA {lba}"
        );
    }
    assert_eq!(crew.sum(|counters| counters.frame_fetches) - before[0], 1);
    assert_eq!(crew.sum(|counters| counters.frames_decoded) - before[1], 1);
    assert!(crew.is_idle());
    crew
}

#[test]
fn one_frame_is_fetched_and_decoded_once_however_many_want_it() {
    for engines in 1..=3 {
        let name = format!("once-{engines}");
        let crew = one_frame_wanted_by_all(&name, engines, &EngineConfig::default());
        assert_eq!(crew.sum(|counters| counters.frames_decoded_by_workers), 0);
        // All but the home's ask another engine: the blocks of this frame, and one of the frame before.
        let wants = u64::from(engines - 1) * (BLOCKS_PER_FRAME + 1);
        assert_eq!(crew.sum(|counters| counters.cross_reactor_wants), wants);
    }
}

#[test]
fn a_frame_that_a_worker_decodes_is_decoded_once_too() {
    let workers = FrameWorkers::start(2, 3).unwrap();
    for engines in 1..=3 {
        let name = format!("once-by-worker-{engines}");
        let crew = one_frame_wanted_by_all(&name, engines, &by_workers(&workers));
        assert_eq!(crew.sum(|counters| counters.frames_decoded_by_workers), 2);
    }
}

#[test]
fn those_who_come_while_a_frame_is_on_its_way_join() {
    let packed = Packed::new("join", "u16+lz4");
    let mut crew = Crew::new(1, namespace(&packed), &EngineConfig::default());
    crew.read(0, BLOCKS_PER_FRAME, 1).unwrap();
    for token in 0..5 {
        crew.submit(0, token, 1, token);
    }
    let counters = crew.members[0].engine.counters();
    assert_eq!(counters.joined_misses, 4);
    assert_eq!(counters.frames_decoded, 1, "the file has not answered");
    crew.wait(5);
    assert_eq!(crew.members[0].engine.counters().frames_decoded, 2);
}

#[test]
fn neighbours_are_fetched_in_one_piece() {
    let packed = Packed::new("neighbours", "u16+lz4");
    let mut crew = Crew::new(1, namespace(&packed), &EngineConfig::default());
    let whole = source();
    let blocks = 16 * u32::try_from(BLOCKS_PER_FRAME).unwrap();
    let bytes = crew.read(0, 0, blocks).unwrap();
    assert!(bytes == expected(&whole, 0, u64::from(blocks)));
    let counters = crew.members[0].engine.counters();
    assert_eq!(counters.frames_decoded, 16);
    assert_eq!(
        counters.frame_fetches, 1,
        "the stored frames are less than 1 MiB"
    );
    // The second time everything is here.
    crew.read(0, 0, blocks).unwrap();
    let again = crew.members[0].engine.counters();
    assert_eq!(again.frame_fetches, 1);
    assert_eq!(again.stored_bytes, counters.stored_bytes);
}

#[test]
fn each_frame_is_in_one_cache_only() {
    let packed = Packed::new("spread", "u16+lz4");
    let mut crew = Crew::new(3, namespace(&packed), &EngineConfig::default());
    let blocks = packed.volume().block_count();
    let frames = blocks.div_ceil(BLOCKS_PER_FRAME);
    for member in 0..3 {
        for lba in 0..blocks {
            crew.read(member, lba, 1).unwrap();
        }
        assert_eq!(crew.sum(|counters| counters.frames_decoded), frames);
    }
    let kept = |member: usize| crew.members[member].engine.counters().frames_decoded;
    let asked = |member: usize| crew.members[member].engine.counters().cross_reactor_wants;
    for member in 0..3 {
        // Each block of a frame that it does not keep was asked for; the last frame is shorter.
        let others = (frames - kept(member)) * BLOCKS_PER_FRAME;
        let short = frames * BLOCKS_PER_FRAME - blocks;
        assert!(asked(member) == others || asked(member) == others - short);
    }
}
