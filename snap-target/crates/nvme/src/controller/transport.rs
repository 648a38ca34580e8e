//! What a controller knows of the way to its host. One [`super::Registry`] serves the controllers of all transports, so that CNTLIDs are unique in
//! a subsystem.

use nvme_spec::discovery::TransportType;
use nvme_spec::identify::sgls;
use std::net::SocketAddr;

/// How a host reaches a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// NVMe/TCP.
    Tcp,
    /// NVMe/RDMA.
    Rdma,
    /// A PCIe function: registers instead of fabrics commands, PRPs and SGLs in memory, no Connect.
    Pcie,
}

impl Transport {
    /// True where there are Connect and the other fabrics commands.
    pub fn is_fabric(self) -> bool {
        self != Transport::Pcie
    }

    /// TRTYPE of the discovery log; a PCIe function is not in it.
    pub(super) fn discovery_type(self) -> Option<TransportType> {
        match self {
            Transport::Tcp => Some(TransportType::TCP),
            Transport::Rdma => Some(TransportType::RDMA),
            Transport::Pcie => None,
        }
    }

    /// SGLS (Base, "Identify Controller data structure"): the descriptors that commands over this transport may have.
    pub(super) fn sgls(self) -> u32 {
        match self {
            Transport::Tcp => sgls::SUPPORTED | sgls::OFFSET_SUPPORTED | sgls::TRANSPORT_DATA_BLOCK,
            Transport::Rdma => sgls::SUPPORTED | sgls::OFFSET_SUPPORTED | sgls::KEYED_DATA_BLOCK,
            Transport::Pcie => sgls::SUPPORTED | sgls::LENGTH_LARGER_THAN_DATA,
        }
    }
}

/// Who a host is, as far as its transport has shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// It says so itself: HOSTNQN of its Connect, and nothing else.
    Claimed,
}

/// The way that a Connect came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectContext {
    /// Over which transport.
    pub transport: Transport,
    /// At which of our addresses: what the discovery log tells for a listener at an unspecified one.
    pub local: SocketAddr,
    /// From whom.
    pub peer: PeerIdentity,
}

impl ConnectContext {
    /// Over TCP, from a host that has not shown who it is.
    pub fn tcp(local: SocketAddr) -> ConnectContext {
        ConnectContext {
            transport: Transport::Tcp,
            local,
            peer: PeerIdentity::Claimed,
        }
    }
}
