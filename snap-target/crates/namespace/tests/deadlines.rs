//! Requests whose time is over while they wait: each ends then, and not before, and nothing of it happens later.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::result_large_err,
    reason = "the store's contract gives the buffer back"
)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use namespace::{
    Asked, Done, Engine, EngineConfig, Identity, Io, Namespace, NamespaceError, NamespaceKey,
    NamespaceSet,
};
use nvme_spec::Status;
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store::{
    Backend, Completion, Limits, Op, OpenOptions, Rejected, SharedStore, Store, StoreError,
    StoreSpec, Terms, Token,
};

/// What came to the store, and how many of that it may carry out.
#[derive(Debug, Default)]
struct Log {
    taken: Vec<(Op, Terms)>,
    allowed: usize,
}

/// A store that takes one operation at a time, and carries it out when it may.
#[derive(Debug)]
struct Slow {
    inner: SharedStore,
    log: Arc<Mutex<Log>>,
}

impl Backend for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn describe(&self) -> String {
        "slow".to_owned()
    }

    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        limits.queue_depth_max = 1;
        limits
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(SlowHandle {
            limits: self.limits(),
            inner: self.inner.open_handle(ring)?,
            log: self.log.clone(),
            held: VecDeque::new(),
        }))
    }
}

struct SlowHandle {
    inner: Box<dyn Store>,
    limits: Limits,
    log: Arc<Mutex<Log>>,
    held: VecDeque<(Op, Option<IoBuf>, Token)>,
}

impl Store for SlowHandle {
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
        if !self.held.is_empty() {
            let why = StoreError::Busy;
            return Err(Rejected { op, buf, why });
        }
        self.log.lock().unwrap().taken.push((op, terms));
        self.held.push_back((op, buf, token));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let mut log = self.log.lock().unwrap();
        while log.allowed > 0
            && let Some((op, buf, token)) = self.held.pop_front()
        {
            log.allowed -= 1;
            self.inner.submit(op, buf, token, Terms::default()).unwrap();
        }
        self.inner.poll(completions);
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.held.is_empty() && self.inner.is_closed()
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }
}

struct Bench {
    ring: Ring,
    engine: Engine,
    key: NamespaceKey,
    log: Arc<Mutex<Log>>,
    range_bytes_max: u32,
}

impl Bench {
    fn new() -> Bench {
        let memory = StoreSpec::Mem { bytes: 256 << 20 };
        let inner = SharedStore::open(&memory, OpenOptions::read_write()).unwrap();
        let range_bytes_max = inner.limits().range_bytes_max;
        let log = Arc::new(Mutex::new(Log::default()));
        let store = SharedStore::new(Slow {
            inner,
            log: log.clone(),
        });
        let identity = Identity::of_raw("test", b"slow");
        let namespace = Arc::new(Namespace::of_store(1, store, identity, 4096));
        let key = namespace.key;
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let set = NamespaceSet::new(vec![namespace]);
        let engine = Engine::new(&ring, &set, &EngineConfig::default()).unwrap();
        Bench {
            ring,
            engine,
            key,
            log,
            range_bytes_max,
        }
    }

    /// None of these is answered at once: there is no lease.
    fn submit(&mut self, io: Io, token: u64, deadline: Option<Instant>) {
        let asked = Asked {
            deadline,
            ..Asked::with(token)
        };
        let done = self.engine.submit(self.key, io, asked);
        assert!(done.is_none());
    }

    fn read(&mut self, lba: u64, token: u64, deadline: Option<Instant>) {
        let (blocks, into) = (1, None);
        self.submit(Io::Read { lba, blocks, into }, token, deadline);
    }

    fn poll(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        self.engine.poll(&mut done);
        done
    }

    fn allow(&self, operations: usize) {
        self.log.lock().unwrap().allowed += operations;
    }

    fn taken(&self) -> Vec<(Op, Terms)> {
        self.log.lock().unwrap().taken.clone()
    }
}

fn assert_not_in_time(done: &Done, token: u64) {
    assert_eq!(done.token, token);
    let error = done.result.as_ref().unwrap_err();
    assert!(matches!(error, NamespaceError::NotInTime { .. }), "{error}");
    assert_eq!(error.status(true), Status::NAMESPACE_NOT_READY);
    assert!(error.is_unreachable(), "its host is told when to come back");
}

#[test]
fn what_waits_for_its_store_ends_at_its_deadline_and_not_before() {
    let mut bench = Bench::new();
    let due = Instant::now() + Duration::from_secs(25);
    let later = due + Duration::from_millis(1);
    bench.read(0, 1, Some(due));
    bench.read(1, 2, Some(due));
    bench.read(2, 3, Some(later));
    bench.read(3, 4, None);
    // The store has the first, and is told how long it has.
    let first = (Op::Read { offset: 0 }, Terms::by(Some(due)));
    assert_eq!(bench.taken(), [first]);
    bench.engine.end_overdue(due - Duration::from_nanos(1));
    assert!(bench.poll().is_empty());
    bench.engine.end_overdue(due);
    let done = bench.poll();
    assert_eq!(done.len(), 1);
    assert_not_in_time(&done[0], 2);
    bench.engine.end_overdue(later);
    let done = bench.poll();
    assert_eq!(done.len(), 1);
    assert_not_in_time(&done[0], 3);
    // What the store has is the store's, and who has no deadline waits.
    bench.allow(2);
    let mut done = bench.poll();
    done.extend(bench.poll());
    let tokens: Vec<u64> = done.iter().map(|done| done.token).collect();
    assert_eq!(tokens, [1, 4]);
    assert!(done.iter().all(|done| done.result.is_ok()));
    assert_eq!(bench.taken().len(), 2, "what ended here never got there");
    assert!(!bench.engine.is_busy());
}

