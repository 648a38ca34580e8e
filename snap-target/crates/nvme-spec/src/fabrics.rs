//! Fabrics commands (Base, "Fabrics Command Set").

use crate::NQN_FIELD_BYTES;
use crate::open_enum::{assert_bytes, open_enum};
use crate::{SglDescriptor, Sqe};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

open_enum! {
    /// FCTYPE: byte 4 of a fabrics command.
    pub struct FabricsType(u8) {
        /// Property Set.
        PROPERTY_SET = 0x00,
        /// Connect.
        CONNECT = 0x01,
        /// Property Get.
        PROPERTY_GET = 0x04,
        /// Authentication Send.
        AUTHENTICATION_SEND = 0x05,
        /// Authentication Receive.
        AUTHENTICATION_RECEIVE = 0x06,
        /// Disconnect.
        DISCONNECT = 0x08,
    }
}

/// Connect, the submission queue entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectSqe {
    /// 7Fh.
    pub opcode: u8,
    /// Reserved but for PSDT.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// 01h.
    pub fctype: u8,
    /// Reserved.
    pub reserved_5: [u8; 19],
    /// Where [`ConnectData`] is.
    pub sgl: SglDescriptor,
    /// RECFMT: 0.
    pub recfmt: U16,
    /// QID: 0 = admin queue.
    pub qid: U16,
    /// SQSIZE, zero-based.
    pub sqsize_z: U16,
    /// CATTR: see [`CATTR_DISABLE_SQ_FLOW_CONTROL`].
    pub cattr: u8,
    /// Reserved.
    pub reserved_47: u8,
    /// KATO in milliseconds; 0 = no keep alive.
    pub kato_ms: U32,
    /// Reserved.
    pub reserved_52: [u8; 12],
}
assert_bytes!(ConnectSqe, 64);

impl ConnectSqe {
    /// The same 64 bytes under their Connect names.
    pub fn of(sqe: &Sqe) -> &ConnectSqe {
        zerocopy::transmute_ref!(sqe)
    }

    /// The same 64 bytes under their common names.
    pub fn as_sqe(&self) -> &Sqe {
        zerocopy::transmute_ref!(self)
    }
}

/// CATTR 1:0: priority class of the queue.
pub const CATTR_PRIORITY_MASK: u8 = 0b11;
/// CATTR bit 2: the host asks for a queue without flow control.
pub const CATTR_DISABLE_SQ_FLOW_CONTROL: u8 = 1 << 2;
/// CATTR bit 3: the host supports deletion of individual I/O queues.
pub const CATTR_INDIVIDUAL_IO_QUEUE_DELETION: u8 = 1 << 3;

/// Connect, the data (1024 bytes).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID.
    pub host_id: [u8; 16],
    /// CNTLID: FFFFh asks for any (dynamic model).
    pub cntlid: U16,
    /// Reserved.
    pub reserved_18: [u8; 238],
    /// SUBNQN, zero-terminated.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// HOSTNQN, zero-terminated.
    pub hostnqn: [u8; NQN_FIELD_BYTES],
    /// Reserved.
    pub reserved_768: [u8; 256],
}
assert_bytes!(ConnectData, 1024);

/// CNTLID of Connect that asks for a controller of the target's choice (dynamic controller model).
pub const CNTLID_DYNAMIC: u16 = 0xFFFF;
/// CNTLID of Connect that asks for a controller of the target's choice (static controller model).
pub const CNTLID_STATIC_ANY: u16 = 0xFFFE;
/// Greatest CNTLID of a controller.
pub const CNTLID_MAX: u16 = 0xFFEF;

/// Byte offsets that Connect Invalid Parameters reports (IPO).
pub mod connect_offset {
    /// Fields of [`super::ConnectSqe`], IATTR 0.
    pub mod sqe {
        /// QID.
        pub const QID: u16 = 42;
        /// SQSIZE.
        pub const SQSIZE: u16 = 44;
        /// CATTR.
        pub const CATTR: u16 = 46;
        /// KATO.
        pub const KATO: u16 = 48;
    }
    /// Fields of [`super::ConnectData`], IATTR 1.
    pub mod data {
        /// HOSTID.
        pub const HOSTID: u16 = 0;
        /// CNTLID.
        pub const CNTLID: u16 = 16;
        /// SUBNQN.
        pub const SUBNQN: u16 = 256;
        /// HOSTNQN.
        pub const HOSTNQN: u16 = 512;
    }
}

/// Property Get and Property Set, the submission queue entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PropertySqe {
    /// 7Fh.
    pub opcode: u8,
    /// Reserved.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// 00h Set, 04h Get.
    pub fctype: u8,
    /// Reserved.
    pub reserved_5: [u8; 35],
    /// ATTRIB: bits 2:0 size, 0 = 4 bytes, 1 = 8 bytes.
    pub attrib: u8,
    /// Reserved.
    pub reserved_41: [u8; 3],
    /// OFST: see [`crate::register`].
    pub offset: U32,
    /// VALUE of Property Set.
    pub value: U64,
    /// Reserved.
    pub reserved_56: [u8; 8],
}
assert_bytes!(PropertySqe, 64);

impl PropertySqe {
    /// The same 64 bytes under their Property names.
    pub fn of(sqe: &Sqe) -> &PropertySqe {
        zerocopy::transmute_ref!(sqe)
    }

    /// The same 64 bytes under their common names.
    pub fn as_sqe(&self) -> &Sqe {
        zerocopy::transmute_ref!(self)
    }
}

/// ATTRIB of a 4-byte property.
pub const PROPERTY_4_BYTES: u8 = 0;
/// ATTRIB of an 8-byte property.
pub const PROPERTY_8_BYTES: u8 = 1;

/// Disconnect, the submission queue entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DisconnectSqe {
    /// 7Fh.
    pub opcode: u8,
    /// Reserved.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// 08h.
    pub fctype: u8,
    /// Reserved.
    pub reserved_5: [u8; 35],
    /// RECFMT: 0.
    pub recfmt: U16,
    /// Reserved.
    pub reserved_42: [u8; 22],
}
assert_bytes!(DisconnectSqe, 64);

impl DisconnectSqe {
    /// The same 64 bytes under their Disconnect names.
    pub fn of(sqe: &Sqe) -> &DisconnectSqe {
        zerocopy::transmute_ref!(sqe)
    }
}
