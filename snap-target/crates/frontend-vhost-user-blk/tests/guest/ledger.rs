//! A store that keeps a list of what it was asked.

use std::sync::{Arc, Mutex};

use reactor::Ring;
use reactor::buf::IoBuf;
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

/// What changes there were, in their order: their kind, and whether they were to be durable.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<Vec<(&'static str, bool)>>>);

/// How long writes of a killed process may land.
pub const LINGERS_MS: u32 = 700;

impl Ledger {
    pub fn over(inner: SharedStore) -> (Self, SharedStore) {
        let ledger = Self::default();
        let backend = Kept {
            inner,
            ledger: ledger.clone(),
            lingers_ms: 0,
        };
        (ledger, SharedStore::new(backend))
    }

    /// A store whose writes land up to [`LINGERS_MS`] after the end of their process.
    pub fn over_lingering(inner: SharedStore) -> (Self, SharedStore) {
        let ledger = Self::default();
        let backend = Kept {
            inner,
            ledger: ledger.clone(),
            lingers_ms: LINGERS_MS,
        };
        (ledger, SharedStore::new(backend))
    }

    /// What has come since the last time.
    pub fn take(&self) -> Vec<(&'static str, bool)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn note(&self, op: &Op) {
        let entry = match op {
            Op::Write { durable, .. } => ("write", *durable),
            Op::Zero { durable, .. } => ("zero", *durable),
            Op::Flush => ("flush", true),
            Op::Discard { .. } => ("discard", false),
            Op::Read { .. } => return,
        };
        self.0.lock().unwrap().push(entry);
    }
}

#[derive(Debug)]
struct Kept {
    inner: SharedStore,
    ledger: Ledger,
    lingers_ms: u32,
}

impl Backend for Kept {
    fn name(&self) -> &str {
        "kept"
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        limits.lingers_ms = self.lingers_ms;
        limits
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(KeptHandle {
            inner: self.inner.open_handle(ring)?,
            ledger: self.ledger.clone(),
        }))
    }
}

struct KeptHandle {
    inner: Box<dyn Store>,
    ledger: Ledger,
}

impl Store for KeptHandle {
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
        self.ledger.note(&op);
        self.inner.submit(op, buf, token, terms)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
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

    fn lease(&mut self, offset: u64, len: u32) -> Option<IoBuf> {
        self.inner.lease(offset, len)
    }
}
