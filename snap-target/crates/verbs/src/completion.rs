//! Completion queues: what became of work requests.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::backend;
use crate::device::Device;
use crate::error::Result;
use crate::key::{QpNumber, RKey, WrId};
use crate::limits::COMPLETIONS_PER_POLL_MAX;

/// Why a work request failed (InfiniBand spec 10.10.3 and 11.6.2; the names are those of `ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// LOC_LEN_ERR: a message is longer than the receive that it met, or than the path can carry.
    LocalLength,
    /// LOC_QP_OP_ERR: the queue pair could not do what was asked.
    LocalQpOperation,
    /// LOC_PROT_ERR: an lkey, its range or its rights do not fit.
    LocalProtection,
    /// WR_FLUSH_ERR: the queue pair was in error before the request was done.
    Flushed,
    /// MW_BIND_ERR: a memory window could not be bound.
    WindowBind,
    /// BAD_RESP_ERR: the peer answered what cannot be an answer.
    BadResponse,
    /// LOC_ACCESS_ERR: a write of the peer, with immediate data, met a protection error here.
    LocalAccess,
    /// REM_INV_REQ_ERR: the peer refused the request: too long for its receive, or not allowed on the connection.
    RemoteInvalidRequest,
    /// REM_ACCESS_ERR: an rkey, its range or its rights do not fit.
    RemoteAccess,
    /// REM_OP_ERR: the peer failed to do it, through a fault of its own.
    RemoteOperation,
    /// RETRY_EXC_ERR: no acknowledgement, however often it was tried. The peer may have carried it out all the same, and requests behind it too.
    RetryExceeded,
    /// RNR_RETRY_EXC_ERR: the peer had no receive posted, however often it was tried.
    RnrRetryExceeded,
    /// REM_ABORT_ERR: the peer ended it.
    RemoteAborted,
    /// FATAL_ERR: the device failed.
    Fatal,
    /// RESP_TIMEOUT_ERR: the device did not answer in time.
    ResponseTimeout,
    /// GENERAL_ERR, or a status for things that this crate does not use.
    Other(u32),
}

/// What kind of request is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// A Send, with invalidation or without.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A memory window was bound.
    Bind,
    /// An rkey was invalidated.
    LocalInvalidate,
    /// A receive.
    Receive,
    /// A kind that this crate never posts.
    Other(u32),
}

/// What a request that succeeded tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its kind.
    pub opcode: Opcode,
    /// Bytes received or read; 0 for other kinds, for which devices tell nothing.
    pub bytes: u32,
    /// The rkey of ours that the peer's Send invalidated.
    pub invalidated: Option<RKey>,
}

/// What a request that failed tells; the rest of the device's entry is undefined then (`ibv_poll_cq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Why.
    pub status: Status,
    /// The vendor's code, for a report to the vendor.
    pub vendor_code: u32,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's name.
    pub id: WrId,
    /// Its queue pair. After a queue pair is dropped its completions may still come, or not.
    pub queue_pair: QpNumber,
    /// What became of it.
    pub result: std::result::Result<Done, Failed>,
}

/// State of a queue pair (InfiniBand spec 10.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Not usable yet.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Ready to send.
    ReadyToSend,
    /// The send queue drains, or has failed alone: this crate brings no queue pair there.
    SendQueueStopped,
    /// Everything outstanding is flushed, and what is posted too.
    Error,
}

impl QpState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Init => "not connected yet",
            Self::ReadyToReceive => "ready to receive",
            Self::ReadyToSend => "connected",
            Self::SendQueueStopped => "stopped",
            Self::Error => "in error",
        }
    }
}

/// Where completions arrive, with a descriptor of its own that becomes readable once an armed queue gets one.
///
/// To sleep without losing one: [`CompletionQueue::arm`], then [`CompletionQueue::poll`] until it is empty, then wait for the descriptor; afterwards
/// [`CompletionQueue::take_events`] (`ibv_req_notify_cq(3)`: the event is for what comes after the call).
///
/// A queue that overflows is broken for good, and so is each queue pair on it: give it as many entries as requests can be outstanding.
#[derive(Debug)]
pub struct CompletionQueue {
    pub(crate) inner: Arc<CqInner>,
}

#[derive(Debug)]
pub(crate) struct CqInner {
    pub(crate) native: Box<dyn backend::CompletionQueue>,
    pub(crate) device: Device,
    pub(crate) entries: u32,
}

impl CompletionQueue {
    /// Takes at most [`COMPLETIONS_PER_POLL_MAX`] completions, and puts them behind what is in `out`. Returns how many: fewer than the most means that the queue is empty.
    ///
    /// # Errors
    /// The device failed.
    pub fn poll(&self, out: &mut Vec<Completion>) -> Result<usize> {
        self.inner.native.poll(out, COMPLETIONS_PER_POLL_MAX)
    }

    /// Asks for one event when the next completion comes, or the next one that failed or was sent as solicited.
    ///
    /// # Errors
    /// The device failed.
    pub fn arm(&self, solicited_only: bool) -> Result<()> {
        self.inner.native.arm(solicited_only)
    }

    /// Takes and acknowledges the events that are there, never waiting. Returns how many.
    ///
    /// # Errors
    /// The device failed.
    pub fn take_events(&self) -> Result<u32> {
        self.inner.native.take_events()
    }

    /// How many completions it holds.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.inner.entries
    }
}

impl AsFd for CompletionQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.native.fd()
    }
}
