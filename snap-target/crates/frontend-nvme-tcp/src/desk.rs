//! The front desk: accepts connections, sees them through Connect, and keeps the controllers and their admin queues.

mod admin;
mod closing;
mod shutdown;
mod visitor;

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use namespace::Engine;
use nvme::Time;
use nvme::controller::{Admitted, ControllerId, Registry};
use nvme::queue::{QueueId, Slot};
use reactor::{Event, Fd, Owner, OwnerId, Payload, Ring};

use crate::clock::Clock;
use crate::config::{FrontendError, Service};
use crate::limits::HANDSHAKES_MAX;
use crate::link::Health;
use crate::message::{Message, QueueCounters};
use crate::table::{Key, Table};
use shutdown::Flushing;
use visitor::{State, Visitor};

/// How long accepting rests after the kernel refused (no descriptors, no memory).
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Desk {
    ring: Ring,
    owner: Owner,
    listener: Fd,
    service: Arc<Service>,
    clock: Clock,
    registry: Registry,
    /// Connections before Connect, and admin queues.
    visitors: Table<Visitor>,
    owners: HashMap<OwnerId, Key>,
    admin_queues: HashMap<ControllerId, Key>,
    counters: HashMap<(ControllerId, QueueId), (Arc<QueueCounters>, [u64; 5])>,
    /// Admin Connects of hosts whose last controller still ends.
    waiting: Vec<(Key, Slot)>,
    /// Flushes that a shutdown waits for, by controller.
    flushes: HashMap<ControllerId, Flushing>,
    /// Controllers whose shutdown is to begin.
    shutdowns: Vec<ControllerId>,
    /// How many have begun.
    shutdowns_begun: u32,
    /// Messages for the reactors; to the queue's own, or to all.
    requests: Vec<(Option<QueueId>, Message)>,
    touched: Vec<Key>,
}

impl Desk {
    pub(crate) fn new(
        ring: &Ring,
        listener: TcpListener,
        service: &Arc<Service>,
        clock: Clock,
    ) -> Result<Self, FrontendError> {
        let mut registry = Registry::new(service.target.clone());
        registry.set_namespaces(&service.subsystem, &service.namespaces);
        let desk = Self {
            ring: ring.clone(),
            owner: ring.register()?,
            listener: Fd::from(listener),
            service: service.clone(),
            clock,
            registry,
            visitors: Table::new(HANDSHAKES_MAX + usize::from(u8::MAX)),
            owners: HashMap::new(),
            admin_queues: HashMap::new(),
            counters: HashMap::new(),
            waiting: Vec::new(),
            flushes: HashMap::new(),
            shutdowns: Vec::new(),
            shutdowns_begun: 0,
            requests: Vec::new(),
            touched: Vec::new(),
        };
        desk.accept();
        Ok(desk)
    }

