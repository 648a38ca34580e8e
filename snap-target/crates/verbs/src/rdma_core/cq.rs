//! Completion queues of libibverbs, each with a completion channel of its own.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use reactor::Errno;

use super::library::Calls;
use super::sys;
use super::{borrow, last, never_wait, numbered};
use crate::backend::{self, Native};
use crate::completion::{Completion, Done, Failed, Opcode, Status};
use crate::error::{Result, VerbsError};
use crate::key::{QpNumber, RKey, WrId};
use crate::limits::COMPLETIONS_PER_POLL_MAX;

struct CompChannel {
    calls: &'static Calls,
    channel: NonNull<sys::CompChannel>,
}

impl CompChannel {
    fn fd(&self) -> i32 {
        // SAFETY: the channel is open.
        unsafe { self.channel.as_ref() }.fd
    }
}

impl Drop for CompChannel {
    fn drop(&mut self) {
        // SAFETY: its queue is gone before it, and it goes once.
        unsafe { (self.calls.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

pub(super) struct CompletionQueue {
    cq: NonNull<sys::Cq>,
    // Behind its queue, which Drop destroys.
    channel: CompChannel,
    device: String,
    with_inv: u32,
}

// SAFETY: libibverbs' calls on a queue may be made by any thread.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for Send; providers lock in poll_cq.
unsafe impl Sync for CompletionQueue {}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a completion queue of {}", self.device)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: its queue pairs hold it, so it has none; each event that was taken was acknowledged, so this does not wait.
        unsafe { (self.channel.calls.verbs.ibv_destroy_cq)(self.cq.as_ptr()) };
    }
}

impl CompletionQueue {
    /// A fresh queue on an open context, which the caller keeps open.
    pub(super) fn create(
        calls: &'static Calls,
        context: NonNull<sys::Context>,
        entries: u32,
        device: String,
        with_inv: u32,
    ) -> Result<Self> {
        // SAFETY: the context is open.
        let channel = unsafe { (calls.verbs.ibv_create_comp_channel)(context.as_ptr()) };
        let channel =
            NonNull::new(channel).ok_or_else(|| last("ibv_create_comp_channel", device.clone()))?;
        let channel = CompChannel { calls, channel };
        never_wait(channel.fd(), "a completion channel")?;
        let cqe = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: context and channel are open; there is always a first completion vector.
        let cq = unsafe {
            (calls.verbs.ibv_create_cq)(
                context.as_ptr(),
                cqe,
                ptr::null_mut(),
                channel.channel.as_ptr(),
                0,
            )
        };
        let cq = NonNull::new(cq).ok_or_else(|| last("ibv_create_cq", device.clone()))?;
        Ok(Self {
            cq,
            channel,
            device,
            with_inv,
        })
    }

    pub(super) fn entries(&self) -> u32 {
        // SAFETY: the queue is there.
        u32::try_from(unsafe { self.cq.as_ref() }.cqe).unwrap_or(0)
    }

    fn ops(&self) -> &sys::ContextOps {
        // SAFETY: the queue's device holds its context open.
        unsafe { &(*self.cq.as_ref().context).ops }
    }
}

impl backend::CompletionQueue for CompletionQueue {
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is open as long as this is.
        unsafe { borrow(self.channel.fd()) }
    }

    fn poll(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize> {
        let failed = |errno| VerbsError::call("ibv_poll_cq", self.device.clone(), errno);
        let poll = self
            .ops()
            .poll_cq
            .ok_or_else(|| failed(Errno::EOPNOTSUPP))?;
        let mut entries = [sys::Wc::default(); COMPLETIONS_PER_POLL_MAX];
        let max = i32::try_from(max.min(entries.len())).unwrap_or(0);
        // SAFETY: the queue is there, and the array has room for as many entries.
        let count = unsafe { poll(self.cq.as_ptr(), max, entries.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| failed(Errno::EIO))?;
        out.extend(
            entries[..count]
                .iter()
                .map(|wc| completion(wc, self.with_inv)),
        );
        Ok(count)
    }

    fn arm(&self, solicited_only: bool) -> Result<()> {
        let failed = |errno| VerbsError::call("ibv_req_notify_cq", self.device.clone(), errno);
        let arm = self
            .ops()
            .req_notify_cq
            .ok_or_else(|| failed(Errno::EOPNOTSUPP))?;
        // SAFETY: the queue is there.
        let answer = unsafe { arm(self.cq.as_ptr(), i32::from(solicited_only)) };
        numbered(answer, "ibv_req_notify_cq", || self.device.clone())
    }

    fn take_events(&self) -> Result<u32> {
        let mut count = 0;
        loop {
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel is open, and the call fills two pointers.
            let answer = unsafe {
                (self.channel.calls.verbs.ibv_get_cq_event)(
                    self.channel.channel.as_ptr(),
                    &raw mut cq,
                    &raw mut context,
                )
            };
            if answer != 0 {
                break;
            }
            count += 1;
        }
        let errno = Errno::last();
        if count > 0 {
            // SAFETY: the queue is there; as many events as were taken, all of them its own.
            unsafe { (self.channel.calls.verbs.ibv_ack_cq_events)(self.cq.as_ptr(), count) };
        }
        match errno {
            Errno::EAGAIN => Ok(count),
            errno => Err(VerbsError::call(
                "ibv_get_cq_event",
                self.device.clone(),
                errno,
            )),
        }
    }

    fn native(&self) -> Native {
        self.cq.as_ptr().cast()
    }
}

fn completion(wc: &sys::Wc, with_inv: u32) -> Completion {
    let result = if wc.status == 0 {
        let opcode = opcode(wc.opcode);
        let counts = matches!(opcode, Opcode::Receive | Opcode::Read);
        Ok(Done {
            opcode,
            bytes: if counts { wc.byte_len } else { 0 },
            invalidated: (opcode == Opcode::Receive && wc.wc_flags & with_inv != 0)
                .then_some(RKey(wc.invalidated_rkey)),
        })
    } else {
        Err(Failed {
            status: status(wc.status),
            vendor_code: wc.vendor_err,
        })
    };
    Completion {
        id: WrId(wc.wr_id),
        queue_pair: QpNumber(wc.qp_num),
        result,
    }
}

/// `enum ibv_wc_opcode`.
fn opcode(opcode: u32) -> Opcode {
    match opcode {
        0 => Opcode::Send,
        1 => Opcode::Write,
        2 => Opcode::Read,
        5 => Opcode::Bind,
        6 => Opcode::LocalInvalidate,
        128 => Opcode::Receive,
        other => Opcode::Other(other),
    }
}

/// `enum ibv_wc_status`.
fn status(status: u32) -> Status {
    match status {
        1 => Status::LocalLength,
        2 => Status::LocalQpOperation,
        4 => Status::LocalProtection,
        5 => Status::Flushed,
        6 => Status::WindowBind,
        7 => Status::BadResponse,
        8 => Status::LocalAccess,
        9 => Status::RemoteInvalidRequest,
        10 => Status::RemoteAccess,
        11 => Status::RemoteOperation,
        12 => Status::RetryExceeded,
        13 => Status::RnrRetryExceeded,
        16 => Status::RemoteAborted,
        19 => Status::Fatal,
        20 => Status::ResponseTimeout,
        other => Status::Other(other),
    }
}
