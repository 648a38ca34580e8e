//! The state of a fabric: what there is, and what is to happen when.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::cm::{self, Channel, CmEntry, CmMessage, CmNumber};
use super::keys::Keys;
use super::qp::{Cq, CqNumber, Qp};
use super::{Counts, ns};
use crate::device::AsyncEvent;
use crate::error::{Result, VerbsError};
use crate::key::QpNumber;
use crate::memory::requester::{Answer, Demand};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeId(pub(super) usize);

/// How messages go from one node to another. Chances are per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// How long each takes.
    pub delay: Duration,
    /// How much longer some take, by chance: later ones may overtake them.
    pub jitter: Duration,
    /// How many are lost.
    pub lost_ppm: u32,
    /// How many come twice.
    pub duplicated_ppm: u32,
    /// Nothing goes through.
    pub cut: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: Duration::from_micros(5),
            jitter: Duration::ZERO,
            lost_ppm: 0,
            duplicated_ppm: 0,
            cut: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) addresses: Vec<IpAddr>,
    pub(super) dead: bool,
    pub(super) removed: bool,
    /// Bytes that are registered, and how many may be.
    pub(super) locked: u64,
    pub(super) locked_max: u64,
    /// Memory windows that are there, and how many may be.
    pub(super) windows: u64,
    pub(super) windows_max: u64,
    /// Queue pairs are not destroyed when that is asked for.
    pub(super) keeps_queue_pairs: bool,
    /// No descriptor is left for another channel.
    pub(super) is_out_of_descriptors: bool,
    /// Calls of the control path, and who made them.
    pub(super) control_calls: Vec<(&'static str, ThreadId)>,
    pub(super) async_events: VecDeque<AsyncEvent>,
    pub(super) async_fd: Arc<EventFd>,
    /// Tells devices apart, over all fabrics of a process; never even, as an address is.
    pub(super) identity: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Cm(Box<CmMessage>),
    /// A request of a connection, to a queue pair from another.
    Demand(QpNumber, QpNumber, Demand),
    /// What a responder says to it.
    Answer(QpNumber, QpNumber, Answer),
}

#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Happening {
    Arrives(Box<Packet>),
    /// A queue pair's acknowledgement is late, if its timer still has this epoch.
    AckTimeout(QpNumber, u64),
    /// A queue pair tries again after "receiver not ready".
    RnrOver(QpNumber, u64),
    /// An identifier's wait is over.
    Cm(CmNumber, u64, cm::Alarm),
}

