//! What an operator configures: subsystems, who may connect, and the limits on everything a host can make us hold.

use super::discovery::{Listener, Referral};
use crate::nqn::Nqn;
use crate::tcp::target::TargetLimits;
use nvme_spec::Nsid;
use nvme_spec::tcp::ADMIN_CAPSULE_DATA_BYTES;
use std::sync::Arc;
use std::time::Duration;

/// NN: the greatest NSID.
pub const NAMESPACES_MAX: u32 = 1024;

/// Entries that an admin queue may always have (Base, "Discovery Log Page Entry": ASQSZ is at least 32): Linux asks for no fewer.
const ADMIN_QUEUE_ENTRIES_MIN: u16 = 32;

/// Entries of a discovery controller's queue, as hosts have them: any host may connect one and take no answers.
const DISCOVERY_QUEUE_ENTRIES_MAX: u16 = ADMIN_QUEUE_ENTRIES_MIN;

/// Most data that an admin command may bring.
pub const ADMIN_DATA_IN_BYTES_MAX: u32 = 4096;

/// SQE_BYTES as lengths on the wire count it.
const SQE_LEN: u32 = 64;
const _: () = assert!(SQE_LEN as usize == nvme_spec::command::SQE_BYTES);

/// Smallest memory page of a host (CAP.MPSMIN = 0): the unit of MDTS.
pub const PAGE_BYTES: u32 = 4096;

/// A configuration that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// NSID 0 or above [`NAMESPACES_MAX`].
    #[error("{nsid}: namespace identifiers go from 1 to {NAMESPACES_MAX}")]
    NsidOutOfRange {
        /// Which.
        nsid: Nsid,
    },
    /// The same NSID twice.
    #[error("{nsid} is there twice")]
    DuplicateNsid {
        /// Which.
        nsid: Nsid,
    },
    /// Logical blocks of a size that NVMe or we cannot have.
    #[error(
        "{nsid}: a logical block of {lba_bytes} bytes; it must be a power of two from 512 to 65536"
    )]
    LbaBytes {
        /// Which.
        nsid: Nsid,
        /// What was asked.
        lba_bytes: u32,
    },
    /// No blocks, or more bytes than 64 bits count.
    #[error(
        "{nsid}: {block_count} blocks; there must be at least one, and their bytes must fit 64 bits"
    )]
    BlockCount {
        /// Which.
        nsid: Nsid,
        /// What was asked.
        block_count: u64,
    },
    /// A field of Identify Controller that is not printable ASCII or too long.
    #[error("{field} is {text:?}; it must be printable ASCII of at most {bytes_max} bytes")]
    Text {
        /// Which field.
        field: &'static str,
        /// What was given.
        text: String,
        /// Its room.
        bytes_max: usize,
    },
    /// A subsystem named as the discovery service.
    #[error("the discovery service's name cannot be a subsystem's")]
    DiscoveryName,
    /// Two subsystems of one name.
    #[error("two subsystems are named {nqn}")]
    DuplicateSubsystem {
        /// The name.
        nqn: Nqn,
    },
    /// Limits that contradict each other or the wire.
    #[error("limits: {0}")]
    Limits(&'static str),
}

/// Which hosts may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPolicy {
    /// Any host.
    Any,
    /// These hosts.
    Only(Vec<Nqn>),
}

impl HostPolicy {
    /// True where this host may connect.
    pub fn allows(&self, host: &Nqn) -> bool {
        match self {
            HostPolicy::Any => true,
            HostPolicy::Only(hosts) => hosts.contains(host),
        }
    }
}

/// Which hosts of a subsystem see a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// All that may connect.
    #[default]
    All,
    /// These; to others it is not there.
    Hosts(Vec<Nqn>),
}

impl Visibility {
    /// True where this host sees the namespace.
    pub fn includes(&self, host: &Nqn) -> bool {
        match self {
            Visibility::All => true,
            Visibility::Hosts(hosts) => hosts.contains(host),
        }
    }
}

