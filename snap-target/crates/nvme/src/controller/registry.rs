//! All controllers of a target: who may connect, which identifiers are in use, who has gone silent.

mod changes;
mod places;
mod roll;

use super::association::{Association, Role};
use super::connect::{Invalid, invalid, invalid_host};
use super::counters::Health;
use super::subsystem::Target;
use super::{
    AdminCommand, Admitted, ConnectContext, ConnectRequest, Controller, ControllerId, Effect,
    Lifetime, NamespaceSet, Outcome, Subsystem, Transport,
};
use crate::Time;
use crate::nqn::Nqn;
use crate::queue::{Completion, QueueId};
use nvme_spec::fabrics::{CNTLID_DYNAMIC, CNTLID_MAX, connect_offset};
use nvme_spec::register::Cc;
use nvme_spec::{Sqe, Status};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

pub use places::QueuePlaces;
use roll::{Counted, Roll};

/// Discovery controllers at the same time, all hosts together, and of one host: a path each, with some that come and go.
const DISCOVERY_CONTROLLERS_MAX: usize = 256;
const DISCOVERY_CONTROLLERS_PER_HOST_MAX: usize = 16;

/// IOSQES and IOCQES that a host must have set before it connects I/O queues: 64 and 16 bytes.
const IOSQES: u8 = 6;
const IOCQES: u8 = 4;

/// The controllers of a target. Plain data: on one thread, that of the admin queues.
#[derive(Debug)]
pub struct Registry {
    target: Arc<Target>,
    /// Of each subsystem, in the target's order.
    namespaces: Vec<Arc<NamespaceSet>>,
    associations: BTreeMap<ControllerId, Connected>,
    roll: Roll,
    /// What the controllers of each subsystem count together, from its first controller on.
    health: BTreeMap<Nqn, Arc<Health>>,
    next_id: u16,
    places: Option<QueuePlaces>,
    /// GENCTR of the discovery log.
    generation: u64,
}

#[derive(Debug)]
struct Connected {
    controller: Controller,
    /// I/O queues by identifier - 1.
    io_queues: Vec<bool>,
    /// The association is over; the controller stays until its last I/O queue has closed.
    ending: bool,
    counted: Counted,
}

/// Why a Connect was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// Answer it with this.
    Refused(Completion),
    /// A controller of the same host still ends, and a write of its queues could be applied behind one of the new association's. Keep
    /// the command and its data, and ask again once [`Registry::closed`] has said [`Closed::Controller`].
    Later,
}

impl From<Completion> for NotAdmitted {
    fn from(completion: Completion) -> NotAdmitted {
        NotAdmitted::Refused(completion)
    }
}

/// What the end of a queue's connection means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// One I/O queue less.
    Queue,
    /// The controller ends: close the connections of these I/O queues, and report each once its last command has ended.
    Ending(Vec<QueueId>),
    /// The controller is gone, its last queue with it: its host may connect again.
    Controller,
    /// The registry did not know it.
    Unknown,
}

impl Registry {
    /// Without controllers. Each subsystem starts without namespaces: [`Registry::set_namespaces`].
    pub fn new(target: Target) -> Registry {
        let namespaces = target
            .subsystems()
            .iter()
            .map(|_| Arc::new(NamespaceSet::default()))
            .collect();
        Registry {
            target: Arc::new(target),
            namespaces,
            associations: BTreeMap::new(),
            roll: Roll::default(),
            health: BTreeMap::new(),
            next_id: 1,
            places: None,
            generation: 1,
        }
    }

    /// Connect of any queue: its entry, its 1024 bytes of data, and the way that it came in.
    pub fn connect(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        context: &ConnectContext,
        now: Time,
    ) -> Result<Admitted, NotAdmitted> {
        let request = ConnectRequest::parse(sqe, data)?;
        if !request.queue.is_admin() {
            return Ok(self.connect_io(&request, context.transport, now)?);
        }
        if request.host.is_function_host() {
            return Err(invalid_host().into());
        }
        if self.is_ending_for(&request) {
            return Err(NotAdmitted::Later);
        }
        Ok(self.connect_admin(request, context, now)?)
    }

