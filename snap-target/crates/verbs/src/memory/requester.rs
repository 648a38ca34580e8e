//! The sending side of a reliable connection (InfiniBand spec 9.7.5 and 9.9.2): requests go out in order, numbered; what is not acknowledged goes out again.

use super::keys::Denied;
use super::qp::{Side, Source, Work};
use super::world::{Body, Happening, Packet, World};
use crate::completion::{Done, QpState, Status};
use crate::key::{QpNumber, RKey};
use crate::limits::RNR_RETRY_ENDLESS;
use crate::queue_pair::Remote;

/// How long an acknowledgement may take.
const ACK_TIMEOUT_NS: u64 = 16_000_000;
/// How long a peer without a receive is left alone.
const RNR_TIMER_NS: u64 = 640_000;

/// A request on its way.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(super) psn: u64,
    pub(super) what: Wanted,
}

#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Send {
        bytes: Vec<u8>,
        invalidate: Option<RKey>,
        solicited: bool,
    },
    Write {
        bytes: Vec<u8>,
        remote: Remote,
    },
    Read {
        len: u32,
        remote: Remote,
    },
}

/// What comes back.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(super) psn: u64,
    pub(super) what: Said,
}

#[derive(Clone, Debug)]
pub(super) enum Said {
    /// All up to this number is done, reads apart.
    Ack,
    Bytes(Vec<u8>),
    /// This number was expected, and another came.
    Gap,
    /// There is no receive for it.
    NotReady,
    /// It failed, for good.
    Refused(Status),
}

impl World {
    /// Sends what may go.
    pub(super) fn transmit(&mut self, number: QpNumber) {
        while let Some(at) = self.next_to_send(number) {
            let Some(qp) = self.qp(number) else { return };
            let domain = qp.domain;
            let local = match &qp.send[at].work {
                Work::Bind(bind) => Some((Status::WindowBind, Ok(*bind))),
                Work::Invalidate(rkey) => Some((Status::LocalQpOperation, Err(*rkey))),
                _ => None,
            };
            if let Some((status, what)) = local {
                let done = match what {
                    Ok(bind) => self.keys.bind(number, domain, bind),
                    Err(rkey) => self.keys.invalidate(number, domain, rkey),
                };
                self.settle(number, at, done.map(|()| 0).map_err(|Denied| status));
            } else {
                let psn = qp.next_psn;
                qp.next_psn += 1;
                qp.send[at].psn = Some(psn);
                self.send_request(number, at);
            }
        }
        self.retire(number);
    }

    /// The next request that was not sent, if nothing holds it up.
    fn next_to_send(&mut self, number: QpNumber) -> Option<usize> {
        let qp = self.qp(number)?;
        if qp.state != QpState::ReadyToSend || qp.rnr_waits {
            return None;
        }
        // Behind a failure nothing goes: it will be flushed.
        if qp.send.iter().any(|wr| matches!(wr.outcome, Some(Err(_)))) {
            return None;
        }
        let at = qp
            .send
            .iter()
            .position(|wr| wr.psn.is_none() && wr.outcome.is_none())?;
        let open = |wr: &&super::qp::SendWr| wr.work.is_read() && wr.outcome.is_none();
        let reads = qp.send.range(..at).filter(open).count();
        let next = &qp.send[at];
        if next.work.is_read() && qp.initiator_depth == 0 {
            self.settle(number, at, Err(Status::LocalQpOperation));
            return None;
        }
        let held = (next.fence && reads > 0)
            || (next.work.is_read() && reads >= usize::from(qp.initiator_depth));
        (!held).then_some(at)
    }

    fn settle(&mut self, number: QpNumber, at: usize, outcome: Result<u32, Status>) {
        if let Some(wr) = self.qp(number).and_then(|qp| qp.send.get_mut(at)) {
            wr.outcome = Some(outcome);
        }
    }

