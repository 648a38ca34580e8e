//! A store whose writes, reads or flushes wait until a test lets them go: what a disk does that cannot reach a sector.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use reactor::buf::IoBuf;
use reactor::{Owner, Ring};
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

/// A handle looks at its gate so often while it holds something.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// A write that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a test holds the writes with.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    /// Writes to hold before the others pass.
    to_hold: usize,
    held: usize,
    /// Of these, what was let go and has ended.
    released: usize,
    open: bool,
    kind: Kind,
}

/// What is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Writes,
    Reads,
    Flushes,
    /// Writes, and with them the thread that brings them.
    Threads,
}

impl Gate {
    /// A store that holds its first `writes` writes.
    #[must_use]
    pub fn over(store: SharedStore, writes: usize) -> (Gate, SharedStore) {
        let gate = Gate::default();
        gate.0.0.lock().unwrap().to_hold = writes;
        let backend = HeldBackend {
            inner: store,
            gate: gate.clone(),
        };
        (gate, SharedStore::new(backend))
    }

    /// A store that holds its first flushes instead.
    #[must_use]
    pub fn over_flushes(store: SharedStore, flushes: usize) -> (Gate, SharedStore) {
        let (gate, store) = Gate::over(store, flushes);
        gate.0.0.lock().unwrap().kind = Kind::Flushes;
        (gate, store)
    }

    /// A store whose first write keeps its reactor's thread until the gate opens: the reactor does nothing meanwhile.
    #[must_use]
    pub fn over_thread(store: SharedStore) -> (Gate, SharedStore) {
        let (gate, store) = Gate::over(store, 1);
        gate.0.0.lock().unwrap().kind = Kind::Threads;
        (gate, store)
    }

    /// A store that holds its first reads instead, and lends no memory meanwhile.
    #[must_use]
    pub fn over_reads(store: SharedStore, reads: usize) -> (Gate, SharedStore) {
        let (gate, store) = Gate::over(store, reads);
        gate.0.0.lock().unwrap().kind = Kind::Reads;
        (gate, store)
    }

    /// Returns once so many writes are held.
    pub fn wait_held(&self, writes: usize) {
        self.wait_for(writes, "were held", |state| state.held);
    }

    /// How many have been held so far.
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.0.lock().unwrap().held
    }

    /// Returns once so many of those that were held have ended; whoever asked for them takes that up in the same turn of its reactor.
    pub fn wait_released(&self, count: usize) {
        self.wait_for(count, "have ended", |state| state.released);
    }

    fn wait_for(&self, count: usize, what: &str, of: impl Fn(&State) -> usize) {
        let (state, changed) = &*self.0;
        let state = state.lock().unwrap();
        let waited = changed.wait_timeout_while(state, PATIENCE, |state| of(state) < count);
        let there = of(&waited.unwrap().0);
        assert!(there >= count, "{there} of {count} {what}");
    }

    fn note_released(&self, count: usize) {
        let (state, changed) = &*self.0;
        state.lock().unwrap().released += count;
        changed.notify_all();
    }

    /// Lets all writes go, in the order in which they came.
    pub fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().unwrap().open = true;
        changed.notify_all();
    }

    fn wait_open(&self) {
        let (state, changed) = &*self.0;
        let opened = changed.wait_while(state.lock().unwrap(), |state| !state.open);
        drop(opened.unwrap());
    }

    fn holds_threads(&self) -> bool {
        self.0.0.lock().unwrap().kind == Kind::Threads
    }

    fn is_open(&self) -> bool {
        self.0.0.lock().unwrap().open
    }

    fn holds_reads(&self) -> bool {
        self.0.0.lock().unwrap().kind == Kind::Reads
    }

    /// Whether this operation is to be held.
    fn holds(&self, op: &Op) -> bool {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        let is_such = match op {
            Op::Write { .. } => matches!(state.kind, Kind::Writes | Kind::Threads),
            Op::Read { .. } => state.kind == Kind::Reads,
            Op::Flush => state.kind == Kind::Flushes,
            _ => false,
        };
        if !is_such || state.open || state.to_hold == 0 {
            return false;
        }
        state.to_hold -= 1;
        state.held += 1;
        changed.notify_all();
        true
    }
}

#[derive(Debug)]
struct HeldBackend {
    inner: SharedStore,
    gate: Gate,
}

impl Backend for HeldBackend {
    fn name(&self) -> &str {
        "held"
    }

    fn describe(&self) -> String {
        format!("{}, its writes held", self.inner.describe())
    }

    /// What is held has not ended when it was taken.
    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        limits.ends_in_submit = false;
        limits
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(HeldStore {
            limits: self.limits(),
            inner: self.inner.open_handle(ring)?,
            owner: ring.register().unwrap(),
            gate: self.gate.clone(),
            held: Vec::new(),
            closing: false,
        }))
    }
}

struct HeldStore {
    limits: Limits,
    inner: Box<dyn Store>,
    owner: Owner,
    gate: Gate,
    held: Vec<(Op, Option<IoBuf>, Token)>,
    closing: bool,
}

impl HeldStore {
    fn look_again(&self) {
        self.owner.timer(Instant::now() + LOOK_AGAIN, 0).unwrap();
    }
}

impl Store for HeldStore {
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
        if !self.gate.holds(&op) {
            return self.inner.submit(op, buf, token, terms);
        }
        if self.gate.holds_threads() {
            self.gate.wait_open();
            return self.inner.submit(op, buf, token, terms);
        }
        if self.held.is_empty() {
            self.look_again();
        }
        self.held.push((op, buf, token));
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let mut released = 0;
        while self.owner.next_event().is_some() {
            if self.gate.is_open() {
                for (op, buf, token) in self.held.drain(..) {
                    released += 1;
                    self.inner.submit(op, buf, token, Terms::default()).unwrap();
                }
            } else {
                self.look_again();
            }
        }
        if self.closing && self.held.is_empty() {
            self.inner.close();
        }
        self.inner.poll(completions);
        // The store in memory has ended them by now.
        self.gate.note_released(released);
    }

    fn close(&mut self) {
        self.closing = true;
    }

    fn is_closed(&self) -> bool {
        self.closing && self.held.is_empty() && self.inner.is_closed()
    }

    /// What is with the disk stays there.
    fn cancel(&mut self, _token: Token) {}

    fn lease(&mut self, offset: u64, len: u32) -> Option<IoBuf> {
        if self.gate.holds_reads() {
            return None;
        }
        self.inner.lease(offset, len)
    }
}