    /// True while a controller of this host at this subsystem ends: a write of its queues could be applied behind one of the next. Of controllers of others
    /// no order is promised.
    fn is_ending_for(&self, request: &ConnectRequest) -> bool {
        let subsystem = Some(request.subsystem.clone());
        let mut of_host = self.roll.of_host(subsystem, &request.host);
        of_host.any(|id| self.associations.get(&id).is_some_and(|it| it.ending))
    }

    /// The same of functions, whichever: one machine may have several of a subsystem, or come back by another.
    pub fn is_local_ending(&self, subsystem: &Nqn) -> bool {
        self.associations.values().any(|it| {
            let controller = &it.controller;
            it.ending
                && !controller.transport().is_fabric()
                && controller
                    .subsystem()
                    .is_some_and(|it| it.nqn == *subsystem)
        })
    }

    fn connect_admin(
        &mut self,
        request: ConnectRequest,
        context: &ConnectContext,
        now: Time,
    ) -> Result<Admitted, Completion> {
        let (role, namespaces) = self.role(&request, context.local)?;
        let queue_entries_max = match &role {
            Role::Io { subsystem } => subsystem.limits.admin_queue_entries_max(),
            Role::Discovery { target, .. } => target.discovery_limits().queue_entries_max,
        };
        let entries = entries(&request, queue_entries_max)?;
        if request.cntlid != CNTLID_DYNAMIC {
            return Err(invalid(Invalid::Data(connect_offset::data::CNTLID)));
        }
        self.check_limits(&role, &request.host, context.transport)?;
        let busy = Completion::of(Status::CONNECT_CONTROLLER_BUSY);
        let association = Association {
            id: self.allocate_id().ok_or(busy)?,
            transport: context.transport,
            host: request.host,
            host_id: request.host_id,
            kato_ms: request.kato_ms,
            health: self.health_of(&role),
        };
        let id = self.add(association, role, namespaces, now);
        Ok(Admitted {
            controller: id,
            queue: QueueId::ADMIN,
            entries,
            flow_control: request.flow_control,
            completion: Completion::result(u32::from(id.0)),
        })
    }

    /// A controller of a subsystem without a Connect: a PCIe function. It has no keep alive; CC is written to it
    /// ([`Registry::write_cc`]), and [`Registry::end`] is its end. Which hosts may connect is not asked of it.
    ///
    /// # Errors
    /// [`Status::CONNECT_INVALID_PARAMETERS`]: no subsystem has that name. [`Status::CONNECT_CONTROLLER_BUSY`]: it has as many controllers as
    /// it may, or there is no room for its queues.
    pub fn attach_local(
        &mut self,
        subsystem: &Nqn,
        host: &Nqn,
        transport: Transport,
        now: Time,
    ) -> Result<ControllerId, Status> {
        let (subsystem, namespaces) = self
            .subsystem(subsystem)
            .map(|(subsystem, namespaces)| (Arc::clone(subsystem), namespaces.seen_by(host)))
            .ok_or(Status::CONNECT_INVALID_PARAMETERS)?;
        if self.roll.count(&Some(subsystem.nqn.clone()))
            >= usize::from(subsystem.limits.controllers_max)
            || self.io_queues_left(None, &subsystem, host, transport) == 0
        {
            return Err(Status::CONNECT_CONTROLLER_BUSY);
        }
        let role = Role::Io { subsystem };
        let association = Association {
            id: self.allocate_id().ok_or(Status::CONNECT_CONTROLLER_BUSY)?,
            transport,
            host: host.clone(),
            host_id: [0; 16],
            kato_ms: 0,
            health: self.health_of(&role),
        };
        Ok(self.add(association, role, namespaces, now))
    }

    /// The host of such a controller writes CC; none where there is no such controller.
    pub fn write_cc(&mut self, id: ControllerId, cc: Cc, now: Time) -> Option<Effect> {
        let connected = self.associations.get_mut(&id)?;
        let effect = connected.controller.write_cc(cc, now);
        // A reset gives back what was granted.
        self.roll.update(connected);
        Some(effect)
    }

