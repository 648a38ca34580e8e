//! Queue pairs: reliable connections (RC, InfiniBand spec 9.7), and what is posted to them.

use std::ops::Range;
use std::sync::Arc;

use crate::backend;
use crate::cm::CmInner;
use crate::completion::{CqInner, QpState};
use crate::domain::{DomainId, DomainInner, MemoryWindow, Registration, ScatterEntry};
use crate::error::{PostError, Result, VerbsError};
use crate::key::{Access, QpNumber, RKey, WrId};
use crate::limits::MESSAGE_BYTES_MAX;

/// How large a queue pair is. What is asked for is the least; [`QueuePair::capabilities`] says what there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCapabilities {
    /// Requests that the send queue holds.
    pub send_wr_max: u32,
    /// Requests that the receive queue holds.
    pub recv_wr_max: u32,
    /// Scatter entries of a request to send.
    pub send_sge_max: u32,
    /// Scatter entries of a receive.
    pub recv_sge_max: u32,
    /// Bytes that a request to send may carry in itself.
    pub inline_bytes_max: u32,
}

/// What a message or an RDMA Write consists of.
#[derive(Clone, Copy, Debug)]
pub enum Gather<'a> {
    /// Registered memory. The device reads it any time until the request is done, again for each retry.
    Entries(&'a [ScatterEntry]),
    /// These bytes, taken when the request is posted.
    Inline(&'a [u8]),
}

/// Memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The peer's address of the first byte.
    pub address: u64,
    /// The peer's key to it.
    pub rkey: RKey,
}

/// What a request to the send queue does.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// A message into the peer's next receive; `solicited` wakes a peer that waits for such completions only; `invalidate` takes the peer's own
    /// window from us as it arrives.
    Send {
        /// The message.
        gather: Gather<'a>,
        /// A window of the peer that is not to be used any more.
        invalidate: Option<RKey>,
        /// Whether to wake a peer that armed for solicited completions.
        solicited: bool,
    },
    /// Bytes into the peer's memory, which the peer does not notice.
    Write {
        /// The bytes.
        gather: Gather<'a>,
        /// Where they go.
        remote: Remote,
    },
    /// Bytes out of the peer's memory. As many may be in progress as `initiator_depth` says; the next, and all behind it, wait.
    Read {
        /// Where they go: memory with [`Access::LOCAL_WRITE`].
        entries: &'a [ScatterEntry],
        /// Where they are.
        remote: Remote,
    },
    /// Gives a part of a registration under the window's next key. The window must be bound to nothing, or invalidated.
    Bind {
        /// The window.
        window: &'a MemoryWindow,
        /// Memory with [`Access::WINDOW_BIND`].
        registration: &'a Registration,
        /// Its first byte.
        offset: usize,
        /// Bytes, at least 1.
        len: usize,
        /// Of [`Access::REMOTE_READ`] and [`Access::REMOTE_WRITE`].
        access: Access,
    },
    /// Takes a window back: afterwards its key is not valid any more.
    LocalInvalidate {
        /// The window's key.
        rkey: RKey,
    },
}

/// A request to the send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Its name.
    pub id: WrId,
    /// What it does.
    pub operation: Operation<'a>,
    /// Whether success is told. Failure always is. A request without counts as done, and makes room in the queue, when a later one of its queue is done.
    pub signaled: bool,
    /// Whether it waits for the RDMA Reads before it (InfiniBand spec 10.8.3.3).
    pub fence: bool,
}

/// A request to the receive queue: room for one message.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveRequest<'a> {
    /// Its name.
    pub id: WrId,
    /// Where the message goes: memory with [`Access::LOCAL_WRITE`].
    pub entries: &'a [ScatterEntry],
}

/// One end of a reliable connection. Made by [`crate::CmId::create_queue_pair`], connected and disconnected through its identifier.
///
/// Requests of one queue are carried out and completed in order; those of different queue pairs in any order. After a failure the queue pair is in error: all that is outstanding is
/// flushed in order, then what is posted too.
///
/// Requests to the send queue may be posted from [`crate::EventKind::Established`] on, at the accepting end from [`crate::CmId::accept`] on; receives at any time.
#[derive(Debug)]
pub struct QueuePair {
    native: Box<dyn backend::QueuePair>,
    counted: Counted,
    pub(crate) capabilities: QpCapabilities,
    id: Arc<CmInner>,
    send: Arc<CqInner>,
    receive: Arc<CqInner>,
}

/// A queue pair that its domain knows of, until it is gone.
#[derive(Debug)]
pub(crate) struct Counted(Arc<DomainInner>);

impl Counted {
    pub(crate) fn new(domain: &Arc<DomainInner>) -> Self {
        domain.queue_pair_made();
        Self(domain.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.queue_pair_gone();
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let Err(error) = self.native.destroy() else {
            return;
        };
        // In error it carries out nothing more; where even that fails it may go on with what was posted: what it touches stays as long as this process.
        let _moved = self.native.move_to_error();
        self.counted.0.queue_pair_made();
        std::mem::forget(self.counted.0.clone());
        std::mem::forget(self.send.clone());
        std::mem::forget(self.receive.clone());
        std::mem::forget(self.id.clone());
        tracing::error!(%error, "the memory that it was given stays registered until the process ends");
    }
}

impl QueuePair {
    pub(crate) fn new(
        native: Box<dyn backend::QueuePair>,
        counted: Counted,
        capabilities: QpCapabilities,
        id: Arc<CmInner>,
        send: Arc<CqInner>,
        receive: Arc<CqInner>,
    ) -> Self {
        Self {
            native,
            counted,
            capabilities,
            id,
            send,
            receive,
        }
    }

