//! A store that takes one read of payload and does not end it: its namespace waits, as long as each request has time, and no other does.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use namespace::{EngineConfig, Namespace, NamespaceError, NamespaceSet};
use reactor::{Errno, Wait};
use store::decorate::{Fault, Faulty, On, What, When};

use crate::crew::Crew;
use crate::gated::Gate;
use crate::support::{Packed, source};
use crate::{BLOCKS_PER_FRAME, expected};

fn payload(packed: &Packed) -> Range<u64> {
    let volume = packed.volume();
    let stream = &volume.streams()[0];
    stream.stored_offset..stream.stored_offset + stream.stored_bytes
}

/// A namespace whose store has room for one read of payload.
fn held(packed: &Packed, gate: &Gate) -> Namespace {
    let store = gate.over(packed.store(), payload(packed), 1);
    Namespace::of_view(1, packed.volume(), vec![store])
}

/// Turns in which whatever can move does.
fn some_turns(crew: &mut Crew) -> Vec<namespace::Done> {
    (0..100).flat_map(|_| crew.turn()).collect()
}

fn end_overdue(crew: &mut Crew, now: Instant) -> Vec<namespace::Done> {
    for member in &mut crew.members {
        member.engine.end_overdue(now);
    }
    some_turns(crew)
}

/// The store ends nothing: every request ends with its time all the same, and so do the fetches that never got to the store.
#[test]
fn frames_that_are_waited_for_too_long_are_given_up() {
    let packed = Packed::new("overdue", "u16+lz4");
    let gate = Gate::default();
    // Two engines: some of the frames have the other one as their home.
    let mut crew = Crew::new(2, held(&packed, &gate), &EngineConfig::default());
    let due = Instant::now() + Duration::from_secs(25);
    // No neighbours, which would be fetched in one piece.
    let count = packed.volume().block_count() / BLOCKS_PER_FRAME;
    let frames: Vec<u64> = (0..count).step_by(4).collect();
    for frame in &frames {
        crew.submit_by(1, 0, frame * BLOCKS_PER_FRAME, 1, *frame, Some(due));
    }
    assert!(some_turns(&mut crew).is_empty());
    assert!(end_overdue(&mut crew, due - Duration::from_nanos(1)).is_empty());
    let done = end_overdue(&mut crew, due);
    assert_eq!(done.len(), frames.len());
    for done in &done {
        let error = done.result.as_ref().unwrap_err();
        assert!(matches!(error, NamespaceError::NotInTime { .. }), "{error}");
    }
    // What the stores have is all that is left.
    let asked = gate.held().len() as u64;
    assert!(asked > 0 && asked < frames.len() as u64);
    gate.open();
    some_turns(&mut crew);
    assert_eq!(crew.sum(|counters| counters.frame_fetches), asked);
    assert!(crew.is_idle());
}

/// Of two that wait for one frame each has its own time.
#[test]
fn whoever_has_more_time_waits_on() {
    let packed = Packed::new("own-time", "u16+lz4");
    let gate = Gate::default();
    let mut crew = Crew::new(2, held(&packed, &gate), &EngineConfig::default());
    let due = Instant::now() + Duration::from_secs(25);
    let second = Duration::from_secs(1);
    crew.submit_by(1, 0, 0, 1, 1, Some(due));
    crew.submit_by(1, 1, 1, 1, 2, Some(due + second));
    crew.submit_by(1, 1, 2, 1, 3, None);
    assert!(some_turns(&mut crew).is_empty());
    let done = end_overdue(&mut crew, due);
    assert_eq!(done.iter().map(|done| done.token).collect::<Vec<_>>(), [1]);
    let error = done[0].result.as_ref().unwrap_err();
    assert!(matches!(error, NamespaceError::NotInTime { .. }), "{error}");
    gate.open();
    for done in crew.wait(2) {
        let bytes = done.buf.unwrap().to_vec();
        assert!(bytes == expected(&source(), done.token - 1, 1));
    }
    assert_eq!(crew.sum(|counters| counters.frame_fetches), 1);
}

/// Whoever comes when the store was asked has the store's answer to another; where that is an error, the store is asked for them.
#[test]
fn what_fails_for_another_is_asked_for_again() {
    let packed = Packed::new("asked-again", "u16+lz4");
    let gate = Gate::default();
    let mut crew = Crew::new(1, held(&packed, &gate), &EngineConfig::default());
    let due = Instant::now() + Duration::from_secs(25);
    let later = due + Duration::from_secs(1);
    crew.submit_by(1, 0, 0, 1, 1, Some(due));
    assert!(some_turns(&mut crew).is_empty());
    crew.submit_by(1, 0, 1, 1, 2, Some(later));
    assert_eq!(gate.held()[0].2.deadline, Some(due));
    // Each is told what became of the fetch that was on its own terms.
    for (token, left) in [(1, &[Some(later)][..]), (2, &[])] {
        gate.fail_all();
        let [done] = &some_turns(&mut crew)[..] else {
            panic!("one is answered");
        };
        assert_eq!(done.token, token);
        let error = done.result.as_ref().unwrap_err();
        assert!(matches!(error, NamespaceError::Store { .. }), "{error}");
        let held: Vec<_> = gate.held().iter().map(|it| it.2.deadline).collect();
        assert_eq!(held, left);
    }
    assert_eq!(crew.sum(|counters| counters.frame_fetches), 2);
}