    /// When [`Desk::act`] is next worth calling without an event.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.registry.deadline()
    }

    /// Whether [`Desk::act`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.touched.is_empty() || !self.requests.is_empty() || !self.shutdowns.is_empty()
    }

    /// Messages for the reactors: to a queue's own, or to all.
    pub(crate) fn take_requests(&mut self) -> Vec<(Option<QueueId>, Message)> {
        std::mem::take(&mut self.requests)
    }

    /// Takes the events of one of the desk's owners.
    pub(crate) fn ready(&mut self, owner: OwnerId) {
        if owner == self.owner.id() {
            while let Some(event) = self.owner.next_event() {
                self.accepted(event);
            }
        } else if let Some(&key) = self.owners.get(&owner) {
            self.serve(key);
        }
    }

    /// What an I/O reactor reports.
    pub(crate) fn message(&mut self, message: Message) {
        match message {
            Message::QueueClosed(controller, queue) => self.queue_closed(controller, queue),
            Message::Failed(controller, error) => {
                if let Some(controller) = self.registry.controller_mut(controller) {
                    controller.record_error(&error);
                }
            }
            _ => {}
        }
    }

    /// Sends, receives, closes, moves and expires what is due.
    pub(crate) fn act(&mut self, engine: &mut Engine) {
        self.flush_for_shutdowns(engine);
        let now = self.clock.now();
        while let Some(id) = self.registry.next_expired(now) {
            tracing::warn!(cntlid = id.0, "keep alive expired");
            self.end_controller(id);
        }
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            self.settle(key);
        }
        // Settling may have touched others; they are settled in the same turn, by the caller asking `has_work`.
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    fn accept(&self) {
        if self.owner.accept(&self.listener, 0).is_err() {
            self.rest();
        }
    }

    fn rest(&self) {
        if self.owner.timer(Instant::now() + ACCEPT_REST, 0).is_err() {
            tracing::error!("no timer left: the listener stops accepting");
        }
    }

    fn accepted(&mut self, event: Event) {
        match (event.result, event.payload) {
            (_, Payload::Timer) => return self.accept(),
            (Ok(_), Payload::Socket(socket)) => self.welcome(socket.into()),
            (Err(error), _) => {
                tracing::warn!(%error, "cannot accept a connection; trying again in {ACCEPT_REST:?}");
                if !event.more {
                    self.rest();
                }
                return;
            }
            _ => {}
        }
        if !event.more {
            self.accept();
        }
    }

    fn welcome(&mut self, socket: std::net::TcpStream) {
        let handshakes = self
            .visitors
            .iter_mut()
            .filter(|(_, visitor)| visitor.is_handshake())
            .count();
        if handshakes >= HANDSHAKES_MAX {
            tracing::warn!(
                limit = HANDSHAKES_MAX,
                "too many connections that have not finished Connect: one more is closed"
            );
            return;
        }
        match Visitor::new(&self.ring, socket, &self.service.limits, self.clock) {
            Ok(visitor) => {
                let owner = visitor.link.owner_id();
                if let Ok(key) = self.visitors.insert(visitor) {
                    self.owners.insert(owner, key);
                    self.touched.push(key);
                }
            }
            Err(error) => tracing::warn!(%error, "a connection is closed at once"),
        }
    }

    /// Receives, sends, closes or moves one connection.
    fn settle(&mut self, key: Key) {
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        let over = visitor.link.settle() == Health::Over;
        match visitor.state {
            _ if over => self.leave(key),
            State::Moving { admitted, connect } if visitor.link.is_idle() => {
                self.hand_over(key, admitted, connect)
            }
            _ => {}
        }
    }

    /// Gives an I/O queue to its reactor.
    fn hand_over(&mut self, key: Key, admitted: Admitted, connect: Slot) {
        let Some(visitor) = self.visitors.remove(key) else {
            return;
        };
        self.owners.remove(&visitor.link.owner_id());
        let counters = Arc::new(QueueCounters::default());
        self.counters.insert(
            (admitted.controller, admitted.queue),
            (counters.clone(), [0; 5]),
        );
        match visitor.into_adoption(admitted, connect, counters) {
            Some(adoption) => self
                .requests
                .push((Some(admitted.queue), Message::Adopt(Box::new(adoption)))),
            None => self.queue_closed(admitted.controller, admitted.queue),
        }
    }

    /// A connection of the desk's has ended.
    fn leave(&mut self, key: Key) {
        let Some(visitor) = self.visitors.remove(key) else {
            return;
        };
        self.owners.remove(&visitor.link.owner_id());
        match visitor.state {
            State::Handshake => self.waiting.retain(|(waiting, _)| *waiting != key),
            State::Moving { admitted, .. } => {
                self.queue_closed(admitted.controller, admitted.queue)
            }
            State::Admin(id) => {
                tracing::info!(cntlid = id.0, "admin queue closed");
                self.admin_queues.remove(&id);
                self.end_controller(id);
            }
        }
    }
}
