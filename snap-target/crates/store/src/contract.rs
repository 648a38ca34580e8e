//! The contract between a store's handle and whoever submits to it.

use std::ops::Add;
use std::time::Instant;

use reactor::buf::IoBuf;

use crate::error::StoreError;
use crate::limits::{RANGE_BYTES_MIN, SEGMENTS_MIN, TRANSFER_BYTES_MIN};

/// The submitter's name for an operation; unique among those in flight on a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// What to do. Offsets and lengths are bytes; a read or write is as long as its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Fills the buffer from `offset` on.
    Read {
        /// First byte.
        offset: u64,
    },
    /// Writes the buffer from `offset` on.
    Write {
        /// First byte.
        offset: u64,
        /// Complete only when the bytes are on stable storage (NVMe's FUA).
        durable: bool,
    },
    /// Makes every write that completed before this was submitted, on any handle of the store, durable.
    Flush,
    /// The bytes are not needed any more: afterwards they read as before or as zeros, or surely as zeros ([`Limits::discard_zeroes`]). A store
    /// that cannot tell its medium does nothing.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The bytes read as zeros afterwards.
    Zero {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Complete only when that is so on stable storage (NVMe's FUA).
        durable: bool,
    },
}

impl Op {
    /// Whether the operation changes the store.
    #[must_use]
    pub fn is_change(&self) -> bool {
        matches!(
            self,
            Self::Write { .. } | Self::Discard { .. } | Self::Zero { .. }
        )
    }

    /// What it does, for an error's text.
    #[must_use]
    pub fn what(&self) -> &'static str {
        match self {
            Self::Read { .. } => "reading",
            Self::Write { .. } => "writing",
            Self::Flush => "flushing",
            Self::Discard { .. } => "discarding",
            Self::Zero { .. } => "zeroing",
        }
    }

    /// First byte; 0 for a flush.
    #[must_use]
    pub fn offset(&self) -> u64 {
        match *self {
            Self::Read { offset }
            | Self::Write { offset, .. }
            | Self::Discard { offset, .. }
            | Self::Zero { offset, .. } => offset,
            Self::Flush => 0,
        }
    }

    /// Whether it is complete only when its effect is on stable storage.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        matches!(
            self,
            Self::Flush | Self::Write { durable: true, .. } | Self::Zero { durable: true, .. }
        )
    }

    /// Whether the operation works on a buffer.
    #[must_use]
    pub fn takes_buffer(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Write { .. })
    }
}

/// On what terms an operation is done. A store that has nothing to wait for ignores them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// When whoever asked gives up: a store that waits, for a path or for a peer, ends the operation by then, or after a time of its own where that
    /// is sooner. It may have passed already. `None`: the store's own time counts from submit. In tests a moment of the stepped clock.
    pub deadline: Option<Instant>,
    /// Nobody waits for it: a read ahead of whoever may ask for it. Others may overtake it, and a store may be busy for it before it is for them. Who comes to
    /// wait for it says so ([`Store::hurry`]).
    pub is_ahead: bool,
}

impl Terms {
    /// To be done by then, for somebody who waits.
    #[must_use]
    pub fn by(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            is_ahead: false,
        }
    }
}

/// The end of an operation. Its buffer comes back here and nowhere else.
#[derive(Debug)]
pub struct Completion {
    /// As submitted.
    pub token: Token,
    /// The buffer of a read or write. After an error its content is undefined.
    pub buf: Option<IoBuf>,
    /// Bytes transferred (all of them: a store never completes short), 0 for operations without a buffer.
    pub result: Result<u32, StoreError>,
}

/// An operation that was not taken: nothing of it happened, and here is the buffer. [`StoreError::Busy`] means park and retry.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Rejected {
    /// As submitted.
    pub op: Op,
    /// As submitted.
    pub buf: Option<IoBuf>,
    /// Why not.
    #[source]
    pub why: StoreError,
}

