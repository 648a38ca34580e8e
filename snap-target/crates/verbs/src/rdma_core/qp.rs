//! Queue pairs of libibverbs: requests are translated into the library's, on memory that is kept for it.

use std::cell::RefCell;
use std::ptr::{self, NonNull};

use reactor::Errno;

use super::library::Calls;
use super::numbered;
use super::sys;
use crate::backend;
use crate::completion::QpState;
use crate::domain::ScatterEntry;
use crate::error::{PostError, Result, VerbsError};
use crate::key::QpNumber;
use crate::limits::REQUESTS_PER_POST_MAX;
use crate::queue_pair::{Gather, Operation, QpCapabilities, ReceiveRequest, SendRequest};

pub(super) struct QueuePair {
    calls: &'static Calls,
    qp: NonNull<sys::Qp>,
    /// Its identifier, which its owner keeps.
    id: NonNull<sys::CmId>,
    capacity: [u32; 2],
    scratch: RefCell<Scratch>,
}

/// Where requests are put together; as large as the largest list that is handed over at once.
struct Scratch {
    send: Vec<sys::SendWr>,
    receive: Vec<sys::RecvWr>,
    sges: Vec<sys::Sge>,
}

// SAFETY: one thread at a time has it; libibverbs' calls on a queue pair may be made by any thread.
unsafe impl Send for QueuePair {}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "queue pair {}", backend::QueuePair::number(self).0)
    }
}

impl QueuePair {
    pub(super) fn new(
        calls: &'static Calls,
        qp: NonNull<sys::Qp>,
        id: NonNull<sys::CmId>,
        capabilities: &QpCapabilities,
    ) -> Self {
        let entries = capabilities
            .send_sge_max
            .max(capabilities.recv_sge_max)
            .max(1) as usize;
        Self {
            calls,
            qp,
            id,
            capacity: [capabilities.send_wr_max, capabilities.recv_wr_max],
            scratch: RefCell::new(Scratch {
                send: Vec::with_capacity(REQUESTS_PER_POST_MAX),
                receive: Vec::with_capacity(REQUESTS_PER_POST_MAX),
                sges: Vec::with_capacity(REQUESTS_PER_POST_MAX * entries),
            }),
        }
    }

    fn ops(&self) -> &sys::ContextOps {
        // SAFETY: the queue pair's domain holds its context open.
        unsafe { &(*self.qp.as_ref().context).ops }
    }

    fn subject(&self) -> String {
        format!("{self:?}")
    }

    fn refused(&self, posted: usize, call: &'static str, side: usize, answer: i32) -> PostError {
        let errno = Errno::from_raw(answer.abs());
        let error = match errno {
            // What providers say when a queue has no room (`ibv_post_send(3)`).
            Errno::ENOMEM | Errno::EAGAIN => VerbsError::QueueFull {
                queue: ["send queue", "receive queue"][side],
                queue_pair: backend::QueuePair::number(self).0,
                capacity: self.capacity[side],
            },
            errno => VerbsError::call(call, self.subject(), errno),
        };
        PostError { posted, error }
    }
}

/// Appends entries; where they begin.
fn push(sges: &mut Vec<sys::Sge>, entries: &[ScatterEntry]) {
    sges.extend(entries.iter().map(|entry| sys::Sge {
        addr: entry.address,
        length: entry.len,
        lkey: entry.lkey.0,
    }));
}

