//! The cache's budget holds whatever others hold; and what ends early leaves nobody waiting.

use namespace::{EngineConfig, FrameConfig, FrameWorkers};
use reactor::Wait;
use volume::limits::{CACHE_BLOCKS_BYTES_MIN, CACHE_BYTES_MIN};

use crate::crew::Crew;
use crate::support::{Packed, source};
use crate::{BLOCKS_PER_FRAME, FRAME_BYTES, by_workers, expected, namespace};

/// A home whose frames are all held by an engine that has not come round to them stops, sleeps, and is woken when they are let go.
#[test]
fn frames_that_others_hold_are_waited_for_asleep() {
    let packed = Packed::new("held-frames", "lz4");
    let config = EngineConfig {
        // Raised to the least that a cache has.
        cache_bytes: 0,
        frames: FrameConfig {
            turn_decode_ns_max: u64::MAX,
            ..FrameConfig::default()
        },
        ..EngineConfig::default()
    };
    let mut crew = Crew::new(2, namespace(&packed), &config);
    // Both see the tables, and we whose the first frames are.
    for member in 0..2 {
        crew.read(member, 0, 1).unwrap();
    }
    let wants =
        |crew: &Crew, member: usize| crew.members[member].engine.counters().cross_reactor_wants;
    let asker = usize::from(wants(&crew, 0) == 0);
    let home = 1 - asker;
    assert_eq!((wants(&crew, asker), wants(&crew, home)), (1, 0));

    // All 16 frames of the group; the cache has room for 15 at a time.
    let group = 16 * BLOCKS_PER_FRAME;
    let room = (CACHE_BYTES_MIN - CACHE_BLOCKS_BYTES_MIN) as u64 / FRAME_BYTES;
    assert_eq!(room, 15);
    crew.submit(asker, 0, u32::try_from(group).unwrap(), 7);
    while wants(&crew, asker) < 1 + 15 {
        crew.turn_one(asker);
    }
    while crew.members[home].engine.counters().frames_decoded < room {
        crew.turn_one(home);
    }
    for _ in 0..10 {
        crew.turn_one(home);
    }
    let engine = &crew.members[home].engine;
    assert_eq!(
        engine.counters().frames_decoded,
        room,
        "the last one finds no room"
    );
    assert!(engine.cache_counters().used_bytes <= CACHE_BYTES_MIN);
    assert!(!engine.has_work(), "it may sleep");
    assert!(!crew.members[home].ring.turn(Wait::Poll).unwrap().notified);

    crew.turn_one(asker);
    assert!(
        crew.members[home].ring.turn(Wait::Poll).unwrap().notified,
        "it is woken"
    );
    let done = crew.wait(1).pop().unwrap();
    assert!(done.buf.unwrap().to_vec() == expected(&source(), 0, group));
    let used = crew.members[home].engine.cache_counters().used_bytes_max;
    assert!(used <= CACHE_BYTES_MIN, "{used}");
}

/// Engines that end while workers have frames of theirs and others wait: the workers finish, and nothing is touched that is gone.
#[test]
fn engines_may_end_while_workers_have_their_frames() {
    let packed = Packed::new("ended", "zstd:1");
    let workers = FrameWorkers::start(2, 2).unwrap();
    for turns in 0..40 {
        let mut crew = Crew::new(2, namespace(&packed), &by_workers(&workers));
        for member in 0..2 {
            for frame in 0..16 {
                crew.submit(member, frame * BLOCKS_PER_FRAME, 1, frame);
            }
        }
        for _ in 0..turns * 5 {
            crew.turn();
        }
        // One first, then the other.
        crew.members.pop();
    }
    // Finishes what it has, and ends.
    drop(workers);
}