#[test]
fn the_ring_wakes_for_what_is_overdue() {
    let mut bench = Bench::new();
    bench.read(0, 1, None);
    bench.read(1, 2, Instant::now().checked_sub(Duration::from_secs(1)));
    let until = Instant::now() + Duration::from_secs(20);
    let mut done = Vec::new();
    while done.is_empty() {
        let wait = Wait::Block { until: Some(until) };
        bench.ring.turn(wait).unwrap();
        assert!(Instant::now() < until, "nothing woke the ring");
        while bench.ring.next_ready().is_some() {}
        done = bench.poll();
    }
    assert_eq!(done.len(), 1);
    assert_not_in_time(&done[0], 2);
}

#[test]
fn a_request_of_several_parts_begins_none_after_its_deadline() {
    let mut bench = Bench::new();
    let due = Instant::now() + Duration::from_secs(25);
    let blocks = u32::try_from(3 * u64::from(bench.range_bytes_max) / 4096).unwrap();
    let zeroes = Io::WriteZeroes {
        lba: 0,
        blocks,
        deallocate: false,
        durable: false,
    };
    bench.submit(zeroes, 1, Some(due));
    bench.allow(1);
    assert!(bench.poll().is_empty());
    assert!(bench.poll().is_empty());
    assert_eq!(
        bench.taken().len(),
        2,
        "the first part is done, the second under way"
    );
    assert!(
        bench
            .taken()
            .iter()
            .all(|(_, terms)| *terms == Terms::by(Some(due))),
        "each part has what is left of its request's time"
    );
    bench.engine.end_overdue(due);
    assert!(
        bench.poll().is_empty(),
        "the store has a part, which is waited for"
    );
    bench.allow(1);
    let mut done = bench.poll();
    done.extend(bench.poll());
    assert_eq!(done.len(), 1);
    assert_not_in_time(&done[0], 1);
    assert_eq!(bench.taken().len(), 2);
    assert!(!bench.engine.is_busy());
}

/// A write that was done is not said to have had no time: its host would compare again, with what it wrote itself.
#[test]
fn what_was_done_just_in_time_is_done() {
    let mut bench = Bench::new();
    let due = Instant::now() + Duration::from_secs(25);
    let block = |byte| IoBuf::from_bytes(&[byte; 4096]).unwrap();
    let pair = Io::CompareAndWrite {
        lba: 0,
        expected: Box::new(block(0)),
        data: block(7),
        durable: false,
    };
    bench.submit(pair, 1, Some(due));
    bench.allow(1);
    while bench.taken().len() < 2 {
        assert!(bench.poll().is_empty());
    }
    let write = Op::Write {
        offset: 0,
        durable: false,
    };
    assert_eq!(bench.taken()[1].0, write);
    bench.engine.end_overdue(due);
    bench.allow(1);
    let mut done = bench.poll();
    done.extend(bench.poll());
    assert_eq!(done.len(), 1);
    assert!(done[0].result.is_ok(), "{:?}", done[0].result);
}

#[test]
fn who_waits_for_others_to_go_ends_at_its_deadline() {
    let mut bench = Bench::new();
    let due = Instant::now() + Duration::from_secs(25);
    let data = IoBuf::from_bytes(&[1; 4096]).unwrap();
    let durable = false;
    let lba = 0;
    bench.submit(Io::Write { lba, data, durable }, 1, None);
    let pair = Io::CompareAndWrite {
        lba: 8,
        expected: Box::new(IoBuf::from_bytes(&[0; 4096]).unwrap()),
        data: IoBuf::from_bytes(&[2; 4096]).unwrap(),
        durable: false,
    };
    // It keeps other writes out as soon as the first has ended.
    bench.submit(pair, 2, Some(due));
    let data = IoBuf::from_bytes(&[3; 4096]).unwrap();
    bench.submit(Io::Write { lba, data, durable }, 3, None);
    assert!(bench.poll().is_empty());
    bench.engine.end_overdue(due);
    let mut done = bench.poll();
    done.extend(bench.poll());
    assert_eq!(done.len(), 1);
    assert_not_in_time(&done[0], 2);
    // It stands in nobody's way any more.
    bench.allow(2);
    let mut done = bench.poll();
    while done.len() < 2 {
        done.extend(bench.poll());
    }
    assert_eq!((done[0].token, done[1].token), (1, 3));
    assert!(!bench.engine.is_busy());
}