    /// An I/O queue of such a controller, whose host has created it.
    ///
    /// # Errors
    /// [`Status::INVALID_QUEUE_ID`]: Number of Queues has not granted it, or it is there.
    pub fn open_local(
        &mut self,
        id: ControllerId,
        queue: QueueId,
        entries: u16,
    ) -> Result<Admitted, Status> {
        let refused = Status::INVALID_QUEUE_ID.dnr();
        let has_place = self.has_io_place(id, queue);
        let is_local = |connected: &&mut Connected| {
            !connected.ending && !connected.controller.transport().is_fabric()
        };
        let connected = self.associations.get_mut(&id).filter(is_local);
        let connected = connected.ok_or(refused)?;
        let controller = &mut connected.controller;
        if controller.cc().iosqes() != IOSQES || controller.cc().iocqes() != IOCQES {
            return Err(Status::INVALID_QUEUE_SIZE.dnr());
        }
        if !controller.ready() || queue.is_admin() || queue.0 > controller.io_queues() || !has_place
        {
            return Err(refused);
        }
        let place = connected.io_queues.get_mut(usize::from(queue.0) - 1);
        let free = place.filter(|open| !**open).ok_or(refused)?;
        *free = true;
        controller.set_io_queues_connected(true);
        self.roll.update(connected);
        Ok(Admitted {
            controller: id,
            queue,
            entries,
            flow_control: true,
            completion: Completion::SUCCESS,
        })
    }

    fn health_of(&mut self, role: &Role) -> Arc<Health> {
        match role {
            Role::Io { subsystem } => self.health_of_subsystem(&subsystem.nqn),
            Role::Discovery { .. } => Arc::default(),
        }
    }

    fn health_of_subsystem(&mut self, nqn: &Nqn) -> Arc<Health> {
        Arc::clone(self.health.entry(nqn.clone()).or_default())
    }

    /// What a subsystem's SMART log says of its life before `now`; it goes on from there. To be called before its hosts come.
    pub fn set_lifetime(&mut self, nqn: &Nqn, lifetime: Lifetime, now: Time) {
        self.health_of_subsystem(nqn).set_lifetime(lifetime, now);
    }

    /// The life of a subsystem until now, with what controllers have counted that are gone; none of one that had neither a controller nor
    /// [`Registry::set_lifetime`].
    pub fn lifetime(&self, nqn: &Nqn, now: Time) -> Option<Lifetime> {
        self.health.get(nqn).map(|health| health.lifetime(now))
    }

    fn add(
        &mut self,
        association: Association,
        role: Role,
        namespaces: Arc<NamespaceSet>,
        now: Time,
    ) -> ControllerId {
        let id = association.id;
        let controller = Controller::new(association, role, namespaces, now);
        let io_queues = vec![false; usize::from(controller.limits().io_queues_max)];
        let mut connected = Connected {
            controller,
            io_queues,
            ending: false,
            counted: Counted::default(),
        };
        self.roll.enter(&mut connected);
        self.associations.insert(id, connected);
        id
    }

    /// What the names in a Connect lead to.
    fn role(
        &self,
        request: &ConnectRequest,
        local: SocketAddr,
    ) -> Result<(Role, Arc<NamespaceSet>), Completion> {
        if request.subsystem.is_discovery() {
            let role = Role::Discovery {
                target: Arc::clone(&self.target),
                local,
                generation: self.generation,
            };
            return Ok((role, Arc::default()));
        }
        let (subsystem, namespaces) = self
            .subsystem(&request.subsystem)
            .ok_or_else(|| invalid(Invalid::Data(connect_offset::data::SUBNQN)))?;
        if !subsystem.hosts.allows(&request.host) {
            return Err(invalid_host());
        }
        Ok((
            Role::Io {
                subsystem: Arc::clone(subsystem),
            },
            namespaces.seen_by(&request.host),
        ))
    }

