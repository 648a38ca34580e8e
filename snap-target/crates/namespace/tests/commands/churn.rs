//! Namespaces come and go under requests of every kind, on several engines, in any order: each request is answered once, and nobody touches a store that
//! was closed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use namespace::{Io, Namespace, NamespaceKey, Source};
use reactor::Ring;
use reactor::buf::IoBuf;
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

use super::bench::{Bench, LBA_BYTES, buf, disk, memory};

const ENGINES: usize = 3;
const BLOCKS: u64 = 64;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// What stores saw of all their handles.
#[derive(Debug, Default)]
struct Watch {
    complaints: Mutex<Vec<&'static str>>,
    open: AtomicUsize,
    operations: AtomicUsize,
}

/// A store that ends one operation in a poll, and a few at a time are all that it takes.
#[derive(Debug)]
struct Slow {
    inner: SharedStore,
    watch: Arc<Watch>,
}

impl Backend for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn describe(&self) -> String {
        "slow".to_owned()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        self.watch.open.fetch_add(1, SeqCst);
        Ok(Box::new(Handle {
            inner: self.inner.open_handle(ring)?,
            watch: self.watch.clone(),
            held: Vec::new(),
            is_closed: false,
        }))
    }
}

struct Handle {
    inner: Box<dyn Store>,
    watch: Arc<Watch>,
    held: Vec<(Op, Option<IoBuf>, Token)>,
    is_closed: bool,
}

impl Handle {
    fn complain(&self, what: &'static str) {
        self.watch.complaints.lock().unwrap().push(what);
    }
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
        _terms: Terms,
    ) -> Result<(), Rejected> {
        if self.is_closed {
            self.complain("an operation for a handle that was closed");
        }
        if self.held.len() == 2 {
            let why = StoreError::Busy;
            return Err(Rejected { op, buf, why });
        }
        self.watch.operations.fetch_add(1, SeqCst);
        self.held.push((op, buf, token));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if let Some((op, buf, token)) = self.held.pop() {
            self.inner.submit(op, buf, token, Terms::default()).unwrap();
        }
        self.inner.poll(completions);
    }

    fn close(&mut self) {
        if !self.held.is_empty() {
            self.complain("closed with operations under way");
        }
        self.is_closed = true;
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.held.is_empty() && self.inner.is_closed()
    }

    fn cancel(&mut self, _token: Token) {}

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.is_closed {
            self.complain("dropped and not closed");
        }
        self.watch.open.fetch_sub(1, SeqCst);
    }
}

/// How far a namespace is, as the front desk sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    Served,
    Retiring,
    Detaching,
    Gone,
}

struct Disk {
    namespace: Arc<Namespace>,
    stage: Stage,
    /// Engines that have the order of the stage.
    told: [bool; ENGINES],
}

struct Churn {
    bench: Bench,
    random: Random,
    watch: Arc<Watch>,
    disks: Vec<Disk>,
    begun: [Vec<u64>; ENGINES],
    answers: HashMap<(usize, u64), usize>,
}

