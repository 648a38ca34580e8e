//! One controller: admin commands in, answers out.

use super::async_event::AsyncEvents;
use super::counters::{ControllerCounters, Health};
use super::error_log::{CommandError, ErrorLog};
use super::feature::{Context, Features, Value};
use super::keep_alive::KeepAlive;
use super::property::Properties;
use super::reservation::{HostId, Notifications};
use super::subsystem::{ADMIN_DATA_IN_BYTES_MAX, ControllerLimits, Subsystem, Target};
use super::timestamp::Timestamp;
use super::{CopyFormats, NamespaceAsk, NamespaceSet, Transport, discovery, identify, log_page};
use crate::Time;
use crate::nqn::Nqn;
use crate::queue::{Completion, QueueId, Slot, Transfer};
use nvme_spec::fabrics::FabricsType;
use nvme_spec::feature::async_event_configuration;
use nvme_spec::register::{Cap, Cc, Csts};
use nvme_spec::reservation::NotificationType;
use nvme_spec::{AdminOpcode, Cid, Direction, Nsid, Sqe, Status};
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};

/// CNTLID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(pub u16);

/// An admin command whose data, if it brings any, have arrived.
#[derive(Clone, Copy, Debug)]
pub struct AdminCommand<'a> {
    /// The entry.
    pub sqe: &'a Sqe,
    /// Where it is: comes back with asynchronous events.
    pub slot: Slot,
    /// How its data travel.
    pub transfer: Transfer,
    /// The data it brought.
    pub data: &'a [u8],
}

/// What becomes of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done {
        /// How.
        completion: Completion,
        /// Bytes of the output buffer that go to the host.
        data_bytes: u32,
        /// What the frontend does besides.
        effect: Effect,
    },
    /// A feature that lives with a namespace: the frontend carries it out and answers.
    OfNamespace(NamespaceAsk),
    /// An Asynchronous Event Request: [`Controller::next_async_event`] will answer it.
    Pending,
    /// An Abort: the frontend looks for that command, ends it if it can, and answers the Abort with
    /// [`Controller::abort_finished`].
    Abort {
        /// SQID.
        queue: QueueId,
        /// CID.
        cid: Cid,
    },
}

/// What a command asks of the frontend beyond its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// CC.EN went to 0: end the controller's I/O queues and their connections; when the last command of the last of them has ended, or where
    /// there are none, call [`Controller::reset_complete`]. Until then CSTS.RDY stays 1 and no I/O queue is let in.
    Reset,
    /// CC.SHN was set: make everything durable, then call [`Controller::shutdown_complete`], or [`Controller::shutdown_failed`].
    Shutdown,
}

/// What a controller is.
#[derive(Debug)]
pub(super) enum Role {
    Io {
        subsystem: Arc<Subsystem>,
    },
    Discovery {
        target: Arc<Target>,
        /// The address at which the host came in.
        local: SocketAddr,
        generation: u64,
    },
}

/// A controller: the state of one association.
#[derive(Debug)]
pub struct Controller {
    id: ControllerId,
    transport: Transport,
    role: Role,
    limits: ControllerLimits,
    host: Nqn,
    host_id: [u8; 16],
    namespaces: Arc<NamespaceSet>,
    properties: Properties,
    features: Features,
    events: AsyncEvents,
    notifications: Notifications,
    errors: ErrorLog,
    health: Arc<Health>,
    keep_alive: KeepAlive,
    timestamp: Timestamp,
    aborts: u8,
    io_queues_connected: bool,
    created: Time,
}

/// What [`Controller::new`] needs of a Connect.
pub(super) struct Association {
    pub id: ControllerId,
    pub transport: Transport,
    pub host: Nqn,
    pub host_id: [u8; 16],
    pub kato_ms: u32,
    pub health: Arc<Health>,
}

/// The buffer that an admin command needs, in or out; a status where it asks for too much. Get it before taking the data.
pub fn buffer_bytes(sqe: &Sqe, transfer: Transfer, transfer_bytes_max: u32) -> Result<u32, Status> {
    if let Transfer::Refused(status) = transfer {
        return Err(status);
    }
    let bytes_max = match sqe.direction() {
        Direction::HostToController => ADMIN_DATA_IN_BYTES_MAX,
        _ => transfer_bytes_max,
    };
    match transfer.bytes() {
        bytes if bytes <= bytes_max => Ok(bytes),
        _ => Err(Status::INVALID_FIELD.dnr()),
    }
}

