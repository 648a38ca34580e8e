//! A store that carries out the reads of a range when the test says so, or fails them.

#![allow(dead_code, reason = "each test program uses a part")]

use std::ops::Range;
use std::sync::{Arc, Mutex};

use reactor::Ring;
use reactor::buf::IoBuf;
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

/// What the test says to the store, and the store to the test. One handle of the store at a time takes reads of the range.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<Talk>>);

#[derive(Debug, Default)]
struct Talk {
    /// Reads that were taken and have not ended: offset, bytes, terms.
    held: Vec<(u64, usize, Terms)>,
    /// How those that were taken first are to end, in their order.
    verdicts: usize,
    fails: bool,
    is_open: bool,
    /// Offsets of reads that it was asked to hurry.
    hurried: Vec<u64>,
}

impl Gate {
    /// A store behind it.
    pub fn over(&self, inner: SharedStore, range: Range<u64>, depth: usize) -> SharedStore {
        SharedStore::new(Gated {
            inner,
            range,
            depth,
            gate: self.clone(),
        })
    }

    /// What the store has.
    pub fn held(&self) -> Vec<(u64, usize, Terms)> {
        self.0.lock().unwrap().held.clone()
    }

    /// Where the reads begin that it was asked to hurry.
    pub fn hurried(&self) -> Vec<u64> {
        self.0.lock().unwrap().hurried.clone()
    }

    /// What it has fails.
    pub fn fail_all(&self) {
        let mut talk = self.0.lock().unwrap();
        talk.fails = true;
        talk.verdicts = talk.held.len();
    }

    /// What it has, and whatever comes, is carried out.
    pub fn open(&self) {
        let mut talk = self.0.lock().unwrap();
        talk.fails = false;
        talk.is_open = true;
        talk.verdicts = talk.held.len();
    }
}

#[derive(Debug)]
struct Gated {
    inner: SharedStore,
    range: Range<u64>,
    depth: usize,
    gate: Gate,
}

impl Backend for Gated {
    fn name(&self) -> &str {
        "gated"
    }

    fn describe(&self) -> String {
        "gated".to_owned()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(GatedHandle {
            inner: self.inner.open_handle(ring)?,
            range: self.range.clone(),
            depth: self.depth,
            gate: self.gate.clone(),
            held: Vec::new(),
        }))
    }
}

struct GatedHandle {
    inner: Box<dyn Store>,
    range: Range<u64>,
    depth: usize,
    gate: Gate,
    held: Vec<(u64, IoBuf, Token)>,
}

impl Store for GatedHandle {
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
        let mut talk = self.gate.0.lock().unwrap();
        match (op, buf) {
            (Op::Read { offset }, Some(buf)) if self.range.contains(&offset) && !talk.is_open => {
                if self.held.len() == self.depth {
                    let (buf, why) = (Some(buf), StoreError::Busy);
                    return Err(Rejected { op, buf, why });
                }
                talk.held.push((offset, buf.len(), terms));
                self.held.push((offset, buf, token));
                Ok(())
            }
            (op, buf) => self.inner.submit(op, buf, token, terms),
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let mut talk = self.gate.0.lock().unwrap();
        let ended = talk.verdicts.min(self.held.len());
        talk.verdicts -= ended;
        talk.held.drain(..ended);
        for (offset, buf, token) in self.held.drain(..ended) {
            if talk.fails {
                completions.push(Completion {
                    token,
                    buf: Some(buf),
                    result: Err(StoreError::Unreachable {
                        store: "gated".to_owned(),
                        what: "reading",
                        offset,
                        retry_after_ms: None,
                    }),
                });
            } else {
                let (op, terms) = (Op::Read { offset }, Terms::default());
                self.inner.submit(op, Some(buf), token, terms).unwrap();
            }
        }
        self.inner.poll(completions);
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

    fn hurry(&mut self, token: Token) {
        let named = |(_, _, held): &&(u64, IoBuf, Token)| *held == token;
        if let Some((offset, _, _)) = self.held.iter().find(named) {
            self.gate.0.lock().unwrap().hurried.push(*offset);
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}
