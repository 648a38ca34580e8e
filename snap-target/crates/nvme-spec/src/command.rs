//! The submission queue entry, its data pointer, and the opcodes.

use crate::open_enum::{assert_bytes, open_enum};
use crate::{Cid, Lba, Nsid};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a submission queue entry.
pub const SQE_BYTES: usize = 64;

/// Submission queue entry (Base, "Common Command Format").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Sqe {
    /// CDW0 7:0. Its meaning depends on the queue: see [`AdminOpcode`] and [`IoOpcode`].
    pub opcode: u8,
    /// CDW0 15:8: FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// CDW0 31:16.
    pub cid: U16,
    /// Namespace; for fabrics commands the low byte is FCTYPE.
    pub nsid: U32,
    /// Command specific.
    pub cdw2: U32,
    /// Command specific.
    pub cdw3: U32,
    /// Metadata pointer; reserved on fabrics.
    pub mptr: U64,
    /// Data pointer. On fabrics always an SGL descriptor.
    pub dptr: SglDescriptor,
    /// Command specific.
    pub cdw10: U32,
    /// Command specific.
    pub cdw11: U32,
    /// Command specific.
    pub cdw12: U32,
    /// Command specific.
    pub cdw13: U32,
    /// Command specific.
    pub cdw14: U32,
    /// Command specific.
    pub cdw15: U32,
}
assert_bytes!(Sqe, SQE_BYTES);

impl Sqe {
    /// An entry of zeros: opcode 00h is Flush on an I/O queue, Delete I/O SQ on an admin queue.
    pub const ZERO: Sqe = Sqe {
        opcode: 0,
        flags: 0,
        cid: U16::ZERO,
        nsid: U32::ZERO,
        cdw2: U32::ZERO,
        cdw3: U32::ZERO,
        mptr: U64::ZERO,
        dptr: SglDescriptor::EMPTY,
        cdw10: U32::ZERO,
        cdw11: U32::ZERO,
        cdw12: U32::ZERO,
        cdw13: U32::ZERO,
        cdw14: U32::ZERO,
        cdw15: U32::ZERO,
    };

    /// The command identifier.
    pub fn cid(&self) -> Cid {
        Cid(self.cid.get())
    }

    /// The namespace identifier.
    pub fn nsid(&self) -> Nsid {
        Nsid(self.nsid.get())
    }

    /// FUSE: 0 = not fused, 1 = first, 2 = second, 3 = reserved.
    pub fn fuse(&self) -> u8 {
        self.flags & 0b11
    }

    /// PSDT: 0 = PRP, 1 = SGL with a contiguous metadata buffer, 2 = SGL with a metadata SGL, 3 = reserved.
    pub fn psdt(&self) -> u8 {
        self.flags >> 6
    }

    /// Which way the data go, from bits 1:0 of the opcode, or of FCTYPE for fabrics commands (Base, "Opcodes").
    pub fn direction(&self) -> Direction {
        let code = if self.opcode == AdminOpcode::FABRICS.0 {
            self.fctype()
        } else {
            self.opcode
        };
        Direction::of_code(code)
    }

    /// FCTYPE of a fabrics command: byte 4.
    pub fn fctype(&self) -> u8 {
        self.nsid.to_bytes()[0]
    }

    /// SLBA of the NVM command set's range commands: CDW10 and CDW11.
    pub fn slba(&self) -> Lba {
        Lba(u64::from(self.cdw11.get()) << 32 | u64::from(self.cdw10.get()))
    }

    /// Sets SLBA.
    #[expect(clippy::cast_possible_truncation, reason = "two halves of one number")]
    pub fn set_slba(&mut self, lba: Lba) {
        self.cdw10 = U32::new(lba.0 as u32);
        self.cdw11 = U32::new((lba.0 >> 32) as u32);
    }