    /// Puts a numbered request on the link; its bytes are taken from memory now.
    fn send_request(&mut self, number: QpNumber, at: usize) {
        let Some(qp) = self.qps.get(&number) else {
            return;
        };
        let Some((wr, peer)) = qp.send.get(at).zip(qp.peer) else {
            return;
        };
        let Some(psn) = wr.psn else { return };
        let gather = |source: &Source| match source {
            Source::Inline(bytes) => Ok(bytes.clone()),
            Source::Entries(entries) => self.keys.gather(entries, qp.domain),
        };
        let what = match &wr.work {
            Work::Send {
                source,
                invalidate,
                solicited,
            } => gather(source).map(|bytes| Wanted::Send {
                bytes,
                invalidate: *invalidate,
                solicited: *solicited,
            }),
            Work::Write { source, remote } => gather(source).map(|bytes| Wanted::Write {
                bytes,
                remote: *remote,
            }),
            Work::Read { entries, remote } => Ok(Wanted::Read {
                len: entries.iter().map(|entry| entry.len).sum(),
                remote: *remote,
            }),
            Work::Bind(_) | Work::Invalidate(_) => return,
        };
        let from = qp.node;
        match what {
            Ok(what) => self.send(Packet {
                from,
                to: peer.node,
                body: Body::Demand(peer.qp, number, Demand { psn, what }),
            }),
            Err(Denied) => self.settle(number, at, Err(Status::LocalProtection)),
        }
    }

    /// Tells what is done, in order; a failure ends the queue pair.
    fn retire(&mut self, number: QpNumber) {
        loop {
            let Some(qp) = self.qp(number) else { return };
            if qp.send.front().is_none_or(|wr| wr.outcome.is_none()) {
                break;
            }
            let Some(wr) = qp.send.pop_front() else { break };
            match wr.outcome {
                Some(Err(status)) => {
                    self.complete(number, Side::Send, wr.id, Err(status), false);
                    self.enter_error(number);
                    return;
                }
                Some(Ok(bytes)) if wr.signaled => {
                    let done = Done {
                        opcode: wr.work.opcode(),
                        bytes,
                        invalidated: None,
                    };
                    self.complete(number, Side::Send, wr.id, Ok(done), false);
                }
                _ => self.done_silently(number),
            }
        }
        self.keep_time(number);
    }

    /// The timer runs while something is not acknowledged.
    fn keep_time(&mut self, number: QpNumber) {
        let Some(qp) = self.qp(number) else { return };
        let open = qp
            .send
            .iter()
            .any(|wr| wr.psn.is_some() && wr.outcome.is_none());
        if !open || qp.rnr_waits {
            qp.timer_epoch += 1;
            qp.timer_runs = false;
        } else if !qp.timer_runs {
            qp.timer_epoch += 1;
            qp.timer_runs = true;
            let epoch = qp.timer_epoch;
            self.after(ACK_TIMEOUT_NS, Happening::AckTimeout(number, epoch));
        }
    }

    /// The peer did something: all retries are there again, and the timer starts anew.
    fn progress(&mut self, number: QpNumber) {
        if let Some(qp) = self.qp(number) {
            qp.retries_left = qp.retry_count;
            qp.rnr_left = qp.rnr_retry;
            qp.timer_runs = false;
        }
    }

    pub(super) fn answer_arrives(&mut self, to: QpNumber, from: QpNumber, answer: Answer) {
        let Some(qp) = self.qp(to) else { return };
        let known = qp.peer.is_some_and(|peer| peer.qp == from);
        if !known || qp.state != QpState::ReadyToSend || answer.psn >= qp.next_psn {
            return;
        }
        let psn = answer.psn;
        match answer.what {
            Said::Ack => {
                if let Err(lost) = self.done_up_to(to, psn, true) {
                    self.resend_from(to, lost);
                }
            }
            Said::Bytes(bytes) => match self.done_up_to(to, psn, false) {
                Ok(()) => self.read_arrives(to, psn, &bytes),
                Err(lost) => self.resend_from(to, lost),
            },
            Said::Gap => match self.done_up_to(to, psn, false) {
                Ok(()) => self.resend_from(to, psn),
                Err(lost) => self.resend_from(to, lost),
            },
            Said::NotReady => self.not_ready(to, psn),
            Said::Refused(status) => match self.done_up_to(to, psn, false) {
                Ok(()) => self.fail(to, psn, status),
                Err(lost) => self.resend_from(to, lost),
            },
        }
        self.transmit(to);
    }

    /// What was sent before `psn`, and with `itself` that too, is done. `Err` is the first read whose bytes have not come: they were lost.
    fn done_up_to(&mut self, number: QpNumber, psn: u64, itself: bool) -> Result<(), u64> {
        let mut moved = false;
        let mut lost = None;
        let Some(qp) = self.qp(number) else {
            return Ok(());
        };
        for wr in &mut qp.send {
            let Some(own) = wr.psn else { continue };
            if own > psn || (own == psn && !itself) {
                break;
            }
            if wr.outcome.is_none() {
                if wr.work.is_read() {
                    lost = Some(own);
                    break;
                }
                wr.outcome = Some(Ok(0));
                moved = true;
            }
        }
        if moved {
            self.progress(number);
        }
        lost.map_or(Ok(()), Err)
    }

