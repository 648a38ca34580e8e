//! Namespaces on one engine that must not hold each other up, requests that are cancelled, and reads into given memory.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]
#![allow(
    clippy::result_large_err,
    reason = "the store's contract gives the buffer back"
)]

mod support;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use namespace::{
    Asked, Done, Engine, EngineConfig, Identity, Io, Namespace, NamespaceError, NamespaceKey,
    NamespaceSet,
};
use nvme_spec::Status;
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store::{
    Backend, BlockingStore, Completion, Limits, Op, OpenOptions, Rejected, SharedStore, Store,
    StoreError, StoreSpec, Terms, Token,
};

use support::Packed;

const MIB: usize = 1 << 20;

/// A store that never answers unless an operation is cancelled, or one that answers and lends no memory.
#[derive(Debug)]
struct Odd {
    inner: SharedStore,
    is_silent: bool,
    queue_depth: u32,
    /// Opened, it lets a silent store end all that it holds. A store with a gate does not listen to cancels.
    gate: Option<Arc<AtomicBool>>,
}

impl Odd {
    fn gated(gate: &Arc<AtomicBool>) -> SharedStore {
        SharedStore::new(Odd {
            inner: memory(),
            is_silent: true,
            queue_depth: 64,
            gate: Some(gate.clone()),
        })
    }

    fn silent(inner: SharedStore, queue_depth: u32) -> SharedStore {
        SharedStore::new(Odd {
            inner,
            is_silent: true,
            queue_depth,
            gate: None,
        })
    }

    /// Reads of it need memory of the engine's.
    fn healthy(inner: SharedStore) -> SharedStore {
        let queue_depth = inner.limits().queue_depth_max;
        SharedStore::new(Odd {
            inner,
            is_silent: false,
            queue_depth,
            gate: None,
        })
    }

    fn own_limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        limits.queue_depth_max = self.queue_depth;
        limits
    }
}

impl Backend for Odd {
    fn name(&self) -> &str {
        "odd"
    }

    fn describe(&self) -> String {
        "odd".to_owned()
    }

    fn limits(&self) -> Limits {
        self.own_limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(OddHandle {
            inner: self.inner.open_handle(ring)?,
            limits: self.own_limits(),
            is_silent: self.is_silent,
            gate: self.gate.clone(),
            held: VecDeque::new(),
            cancelled: Vec::new(),
        }))
    }
}

struct OddHandle {
    inner: Box<dyn Store>,
    limits: Limits,
    is_silent: bool,
    gate: Option<Arc<AtomicBool>>,
    held: VecDeque<(Option<IoBuf>, Token)>,
    cancelled: Vec<Token>,
}

impl Store for OddHandle {
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
        if !self.is_silent {
            return self.inner.submit(op, buf, token, terms);
        }
        if self.held.len() == self.limits.queue_depth_max as usize {
            let why = StoreError::Busy;
            return Err(Rejected { op, buf, why });
        }
        self.held.push_back((buf, token));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let is_open = |gate: &Arc<AtomicBool>| gate.load(Ordering::Acquire);
        if self.gate.as_ref().is_some_and(is_open) {
            for (buf, token) in self.held.drain(..) {
                let bytes = buf.as_ref().map_or(0, IoBuf::len);
                completions.push(Completion {
                    token,
                    result: Ok(u32::try_from(bytes).unwrap()),
                    buf,
                });
            }
        }
        for token in self.cancelled.drain(..) {
            let at = self.held.iter().position(|(_, held)| *held == token);
            if let Some((buf, token)) = at.and_then(|at| self.held.remove(at)) {
                let store = "odd".to_owned();
                completions.push(Completion {
                    token,
                    result: Err(StoreError::Cancelled { store, offset: 0 }),
                    buf,
                });
            }
        }
        self.inner.poll(completions);
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }

    fn close(&mut self) {
        self.cancelled
            .extend(self.held.iter().map(|(_, token)| *token));
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.held.is_empty() && self.inner.is_closed()
    }

    fn cancel(&mut self, token: Token) {
        match self.is_silent {
            true if self.gate.is_some() => {}
            true => self.cancelled.push(token),
            false => self.inner.cancel(token),
        }
    }
}

fn memory() -> SharedStore {
    let bytes = 16 << 20;
    SharedStore::open(&StoreSpec::Mem { bytes }, OpenOptions::read_write()).unwrap()
}

fn raw(nsid: u32, store: SharedStore) -> Arc<Namespace> {
    let identity = Identity {
        uuid: [u8::try_from(nsid).unwrap(); 16],
    };
    Arc::new(Namespace::of_store(nsid, store, identity, 4096))
}

struct Bench {
    ring: Ring,
    engine: Engine,
    set: NamespaceSet,
    done: Vec<Done>,
}

impl Bench {
    fn new(namespaces: Vec<Arc<Namespace>>) -> Bench {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let set = NamespaceSet::new(namespaces);
        let engine = Engine::new(&ring, &set, &EngineConfig::default()).unwrap();
        Bench {
            ring,
            engine,
            set,
            done: Vec::new(),
        }
    }

