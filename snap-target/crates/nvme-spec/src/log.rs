//! Log pages (Base, "Get Log Page command").

use crate::Sqe;
use crate::open_enum::{assert_bytes, open_enum};
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

open_enum! {
    /// LID: CDW10 7:0 of Get Log Page.
    pub struct LogPageId(u8) {
        /// Supported Log Pages.
        SUPPORTED_LOG_PAGES = 0x00,
        /// Error Information.
        ERROR_INFORMATION = 0x01,
        /// SMART / Health Information.
        SMART = 0x02,
        /// Firmware Slot Information.
        FIRMWARE_SLOT = 0x03,
        /// Changed Attached Namespace List.
        CHANGED_NAMESPACES = 0x04,
        /// Commands Supported and Effects.
        COMMANDS_SUPPORTED = 0x05,
        /// Asymmetric Namespace Access.
        ANA = 0x0C,
        /// Feature Identifiers Supported and Effects.
        FEATURES_SUPPORTED = 0x12,
        /// Discovery.
        DISCOVERY = 0x70,
        /// Reservation Notification.
        RESERVATION_NOTIFICATION = 0x80,
    }
}

/// What Get Log Page asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// LID.
    pub id: LogPageId,
    /// LSP: log specific, CDW10 14:8.
    pub lsp: u8,
    /// RAE: do not clear the asynchronous event.
    pub retain_event: bool,
    /// Bytes asked for: (NUMD + 1) * 4, up to 16 GiB.
    pub bytes: u64,
    /// LPO in bytes, or in entries where [`GetLogPage::offset_is_index`].
    pub offset: u64,
    /// OT: the offset is an index of entries.
    pub offset_is_index: bool,
    /// UUID index: CDW14 6:0.
    pub uuid_index: u8,
    /// CSI: CDW14 31:24.
    pub csi: u8,
}

impl GetLogPage {
    /// Reads CDW10 to CDW14.
    #[expect(clippy::cast_possible_truncation, reason = "fields of 8 bits and less")]
    pub fn of(sqe: &Sqe) -> GetLogPage {
        let (cdw10, cdw11, cdw14) = (sqe.cdw10.get(), sqe.cdw11.get(), sqe.cdw14.get());
        let numd_z = u64::from(cdw11 & 0xFFFF) << 16 | u64::from(cdw10 >> 16);
        GetLogPage {
            id: LogPageId(cdw10 as u8),
            lsp: (cdw10 >> 8 & 0x7F) as u8,
            retain_event: cdw10 & (1 << 15) != 0,
            bytes: (numd_z + 1) * 4,
            offset: u64::from(sqe.cdw13.get()) << 32 | u64::from(sqe.cdw12.get()),
            offset_is_index: cdw14 & (1 << 23) != 0,
            uuid_index: (cdw14 & 0x7F) as u8,
            csi: (cdw14 >> 24) as u8,
        }
    }
}

/// Bytes of the Supported Log Pages log, and of Feature Identifiers Supported and Effects: 256 entries of 4 bytes.
pub const SUPPORTED_LOG_BYTES: usize = 1024;
/// Entry of Supported Log Pages: LSUPP.
pub const LOG_SUPPORTED: u32 = 1 << 0;

/// Entry of the Error Information log (64 bytes), newest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ErrorInformation {
    /// Error Count: which error it is, from 1 and on over power cycles; 0 = no entry.
    pub error_count: U64,
    /// SQID; FFFFh where no queue applies.
    pub sqid: U16,
    /// CID; FFFFh where no command applies.
    pub cid: U16,
    /// The completion's status in 15:1, its phase in 0.
    pub status_and_phase: U16,
    /// Parameter error location: byte in 7:0, bit in 10:8; FFFFh where none applies.
    pub parameter_error_location: U16,
    /// First LBA that failed.
    pub lba: U64,
    /// NSID.
    pub nsid: U32,
    /// Vendor specific information: none.
    pub vendor_log_page: u8,
    /// TRTYPE of the command's transport.
    pub trtype: u8,
    /// CSI of the command.
    pub csi: u8,
    /// Opcode of the command.
    pub opcode: u8,
    /// Command specific.
    pub command_specific: U64,
    /// Transport specific.
    pub transport_specific: U16,
    /// Reserved.
    pub reserved_42: [u8; 21],
    /// Log page version: 1 says that CSI and opcode are valid.
    pub version: u8,
}
assert_bytes!(ErrorInformation, 64);

