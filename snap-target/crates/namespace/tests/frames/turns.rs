//! A turn decodes for a bounded time, and requests take turns: counted in turns of the ring, not by a clock.

use namespace::{EngineConfig, FrameConfig};
use reactor::Wait;

use crate::crew::Crew;
use crate::support::{Packed, source};
use crate::{BLOCKS_PER_FRAME, expected, namespace};

/// One frame in a turn: any frame uses up the time.
fn one_a_turn() -> EngineConfig {
    EngineConfig {
        frames: FrameConfig {
            turn_decode_ns_max: 1,
            slice_ns_max: 1,
            ..FrameConfig::default()
        },
        ..EngineConfig::default()
    }
}

#[test]
fn a_turn_decodes_no_more_than_its_share_and_the_next_goes_on() {
    let packed = Packed::new("bounded", "u16+lz4");
    let mut crew = Crew::new(1, namespace(&packed), &one_a_turn());
    crew.submit(0, 0, 256, 1);
    let mut decoded = 0;
    let mut turns = 0;
    let done = loop {
        let done = crew.turn();
        let now = crew.members[0].engine.counters().frames_decoded;
        assert!(now - decoded <= 1, "{} frames in one turn", now - decoded);
        if now > decoded {
            turns += 1;
        }
        decoded = now;
        // While frames wait for their turn, the ring must not sleep.
        let is_behind = crew.members[0].engine.has_work();
        assert!(
            is_behind || !(1..16).contains(&decoded),
            "{decoded} decoded"
        );
        if !done.is_empty() {
            break done;
        }
    };
    assert_eq!((decoded, turns), (16, 16));
    crew.turn();
    assert!(!crew.members[0].engine.has_work(), "and then it may");
    assert!(done[0].buf.as_ref().unwrap().to_vec() == expected(&source(), 0, 256));
}

#[test]
fn a_small_read_overtakes_a_large_one() {
    let packed = Packed::new("fair", "u16+lz4");
    let mut crew = Crew::new(1, namespace(&packed), &one_a_turn());
    let last = packed.volume().block_count() - 1;
    assert!(
        last >= 18 * BLOCKS_PER_FRAME,
        "not among the frames read before"
    );
    // The tables are seen first, so that each read below is one fetch.
    crew.read(0, 17 * BLOCKS_PER_FRAME, 1).unwrap();
    crew.submit(0, 0, 256, 1);
    // The large read has begun to be decoded.
    while crew.members[0].engine.counters().frames_decoded == 1 {
        assert!(crew.turn().is_empty());
    }
    crew.submit(0, last, 1, 2);
    // The file has answered before the engine goes on, however slow it is.
    while crew.members[0].ring.turn(Wait::Poll).unwrap().events == 0 {}
    let done = loop {
        let done = crew.turn();
        if !done.is_empty() {
            break done;
        }
    };
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].token, 2, "the small one is first");
    let decoded = crew.members[0].engine.counters().frames_decoded;
    assert!(
        decoded < 1 + 16,
        "{decoded} of the large one's frames came first"
    );
    assert_eq!(crew.wait(1)[0].token, 1);
}