    /// Its number: completions carry it.
    #[must_use]
    pub fn number(&self) -> QpNumber {
        self.native.number()
    }

    /// How large it is.
    #[must_use]
    pub fn capabilities(&self) -> &QpCapabilities {
        &self.capabilities
    }

    /// Posts requests to the send queue, in order, with one call of the device.
    ///
    /// # Errors
    /// The first request that is refused, and how many were posted before it: [`VerbsError::QueueFull`], a limit, or things that do not belong together. A refused request leaves
    /// nothing behind.
    pub fn post_send(&self, requests: &[SendRequest<'_>]) -> std::result::Result<(), PostError> {
        let (good, refused) = self.before_refused(requests, Self::check_send);
        self.native.post_send(good)?;
        refused
    }

    /// Posts requests to the receive queue, in order.
    ///
    /// # Errors
    /// As [`QueuePair::post_send`].
    pub fn post_receive(
        &self,
        requests: &[ReceiveRequest<'_>],
    ) -> std::result::Result<(), PostError> {
        let (good, refused) = self.before_refused(requests, |this, request| {
            this.check_entries(request.entries, this.capabilities.recv_sge_max)
        });
        self.native.post_receive(good)?;
        refused
    }

    /// Its state, as the device has it.
    ///
    /// # Errors
    /// The device failed.
    pub fn state(&self) -> Result<QpState> {
        self.native.state()
    }

    /// Ends it: what is outstanding is flushed. The peer is not told.
    ///
    /// # Errors
    /// The device failed.
    pub fn move_to_error(&self) -> Result<()> {
        self.native.move_to_error()
    }

    /// The requests before the first that is refused, and why it is.
    fn before_refused<'a, T>(
        &self,
        requests: &'a [T],
        check: impl Fn(&Self, &T) -> Result<()>,
    ) -> (&'a [T], std::result::Result<(), PostError>) {
        for (posted, request) in requests.iter().enumerate() {
            if let Err(error) = check(self, request) {
                return (&requests[..posted], Err(PostError { posted, error }));
            }
        }
        (requests, Ok(()))
    }

    fn check_send(&self, request: &SendRequest<'_>) -> Result<()> {
        match request.operation {
            Operation::Send { gather, .. } | Operation::Write { gather, .. } => match gather {
                Gather::Entries(entries) => {
                    self.check_entries(entries, self.capabilities.send_sge_max)
                }
                Gather::Inline(bytes) => self.limit(
                    "inline bytes",
                    bytes.len() as u64,
                    self.capabilities.inline_bytes_max.into(),
                ),
            },
            Operation::Read { entries, .. } => {
                self.check_entries(entries, self.capabilities.send_sge_max)
            }
            Operation::Bind {
                window,
                registration,
                offset,
                len,
                access,
            } => self.check_bind(
                window,
                registration,
                offset..offset.saturating_add(len),
                access,
            ),
            Operation::LocalInvalidate { .. } => Ok(()),
        }
    }

    fn check_entries(&self, entries: &[ScatterEntry], max: u32) -> Result<()> {
        self.limit("scatter entries", entries.len() as u64, max.into())?;
        let bytes = entries.iter().map(|entry| u64::from(entry.len)).sum();
        self.limit("bytes of a message", bytes, MESSAGE_BYTES_MAX)?;
        entries
            .iter()
            .try_for_each(|entry| self.same_domain(entry.domain))
    }

    fn check_bind(
        &self,
        window: &MemoryWindow,
        registration: &Registration,
        range: Range<usize>,
        access: Access,
    ) -> Result<()> {
        self.same_domain(window.domain())?;
        self.same_domain(registration.domain())?;
        if range.is_empty() || range.end > registration.len() {
            return Err(VerbsError::OutOfBounds {
                offset: range.start as u64,
                len: range.len() as u64,
                registered: registration.len() as u64,
            });
        }
        let what = if !registration.access().contains(Access::WINDOW_BIND) {
            "the registration lacks WINDOW_BIND access"
        } else if access.contains(Access::REMOTE_WRITE)
            && !registration.access().contains(Access::LOCAL_WRITE)
        {
            "a window for remote writes needs a registration with LOCAL_WRITE access"
        } else if !(Access::REMOTE_READ | Access::REMOTE_WRITE).contains(access) {
            "a window gives remote reads and remote writes, nothing else"
        } else {
            return Ok(());
        };
        Err(VerbsError::Misuse { call: "bind", what })
    }

    fn same_domain(&self, domain: DomainId) -> Result<()> {
        if domain == self.counted.0.id {
            return Ok(());
        }
        Err(VerbsError::Misuse {
            call: "post",
            what: "the memory belongs to another protection domain than the queue pair",
        })
    }

    fn limit(&self, what: &'static str, asked: u64, max: u64) -> Result<()> {
        self.counted.0.device.limit(what, asked, max)
    }
}