    fn key(&self, nsid: u32) -> NamespaceKey {
        let mut all = self.set.all().iter();
        all.find(|namespace| namespace.nsid == nsid).unwrap().key
    }

    /// Submits a read of `blocks` from block 0 on.
    fn read(&mut self, nsid: u32, blocks: u32, token: u64) {
        let io = Io::Read {
            lba: 0,
            blocks,
            into: None,
        };
        let done = self.engine.submit(self.key(nsid), io, Asked::with(token));
        self.done.extend(done);
    }

    /// Turns until there is an answer, and takes it. What must be answered is: memory answers within a few turns.
    fn answer(&mut self) -> Done {
        for _ in 0..1_000_000 {
            self.engine.poll(&mut self.done);
            if let Some(done) = self.done.pop() {
                return done;
            }
            self.ring.turn(Wait::Poll).unwrap();
            while self.ring.next_ready().is_some() {}
        }
        panic!("no answer");
    }

    /// The engine has nothing to say, however often it is asked.
    fn assert_silent(&mut self) {
        for _ in 0..100 {
            self.ring.turn(Wait::Poll).unwrap();
            self.engine.poll(&mut self.done);
        }
        assert!(self.done.is_empty(), "{:?}", self.done);
    }
}

/// Reads of 4 KiB and of 1 MiB of a namespace are answered while another one's store holds all that it was given.
#[test]
fn a_store_that_does_not_answer_leaves_memory_to_the_others() {
    for blocks in [1, 16, 256] {
        let silent = raw(1, Odd::silent(memory(), 4096));
        let mut bench = Bench::new(vec![silent, raw(2, Odd::healthy(memory()))]);
        for token in 0..3000 {
            bench.read(1, blocks, token);
        }
        assert!(bench.engine.counters().parked > 0);
        bench.assert_silent();
        for wanted in [1, 256] {
            bench.read(2, wanted, 9000);
            let done = bench.answer();
            assert_eq!(done.token, 9000);
            done.result.unwrap();
            assert_eq!(done.buf.unwrap().len(), wanted as usize * 4096);
        }
    }
}

/// A namespace that is alone has all memory to itself.
#[test]
fn a_lone_namespace_may_use_all_memory() {
    let mut bench = Bench::new(vec![raw(1, Odd::silent(memory(), 4096))]);
    let megabytes = EngineConfig::default().pool.slots_1m;
    for token in 0..u64::from(megabytes) {
        bench.read(1, 256, token);
    }
    assert_eq!(bench.engine.counters().parked, 0);
    bench.read(1, 256, 9000);
    assert_eq!(bench.engine.counters().parked, 1);
}

/// One namespace's request waits for a place in its store's queue, another's for memory: they do not wait for each other.
#[test]
fn a_full_queue_of_one_store_parks_nobody_elses_requests() {
    let silent = raw(1, Odd::silent(memory(), 1));
    let mut bench = Bench::new(vec![silent, raw(2, Odd::healthy(memory()))]);
    bench.read(1, 1, 1);
    bench.read(1, 1, 2);
    assert_eq!(bench.engine.counters().parked, 1);
    // All megabytes are on their way to hosts.
    let mut held = Vec::new();
    while bench.engine.counters().parked == 1 {
        bench.read(2, 256, 100);
        if bench.engine.counters().parked == 1 {
            held.push(bench.answer());
        }
    }
    bench.assert_silent();
    drop(held);
    let done = bench.answer();
    assert_eq!(done.token, 100);
    done.result.unwrap();
}

/// Hosts that announce writes and do not send them hold nothing that reads need.
#[test]
fn what_hosts_have_not_sent_yet_is_not_what_reads_need() {
    let mut bench = Bench::new(vec![raw(1, Odd::healthy(memory()))]);
    let announced: Vec<_> = std::iter::from_fn(|| bench.engine.alloc(MIB)).collect();
    assert_eq!(
        announced.len(),
        EngineConfig::default().pool.slots_1m as usize
    );
    bench.read(1, 256, 1);
    bench.answer().result.unwrap();
}

#[test]
fn a_cancelled_request_is_answered_once_its_store_let_go() {
    let packed = Packed::new("neighbours-cancel", "u16+lz4");
    let view = Namespace::of_view(2, packed.volume(), vec![Odd::silent(packed.store(), 64)]);
    let silent = raw(1, Odd::silent(memory(), 1));
    let mut bench = Bench::new(vec![silent, Arc::new(view)]);
    // Token 1 is with the store, 2 waits for its turn, 3 is a view's and its fetch is with the store.
    bench.read(1, 1, 1);
    bench.read(1, 1, 2);
    bench.read(2, 1, 3);
    bench.assert_silent();
    bench.engine.cancel(77);
    bench.assert_silent();

    bench.engine.cancel(2);
    let done = bench.answer();
    assert_eq!(done.token, 2);
    let cancelled = |done: &Done| {
        let error = done.result.as_ref().unwrap_err();
        assert_eq!(
            error.status(false),
            Status::ABORT_REQUESTED.dnr(),
            "{error}"
        );
    };
    cancelled(&done);
    for token in [1, 3] {
        bench.engine.cancel(token);
        // The store has to be asked first.
        assert!(bench.done.is_empty());
        let done = bench.answer();
        assert_eq!(done.token, token);
        cancelled(&done);
    }
    assert!(!bench.engine.is_busy());
    // There is room again.
    bench.read(1, 1, 4);
    assert_eq!(bench.engine.counters().parked, 1);
}

