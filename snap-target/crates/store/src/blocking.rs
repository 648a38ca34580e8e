//! A store for programs that have nothing else to do: each call waits for its completion.

use reactor::buf::IoBuf;
use reactor::{Ring, RingConfig, Wait};

use crate::contract::{Completion, Op, Store, Terms, Token};
use crate::error::StoreError;
use crate::shared::SharedStore;

/// Bytes moved by one operation; longer calls are cut.
const STEP_BYTES: usize = 1 << 20;

/// A ring and one handle on it. For tools and tests, not for the data path.
pub struct BlockingStore {
    ring: Ring,
    store: Box<dyn Store>,
    name: String,
    buf: Option<IoBuf>,
    completions: Vec<Completion>,
    next_token: u64,
}

impl BlockingStore {
    /// Opens a handle on a ring of its own, made for this thread.
    ///
    /// # Errors
    /// [`StoreError::Resources`], with the reactor's advice where io_uring is refused.
    pub fn new(shared: &SharedStore) -> Result<Self, StoreError> {
        let config = RingConfig {
            ops_max: 64,
            submissions: 64,
            // A remote store has one for each path, and its own.
            owners_max: 16,
            events_max: 64,
            timers_max: 16,
            recv_buffers: 1,
            ..RingConfig::default()
        };
        let ring = Ring::new(&config).map_err(|error| resources(shared, &error))?;
        Self::on_ring(shared, &ring)
    }

    /// Opens a handle on a ring that this thread has.
    ///
    /// # Errors
    /// [`StoreError::Resources`].
    pub fn on_ring(shared: &SharedStore, ring: &Ring) -> Result<Self, StoreError> {
        let step = STEP_BYTES.min(shared.limits().transfer_bytes_max as usize);
        let buf = IoBuf::heap(step).map_err(|error| resources(shared, &error))?;
        Ok(Self {
            ring: ring.clone(),
            store: shared.open_handle(ring)?,
            name: shared.name().to_owned(),
            buf: Some(buf),
            completions: Vec::with_capacity(1),
            next_token: 0,
        })
    }

    /// Size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.store.limits().bytes
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// Whatever the store reports; `out` is then undefined.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let step = self.step_bytes();
        let mut at = offset;
        for part in out.chunks_mut(step) {
            self.transfer(Op::Read { offset: at }, part.len(), |buf| {
                buf.copy_to(0, part);
            })?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes `data` from `offset` on.
    ///
    /// # Errors
    /// Whatever the store reports; some of the bytes may then be written.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let step = self.step_bytes();
        let mut at = offset;
        for part in data.chunks(step) {
            if let Some(buf) = &mut self.buf {
                buf.copy_from(0, part);
            }
            self.transfer(
                Op::Write {
                    offset: at,
                    durable: false,
                },
                part.len(),
                |_| (),
            )?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Runs an operation without a buffer: flush, discard, zero. A long range is cut.
    ///
    /// # Errors
    /// Whatever the store reports.
    pub fn run(&mut self, op: Op) -> Result<(), StoreError> {
        let (offset, len) = match op {
            Op::Discard { offset, len } | Op::Zero { offset, len, .. } => (offset, len),
            _ => return self.complete(op, None).1.map(drop),
        };
        let limits = self.store.limits();
        let step = u64::from(limits.range_bytes_max);
        if offset.checked_add(len).is_none_or(|end| end > limits.bytes) {
            // For the store to refuse, before anything happened.
            return self.complete(op, None).1.map(drop);
        }
        let mut done = 0;
        loop {
            let part = (len - done).min(step);
            self.complete(part_of(op, offset + done, part), None).1?;
            done += part;
            if done == len {
                return Ok(());
            }
        }
    }

    fn step_bytes(&self) -> usize {
        self.buf.as_ref().map_or(1, IoBuf::len)
    }

    /// Runs one read or write on the first `len` bytes of our buffer, which comes back whatever happens.
    fn transfer(
        &mut self,
        op: Op,
        len: usize,
        then: impl FnOnce(&IoBuf),
    ) -> Result<(), StoreError> {
        let view = self.buf.as_ref().map(|buf| buf.slice(0..len));
        let (view, result) = self.complete(op, view);
        result?;
        if let Some(view) = view {
            then(&view);
        }
        Ok(())
    }

    fn complete(&mut self, op: Op, buf: Option<IoBuf>) -> (Option<IoBuf>, Result<u32, StoreError>) {
        let token = Token(self.next_token);
        self.next_token += 1;
        if let Err(rejected) = self.store.submit(op, buf, token, Terms::default()) {
            return (rejected.buf, Err(rejected.why));
        }
        loop {
            self.store.poll(&mut self.completions);
            if let Some(done) = self.completions.pop() {
                return (done.buf, done.result);
            }
            if let Err(error) = self.ring.turn(Wait::Block { until: None }) {
                return (
                    None,
                    Err(StoreError::Resources {
                        store: self.name.clone(),
                        why: error.to_string(),
                    }),
                );
            }
        }
    }
}

/// The same operation on a part of its range.
fn part_of(op: Op, offset: u64, len: u64) -> Op {
    match op {
        Op::Discard { .. } => Op::Discard { offset, len },
        Op::Zero { durable, .. } => Op::Zero {
            offset,
            len,
            durable,
        },
        other => other,
    }
}

fn resources(shared: &SharedStore, error: &reactor::ReactorError) -> StoreError {
    StoreError::Resources {
        store: shared.name().to_owned(),
        why: error.to_string(),
    }
}
