//! A store that fails on purpose.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use reactor::Ring;
use reactor::buf::IoBuf;

use crate::contract::{Completion, Limits, Op, Rejected, Store, Terms, Token, WireBytes, check};
use crate::error::StoreError;
use crate::shared::{Backend, SharedStore};

/// What a short read leaves in the bytes that it did not deliver.
const JUNK: u8 = 0xee;

/// Which operations a fault can strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
}

/// Which of the operations that match it strikes, counted over all handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Each.
    Always,
    /// The n-th only, from 1.
    Nth(u64),
    /// The n-th, the 2n-th and so on.
    EveryNth(u64),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The operation does not happen and fails with this errno.
    Error(Errno),
    /// The operation does not happen, because the store cannot be reached.
    Unreachable {
        /// When it says it is back.
        retry_after_ms: Option<u32>,
    },
    /// The last bytes are not transferred, and the completion says so: a broken promise that whoever checks must notice.
    Short {
        /// Bytes missing at the end; all of them if the operation is shorter.
        missing: u32,
    },
    /// A byte is read wrongly: the byte at this offset of the store comes with these bits flipped.
    Corrupt {
        /// Which byte.
        offset: u64,
        /// Which of its bits.
        bits: u8,
    },
    /// A write is acknowledged and lost: later reads are stale.
    Stale,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which operations.
    pub on: On,
    /// Only those that touch one of these bytes; flushes touch none, and all faults on flushes apply.
    pub range: Range<u64>,
    /// Which of those.
    pub when: When,
    /// What happens to them.
    pub what: What,
}

impl Fault {
    fn check(&self, limits: &Limits) -> Result<(), &'static str> {
        if self.on != On::Flush && (self.range.is_empty() || self.range.end > limits.bytes) {
            return Err("a fault's range is empty or reaches beyond the end");
        }
        if matches!(self.when, When::Nth(0) | When::EveryNth(0)) {
            return Err("operations are counted from 1");
        }
        if self.on == On::Write && !limits.writable {
            return Err("a fault is to strike writes, but the store is read-only");
        }
        match (self.what, self.on) {
            (What::Corrupt { bits: 0, .. }, _) => Err("a corruption flips no bit"),
            (What::Corrupt { offset, .. }, On::Read) if self.range.contains(&offset) => Ok(()),
            (What::Corrupt { .. }, On::Read) => {
                Err("a corruption's byte lies outside the fault's range")
            }
            (What::Corrupt { .. }, _) => Err("a corruption strikes reads only"),
            (What::Short { missing: 0 }, _) => Err("a short transfer misses no byte"),
            (What::Short { .. }, On::Flush) => Err("a flush has no length to be short of"),
            (What::Stale, On::Read | On::Flush) => Err("only a write can be lost"),
            _ => Ok(()),
        }
    }

    fn matches(&self, op: &Op, len: u64) -> bool {
        let (kind, offset) = match *op {
            Op::Read { offset } => (On::Read, offset),
            Op::Write { offset, .. } => (On::Write, offset),
            Op::Flush => return self.on == On::Flush,
            Op::Discard { .. } | Op::Zero { .. } => return false,
        };
        self.on == kind && offset < self.range.end && self.range.start < offset.saturating_add(len)
    }
}

/// A store with faults, and the count of how often each struck. There are no leases, so that reads cannot go around the faults.
#[derive(Clone, Debug)]
pub struct Faulty {
    shared: SharedStore,
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    faults: Vec<(Fault, Counts)>,
}

#[derive(Debug, Default)]
struct Counts {
    matched: AtomicU64,
    struck: AtomicU64,
}

