//! The fabric's connection manager: what its messages do when they arrive.

use std::net::SocketAddr;

use reactor::Errno;

use super::cm::{
    Alarm, Answered, Channel, CmEntry, CmMessage, CmNumber, CmState, Offer, TIMEWAIT_NS, Told,
    UNNAMED, padded,
};
use super::qp::Peer;
use super::world::{NodeId, World};
use crate::cm::{Agreed, EventKind, PrivateData, RejectReason};
use crate::key::QpNumber;
use crate::limits::REJECT_DATA_BYTES_MAX;

impl World {
    pub(super) fn cm_arrives(&mut self, from_node: NodeId, at: NodeId, message: CmMessage) {
        match message {
            CmMessage::Request {
                from,
                service,
                source,
                qp,
                offer,
            } => self.request_arrives(from_node, at, from, (service, source), qp, offer),
            CmMessage::Reply {
                to,
                from,
                qp,
                offer,
            } => self.reply_arrives(from_node, at, to, from, qp, offer),
            CmMessage::Ready { to } => {
                if self
                    .ids
                    .get(&to)
                    .is_some_and(|entry| entry.state == CmState::Accepted)
                {
                    self.settle_id(to, CmState::Established);
                    let agreed = Agreed {
                        private_data: PrivateData::new(&[]),
                        responder_resources: 0,
                        initiator_depth: 0,
                    };
                    self.tell(to, EventKind::Established(agreed));
                }
            }
            CmMessage::Reject { to, reason, data } => {
                let waits = [CmState::Connecting, CmState::Accepted];
                if self
                    .ids
                    .get(&to)
                    .is_some_and(|entry| waits.contains(&entry.state))
                {
                    self.settle_id(to, CmState::Over);
                    self.tell(to, EventKind::Rejected(reason, data));
                }
            }
            CmMessage::Goodbye { to, from } => self.goodbye_arrives(from_node, at, to, from),
            CmMessage::GoodbyeToo { to } => {
                if self
                    .ids
                    .get(&to)
                    .is_some_and(|entry| entry.state == CmState::Leaving)
                {
                    self.settle_id(to, CmState::Over);
                    self.tell(to, EventKind::Disconnected);
                    self.alarm(to, TIMEWAIT_NS, Alarm::TimewaitOver);
                }
            }
        }
    }

    fn request_arrives(
        &mut self,
        from_node: NodeId,
        at: NodeId,
        from: CmNumber,
        (service, source): (SocketAddr, SocketAddr),
        qp: QpNumber,
        offer: Offer,
    ) {
        match self.answered.get(&(from_node, from)).cloned() {
            Some(Answered::By(number)) => return self.answer_again(number),
            Some(Answered::Rejected(reason, data)) => {
                return self.cm_send(
                    at,
                    from_node,
                    CmMessage::Reject {
                        to: from,
                        reason,
                        data,
                    },
                );
            }
            None => {}
        }
        let hears = |entry: &CmEntry| {
            let at_address = entry.local.is_some_and(|local| {
                local.port() == service.port()
                    && (local.ip() == service.ip()
                        || (local.ip().is_unspecified() && (local.is_ipv6() || service.is_ipv4())))
            });
            entry.node == at && entry.state == CmState::Listening && at_address
        };
        let listener = self.ids.values().find(|entry| hears(entry));
        let Some((key, channel, backlog)) =
            listener.map(|entry| (entry.key, entry.channel, entry.backlog))
        else {
            let (reason, data) = (RejectReason::NoListener, padded(&[], REJECT_DATA_BYTES_MAX));
            self.answered
                .insert((from_node, from), Answered::Rejected(reason, data));
            return self.cm_send(
                at,
                from_node,
                CmMessage::Reject {
                    to: from,
                    reason,
                    data,
                },
            );
        };
        let waiting = |channel: &Channel| {
            let own = |told: &&Told| matches!(told, Told::Request(of, ..) if *of == key);
            channel.told.iter().filter(own).count()
        };
        // Beyond the backlog a request is lost, and comes again.
        if self
            .channels
            .get(&channel)
            .is_none_or(|channel| waiting(channel) >= backlog.max(1))
        {
            self.counts.lost += 1;
            return;
        }
        let number = CmNumber(self.fresh());
        let mut entry = CmEntry::new(UNNAMED, channel, at);
        entry.state = CmState::Asked;
        entry.local = Some(service);
        entry.peer = Some(source);
        entry.other = Some((from_node, Some(from)));
        entry.asked = Some((qp, offer));
        self.ids.insert(number, entry);
        self.answered
            .insert((from_node, from), Answered::By(number));
        self.push(channel, Told::Request(key, number, offer));
    }