    /// NLB of the NVM command set's range commands, zero-based: CDW12 15:0.
    pub fn nlb_z(&self) -> u16 {
        let [low, high, _, _] = self.cdw12.to_bytes();
        u16::from_le_bytes([low, high])
    }

    /// FUA: CDW12 bit 30 of Read, Write, Compare and so on.
    pub fn fua(&self) -> bool {
        self.cdw12.get() & (1 << 30) != 0
    }

    /// Sets FUA.
    pub fn set_fua(&mut self) {
        self.cdw12 = U32::new(self.cdw12.get() | 1 << 30);
    }

    /// LR, limited retry: CDW12 bit 31.
    pub fn limited_retry(&self) -> bool {
        self.cdw12.get() & (1 << 31) != 0
    }

    /// PRINFO: CDW12 29:26 (PRACT and PRCHK).
    pub fn prinfo(&self) -> u8 {
        self.cdw12.to_bytes()[3] >> 2 & 0xF
    }

    /// PRP entry 2: the second half of the data pointer, where PSDT says PRP.
    pub fn prp2(&self) -> u64 {
        u64::from(self.dptr.length.get())
            | u64::from(u32::from_le_bytes([
                self.dptr.reserved_12[0],
                self.dptr.reserved_12[1],
                self.dptr.reserved_12[2],
                self.dptr.id,
            ])) << 32
    }
}

/// Which way a command's data go (Base, "Opcodes": bits 1:0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// 00b: no data.
    None,
    /// 01b: host to controller.
    HostToController,
    /// 10b: controller to host.
    ControllerToHost,
    /// 11b: both ways; no command of ours does that.
    Bidirectional,
}

impl Direction {
    /// Reads bits 1:0 of an opcode or FCTYPE.
    pub fn of_code(code: u8) -> Direction {
        match code & 0b11 {
            0b00 => Direction::None,
            0b01 => Direction::HostToController,
            0b10 => Direction::ControllerToHost,
            _ => Direction::Bidirectional,
        }
    }
}

/// SGL descriptor (Base, "Scatter Gather List (SGL)"; TCP, "Data Transfers").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SglDescriptor {
    /// Address; for an offset descriptor, the offset of the data in the capsule.
    pub address: U64,
    /// Bytes.
    pub length: U32,
    /// Reserved.
    pub reserved_12: [u8; 3],
    /// Type in bits 7:4, sub type in bits 3:0: see [`SglId`].
    pub id: u8,
}
assert_bytes!(SglDescriptor, 16);

impl SglDescriptor {
    /// A data block of length 0.
    pub const EMPTY: SglDescriptor = SglDescriptor {
        address: U64::ZERO,
        length: U32::ZERO,
        reserved_12: [0; 3],
        id: 0,
    };

    /// Data that travel as PDUs of the transport: what NVMe/TCP uses outside of the capsule.
    pub fn transport(bytes: u32) -> SglDescriptor {
        SglDescriptor {
            length: U32::new(bytes),
            id: SglId::TRANSPORT_DATA_BLOCK.0,
            ..SglDescriptor::EMPTY
        }
    }

    /// Data inside the capsule, `offset` bytes after ICDOFF.
    pub fn in_capsule(offset: u64, bytes: u32) -> SglDescriptor {
        SglDescriptor {
            address: U64::new(offset),
            length: U32::new(bytes),
            id: SglId::IN_CAPSULE_OFFSET.0,
            ..SglDescriptor::EMPTY
        }
    }

    /// Type and sub type.
    pub fn id(&self) -> SglId {
        SglId(self.id)
    }
}