/// What happens to completed writes when power or the process goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing survives the process; flush has nothing to do.
    None,
    /// Writes survive the process at once, and power loss after a flush or as durable writes.
    AfterFlush,
    /// A write survives power loss once it is complete; flush has nothing to do.
    Always,
}

/// What a store declares. A store of another crate starts from [`Limits::new`] and states what it can.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Size: offsets `[0, bytes)` exist.
    pub bytes: u64,
    /// Offsets, lengths and memory aligned to this go straight to the medium. Others work too, through a bounce buffer. A power of two.
    pub alignment_bytes: u32,
    /// Longest read or write; at least [`TRANSFER_BYTES_MIN`](crate::TRANSFER_BYTES_MIN).
    pub transfer_bytes_max: u32,
    /// Longest discard or zeroing: what a turn of the reactor, or a step of the medium, can bear. Whoever has more to zero splits
    /// it. At least [`RANGE_BYTES_MIN`](crate::RANGE_BYTES_MIN).
    pub range_bytes_max: u32,
    /// Most segments of a buffer; at least [`SEGMENTS_MIN`](crate::SEGMENTS_MIN).
    pub segments_max: u32,
    /// A write of at most this many bytes that crosses no multiple of it is seen as a whole or not at all, by readers and after power
    /// loss. 1: nothing is promised.
    pub atomic_write_bytes: u32,
    /// Whether a discarded range reads as zeros afterwards, all of it, until it is written. Otherwise it reads as before or as zeros.
    pub discard_zeroes: bool,
    /// Operations in flight on one handle; the next one is rejected as busy.
    pub queue_depth_max: u32,
    /// Whether buffers may be guest memory.
    pub guest_memory: bool,
    /// Whether operations end inside [`Store::submit`]: nothing of a buffer is kept when it returns, but what the completion gives back with the next poll.
    pub ends_in_submit: bool,
    /// Within this time of a cancel the completion arrives; `None` = the medium decides.
    pub cancel_bound_ms: Option<u32>,
    /// What survives.
    pub durability: Durability,
    /// Whether changes are taken.
    pub writable: bool,
    /// Whether the store has work of its own (a keep-alive, a connection to be made again) and must be polled after each turn of the ring even
    /// while nothing is in flight. Its own timers and events wake the ring.
    pub polled_when_idle: bool,
    /// So long after the end of its process a change that was under way may still take effect: whoever does it again, or goes on, after a kill waits for that.
    /// 0: what is under way ends with the process.
    pub lingers_ms: u32,
}

impl Limits {
    /// The least that a store may declare: read-only, every offset and length, one operation at a time, no promise beyond the contract's.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            alignment_bytes: 1,
            transfer_bytes_max: TRANSFER_BYTES_MIN,
            range_bytes_max: RANGE_BYTES_MIN,
            segments_max: SEGMENTS_MIN,
            atomic_write_bytes: 1,
            discard_zeroes: false,
            queue_depth_max: 1,
            guest_memory: false,
            ends_in_submit: false,
            cancel_bound_ms: None,
            durability: Durability::None,
            writable: false,
            polled_when_idle: false,
            lingers_ms: 0,
        }
    }
}

/// Bytes that crossed the network between a handle and its store, headers and digests included; a local store has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// To the store.
    pub sent: u64,
    /// From it.
    pub received: u64,
}

impl Add for WireBytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
        }
    }
}

