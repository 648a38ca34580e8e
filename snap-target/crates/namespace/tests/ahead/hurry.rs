//! A store that serves no read ahead until somebody says that he waits for it.

use std::sync::{Arc, Mutex};

use namespace::Namespace;
use reactor::Ring;
use reactor::buf::IoBuf;
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

use crate::support::{Packed, source};
use crate::{BLOCK, Bench, config, raw_over};

/// Longer reads are payload; a survey's are blocks of tables.
const TABLE_BLOCK_BYTES: usize = 4096;

#[derive(Clone, Debug)]
struct Patient {
    inner: SharedStore,
    /// What it holds, in its order, and what it was asked to hurry: bytes of the store where a read begins.
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    held: Vec<u64>,
    hurried: Vec<u64>,
}

impl Backend for Patient {
    fn name(&self) -> &str {
        "patient"
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Handle {
            inner: self.inner.open_handle(ring)?,
            seen: self.seen.clone(),
            held: Vec::new(),
        }))
    }
}

struct Handle {
    inner: Box<dyn Store>,
    seen: Arc<Mutex<Seen>>,
    held: Vec<(Op, Option<IoBuf>, Token)>,
}

impl Handle {
    fn let_go(&mut self, token: Token) -> Option<u64> {
        let at = self.held.iter().position(|(_, _, held)| *held == token)?;
        let (op, buf, token) = self.held.remove(at);
        let taken = self.inner.submit(op, buf, token, Terms::default());
        taken.unwrap();
        Some(op.offset())
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
        terms: Terms,
    ) -> Result<(), Rejected> {
        let is_payload = buf.as_ref().is_some_and(|it| it.len() > TABLE_BLOCK_BYTES);
        if !(terms.is_ahead && is_payload) {
            return self.inner.submit(op, buf, token, terms);
        }
        self.seen.lock().unwrap().held.push(op.offset());
        self.held.push((op, buf, token));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.inner.poll(completions);
    }

    fn close(&mut self) {
        while let Some((_, _, token)) = self.held.first() {
            self.let_go(*token);
        }
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    fn cancel(&mut self, token: Token) {
        self.let_go(token);
        self.inner.cancel(token);
    }

    fn hurry(&mut self, token: Token) {
        if let Some(offset) = self.let_go(token) {
            self.seen.lock().unwrap().hurried.push(offset);
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

/// A hint has pieces fetched ahead; a read of one of them is served, and the others stay where they are.
fn a_read_hurries_what_it_joins(
    of: impl FnOnce(&dyn Fn(SharedStore) -> SharedStore) -> (Namespace, Vec<u8>),
) {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let (namespace, content) = of(&|inner| {
        let seen = seen.clone();
        SharedStore::new(Patient { inner, seen })
    });
    let mut bench = Bench::new(namespace, &config());
    // Blocks far from each other: nobody takes them for a stream, and no fetch has two.
    bench
        .engine
        .hint(bench.key, &[(0, 16), (64, 16), (128, 16)]);
    let mut done = Vec::new();
    bench.until(&mut done, |_, _| seen.lock().unwrap().held.len() == 3);
    assert_eq!(seen.lock().unwrap().hurried, [0; 0]);
    let read = bench.read(64, 16);
    assert!(read == content[64 * BLOCK..80 * BLOCK]);
    let Seen { held, hurried } = &*seen.lock().unwrap();
    assert_eq!(hurried[..], held[1..2], "of {held:?}");
    let counted = bench.counters();
    assert_eq!((counted.prefetch_late, counted.prefetch_hits), (1, 0));
}

#[test]
fn a_read_of_a_raw_store_hurries_what_it_joins() {
    a_read_hurries_what_it_joins(|behind| raw_over(|store| behind(crate::slow(store))));
}

#[test]
fn a_read_of_a_framed_view_hurries_what_it_joins() {
    let packed = Packed::new("hurry-lz4", "u16+lz4");
    a_read_hurries_what_it_joins(|behind| {
        let store = behind(crate::slow(packed.store()));
        let namespace = Namespace::of_view(1, packed.volume(), vec![store]);
        (namespace, source())
    });
}