/// Limits of a subsystem's controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerLimits {
    /// Controllers of the subsystem, all hosts together.
    pub controllers_max: u16,
    /// Controllers that one host may have.
    pub controllers_per_host_max: u16,
    /// Connections of one host, admin and I/O queues of all its controllers.
    pub connections_per_host_max: u16,
    /// I/O queues of one host, of all its controllers.
    pub io_queues_per_host_max: u16,
    /// Memory for data of one host's commands, in and out, in bytes. A host always gets the memory of one command on each queue.
    pub memory_per_host_bytes: u64,
    /// I/O queues of one controller.
    pub io_queues_max: u16,
    /// Entries of an I/O queue (CAP.MQES + 1). An admin queue may have 32 all the same.
    pub queue_entries_max: u16,
    /// Data of one command: a power of two of at least 8 KiB (MDTS; a limit of one page has no value there).
    pub transfer_bytes_max: u32,
    /// In-capsule data of an I/O command (IOCCSZ); a multiple of 16.
    pub capsule_data_bytes: u32,
    /// Asynchronous Event Requests outstanding (AERL + 1).
    pub async_events_max: u8,
    /// Abort commands outstanding (ACL + 1).
    pub aborts_max: u8,
    /// Entries of the Error Information log (ELPE + 1).
    pub error_log_entries: u8,
    /// CRDT1 to CRDT3 in 100 ms units: how long a host waits before it retries a command with that retry delay.
    pub retry_delays_100ms: [u16; 3],
    /// Inactivity after which a discovery controller without keep alive ends (Base, "Discovery Controller Initialization": 2 minutes).
    pub discovery_idle: Duration,
}

impl Default for ControllerLimits {
    fn default() -> Self {
        ControllerLimits {
            controllers_max: 1024,
            controllers_per_host_max: 64,
            connections_per_host_max: 1024,
            io_queues_per_host_max: 512,
            memory_per_host_bytes: 256 << 20,
            io_queues_max: 64,
            queue_entries_max: 128,
            transfer_bytes_max: 1 << 20,
            capsule_data_bytes: ADMIN_CAPSULE_DATA_BYTES,
            async_events_max: 4,
            aborts_max: 4,
            error_log_entries: 64,
            retry_delays_100ms: [1, 10, 50],
            discovery_idle: Duration::from_secs(120),
        }
    }
}

impl ControllerLimits {
    /// That the limits agree with each other and the wire.
    pub fn check(&self) -> Result<(), ConfigError> {
        let rules = [
            (self.controllers_max >= 1, "controllers_max is 0"),
            (
                self.controllers_max <= nvme_spec::fabrics::CNTLID_MAX,
                "controllers_max is above FFEFh",
            ),
            (
                self.controllers_per_host_max >= 1,
                "controllers_per_host_max is 0",
            ),
            (
                self.connections_per_host_max >= 2,
                "connections_per_host_max leaves no room for an admin and an I/O queue",
            ),
            (
                self.io_queues_per_host_max >= 1,
                "io_queues_per_host_max is 0",
            ),
            (
                self.memory_per_host_bytes >= u64::from(self.transfer_bytes_max),
                "memory_per_host_bytes is below transfer_bytes_max",
            ),
            (
                self.io_queues_max >= 1 && self.io_queues_max < u16::MAX,
                "io_queues_max is 0 or 65535",
            ),
            (self.queue_entries_max >= 2, "queue_entries_max is below 2"),
            (
                self.transfer_bytes_max.is_power_of_two() && self.transfer_bytes_max > PAGE_BYTES,
                // MDTS is the power of the pages, and 0 there says that there is no limit.
                "transfer_bytes_max is not a power of two of at least 8192",
            ),
            (
                self.capsule_data_bytes.is_multiple_of(16),
                "capsule_data_bytes is not a multiple of 16",
            ),
            (self.async_events_max >= 1, "async_events_max is 0"),
            (
                u16::from(self.async_events_max) < self.admin_queue_entries_max(),
                "async_events_max leaves no entry of the admin queue for other commands",
            ),
            (self.aborts_max >= 1, "aborts_max is 0"),
            (self.error_log_entries >= 1, "error_log_entries is 0"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, why)) => Err(ConfigError::Limits(why)),
            None => Ok(()),
        }
    }

    /// CRD for a host that should wait so long before it tries again: the shortest of CRDT1 to CRDT3 that is long enough, or the longest.
    pub fn retry_delay(&self, wait: Duration) -> u8 {
        let delays = || (1_u8..).zip(self.retry_delays_100ms);
        let wait_100ms = wait.as_millis().div_ceil(100);
        let long_enough = delays().filter(|(_, delay)| u128::from(*delay) >= wait_100ms);
        long_enough
            .min_by_key(|(_, delay)| *delay)
            .or_else(|| delays().max_by_key(|(_, delay)| *delay))
            .map_or(0, |(crd, _)| crd)
    }

    /// MDTS.
    pub(super) fn mdts(&self) -> u8 {
        u8::try_from((self.transfer_bytes_max / PAGE_BYTES).trailing_zeros()).unwrap_or(0)
    }

    /// IOCCSZ.
    pub(super) fn ioccsz_16b(&self) -> u32 {
        (self.capsule_data_bytes + SQE_LEN) / 16
    }

    /// Entries of an admin queue (ASQSZ).
    pub(super) fn admin_queue_entries_max(&self) -> u16 {
        self.queue_entries_max.max(ADMIN_QUEUE_ENTRIES_MIN)
    }

    /// The limits of a connection that serves these controllers.
    pub fn connection(&self) -> TargetLimits {
        TargetLimits {
            queue_entries_max: self.admin_queue_entries_max(),
            capsule_data_bytes: self.capsule_data_bytes,
            transfer_bytes_max: self.transfer_bytes_max,
            ..TargetLimits::default()
        }
    }
}

