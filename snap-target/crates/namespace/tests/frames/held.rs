//! A store that takes one read of payload, never ends it, and answers everything else: its namespace waits, and no other does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use namespace::{EngineConfig, Namespace, NamespaceError, NamespaceSet};
use reactor::Ring;
use reactor::buf::IoBuf;
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

use crate::crew::Crew;
use crate::support::{Packed, source};
use crate::{BLOCKS_PER_FRAME, expected};

#[derive(Debug)]
struct Held {
    inner: SharedStore,
    /// Reads from here on are held.
    from: u64,
    to: u64,
}

impl Backend for Held {
    fn name(&self) -> &str {
        "held"
    }

    fn describe(&self) -> String {
        "held".to_owned()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(HeldHandle {
            inner: self.inner.open_handle(ring)?,
            payload: self.from..self.to,
            held: None,
        }))
    }
}

struct HeldHandle {
    inner: Box<dyn Store>,
    payload: std::ops::Range<u64>,
    held: Option<IoBuf>,
}

impl Store for HeldHandle {
    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
    ) -> Result<(), Rejected> {
        let is_payload = matches!(op, Op::Read { offset } if self.payload.contains(&offset));
        if !is_payload {
            return self.inner.submit(op, buf, token, terms);
        }
        if self.held.is_some() {
            let why = StoreError::Busy;
            return Err(Rejected { op, buf, why });
        }
        self.held = buf;
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.inner.poll(completions);
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.held.is_none() && self.inner.is_closed()
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

/// Of a namespace whose store ends nothing and has room for one: the fetches that never got there end with their requests' time.
#[test]
fn frames_that_are_waited_for_too_long_are_given_up() {
    let packed = Packed::new("overdue", "u16+lz4");
    let volume = packed.volume();
    let stream = &volume.streams()[0];
    let store = SharedStore::new(Held {
        inner: packed.store(),
        from: stream.stored_offset,
        to: stream.stored_offset + stream.stored_bytes,
    });
    let namespace = Arc::new(Namespace::of_view(1, packed.volume(), vec![store]));
    let set = NamespaceSet::new(vec![namespace]);
    // Two engines: some of the frames have the other one as their home.
    let mut crew = Crew::over(2, &set, &EngineConfig::default());
    let due = Instant::now() + Duration::from_secs(25);
    // No neighbours, which would be fetched in one piece.
    let count = volume.block_count() / BLOCKS_PER_FRAME;
    let frames: Vec<u64> = (0..count).step_by(4).collect();
    for frame in &frames {
        crew.submit_by(1, 0, frame * BLOCKS_PER_FRAME, 1, *frame, Some(due));
    }
    for _ in 0..100 {
        assert!(crew.turn().is_empty());
    }
    let mut done = Vec::new();
    for at in [due - Duration::from_nanos(1), due] {
        for member in &mut crew.members {
            member.engine.end_overdue(at);
        }
        assert!(done.is_empty());
        for _ in 0..100 {
            done.extend(crew.turn());
        }
    }
    for done in &done {
        let error = done.result.as_ref().unwrap_err();
        assert!(matches!(error, NamespaceError::NotInTime { .. }), "{error}");
    }
    let fetched = crew.sum(|counters| counters.frame_fetches);
    assert!(fetched > 0, "the stores have some");
    assert_eq!(
        done.len() as u64,
        frames.len() as u64 - fetched,
        "the others were given up"
    );
    assert!(!done.is_empty());
}

#[test]
fn a_store_that_takes_no_more_holds_up_no_other_namespace() {
    let packed = [
        Packed::new("held", "u16+lz4"),
        Packed::new("free", "u16+lz4"),
    ];
    let volume = packed[0].volume();
    let stream = &volume.streams()[0];
    let held = SharedStore::new(Held {
        inner: packed[0].store(),
        from: stream.stored_offset,
        to: stream.stored_offset + stream.stored_bytes,
    });
    let set = NamespaceSet::new(vec![
        Arc::new(Namespace::of_view(1, packed[0].volume(), vec![held])),
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