open_enum! {
    /// SGL descriptor type (bits 7:4) and sub type (bits 3:0) as one byte.
    pub struct SglId(u8) {
        /// Data block with an address.
        DATA_BLOCK = 0x00,
        /// Data block with an offset into the capsule.
        IN_CAPSULE_OFFSET = 0x01,
        /// More descriptors, which are not the last (PCIe).
        SEGMENT = 0x20,
        /// The last descriptors (PCIe).
        LAST_SEGMENT = 0x30,
        /// Keyed data block (RDMA).
        KEYED_DATA_BLOCK = 0x40,
        /// Keyed data block, invalidate the key afterwards (RDMA).
        KEYED_DATA_BLOCK_INVALIDATE = 0x4F,
        /// Transport data block, sub type Ah: the data go as the transport's own PDUs (TCP).
        TRANSPORT_DATA_BLOCK = 0x5A,
    }
}

open_enum! {
    /// Opcodes of the admin queue (Base, "Admin Command Set").
    pub struct AdminOpcode(u8) {
        /// Delete I/O Submission Queue (PCIe).
        DELETE_IO_SQ = 0x00,
        /// Create I/O Submission Queue (PCIe).
        CREATE_IO_SQ = 0x01,
        /// Get Log Page.
        GET_LOG_PAGE = 0x02,
        /// Delete I/O Completion Queue (PCIe).
        DELETE_IO_CQ = 0x04,
        /// Create I/O Completion Queue (PCIe).
        CREATE_IO_CQ = 0x05,
        /// Identify.
        IDENTIFY = 0x06,
        /// Abort.
        ABORT = 0x08,
        /// Set Features.
        SET_FEATURES = 0x09,
        /// Get Features.
        GET_FEATURES = 0x0A,
        /// Asynchronous Event Request.
        ASYNC_EVENT_REQUEST = 0x0C,
        /// Namespace Management.
        NAMESPACE_MANAGEMENT = 0x0D,
        /// Firmware Commit.
        FIRMWARE_COMMIT = 0x10,
        /// Firmware Image Download.
        FIRMWARE_DOWNLOAD = 0x11,
        /// Device Self-test.
        DEVICE_SELF_TEST = 0x14,
        /// Namespace Attachment.
        NAMESPACE_ATTACHMENT = 0x15,
        /// Keep Alive.
        KEEP_ALIVE = 0x18,
        /// Directive Send.
        DIRECTIVE_SEND = 0x19,
        /// Directive Receive.
        DIRECTIVE_RECEIVE = 0x1A,
        /// Doorbell Buffer Config (PCIe).
        DOORBELL_BUFFER_CONFIG = 0x7C,
        /// Fabrics commands: FCTYPE says which.
        FABRICS = 0x7F,
        /// Format NVM.
        FORMAT_NVM = 0x80,
        /// Security Send.
        SECURITY_SEND = 0x81,
        /// Security Receive.
        SECURITY_RECEIVE = 0x82,
        /// Sanitize.
        SANITIZE = 0x84,
    }
}

open_enum! {
    /// Opcodes of an I/O queue, NVM command set (NVM, "Opcodes for NVM Commands").
    pub struct IoOpcode(u8) {
        /// Flush.
        FLUSH = 0x00,
        /// Write.
        WRITE = 0x01,
        /// Read.
        READ = 0x02,
        /// Write Uncorrectable.
        WRITE_UNCORRECTABLE = 0x04,
        /// Compare.
        COMPARE = 0x05,
        /// Write Zeroes.
        WRITE_ZEROES = 0x08,
        /// Dataset Management.
        DATASET_MANAGEMENT = 0x09,
        /// Verify.
        VERIFY = 0x0C,
        /// Reservation Register.
        RESERVATION_REGISTER = 0x0D,
        /// Reservation Report.
        RESERVATION_REPORT = 0x0E,
        /// Reservation Acquire.
        RESERVATION_ACQUIRE = 0x11,
        /// Cancel.
        CANCEL = 0x18,
        /// Reservation Release.
        RESERVATION_RELEASE = 0x15,
        /// Copy.
        COPY = 0x19,
        /// Fabrics commands (Connect of an I/O queue, Disconnect).
        FABRICS = 0x7F,
    }
}