/// One NVM subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// SUBNQN.
    pub nqn: Nqn,
    /// SN: ASCII, at most 20 bytes.
    pub serial: String,
    /// MN: ASCII, at most 40 bytes.
    pub model: String,
    /// FR: ASCII, at most 8 bytes.
    pub firmware: String,
    /// Who may connect.
    pub hosts: HostPolicy,
    /// Limits of its controllers.
    pub limits: ControllerLimits,
}

impl Subsystem {
    fn check(&self) -> Result<(), ConfigError> {
        if self.nqn.is_discovery() {
            return Err(ConfigError::DiscoveryName);
        }
        for (field, text, bytes_max) in [
            ("serial", &self.serial, 20),
            ("model", &self.model, 40),
            ("firmware", &self.firmware, 8),
        ] {
            if text.len() > bytes_max
                || text.is_empty()
                || !text.bytes().all(|byte| (0x20..0x7F).contains(&byte))
            {
                return Err(ConfigError::Text {
                    field,
                    text: text.clone(),
                    bytes_max,
                });
            }
        }
        self.limits.check()
    }
}

/// Everything a [`super::Registry`] serves: subsystems, and where they listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    subsystems: Vec<Arc<Subsystem>>,
    listeners: Vec<Listener>,
    referrals: Vec<Referral>,
}

impl Target {
    /// Checked: names are unique, limits agree with each other and the wire.
    pub fn new(
        subsystems: impl IntoIterator<Item = Subsystem>,
        listeners: impl IntoIterator<Item = Listener>,
    ) -> Result<Target, ConfigError> {
        let mut target = Target {
            subsystems: Vec::new(),
            listeners: listeners.into_iter().collect(),
            referrals: Vec::new(),
        };
        for subsystem in subsystems {
            target = target.with_subsystem(subsystem)?;
        }
        Ok(target)
    }

    /// One subsystem more.
    pub(super) fn with_subsystem(&self, subsystem: Subsystem) -> Result<Target, ConfigError> {
        subsystem.check()?;
        let mut target = self.clone();
        if target.subsystems.iter().any(|it| it.nqn == subsystem.nqn) {
            return Err(ConfigError::DuplicateSubsystem { nqn: subsystem.nqn });
        }
        target.subsystems.push(Arc::new(subsystem));
        Ok(target)
    }

    /// One subsystem less.
    pub(super) fn without_subsystem(&self, nqn: &Nqn) -> Target {
        let mut target = self.clone();
        target.subsystems.retain(|subsystem| subsystem.nqn != *nqn);
        target
    }

    /// Other hosts may connect to a subsystem.
    pub(super) fn with_hosts(&self, nqn: &Nqn, hosts: &HostPolicy) -> Target {
        let mut target = self.clone();
        for subsystem in &mut target.subsystems {
            if subsystem.nqn == *nqn {
                Arc::make_mut(subsystem).hosts = hosts.clone();
            }
        }
        target
    }

    /// Limits of discovery controllers: what a connection made for any of the subsystems can hold.
    pub(super) fn discovery_limits(&self) -> ControllerLimits {
        let of_all = self.subsystems.iter().map(|subsystem| subsystem.limits);
        let alone = ControllerLimits {
            queue_entries_max: DISCOVERY_QUEUE_ENTRIES_MAX,
            ..ControllerLimits::default()
        };
        of_all.fold(alone, |all, limits| ControllerLimits {
            transfer_bytes_max: all.transfer_bytes_max.min(limits.transfer_bytes_max),
            async_events_max: all.async_events_max.min(limits.async_events_max),
            ..all
        })
    }

    /// The same subsystems at other addresses.
    pub(super) fn with_listeners(&self, listeners: impl IntoIterator<Item = Listener>) -> Target {
        Target {
            listeners: listeners.into_iter().collect(),
            ..self.clone()
        }
    }

    /// The same subsystems, with other discovery services to tell of.
    pub(super) fn with_referrals(&self, referrals: impl IntoIterator<Item = Referral>) -> Target {
        Target {
            referrals: referrals.into_iter().collect(),
            ..self.clone()
        }
    }

    /// The subsystems.
    pub fn subsystems(&self) -> &[Arc<Subsystem>] {
        &self.subsystems
    }

    /// Other discovery services.
    pub fn referrals(&self) -> &[Referral] {
        &self.referrals
    }

    /// Where they listen.
    pub fn listeners(&self) -> &[Listener] {
        &self.listeners
    }
}