impl Faulty {
    /// Wraps `inner`. Of several faults that match an operation the first that is due strikes.
    ///
    /// # Errors
    /// [`StoreError::Decorator`] says which setting cannot take effect.
    pub fn over(faults: Vec<Fault>, inner: SharedStore) -> Result<Self, StoreError> {
        let limits = inner.limits();
        for fault in &faults {
            if let Err(why) = fault.check(&limits) {
                return Err(StoreError::Decorator {
                    decorator: "fault",
                    store: inner.name().to_owned(),
                    why,
                });
            }
        }
        let plan = Arc::new(Plan {
            faults: faults
                .into_iter()
                .map(|fault| (fault, Counts::default()))
                .collect(),
        });
        let name = format!("fault over {}", inner.name());
        Ok(Self {
            shared: SharedStore::new(FaultBackend {
                name,
                plan: plan.clone(),
                inner,
            }),
            plan,
        })
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> SharedStore {
        self.shared.clone()
    }

    /// How often fault `index` struck; 0 for one that does not exist.
    #[must_use]
    pub fn strikes(&self, index: usize) -> u64 {
        self.plan
            .faults
            .get(index)
            .map_or(0, |(_, counts)| counts.struck.load(Ordering::Relaxed))
    }
}

impl Plan {
    /// What strikes this operation, if anything.
    fn strike(&self, op: &Op, len: u64) -> Option<What> {
        for (fault, counts) in self
            .faults
            .iter()
            .filter(|(fault, _)| fault.matches(op, len))
        {
            let nth = counts.matched.fetch_add(1, Ordering::Relaxed) + 1;
            let due = match fault.when {
                When::Always => true,
                When::Nth(n) => nth == n,
                When::EveryNth(n) => nth.is_multiple_of(n),
            };
            if due {
                counts.struck.fetch_add(1, Ordering::Relaxed);
                return Some(fault.what);
            }
        }
        None
    }
}

#[derive(Debug)]
struct FaultBackend {
    name: String,
    plan: Arc<Plan>,
    inner: SharedStore,
}

impl Backend for FaultBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!(
            "{}; {} faults",
            self.inner.describe(),
            self.plan.faults.len()
        )
    }

    fn instance(&self) -> u64 {
        self.inner.instance()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn open_handle(&self, ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let inner = self.inner.open_handle(ring)?;
        let depth = inner.limits().queue_depth_max as usize;
        Ok(Box::new(FaultStore {
            name: self.name.clone(),
            plan: self.plan.clone(),
            inner,
            struck: Vec::with_capacity(depth),
            in_flight: 0,
            closed: false,
            failed: VecDeque::with_capacity(depth),
            arrived: Vec::with_capacity(depth),
        }))
    }
}

struct FaultStore {
    name: String,
    plan: Arc<Plan>,
    inner: Box<dyn Store>,
    /// Operations that the inner store works on and whose completion is to be spoiled.
    struck: Vec<Struck>,
    /// Operations that the inner store works on.
    in_flight: usize,
    closed: bool,
    /// Completions made here.
    failed: VecDeque<Completion>,
    arrived: Vec<Completion>,
}

struct Struck {
    token: Token,
    op: Op,
    what: What,
    /// The buffer as submitted, where the inner store was given less of it.
    whole: Option<IoBuf>,
}

impl FaultStore {
    /// The error that an operation ends with.
    fn injected(&self, op: &Op, fault: What) -> StoreError {
        let (store, what, offset) = (self.name.clone(), op.what(), op.offset());
        match fault {
            What::Unreachable { retry_after_ms } => StoreError::Unreachable {
                store,
                what,
                offset,
                retry_after_ms,
            },
            What::Error(source @ (Errno::ENOSPC | Errno::EDQUOT)) => StoreError::NoSpace {
                store,
                what,
                offset,
                source,
            },
            What::Error(source) => StoreError::Io {
                store,
                what,
                offset,
                source,
                advice: "; this fault was injected",
            },
            _ => StoreError::Busy,
        }
    }

