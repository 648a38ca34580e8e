//! `mem:SIZE`: zero-filled memory of this process, shared by all reactors, taken from the system when the store is opened.
//!
//! An operation happens inside submit, as one copy; its completion comes with the next poll. Leases show the memory itself.
//!
//! **Concurrent access.** There is no lock. A read or a lease that overlaps a write of another reactor sees old and new bytes in any
//! mixture within the overlap, as on a disk that is written and read at the same time. Bytes outside the overlap are never affected.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use reactor::buf::{IoBuf, Lease, Mapping};
use reactor::{ReactorError, Ring};

use crate::contract::{Completion, Durability, Limits, Op, Rejected, Store, Terms, Token, check};
use crate::error::StoreError;
use crate::shared::Backend;
use crate::spec::Exact;

/// Completions that wait for the next poll.
pub(crate) const QUEUE_DEPTH_MAX: u32 = 1024;
/// Longest transfer: bounds the time of one submit.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 16 << 20;
/// Longest zeroing: it happens inside submit, at some 10 GB/s.
pub(crate) const RANGE_BYTES_MAX: u32 = 1 << 20;
/// Segments of a buffer: the list is walked, not stored, so this only bounds the time.
pub(crate) const SEGMENTS_MAX: u32 = 4096;

#[derive(Debug)]
pub(crate) struct MemBackend {
    name: String,
    memory: Arc<Mapping>,
    limits: Limits,
}

impl MemBackend {
    pub(crate) fn new(bytes: u64, writable: bool) -> Result<Self, StoreError> {
        let name = format!("mem:{}", Exact(bytes));
        let len = usize::try_from(bytes).map_err(|_| StoreError::Unfit {
            store: name.clone(),
            why: "it is larger than the address space",
        })?;
        if let Some(available) = available_bytes()
            && bytes > available
        {
            return Err(too_large(name, bytes, available));
        }
        let memory = map(len).map_err(|error| StoreError::Resources {
            store: name.clone(),
            why: error.to_string(),
        })?;
        Ok(Self {
            name,
            memory: Arc::new(memory),
            limits: memory_limits(bytes, writable),
        })
    }
}

/// What the system can give before it kills for memory, by its own estimate; `None` where it does not say. A control group may allow less.
fn available_bytes() -> Option<u64> {
    available_in(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// MemAvailable of /proc/meminfo (proc(5)), which counts in KiB.
fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// All of it is taken at once, and what the system does not have it would get by killing.
fn too_large(store: String, bytes: u64, available: u64) -> StoreError {
    StoreError::Resources {
        store,
        why: format!(
            "{bytes} bytes are more than the {available} bytes of memory that are available; choose a smaller size, or free memory"
        ),
    }
}

/// Memory that is all there: a page that the kernel clears at its first write costs that write, and every command behind it, hundreds of
/// microseconds; and pages never written would all be read from one page of zeros, which no real medium is as fast as.
fn map(len: usize) -> Result<Mapping, ReactorError> {
    let memory = Mapping::new(len)?;
    memory.advise_huge();
    memory.populate()?;
    Ok(memory)
}

/// What stores without a medium declare.
pub(crate) fn memory_limits(bytes: u64, writable: bool) -> Limits {
    Limits {
        bytes,
        alignment_bytes: 1,
        transfer_bytes_max: TRANSFER_BYTES_MAX,
        range_bytes_max: RANGE_BYTES_MAX,
        segments_max: SEGMENTS_MAX,
        // Other reactors see a copy under way.
        atomic_write_bytes: 1,
        discard_zeroes: true,
        queue_depth_max: QUEUE_DEPTH_MAX,
        guest_memory: true,
        ends_in_submit: true,
        // There is never one to cancel.
        cancel_bound_ms: Some(0),
        durability: Durability::None,
        writable,
        polled_when_idle: false,
        lingers_ms: 0,
    }
}

impl Backend for MemBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        "memory of this process; nothing survives it".to_owned()
    }

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open_handle(&self, _ring: &Ring) -> Result<Box<dyn Store>, StoreError> {
        Ok(Box::new(MemStore {
            name: self.name.clone(),
            limits: self.limits.clone(),
            keeper: Lease::new(self.memory.clone(), self.memory.region()),
            memory: self.memory.clone(),
            done: VecDeque::with_capacity(QUEUE_DEPTH_MAX as usize),
            closed: false,
        }))
    }
}

