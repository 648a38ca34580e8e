//! A store whose operations happen when a test says so.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use reactor::Ring;
use reactor::buf::IoBuf;
use store::{Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Token};

/// Lets operations happen, on all handles together.
#[derive(Debug, Default)]
pub struct Steps {
    /// Operations that may happen.
    allowed: AtomicUsize,
    /// Operations that were taken so far, in their order.
    taken: Mutex<Vec<Op>>,
}

impl Steps {
    pub fn over(inner: SharedStore) -> (Arc<Steps>, SharedStore) {
        let steps = Arc::new(Steps::default());
        let store = SharedStore::new(Stepped {
            inner,
            steps: steps.clone(),
        });
        (steps, store)
    }

    pub fn allow(&self, count: usize) {
        self.allowed.fetch_add(count, SeqCst);
    }

    pub fn taken(&self) -> usize {
        self.taken.lock().unwrap().len()
    }

    /// The operations that were taken.
    pub fn log(&self) -> Vec<Op> {
        self.taken.lock().unwrap().clone()
    }

    fn may_happen(&self) -> bool {
        let less = |allowed: usize| allowed.checked_sub(1);
        self.allowed.fetch_update(SeqCst, SeqCst, less).is_ok()
    }
}

#[derive(Debug)]
struct Stepped {
    inner: SharedStore,
    steps: Arc<Steps>,
}

impl Backend for Stepped {
    fn name(&self) -> &str {
        "stepped"
    }

    fn describe(&self) -> String {
        "stepped".to_owned()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Handle {
            limits: self.inner.limits(),
            inner: self.inner.open_handle(ring)?,
            steps: self.steps.clone(),
            held: VecDeque::new(),
            cancelled: Vec::new(),
        }))
    }
}

struct Handle {
    inner: Box<dyn Store>,
    limits: Limits,
    steps: Arc<Steps>,
    held: VecDeque<(Op, Option<IoBuf>, Token)>,
    cancelled: Vec<Completion>,
}

impl Store for Handle {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, op: Op, buf: Option<IoBuf>, token: Token) -> Result<(), Rejected> {
        self.steps.taken.lock().unwrap().push(op);
        self.held.push_back((op, buf, token));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.cancelled);
        while !self.held.is_empty() && self.steps.may_happen() {
            if let Some((op, buf, token)) = self.held.pop_front() {
                self.inner.submit(op, buf, token).unwrap();
            }
        }
        self.inner.poll(completions);
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed() && self.held.is_empty()
    }

    /// Reads listen to it; a change is with the medium already.
    fn cancel(&mut self, token: Token) {
        let found = self
            .held
            .iter()
            .position(|(op, _, held)| *held == token && !op.is_change());
        if let Some((op, buf, token)) = found.and_then(|at| self.held.remove(at)) {
            let store = "stepped".to_owned();
            let offset = op.offset();
            self.cancelled.push(Completion {
                token,
                buf,
                result: Err(StoreError::Cancelled { store, offset }),
            });
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}
