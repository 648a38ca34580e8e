//! Names and keys: small types that cannot be taken for one another.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::BitOr;

/// The key that a device wants beside a local address (InfiniBand spec 10.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LKey(pub u32);

/// The key that a peer needs beside a remote address: 24 bits of index, 8 bits that the owner of a memory window chooses (InfiniBand spec 10.6.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RKey(pub u32);

impl RKey {
    /// The same index with the next tag, as `ibv_inc_rkey`.
    #[must_use]
    pub fn next_tag(self) -> Self {
        Self((self.0 & !0xff) | (self.0.wrapping_add(1) & 0xff))
    }
}

/// A caller's name for a work request; its completion carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WrId(pub u64);

/// A queue pair's number: unique on its device while the queue pair exists, and given again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNumber(pub u32);

/// The name of a connection manager's identifier: never given twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmKey(pub(crate) u64);

/// A port's address: for RoCEv2 the IPv6 address, or the IPv4 address mapped into IPv6 (InfiniBand spec, annex A17).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that a RoCEv2 GID stands for.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        address
            .to_ipv4_mapped()
            .map_or(IpAddr::V6(address), IpAddr::V4)
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().octets()),
            IpAddr::V6(v6) => Self(v6.octets()),
        }
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Ipv6Addr::from(self.0))
    }
}

/// What a device may do with registered memory, beside reading it locally (InfiniBand spec 10.6.3.1; values of `ibv_access_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Access(u32);

impl Access {
    /// Nothing more than local reads.
    pub const LOCAL_READ: Self = Self(0);
    /// Receives and RDMA Reads of our own may write it.
    pub const LOCAL_WRITE: Self = Self(1);
    /// A peer's RDMA Write may write it.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// A peer's RDMA Read may read it.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// Memory windows may be bound to it.
    pub const WINDOW_BIND: Self = Self(1 << 4);

    /// Whether it allows all that `other` allows.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }
}

impl BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