impl Churn {
    fn new(seed: u64) -> Churn {
        Churn {
            bench: Bench::new(ENGINES, Vec::new()),
            random: Random(seed),
            watch: Arc::default(),
            disks: Vec::new(),
            begun: Default::default(),
            answers: HashMap::new(),
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random.below(limit as u64) as usize
    }

    /// A namespace more; or the next state of one that is served, as a resize makes it.
    fn add(&mut self) {
        let watch = self.watch.clone();
        let store = |blocks| {
            let (inner, watch) = (memory(blocks), watch.clone());
            SharedStore::new(Slow { inner, watch })
        };
        let mut namespace = if self.below(3) == 0 {
            let parts = vec![
                disk(1, store(BLOCKS / 4)),
                disk(2, store(BLOCKS - BLOCKS / 4)),
            ];
            Namespace::mixed(1, "mix".into(), parts).unwrap()
        } else {
            disk(1, store(BLOCKS))
        };
        let served: Vec<_> = self.served().collect();
        if !served.is_empty() && self.below(2) == 0 {
            let replaced = served[self.below(served.len())];
            namespace = namespace.succeeding(&self.disks[replaced].namespace);
        }
        self.disks.push(Disk {
            namespace: Arc::new(namespace),
            stage: Stage::Coming,
            told: [false; ENGINES],
        });
    }

    fn served(&self) -> impl Iterator<Item = usize> {
        let all = self.disks.iter().enumerate();
        all.filter(|(_, disk)| disk.stage == Stage::Served)
            .map(|(at, _)| at)
    }

    /// An engine is told what a disk's stage asks of it.
    fn tell(&mut self, at: usize, on: usize) {
        let disk = &mut self.disks[at];
        let engine = &mut self.bench.reactors[on].engine;
        let key = disk.namespace.key;
        if std::mem::replace(&mut disk.told[on], true) {
            return;
        }
        match disk.stage {
            Stage::Coming => engine.attach(&disk.namespace).unwrap(),
            Stage::Retiring => engine.retire(key),
            Stage::Detaching => engine.detach(key),
            Stage::Served | Stage::Gone => {}
        }
    }

    /// The next stage, where every engine has carried this one out.
    fn go_on(&mut self, at: usize) {
        let disk = &mut self.disks[at];
        let key = disk.namespace.key;
        let all = |holds: &dyn Fn(&namespace::Engine) -> bool| {
            disk.told == [true; ENGINES]
                && self.bench.reactors.iter().all(|each| holds(&each.engine))
        };
        let next = match disk.stage {
            Stage::Coming if all(&|_| true) => Stage::Served,
            Stage::Retiring if all(&|engine| engine.is_drained(key)) => Stage::Detaching,
            Stage::Detaching if all(&|engine| !engine.is_attached(key)) => Stage::Gone,
            _ => return,
        };
        disk.stage = next;
        disk.told = [false; ENGINES];
    }

    /// A request of any kind to any namespace there is or was.
    fn begin(&mut self) {
        let Some(last) = self.disks.len().checked_sub(1) else {
            return;
        };
        // The newest as a rule.
        let back = self.below(6).min(last);
        let keys: Vec<NamespaceKey> = self.disks.iter().map(|it| it.namespace.key).collect();
        let (key, other) = (keys[last - back], keys[self.below(keys.len())]);
        let lba = self.random.below(BLOCKS - 8);
        let blocks = 1 + self.below(8) as u32;
        let data = || buf(&vec![5; blocks as usize * LBA_BYTES]);
        let durable = self.below(2) == 0;
        let io = match self.below(9) {
            0 => Io::Read {
                lba,
                blocks,
                into: None,
            },
            1 => Io::Write {
                lba,
                data: data(),
                durable,
            },
            2 => Io::Flush,
            3 => Io::FlushAll {
                others: vec![other],
            },
            4 => Io::WriteZeroes {
                lba,
                blocks,
                deallocate: durable,
                durable,
            },
            5 => Io::CompareAndWrite {
                lba,
                expected: Box::new(data()),
                data: data(),
                durable,
            },
            6 => Io::WriteUncorrectable { lba, blocks: 1 },
            7 => Io::Deallocate {
                ranges: vec![(lba, blocks); 3],
            },
            _ => Io::Copy {
                lba,
                sources: [key, other].map(|key| Source { key, lba, blocks }).into(),
                durable,
            },
        };
        let on = self.below(ENGINES);
        let token = self.bench.begin_at(on, key, io);
        self.begun[on].push(token);
    }

    fn turn(&mut self, on: usize) {
        self.bench.turn_of(on);
        for done in self.bench.reactors[on].done.drain(..) {
            *self.answers.entry((on, done.token)).or_default() += 1;
        }
    }

    fn step(&mut self) {
        let on = self.below(ENGINES);
        match self.below(16) {
            0 if self
                .disks
                .iter()
                .filter(|it| it.stage != Stage::Gone)
                .count()
                < 4 =>
            {
                self.add()
            }
            1 => {
                let served: Vec<_> = self.served().collect();
                if !served.is_empty() {
                    let at = served[self.below(served.len())];
                    self.disks[at].stage = Stage::Retiring;
                    self.disks[at].told = [false; ENGINES];
                }
            }
            2 if !self.disks.is_empty() => {
                let at = self.below(self.disks.len());
                self.tell(at, on);
                self.go_on(at);
            }
            3 => {
                if let Some(&token) = self.begun[on].last() {
                    self.bench.reactors[on].engine.cancel(token);
                }
            }
            4 if self.below(8) == 0 => {
                let part = self.random.below(4);
                let engine = &mut self.bench.reactors[on].engine;
                engine.abandon(|token| token % 4 == part);
            }
            5..=9 => self.begin(),
            _ => self.turn(on),
        }
    }

    /// Everything is taken away; whatever was begun ends by then.
    fn end(mut self) -> usize {
        for _ in 0..10_000 {
            for at in 0..self.disks.len() {
                if self.disks[at].stage == Stage::Served {
                    self.disks[at].stage = Stage::Retiring;
                    self.disks[at].told = [false; ENGINES];
                }
                (0..ENGINES).for_each(|on| self.tell(at, on));
                self.go_on(at);
            }
            (0..ENGINES).for_each(|on| self.turn(on));
            if self.disks.iter().all(|it| it.stage == Stage::Gone) {
                break;
            }
        }
        let left = self.disks.iter().filter(|it| it.stage != Stage::Gone);
        assert_eq!(left.count(), 0, "namespaces that do not go");
        for (on, tokens) in self.begun.iter().enumerate() {
            for &token in tokens {
                let answers = self.answers.get(&(on, token));
                assert_eq!(answers, Some(&1), "request {token} on {on}");
            }
            assert!(!self.bench.reactors[on].engine.is_busy());
        }
        assert_eq!(self.watch.open.load(SeqCst), 0, "handles");
        for disk in &self.disks {
            let gates = (&disk.namespace.gate, &disk.namespace.fence);
            assert!(!gates.0.is_closed() && !gates.1.is_up());
        }
        assert_eq!(*self.watch.complaints.lock().unwrap(), [""; 0]);
        self.watch.operations.load(SeqCst)
    }
}

#[test]
fn namespaces_churn_under_every_kind_of_request() {
    let mut operations = 0;
    for seed in 0..200 {
        let mut churn = Churn::new(seed);
        for _ in 0..600 {
            churn.step();
        }
        operations += churn.end();
    }
    println!("{operations} operations of stores");
    assert!(operations > 10_000, "{operations}");
}
