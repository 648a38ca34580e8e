//! One controller: what one association is, from Connect to its end. Its admin commands are in `admin`.

use super::admin::Effect;
use super::async_event::AsyncEvents;
use super::counters::{ControllerCounters, Health};
use super::error_log::{CommandError, ErrorLog};
use super::feature::Features;
use super::keep_alive::KeepAlive;
use super::property::Properties;
use super::reservation::{HostId, Notifications};
use super::subsystem::{ControllerLimits, Subsystem, Target};
use super::timestamp::Timestamp;
use super::{CopyFormats, NamespaceSet, Transport, discovery};
use crate::Time;
use crate::nqn::Nqn;
use crate::pcie::Coalescing;
use crate::queue::{Completion, Slot};
use nvme_spec::feature::async_event_configuration;
use nvme_spec::log::LogPageId;
use nvme_spec::register::{Cap, Cc, Csts};
use nvme_spec::reservation::NotificationType;
use nvme_spec::{Nsid, VERSION_2_0};
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};

/// CNTLID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(pub u16);

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
    pub(super) id: ControllerId,
    pub(super) transport: Transport,
    pub(super) role: Role,
    pub(super) limits: ControllerLimits,
    pub(super) host: Nqn,
    pub(super) host_id: [u8; 16],
    pub(super) namespaces: Arc<NamespaceSet>,
    pub(super) properties: Properties,
    pub(super) features: Features,
    pub(super) events: AsyncEvents,
    pub(super) notifications: Notifications,
    pub(super) errors: ErrorLog,
    pub(super) health: Arc<Health>,
    pub(super) keep_alive: KeepAlive,
    pub(super) timestamp: Timestamp,
    pub(super) aborts: u8,
    pub(super) io_queues_connected: bool,
    /// The most that Number of Queues may grant it now.
    pub(super) io_queues_left: u16,
    /// Doorbell Buffer Config is there.
    pub(super) has_doorbell_buffers: bool,
}

/// A controller's registers as its host reads them, for who shows them to it without asking the controller each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// CAP.
    pub cap: Cap,
    /// VS.
    pub vs: u32,
    /// CC.
    pub cc: Cc,
    /// CSTS.
    pub csts: Csts,
    /// CRTO.
    pub crto: u32,
    /// What Number of Queues has granted, or would grant: submission and completion queues each.
    pub io_queues: u16,
    /// When entries of its completion queues are told of.
    pub coalescing: Coalescing,
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
            properties: Properties::new(limits.queue_entries_max, association.transport),
            features: Features::new(limits.io_queues_max),
            events: AsyncEvents::new(limits.async_events_max),
            notifications: Notifications::default(),
            errors: ErrorLog::new(limits.error_log_entries),
            health: association.health,
            keep_alive: KeepAlive::new(association.kato_ms, idle, now),
            timestamp: Timestamp::reset(now),
            aborts: 0,
            io_queues_connected: false,
            io_queues_left: limits.io_queues_max,
            has_doorbell_buffers: !association.transport.is_fabric(),
        }
    }

    /// Its doorbells are looked at without being rung: there is no Doorbell Buffer Config, which would put them elsewhere.
    pub fn refuse_doorbell_buffers(&mut self) {
        self.has_doorbell_buffers = false;
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

    /// An Asynchronous Event Request to answer, and how. Ask after each command and each change.
    pub fn next_async_event(&mut self) -> Option<(Slot, Completion)> {
        self.events.next_answer()
    }

    /// The subsystem's namespaces are now these; the host is told where it asked to be.
    pub fn set_namespaces(&mut self, namespaces: Arc<NamespaceSet>) {
        let changed = self.namespaces.changed(&namespaces);
        self.features.keep_of(&namespaces);
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

    /// A command failed: an entry for the Error Information log. Its Error Count goes on over the life of the subsystem: a host that comes back meets
    /// none twice.
    pub fn record_error(&mut self, error: &CommandError) {
        let mut counters = self.health.counters();
        counters.error_log_entries = counters.error_log_entries.saturating_add(1);
        self.errors.record(counters.error_log_entries, error);
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

    /// Its host has shut it down, or is about to (CSTS.SHST).
    pub fn is_shut_down(&self) -> bool {
        self.properties.is_shut_down()
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

    /// What a host reads of its registers, and how many I/O queues it may have.
    pub fn registers(&self) -> Registers {
        Registers {
            cap: self.cap(),
            vs: VERSION_2_0,
            cc: self.cc(),
            csts: self.csts(),
            crto: self.properties.crto(),
            io_queues: self.io_queues(),
            coalescing: self.features.coalescing(),
        }
    }

    /// How its host reaches it.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    pub(super) fn io_queues(&self) -> u16 {
        self.features.io_queues()
    }

    /// What Number of Queues has granted; none before the host asked.
    pub(super) fn granted_io_queues(&self) -> Option<u16> {
        self.features.granted_io_queues()
    }

    pub(super) fn set_io_queues_left(&mut self, left: u16) {
        self.io_queues_left = left;
    }

    pub(super) fn set_io_queues_connected(&mut self, connected: bool) {
        self.io_queues_connected = connected;
    }

    pub(super) fn error_log(&self) -> &ErrorLog {
        &self.errors
    }

    pub(super) fn async_events(&self) -> &AsyncEvents {
        &self.events
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

    /// Reservation Notification: the oldest one.
    pub(super) fn reservation_notification(&self) -> Vec<u8> {
        self.notifications.page()
    }

    /// A part of the discovery log; none beyond its end. For an I/O controller it is empty.
    pub(super) fn discovery_log(&self, offset: u64, bytes: u32) -> Option<Vec<u8>> {
        match &self.role {
            Role::Discovery {
                target,
                local,
                generation,
            } => discovery::log(target, *generation, &self.host, *local, offset, bytes),
            Role::Io { .. } => Some(Vec::new()),
        }
    }

    /// The host was given a page. Unless it retains the event, that may come again; what it was told of is told no more.
    pub(super) fn log_page_was_read(&mut self, page: LogPageId, retain_event: bool) {
        match page {
            LogPageId::CHANGED_NAMESPACES => self.events.changed_read(retain_event),
            LogPageId::DISCOVERY => self.events.discovery_read(retain_event),
            // Each reading takes one, whatever becomes of the event.
            LogPageId::RESERVATION_NOTIFICATION => {
                self.notifications.pop();
                let more = self.notifications.any();
                self.events.reservation_read(retain_event, more);
            }
            _ => {}
        }
    }
}
