//! The fabric's connection manager: requests, replies and goodbyes as messages that links lose and delay like all others, each sent again until it is answered or
//! its sender gives up (InfiniBand spec 12.9).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use nix::sys::eventfd::EventFd;
use reactor::Errno;

use super::qp::Peer;
use super::world::{Body, Happening, NodeId, Packet, World, signal};
use crate::cm::{EventKind, PrivateData, RejectReason};
use crate::completion::QpState;
use crate::key::{CmKey, QpNumber};
use crate::limits::{ACCEPT_DATA_BYTES_MAX, CONNECT_DATA_BYTES_MAX, REJECT_DATA_BYTES_MAX};

/// How long an answer of the connection manager may take, and how often it is asked for again.
const CM_TIMEOUT_NS: u64 = 100_000_000;
const CM_TRIES: u8 = 15;
/// Goodbyes are given up sooner.
const GOODBYE_TRIES: u8 = 4;
/// How long a queue pair's number is not used again.
pub(super) const TIMEWAIT_NS: u64 = 64_000_000;
/// How long an address or a route takes that is there.
const RESOLVE_NS: u64 = 10_000;

/// The channel of an identifier that its program has dropped.
const NOBODY: u64 = 0;
/// The name of a request until it is adopted.
pub(super) const UNNAMED: CmKey = CmKey(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CmNumber(pub(super) u64);

/// Parameters of one side, as they go over the wire.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) data: PrivateData,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry_count: u8,
}

#[derive(Clone, Debug)]
pub(super) enum CmMessage {
    Request {
        from: CmNumber,
        service: SocketAddr,
        source: SocketAddr,
        qp: QpNumber,
        offer: Offer,
    },
    Reply {
        to: CmNumber,
        from: CmNumber,
        qp: QpNumber,
        offer: Offer,
    },
    Ready {
        to: CmNumber,
    },
    Reject {
        to: CmNumber,
        reason: RejectReason,
        data: PrivateData,
    },
    Goodbye {
        to: CmNumber,
        from: CmNumber,
    },
    GoodbyeToo {
        to: CmNumber,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Alarm {
    Resolved(Result<(), Errno>),
    RouteResolved(Result<(), Errno>),
    /// Ask again, or give up.
    Late,
    TimewaitOver,
}

#[derive(Clone, Debug)]
pub(super) enum Answered {
    /// An identifier has it.
    By(CmNumber),
    Rejected(RejectReason, PrivateData),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CmState {
    Idle,
    Resolving,
    AddressResolved,
    RouteResolved,
    Listening,
    Connecting,
    /// A request that the program has not answered.
    Asked,
    Accepted,
    Established,
    /// We said goodbye.
    Leaving,
    /// The peer said goodbye, and the program has not answered.
    Left,
    Over,
}

impl CmState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Resolving => "resolving",
            Self::AddressResolved => "without a route",
            Self::RouteResolved => "not connected",
            Self::Listening => "listening",
            Self::Connecting => "connecting",
            Self::Asked => "asked for a connection",
            Self::Accepted => "accepted",
            Self::Established => "connected",
            Self::Leaving | Self::Left => "disconnecting",
            Self::Over => "over",
        }
    }
}

/// An event for a program: an identifier's, or a request that arrived at a listener.
#[derive(Debug)]
pub(super) enum Told {
    Event(CmKey, EventKind),
    Request(CmKey, CmNumber, Offer),
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) told: VecDeque<Told>,
    pub(super) fd: Arc<EventFd>,
}

#[derive(Debug)]
pub(super) struct CmEntry {
    pub(super) key: CmKey,
    pub(super) channel: u64,
    pub(super) node: NodeId,
    pub(super) state: CmState,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    /// Where the other end is, and its number once known.
    pub(super) other: Option<(NodeId, Option<CmNumber>)>,
    pub(super) qp: Option<QpNumber>,
    /// The peer's queue pair and what it asked for, at the accepting end.
    pub(super) asked: Option<(QpNumber, Offer)>,
    pub(super) backlog: usize,
    /// An alarm counts only if it was set with this.
    epoch: u64,
    tries_left: u8,
    /// What is sent again.
    pub(super) pending: Option<CmMessage>,
}

impl CmEntry {
    pub(super) fn new(key: CmKey, channel: u64, node: NodeId) -> Self {
        Self {
            key,
            channel,
            node,
            state: CmState::Idle,
            local: None,
            peer: None,
            other: None,
            qp: None,
            asked: None,
            backlog: 0,
            epoch: 0,
            tries_left: 0,
            pending: None,
        }
    }
}

impl World {
    pub(super) fn id(&mut self, number: CmNumber) -> Option<&mut CmEntry> {
        self.ids.get_mut(&number)
    }

