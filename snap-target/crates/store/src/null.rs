//! `null:SIZE` and `void:SIZE`: they take and forget writes. `null:` reads zeros. `void:` promises nothing of what is read: zeros, but memory of a guest's stays as it
//! is, as with SPDK's null bdev and Linux' null_blk. For measuring everything but the store.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use reactor::Ring;
use reactor::buf::{INLINE_SEGMENTS, IoBuf, Lease, Mapping};

use crate::contract::{Completion, Limits, Op, Rejected, Store, Terms, Token, check};
use crate::error::StoreError;
use crate::mem::{QUEUE_DEPTH_MAX, memory_limits};
use crate::shared::Backend;
use crate::spec::Exact;

/// Zeros that leases point to: never written, so it costs one page of memory.
const ZERO_BYTES: u32 = 1 << 20;

#[derive(Debug)]
pub(crate) struct NullBackend {
    name: String,
    limits: Limits,
    zeros: Arc<Mapping>,
    reads: Reads,
}

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Zeros.
    Zeros,
    /// What nobody needs.
    Anything,
}

impl NullBackend {
    pub(crate) fn new(bytes: u64, writable: bool, reads: Reads) -> Result<Self, StoreError> {
        let scheme = match reads {
            Reads::Zeros => "null",
            Reads::Anything => "void",
        };
        let name = format!("{scheme}:{}", Exact(bytes));
        let zeros = Mapping::new(ZERO_BYTES as usize).map_err(|error| StoreError::Resources {
            store: name.clone(),
            why: error.to_string(),
        })?;
        Ok(Self {
            name,
            limits: memory_limits(bytes, writable),
            zeros: Arc::new(zeros),
            reads,
        })
    }
}

impl Backend for NullBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        match self.reads {
            Reads::Zeros => "reads zeros, forgets writes".to_owned(),
            Reads::Anything => "reads nothing, forgets writes".to_owned(),
        }
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open_handle(&self, _ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        let (zeros, region) = (self.zeros.clone(), self.zeros.region());
        let keeper = match self.reads {
            Reads::Zeros => Lease::new(zeros, region),
            Reads::Anything => Lease::void(zeros, region),
        };
        Ok(Box::new(NullStore {
            name: self.name.clone(),
            limits: self.limits.clone(),
            zeros: self.zeros.clone(),
            reads: self.reads,
            keeper,
            done: VecDeque::with_capacity(QUEUE_DEPTH_MAX as usize),
            closed: false,
        }))
    }
}

struct NullStore {
    name: String,
    limits: Limits,
    zeros: Arc<Mapping>,
    reads: Reads,
    keeper: Rc<Lease>,
    done: VecDeque<Completion>,
    closed: bool,
}

impl NullStore {
    /// Whether a read leaves these bytes as they are: a guest's own. What is ours may hold what others have left there.
    fn leaves(&self, buf: &IoBuf) -> bool {
        self.reads == Reads::Anything && buf.segments().all(|segment| segment.is_guest())
    }

    fn copy_zeros(&self, buf: &IoBuf) {
        let (from, bytes) = (self.zeros.base().as_ptr(), ZERO_BYTES as usize);
        for at in (0..buf.len()).step_by(bytes) {
            // SAFETY: the zero region is `ZERO_BYTES` long, and nobody writes it.
            unsafe { buf.copy_from_raw(at, from, bytes.min(buf.len() - at)) };
        }
    }
}

impl Store for NullStore {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(
        &mut self,
        op: Op,
        mut buf: Option<IoBuf>,
        token: Token,
        _terms: Terms,
    ) -> Result<(), Rejected> {
        if self.closed {
            let store = self.name.clone();
            let why = StoreError::Closed { store };
            return Err(Rejected { op, buf, why });
        }
        if let Err(why) = check(&op, buf.as_ref(), &self.limits, &self.name) {
            return Err(Rejected { op, buf, why });
        }
        if self.done.len() == QUEUE_DEPTH_MAX as usize {
            return Err(Rejected {
                op,
                buf,
                why: StoreError::Busy,
            });
        }
        let len = buf.as_ref().map_or(0, IoBuf::len);
        if let (Op::Read { .. }, Some(buf)) = (op, &mut buf)
            && !self.leaves(buf)
        {
            buf.fill(0, buf.len(), 0);
        }
        self.done.push_back(Completion {
            token,
            buf,
            result: Ok(u32::try_from(len).unwrap_or(u32::MAX)),
        });
        Ok(())
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        completions.extend(self.done.drain(..));
    }

    fn close(&mut self) {
        self.closed = true;
    }

    fn is_closed(&self) -> bool {
        self.closed && self.done.is_empty()
    }

    fn cancel(&mut self, _token: Token) {
        // Whatever was submitted has happened; its completion waits for the next poll.
    }

    fn carry_out(&mut self, op: Op, buf: &IoBuf) -> Option<Result<u32, StoreError>> {
        if self.closed || !op.takes_buffer() {
            return None;
        }
        if let Err(why) = check(&op, Some(buf), &self.limits, &self.name) {
            return Some(Err(why));
        }
        if matches!(op, Op::Read { .. }) && !self.leaves(buf) {
            self.copy_zeros(buf);
        }
        Some(Ok(u32::try_from(buf.len()).unwrap_or(u32::MAX)))
    }

    fn lease(&mut self, offset: u64, len: u32) -> Option<IoBuf> {
        if len == 0
            || offset.checked_add(u64::from(len))? > self.limits.bytes
            || len.div_ceil(ZERO_BYTES) as usize > INLINE_SEGMENTS
        {
            return None;
        }
        // SAFETY: the zero region is `ZERO_BYTES` long, held by the keeper, and nobody writes it.
        let zeros = |bytes| unsafe { IoBuf::lease(self.keeper.clone(), self.zeros.base(), bytes) };
        let mut buf = zeros(len.min(ZERO_BYTES));
        let mut left = len.saturating_sub(ZERO_BYTES);
        while left > 0 {
            let part = left.min(ZERO_BYTES);
            buf.append(zeros(part));
            left -= part;
        }
        Some(buf)
    }
}