#[derive(Debug)]
struct Scheduled {
    at_ns: u64,
    order: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.order).cmp(&(other.at_ns, other.order))
    }
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) now_ns: u64,
    scheduled: BinaryHeap<Reverse<Scheduled>>,
    next_number: u64,
    random: u64,
    pub(super) nodes: Vec<Node>,
    links: BTreeMap<(NodeId, NodeId), Link>,
    every_link: Link,
    pub(super) counts: Counts,
    pub(super) keys: Keys,
    pub(super) channels: BTreeMap<u64, Channel>,
    pub(super) ids: BTreeMap<CmNumber, CmEntry>,
    /// What became of connect requests, so that one that comes again has the same answer.
    pub(super) answered: BTreeMap<(NodeId, CmNumber), cm::Answered>,
    pub(super) qps: BTreeMap<QpNumber, Qp>,
    pub(super) cqs: BTreeMap<CqNumber, Cq>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now_ns: 0,
            scheduled: BinaryHeap::new(),
            next_number: 16,
            random: seed,
            nodes: Vec::new(),
            links: BTreeMap::new(),
            every_link: Link::default(),
            counts: Counts::default(),
            keys: Keys::default(),
            channels: BTreeMap::new(),
            ids: BTreeMap::new(),
            answered: BTreeMap::new(),
            qps: BTreeMap::new(),
            cqs: BTreeMap::new(),
        }
    }

    pub(super) fn add_node(&mut self, addresses: &[IpAddr]) -> Result<NodeId> {
        self.nodes.push(Node {
            addresses: addresses.to_vec(),
            dead: false,
            removed: false,
            locked: 0,
            locked_max: u64::MAX,
            windows: 0,
            windows_max: 1 << 20,
            keeps_queue_pairs: false,
            is_out_of_descriptors: false,
            control_calls: Vec::new(),
            async_events: VecDeque::new(),
            async_fd: descriptor()?,
            identity: next_identity(),
        });
        Ok(NodeId(self.nodes.len() - 1))
    }

    pub(super) fn node(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[node.0]
    }

    /// This thread calls the device for something that takes its time.
    pub(super) fn control_call(&mut self, node: NodeId, call: &'static str) {
        let by = std::thread::current().id();
        self.node(node).control_calls.push((call, by));
    }

    pub(super) fn set_link(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.links.insert((from, to), link);
    }

    pub(super) fn set_links(&mut self, link: Link) {
        self.links.clear();
        self.every_link = link;
    }

    pub(super) fn link(&self, from: NodeId, to: NodeId) -> Link {
        *self.links.get(&(from, to)).unwrap_or(&self.every_link)
    }

    /// A number that nothing else of this fabric has: queue pairs, completion queues and identifiers.
    pub(super) fn fresh(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// splitmix64.
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.random() % 1_000_000 < u64::from(ppm)
    }

    pub(super) fn after(&mut self, delay_ns: u64, what: Happening) {
        let order = self.fresh();
        let at_ns = self.now_ns.saturating_add(delay_ns);
        self.scheduled
            .push(Reverse(Scheduled { at_ns, order, what }));
    }

    /// Hands a message to the link.
    pub(super) fn send(&mut self, packet: Packet) {
        self.counts.sent += 1;
        let link = self.link(packet.from, packet.to);
        if link.cut || self.chance(link.lost_ppm) {
            self.counts.lost += 1;
            return;
        }
        if self.chance(link.duplicated_ppm) {
            self.counts.duplicated += 1;
            let delay_ns = self.delay_ns(link);
            self.after(delay_ns, Happening::Arrives(Box::new(packet.clone())));
        }
        let delay_ns = self.delay_ns(link);
        self.after(delay_ns, Happening::Arrives(Box::new(packet)));
    }

    fn delay_ns(&mut self, link: Link) -> u64 {
        let jitter = match ns(link.jitter) {
            0 => 0,
            jitter => self.random() % jitter,
        };
        ns(link.delay) + jitter
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.scheduled.peek().map(|Reverse(next)| next.at_ns)
    }

    /// Lets the next thing happen, if it is due by `until_ns`.
    pub(super) fn step(&mut self, until_ns: Option<u64>) -> bool {
        match self.next_ns() {
            Some(at_ns) if until_ns.is_none_or(|until_ns| at_ns <= until_ns) => {}
            _ => return false,
        }
        let Some(Reverse(next)) = self.scheduled.pop() else {
            return false;
        };
        self.now_ns = self.now_ns.max(next.at_ns);
        match next.what {
            Happening::Arrives(packet) => self.arrives(*packet),
            Happening::AckTimeout(qp, epoch) => self.ack_timeout(qp, epoch),
            Happening::RnrOver(qp, epoch) => self.rnr_over(qp, epoch),
            Happening::Cm(id, epoch, alarm) => self.cm_alarm(id, epoch, alarm),
        }
        true
    }

    fn arrives(&mut self, packet: Packet) {
        let gone = |node: &Node| node.dead || node.removed;
        if gone(&self.nodes[packet.from.0]) || gone(&self.nodes[packet.to.0]) {
            self.counts.lost += 1;
            return;
        }
        match packet.body {
            Body::Cm(message) => self.cm_arrives(packet.from, packet.to, *message),
            Body::Demand(to, from, demand) => self.demand_arrives(packet.from, to, from, demand),
            Body::Answer(to, from, answer) => self.answer_arrives(to, from, answer),
        }
    }

    pub(super) fn kill(&mut self, node: NodeId) {
        self.node(node).dead = true;
    }

    pub(super) fn remove_device(&mut self, node: NodeId) {
        self.raise_async(node, AsyncEvent::DeviceFatal);
        let qps: Vec<QpNumber> = self.qps_of(node);
        for qp in qps {
            self.enter_error(qp);
        }
        self.node(node).removed = true;
        self.tell_all(node, || crate::EventKind::DeviceRemoval);
    }

    /// The same addresses, on a device that nobody knows.
    pub(super) fn bring_device(&mut self, node: NodeId) {
        let node = self.node(node);
        node.removed = false;
        node.identity = next_identity();
    }

    pub(super) fn move_addresses(&mut self, node: NodeId) {
        self.tell_all(node, || crate::EventKind::AddressChange);
    }

    fn qps_of(&self, node: NodeId) -> Vec<QpNumber> {
        let of_node = self.qps.iter().filter(|(_, qp)| qp.node == node);
        of_node.map(|(&number, _)| number).collect()
    }

    pub(super) fn raise_async(&mut self, node: NodeId, event: AsyncEvent) {
        let node = self.node(node);
        node.async_events.push_back(event);
        signal(&node.async_fd);
    }
}

fn next_identity() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(2, Ordering::Relaxed)
}

/// A descriptor that is readable once it is signalled.
pub(super) fn descriptor() -> Result<Arc<EventFd>> {
    let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
    EventFd::from_value_and_flags(0, flags)
        .map(Arc::new)
        .map_err(|errno| VerbsError::call("eventfd", "the fabric in memory", errno))
}

pub(super) fn signal(descriptor: &EventFd) {
    // Fails only where the counter is at its end: then it is readable already.
    let _readable = descriptor.write(1);
}

/// Empties it, and says how often it was signalled.
pub(super) fn quiet(descriptor: &EventFd) -> u64 {
    // Fails only where it was not signalled.
    descriptor.read().unwrap_or(0)
}