impl Controller {
    pub(super) fn new(
        association: Association,
        role: Role,
        namespaces: Arc<NamespaceSet>,
        now: Time,
    ) -> Controller {
        let (limits, idle) = match &role {
            Role::Io { subsystem } => (subsystem.limits, None),
            Role::Discovery { target, .. } => {
                let limits = target.discovery_limits();
                (limits, Some(limits.discovery_idle))
            }
        };
        Controller {
            id: association.id,
            transport: association.transport,
            role,
            limits,
            host: association.host,
            host_id: association.host_id,
            namespaces,
            properties: Properties::new(limits.queue_entries_max),
            features: Features::new(limits.io_queues_max),
            events: AsyncEvents::new(limits.async_events_max),
            notifications: Notifications::default(),
            errors: ErrorLog::new(limits.error_log_entries),
            health: association.health,
            keep_alive: KeepAlive::new(association.kato_ms, idle, now),
            timestamp: Timestamp::reset(now),
            aborts: 0,
            io_queues_connected: false,
            created: now,
        }
    }

    /// Carries out an admin command. `out` is the buffer for data to the host, as long as [`buffer_bytes`] said; of it, the bytes that the
    /// outcome names are all written.
    pub fn execute(&mut self, command: &AdminCommand<'_>, out: &mut [u8], now: Time) -> Outcome {
        self.keep_alive.restart(now);
        match self.dispatch(command, out, now) {
            Ok(outcome) => outcome,
            Err(status) => {
                self.errors
                    .record(&CommandError::of(QueueId::ADMIN, command.sqe, status, None));
                done(Completion::of(status))
            }
        }
    }

    fn dispatch(
        &mut self,
        command: &AdminCommand<'_>,
        out: &mut [u8],
        now: Time,
    ) -> Result<Outcome, Status> {
        let sqe = command.sqe;
        let opcode = AdminOpcode(sqe.opcode);
        if !self.supports(opcode) {
            return Err(Status::INVALID_OPCODE.dnr());
        }
        if sqe.fuse() != 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if let Transfer::Refused(status) = command.transfer {
            return Err(status);
        }
        if opcode == AdminOpcode::FABRICS {
            return self.fabrics(sqe, now);
        }
        if !self.properties.ready() {
            return Err(Status::COMMAND_SEQUENCE_ERROR.dnr());
        }
        match opcode {
            AdminOpcode::IDENTIFY => {
                let structure = identify::structure(self, sqe)?;
                data(command, out, &structure, 0)
            }
            AdminOpcode::GET_LOG_PAGE => self.get_log_page(command, out, now),
            AdminOpcode::GET_FEATURES => self.get_features(command, out, now),
            AdminOpcode::SET_FEATURES => self.set_features(command, now),
            AdminOpcode::ASYNC_EVENT_REQUEST => {
                self.events.request(command.slot).map(|()| Outcome::Pending)
            }
            AdminOpcode::ABORT => self.abort(sqe),
            _ => Ok(done(Completion::SUCCESS)),
        }
    }

    fn supports(&self, opcode: AdminOpcode) -> bool {
        match opcode {
            AdminOpcode::FABRICS => self.transport.is_fabric(),
            AdminOpcode::IDENTIFY
            | AdminOpcode::GET_LOG_PAGE
            | AdminOpcode::GET_FEATURES
            | AdminOpcode::SET_FEATURES
            | AdminOpcode::ASYNC_EVENT_REQUEST
            | AdminOpcode::KEEP_ALIVE => true,
            AdminOpcode::ABORT => !self.is_discovery(),
            _ => false,
        }
    }

