//! The front desk: accepts connections, sees them through Connect, and keeps the controllers and their admin queues.

mod abort;
mod admin;
mod changes;
mod closing;
mod disks;
mod function;
mod life;
mod listening;
mod placing;
mod provenance;
mod report;
mod shutdown;
mod state;
mod visitor;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use namespace::Engine;
use nvme::Time;
use nvme::controller::{Admitted, ControllerId, QueuePlaces, Registry};
use nvme::queue::{QueueId, Slot};
use nvme_spec::Nsid;
use reactor::{Owner, OwnerId, Ring};
use telemetry::{Event as Noted, EventKind, HostName, ReactorTelemetry};

use crate::clock::Clock;
use crate::config::{FrontendError, Service};
use crate::event::{Gone, TargetEvent};
use crate::limits::{ADMIN_QUEUES_MAX, CONNECTIONS_MAX, FUNCTIONS_MAX, VISITORS_MAX};
use crate::link::{Bound, Farewell, Health, Parted};
use crate::message::{Adoption, ChangeId, Changed, Control, Message, QueueCounters};
use crate::meter::QueueNames;
use crate::table::{Key, Table};
use abort::Aborting;
use changes::Changes;
use disks::Disks;
use function::Deleting;
use life::Lives;
use listening::Listening;
use placing::Placing;
use shutdown::Flushing;
use state::States;
use visitor::{State, Visitor};

/// PORTID of the listener that a frontend brings.
const FIRST_PORT_ID: u16 = 1;

/// Whom a message is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    /// The one of this number.
    Reactor(usize),
    /// All reactors, this one included; for [`Message::Order`].
    All,
}

/// See the module.
pub(crate) struct Desk {
    ring: Ring,
    owner: Owner,
    listeners: Vec<Listening>,
    service: Arc<Service>,
    placing: Placing,
    clock: Clock,
    telemetry: Arc<ReactorTelemetry>,
    registry: Registry,
    /// Connections before Connect, and admin queues.
    visitors: Table<Visitor>,
    /// Those of them that have not become admin queues.
    passing: HashSet<Key>,
    owners: HashMap<OwnerId, Key>,
    admin_queues: HashMap<ControllerId, Key>,
    /// What I/O queues have done, and what of it their controllers know.
    counters: BTreeMap<(ControllerId, QueueId), (Arc<QueueCounters>, [u64; 6])>,
    /// What the hosts of controllers with I/O queues have changed.
    changed: HashMap<ControllerId, Arc<Changed>>,
    /// Admin Connects of hosts whose last controller still ends.
    waiting: Vec<(Key, Slot)>,
    /// PCIe functions whose last controller still ends.
    waiting_functions: Vec<Key>,
    /// I/O queues that their hosts delete.
    deleting: Vec<Deleting>,
    /// Flushes that a shutdown waits for, by controller.
    flushes: HashMap<ControllerId, Flushing>,
    /// Controllers whose shutdown is to begin.
    shutdowns: Vec<ControllerId>,
    /// How many have begun.
    shutdowns_begun: u32,
    /// Controllers that end, and what is to be told of them when they are gone.
    leaving: HashMap<ControllerId, TargetEvent>,
    /// Aborts whose outcome is not known yet.
    aborting: Aborting,
    /// Reservations and write protections that change.
    states: States,
    /// What subsystems count over their lives.
    lives: Lives,
    /// Wakes this desk; none before it runs.
    control: Option<Control>,
    /// What the subsystems have.
    disks: Disks,
    /// Changes of what is served that reactors are carrying out.
    changes: Changes,
    /// What the reactors are to be told.
    requests: Vec<(To, Message)>,
    /// What is left of connections that have ended here.
    ended: Vec<Box<dyn Farewell>>,
    touched: Vec<Key>,
    /// Admin queues whose doorbells are looked at rather than rung.
    polled: Vec<Key>,
}