impl Scratch {
    /// Puts requests together as a chain. Its pointers are good until the scratch is touched again.
    fn send_chain(&mut self, requests: &[SendRequest<'_>]) {
        self.send.clear();
        self.sges.clear();
        for request in requests {
            let first = self.sges.len();
            let mut wr = blank_send();
            wr.wr_id = request.id.0;
            if request.signaled {
                wr.send_flags |= sys::SEND_SIGNALED;
            }
            if request.fence {
                wr.send_flags |= sys::SEND_FENCE;
            }
            self.fill(&mut wr, &request.operation);
            wr.num_sge = i32::try_from(self.sges.len() - first).unwrap_or(i32::MAX);
            self.send.push(wr);
        }
        // Nothing moves from here on.
        let (sges, base) = (self.sges.as_mut_ptr(), self.send.as_mut_ptr());
        let (mut at, count) = (0, self.send.len());
        for (nth, wr) in self.send.iter_mut().enumerate() {
            wr.sg_list = sges.wrapping_add(at);
            at += usize::try_from(wr.num_sge).unwrap_or(0);
            if nth + 1 < count {
                wr.next = base.wrapping_add(nth + 1);
            }
        }
    }

    fn fill(&mut self, wr: &mut sys::SendWr, operation: &Operation<'_>) {
        match *operation {
            Operation::Send {
                gather,
                invalidate,
                solicited,
            } => {
                wr.opcode = sys::WR_SEND;
                if let Some(rkey) = invalidate {
                    wr.opcode = sys::WR_SEND_WITH_INV;
                    wr.invalidate_rkey = rkey.0;
                }
                if solicited {
                    wr.send_flags |= sys::SEND_SOLICITED;
                }
                self.gather(wr, gather);
            }
            Operation::Write { gather, remote } => {
                wr.opcode = sys::WR_RDMA_WRITE;
                (wr.remote_addr, wr.remote_rkey) = (remote.address, remote.rkey.0);
                self.gather(wr, gather);
            }
            Operation::Read { entries, remote } => {
                wr.opcode = sys::WR_RDMA_READ;
                (wr.remote_addr, wr.remote_rkey) = (remote.address, remote.rkey.0);
                push(&mut self.sges, entries);
            }
            Operation::LocalInvalidate { rkey } => {
                wr.opcode = sys::WR_LOCAL_INV;
                wr.invalidate_rkey = rkey.0;
            }
            Operation::Bind {
                window,
                registration,
                offset,
                len,
                access,
            } => {
                wr.opcode = sys::WR_BIND_MW;
                wr.mw = window.native().cast();
                wr.mw_rkey = window.next_rkey().0;
                wr.bind_info = sys::MwBindInfo {
                    mr: registration.native().cast(),
                    // The front has checked the range.
                    addr: registration.remote_address(offset).unwrap_or_default(),
                    length: len as u64,
                    mw_access_flags: access.bits(),
                };
            }
        }
    }

    fn gather(&mut self, wr: &mut sys::SendWr, gather: Gather<'_>) {
        match gather {
            Gather::Entries(entries) => push(&mut self.sges, entries),
            Gather::Inline(bytes) => {
                wr.send_flags |= sys::SEND_INLINE;
                if !bytes.is_empty() {
                    // Copied by the post: no key is looked at, and the bytes are only read.
                    self.sges.push(sys::Sge {
                        addr: bytes.as_ptr().expose_provenance() as u64,
                        length: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
                        lkey: 0,
                    });
                }
            }
        }
    }

    fn receive_chain(&mut self, requests: &[ReceiveRequest<'_>]) {
        self.receive.clear();
        self.sges.clear();
        for request in requests {
            push(&mut self.sges, request.entries);
            self.receive.push(sys::RecvWr {
                wr_id: request.id.0,
                next: ptr::null_mut(),
                sg_list: ptr::null_mut(),
                num_sge: i32::try_from(request.entries.len()).unwrap_or(i32::MAX),
            });
        }
        let (sges, base) = (self.sges.as_mut_ptr(), self.receive.as_mut_ptr());
        let (mut at, count) = (0, self.receive.len());
        for (nth, wr) in self.receive.iter_mut().enumerate() {
            wr.sg_list = sges.wrapping_add(at);
            at += usize::try_from(wr.num_sge).unwrap_or(0);
            if nth + 1 < count {
                wr.next = base.wrapping_add(nth + 1);
            }
        }
    }
}

fn blank_send() -> sys::SendWr {
    sys::SendWr {
        wr_id: 0,
        next: ptr::null_mut(),
        sg_list: ptr::null_mut(),
        num_sge: 0,
        opcode: 0,
        send_flags: 0,
        invalidate_rkey: 0,
        remote_addr: 0,
        remote_rkey: 0,
        wr_rest: [0; 5],
        qp_type: 0,
        mw: ptr::null_mut(),
        mw_rkey: 0,
        bind_info: sys::MwBindInfo {
            mr: ptr::null_mut(),
            addr: 0,
            length: 0,
            mw_access_flags: 0,
        },
    }
}

/// How many requests of a list go at once: a bind ends a part, since a provider takes the window's key of the moment for the next.
fn part(requests: &[SendRequest<'_>]) -> usize {
    let bind = requests
        .iter()
        .position(|request| matches!(request.operation, Operation::Bind { .. }));
    bind.map_or(requests.len(), |at| at + 1)
        .min(REQUESTS_PER_POST_MAX)
}

/// How many of a chain were posted, from the first that was not.
fn before<T>(base: *const T, bad: *const T, count: usize) -> usize {
    if bad.is_null() {
        return 0;
    }
    (bad.addr().wrapping_sub(base.addr()) / size_of::<T>()).min(count)
}

impl backend::QueuePair for QueuePair {
    fn number(&self) -> QpNumber {
        // SAFETY: the queue pair is there, and its number never changes.
        QpNumber(unsafe { self.qp.as_ref() }.qp_num)
    }

    fn post_send(&self, requests: &[SendRequest<'_>]) -> std::result::Result<(), PostError> {
        let mut scratch = self.scratch.borrow_mut();
        let mut posted = 0;
        while posted < requests.len() {
            let list = &requests[posted..];
            let list = &list[..part(list)];
            scratch.send_chain(list);
            let base = scratch.send.as_mut_ptr();
            let mut bad = ptr::null_mut();
            let answer = self
                .ops()
                .post_send
                .map_or(Errno::EOPNOTSUPP as i32, |post| {
                    // SAFETY: the queue pair is there; the chain, its entries and inline bytes are there until the call returns. The memory that entries name is registered as long as this queue
                    // pair exists, or was taken from the device by its owner.
                    unsafe { post(self.qp.as_ptr(), base, &raw mut bad) }
                });
            let done = if answer == 0 {
                list.len()
            } else {
                before(base, bad, list.len())
            };
            for request in &list[..done] {
                if let Operation::Bind {
                    window,
                    registration,
                    ..
                } = request.operation
                {
                    window.bind_posted(registration);
                }
            }
            posted += done;
            if answer != 0 {
                return Err(self.refused(posted, "ibv_post_send", 0, answer));
            }
        }
        Ok(())
    }

    fn post_receive(&self, requests: &[ReceiveRequest<'_>]) -> std::result::Result<(), PostError> {
        let mut scratch = self.scratch.borrow_mut();
        let mut posted = 0;
        for list in requests.chunks(REQUESTS_PER_POST_MAX) {
            scratch.receive_chain(list);
            let base = scratch.receive.as_mut_ptr();
            let mut bad = ptr::null_mut();
            let answer = self
                .ops()
                .post_recv
                .map_or(Errno::EOPNOTSUPP as i32, |post| {
                    // SAFETY: as for post_send.
                    unsafe { post(self.qp.as_ptr(), base, &raw mut bad) }
                });
            if answer != 0 {
                posted += before(base, bad, list.len());
                return Err(self.refused(posted, "ibv_post_recv", 1, answer));
            }
            posted += list.len();
        }
        Ok(())
    }

    fn destroy(&self) -> Result<()> {
        // Not rdma_destroy_qp(3), which keeps to itself whether it went well.
        // SAFETY: the front calls it once, at the end. Where it succeeds the device touches no memory for it any more.
        let answer = unsafe { (self.calls.verbs.ibv_destroy_qp)(self.qp.as_ptr()) };
        numbered(answer, "ibv_destroy_qp", || self.subject())?;
        // SAFETY: the identifier is there, and whoever owns both calls nothing for it meanwhile (`store-nvme-rdma` and `frontend-nvme-rdma` move them together). It is to forget a
        // queue pair that is gone: rdma_disconnect(3) would touch it.
        unsafe { (*self.id.as_ptr()).qp = ptr::null_mut() };
        Ok(())
    }

    fn state(&self) -> Result<QpState> {
        // SAFETY: structures of numbers and pointers, for which zeros are values.
        let (mut attr, mut init): (sys::QpAttr, sys::QpInitAttr) = unsafe { std::mem::zeroed() };
        // SAFETY: the queue pair is there, and the call fills both.
        let answer = unsafe {
            (self.calls.verbs.ibv_query_qp)(
                self.qp.as_ptr(),
                &raw mut attr,
                sys::QP_ATTR_STATE,
                &raw mut init,
            )
        };
        numbered(answer, "ibv_query_qp", || self.subject())?;
        Ok(match attr.qp_state {
            0 => QpState::Reset,
            1 => QpState::Init,
            2 => QpState::ReadyToReceive,
            3 => QpState::ReadyToSend,
            4 | 5 => QpState::SendQueueStopped,
            _ => QpState::Error,
        })
    }

    fn move_to_error(&self) -> Result<()> {
        // SAFETY: a structure of numbers, for which zeros are values.
        let mut attr: sys::QpAttr = unsafe { std::mem::zeroed() };
        attr.qp_state = sys::QPS_ERR;
        // SAFETY: the queue pair is there; the mask says that only the state counts.
        let answer = unsafe {
            (self.calls.verbs.ibv_modify_qp)(self.qp.as_ptr(), &raw mut attr, sys::QP_ATTR_STATE)
        };
        numbered(answer, "ibv_modify_qp", || self.subject())
    }
}