    /// A request came again: what was said to it is said again, if anything was.
    fn answer_again(&mut self, number: CmNumber) {
        let Some(entry) = self.ids.get(&number) else {
            return;
        };
        let (here, there, pending) = (entry.node, entry.other, entry.pending.clone());
        if let (CmState::Accepted, Some(reply), Some((there, _))) = (entry.state, pending, there) {
            self.cm_send(here, there, reply);
        }
    }

    fn reply_arrives(
        &mut self,
        from_node: NodeId,
        at: NodeId,
        to: CmNumber,
        from: CmNumber,
        peer_qp: QpNumber,
        offer: Offer,
    ) {
        let ready = CmMessage::Ready { to: from };
        let refuse = |reason| CmMessage::Reject {
            to: from,
            reason,
            data: padded(&[], REJECT_DATA_BYTES_MAX),
        };
        let Some(entry) = self.ids.get(&to) else {
            return self.cm_send(at, from_node, refuse(RejectReason::Other(6)));
        };
        let own = entry.asked;
        match (entry.state, own) {
            (CmState::Connecting, Some((qp, own))) => {
                let peer = Peer {
                    node: from_node,
                    qp: peer_qp,
                };
                // What the peer has room for and wants, turned round; its "receiver not ready" limit is for us.
                let depth = offer.responder_resources;
                if !self.bring_up(
                    Some(qp),
                    peer,
                    depth,
                    own.retry_count,
                    offer.rnr_retry_count,
                ) {
                    self.settle_id(to, CmState::Over);
                    self.cm_send(at, from_node, refuse(RejectReason::Consumer));
                    return self.tell(to, EventKind::ConnectError(Errno::EINVAL));
                }
                self.settle_id(to, CmState::Established);
                if let Some(entry) = self.id(to) {
                    entry.other = Some((from_node, Some(from)));
                }
                self.cm_send(at, from_node, ready);
                let agreed = Agreed {
                    private_data: offer.data,
                    responder_resources: offer.initiator_depth,
                    initiator_depth: depth,
                };
                self.tell(to, EventKind::Established(agreed));
            }
            (CmState::Established, _) => self.cm_send(at, from_node, ready),
            // We gave up meanwhile.
            _ => self.cm_send(at, from_node, refuse(RejectReason::Other(4))),
        }
    }

    fn goodbye_arrives(&mut self, from_node: NodeId, at: NodeId, to: CmNumber, from: CmNumber) {
        let state = self.ids.get(&to).map(|entry| entry.state);
        match state {
            Some(CmState::Established | CmState::Accepted) => {
                self.settle_id(to, CmState::Left);
                self.tell(to, EventKind::Disconnected);
            }
            // The program has yet to answer.
            Some(CmState::Left) => {}
            // Both left at once: this is an answer too.
            Some(CmState::Leaving) => {
                self.settle_id(to, CmState::Over);
                self.tell(to, EventKind::Disconnected);
                self.alarm(to, TIMEWAIT_NS, Alarm::TimewaitOver);
                self.cm_send(at, from_node, CmMessage::GoodbyeToo { to: from });
            }
            _ => self.cm_send(at, from_node, CmMessage::GoodbyeToo { to: from }),
        }
    }
}
