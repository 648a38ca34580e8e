//! The discovery log page (Base, "Discovery Log Page", 70h).

use crate::NQN_FIELD_BYTES;
use crate::open_enum::{assert_bytes, open_enum};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Header of the discovery log page; the records follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryLogHeader {
    /// GENCTR: changes with the content; a host that sees it change while reading in pieces starts again.
    pub generation: U64,
    /// NUMREC.
    pub records: U64,
    /// RECFMT: 0.
    pub record_format: U16,
    /// Reserved.
    pub reserved_18: [u8; 1006],
}
assert_bytes!(DiscoveryLogHeader, 1024);

/// One record: one way to reach one subsystem.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiscoveryLogEntry {
    /// TRTYPE.
    pub trtype: u8,
    /// ADRFAM.
    pub adrfam: u8,
    /// SUBTYPE.
    pub subtype: u8,
    /// TREQ: see [`TREQ_SECURE_CHANNEL_NOT_REQUIRED`].
    pub treq: u8,
    /// PORTID.
    pub port_id: U16,
    /// CNTLID: FFFFh = dynamic.
    pub cntlid: U16,
    /// ASQSZ: most entries of the admin submission queue.
    pub admin_queue_entries: U16,
    /// EFLAGS.
    pub eflags: U16,
    /// Reserved.
    pub reserved_12: [u8; 20],
    /// TRSVCID: the port, ASCII, padded with spaces.
    pub trsvcid: [u8; 32],
    /// Reserved.
    pub reserved_64: [u8; 192],
    /// SUBNQN, zero-terminated.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// TRADDR: the address, ASCII, padded with spaces.
    pub traddr: [u8; 256],
    /// TSAS: for TCP, byte 0 is the security type (0 none, 1 TLS 1.2, 2 TLS 1.3); for RDMA see [`TSAS_RDMA`].
    pub tsas: [u8; 256],
}
assert_bytes!(DiscoveryLogEntry, 1024);

open_enum! {
    /// TRTYPE.
    pub struct TransportType(u8) {
        /// RDMA.
        RDMA = 1,
        /// Fibre Channel.
        FIBRE_CHANNEL = 2,
        /// TCP.
        TCP = 3,
        /// Loop, inside one host.
        LOOP = 254,
    }
}

open_enum! {
    /// ADRFAM.
    pub struct AddressFamily(u8) {
        /// IPv4.
        IPV4 = 1,
        /// IPv6.
        IPV6 = 2,
        /// InfiniBand.
        INFINIBAND = 3,
    }
}

open_enum! {
    /// SUBTYPE.
    pub struct SubsystemType(u8) {
        /// A referral to another discovery service.
        REFERRAL = 1,
        /// A subsystem with namespaces.
        NVM = 2,
        /// The discovery subsystem itself.
        CURRENT_DISCOVERY = 3,
    }
}

/// TSAS of RDMA, its first bytes: QPTYPE 1 (reliable connected), PRTYPE 1 (the provider is not specified), CMS 1 (RDMA_IP_CM).
pub const TSAS_RDMA: [u8; 3] = [1, 1, 1];

/// TREQ 1:0 = 10b: a secure channel is not required.
pub const TREQ_SECURE_CHANNEL_NOT_REQUIRED: u8 = 0b10;
/// TREQ bit 2: the controller can run without SQ flow control.
pub const TREQ_SQ_FLOW_CONTROL_DISABLE: u8 = 1 << 2;
/// TREQ bit 3: ZHIDS, a Connect may bring a host identifier of 0.
pub const TREQ_ZERO_HOST_ID: u8 = 1 << 3;
/// EFLAGS bit 0: the record is a duplicate of this discovery controller's own information.
pub const EFLAG_DUPLICATE_RETURNED_INFORMATION: u16 = 1 << 0;
/// EFLAGS bit 1: explicit persistent connections are supported.
pub const EFLAG_PERSISTENT_CONNECTIONS: u16 = 1 << 1;
