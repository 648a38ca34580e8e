//! Engines on one thread, a ring each, over the same namespaces.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use namespace::{
    Asked, Done, Engine, EngineConfig, Identity, Io, KeepError, Keeper, Namespace, NamespaceError,
    NamespaceKey, NamespaceSet, RecordKind, Saved, Source,
};
use reactor::buf::{IoBuf, PoolConfig};
use reactor::{Ring, RingConfig, Wait};
use store::{OpenOptions, SharedStore, StoreSpec};

pub const LBA_BYTES: usize = 512;

/// Memory of so many blocks.
pub fn memory(blocks: u64) -> SharedStore {
    let bytes = blocks * LBA_BYTES as u64;
    SharedStore::open(&StoreSpec::Mem { bytes }, OpenOptions::read_write()).unwrap()
}

pub fn disk(nsid: u32, store: SharedStore) -> Namespace {
    Namespace::of_store(
        nsid,
        store,
        Identity::of_raw("test", &nsid.to_le_bytes()),
        LBA_BYTES as u32,
    )
}

/// Bytes that are another in each block and for each seed.
pub fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * LBA_BYTES)
        .map(|at| (at / LBA_BYTES * 7 + at % 251) as u8 ^ seed)
        .collect()
}

pub fn buf(bytes: &[u8]) -> IoBuf {
    IoBuf::from_bytes(bytes).unwrap()
}

pub struct Reactor {
    ring: Ring,
    pub engine: Engine,
    next_token: u64,
    pub done: Vec<Done>,
}

/// What engines of tests have, unless a test says so.
pub fn config() -> EngineConfig {
    EngineConfig {
        pool: PoolConfig {
            register: false,
            ..PoolConfig::default()
        },
        ..EngineConfig::default()
    }
}

pub struct Bench {
    pub reactors: Vec<Reactor>,
    keys: HashMap<u32, NamespaceKey>,
}

impl Bench {
    pub fn new(engines: usize, namespaces: Vec<Namespace>) -> Bench {
        Bench::with(engines, namespaces, config())
    }

    pub fn with(engines: usize, namespaces: Vec<Namespace>, config: EngineConfig) -> Bench {
        let keys = namespaces
            .iter()
            .map(|each| (each.nsid, each.key))
            .collect();
        let set = NamespaceSet::new(namespaces.into_iter().map(Arc::new).collect());
        let mut reactors: Vec<Reactor> = (0..engines)
            .map(|_| {
                let ring = Ring::new(&RingConfig::default()).unwrap();
                let engine = Engine::new(&ring, &set, &config).unwrap();
                Reactor {
                    ring,
                    engine,
                    next_token: 1,
                    done: Vec::new(),
                }
            })
            .collect();
        let peers: Vec<_> = reactors.iter().map(|each| each.engine.peer()).collect();
        for (number, each) in reactors.iter_mut().enumerate() {
            each.engine.meet(number as u16, &peers);
        }
        Bench { reactors, keys }
    }

    /// The name of a namespace; of one that nobody has where there is none.
    pub fn key(&self, nsid: u32) -> NamespaceKey {
        let there = self.keys.get(&nsid).copied();
        there.unwrap_or_else(NamespaceKey::next)
    }

    pub fn source(&self, nsid: u32, lba: u64, blocks: u32) -> Source {
        let key = self.key(nsid);
        Source { key, lba, blocks }
    }

    /// Begins a request on an engine; its token.
    pub fn begin(&mut self, on: usize, nsid: u32, io: Io) -> u64 {
        self.begin_at(on, self.key(nsid), io)
    }

    /// The same of a namespace by its key.
    pub fn begin_at(&mut self, on: usize, key: NamespaceKey, io: Io) -> u64 {
        let reactor = &mut self.reactors[on];
        let token = reactor.next_token;
        reactor.next_token += 1;
        let asked = Asked {
            snapshot: true,
            ..Asked::with(token)
        };
        let done = reactor.engine.submit(key, io, asked);
        reactor.done.extend(done);
        token
    }