    pub(super) fn tell(&mut self, number: CmNumber, kind: EventKind) {
        let Some(entry) = self.ids.get(&number) else {
            return;
        };
        if self.nodes[entry.node.0].dead {
            return;
        }
        let told = Told::Event(entry.key, kind);
        let channel = entry.channel;
        self.push(channel, told);
    }

    pub(super) fn push(&mut self, channel: u64, told: Told) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.told.push_back(told);
            signal(&channel.fd);
        }
    }

    pub(super) fn tell_all(&mut self, node: NodeId, kind: impl Fn() -> EventKind) {
        let of_node = self
            .ids
            .iter()
            .filter(|(_, entry)| entry.node == node && entry.local.is_some());
        for number in of_node.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.tell(number, kind());
        }
    }

    pub(super) fn alarm(&mut self, number: CmNumber, delay_ns: u64, alarm: Alarm) {
        let Some(entry) = self.id(number) else { return };
        entry.epoch += 1;
        let epoch = entry.epoch;
        self.after(delay_ns, Happening::Cm(number, epoch, alarm));
    }

    pub(super) fn cm_send(&mut self, from: NodeId, to: NodeId, message: CmMessage) {
        self.send(Packet {
            from,
            to,
            body: Body::Cm(Box::new(message)),
        });
    }

    /// Sends what wants an answer, and again until it comes.
    fn ask(&mut self, number: CmNumber, message: CmMessage, tries: u8) {
        let Some(entry) = self.id(number) else { return };
        let Some((to, _)) = entry.other else { return };
        entry.pending = Some(message.clone());
        entry.tries_left = tries;
        let from = entry.node;
        self.cm_send(from, to, message);
        self.alarm(number, CM_TIMEOUT_NS, Alarm::Late);
    }

    /// Nothing is waited for any more.
    pub(super) fn settle_id(&mut self, number: CmNumber, state: CmState) {
        if let Some(entry) = self.id(number) {
            entry.state = state;
            entry.epoch += 1;
            entry.pending = None;
        }
    }

    pub(super) fn node_of(&self, address: SocketAddr) -> Option<NodeId> {
        let owns = |node: &super::world::Node| {
            !node.dead && !node.removed && node.addresses.contains(&address.ip())
        };
        self.nodes.iter().position(owns).map(NodeId)
    }

    /// A port of a node that nothing listens at and nothing connects from.
    pub(super) fn free_port(&self, node: NodeId) -> u16 {
        let taken = |port: u16| {
            self.ids.values().any(|entry| {
                entry.node == node && entry.local.is_some_and(|local| local.port() == port)
            })
        };
        (32_768..=u16::MAX).find(|&port| !taken(port)).unwrap_or(0)
    }

    pub(super) fn resolve_address(
        &mut self,
        number: CmNumber,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout_ns: u64,
    ) -> Result<(), Errno> {
        let Some(entry) = self.ids.get(&number) else {
            return Err(Errno::EINVAL);
        };
        if entry.state != CmState::Idle {
            return Err(Errno::EINVAL);
        }
        let node = entry.node;
        let here = &self.nodes[node.0];
        if here.removed {
            return Err(Errno::ENODEV);
        }
        let ip = match source {
            Some(source) if !here.addresses.contains(&source.ip()) => {
                return Err(Errno::EADDRNOTAVAIL);
            }
            Some(source) => source.ip(),
            None => *here
                .addresses
                .iter()
                .find(|address| address.is_ipv4() == destination.is_ipv4())
                .ok_or(Errno::ENODEV)?,
        };
        let there = self.node_of(destination);
        let port = match source.map(|source| source.port()) {
            Some(port) if port != 0 => port,
            _ => self.free_port(node),
        };
        let reachable = there.filter(|&there| !self.link(node, there).cut);
        if let Some(entry) = self.id(number) {
            entry.local = Some(SocketAddr::new(ip, port));
            entry.peer = Some(destination);
            entry.other = there.map(|there| (there, None));
            entry.state = CmState::Resolving;
        }
        match reachable {
            Some(_) => self.alarm(number, RESOLVE_NS, Alarm::Resolved(Ok(()))),
            None => self.alarm(number, timeout_ns, Alarm::Resolved(Err(Errno::ETIMEDOUT))),
        }
        Ok(())
    }

    pub(super) fn resolve_route(&mut self, number: CmNumber) -> Result<(), Errno> {
        match self.id(number) {
            Some(entry) if entry.state == CmState::AddressResolved => {}
            _ => return Err(Errno::EINVAL),
        }
        self.alarm(number, RESOLVE_NS, Alarm::RouteResolved(Ok(())));
        Ok(())
    }

    pub(super) fn listen(
        &mut self,
        number: CmNumber,
        at: SocketAddr,
        backlog: u32,
    ) -> Result<(), Errno> {
        let Some(entry) = self.ids.get(&number) else {
            return Err(Errno::EINVAL);
        };
        let node = entry.node;
        let here = &self.nodes[node.0];
        if here.removed || here.dead {
            return Err(Errno::ENODEV);
        }
        if !at.ip().is_unspecified() && !here.addresses.contains(&at.ip()) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let port = if at.port() == 0 {
            self.free_port(node)
        } else {
            at.port()
        };
        let at = SocketAddr::new(at.ip(), port);
        let clashes = |other: SocketAddr| {
            other.port() == port
                && (other.ip() == at.ip()
                    || other.ip().is_unspecified()
                    || at.ip().is_unspecified())
        };
        let taken = self.ids.values().any(|entry| {
            entry.node == node
                && entry.state == CmState::Listening
                && entry.local.is_some_and(clashes)
        });
        if taken {
            return Err(Errno::EADDRINUSE);
        }
        if let Some(entry) = self.id(number) {
            entry.local = Some(at);
            entry.backlog = backlog as usize;
            entry.state = CmState::Listening;
        }
        Ok(())
    }

    pub(super) fn connect(&mut self, number: CmNumber, offer: Offer) -> Result<(), CmState> {
        let Some(entry) = self.id(number) else {
            return Err(CmState::Over);
        };
        let (CmState::RouteResolved, Some(qp), Some(service), Some(source)) =
            (entry.state, entry.qp, entry.peer, entry.local)
        else {
            return Err(entry.state);
        };
        entry.state = CmState::Connecting;
        entry.asked = Some((qp, offer));
        let message = CmMessage::Request {
            from: number,
            service,
            source,
            qp,
            offer,
        };
        self.ask(number, message, CM_TRIES);
        Ok(())
    }

    /// Readies a queue pair for its peer; false where it is gone.
    pub(super) fn bring_up(
        &mut self,
        qp: Option<QpNumber>,
        peer: Peer,
        depth: u8,
        retry: u8,
        rnr_retry: u8,
    ) -> bool {
        let Some(qp) = qp.and_then(|qp| self.qps.get_mut(&qp)) else {
            return false;
        };
        if qp.state != QpState::Init {
            return false;
        }
        qp.peer = Some(peer);
        qp.initiator_depth = depth;
        (qp.retry_count, qp.retries_left) = (retry, retry);
        (qp.rnr_retry, qp.rnr_left) = (rnr_retry, rnr_retry);
        qp.state = QpState::ReadyToSend;
        true
    }

    pub(super) fn accept(&mut self, number: CmNumber, offer: Offer) -> Result<(), CmState> {
        let Some(entry) = self.ids.get(&number) else {
            return Err(CmState::Over);
        };
        let (CmState::Asked, Some((peer_qp, asked)), Some(qp), Some((there, Some(to)))) =
            (entry.state, entry.asked, entry.qp, entry.other)
        else {
            return Err(entry.state);
        };
        let peer = Peer {
            node: there,
            qp: peer_qp,
        };
        let (retry, rnr_retry) = (asked.retry_count, asked.rnr_retry_count);
        if !self.bring_up(Some(qp), peer, offer.initiator_depth, retry, rnr_retry) {
            return Err(CmState::Over);
        }
        self.settle_id(number, CmState::Accepted);
        let message = CmMessage::Reply {
            to,
            from: number,
            qp,
            offer,
        };
        self.ask(number, message, CM_TRIES);
        Ok(())
    }

    pub(super) fn reject(&mut self, number: CmNumber, data: &[u8]) -> Result<(), CmState> {
        let Some(entry) = self.ids.get(&number) else {
            return Err(CmState::Over);
        };
        let (CmState::Asked, Some((there, Some(to)))) = (entry.state, entry.other) else {
            return Err(entry.state);
        };
        let here = entry.node;
        let (reason, data) = (RejectReason::Consumer, padded(data, REJECT_DATA_BYTES_MAX));
        self.answered
            .insert((there, to), Answered::Rejected(reason, data));
        self.settle_id(number, CmState::Over);
        self.cm_send(here, there, CmMessage::Reject { to, reason, data });
        Ok(())
    }

    pub(super) fn disconnect(&mut self, number: CmNumber) -> Result<(), CmState> {
        let Some(entry) = self.ids.get(&number) else {
            return Err(CmState::Over);
        };
        let (state, qp, here) = (entry.state, entry.qp, entry.node);
        let Some((there, Some(to))) = entry.other else {
            return Err(state);
        };
        match state {
            CmState::Established | CmState::Accepted => {
                qp.into_iter().for_each(|qp| self.enter_error(qp));
                self.settle_id(number, CmState::Leaving);
                self.ask(
                    number,
                    CmMessage::Goodbye { to, from: number },
                    GOODBYE_TRIES,
                );
            }
            CmState::Left => {
                qp.into_iter().for_each(|qp| self.enter_error(qp));
                self.settle_id(number, CmState::Over);
                self.cm_send(here, there, CmMessage::GoodbyeToo { to });
                self.alarm(number, TIMEWAIT_NS, Alarm::TimewaitOver);
            }
            CmState::Leaving | CmState::Over => {}
            state => return Err(state),
        }
        Ok(())
    }

    /// The program dropped an identifier: whoever waits for it is told.
    pub(super) fn drop_id(&mut self, number: CmNumber) {
        let Some(state) = self.ids.get(&number).map(|entry| entry.state) else {
            return;
        };
        // Only what the state allows is called, so nothing is refused.
        let _allowed = match state {
            CmState::Asked => self.reject(number, &[]),
            CmState::Established | CmState::Accepted | CmState::Left => self.disconnect(number),
            _ => Ok(()),
        };
        if let Some(entry) = self.id(number)
            && entry.state == CmState::Leaving
        {
            // The goodbye goes on without it, until it is answered or given up.
            entry.channel = NOBODY;
            return;
        }
        let Some(gone) = self.ids.remove(&number) else {
            return;
        };
        if let Some(channel) = self.channels.get_mut(&gone.channel) {
            // Requests that nobody took go with their listener.
            let (mine, others): (VecDeque<_>, _) =
                channel.told.drain(..).partition(|told| match told {
                    Told::Event(key, _) | Told::Request(key, ..) => *key == gone.key,
                });
            channel.told = others;
            for told in mine {
                if let Told::Request(_, request, _) = told {
                    self.drop_id(request);
                }
            }
        }
    }

    pub(super) fn cm_alarm(&mut self, number: CmNumber, epoch: u64, alarm: Alarm) {
        let Some(entry) = self.id(number) else { return };
        if entry.epoch != epoch {
            return;
        }
        match alarm {
            Alarm::Resolved(Ok(())) => {
                entry.state = CmState::AddressResolved;
                self.tell(number, EventKind::AddressResolved);
            }
            Alarm::Resolved(Err(errno)) => {
                entry.state = CmState::Idle;
                self.tell(number, EventKind::AddressError(errno));
            }
            Alarm::RouteResolved(Ok(())) => {
                entry.state = CmState::RouteResolved;
                self.tell(number, EventKind::RouteResolved);
            }
            Alarm::RouteResolved(Err(errno)) => self.tell(number, EventKind::RouteError(errno)),
            Alarm::TimewaitOver if entry.channel == NOBODY => drop(self.ids.remove(&number)),
            Alarm::TimewaitOver => self.tell(number, EventKind::TimewaitExit),
            Alarm::Late => self.late(number),
        }
    }

    fn late(&mut self, number: CmNumber) {
        let Some(entry) = self.id(number) else { return };
        let (here, state) = (entry.node, entry.state);
        let again = entry.pending.clone().zip(entry.other);
        if entry.tries_left > 0
            && let Some((message, (there, _))) = again
        {
            entry.tries_left -= 1;
            self.cm_send(here, there, message);
            self.alarm(number, CM_TIMEOUT_NS, Alarm::Late);
            return;
        }
        let qp = entry.qp;
        self.settle_id(number, CmState::Over);
        if state == CmState::Leaving {
            self.tell(number, EventKind::Disconnected);
            self.alarm(number, TIMEWAIT_NS, Alarm::TimewaitOver);
        } else {
            if state == CmState::Accepted {
                qp.into_iter().for_each(|qp| self.enter_error(qp));
            }
            self.tell(number, EventKind::Unreachable(Errno::ETIMEDOUT));
        }
    }
}

/// Private data as its field carries it.
pub(super) fn padded(data: &[u8], bytes: usize) -> PrivateData {
    let mut field = [0; ACCEPT_DATA_BYTES_MAX];
    field[..data.len()].copy_from_slice(data);
    PrivateData::new(&field[..bytes])
}

impl Offer {
    pub(super) fn request(parameters: &crate::ConnectParameters<'_>) -> Self {
        Self::new(parameters, CONNECT_DATA_BYTES_MAX)
    }

    pub(super) fn reply(parameters: &crate::ConnectParameters<'_>) -> Self {
        Self::new(parameters, ACCEPT_DATA_BYTES_MAX)
    }

    fn new(parameters: &crate::ConnectParameters<'_>, field_bytes: usize) -> Self {
        Self {
            data: padded(parameters.private_data, field_bytes),
            responder_resources: parameters.responder_resources,
            initiator_depth: parameters.initiator_depth,
            retry_count: parameters.retry_count,
            rnr_retry_count: parameters.rnr_retry_count,
        }
    }
}