/// SMART / Health Information (512 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct SmartLog {
    /// Critical warning bits.
    pub critical_warning: u8,
    /// Kelvin.
    pub composite_temperature_k: U16,
    /// Per cent.
    pub available_spare: u8,
    /// Per cent.
    pub available_spare_threshold: u8,
    /// Per cent.
    pub percentage_used: u8,
    /// Endurance group critical warnings.
    pub endurance_group_warning: u8,
    /// Reserved.
    pub reserved_7: [u8; 25],
    /// In thousands of 512 bytes, rounded up.
    pub data_units_read: U128,
    /// In thousands of 512 bytes, rounded up.
    pub data_units_written: U128,
    /// Read and Compare commands.
    pub host_read_commands: U128,
    /// Write commands.
    pub host_write_commands: U128,
    /// Minutes.
    pub controller_busy_minutes: U128,
    /// Power cycles.
    pub power_cycles: U128,
    /// Hours.
    pub power_on_hours: U128,
    /// Shutdowns without notice.
    pub unsafe_shutdowns: U128,
    /// Data integrity errors.
    pub media_errors: U128,
    /// Entries ever made in the Error Information log.
    pub error_log_entries: U128,
    /// Minutes.
    pub warning_temperature_minutes: U32,
    /// Minutes.
    pub critical_temperature_minutes: U32,
    /// Kelvin; 0 = no such sensor.
    pub temperature_sensors_k: [U16; 8],
    /// Thermal management.
    pub thermal_transitions: [U32; 2],
    /// Thermal management, seconds.
    pub thermal_seconds: [U32; 2],
    /// Reserved.
    pub reserved_232: [u8; 280],
}
assert_bytes!(SmartLog, 512);

/// Firmware Slot Information (512 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// AFI: active slot in 2:0.
    pub active_slot: u8,
    /// Reserved.
    pub reserved_1: [u8; 7],
    /// Revisions of slots 1 to 7, ASCII.
    pub revisions: [[u8; 8]; 7],
    /// Reserved.
    pub reserved_64: [u8; 448],
}
assert_bytes!(FirmwareSlotLog, 512);

/// Commands Supported and Effects (4096 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct CommandsSupportedLog {
    /// By admin opcode.
    pub admin: [U32; 256],
    /// By I/O opcode.
    pub io: [U32; 256],
    /// Reserved.
    pub reserved_2048: [u8; 2048],
}
assert_bytes!(CommandsSupportedLog, 4096);

/// Bits of an entry of [`CommandsSupportedLog`].
pub mod command_effect {
    /// CSUPP: supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// LBCC: may change logical block content.
    pub const LOGICAL_BLOCK_CONTENT_CHANGE: u32 = 1 << 1;
}

/// Bits of an entry of Feature Identifiers Supported and Effects.
pub mod feature_effect {
    /// FSUPP: supported.
    pub const SUPPORTED: u32 = 1 << 0;
    /// NIC: changes namespace attributes.
    pub const NAMESPACE_INVENTORY_CHANGE: u32 = 1 << 3;
    /// FSP: scope is one namespace.
    pub const SCOPE_NAMESPACE: u32 = 1 << 20;
    /// FSP: scope is the controller.
    pub const SCOPE_CONTROLLER: u32 = 1 << 21;
}

/// Header of the Asymmetric Namespace Access log; group descriptors follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AnaLogHeader {
    /// Changes with the content.
    pub change_count: U64,
    /// Groups that follow.
    pub groups: U16,
    /// Reserved.
    pub reserved_10: [u8; 6],
}
assert_bytes!(AnaLogHeader, 16);

/// Group descriptor of the Asymmetric Namespace Access log; the NSIDs follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AnaGroup {
    /// ANAGRPID.
    pub group_id: U32,
    /// NSIDs that follow.
    pub namespaces: U32,
    /// Changes with the group.
    pub change_count: U64,
    /// 1 optimized, 2 non-optimized, 3 inaccessible, 4 persistent loss, Fh change.
    pub state: u8,
    /// Reserved.
    pub reserved_17: [u8; 15],
}
assert_bytes!(AnaGroup, 32);

#[cfg(test)]
mod tests {
    use super::*;

    /// Base, "Get Log Page: Command Dword 10 and 11": NUMD is NUMDU << 16 | NUMDL and zero-based.
    #[test]
    fn largest_numd_does_not_overflow() {
        let mut sqe = Sqe::ZERO;
        sqe.cdw10 = U32::new(0xFFFF_8170);
        sqe.cdw11 = U32::new(0xFFFF_FFFF);
        sqe.cdw12 = U32::new(0x89AB_CDEC);
        sqe.cdw13 = U32::new(0x0123_4567);
        let ask = GetLogPage::of(&sqe);
        assert_eq!(ask.bytes, 1 << 34);
        assert_eq!(ask.id, LogPageId::DISCOVERY);
        assert_eq!((ask.lsp, ask.retain_event), (1, true));
        assert_eq!(ask.offset, 0x0123_4567_89AB_CDEC);
    }
}