struct MemStore {
    name: String,
    limits: Limits,
    memory: Arc<Mapping>,
    /// Shared by this handle's leases, so that a lease touches no count that other reactors touch.
    keeper: Rc<Lease>,
    done: VecDeque<Completion>,
    closed: bool,
}

impl MemStore {
    /// Pointer to `offset`; `check` has made sure that `[offset, offset+len)` is inside.
    fn at(&self, offset: u64) -> Option<NonNull<u8>> {
        usize::try_from(offset)
            .ok()
            .and_then(|offset| self.memory.at(offset))
    }

    fn read(&self, offset: u64, buf: &IoBuf) -> u32 {
        let Some(from) = self.at(offset) else {
            return 0;
        };
        // SAFETY: the source is inside the mapping (checked against the store's size). Bytes that others write meanwhile may be torn, as
        // documented.
        count(unsafe { buf.copy_from_raw(0, from.as_ptr(), buf.len()) })
    }

    fn write(&self, offset: u64, buf: &IoBuf) -> u32 {
        let Some(to) = self.at(offset) else { return 0 };
        let mut done = 0;
        for (from, len) in buf.raw_segments(0, buf.len()) {
            // SAFETY: source: a live run of the caller's buffer, `len` long. Destination: inside the mapping. `copy` because a buffer may be a lease
            // of this very memory.
            unsafe { std::ptr::copy(from.cast_const(), to.as_ptr().add(done), len) };
            done += len;
        }
        count(done)
    }

    fn zero(&self, offset: u64, len: u64) {
        if let (Some(at), Ok(len)) = (self.at(offset), usize::try_from(len)) {
            // SAFETY: `[offset, offset+len)` is inside the mapping.
            unsafe { std::ptr::write_bytes(at.as_ptr(), 0, len) };
        }
    }
}

impl Store for MemStore {
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
        let result = match (op, &buf) {
            (Op::Read { offset }, Some(buf)) => self.read(offset, buf),
            (Op::Write { offset, .. }, Some(buf)) => self.write(offset, buf),
            (Op::Zero { offset, len, .. } | Op::Discard { offset, len }, _) => {
                self.zero(offset, len);
                0
            }
            _ => 0,
        };
        self.done.push_back(Completion {
            token,
            buf,
            result: Ok(result),
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
        match op {
            Op::Read { offset } => Some(Ok(self.read(offset, buf))),
            Op::Write { offset, .. } => Some(Ok(self.write(offset, buf))),
            Op::Flush | Op::Discard { .. } | Op::Zero { .. } => None,
        }
    }

    fn expect(&self, offset: u64, bytes: u32, is_change: bool) {
        if let Ok(offset) = usize::try_from(offset) {
            self.memory.prefetch(offset, bytes as usize, is_change);
        }
    }

    fn lease(&mut self, offset: u64, len: u32) -> Option<IoBuf> {
        if len == 0 || offset.checked_add(u64::from(len))? > self.limits.bytes {
            return None;
        }
        let at = self.at(offset)?;
        // SAFETY: the range is inside the mapping, which the keeper holds; a reader may see either content of a concurrent write, which is
        // this store's documented contract.
        Some(unsafe { IoBuf::lease(self.keeper.clone(), at, len) })
    }
}

/// Bytes of a transfer, which `check` bounded by [`TRANSFER_BYTES_MAX`].
fn count(done: usize) -> u32 {
    u32::try_from(done).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_the_systems_account() {
        let meminfo = "MemTotal:       16318412 kB\nMemFree:          812340 kB\nMemAvailable:    9000001 kB\nBuffers: 1 kB\n";
        assert_eq!(available_in(meminfo), Some(9_000_001 * 1024));
        assert_eq!(available_in("MemTotal: 1 kB\n"), None);
        assert_eq!(available_in("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn more_than_the_system_has_is_refused_before_it_is_taken() {
        // 1 EiB, which no machine has and no address space: the kernel would say ENOMEM, without the sizes.
        let error = MemBackend::new(1 << 60, true).unwrap_err();
        let StoreError::Resources { store, why } = error else {
            unreachable!("{error}");
        };
        assert_eq!(store, "mem:1048576TiB");
        assert!(
            why.starts_with("1152921504606846976 bytes are more than the "),
            "{why}"
        );
    }
}