/// A store as one reactor sees it: a handle that belongs to that reactor's thread.
///
/// **The caller's duties**
/// 1. A read or write comes with a buffer of at least one byte, within [`Limits`]; the other operations without one. Tokens in flight are
///    unique on the handle.
/// 2. It calls [`Store::poll`] after every turn of the ring while anything is in flight, and always if the store declares
///    [`Limits::polled_when_idle`]; and after its last submit, cancel or hurry before it lets the ring block: what these
///    ended is there then, and nothing wakes the ring for it.
/// 3. It does not look at, write, or hand on the memory of a buffer between submit and completion. Other views of the same memory may
///    be used for other bytes.
/// 4. It treats what it read as hostile input: checksum first, then bounded decoding.
///
/// **The store's duties**
/// 1. Submit takes the operation completely or not at all ([`Rejected`] has the buffer). It never blocks. Out of range, read-only, too
///    long, or a buffer missing is rejected here, before anything happened.
/// 2. It takes at least what [`TRANSFER_BYTES_MIN`](crate::TRANSFER_BYTES_MIN), [`SEGMENTS_MIN`](crate::SEGMENTS_MIN) and
///    [`RANGE_BYTES_MIN`](crate::RANGE_BYTES_MIN) say, and splits inside what its medium or peer cannot take in one: callers do not split
///    below these. A store that declares less is refused when a handle is opened. A short transfer is continued inside. A completion says all bytes or an error; an error names store, offset and cause.
/// 3. Poll never blocks and is bounded by the queue depth. When a completion is there, the ring wakes: through an event of the store's
///    [`Owner`](reactor::Owner), or, from another thread, through a [`channel`](reactor::channel). Such a thread works on memory of
///    its own, and the reactor copies: an [`IoBuf`] is not `Send`, since whoever waits for its memory must not wait for a thread.
/// 4. Cancel is a request: the completion still arrives, as cancelled or as whatever it came to, and within
///    [`Limits::cancel_bound_ms`] where that is declared; 0: with the next poll.
/// 5. [`Store::close`] returns at once; see the end of a handle below.
/// 6. [`Terms`] change when an operation ends and how, never what it does: one that had no time was not carried out ([`StoreError::Unreachable`]), or may
///    have been ([`StoreError::Unsettled`]), and one that reads ahead delivers what any read delivers.
///
/// **The one guarantee given in return**: every operation that submit took completes exactly once, and until that completion the buffer
/// belongs to the store, cancelled or not; after it, nothing touches the buffer's memory, and the operation can no longer take effect behind a later one's
/// back. So a store that does not know what became of a write (its connection broke, a cancel overtook it) holds the completion until that is
/// settled: done, not done and never to be done, or the peer is known to be dead; or, where that takes longer than the write has time, it ends the write as
/// failed ([`StoreError::Unsettled`]) and holds every later operation on its range until then. A write that failed or was cancelled may have taken effect in
/// part; one that was [`StoreError::Unreachable`] has not, and may be tried again.
///
/// **The end of a handle.** A reactor that goes on calls [`Store::close`] and polls, turn by turn, until [`Store::is_closed`]; then the drop
/// waits for nothing. A handle that is dropped before ends its operations without completions and returns when nothing touches their
/// buffers any more: that takes as long as the medium does, so it is for the end of the process only.
///
/// Operations in flight at the same time happen in any order. A write that completed is seen by every read submitted later, on every
/// handle of the store.
pub trait Store {
    /// What this store declares; constant for the life of the handle.
    fn limits(&self) -> &Limits;

    /// Takes an operation, or gives it back with the reason.
    fn submit(
        &mut self,
        op: Op,
        buf: Option<IoBuf>,
        token: Token,
        terms: Terms,
    ) -> Result<(), Rejected>;

    /// Appends the completions that are there.
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// Takes no more operations ([`StoreError::Closed`]) and asks to end those in flight, as a cancel does.
    fn close(&mut self);

    /// Whether the handle was closed, nothing is in flight, and every completion was polled.
    fn is_closed(&self) -> bool;

    /// Asks to end an operation early. An unknown token is ignored: it completed already.
    fn cancel(&mut self, token: Token);

    /// Somebody waits from now on for a read that was submitted as [`Terms::is_ahead`]: it is served as one that is waited for, behind those that are there.
    /// An unknown token is ignored, and one that was waited for before. A store that serves all alike does nothing.
    fn hurry(&mut self, _token: Token) {}