/// Two frames are fetched together, and one of them cannot be read: the other is.
#[test]
fn a_frame_does_not_fail_with_its_neighbour() {
    let packed = Packed::new("neighbour", "u16+lz4");
    // A frame of 64 KiB is some 23 KiB of these: this is of the second.
    let at = payload(&packed).start + (34 << 10);
    let fault = Fault {
        on: On::Read,
        range: at..at + 1,
        when: When::Always,
        what: What::Error(Errno::EIO),
    };
    let faulty = Faulty::over(vec![fault], packed.store()).unwrap();
    let gate = Gate::default();
    let store = gate.over(faulty.store(), payload(&packed), 1);
    let namespace = Namespace::of_view(1, packed.volume(), vec![store]);
    let mut crew = Crew::new(1, namespace, &EngineConfig::default());
    // The store is full meanwhile.
    crew.submit(0, 8 * BLOCKS_PER_FRAME, 1, 0);
    assert!(some_turns(&mut crew).is_empty());
    crew.submit(0, 0, 1, 1);
    crew.submit(0, BLOCKS_PER_FRAME, 1, 2);
    assert!(some_turns(&mut crew).is_empty());
    gate.open();
    let done = crew.wait(3);
    let bytes = done[1].buf.as_ref().unwrap().to_vec();
    assert!(bytes == expected(&source(), 0, 1));
    let error = done[2].result.as_ref().unwrap_err();
    assert!(matches!(error, NamespaceError::Store { .. }), "{error}");
    // The first read's, both together, and each.
    assert_eq!(crew.sum(|counters| counters.frame_fetches), 4);
    assert_eq!(faulty.strikes(0), 2);
}

/// An engine without requests of its own has frames that another's wait for: it looks at the clock.
#[test]
fn the_home_of_a_frame_looks_at_the_clock() {
    let packed = Packed::new("home-clock", "u16+lz4");
    let gate = Gate::default();
    let mut crew = Crew::new(2, held(&packed, &gate), &EngineConfig::default());
    let due = Instant::now() + Duration::from_millis(50);
    let count = packed.volume().block_count() / BLOCKS_PER_FRAME;
    let frames: Vec<u64> = (0..count).step_by(4).collect();
    for frame in &frames {
        crew.submit_by(1, 0, frame * BLOCKS_PER_FRAME, 1, *frame, Some(due));
    }
    let home = &crew.members[1].engine;
    assert!(!home.is_busy());
    let limit = Instant::now() + Duration::from_secs(20);
    let mut done = Vec::new();
    while done.len() < frames.len() {
        assert!(Instant::now() < limit, "{} ended", done.len());
        done.extend(crew.turn());
        // Asleep until something wakes it.
        let until = Some(Instant::now() + Duration::from_secs(5));
        crew.members[1].ring.turn(Wait::Block { until }).unwrap();
    }
    assert_eq!(crew.members[1].engine.counters().frame_fetches, 1);
}

#[test]
fn a_store_that_takes_no_more_holds_up_no_other_namespace() {
    let packed = [
        Packed::new("held", "u16+lz4"),
        Packed::new("free", "u16+lz4"),
    ];
    let gate = Gate::default();
    let set = NamespaceSet::new(vec![
        Arc::new(held(&packed[0], &gate)),
        Arc::new(Namespace::of_view(
            2,
            packed[1].volume(),
            vec![packed[1].store()],
        )),
    ]);
    let mut crew = Crew::over(1, &set, &EngineConfig::default());
    // Frames that are no neighbours: the store takes the first, and has no room for the others.
    for frame in [0, 4, 8] {
        crew.submit_to(1, 0, frame * BLOCKS_PER_FRAME, 1, frame);
    }
    let counters = |crew: &Crew| crew.members[0].engine.counters();
    while counters(&crew).frame_fetches == 0 {
        assert!(crew.turn().is_empty());
    }
    crew.submit_to(2, 0, 3 * BLOCKS_PER_FRAME, 1, 100);
    let done = crew.wait(1);
    assert_eq!(done[0].token, 100);
    let bytes = done[0].buf.as_ref().unwrap().to_vec();
    assert!(bytes == expected(&source(), 3 * BLOCKS_PER_FRAME, 1));
    assert_eq!(
        counters(&crew).frame_fetches,
        2,
        "the held one, and this one"
    );
    assert!(
        !crew.members[0].engine.has_work(),
        "it sleeps while the store does"
    );
}