    /// Limits on controllers. Busy without DNR: another may have gone when the host tries again.
    fn check_limits(
        &self,
        role: &Role,
        host: &Nqn,
        transport: Transport,
    ) -> Result<(), Completion> {
        let busy = Err(Completion::of(Status::CONNECT_CONTROLLER_BUSY));
        if !self.has_admin_place() {
            return busy;
        }
        let Role::Io { subsystem } = role else {
            let of_host = self.roll.of_host(None, host).count();
            return if self.roll.count(&None) >= DISCOVERY_CONTROLLERS_MAX
                || of_host >= DISCOVERY_CONTROLLERS_PER_HOST_MAX
            {
                busy
            } else {
                Ok(())
            };
        };
        let limits = &subsystem.limits;
        let nqn = Some(subsystem.nqn.clone());
        if self.roll.count(&nqn) >= usize::from(limits.controllers_max)
            || self.roll.of_host(nqn, host).count() >= usize::from(limits.controllers_per_host_max)
            || self.io_queues_left(None, subsystem, host, transport) == 0
        {
            return busy;
        }
        Ok(())
    }

    fn connect_io(
        &mut self,
        request: &ConnectRequest,
        transport: Transport,
        now: Time,
    ) -> Result<Admitted, Completion> {
        let wrong_controller = || invalid(Invalid::Data(connect_offset::data::CNTLID));
        let wrong_queue = || invalid(Invalid::Sqe(connect_offset::sqe::QID));
        let id = ControllerId(request.cntlid);
        let has_place = self.has_io_place(id, request.queue);
        let connected = self
            .associations
            .get_mut(&id)
            .filter(|connected| !connected.ending && connected.controller.transport() == transport)
            .ok_or_else(wrong_controller)?;
        let controller = &mut connected.controller;
        let Some(subsystem) = controller.subsystem().cloned() else {
            return Err(wrong_queue());
        };
        if subsystem.nqn != request.subsystem {
            return Err(invalid(Invalid::Data(connect_offset::data::SUBNQN)));
        }
        if *controller.host() != request.host {
            return Err(invalid(Invalid::Data(connect_offset::data::HOSTNQN)));
        }
        if *controller.host_id() != request.host_id {
            return Err(invalid(Invalid::Data(connect_offset::data::HOSTID)));
        }
        let entries = entries(request, controller.limits().queue_entries_max)?;
        if !controller.ready()
            || controller.cc().iosqes() != IOSQES
            || controller.cc().iocqes() != IOCQES
        {
            return Err(wrong_queue());
        }
        let index = usize::from(request.queue.0) - 1;
        let place = connected
            .io_queues
            .get_mut(index)
            .filter(|_| request.queue.0 <= controller.io_queues());
        match place {
            None => Err(wrong_queue()),
            // Base, "Connect command": the queue exists already.
            Some(true) => Err(Completion::of(Status::COMMAND_SEQUENCE_ERROR.dnr())),
            Some(_) if !has_place => Err(Completion::of(Status::CONNECT_CONTROLLER_BUSY)),
            Some(free) => {
                *free = true;
                controller.set_io_queues_connected(true);
                controller.traffic(now);
                self.roll.update(connected);
                Ok(Admitted {
                    controller: id,
                    queue: request.queue,
                    entries,
                    flow_control: request.flow_control,
                    completion: Completion::result(u32::from(id.0)),
                })
            }
        }
    }

    /// Carries out an admin command ([`Controller::execute`]); none where there is no such controller.
    pub fn execute(
        &mut self,
        id: ControllerId,
        command: &AdminCommand<'_>,
        out: &mut [u8],
        now: Time,
    ) -> Option<Outcome> {
        let controller = self.controller(id)?;
        if let Some(subsystem) = controller.subsystem()
            && Controller::asks_for_queues(command.sqe)
        {
            let transport = controller.transport();
            let left = self.io_queues_left(Some(id), subsystem, controller.host(), transport);
            self.controller_mut(id)?.set_io_queues_left(left);
        }
        let connected = self.associations.get_mut(&id)?;
        let outcome = connected.controller.execute(command, out, now);
        self.roll.update(connected);
        Some(outcome)
    }

