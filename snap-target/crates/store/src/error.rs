//! What a store reports: what happened, where, and what to do.

use std::borrow::Cow;

use nix::errno::Errno;

/// Errors of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The handle's queue, or the ring's, is full. Park, and retry after the next completion.
    #[error("the store's queue is full; retry after the next completion")]
    Busy,
    /// The handle was closed.
    #[error("{store}: the handle was closed, so it takes no operation; open another one")]
    Closed {
        /// The store.
        store: String,
    },
    /// The operation was cancelled. A cancelled write may have reached the medium, in full or in part.
    #[error("{store}: the operation at byte {offset} was cancelled")]
    Cancelled {
        /// The store.
        store: String,
        /// First byte of the operation.
        offset: u64,
    },
    /// The range reaches beyond the store.
    #[error("{store}: bytes {offset}+{len} reach beyond its end at {bytes}")]
    OutOfRange {
        /// The store.
        store: String,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Size of the store.
        bytes: u64,
    },
    /// A change of a read-only store.
    #[error("{store} was opened read-only: open it for writing to change it")]
    ReadOnly {
        /// The store.
        store: String,
    },
    /// Longer than the store takes at once.
    #[error("{store}: {len} bytes at once are over its limit of {max}; split it")]
    TooLong {
        /// The store.
        store: String,
        /// Bytes asked for.
        len: u64,
        /// The limit.
        max: u32,
    },
    /// More segments than the store takes at once.
    #[error("{store}: a buffer of {segments} segments is over its limit of {max}; split it")]
    TooManySegments {
        /// The store.
        store: String,
        /// Segments given.
        segments: usize,
        /// The limit.
        max: u32,
    },
    /// The caller broke the contract.
    #[error("{store}: {what}")]
    Misuse {
        /// The store.
        store: String,
        /// Which rule.
        what: &'static str,
    },
    /// The store, or the way to it, does not answer at the moment, and the operation did not take effect: the caller may hold the
    /// command and try again.
    #[error("{store} cannot be reached: {what} at byte {offset} was not done; {}", retry(*retry_after_ms))]
    Unreachable {
        /// The store.
        store: String,
        /// Which operation.
        what: &'static str,
        /// First byte of the operation.
        offset: u64,
        /// When trying again is worth it, in milliseconds from now; `None` if nobody knows.
        retry_after_ms: Option<u32>,
    },
    /// The medium has no room for what was to be written; what had room before still has.
    #[error("{store}: {what} at byte {offset} failed: the medium is full ({source}); free space")]
    NoSpace {
        /// The store.
        store: String,
        /// Which operation.
        what: &'static str,
        /// Byte at which it failed.
        offset: u64,
        /// The kernel's answer, or what a peer's answer corresponds to.
        source: Errno,
    },
    /// The medium reported an error.
    #[error("{store}: {what} at byte {offset} failed: {source}{advice}")]
    Io {
        /// The store.
        store: String,
        /// Which operation.
        what: &'static str,
        /// Byte at which it failed.
        offset: u64,
        /// The kernel's answer.
        source: Errno,
        /// What to do, starting with "; ", or empty.
        advice: &'static str,
    },
    /// The controller behind a remote store ended the operation with an error.
    #[error("{store}: {what} at byte {offset} failed: its controller answered {status}")]
    Controller {
        /// The store.
        store: String,
        /// Which operation.
        what: &'static str,
        /// Byte at which it failed.
        offset: u64,
        /// The status, with its name.
        status: String,
    },
    /// A change was not settled in time. The store sees to it that nothing later is overtaken by it.
    #[error(
        "{store}: {what} at byte {offset} was not settled within {after_ms} ms, and may have been done or not; the way to the store broke meanwhile"
    )]
    Unsettled {
        /// The store.
        store: String,
        /// Which operation.
        what: &'static str,
        /// First byte of the operation.
        offset: u64,
        /// The time it had.
        after_ms: u32,
    },
    /// A remote store could not be connected.
    #[error("connecting to {store} failed: {why}")]
    Connect {
        /// The store.
        store: String,
        /// What happened on each path, and what to do.
        why: String,
    },
    /// The file is shorter than when it was opened.
    #[error(
        "{store}: it has no byte {offset} any more, but had {bytes} bytes when it was opened: something truncated it; restore it and open it again"
    )]
    Truncated {
        /// The store.
        store: String,
        /// A byte that it no longer has; its end may lie before this.
        offset: u64,
        /// Size when it was opened.
        bytes: u64,
    },
    /// An earlier flush failed: what was written before it may be lost, and a later flush cannot tell (the kernel reports it once).
    #[error(
        "{store}: a flush failed earlier ({source}), so no later flush or durable write is acknowledged; check the medium and open it again"
    )]
    FlushFailed {
        /// The store.
        store: String,
        /// The kernel's answer to the flush that failed.
        source: Errno,
    },
    /// It could not be opened.
    #[error("opening {store} failed: {source}{advice}")]
    Open {
        /// The store.
        store: String,
        /// The kernel's answer.
        source: Errno,
        /// What to do, starting with "; ", or empty.
        advice: &'static str,
    },
    /// Neither a regular file nor a block device, or without bytes.
    #[error("{store} cannot be a store: {why}")]
    Unfit {
        /// The store.
        store: String,
        /// Why not.
        why: &'static str,
    },
    /// The text does not name a store.
    #[error(
        "`{text}` does not name a store: {why}; examples: mem:512MiB, file:disk.raw, null:1TiB, disk.raw, nvme+tcp://10.0.0.1:4420/SUBNQN"
    )]
    Spec {
        /// As given.
        text: String,
        /// What is wrong.
        why: Cow<'static, str>,
    },
    /// The text does not name a limit.
    #[error(
        "`{text}` does not name a limit: {why}; examples: 200MB/s, 200MB/s,burst=1MiB,latency=2ms"
    )]
    Limit {
        /// As given.
        text: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A decorator's settings do not fit together.
    #[error("{decorator} over {store}: {why}")]
    Decorator {
        /// Which decorator.
        decorator: &'static str,
        /// What it wraps.
        store: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The ring or memory the handle needs could not be had.
    #[error("{store}: {why}")]
    Resources {
        /// The store.
        store: String,
        /// The reactor's error, as text.
        why: String,
    },
}

/// When to try again, for a person.
fn retry(after_ms: Option<u32>) -> String {
    match after_ms {
        Some(after_ms) => format!("try again in {after_ms} ms"),
        None => "try again later".to_owned(),
    }
}

/// Classes of errors, for those that turn them into a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Retry after a completion.
    Busy,
    /// Ended on request.
    Cancelled,
    /// Beyond the end.
    OutOfRange,
    /// Not writable.
    ReadOnly,
    /// The caller broke a limit or a rule.
    Misuse,
    /// Not reachable at the moment; nothing happened.
    Unreachable,
    /// No room on the medium.
    NoSpace,
    /// The medium failed.
    Io,
    /// It could not be opened or set up.
    Open,
}

impl StoreError {
    /// The class.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Busy => ErrorKind::Busy,
            Self::Cancelled { .. } => ErrorKind::Cancelled,
            Self::OutOfRange { .. } => ErrorKind::OutOfRange,
            Self::ReadOnly { .. } => ErrorKind::ReadOnly,
            Self::Closed { .. }
            | Self::TooLong { .. }
            | Self::TooManySegments { .. }
            | Self::Misuse { .. } => ErrorKind::Misuse,
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::NoSpace { .. } => ErrorKind::NoSpace,
            Self::Io { .. }
            | Self::Controller { .. }
            | Self::Unsettled { .. }
            | Self::Truncated { .. }
            | Self::FlushFailed { .. } => ErrorKind::Io,
            Self::Open { .. }
            | Self::Connect { .. }
            | Self::Unfit { .. }
            | Self::Spec { .. }
            | Self::Limit { .. }
            | Self::Decorator { .. }
            | Self::Resources { .. } => ErrorKind::Open,
        }
    }
}