impl Desk {
    pub(crate) fn new(
        ring: &Ring,
        listener: Option<Box<dyn Bound>>,
        service: &Arc<Service>,
        clock: Clock,
        telemetry: &Arc<ReactorTelemetry>,
    ) -> Result<Self, FrontendError> {
        let mut desk = Self {
            ring: ring.clone(),
            owner: ring.register()?,
            listeners: Vec::new(),
            service: service.clone(),
            placing: Placing::over(1),
            clock,
            telemetry: telemetry.clone(),
            registry: Registry::new(service.target.clone()),
            visitors: Table::new(VISITORS_MAX),
            passing: HashSet::new(),
            owners: HashMap::new(),
            admin_queues: HashMap::new(),
            counters: BTreeMap::new(),
            changed: HashMap::new(),
            waiting: Vec::new(),
            waiting_functions: Vec::new(),
            deleting: Vec::new(),
            flushes: HashMap::new(),
            shutdowns: Vec::new(),
            shutdowns_begun: 0,
            leaving: HashMap::new(),
            aborting: Aborting::default(),
            states: States::default(),
            lives: Lives::default(),
            control: None,
            disks: Disks::default(),
            changes: Changes::default(),
            requests: Vec::new(),
            ended: Vec::new(),
            touched: Vec::new(),
            polled: Vec::new(),
        };
        for (nqn, set) in &service.namespaces {
            desk.disks.begin(nqn, set);
            desk.publish(nqn)?;
        }
        if let Some(listener) = listener {
            desk.listen(FIRST_PORT_ID, listener)?;
        }
        Ok(desk)
    }

    /// How many reactors there are, and what wakes this one.
    pub(crate) fn meet(&mut self, reactors: usize, control: &Control) {
        self.placing = Placing::over(reactors);
        self.control = Some(control.clone());
        let io_queues = reactors.saturating_mul(self.service.io_queues_per_reactor);
        self.registry.set_queue_places(QueuePlaces {
            admin_queues: ADMIN_QUEUES_MAX,
            io_queues,
            // All there may be, unless reactors take fewer queues than they can.
            functions: FUNCTIONS_MAX.min(io_queues * FUNCTIONS_MAX / CONNECTIONS_MAX),
        });
    }