    fn fabrics(&mut self, sqe: &Sqe, now: Time) -> Result<Outcome, Status> {
        match FabricsType(sqe.fctype()) {
            FabricsType::PROPERTY_GET => {
                let value = self.properties.get(sqe)?;
                let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
                let (dw0, dw1) = (
                    u32::from_le_bytes([a, b, c, d]),
                    u32::from_le_bytes([e, f, g, h]),
                );
                Ok(done(Completion {
                    status: Status::SUCCESS,
                    dw0,
                    dw1,
                }))
            }
            FabricsType::PROPERTY_SET => {
                let cc = Properties::parse_set(sqe)?;
                Ok(Outcome::Done {
                    completion: Completion::SUCCESS,
                    data_bytes: 0,
                    effect: self.write_cc(cc, now),
                })
            }
            FabricsType::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR.dnr()),
            _ => Err(Status::INVALID_OPCODE.dnr()),
        }
    }

    /// The host writes CC: by Property Set, or in a register.
    pub fn write_cc(&mut self, cc: Cc, now: Time) -> Effect {
        let effect = self.properties.write_cc(cc);
        if effect == Effect::Reset {
            self.reset(now);
        }
        effect
    }

    /// A controller level reset: features to their defaults, requests ended. The association and its keep alive stay.
    fn reset(&mut self, now: Time) {
        self.features = Features::new(self.limits.io_queues_max);
        self.timestamp = Timestamp::reset(now);
        self.events.reset();
        self.notifications = Notifications::default();
        self.aborts = 0;
    }

    fn get_log_page(
        &mut self,
        command: &AdminCommand<'_>,
        out: &mut [u8],
        now: Time,
    ) -> Result<Outcome, Status> {
        // The host's descriptor is looked at first: reading some pages changes what they hold.
        let asked = nvme_spec::log::GetLogPage::of(command.sqe).bytes;
        if asked <= u64::from(self.limits.transfer_bytes_max)
            && !command.transfer.has_room_for(asked)
        {
            return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
        }
        let window = log_page::window(self, command.sqe, now)?;
        let out = reply(command, out, window.bytes)?;
        window.copy_to(out);
        Ok(Outcome::Done {
            completion: Completion::SUCCESS,
            data_bytes: window.bytes,
            effect: Effect::None,
        })
    }

    fn get_features(
        &mut self,
        command: &AdminCommand<'_>,
        out: &mut [u8],
        now: Time,
    ) -> Result<Outcome, Status> {
        if let Some(outcome) = self.get_of_namespace(command.sqe)? {
            return Ok(outcome);
        }
        let (features, context) = self.feature_context(now);
        match features.get(command.sqe, &context)? {
            Value::Dw0(dw0) => Ok(done(Completion::result(dw0))),
            Value::Data(bytes) => data(command, out, &bytes, 0),
        }
    }

    fn set_features(&mut self, command: &AdminCommand<'_>, now: Time) -> Result<Outcome, Status> {
        if let Some(outcome) = self.set_of_namespace(command.sqe)? {
            return Ok(outcome);
        }
        let (features, mut context) = self.feature_context(now);
        let dw0 = features.set(command.sqe, command.data, &mut context)?;
        Ok(done(Completion::result(dw0)))
    }

    fn feature_context(&mut self, now: Time) -> (&mut Features, Context<'_>) {
        let notices = self.notices();
        let context = Context {
            discovery: matches!(self.role, Role::Discovery { .. }),
            namespaces: &self.namespaces,
            host_id: &self.host_id,
            keep_alive: &mut self.keep_alive,
            timestamp: &mut self.timestamp,
            notices,
            io_queues_max: self.limits.io_queues_max,
            io_queues_connected: self.io_queues_connected,
            now,
        };
        (&mut self.features, context)
    }

    /// Base, "Abort command": SQID in CDW10 15:0, CID in 31:16.
    fn abort(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        if self.aborts >= self.limits.aborts_max {
            return Err(Status::ABORT_LIMIT_EXCEEDED.dnr());
        }
        self.aborts += 1;
        let [a, b, c, d] = sqe.cdw10.to_bytes();
        Ok(Outcome::Abort {
            queue: QueueId(u16::from_le_bytes([a, b])),
            cid: Cid(u16::from_le_bytes([c, d])),
        })
    }

    /// The answer to an [`Outcome::Abort`]: DW0 bit 0 is 0 where the command was aborted.
    pub fn abort_finished(&mut self, aborted: bool) -> Completion {
        self.aborts = self.aborts.saturating_sub(1);
        Completion::result(u32::from(!aborted))
    }

    /// Ends an Asynchronous Event Request that an Abort found in this slot; its answer comes by [`Controller::next_async_event`].
    pub fn abort_async_event(&mut self, slot: Slot) -> bool {
        self.events.abort(slot)
    }

    /// An Asynchronous Event Request to answer, and how. Ask after each command and each change.
    pub fn next_async_event(&mut self) -> Option<(Slot, Completion)> {
        self.events.next_answer()
    }

    /// The subsystem's namespaces are now these; the host is told where it asked to be.
    pub fn set_namespaces(&mut self, namespaces: Arc<NamespaceSet>) {
        let changed = self.namespaces.changed(&namespaces);
        self.namespaces = namespaces;
        let notify = self
            .features
            .notifies(async_event_configuration::NAMESPACE_ATTRIBUTE_NOTICES);
        self.events.namespaces_changed(&changed, notify);
    }

    /// What a discovery controller tells is now this.
    pub(super) fn set_target(&mut self, target: &Arc<Target>, generation: u64) {
        if let Role::Discovery {
            target: ours,
            generation: our_generation,
            ..
        } = &mut self.role
        {
            *ours = Arc::clone(target);
            *our_generation = generation;
            if self
                .features
                .notifies(async_event_configuration::DISCOVERY_LOG_CHANGE_NOTICES)
            {
                self.events.discovery_changed();
            }
        }
    }

    /// A reservation of this namespace changed in a way that concerns the host: a Reservation Notification, unless it masked such ones.
    pub fn notify_reservation(&mut self, nsid: Nsid, what: NotificationType) {
        if self.features.masks_notification(nsid, what) {
            return;
        }
        self.notifications.push(nsid, what);
        self.events.reservation_notified();
    }

    /// An I/O command failed: an entry for the Error Information log.
    pub fn record_error(&mut self, error: &CommandError) {
        self.errors.record(error);
    }

    /// What the SMART log counts, to add to: of all controllers of the subsystem.
    pub fn counters_mut(&mut self) -> MutexGuard<'_, ControllerCounters> {
        self.health.counters()
    }

    pub(super) fn health(&self) -> &Health {
        &self.health
    }

    /// The frontend has done what [`Effect::Shutdown`] asked.
    pub fn shutdown_complete(&mut self) {
        self.properties.shutdown_ended(true);
    }

    /// Something could not be made durable: CSTS tells the host of a fatal status and never of a complete shutdown, until it resets.
    pub fn shutdown_failed(&mut self) {
        self.properties.shutdown_ended(false);
    }

    /// What [`Effect::Reset`] asked is done: CSTS.RDY goes to 0. Called too early, while I/O queues are connected, it does nothing, so that a
    /// frontend may call it whenever one has closed. The effect is what the host asked for while it waited.
    #[must_use = "the host may have asked for more meanwhile"]
    pub fn reset_complete(&mut self) -> Effect {
        if self.io_queues_connected {
            return Effect::None;
        }
        self.properties.reset_complete()
    }

    /// The host showed that it lives, by traffic that [`Controller::execute`] does not see.
    pub fn traffic(&mut self, now: Time) {
        self.keep_alive.restart(now);
    }

    /// KATO in milliseconds; 0: none.
    pub fn kato_ms(&self) -> u32 {
        self.keep_alive.kato_ms()
    }

    /// When the host counts as gone, unless it is heard of.
    pub fn keep_alive_deadline(&self) -> Option<Time> {
        self.keep_alive.deadline()
    }

    /// CNTLID.
    pub fn id(&self) -> ControllerId {
        self.id
    }

    /// The host.
    pub fn host(&self) -> &Nqn {
        &self.host
    }

    /// HOSTID.
    pub fn host_id(&self) -> &[u8; 16] {
        &self.host_id
    }

    /// Who its host is to reservations.
    pub fn reservation_host(&self) -> HostId {
        HostId(self.host_id)
    }

    /// True for a discovery controller.
    pub fn is_discovery(&self) -> bool {
        matches!(self.role, Role::Discovery { .. })
    }

    /// The subsystem; none for a discovery controller.
    pub fn subsystem(&self) -> Option<&Arc<Subsystem>> {
        match &self.role {
            Role::Io { subsystem } => Some(subsystem),
            Role::Discovery { .. } => None,
        }
    }

    /// The namespaces as this controller knows them.
    pub fn namespaces(&self) -> &Arc<NamespaceSet> {
        &self.namespaces
    }

    /// Copy descriptor formats that its host has enabled; for its I/O queues.
    pub fn copy_formats(&self) -> CopyFormats {
        self.features.copy_formats()
    }

    /// The limits in force.
    pub fn limits(&self) -> &ControllerLimits {
        &self.limits
    }

    /// True where commands other than fabrics commands are taken, and I/O queues: CSTS.RDY is 1 and no reset is under way.
    pub fn ready(&self) -> bool {
        self.properties.ready()
    }

    /// ACRE: the host honours a status' retry delay.
    pub fn host_honours_retry_delay(&self) -> bool {
        self.features.host_honours_retry_delay()
    }

    /// CAP.
    pub fn cap(&self) -> Cap {
        self.properties.cap()
    }

    /// CC as the host last wrote it.
    pub fn cc(&self) -> Cc {
        self.properties.cc()
    }

    /// CSTS.
    pub fn csts(&self) -> Csts {
        self.properties.csts()
    }

    /// How its host reaches it.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    pub(super) fn io_queues(&self) -> u16 {
        self.features.io_queues()
    }

    pub(super) fn set_io_queues_connected(&mut self, connected: bool) {
        self.io_queues_connected = connected;
    }

    /// When it was made.
    pub fn created(&self) -> Time {
        self.created
    }

    pub(super) fn error_log(&self) -> &ErrorLog {
        &self.errors
    }

    pub(super) fn async_events(&mut self) -> &mut AsyncEvents {
        &mut self.events
    }

    /// OAES.
    pub(super) fn notices(&self) -> u32 {
        match self.role {
            Role::Io { .. } => async_event_configuration::NAMESPACE_ATTRIBUTE_NOTICES,
            Role::Discovery { .. } => async_event_configuration::DISCOVERY_LOG_CHANGE_NOTICES,
        }
    }

    /// SN, MN, FR.
    pub(super) fn names(&self) -> (&str, &str, &str) {
        match &self.role {
            Role::Io { subsystem } => (&subsystem.serial, &subsystem.model, &subsystem.firmware),
            Role::Discovery { .. } => (
                "discovery",
                "snap-target discovery",
                env!("CARGO_PKG_VERSION"),
            ),
        }
    }

    pub(super) fn read_reservation_notification(&mut self, retain_event: bool) -> Vec<u8> {
        let page = self.notifications.take();
        let more = self.notifications.any();
        self.events.reservation_read(retain_event, more);
        page
    }

    pub(super) fn read_discovery_log(&mut self, retain_event: bool) -> Vec<u8> {
        self.events.discovery_read(retain_event);
        match &self.role {
            Role::Discovery {
                target,
                local,
                generation,
            } => discovery::log(target, *generation, &self.host, *local),
            Role::Io { .. } => Vec::new(),
        }
    }
}

pub(super) fn done(completion: Completion) -> Outcome {
    Outcome::Done {
        completion,
        data_bytes: 0,
        effect: Effect::None,
    }
}

/// Success with `bytes` as data.
fn data(
    command: &AdminCommand<'_>,
    out: &mut [u8],
    bytes: &[u8],
    dw0: u32,
) -> Result<Outcome, Status> {
    let data_bytes = u32::try_from(bytes.len()).map_err(|_| Status::INTERNAL_ERROR)?;
    reply(command, out, data_bytes)?.copy_from_slice(bytes);
    Ok(Outcome::Done {
        completion: Completion::result(dw0),
        data_bytes,
        effect: Effect::None,
    })
}

/// Room for `bytes` of data to the host.
fn reply<'a>(
    command: &AdminCommand<'_>,
    out: &'a mut [u8],
    bytes: u32,
) -> Result<&'a mut [u8], Status> {
    if !command.transfer.has_room_for(bytes.into()) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    let bytes = usize::try_from(bytes).map_err(|_| Status::INTERNAL_ERROR)?;
    out.get_mut(..bytes).ok_or(Status::INTERNAL_ERROR)
}
