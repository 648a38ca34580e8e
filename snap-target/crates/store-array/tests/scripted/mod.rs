//! Members that serve one read whenever the test says so: who is served when is exact.

#![allow(dead_code, reason = "each test takes a part of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};
use store::{
    Backend, Completion, Limits, Op, Rejected, SharedStore, Store, StoreError, Terms, Token,
};

/// A member over `inner`.
#[derive(Clone, Debug)]
pub struct Scripted {
    inner: SharedStore,
    /// Reads that it takes at a time, and of these those ahead.
    pub room: usize,
    pub room_ahead: usize,
    /// It promises nothing of cancels.
    is_file: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// It holds what comes.
    is_on: bool,
    /// Reads that it may serve.
    permits: usize,
    /// Offsets, in the order in which they were served.
    served: Vec<u64>,
    /// It does not let go of what is cancelled.
    keeps: bool,
    /// Cancels and hurries that it was told.
    told: usize,
    /// Offsets of reads that it took to hold.
    taken: Vec<u64>,
}

impl Scripted {
    pub fn new(inner: SharedStore, room: usize, room_ahead: usize) -> Self {
        Self {
            inner,
            room,
            room_ahead,
            is_file: false,
            state: Arc::default(),
        }
    }

    /// It says that its medium decides when a cancel takes effect.
    pub fn of_a_file(self) -> Self {
        Self {
            is_file: true,
            ..self
        }
    }

    pub fn store(&self) -> SharedStore {
        SharedStore::new(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// From now on it holds what comes.
    pub fn hold(&self) {
        self.state().is_on = true;
    }

    /// What it has stays there, cancelled or not: a file whose server hangs.
    pub fn hang(&self) {
        let mut state = self.state();
        (state.is_on, state.keeps) = (true, true);
    }

    /// It gives back what was cancelled meanwhile.
    pub fn let_go(&self) {
        self.state().keeps = false;
    }

    /// It serves so many reads with the next poll.
    pub fn serve(&self, reads: usize) {
        self.state().permits += reads;
    }

    /// How often it was told of something that it may have.
    pub fn told(&self) -> usize {
        self.state().told
    }

    pub fn taken(&self) -> Vec<u64> {
        self.state().taken.clone()
    }

    pub fn served(&self) -> Vec<u64> {
        self.state().served.clone()
    }
}

impl Backend for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        if self.is_file {
            limits.cancel_bound_ms = None;
        }
        limits
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(Handle {
            inner: self.inner.open_handle(ring)?,
            limits: self.limits(),
            script: self.clone(),
            held: VecDeque::new(),
        }))
    }
}

struct Handle {
    inner: Box<dyn Store>,
    limits: Limits,
    script: Scripted,
    held: VecDeque<Held>,
}

struct Held {
    op: Op,
    buf: Option<IoBuf>,
    token: Token,
    terms: Terms,
    is_cancelled: bool,
}

impl Handle {
    fn next(&mut self) -> Option<Held> {
        let wanted = self.held.iter().position(|held| !held.terms.is_ahead);
        self.held.remove(wanted.unwrap_or(0))
    }

