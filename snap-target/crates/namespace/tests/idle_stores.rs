//! Stores with work of their own: a keep-alive goes out while no host asks for anything.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::result_large_err,
    reason = "a rejection gives the buffer back by value"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use namespace::{Engine, EngineConfig, Identity, Namespace, NamespaceSet};
use reactor::buf::IoBuf;
use reactor::{Owner, Ring, RingConfig, Wait};
use store::{
    Backend, Completion, Limits, Op, OpenOptions, Rejected, SharedStore, Store, StoreError,
    StoreSpec, Terms, Token,
};

const KEEP_ALIVE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(20);

/// Memory with a connection of its own to keep alive.
#[derive(Debug)]
struct Remote {
    inner: SharedStore,
    asks: bool,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    polls: AtomicU32,
    keep_alives: AtomicU32,
}

impl Backend for Remote {
    fn name(&self) -> &str {
        "remote"
    }

    fn describe(&self) -> String {
        "memory with a keep-alive".to_owned()
    }

    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        limits.polled_when_idle = self.asks;
        limits
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let owner = ring.register().unwrap();
        owner.timer(Instant::now() + KEEP_ALIVE, 0).unwrap();
        Ok(Box::new(Handle {
            inner: self.inner.open_handle(ring)?,
            limits: self.limits(),
            owner,
            seen: self.seen.clone(),
        }))
    }
}

struct Handle {
    inner: Box<dyn Store>,
    limits: Limits,
    owner: Owner,
    seen: Arc<Seen>,
}

impl Store for Handle {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
    ) -> Result<(), Rejected> {
        self.inner.submit(op, buf, token, terms)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.seen.polls.fetch_add(1, Ordering::Relaxed);
        while self.owner.next_event().is_some() {
            self.seen.keep_alives.fetch_add(1, Ordering::Relaxed);
            self.owner.timer(Instant::now() + KEEP_ALIVE, 0).unwrap();
        }
        self.inner.poll(completions);
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

fn engine(ring: &Ring, asks: bool) -> (Engine, Arc<Seen>) {
    let inner = SharedStore::open(
        &StoreSpec::Mem { bytes: 1 << 20 },
        OpenOptions::read_write(),
    )
    .unwrap();
    let seen = Arc::new(Seen::default());
    let remote = Remote {
        inner,
        asks,
        seen: seen.clone(),
    };
    let identity = Identity::of_raw("test", b"remote");
    let namespace = Namespace::of_store(1, SharedStore::new(remote), identity, 4096);
    let set = NamespaceSet::new(vec![Arc::new(namespace)]);
    let engine = Engine::new(ring, &set, &EngineConfig::default()).unwrap();
    (engine, seen)
}

#[test]
fn a_store_that_asks_for_it_is_polled_while_idle_and_no_other_is() {
    for asks in [true, false] {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let (mut engine, seen) = engine(&ring, asks);
        let until = Instant::now() + PATIENCE;
        let mut done = Vec::new();
        let mut events = 0;
        while events < 3 && Instant::now() < until {
            // As a frontend does, which has nothing to do.
            events += ring
                .turn(Wait::Block { until: Some(until) })
                .unwrap()
                .events;
            while ring.next_ready().is_some() {}
            engine.poll(&mut done);
            if !asks {
                break;
            }
        }
        assert!(done.is_empty());
        let keep_alives = seen.keep_alives.load(Ordering::Relaxed);
        let polls = seen.polls.load(Ordering::Relaxed);
        if asks {
            assert!(
                keep_alives >= 3,
                "{keep_alives} keep-alives in {polls} polls"
            );
        } else {
            assert_eq!((keep_alives, polls), (0, 0), "nothing is in flight");
        }
    }
}