    fn read_arrives(&mut self, number: QpNumber, psn: u64, bytes: &[u8]) {
        let Some(qp) = self.qps.get(&number) else {
            return;
        };
        let Some(at) = qp
            .send
            .iter()
            .position(|wr| wr.psn == Some(psn) && wr.outcome.is_none())
        else {
            return;
        };
        let Work::Read { entries, .. } = &qp.send[at].work else {
            return;
        };
        let len: u64 = entries.iter().map(|entry| u64::from(entry.len)).sum();
        let outcome = match u32::try_from(bytes.len()) {
            Ok(count) if u64::from(count) == len => self
                .keys
                .scatter(entries, qp.domain, bytes)
                .map(|()| count)
                .map_err(|Denied| Status::LocalProtection),
            _ => Err(Status::BadResponse),
        };
        self.progress(number);
        self.settle(number, at, outcome);
    }

    fn fail(&mut self, number: QpNumber, psn: u64, status: Status) {
        let Some(qp) = self.qp(number) else { return };
        if let Some(wr) = qp
            .send
            .iter_mut()
            .find(|wr| wr.psn == Some(psn) && wr.outcome.is_none())
        {
            wr.outcome = Some(Err(status));
        }
    }

    /// Go-back-N: everything sent from `psn` on that is not done goes out again.
    fn resend_from(&mut self, number: QpNumber, psn: u64) {
        let Some(qp) = self.qp(number) else { return };
        qp.timer_runs = false;
        let again: Vec<usize> = (0..qp.send.len())
            .filter(|&at| {
                let wr = &qp.send[at];
                wr.outcome.is_none() && wr.psn.is_some_and(|own| own >= psn)
            })
            .collect();
        for at in again {
            self.counts.resent += 1;
            self.send_request(number, at);
        }
    }

    fn first_open(&mut self, number: QpNumber) -> Option<u64> {
        let qp = self.qp(number)?;
        let open = qp
            .send
            .iter()
            .find(|wr| wr.psn.is_some() && wr.outcome.is_none());
        open.and_then(|wr| wr.psn)
    }

    pub(super) fn ack_timeout(&mut self, number: QpNumber, epoch: u64) {
        let Some(qp) = self.qp(number) else { return };
        if qp.timer_epoch != epoch || !qp.timer_runs || qp.state != QpState::ReadyToSend {
            return;
        }
        qp.timer_runs = false;
        let spent = qp.retries_left == 0;
        qp.retries_left = qp.retries_left.saturating_sub(1);
        if let Some(psn) = self.first_open(number) {
            if spent {
                self.fail(number, psn, Status::RetryExceeded);
            } else {
                self.resend_from(number, psn);
            }
        }
        self.transmit(number);
    }

    fn not_ready(&mut self, number: QpNumber, psn: u64) {
        if let Err(lost) = self.done_up_to(number, psn, false) {
            return self.resend_from(number, lost);
        }
        let Some(qp) = self.qp(number) else { return };
        let open = |wr: &super::qp::SendWr| wr.psn == Some(psn) && wr.outcome.is_none();
        if qp.rnr_waits || !qp.send.iter().any(open) {
            return;
        }
        if qp.rnr_left == 0 {
            return self.fail(number, psn, Status::RnrRetryExceeded);
        }
        if qp.rnr_left != RNR_RETRY_ENDLESS {
            qp.rnr_left -= 1;
        }
        // It answered: it is there.
        qp.retries_left = qp.retry_count;
        qp.rnr_waits = true;
        qp.timer_epoch += 1;
        qp.timer_runs = false;
        let epoch = qp.timer_epoch;
        self.after(RNR_TIMER_NS, Happening::RnrOver(number, epoch));
    }

    pub(super) fn rnr_over(&mut self, number: QpNumber, _epoch: u64) {
        let Some(qp) = self.qp(number) else { return };
        if !qp.rnr_waits || qp.state != QpState::ReadyToSend {
            return;
        }
        qp.rnr_waits = false;
        if let Some(psn) = self.first_open(number) {
            self.resend_from(number, psn);
        }
        self.transmit(number);
    }
}