    fn named(&mut self, token: Token) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.token == token)
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
        terms: Terms,
    ) -> Result<(), Rejected> {
        if !self.script.state().is_on {
            return self.inner.submit(op, buf, token, terms);
        }
        let ahead = self.held.iter().filter(|held| held.terms.is_ahead).count();
        let is_full = self.held.len() == self.script.room;
        if is_full || (terms.is_ahead && ahead == self.script.room_ahead) {
            let why = StoreError::Busy;
            return Err(Rejected { op, buf, why });
        }
        self.script.state().taken.push(op.offset());
        self.held.push_back(Held {
            op,
            buf,
            token,
            terms,
            is_cancelled: false,
        });
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let permits = std::mem::take(&mut self.script.state().permits);
        for _ in 0..permits {
            let Some(held) = self.next() else { break };
            self.script.state().served.push(held.op.offset());
            let taken = self
                .inner
                .submit(held.op, held.buf, held.token, Terms::default());
            taken.unwrap();
        }
        let keeps = self.script.state().keeps;
        let now = Instant::now();
        let is_over = |held: &Held| held.terms.deadline.is_some_and(|deadline| now >= deadline);
        let goes = |held: &Held| (held.is_cancelled || is_over(held)) && !keeps;
        while let Some(at) = self.held.iter().position(goes) {
            let held = self.held.remove(at).unwrap();
            completions.push(Completion {
                token: held.token,
                buf: held.buf,
                result: Err(match held.is_cancelled {
                    true => StoreError::Cancelled {
                        store: "scripted".to_owned(),
                        offset: held.op.offset(),
                    },
                    false => StoreError::Unreachable {
                        store: "scripted".to_owned(),
                        what: "reading",
                        offset: held.op.offset(),
                        retry_after_ms: None,
                    },
                }),
            });
        }
        self.inner.poll(completions);
    }

    fn close(&mut self) {
        self.held
            .iter_mut()
            .for_each(|held| held.is_cancelled = true);
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed() && self.held.is_empty()
    }

    fn cancel(&mut self, token: Token) {
        self.script.state().told += 1;
        if let Some(held) = self.named(token) {
            held.is_cancelled = true;
        }
    }

    fn hurry(&mut self, token: Token) {
        self.script.state().told += 1;
        if let Some(held) = self.named(token) {
            held.terms.is_ahead = false;
        }
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }
}

/// A handle and its ring.
pub struct Bench {
    pub shared: SharedStore,
    ring: Ring,
    pub store: Box<dyn Store>,
    pub done: Vec<Completion>,
}

impl Bench {
    pub fn new(shared: &SharedStore) -> Self {
        let ring = Ring::new(&RingConfig::default()).unwrap();
        Self {
            shared: shared.clone(),
            store: shared.open_handle(&ring).unwrap(),
            ring,
            done: Vec::new(),
        }
    }

    /// A read of 4 KiB, named by its offset.
    pub fn read(&mut self, offset: u64, is_ahead: bool) {
        self.try_read(offset, 4096, is_ahead).unwrap();
    }

    /// A read of 4 KiB that has so much time.
    pub fn read_within(&mut self, offset: u64, time: Duration) {
        let terms = Terms {
            deadline: Some(Instant::now() + time),
            is_ahead: false,
        };
        let buf = Some(IoBuf::heap(4096).unwrap());
        let op = Op::Read { offset };
        self.store.submit(op, buf, Token(offset), terms).unwrap();
    }

    /// A read, if there is room.
    pub fn try_read(&mut self, offset: u64, len: usize, is_ahead: bool) -> Result<(), StoreError> {
        let terms = Terms {
            deadline: None,
            is_ahead,
        };
        let buf = Some(IoBuf::heap(len).unwrap());
        let op = Op::Read { offset };
        let taken = self.store.submit(op, buf, Token(offset), terms);
        taken.map_err(|rejected| rejected.why)
    }

    /// Takes every place that there is for reads ahead, then every one for the others; how many there were of each.
    pub fn fill(&mut self) -> [u64; 2] {
        let mut next = 0;
        let places = [true, false].map(|is_ahead| {
            let first = next;
            while self.try_read(next << 9, 512, is_ahead).is_ok() {
                next += 1;
            }
            next - first
        });
        assert_eq!(self.try_read(next << 9, 512, false), Err(StoreError::Busy));
        places
    }

    /// Polls for so long; nothing may end.
    pub fn turn_for(&mut self, time: Duration) {
        let ended = self.done.len();
        self.work_for(time);
        assert_eq!(self.done.len(), ended);
    }

    /// Polls for so long.
    pub fn work_for(&mut self, time: Duration) {
        let until = Some(Instant::now() + time);
        while until.is_some_and(|until| Instant::now() < until) {
            self.ring.turn(Wait::Block { until }).unwrap();
            self.store.poll(&mut self.done);
        }
    }

    pub fn poll(&mut self) {
        self.ring.turn(Wait::Poll).unwrap();
        self.store.poll(&mut self.done);
    }
}
