//! Engines on threads of their own, and a store that holds the longer writes.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use namespace::{
    Asked, Done, Engine, Io, Namespace, NamespaceError, NamespaceKey, NamespaceSet, Peer,
};
use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

use super::bench::{LBA_BYTES, config};

/// What has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// The one request that a thread has under way.
const TOKEN: u64 = 7;

/// A reactor of its own thread, which sleeps when it has nothing to do.
pub struct Thread {
    key: NamespaceKey,
    ring: Ring,
    engine: Engine,
    done: Vec<Done>,
}

/// So many threads with an engine each over one namespace, each knowing the others; returns when all have ended.
pub fn on_threads(count: u16, namespace: &Arc<Namespace>, work: impl Fn(u16, &mut Thread) + Sync) {
    let (peers_to, peers) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut introduce = Vec::new();
        for number in 0..count {
            let (all_to, all) = mpsc::channel();
            introduce.push(all_to);
            let (peers_to, work) = (peers_to.clone(), &work);
            scope.spawn(move || {
                let mut thread = Thread::new(number, namespace, &peers_to, &all);
                work(number, &mut thread);
            });
        }
        let mut met: Vec<_> = peers.iter().take(usize::from(count)).collect();
        met.sort_by_key(|(number, _)| *number);
        let met: Vec<Peer> = met.into_iter().map(|(_, peer)| peer).collect();
        for all_to in introduce {
            all_to.send(met.clone()).unwrap();
        }
    });
}

impl Thread {
    fn new(
        number: u16,
        namespace: &Arc<Namespace>,
        peers: &mpsc::Sender<(u16, Peer)>,
        all: &mpsc::Receiver<Vec<Peer>>,
    ) -> Thread {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        let config = config();
        let set = NamespaceSet::new(vec![namespace.clone()]);
        let mut engine = Engine::new(&ring, &set, &config).unwrap();
        peers.send((number, engine.peer())).unwrap();
        engine.meet(number, &all.recv().unwrap());
        Thread {
            key: namespace.key,
            ring,
            engine,
            done: Vec::new(),
        }
    }

    /// Carries a request out; sleeps until somebody wakes it.
    pub fn run(&mut self, io: Io) -> Result<Option<Vec<u8>>, NamespaceError> {
        self.begin(io);
        self.end_asleep()
    }

    /// How the request that was begun ends; sleeps until somebody wakes it.
    pub fn end_asleep(&mut self) -> Result<Option<Vec<u8>>, NamespaceError> {
        let began = Instant::now();
        loop {
            self.engine.poll(&mut self.done);
            if let Some(done) = self.done.pop() {
                return done.result.map(|()| done.buf.map(|buf| buf.to_vec()));
            }
            let wait = if self.engine.has_work() {
                Wait::Poll
            } else {
                let until = Some(began + PATIENCE);
                Wait::Block { until }
            };
            self.ring.turn(wait).unwrap();
            while self.ring.next_ready().is_some() {}
            assert!(began.elapsed() < PATIENCE, "nobody woke it");
        }
    }

    pub fn begin(&mut self, io: Io) {
        let asked = Asked {
            snapshot: true,
            ..Asked::with(TOKEN)
        };
        let done = self.engine.submit(self.key, io, asked);
        self.done.extend(done);
    }

    /// One turn, without sleep.
    pub fn turn(&mut self) {
        self.engine.poll(&mut self.done);
        self.ring.turn(Wait::Poll).unwrap();
        while self.ring.next_ready().is_some() {}
    }

    pub fn turn_until(&mut self, holds: impl Fn(&Thread) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < PATIENCE, "nothing more happens");
            self.turn();
            std::thread::yield_now();
        }
    }

    /// How the request that was begun ends.
    pub fn end(&mut self) -> Result<(), NamespaceError> {
        self.turn_until(|thread| !thread.done.is_empty());
        self.done.pop().unwrap().result
    }
}

/// Holds writes of several blocks until they are let go, on all handles. Whoever waits for one polls.
#[derive(Debug, Default)]
pub struct LongWrites {
    held: AtomicUsize,
    let_go: AtomicUsize,
}

impl LongWrites {
    pub fn over(inner: SharedStore) -> (Arc<LongWrites>, SharedStore) {
        let held = Arc::new(LongWrites::default());
        let store = SharedStore::new(HeldBackend {
            inner,
            held: held.clone(),
        });
        (held, store)
    }

    /// Whether one came.
    pub fn holds_one(&self) -> bool {
        self.held.load(SeqCst) == 1
    }

    pub fn let_go(&self) {
        self.let_go.store(1, SeqCst);
    }
}

#[derive(Debug)]
struct HeldBackend {
    inner: SharedStore,
    held: Arc<LongWrites>,
}

impl Backend for HeldBackend {
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
        Ok(Box::new(Handle {
            inner: self.inner.open_handle(ring)?,
            held: self.held.clone(),
            writes: Vec::new(),
        }))
    }
}

struct Handle {
    inner: Box<dyn Store>,
    held: Arc<LongWrites>,
    writes: Vec<(Op, Option<IoBuf>, Token)>,
}

impl Store for Handle {
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
        let is_long = buf.as_ref().is_some_and(|buf| buf.len() > LBA_BYTES);
        if !is_long || !matches!(op, Op::Write { .. }) {
            return self.inner.submit(op, buf, token, terms);
        }
        self.writes.push((op, buf, token));
        self.held.held.fetch_add(1, SeqCst);
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if self.held.let_go.load(SeqCst) == 1 {
            for (op, buf, token) in self.writes.drain(..) {
                self.inner.submit(op, buf, token, Terms::default()).unwrap();
            }
        }
        self.inner.poll(completions);
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed() && self.writes.is_empty()
    }

    fn cancel(&mut self, _token: Token) {}

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}
