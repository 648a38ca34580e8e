//! Fields and data structures of the NVM command set's commands (NVM, "NVM Command Set Commands").

use crate::open_enum::assert_bytes;
use crate::{Lba, Nsid, Sqe};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most ranges of one Dataset Management command: NR is 8 bits, zero-based.
pub const DATASET_RANGES_MAX: u32 = 256;

/// Attributes of Dataset Management: CDW11.
pub mod dataset_attribute {
    /// IDR: an integral dataset for read.
    pub const INTEGRAL_READ: u32 = 1 << 0;
    /// IDW: an integral dataset for write.
    pub const INTEGRAL_WRITE: u32 = 1 << 1;
    /// AD: deallocate.
    pub const DEALLOCATE: u32 = 1 << 2;
}

/// DEAC of Write Zeroes, CDW12 bit 25: deallocate the blocks.
const DEALLOCATE: u32 = 1 << 25;

impl Sqe {
    /// NR of Dataset Management (CDW10 7:0) as a count: 1 to 256.
    pub fn dataset_ranges(&self) -> u16 {
        u16::from(self.cdw10.to_bytes()[0]) + 1
    }

    /// NR of Copy (CDW12 7:0) as a count: 1 to 256.
    pub fn copy_ranges(&self) -> u16 {
        u16::from(self.cdw12.to_bytes()[0]) + 1
    }

    /// Descriptor format of Copy: CDW12 11:8.
    pub fn copy_format(&self) -> u8 {
        self.cdw12.to_bytes()[1] & 0xF
    }

    /// DTYPE of Write, Write Uncorrectable and Copy: CDW12 23:20.
    pub fn directive_type(&self) -> u8 {
        self.cdw12.to_bytes()[2] >> 4
    }

    /// DEAC of Write Zeroes.
    pub fn deallocates(&self) -> bool {
        self.cdw12.get() & DEALLOCATE != 0
    }

    /// Sets DEAC of Write Zeroes.
    pub fn set_deallocates(&mut self) {
        self.cdw12 = U32::new(self.cdw12.get() | DEALLOCATE);
    }
}

/// A range of Dataset Management (16 bytes; NVM, "Dataset Management: Range Definition").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct DatasetRange {
    /// Context attributes: hints.
    pub context_attributes: U32,
    /// Length in blocks; 0 = the range is empty.
    pub blocks: U32,
    /// First block.
    pub slba: U64,
}
assert_bytes!(DatasetRange, 16);

/// Bytes of one [`DatasetRange`].
pub const DATASET_RANGE_BYTES: u32 = 16;

/// A source range of Copy (32 bytes), descriptor formats 0h and 2h (NVM, "Copy: Source Range Entries").
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CopyRange {
    /// SNSID: namespace of the source; format 2h only, reserved in 0h.
    pub snsid: U32,
    /// Reserved.
    pub reserved_4: [u8; 4],
    /// First block.
    pub slba: U64,
    /// NLB, zero-based.
    pub nlb_z: U16,
    /// Reserved.
    pub reserved_18: [u8; 4],
    /// SOPT: source options; format 2h only.
    pub sopt: U16,
    /// Expected initial reference tag.
    pub eilbrt: U32,
    /// Expected application tag.
    pub elbat: U16,
    /// Expected application tag mask.
    pub elbatm: U16,
}
assert_bytes!(CopyRange, 32);

/// Bytes of one [`CopyRange`].
pub const COPY_RANGE_BYTES: u32 = 32;

impl CopyRange {
    /// A source without protection information. `blocks` is a count, 1 to 65,536.
    pub fn new(snsid: Nsid, slba: Lba, blocks: u32) -> CopyRange {
        let mut range = CopyRange::new_zeroed();
        range.snsid = U32::new(snsid.0);
        range.slba = U64::new(slba.0);
        range.nlb_z = U16::new((blocks.wrapping_sub(1) & 0xFFFF) as u16);
        range
    }

    /// Blocks, as a count.
    pub fn blocks(&self) -> u32 {
        u32::from(self.nlb_z.get()) + 1
    }
}

/// Bits of ONCS (Identify Controller).
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Write Uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// Dataset Management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Save in Set Features and Select in Get Features are understood.
    pub const SAVE_SELECT: u16 = 1 << 4;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// Timestamp.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Copy.
    pub const COPY: u16 = 1 << 8;
}

/// FUSES bit 0: Compare and Write.
pub const FUSES_COMPARE_AND_WRITE: u16 = 1 << 0;

/// Bits of DLFEAT (Identify Namespace).
pub mod dlfeat {
    /// 2:0 = 001b: deallocated blocks read as zeros.
    pub const READS_ZEROS: u8 = 0b001;
    /// Bit 3: Write Zeroes takes DEAC.
    pub const WRITE_ZEROES_DEALLOCATES: u8 = 1 << 3;
}

/// The bit of a Copy descriptor format in OCFS, and in CDFE of Host Behavior Support.
pub const fn copy_format_bit(format: u8) -> u16 {
    1 << (format & 0xF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NVM, "Copy: Source Range Entries Descriptor Format 2h": SLBA at 8, NLB at 16, SOPT at 22.
    #[test]
    fn copy_ranges_stand_where_the_specification_puts_them() {
        let range = CopyRange::new(Nsid(0x0403_0201), Lba(0x0F0E_0D0C_0B0A_0908), 0x1112);
        let bytes = range.as_bytes();
        assert_eq!(bytes[..8], [1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(bytes[8..18], [8, 9, 10, 11, 12, 13, 14, 15, 0x11, 0x11]);
        assert!(bytes[18..].iter().all(|&byte| byte == 0));
        assert_eq!(range.blocks(), 0x1112);
        assert_eq!(CopyRange::new(Nsid(1), Lba(0), 65536).blocks(), 65536);
    }

    /// NVM, "Copy: Command Dword 12", "Write Zeroes: Command Dword 12", "Dataset Management: Command Dword 10".
    #[test]
    fn fields_of_the_command_are_read_from_their_bits() {
        let mut sqe = Sqe::ZERO;
        sqe.cdw10 = U32::new(0xABCD_EFFF);
        sqe.cdw12 = U32::new(0x0073_027F);
        assert_eq!(sqe.dataset_ranges(), 256);
        assert_eq!((sqe.copy_ranges(), sqe.copy_format()), (128, 2));
        assert_eq!(sqe.directive_type(), 7);
        assert!(!sqe.deallocates());
        sqe.set_deallocates();
        assert_eq!(sqe.cdw12.get(), 0x0273_027F);
        assert!(sqe.deallocates() && !sqe.fua());
    }
}
