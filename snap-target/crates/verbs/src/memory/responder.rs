//! The receiving side of a reliable connection (InfiniBand spec 9.7.4 and 9.9.3): requests are carried out once each and in order, with the rights of the moment at which they arrive.

use super::keys::Denied;
use super::qp::Side;
use super::requester::{Answer, Demand, Said, Wanted};
use super::world::{Body, NodeId, Packet, World};
use crate::completion::{Done, Opcode, QpState, Status};
use crate::device::AsyncEvent;
use crate::key::{QpNumber, RKey};

/// What carrying a request out leads to.
enum Outcome {
    Say(Said),
    /// It is refused, and the queue pair is in error.
    Fatal(Status, AsyncEvent),
    NotReady,
}

impl World {
    pub(super) fn demand_arrives(
        &mut self,
        from_node: NodeId,
        to: QpNumber,
        from: QpNumber,
        demand: Demand,
    ) {
        let Some(qp) = self.qps.get(&to) else {
            self.counts.lost += 1;
            return;
        };
        let known = qp
            .peer
            .is_some_and(|peer| peer.qp == from && peer.node == from_node);
        let ready = matches!(qp.state, QpState::ReadyToReceive | QpState::ReadyToSend);
        if !known || !ready {
            self.counts.lost += 1;
            return;
        }
        let (psn, expected) = (demand.psn, qp.expected_psn);
        if psn > expected {
            if !qp.gap_told {
                if let Some(qp) = self.qp(to) {
                    qp.gap_told = true;
                }
                self.answer(to, expected, Said::Gap);
            }
            return;
        }
        if psn < expected {
            return self.repeat(to, demand, expected);
        }
        match self.carry_out(to, demand.what) {
            Outcome::Say(said) => {
                if let Some(qp) = self.qp(to) {
                    qp.expected_psn += 1;
                    qp.gap_told = false;
                }
                self.answer(to, psn, said);
            }
            Outcome::NotReady => {
                // What follows it is dropped without a word: the peer starts again here.
                if let Some(qp) = self.qp(to) {
                    qp.gap_told = true;
                }
                self.answer(to, psn, Said::NotReady);
            }
            Outcome::Fatal(status, event) => {
                self.answer(to, psn, Said::Refused(status));
                self.fail_by_peer(to, event);
            }
        }
    }

    /// A request that was carried out before: only a read has to be done again, since its bytes may have been lost.
    fn repeat(&mut self, to: QpNumber, demand: Demand, expected: u64) {
        let Wanted::Read { len, remote } = demand.what else {
            return self.answer(to, expected - 1, Said::Ack);
        };
        match self.read(to, len, remote) {
            Outcome::Say(said) => self.answer(to, demand.psn, said),
            Outcome::Fatal(status, event) => {
                self.answer(to, demand.psn, Said::Refused(status));
                self.fail_by_peer(to, event);
            }
            Outcome::NotReady => {}
        }
    }

    fn carry_out(&mut self, to: QpNumber, what: Wanted) -> Outcome {
        match what {
            Wanted::Send {
                bytes,
                invalidate,
                solicited,
            } => self.receive(to, &bytes, invalidate, solicited),
            Wanted::Read { len, remote } => self.read(to, len, remote),
            Wanted::Write { bytes, remote } => {
                let Some(qp) = self.qps.get(&to) else {
                    return Outcome::NotReady;
                };
                match self
                    .keys
                    .remote_write(to, qp.domain, remote.rkey, remote.address, &bytes)
                {
                    Ok(()) => Outcome::Say(Said::Ack),
                    Err(Denied) => denied(to),
                }
            }
        }
    }

    fn read(&mut self, to: QpNumber, len: u32, remote: crate::Remote) -> Outcome {
        let Some(qp) = self.qps.get(&to) else {
            return Outcome::NotReady;
        };
        match self
            .keys
            .remote_read(to, qp.domain, remote.rkey, remote.address, len)
        {
            Ok(bytes) => Outcome::Say(Said::Bytes(bytes)),
            Err(Denied) => denied(to),
        }
    }

    fn receive(
        &mut self,
        to: QpNumber,
        bytes: &[u8],
        invalidate: Option<RKey>,
        solicited: bool,
    ) -> Outcome {
        let Some(qp) = self.qp(to) else {
            return Outcome::NotReady;
        };
        let domain = qp.domain;
        let Some(wr) = qp.receive.pop_front() else {
            return Outcome::NotReady;
        };
        let room: u64 = wr.entries.iter().map(|entry| u64::from(entry.len)).sum();
        let failed = if bytes.len() as u64 > room {
            Some((
                Status::LocalLength,
                Status::RemoteInvalidRequest,
                AsyncEvent::QueuePairRequestError(to),
            ))
        } else if self.keys.scatter(&wr.entries, domain, bytes).is_err() {
            Some((
                Status::LocalProtection,
                Status::RemoteOperation,
                AsyncEvent::QueuePairFatal(to),
            ))
        } else if invalidate.is_some_and(|rkey| self.keys.invalidate(to, domain, rkey).is_err()) {
            Some((
                Status::LocalProtection,
                Status::RemoteAccess,
                AsyncEvent::QueuePairAccessError(to),
            ))
        } else {
            None
        };
        if let Some((here, there, event)) = failed {
            self.complete(to, Side::Receive, wr.id, Err(here), true);
            return Outcome::Fatal(there, event);
        }
        let done = Done {
            opcode: Opcode::Receive,
            bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            invalidated: invalidate,
        };
        self.complete(to, Side::Receive, wr.id, Ok(done), solicited);
        Outcome::Say(Said::Ack)
    }

    fn answer(&mut self, from: QpNumber, psn: u64, what: Said) {
        let Some((node, peer)) = self.qps.get(&from).and_then(|qp| Some((qp.node, qp.peer?)))
        else {
            return;
        };
        self.send(Packet {
            from: node,
            to: peer.node,
            body: Body::Answer(peer.qp, from, Answer { psn, what }),
        });
    }
}

fn denied(to: QpNumber) -> Outcome {
    Outcome::Fatal(Status::RemoteAccess, AsyncEvent::QueuePairAccessError(to))
}