#[test]
fn a_read_goes_where_it_is_wanted() {
    let store = memory();
    let bytes: Vec<u8> = (0..16_384u32).flat_map(|n| n.to_le_bytes()).collect();
    BlockingStore::new(&store)
        .unwrap()
        .write(0, &bytes)
        .unwrap();
    let mut bench = Bench::new(vec![raw(1, store)]);
    for len in [4096, 8192] {
        let into = bench.engine.alloc(len).unwrap();
        let place: Vec<_> = into.raw_segments(0, len).collect();
        let io = Io::Read {
            lba: 1,
            blocks: 1,
            into: Some(into),
        };
        let done = bench.engine.submit(bench.key(1), io, Asked::with(5));
        bench.done.extend(done);
        let done = bench.answer();
        if len == 4096 {
            done.result.unwrap();
            let buf = done.buf.unwrap();
            assert_eq!(buf.raw_segments(0, len).collect::<Vec<_>>(), place);
            assert_eq!(buf.to_vec(), bytes[4096..8192]);
        } else {
            let error = done.result.unwrap_err();
            assert!(
                matches!(error, NamespaceError::Length { bytes: 4096, .. }),
                "{error}"
            );
        }
    }
}

fn write(bench: &mut Bench, token: u64) {
    let data = bench.engine.alloc(4096).unwrap();
    let io = Io::Write {
        lba: 0,
        data,
        durable: false,
    };
    let done = bench.engine.submit(bench.key(1), io, Asked::with(token));
    bench.done.extend(done);
}

/// A view's read that waits for memory holds nothing, and ends at once.
#[test]
fn a_read_that_waits_for_memory_is_cancelled_at_once() {
    let packed = Packed::new("neighbours-memory", "u16+lz4");
    let view = Namespace::of_view(2, packed.volume(), vec![packed.store()]);
    let mut bench = Bench::new(vec![raw(1, Odd::healthy(memory())), Arc::new(view)]);
    let mut held = Vec::new();
    while bench.engine.counters().parked == 0 {
        bench.read(1, 256, 1);
        if bench.engine.counters().parked == 0 {
            held.push(bench.answer());
        }
    }
    bench.read(2, 256, 2);
    assert_eq!(bench.engine.counters().parked, 2);
    bench.engine.cancel(2);
    let done = bench.answer();
    assert_eq!(done.token, 2);
    let error = done.result.unwrap_err();
    assert_eq!(
        error.status(false),
        Status::ABORT_REQUESTED.dnr(),
        "{error}"
    );
    // The other waits on.
    bench.assert_silent();
    drop(held);
    assert_eq!(bench.answer().token, 1);
}

/// A write whose host is gone may still be applied: what others write waits for its end, on the same engine and on others, and what the store
/// did not have yet is given up.
#[test]
fn no_write_overtakes_one_whose_host_is_gone() {
    let gate = Arc::new(AtomicBool::new(false));
    let namespace = raw(1, Odd::gated(&gate));
    let mut here = Bench::new(vec![namespace.clone()]);
    let mut there = Bench::new(vec![namespace]);
    let peers = [here.engine.peer(), there.engine.peer()];
    here.engine.meet(0, &peers);
    there.engine.meet(1, &peers);

    write(&mut here, 10);
    write(&mut here, 20);
    here.engine.abandon(|token| token == 10);
    // The store has the abandoned one, and does not listen. Of the others, what comes now waits.
    write(&mut here, 30);
    write(&mut there, 40);
    write(&mut here, 50);
    here.engine.abandon(|token| token == 50);
    let given_up = here.answer();
    assert_eq!(given_up.token, 50);
    assert!(given_up.result.is_err());
    here.assert_silent();
    there.assert_silent();
    assert_eq!(here.engine.counters().parked, 2);
    assert_eq!(there.engine.counters().parked, 1);

    gate.store(true, Ordering::Release);
    // One look at the store, and both have ended; the others begin only then.
    here.engine.poll(&mut here.done);
    let mut tokens: Vec<_> = here.done.drain(..).map(|done| done.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [10, 20]);
    assert_eq!(here.answer().token, 30);
    // It is woken: without that this would wait for ever.
    there.ring.turn(Wait::Block { until: None }).unwrap();
    assert_eq!(there.answer().token, 40);
}
