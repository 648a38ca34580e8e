//! Namespaces come and go while others are served.

#![allow(
    clippy::unwrap_used,
    reason = "a failure of a test is a panic with its line"
)]

mod support;

use std::sync::Arc;

use namespace::{
    Asked, Done, Engine, EngineConfig, Identity, Io, Namespace, NamespaceError, NamespaceKey,
    NamespaceSet,
};
use reactor::{Ring, RingConfig, Wait};
use store::{OpenOptions, SharedStore, StoreSpec};
use support::{Packed, source};

const BLOCK: usize = 4096;

/// A request for bytes that do not change any more.
fn snapshot(token: u64) -> Asked {
    Asked {
        snapshot: true,
        ..Asked::with(token)
    }
}

/// Engines on this thread, in turns.
struct Pair {
    rings: Vec<Ring>,
    engines: Vec<Engine>,
}

impl Pair {
    fn new() -> Pair {
        let rings: Vec<_> = (0..2)
            .map(|_| Ring::new(&RingConfig::default()).unwrap())
            .collect();
        let mut engines: Vec<_> = rings
            .iter()
            .map(|ring| {
                let none = NamespaceSet::default();
                Engine::new(ring, &none, &EngineConfig::default()).unwrap()
            })
            .collect();
        let peers: Vec<_> = engines.iter().map(Engine::peer).collect();
        for (engine, index) in engines.iter_mut().zip(0..) {
            engine.meet(index, &peers);
        }
        Pair { rings, engines }
    }

    fn attach(&mut self, namespace: &Arc<Namespace>) {
        for engine in &mut self.engines {
            engine.attach(namespace).unwrap();
        }
    }

    fn turn(&mut self) -> Vec<Done> {
        let mut done = Vec::new();
        for (engine, ring) in self.engines.iter_mut().zip(&self.rings) {
            ring.turn(Wait::Poll).unwrap();
            while ring.next_ready().is_some() {}
            engine.poll(&mut done);
        }
        done
    }

    fn until(&mut self, mut holds: impl FnMut(&mut Pair) -> bool) {
        for _ in 0..1_000_000 {
            if holds(self) {
                return;
            }
            assert!(self.turn().is_empty(), "nothing was asked");
        }
        panic!("it does not come about");
    }

    #[expect(
        clippy::result_large_err,
        reason = "the error is what the tests look at"
    )]
    fn read(
        &mut self,
        engine: usize,
        key: NamespaceKey,
        lba: u64,
    ) -> Result<Vec<u8>, NamespaceError> {
        let io = Io::Read {
            lba,
            blocks: 1,
            into: None,
        };
        let mut done: Vec<_> = self.engines[engine]
            .submit(key, io, snapshot(7))
            .into_iter()
            .collect();
        while done.is_empty() {
            done = self.turn();
        }
        let done = done.pop().unwrap();
        done.result.map(|()| done.buf.unwrap().to_vec())
    }
}

fn file_of(fill: u8, blocks: usize) -> (tempfile::NamedTempFile, SharedStore) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![fill; blocks * BLOCK]).unwrap();
    let spec = StoreSpec::File {
        path: file.path().to_owned(),
    };
    let store = SharedStore::open(&spec, OpenOptions::read_write()).unwrap();
    (file, store)
}

fn disk(nsid: u32, store: SharedStore) -> Arc<Namespace> {
    let identity = Identity::of_raw("test", &nsid.to_le_bytes());
    Arc::new(Namespace::of_store(nsid, store, identity, 4096))
}

/// Open descriptors of this process that are this file.
fn descriptors_of(file: &tempfile::NamedTempFile) -> usize {
    let path = file.path().canonicalize().unwrap();
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter(|entry| {
            std::fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|to| to == path)
        })
        .count()
}

/// A namespace that is detached answers its last requests, takes no more, and leaves no descriptor open; another takes its place and its number, and
/// presents its own bytes.
#[test]
fn namespaces_come_and_go() {
    let mut pair = Pair::new();
    let (file, store) = file_of(1, 8);
    assert!(descriptors_of(&file) > 1, "the test's own, and the store's");
    let first = disk(1, store);
    pair.attach(&first);
    let (_other_file, other) = file_of(2, 8);
    let other = disk(2, other);
    pair.attach(&other);
    for engine in 0..2 {
        assert_eq!(pair.read(engine, first.key, 3).unwrap(), vec![1; BLOCK]);
        assert_eq!(pair.read(engine, other.key, 3).unwrap(), vec![2; BLOCK]);
    }
    // A read is under way when its namespace retires: it is answered.
    let io = Io::Read {
        lba: 0,
        blocks: 8,
        into: None,
    };
    let mut done: Vec<_> = pair.engines[1]
        .submit(first.key, io, snapshot(1))
        .into_iter()
        .collect();
    for engine in &mut pair.engines {
        engine.retire(first.key);
    }
    assert!(pair.engines[0].is_drained(first.key));
    assert_eq!(pair.engines[1].is_drained(first.key), !done.is_empty());
    while done.is_empty() {
        done = pair.turn();
    }
    assert!(done[0].result.is_ok());
    assert_eq!(done[0].buf.as_ref().unwrap().to_vec(), vec![1; 8 * BLOCK]);
    drop(done);
    assert!(pair.engines[1].is_drained(first.key));
    assert!(matches!(
        pair.read(0, first.key, 0),
        Err(NamespaceError::Detached { key }) if key == first.key
    ));
    for engine in &mut pair.engines {
        engine.detach(first.key);
    }
    let key = first.key;
    pair.until(|pair| !pair.engines.iter().any(|engine| engine.is_attached(key)));
    assert!(Arc::into_inner(first).is_some(), "the engines let go of it");
    assert_eq!(
        descriptors_of(&file),
        1,
        "the test's own: the store let go of it"
    );
    let (_third_file, third) = file_of(3, 4);
    let third = disk(1, third);
    pair.attach(&third);
    for engine in 0..2 {
        assert_eq!(pair.read(engine, third.key, 3).unwrap(), vec![3; BLOCK]);
        assert_eq!(pair.read(engine, other.key, 7).unwrap(), vec![2; BLOCK]);
        assert!(pair.read(engine, key, 0).is_err());
    }
}

/// Frames of a view are fetched by their home for whoever asks: none is left behind in a cache, or at a place that the next namespace takes.
#[test]
fn a_view_leaves_nothing_behind() {
    let mut pair = Pair::new();
    let mut expected = source();
    expected.resize(expected.len().next_multiple_of(BLOCK), 0);
    for chain in ["u16+lz4", "bitpack:17", "u16+zstd:3"] {
        let packed = Packed::new(&format!("leaves-{}", chain.len()), chain);
        let view = Arc::new(Namespace::of_view(1, packed.volume(), vec![packed.store()]));
        pair.attach(&view);
        for lba in [0, 17, view.blocks - 1] {
            for engine in 0..2 {
                let start = usize::try_from(lba).unwrap() * BLOCK;
                let read = pair.read(engine, view.key, lba).unwrap();
                assert_eq!(read, expected[start..start + BLOCK], "{chain}, block {lba}");
            }
        }
        for engine in &mut pair.engines {
            engine.retire(view.key);
            assert!(engine.is_drained(view.key));
        }
        for engine in &mut pair.engines {
            engine.detach(view.key);
        }
        let key = view.key;
        pair.until(|pair| !pair.engines.iter().any(|engine| engine.is_attached(key)));
    }
    for engine in &pair.engines {
        assert_eq!(engine.cache_counters().used_bytes, 0);
    }
}
