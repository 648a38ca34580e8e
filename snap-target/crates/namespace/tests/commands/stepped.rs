//! A store whose operations happen when a test says so.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use reactor::Ring;
use reactor::buf::IoBuf;
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

/// Lets operations happen, on all handles together.
#[derive(Debug, Default)]
pub struct Steps {
    /// Operations that may happen.
    allowed: AtomicUsize,
    /// Those that may happen before others, by their place in the log.
    chosen: Mutex<Vec<usize>>,
    /// Reads happen at once.
    reads_pass: AtomicBool,
    /// Operations that were taken so far, in their order.
    taken: Mutex<Vec<Op>>,
    /// Those that have not happened, by their place in the log.
    held: Mutex<Vec<usize>>,
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

    /// Lets the one that has this place in the log happen, whatever came before it.
    pub fn choose(&self, place: usize) {
        self.chosen.lock().unwrap().push(place);
    }

    /// Lets reads happen at once from now on.
    pub fn let_reads_pass(&self) {
        self.reads_pass.store(true, SeqCst);
    }

    /// The operations that have not happened, by their places in the log.
    pub fn held(&self) -> Vec<usize> {
        self.held.lock().unwrap().clone()
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

    /// Whether this one may happen before those that came before it.
    fn may_overtake(&self, held: &Held) -> bool {
        let passes = self.reads_pass.load(SeqCst) && matches!(held.op, Op::Read { .. });
        passes || self.chosen.lock().unwrap().contains(&held.place)
    }

    fn take(&self, op: Op) -> usize {
        let mut taken = self.taken.lock().unwrap();
        taken.push(op);
        let place = taken.len() - 1;
        self.held.lock().unwrap().push(place);
        place
    }

    fn let_go(&self, held: &Held) {
        let is_other = |place: &usize| *place != held.place;
        self.held.lock().unwrap().retain(is_other);
        self.chosen.lock().unwrap().retain(is_other);
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
    held: VecDeque<Held>,
    cancelled: Vec<Completion>,
}

/// An operation that has not happened.
struct Held {
    op: Op,
    buf: Option<IoBuf>,
    token: Token,
    /// In the log.
    place: usize,
}

impl Handle {
    fn next_overtaking(&mut self) -> Option<Held> {
        let overtakes = |held: &Held| self.steps.may_overtake(held);
        let found = self.held.iter().position(overtakes);
        found.and_then(|at| self.held.remove(at))
    }

    fn happen(&mut self, held: Held) {
        self.steps.let_go(&held);
        let Held { op, buf, token, .. } = held;
        self.inner.submit(op, buf, token, Terms::default()).unwrap();
    }
}

impl Store for Handle {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        _terms: Terms,
    ) -> Result<(), Rejected> {
        let place = self.steps.take(op);
        self.held.push_back(Held {
            op,
            buf,
            token,
            place,
        });
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.cancelled);
        while let Some(held) = self.next_overtaking() {
            self.happen(held);
        }
        while !self.held.is_empty() && self.steps.may_happen() {
            if let Some(held) = self.held.pop_front() {
                self.happen(held);
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
            .position(|held| held.token == token && !held.op.is_change());
        if let Some(held) = found.and_then(|at| self.held.remove(at)) {
            self.steps.let_go(&held);
            let store = "stepped".to_owned();
            let offset = held.op.offset();
            self.cancelled.push(Completion {
                token,
                buf: held.buf,
                result: Err(StoreError::Cancelled { store, offset }),
            });
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}