    /// One turn of every engine, without waiting.
    pub fn turn(&mut self) {
        (0..self.reactors.len()).for_each(|on| self.turn_of(on));
    }

    /// One turn of one engine.
    pub fn turn_of(&mut self, on: usize) {
        let reactor = &mut self.reactors[on];
        reactor.ring.turn(Wait::Poll).unwrap();
        while reactor.ring.next_ready().is_some() {}
        reactor.engine.poll(&mut reactor.done);
    }

    /// Waits for the answer of a request.
    pub fn end(&mut self, on: usize, token: u64) -> Result<Option<IoBuf>, NamespaceError> {
        loop {
            let done = &mut self.reactors[on].done;
            if let Some(at) = done.iter().position(|done| done.token == token) {
                let done = done.remove(at);
                return done.result.map(|()| done.buf);
            }
            self.turn();
        }
    }

    /// As [`Bench::end`], where that is there after so many turns at most.
    pub fn end_within(
        &mut self,
        turns: usize,
        on: usize,
        token: u64,
    ) -> Option<Result<Option<IoBuf>, NamespaceError>> {
        for _ in 0..turns {
            if self.is_done(on, token) {
                return Some(self.end(on, token));
            }
            self.turn();
        }
        None
    }

    pub fn is_done(&self, on: usize, token: u64) -> bool {
        let done = &self.reactors[on].done;
        done.iter().any(|done| done.token == token)
    }

    pub fn run(&mut self, on: usize, nsid: u32, io: Io) -> Result<Option<IoBuf>, NamespaceError> {
        let token = self.begin(on, nsid, io);
        self.end(on, token)
    }

    pub fn read(&mut self, nsid: u32, lba: u64, blocks: u32) -> Result<Vec<u8>, NamespaceError> {
        let into = None;
        let read = self.run(0, nsid, Io::Read { lba, blocks, into })?;
        Ok(read.unwrap().to_vec())
    }

    pub fn write(&mut self, nsid: u32, lba: u64, bytes: &[u8]) -> Result<(), NamespaceError> {
        let io = Io::Write {
            lba,
            data: buf(bytes),
            durable: false,
        };
        self.run(0, nsid, io).map(|_| ())
    }
}

/// Keeps records in memory; on request it holds saves back, or refuses them.
#[derive(Default)]
pub struct Notebook {
    pub records: Mutex<HashMap<&'static str, Vec<u8>>>,
    pub held: Mutex<Vec<(Vec<u8>, Saved)>>,
    pub holds: std::sync::atomic::AtomicBool,
    pub refuses: std::sync::atomic::AtomicBool,
}

impl std::fmt::Debug for Notebook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("notebook")
    }
}

impl Keeper for Notebook {
    fn is_durable(&self) -> bool {
        true
    }

    fn save(&self, kind: RecordKind, bytes: Vec<u8>, saved: Saved) {
        use std::sync::atomic::Ordering::SeqCst;
        if self.refuses.load(SeqCst) {
            let why = "refused".to_owned();
            return saved(Err(KeepError { kind, why }));
        }
        if self.holds.load(SeqCst) {
            return self.held.lock().unwrap().push((bytes, saved));
        }
        self.records.lock().unwrap().insert(kind.name(), bytes);
        saved(Ok(()));
    }

    fn load(&self, kind: RecordKind) -> Result<Option<Vec<u8>>, KeepError> {
        Ok(self.records.lock().unwrap().get(kind.name()).cloned())
    }
}

impl Notebook {
    /// Saves what was held back.
    pub fn let_go(&self) {
        while self.let_one_go() {}
    }

    /// Saves the first that was held back; false where nothing is.
    pub fn let_one_go(&self) -> bool {
        let mut held = self.held.lock().unwrap();
        if held.is_empty() {
            return false;
        }
        let (bytes, saved) = held.remove(0);
        let kind = RecordKind::Uncorrectable;
        self.records.lock().unwrap().insert(kind.name(), bytes);
        saved(Ok(()));
        true
    }
}