    /// Submits the operation spoiled by `what`.
    fn submit_struck(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
        what: What,
    ) -> Result<(), Rejected> {
        let len = buf.as_ref().map_or(0, IoBuf::len);
        match (what, op) {
            (What::Error(_) | What::Unreachable { .. }, _) => {
                let error = self.injected(&op, what);
                self.failed.push_back(Completion {
                    token,
                    buf,
                    result: Err(error),
                });
            }
            (What::Stale, _) => {
                let count = u32::try_from(len).unwrap_or(u32::MAX);
                self.failed.push_back(Completion {
                    token,
                    buf,
                    result: Ok(count),
                });
            }
            (What::Short { missing }, Op::Write { .. }) => {
                let kept = len.saturating_sub(missing as usize);
                let part = buf.as_ref().map(|buf| buf.slice(0..kept));
                if kept == 0 {
                    self.failed.push_back(Completion {
                        token,
                        buf,
                        result: Ok(0),
                    });
                } else {
                    self.inner
                        .submit(op, part, token, terms)
                        .map_err(|rejected| Rejected {
                            buf: buf.clone(),
                            ..rejected
                        })?;
                    self.in_flight += 1;
                    self.struck.push(Struck {
                        token,
                        op,
                        what,
                        whole: buf,
                    });
                }
            }
            _ => {
                self.inner.submit(op, buf, token, terms)?;
                self.in_flight += 1;
                self.struck.push(Struck {
                    token,
                    op,
                    what,
                    whole: None,
                });
            }
        }
        Ok(())
    }
}

/// What becomes of a completion that is struck.
fn spoil(struck: Struck, mut done: Completion) -> Completion {
    if let Some(whole) = struck.whole {
        done.buf = Some(whole);
    }
    let (Op::Read { offset }, Some(buf), Ok(count)) = (struck.op, &mut done.buf, &mut done.result)
    else {
        return done;
    };
    match struck.what {
        What::Short { missing } => {
            let kept = buf.len().saturating_sub(missing as usize);
            buf.fill(kept, usize::MAX, JUNK);
            *count = u32::try_from(kept).unwrap_or(u32::MAX);
        }
        What::Corrupt { offset: byte, bits } => {
            if let Some(at) = byte
                .checked_sub(offset)
                .and_then(|at| usize::try_from(at).ok())
            {
                let mut value = [0];
                if buf.copy_to(at, &mut value) == 1 {
                    buf.copy_from(at, &[value[0] ^ bits]);
                }
            }
        }
        What::Error(_) | What::Unreachable { .. } | What::Stale => {}
    }
    done
}

impl Store for FaultStore {
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
        if self.closed {
            let store = self.name.clone();
            let why = StoreError::Closed { store };
            return Err(Rejected { op, buf, why });
        }
        // What would be rejected anyway does not count as a chance to strike.
        let checked = check(&op, buf.as_ref(), self.inner.limits(), &self.name);
        let room =
            self.in_flight + self.failed.len() < self.inner.limits().queue_depth_max as usize;
        if let Err(why) = checked.and(if room { Ok(()) } else { Err(StoreError::Busy) }) {
            return Err(Rejected { op, buf, why });
        }
        match self
            .plan
            .strike(&op, buf.as_ref().map_or(0, IoBuf::len) as u64)
        {
            Some(what) => self.submit_struck(op, buf, token, terms, what),
            None => {
                self.inner.submit(op, buf, token, terms)?;
                self.in_flight += 1;
                Ok(())
            }
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.inner.poll(&mut self.arrived);
        self.in_flight -= self.arrived.len();
        for done in self.arrived.drain(..) {
            let struck = self
                .struck
                .iter()
                .position(|struck| struck.token == done.token);
            completions.push(match struck {
                Some(at) => spoil(self.struck.swap_remove(at), done),
                None => done,
            });
        }
        completions.extend(self.failed.drain(..));
    }

    fn close(&mut self) {
        self.closed = true;
        self.inner.close();
    }

    fn is_closed(&self) -> bool {
        self.inner.is_closed() && self.failed.is_empty()
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn hurry(&mut self, token: Token) {
        self.inner.hurry(token);
    }

    fn doubt(&mut self, offset: u64, len: u64) -> u32 {
        self.inner.doubt(offset, len)
    }

    fn lease(&mut self, _offset: u64, _len: u32) -> Option<IoBuf> {
        None
    }

    fn wire(&self) -> WireBytes {
        self.inner.wire()
    }
}