    /// A queue's connection has ended, and with it the last command that it had with a store. The admin queue's takes the association with
    /// it, as [`Registry::end`] does.
    pub fn closed(&mut self, id: ControllerId, queue: QueueId) -> Closed {
        if queue.is_admin() {
            return self.end(id);
        }
        let Some(connected) = self.associations.get_mut(&id) else {
            return Closed::Unknown;
        };
        let Some(open @ true) = connected.io_queues.get_mut(usize::from(queue.0) - 1) else {
            return Closed::Unknown;
        };
        *open = false;
        let any = connected.io_queues.contains(&true);
        connected.controller.set_io_queues_connected(any);
        if connected.ending && !any {
            self.remove(id);
            return Closed::Controller;
        }
        self.roll.update(connected);
        Closed::Queue
    }

    /// Ends an association: its host was silent for too long, or its admin queue is gone. From here on no queue connects to it and it does not
    /// expire; its host's next association waits for the last of its I/O queues ([`NotAdmitted::Later`]).
    pub fn end(&mut self, id: ControllerId) -> Closed {
        let Some(connected) = self.associations.get_mut(&id) else {
            return Closed::Unknown;
        };
        connected.ending = true;
        let open = connected.open_queues();
        if open.is_empty() {
            self.remove(id);
            return Closed::Controller;
        }
        self.roll.update(connected);
        Closed::Ending(open)
    }

    fn remove(&mut self, id: ControllerId) {
        if let Some(connected) = self.associations.remove(&id) {
            self.roll.leave(connected);
        }
    }

    /// The I/O queues of a controller that are connected.
    pub fn io_queues(&self, id: ControllerId) -> Vec<QueueId> {
        self.associations
            .get(&id)
            .map(Connected::open_queues)
            .unwrap_or_default()
    }

    /// A controller.
    pub fn controller(&self, id: ControllerId) -> Option<&Controller> {
        self.associations
            .get(&id)
            .map(|connected| &connected.controller)
    }

    /// A controller, to work with.
    pub fn controller_mut(&mut self, id: ControllerId) -> Option<&mut Controller> {
        self.associations
            .get_mut(&id)
            .map(|connected| &mut connected.controller)
    }

    /// All controllers.
    pub fn controllers(&self) -> impl Iterator<Item = &Controller> {
        self.associations
            .values()
            .map(|connected| &connected.controller)
    }

    /// The target.
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// When [`Registry::next_expired`] is next worth asking: no keep alive runs out before.
    pub fn deadline(&self) -> Option<Time> {
        self.roll.next_look()
    }

    /// A controller whose keep alive timer has run out: [`Registry::end`] it, and close its connections.
    pub fn next_expired(&mut self, now: Time) -> Option<ControllerId> {
        while let Some(id) = self.roll.due(now) {
            let connected = self.associations.get_mut(&id)?;
            let deadline = connected.controller.keep_alive_deadline();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Some(id);
            }
            self.roll.look_later(connected);
        }
        None
    }

    fn subsystem(&self, nqn: &Nqn) -> Option<(&Arc<Subsystem>, &Arc<NamespaceSet>)> {
        self.target
            .subsystems()
            .iter()
            .zip(&self.namespaces)
            .find(|(subsystem, _)| subsystem.nqn == *nqn)
    }

    /// The next free identifier. They go round, so that a late packet of an old association meets no new one.
    fn allocate_id(&mut self) -> Option<ControllerId> {
        for _ in 0..CNTLID_MAX {
            let id = ControllerId(self.next_id);
            self.next_id = if self.next_id >= CNTLID_MAX {
                1
            } else {
                self.next_id + 1
            };
            if !self.associations.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }
}

impl Connected {
    fn open_queues(&self) -> Vec<QueueId> {
        (1..=u16::MAX)
            .map(QueueId)
            .zip(&self.io_queues)
            .filter(|(_, open)| **open)
            .map(|(queue, _)| queue)
            .collect()
    }
}

/// SQSIZE + 1, where the queue may be that long.
fn entries(request: &ConnectRequest, queue_entries_max: u16) -> Result<u16, Completion> {
    match request.sqsize_z {
        0 => None,
        sqsize_z => sqsize_z
            .checked_add(1)
            .filter(|&entries| entries <= queue_entries_max),
    }
    .ok_or(invalid(Invalid::Sqe(connect_offset::sqe::SQSIZE)))
}
