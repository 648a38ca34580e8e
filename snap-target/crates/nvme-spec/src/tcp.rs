//! NVMe/TCP protocol data units (TCP 1.0, "PDU" clauses 3.6.1 and 3.6.2).
//!
//! ```text
//! | common header 8 | PDU specific header, to HLEN | HDGST 4 | pad to PDO | data | DDGST 4 |
//! ```
//! HDGST and DDGST are there where negotiated; PLEN counts everything.

use crate::open_enum::{assert_bytes, open_enum};
use crate::{Cqe, Sqe};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The TCP port that IANA assigned to NVMe/TCP I/O controllers.
pub const PORT_IO: u16 = 4420;
/// The TCP port that IANA assigned to the discovery service.
pub const PORT_DISCOVERY: u16 = 8009;

/// Bytes of the common header.
pub const COMMON_HEADER_BYTES: usize = 8;
/// Bytes of a header or data digest (CRC-32C, little-endian).
pub const DIGEST_BYTES: usize = 4;
/// HLEN and PLEN of ICReq and ICResp.
pub const IC_BYTES: usize = 128;
/// HLEN of CapsuleCmd.
pub const CAPSULE_CMD_BYTES: usize = 72;
/// HLEN of CapsuleResp.
pub const CAPSULE_RESP_BYTES: usize = 24;
/// HLEN of H2CData, C2HData, R2T, H2CTermReq and C2HTermReq.
pub const DATA_HEADER_BYTES: usize = 24;
/// Longest H2CTermReq or C2HTermReq: its header and at most 128 bytes of the PDU that was at fault.
pub const TERM_BYTES_MAX: usize = 152;
/// Least value of MAXH2CDATA, which is also a multiple of 4.
pub const MAXH2CDATA_MIN: u32 = 4096;
/// Greatest value of HPDA and CPDA: an alignment of (31 + 1) * 4 bytes.
pub const PDA_MAX: u8 = 31;
/// In-capsule data that every controller takes on the admin queue and for fabrics commands (TCP, "Capsules and Data
/// Transfers").
pub const ADMIN_CAPSULE_DATA_BYTES: u32 = 8192;

open_enum! {
    /// PDU-Type.
    #[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
    #[repr(transparent)]
    pub struct PduType(u8) {
        /// Initialize Connection Request.
        IC_REQ = 0x00,
        /// Initialize Connection Response.
        IC_RESP = 0x01,
        /// Host to Controller Terminate Connection Request.
        H2C_TERM_REQ = 0x02,
        /// Controller to Host Terminate Connection Request.
        C2H_TERM_REQ = 0x03,
        /// Command Capsule.
        CAPSULE_CMD = 0x04,
        /// Response Capsule.
        CAPSULE_RESP = 0x05,
        /// Host To Controller Data Transfer.
        H2C_DATA = 0x06,
        /// Controller To Host Data Transfer.
        C2H_DATA = 0x07,
        /// Ready to Transfer.
        R2T = 0x09,
    }
}

/// FLAGS bit 0: a header digest follows the header.
pub const FLAG_HDGST: u8 = 1 << 0;
/// FLAGS bit 1: a data digest follows the data.
pub const FLAG_DDGST: u8 = 1 << 1;
/// FLAGS bit 2 of H2CData and C2HData: the last PDU of this transfer.
pub const FLAG_LAST_PDU: u8 = 1 << 2;
/// FLAGS bit 3 of C2HData: the command completed successfully and no CapsuleResp follows.
pub const FLAG_SUCCESS: u8 = 1 << 3;

/// Common header (TCP, "PDU Header: Common Header").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CommonHeader {
    /// PDU-Type.
    pub pdu_type: PduType,
    /// FLAGS; which bits mean something depends on the type.
    pub flags: u8,
    /// HLEN: bytes of common and specific header, digest not counted.
    pub hlen: u8,
    /// PDO: where the data start, from the PDU's first byte; 0 without data.
    pub pdo: u8,
    /// PLEN: bytes of the whole PDU.
    pub plen: U32,
}
assert_bytes!(CommonHeader, COMMON_HEADER_BYTES);

/// Initialize Connection Request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IcReq {
    /// HLEN = PLEN = 128.
    pub common: CommonHeader,
    /// PFV: 0.
    pub pfv: U16,
    /// HPDA: the data of C2HData start at a multiple of (HPDA + 1) * 4 bytes.
    pub hpda_z: u8,
    /// DGST: see [`DGST_HEADER`] and [`DGST_DATA`].
    pub dgst: u8,
    /// MAXR2T: R2Ts the host takes for one command, zero-based.
    pub maxr2t_z: U32,
    /// Reserved.
    pub reserved_16: [u8; 112],
}
assert_bytes!(IcReq, IC_BYTES);

/// DGST bit 0: header digest.
pub const DGST_HEADER: u8 = 1 << 0;
/// DGST bit 1: data digest.
pub const DGST_DATA: u8 = 1 << 1;

