//! The completion queue entry.

use crate::open_enum::assert_bytes;
use crate::{Cid, Status};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Completion queue entry (Base, "Common Completion Queue Entry Format").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// Command specific.
    pub dw0: U32,
    /// Command specific (64-bit results of Property Get and so on).
    pub dw1: U32,
    /// Submission queue head pointer; FFFFh where the queue runs without flow control (Base, "Submission Queue Flow Control Negotiation").
    pub sqhd: U16,
    /// Submission queue identifier; reserved on fabrics.
    pub sqid: U16,
    /// Command identifier.
    pub cid: U16,
    /// Phase tag in bit 0 (reserved on fabrics), status in bits 15:1.
    pub status_and_phase: U16,
}
assert_bytes!(Cqe, 16);

impl Cqe {
    /// The value of SQHD that says "no flow control".
    pub const SQHD_FLOW_CONTROL_DISABLED: u16 = 0xFFFF;

    /// The command identifier.
    pub fn cid(&self) -> Cid {
        Cid(self.cid.get())
    }

    /// The status, without the phase tag.
    pub fn status(&self) -> Status {
        Status::from_wire(self.status_and_phase.get())
    }

    /// DW0 and DW1 as one number.
    pub fn result(&self) -> u64 {
        u64::from(self.dw1.get()) << 32 | u64::from(self.dw0.get())
    }
}
