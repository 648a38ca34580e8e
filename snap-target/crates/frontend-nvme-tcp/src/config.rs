//! What the reactors of a target share, and how it listens.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use namespace::{Backing, Namespace, NamespaceSet};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind as bind_socket, listen,
    setsockopt, socket, sockopt,
};
use nvme::controller::{
    ConfigError, ControllerLimits, HostPolicy, Listener, NamespaceInfo,
    NamespaceSet as NamespaceInfos, Subsystem, Target, Transport,
};
use nvme::nqn::{Nqn, NqnError};
use nvme::tcp::target::{SuccessFlag, TargetLimits};
use nvme_spec::Nsid;
use reactor::ReactorError;

use crate::limits::BACKLOG;

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
    pub(crate) target: Target,
    pub(crate) subsystem: Nqn,
    pub(crate) namespaces: Arc<NamespaceInfos>,
    pub(crate) limits: TargetLimits,
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
    /// The listening socket.
    #[error("the listening socket: {0}")]
    Listen(#[from] std::io::Error),
}

impl Service {
    /// A target with one subsystem, open to any host, listening at `address`.
    ///
    /// # Errors
    /// A name or a namespace that NVMe cannot have.
    pub fn new(
        nqn: &str,
        address: SocketAddr,
        set: &NamespaceSet,
        success_flag: SuccessFlag,
    ) -> Result<Self, FrontendError> {
        let nqn = Nqn::parse(nqn)?;
        let subsystem = Subsystem {
            nqn: nqn.clone(),
            serial: serial(&nqn),
            model: "XIO snap-target".to_owned(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            hosts: HostPolicy::Any,
            limits: ControllerLimits::default(),
        };
        let limits = TargetLimits {
            success_flag,
            ..subsystem.limits.connection()
        };
        let namespaces = NamespaceInfos::new(1, set.all().iter().map(|namespace| info(namespace)))?;
        let target = Target::new(
            [subsystem],
            [Listener {
                transport: Transport::Tcp,
                address,
                port_id: 1,
            }],
        )?;
        Ok(Self {
            target,
            subsystem: nqn,
            namespaces: Arc::new(namespaces),
            limits,
        })
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

fn info(namespace: &Namespace) -> NamespaceInfo {
    let blocks = |bytes: u32| u16::try_from(bytes / namespace.lba_bytes).unwrap_or(0);
    NamespaceInfo {
        nsid: Nsid(namespace.nsid),
        block_count: namespace.blocks,
        lba_bytes: namespace.lba_bytes,
        uuid: namespace.identity.uuid,
        nguid: namespace.identity.uuid,
        eui64: None,
        write_protected: namespace.write_protected,
        volatile_cache: matches!(namespace.backing, Backing::Raw(_)) && !namespace.write_protected,
        optimal_boundary_blocks: 0,
        optimal_blocks: blocks(namespace.optimal_read_bytes),
    }
}

/// Listens at `address`.
///
/// # Errors
/// What the kernel says: in use, not ours, not allowed.
pub fn bind(address: SocketAddr) -> Result<TcpListener, std::io::Error> {
    let family = if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let listener = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&listener, sockopt::ReuseAddr, &true)?;
    bind_socket(listener.as_raw_fd(), &SockaddrStorage::from(address))?;
    listen(&listener, Backlog::new(BACKLOG)?)?;
    Ok(TcpListener::from(listener))
}
