//! Queue pairs and completion queues: their state, and how requests end.

use std::collections::VecDeque;
use std::sync::Arc;

use nix::sys::eventfd::EventFd;

use super::keys::{Bind, DomainNumber, Sges};
use super::world::{NodeId, World, signal};
use crate::completion::{Completion, Done, Failed, Opcode, QpState, Status};
use crate::device::AsyncEvent;
use crate::key::{QpNumber, RKey, WrId};
use crate::queue_pair::{QpCapabilities, Remote};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CqNumber(pub(super) u64);

/// Which queue of a queue pair a completion is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Send,
    Receive,
}

#[derive(Debug)]
struct Entry {
    completion: Completion,
    side: Side,
    /// Requests whose places in the queue are free once this is polled.
    frees: u32,
}

#[derive(Debug)]
pub(super) struct Cq {
    pub(super) node: NodeId,
    capacity: usize,
    entries: VecDeque<Entry>,
    /// Armed; and whether for solicited ones alone.
    pub(super) armed: Option<bool>,
    fd: Arc<EventFd>,
    overflowed: bool,
}

impl Cq {
    pub(super) fn new(node: NodeId, capacity: u32, fd: Arc<EventFd>) -> Self {
        Self {
            node,
            capacity: capacity as usize,
            entries: VecDeque::new(),
            armed: None,
            fd,
            overflowed: false,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Source {
    Inline(Vec<u8>),
    Entries(Sges),
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    Send {
        source: Source,
        invalidate: Option<RKey>,
        solicited: bool,
    },
    Write {
        source: Source,
        remote: Remote,
    },
    Read {
        entries: Sges,
        remote: Remote,
    },
    Bind(Bind),
    Invalidate(RKey),
}

impl Work {
    pub(super) fn opcode(&self) -> Opcode {
        match self {
            Self::Send { .. } => Opcode::Send,
            Self::Write { .. } => Opcode::Write,
            Self::Read { .. } => Opcode::Read,
            Self::Bind(_) => Opcode::Bind,
            Self::Invalidate(_) => Opcode::LocalInvalidate,
        }
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

#[derive(Clone, Debug)]
pub(super) struct SendWr {
    pub(super) id: WrId,
    pub(super) work: Work,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    /// Its number on the connection, once it was sent.
    pub(super) psn: Option<u64>,
    /// What became of it; told in order.
    pub(super) outcome: Option<Result<u32, Status>>,
}

#[derive(Clone, Debug)]
pub(super) struct ReceiveWr {
    pub(super) id: WrId,
    pub(super) entries: Sges,
}

/// Where the other end is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) node: NodeId,
    pub(super) qp: QpNumber,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) node: NodeId,
    pub(super) domain: DomainNumber,
    send_cq: CqNumber,
    receive_cq: CqNumber,
    pub(super) capabilities: QpCapabilities,
    pub(super) state: QpState,
    pub(super) peer: Option<Peer>,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    pub(super) send: VecDeque<SendWr>,
    /// Requests posted whose completions nobody has polled.
    send_used: u32,
    /// Of those done without a completion of their own.
    silent: u32,
    pub(super) next_psn: u64,
    pub(super) retries_left: u8,
    pub(super) rnr_left: u8,
    /// A timer counts only if it was started with this.
    pub(super) timer_epoch: u64,
    pub(super) timer_runs: bool,
    pub(super) rnr_waits: bool,
    pub(super) receive: VecDeque<ReceiveWr>,
    receive_used: u32,
    pub(super) expected_psn: u64,
    pub(super) gap_told: bool,
}

impl Qp {
    pub(super) fn new(
        node: NodeId,
        domain: DomainNumber,
        send_cq: CqNumber,
        receive_cq: CqNumber,
        capabilities: QpCapabilities,
    ) -> Self {
        Self {
            node,
            domain,
            send_cq,
            receive_cq,
            capabilities,
            state: QpState::Init,
            peer: None,
            initiator_depth: 0,
            retry_count: 0,
            rnr_retry: 0,
            send: VecDeque::new(),
            send_used: 0,
            silent: 0,
            next_psn: 0,
            retries_left: 0,
            rnr_left: 0,
            timer_epoch: 0,
            timer_runs: false,
            rnr_waits: false,
            receive: VecDeque::new(),
            receive_used: 0,
            expected_psn: 0,
            gap_told: false,
        }
    }
}

/// Why a post is refused.
pub(super) enum NoPost {
    Gone,
    Full(u32),
    State(QpState),
}

impl World {
    pub(super) fn qp(&mut self, number: QpNumber) -> Option<&mut Qp> {
        self.qps.get_mut(&number)
    }

    pub(super) fn post_send(&mut self, number: QpNumber, wr: SendWr) -> Result<(), NoPost> {
        let qp = self.qp(number).ok_or(NoPost::Gone)?;
        if qp.send_used >= qp.capabilities.send_wr_max {
            return Err(NoPost::Full(qp.capabilities.send_wr_max));
        }
        match qp.state {
            QpState::ReadyToSend => {
                qp.send_used += 1;
                qp.send.push_back(wr);
            }
            QpState::Error => {
                qp.send_used += 1;
                self.complete(number, Side::Send, wr.id, Err(Status::Flushed), false);
            }
            state => return Err(NoPost::State(state)),
        }
        Ok(())
    }

    pub(super) fn post_receive(&mut self, number: QpNumber, wr: ReceiveWr) -> Result<(), NoPost> {
        let qp = self.qp(number).ok_or(NoPost::Gone)?;
        if qp.receive_used >= qp.capabilities.recv_wr_max {
            return Err(NoPost::Full(qp.capabilities.recv_wr_max));
        }
        qp.receive_used += 1;
        if qp.state == QpState::Error {
            self.complete(number, Side::Receive, wr.id, Err(Status::Flushed), false);
        } else {
            qp.receive.push_back(wr);
        }
        Ok(())
    }

    /// A request without a completion is done: the next completion makes room for it too.
    pub(super) fn done_silently(&mut self, number: QpNumber) {
        if let Some(qp) = self.qp(number) {
            qp.silent += 1;
        }
    }

    /// Puts a completion on its queue, unless that has overflowed.
    pub(super) fn complete(
        &mut self,
        number: QpNumber,
        side: Side,
        id: WrId,
        outcome: Result<Done, Status>,
        solicited: bool,
    ) {
        let Some(qp) = self.qp(number) else { return };
        let (cq, frees) = match side {
            Side::Send => (qp.send_cq, 1 + std::mem::take(&mut qp.silent)),
            Side::Receive => (qp.receive_cq, 1),
        };
        let Some(queue) = self.cqs.get_mut(&cq) else {
            return;
        };
        if queue.overflowed {
            return;
        }
        if queue.entries.len() >= queue.capacity {
            queue.overflowed = true;
            let node = queue.node;
            self.raise_async(node, AsyncEvent::CompletionQueueError);
            self.fail_users(cq);
            return;
        }
        let result = outcome.map_err(|status| Failed {
            status,
            vendor_code: 0,
        });
        if let Some(solicited_only) = queue.armed
            && (!solicited_only || solicited || result.is_err())
        {
            queue.armed = None;
            signal(&queue.fd);
        }
        queue.entries.push_back(Entry {
            completion: Completion {
                id,
                queue_pair: number,
                result,
            },
            side,
            frees,
        });
    }

    /// All queue pairs of a queue that overflowed are in error.
    fn fail_users(&mut self, cq: CqNumber) {
        let users = self.qps.iter().filter(|(_, qp)| {
            (qp.send_cq == cq || qp.receive_cq == cq) && qp.state != QpState::Error
        });
        for number in users.map(|(&number, _)| number).collect::<Vec<_>>() {
            if let Some(qp) = self.qps.get(&number) {
                self.raise_async(qp.node, AsyncEvent::QueuePairFatal(number));
            }
            self.enter_error(number);
        }
    }

    pub(super) fn poll(&mut self, cq: CqNumber, out: &mut Vec<Completion>, max: usize) -> usize {
        let Some(queue) = self.cqs.get_mut(&cq) else {
            return 0;
        };
        let count = queue.entries.len().min(max);
        for entry in queue.entries.drain(..count) {
            if let Some(qp) = self.qps.get_mut(&entry.completion.queue_pair) {
                match entry.side {
                    Side::Send => qp.send_used -= entry.frees,
                    Side::Receive => qp.receive_used -= entry.frees,
                }
            }
            out.push(entry.completion);
        }
        count
    }

    /// All that is outstanding is flushed, each queue in order; so is what comes.
    pub(super) fn enter_error(&mut self, number: QpNumber) {
        let Some(qp) = self.qp(number) else { return };
        if qp.state == QpState::Error {
            return;
        }
        qp.state = QpState::Error;
        qp.timer_epoch += 1;
        let send = std::mem::take(&mut qp.send);
        let receive = std::mem::take(&mut qp.receive);
        for wr in send {
            // What was done before the failure stays done, though nobody was told yet.
            match wr.outcome {
                Some(Ok(_)) if !wr.signaled => self.done_silently(number),
                Some(Ok(bytes)) => {
                    let done = Done {
                        opcode: wr.work.opcode(),
                        bytes,
                        invalidated: None,
                    };
                    self.complete(number, Side::Send, wr.id, Ok(done), false);
                }
                _ => self.complete(number, Side::Send, wr.id, Err(Status::Flushed), false),
            }
        }
        for wr in receive {
            self.complete(number, Side::Receive, wr.id, Err(Status::Flushed), false);
        }
    }

    /// A peer's request cannot be carried out: the queue pair is in error, and the program hears of it.
    pub(super) fn fail_by_peer(&mut self, number: QpNumber, event: AsyncEvent) {
        if let Some(qp) = self.qps.get(&number) {
            self.raise_async(qp.node, event);
            self.enter_error(number);
        }
    }

    pub(super) fn qp_gone(&mut self, number: QpNumber) {
        self.qps.remove(&number);
        self.keys.qp_gone(number);
    }
}