    /// What was last read of these bytes is not what was written, says somebody with a checksum. The store notes where it came from, and has another copy
    /// asked with the next read of them, if there is one: how many there are besides.
    fn doubt(&mut self, _offset: u64, _len: u64) -> u32 {
        0
    }

    /// A zero-copy, read-only view of `[offset, offset+len)` for stores whose bytes are in memory; `None` elsewhere, or out of range. The
    /// view shows later writes to the same bytes: whoever needs a snapshot reads.
    fn lease(&mut self, offset: u64, len: u32) -> Option<IoBuf>;

    /// Carries a read or write out on the spot, as [`Store::submit`] would, with no completion to come: what came of it. `None`: nothing has happened, it is to be
    /// submitted. For stores that declare [`Limits::ends_in_submit`]; the caller's duties are the same. The buffer may be memory that a guest changes meanwhile: a store that
    /// looks at what it read looks at bytes of its own.
    fn carry_out(&mut self, _op: Op, _buf: &IoBuf) -> Option<Result<u32, StoreError>> {
        None
    }

    /// A read of these bytes is about to come, or a write where `is_change`: a store whose bytes are in memory has the processor fetch the first of them into its cache. What is
    /// out of range is passed over.
    fn expect(&self, _offset: u64, _bytes: u32, _is_change: bool) {}

    /// What has crossed the network for this handle so far; it only grows. A store around another one adds up what those below it say.
    fn wire(&self) -> WireBytes {
        WireBytes::default()
    }
}

/// Checks an operation against the caller's duties and the store's limits: what every implementation does first in submit, after it looked
/// whether it is closed. `store` is its name in the error.
///
/// # Errors
/// The reason to reject it.
pub fn check(op: &Op, buf: Option<&IoBuf>, limits: &Limits, store: &str) -> Result<(), StoreError> {
    if op.takes_buffer() != buf.is_some() {
        let what = if op.takes_buffer() {
            "a read or write needs a buffer"
        } else {
            "this operation takes no buffer"
        };
        return Err(StoreError::Misuse {
            store: store.to_owned(),
            what,
        });
    }
    if op.is_change() && !limits.writable {
        return Err(StoreError::ReadOnly {
            store: store.to_owned(),
        });
    }
    let (offset, len, len_max) = match (*op, buf) {
        (Op::Read { offset } | Op::Write { offset, .. }, Some(buf)) => {
            (offset, buf.len() as u64, limits.transfer_bytes_max)
        }
        (Op::Discard { offset, len } | Op::Zero { offset, len, .. }, _) => {
            (offset, len, limits.range_bytes_max)
        }
        _ => return Ok(()),
    };
    if offset.checked_add(len).is_none_or(|end| end > limits.bytes) {
        return Err(StoreError::OutOfRange {
            store: store.to_owned(),
            offset,
            len,
            bytes: limits.bytes,
        });
    }
    if len > u64::from(len_max) {
        return Err(StoreError::TooLong {
            store: store.to_owned(),
            len,
            max: len_max,
        });
    }
    let Some(buf) = buf else { return Ok(()) };
    if buf.is_empty() {
        return Err(StoreError::Misuse {
            store: store.to_owned(),
            what: "the buffer has no bytes",
        });
    }
    let segments = buf.segments().len();
    if segments > limits.segments_max as usize {
        return Err(StoreError::TooManySegments {
            store: store.to_owned(),
            segments,
            max: limits.segments_max,
        });
    }
    if buf.is_guest() && !limits.guest_memory {
        return Err(StoreError::Misuse {
            store: store.to_owned(),
            what: "this store does not take guest memory: use a staging buffer",
        });
    }
    if matches!(op, Op::Read { .. }) && buf.is_lease() {
        return Err(StoreError::Misuse {
            store: store.to_owned(),
            what: "the buffer is a read-only lease of store memory",
        });
    }
    Ok(())
}