/// Initialize Connection Response.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct IcResp {
    /// HLEN = PLEN = 128.
    pub common: CommonHeader,
    /// PFV: 0.
    pub pfv: U16,
    /// CPDA: the data of CapsuleCmd and H2CData start at a multiple of (CPDA + 1) * 4 bytes.
    pub cpda_z: u8,
    /// DGST: what is used, a subset of what the host asked for.
    pub dgst: u8,
    /// MAXH2CDATA: most data bytes in one H2CData.
    pub maxh2cdata: U32,
    /// Reserved.
    pub reserved_16: [u8; 112],
}
assert_bytes!(IcResp, IC_BYTES);

/// Command Capsule; in-capsule data follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CapsuleCmd {
    /// HLEN = 72.
    pub common: CommonHeader,
    /// CCSQE.
    pub sqe: Sqe,
}
assert_bytes!(CapsuleCmd, CAPSULE_CMD_BYTES);

/// Response Capsule.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CapsuleResp {
    /// HLEN = 24.
    pub common: CommonHeader,
    /// RCCQE.
    pub cqe: Cqe,
}
assert_bytes!(CapsuleResp, CAPSULE_RESP_BYTES);

/// Host To Controller Data Transfer; the data follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct H2cData {
    /// HLEN = 24.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub cccid: U16,
    /// TTAG of the R2T that asked for it.
    pub ttag: U16,
    /// DATAO: where the data go, from the command's first data byte; a multiple of 4.
    pub datao: U32,
    /// DATAL: bytes.
    pub datal: U32,
    /// Reserved.
    pub reserved_20: [u8; 4],
}
assert_bytes!(H2cData, DATA_HEADER_BYTES);

/// Controller To Host Data Transfer; the data follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct C2hData {
    /// HLEN = 24.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub cccid: U16,
    /// Reserved.
    pub reserved_10: [u8; 2],
    /// DATAO: where the data go, from the command's first data byte; a multiple of 4.
    pub datao: U32,
    /// DATAL: bytes.
    pub datal: U32,
    /// Reserved.
    pub reserved_20: [u8; 4],
}
assert_bytes!(C2hData, DATA_HEADER_BYTES);

/// Ready to Transfer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct R2t {
    /// HLEN = PLEN (without digest) = 24.
    pub common: CommonHeader,
    /// CCCID: the command's identifier.
    pub cccid: U16,
    /// TTAG: the controller's tag; H2CData bring it back.
    pub ttag: U16,
    /// R2TO: first byte asked for; a multiple of 4.
    pub r2to: U32,
    /// R2TL: bytes asked for.
    pub r2tl: U32,
    /// Reserved.
    pub reserved_20: [u8; 4],
}
assert_bytes!(R2t, DATA_HEADER_BYTES);

/// H2CTermReq and C2HTermReq; the header of the PDU at fault follows as data.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct TermReq {
    /// HLEN = 24; PLEN at most 152. Never a digest.
    pub common: CommonHeader,
    /// FES.
    pub fes: U16,
    /// FEI: what it holds depends on FES: see [`FatalErrorStatus`].
    pub fei: U32,
    /// Reserved.
    pub reserved_14: [u8; 10],
}
assert_bytes!(TermReq, DATA_HEADER_BYTES);

open_enum! {
    /// FES: Fatal Error Status (TCP, "H2CTermReq" and "C2HTermReq").
    pub struct FatalErrorStatus(u16) {
        /// FEI = the byte offset in the header of the field at fault.
        INVALID_PDU_HEADER_FIELD = 0x01,
        /// A PDU that the state does not allow; FEI reserved.
        PDU_SEQUENCE_ERROR = 0x02,
        /// FEI = the digest received.
        HEADER_DIGEST_ERROR = 0x03,
        /// Data beyond the command or the R2T; FEI reserved.
        DATA_TRANSFER_OUT_OF_RANGE = 0x04,
        /// Sent by a controller: data beyond MAXH2CDATA. Sent by a host: more R2Ts than MAXR2T. FEI reserved.
        LIMIT_EXCEEDED = 0x05,
        /// FEI = the byte offset in the header of the parameter.
        UNSUPPORTED_PARAMETER = 0x06,
    }
}

/// Byte offsets of header fields, for FEI.
pub mod offset {
    /// FLAGS of the common header.
    pub const FLAGS: u32 = 1;
    /// HLEN of the common header.
    pub const HLEN: u32 = 2;
    /// PDO of the common header.
    pub const PDO: u32 = 3;
    /// PLEN of the common header.
    pub const PLEN: u32 = 4;
    /// PFV of ICReq and ICResp.
    pub const PFV: u32 = 8;
    /// HPDA of ICReq, CPDA of ICResp.
    pub const PDA: u32 = 10;
    /// DGST of ICReq and ICResp.
    pub const DGST: u32 = 11;
    /// MAXH2CDATA of ICResp.
    pub const MAXH2CDATA: u32 = 12;
    /// CCCID of the data PDUs and R2T.
    pub const CCCID: u32 = 8;
    /// TTAG of H2CData and R2T.
    pub const TTAG: u32 = 10;
    /// DATAO of the data PDUs, R2TO of R2T.
    pub const DATAO: u32 = 12;
    /// DATAL of the data PDUs, R2TL of R2T.
    pub const DATAL: u32 = 16;
}