    /// When [`Desk::act`] is next worth calling without an event.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let deadlines = [
            self.registry.deadline(),
            self.abort_deadline(),
            self.states_deadline(),
            self.held_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Whether [`Desk::act`] has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.touched.is_empty()
            || !self.requests.is_empty()
            || !self.shutdowns.is_empty()
            || self.states.has_work()
    }

    /// Whether the ring's next turn may not wait: there is something to be looked at after it.
    pub(crate) fn is_polling(&self) -> bool {
        !self.polled.is_empty()
    }

    /// Looks at what nothing tells of, once a turn.
    pub(crate) fn serve_polled(&mut self) {
        let mut polled = std::mem::take(&mut self.polled);
        polled.retain(|&key| {
            let Some(visitor) = self.visitors.get(key).filter(|it| it.link.wants_turn()) else {
                return false;
            };
            if visitor.link.is_due() {
                self.serve(key);
            }
            true
        });
        self.polled = polled;
    }

    /// Messages for the reactors.
    pub(crate) fn take_requests(&mut self) -> Vec<(To, Message)> {
        std::mem::take(&mut self.requests)
    }

    /// What is left of connections that have ended here: their hosts are to be told.
    pub(crate) fn take_ended(&mut self) -> Vec<Box<dyn Farewell>> {
        std::mem::take(&mut self.ended)
    }

    /// Takes the events of one of the desk's owners.
    pub(crate) fn ready(&mut self, owner: OwnerId) {
        if owner == self.owner.id() {
            while let Some(event) = self.owner.next_event() {
                self.change_takes_long(ChangeId(event.tag));
            }
        } else if let Some(at) = self.listener_of(owner) {
            self.accepted(at);
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
            Message::Request(request) => self.request(*request),
            Message::Aborted(id, aborted) => self.aborted(id, aborted),
            Message::Reserve(reserve) => self.reserve(*reserve),
            Message::Fenced(id) => self.states.fenced(id),
            Message::Preempted(id) => self.preempted(id),
            Message::Settled(id) => self.settled(id),
            Message::Carried(change, reactor, result) => self.carried(change, reactor, result),
            _ => {}
        }
    }

    /// Sends, receives, closes, moves and expires what is due.
    pub(crate) fn act(&mut self, engine: &mut Engine) {
        self.flush_for_shutdowns(engine);
        self.states.lower_fences(engine);
        self.take_kept();
        self.begin_flushes_of_protected(engine);
        let now = self.clock.now();
        self.end_old_aborts(now);
        self.end_old_preempts(now);
        self.end_old_saves(now);
        self.end_old_flushes(now);
        self.send_held(now);
        while let Some(id) = self.registry.next_expired(now) {
            tracing::warn!(cntlid = id.0, "keep alive expired");
            self.note(EventKind::KeepAliveExpired, id);
            self.end_controller(id, Gone::KeepAliveExpired);
        }
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            self.settle(key);
        }
        // Settling may have touched others; they are settled in the same turn, by the caller asking `has_work`.
        touched.append(&mut self.touched);
        self.touched = touched;
    }

    /// Receives, sends, closes or moves one connection.
    fn settle(&mut self, key: Key) {
        self.show_registers(key);
        let Some(visitor) = self.visitors.get_mut(key) else {
            return;
        };
        let over = visitor.link.settle() == Health::Over;
        if visitor.link.wants_turn() && !self.polled.contains(&key) {
            self.polled.push(key);
        }
        match visitor.state {
            _ if over => self.leave(key),
            State::Admin(_) => self.begin_reads(key),
            State::Moving { admitted, connect } if visitor.link.is_idle() => {
                self.hand_over(key, admitted, connect)
            }
            _ => {}
        }
    }

    /// Gives an I/O queue to its reactor.
    fn hand_over(&mut self, key: Key, admitted: Admitted, connect: Slot) {
        let Some(visitor) = self.remove_visitor(key) else {
            return;
        };
        match visitor.link.part() {
            Some(parted) => self.adopt(parted, admitted, Some(connect), None),
            None => self.queue_closed(admitted.controller, admitted.queue),
        }
    }

    /// Finds an I/O queue its reactor, the one of another where it is to be beside that. `connect` is still to be answered.
    fn adopt(
        &mut self,
        parted: Box<dyn Parted>,
        admitted: Admitted,
        connect: Option<Slot>,
        beside: Option<QueueId>,
    ) {
        let (id, queue) = (admitted.controller, admitted.queue);
        let counters = Arc::new(QueueCounters {
            changed: self.changed.entry(id).or_default().clone(),
            ..QueueCounters::default()
        });
        self.counters
            .insert((id, queue), (counters.clone(), [0; 6]));
        let Some(controller) = self.registry.controller(id) else {
            return self.queue_closed(id, queue);
        };
        let acre = controller.host_honours_retry_delay();
        counters.honours_retry_delay.store(acre, Ordering::Relaxed);
        let names = QueueNames::of(Some(controller), &admitted);
        let adoption = Adoption::new(parted, admitted, connect, counters, names, controller);
        self.service.events.send(TargetEvent::QueueConnected {
            controller: id,
            queue,
        });
        let reactor = self.placing.place(id, queue, beside);
        let message = Message::Adopt(Box::new(adoption));
        self.requests.push((To::Reactor(reactor), message));
    }

    fn remove_visitor(&mut self, key: Key) -> Option<Visitor> {
        let visitor = self.visitors.remove(key)?;
        self.passing.remove(&key);
        self.owners.remove(&visitor.link.owner_id());
        Some(visitor)
    }

    /// Keeps an event of a controller in the flight recorder.
    fn note(&self, kind: EventKind, id: ControllerId) {
        let host = self.host_of(id);
        self.telemetry
            .record_now(&Noted::of_queue(kind, id.0, 0, host));
    }

    /// The host of a controller that is there.
    fn host_of(&self, id: ControllerId) -> HostName {
        let controller = self.registry.controller(id);
        controller.map_or(HostName::NONE, |it| HostName::new(it.host().as_str()))
    }

    fn note_namespace(&self, kind: EventKind, nsid: Nsid) {
        self.telemetry.record_now(&Noted {
            nsid: nsid.0,
            ..Noted::new(kind)
        });
    }

    /// A connection of the desk's has ended.
    fn leave(&mut self, key: Key) {
        let Some(mut visitor) = self.remove_visitor(key) else {
            return;
        };
        self.ended.extend(visitor.link.let_go());
        let of_function = visitor.link.function().is_some().then_some(visitor.port_id);
        match visitor.state {
            State::Handshake => {
                self.waiting.retain(|(waiting, _)| *waiting != key);
                self.waiting_functions.retain(|waiting| *waiting != key);
            }
            State::Moving { admitted, .. } => {
                self.queue_closed(admitted.controller, admitted.queue)
            }
            State::Admin(id) => {
                tracing::info!(cntlid = id.0, "admin queue closed");
                self.admin_queues.remove(&id);
                let controller = self.registry.controller(id);
                let why = match controller.is_some_and(|it| it.is_shut_down()) {
                    true => Gone::HostLeft,
                    false if visitor.broke_protocol => Gone::ProtocolError,
                    false => Gone::Disconnected,
                };
                self.end_controller(id, why);
            }
        }
        drop(visitor);
        if let Some(port_id) = of_function {
            self.let_next_in(port_id);
        }
    }

    /// Data of answers that hosts have not taken.
    #[cfg(feature = "inspection")]
    pub(crate) fn owed_by_admin_queues(&mut self) -> u64 {
        let all = self.visitors.iter_mut();
        all.map(|(_, visitor)| visitor.link.owed_bytes()).sum()
    }
}
