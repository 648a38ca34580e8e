//! What the reactors of a target share, and how it listens.

use std::sync::Arc;
use std::time::Duration;

use namespace::limits::KEEP_PATIENCE;
use namespace::{Namespace, NamespaceSet};
use nvme::controller::{
    ConfigError, ControllerLimits, HostPolicy, NamespaceInfo, Subsystem, Target, Visibility,
};
use nvme::nqn::{Nqn, NqnError};
use nvme_spec::Nsid;
use reactor::{ReactorError, RingConfig};

use crate::admin::AdminError;
use crate::event::EventSink;
use crate::limits::{CONNECTION_OPS_MAX, CONNECTIONS_MAX, OWNERS_MAX, STORE_OPS_MAX, TIMERS_MAX};
use crate::link::{LinkError, LinkLimits};

/// One reactor's share of a target.
#[derive(Clone, Debug)]
pub struct FrontendConfig {
    /// Which reactor; 0 is the front desk.
    pub reactor: u16,
    /// What all share.
    pub service: Arc<Service>,
}

/// What is served, and to what limits: immutable, shared by the reactors.
#[derive(Debug)]
pub struct Service {
    /// What is served at the start; an [`Admin`](crate::Admin) changes it.
    pub(crate) target: Target,
    pub(crate) namespaces: Vec<(Nqn, NamespaceSet)>,
    /// Limits of every connection.
    pub(crate) limits: LinkLimits,
    pub(crate) events: EventSink,
    pub(crate) keep_patience: Duration,
    /// I/O queues that each reactor takes.
    pub(crate) io_queues_per_reactor: usize,
}

/// Why a frontend could not be made, or ended.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    /// The subsystem's name.
    #[error("the subsystem's NQN: {0}")]
    Nqn(#[from] NqnError),
    /// What is to be served contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The ring.
    #[error(transparent)]
    Reactor(#[from] ReactorError),
    /// What is to be served at the start cannot be.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The first listener.
    #[error("the listener: {0}")]
    Listen(#[from] LinkError),
}

impl Service {
    /// A target that serves nothing yet, and hosts whose connections have `limits`: what an [`Admin`](crate::Admin) adds keeps to them.
    ///
    /// # Errors
    /// Limits that contradict each other.
    pub fn empty(limits: &ControllerLimits, events: EventSink) -> Result<Self, FrontendError> {
        limits.check()?;
        Ok(Self {
            target: Target::new([], [])?,
            namespaces: Vec::new(),
            limits: LinkLimits::of(limits),
            events,
            keep_patience: KEEP_PATIENCE,
            io_queues_per_reactor: CONNECTIONS_MAX,
        })
    }

    /// A target with one subsystem, open to any host.
    ///
    /// # Errors
    /// A name, a limit or a namespace that NVMe cannot have.
    pub fn of_one(
        nqn: &str,
        set: &NamespaceSet,
        limits: &ControllerLimits,
    ) -> Result<Self, FrontendError> {
        let nqn = Nqn::parse(nqn)?;
        let subsystem = subsystem(nqn.clone(), HostPolicy::Any, *limits);
        Ok(Self {
            target: Target::new([subsystem], [])?,
            namespaces: vec![(nqn, set.clone())],
            ..Self::empty(limits, EventSink::default())?
        })
    }

    /// How long a host may take to send the data that it is asked for, and to take what is sent to it; 20 s unless it is said.
    #[must_use]
    pub fn with_data_timeout(self, data_timeout: Duration) -> Self {
        let limits = LinkLimits {
            data_timeout,
            ..self.limits
        };
        Self { limits, ..self }
    }

    /// How long a change of reservations or of write protection may take to reach stable storage before it is refused; 8 s unless it is said.
    #[must_use]
    pub fn with_keep_patience(self, keep_patience: Duration) -> Self {
        Self {
            keep_patience,
            ..self
        }
    }

    /// How many I/O queues each reactor takes: 4,096 at most, and unless it is said.
    #[must_use]
    pub fn with_io_queues_per_reactor(self, queues: usize) -> Self {
        Self {
            io_queues_per_reactor: queues.min(CONNECTIONS_MAX),
            ..self
        }
    }
}

/// The ring of a reactor: room for all connections that it may have, whatever the stores have in flight.
#[must_use]
pub fn ring_config() -> RingConfig {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let ops_max = CONNECTION_OPS_MAX + STORE_OPS_MAX;
    RingConfig {
        ops_max: count(ops_max),
        ops_reserved: count(CONNECTION_OPS_MAX),
        owners_max: count(OWNERS_MAX),
        events_max: count(2 * ops_max),
        timers_max: count(TIMERS_MAX),
        ..RingConfig::default()
    }
}

/// A subsystem as this target presents itself: the serial number follows from the name.
#[must_use]
pub fn subsystem(nqn: Nqn, hosts: HostPolicy, limits: ControllerLimits) -> Subsystem {
    Subsystem {
        serial: serial(&nqn),
        nqn,
        model: "XIO snap-target".to_owned(),
        firmware: env!("CARGO_PKG_VERSION").to_owned(),
        hosts,
        limits,
    }
}

/// A serial number that stays as long as the subsystem's name does: FNV-1a of it.
fn serial(nqn: &Nqn) -> String {
    let hash = nqn
        .as_str()
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
        });
    format!("XIO{hash:016x}")
}

/// What controllers know of a namespace.
pub(crate) fn info(namespace: &Namespace, visibility: &Visibility) -> NamespaceInfo {
    let blocks = |bytes: u32| u16::try_from(bytes / namespace.lba_bytes).unwrap_or(0);
    NamespaceInfo {
        nsid: Nsid(namespace.nsid),
        handle: namespace.key.to_bits(),
        visibility: visibility.clone(),
        block_count: namespace.blocks,
        lba_bytes: namespace.lba_bytes,
        uuid: namespace.identity.uuid,
        nguid: namespace.identity.uuid,
        eui64: None,
        write_protected: namespace.write_protected,
        protection: namespace.access.protection(),
        keeps_reservations: namespace.keeper.is_durable(),
        optimal_boundary_blocks: 0,
        optimal_blocks: blocks(namespace.optimal_read_bytes),
        deallocated_reads_zeros: namespace.reads_zeros_after_discard(),
        atomic_blocks: blocks(namespace.atomic_write_bytes()),
    }
}
