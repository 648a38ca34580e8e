//! Reservations (Base, "Reservations", "Reservation Register command" and its neighbours).

use crate::open_enum::{assert_bytes, open_enum};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

open_enum! {
    /// RTYPE: CDW10 15:8 of Reservation Acquire and Release, and a field of the Reservation Status structure, where 0 = no reservation.
    pub struct ReservationType(u8) {
        /// Write Exclusive.
        WRITE_EXCLUSIVE = 1,
        /// Exclusive Access.
        EXCLUSIVE_ACCESS = 2,
        /// Write Exclusive - Registrants Only.
        WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 3,
        /// Exclusive Access - Registrants Only.
        EXCLUSIVE_ACCESS_REGISTRANTS_ONLY = 4,
        /// Write Exclusive - All Registrants.
        WRITE_EXCLUSIVE_ALL_REGISTRANTS = 5,
        /// Exclusive Access - All Registrants.
        EXCLUSIVE_ACCESS_ALL_REGISTRANTS = 6,
    }
}

open_enum! {
    /// RREGA: CDW10 2:0 of Reservation Register.
    pub struct RegisterAction(u8) {
        /// Register a key.
        REGISTER = 0,
        /// Unregister.
        UNREGISTER = 1,
        /// Replace the key.
        REPLACE = 2,
    }
}

open_enum! {
    /// RACQA: CDW10 2:0 of Reservation Acquire.
    pub struct AcquireAction(u8) {
        /// Acquire.
        ACQUIRE = 0,
        /// Preempt.
        PREEMPT = 1,
        /// Preempt, and end the commands of those who were preempted.
        PREEMPT_AND_ABORT = 2,
    }
}

open_enum! {
    /// RRELA: CDW10 2:0 of Reservation Release.
    pub struct ReleaseAction(u8) {
        /// Release.
        RELEASE = 0,
        /// Clear: the reservation and every registration.
        CLEAR = 1,
    }
}

open_enum! {
    /// CPTPL: CDW10 31:30 of Reservation Register.
    pub struct ChangePersistence(u8) {
        /// Leave the state as it is.
        NO_CHANGE = 0,
        /// PTPL = 0: lost with power.
        CLEAR = 2,
        /// PTPL = 1: survives the loss of power.
        SET = 3,
    }
}

/// IEKEY: CDW10 bit 3 of Register, Acquire and Release.
pub const IGNORE_EXISTING_KEY: u32 = 1 << 3;
/// EDS: CDW11 bit 0 of Reservation Report.
pub const EXTENDED_DATA_STRUCTURE: u32 = 1 << 0;
/// CNTLID of a registrant where controllers are dynamic.
pub const REGISTRANT_CNTLID_DYNAMIC: u16 = 0xFFFF;
/// RCSTS bit 0: this registrant holds the reservation.
pub const RCSTS_HOLDS: u8 = 1 << 0;

/// Data of Reservation Register (16 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RegisterData {
    /// CRKEY.
    pub current_key: U64,
    /// NRKEY.
    pub new_key: U64,
}
assert_bytes!(RegisterData, 16);

/// Data of Reservation Acquire (16 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct AcquireData {
    /// CRKEY.
    pub current_key: U64,
    /// PRKEY.
    pub preempt_key: U64,
}
assert_bytes!(AcquireData, 16);

/// Data of Reservation Release (8 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReleaseData {
    /// CRKEY.
    pub current_key: U64,
}
assert_bytes!(ReleaseData, 8);

/// Header of the Extended Reservation Status data structure (64 bytes); REGCTL entries follow.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReservationStatus {
    /// GEN.
    pub generation: U32,
    /// RTYPE; 0 = no reservation.
    pub rtype: u8,
    /// REGCTL: registrants.
    pub registrants: U16,
    /// Reserved.
    pub reserved_7: [u8; 2],
    /// PTPLS: 1 = survives the loss of power.
    pub ptpls: u8,
    /// Reserved.
    pub reserved_10: [u8; 54],
}
assert_bytes!(ReservationStatus, 64);

/// Registered Controller Extended data structure (64 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct RegisteredController {
    /// CNTLID: see [`REGISTRANT_CNTLID_DYNAMIC`].
    pub cntlid: U16,
    /// RCSTS: see [`RCSTS_HOLDS`].
    pub rcsts: u8,
    /// Reserved.
    pub reserved_3: [u8; 5],
    /// RKEY.
    pub key: U64,
    /// HOSTID.
    pub host_id: [u8; 16],
    /// Reserved.
    pub reserved_32: [u8; 32],
}
assert_bytes!(RegisteredController, 64);

open_enum! {
    /// What a Reservation Notification tells.
    pub struct NotificationType(u8) {
        /// There is no notification.
        EMPTY = 0,
        /// The host is no registrant any more.
        REGISTRATION_PREEMPTED = 1,
        /// The reservation was released.
        RESERVATION_RELEASED = 2,
        /// The reservation was cleared, and every registration.
        RESERVATION_PREEMPTED = 3,
    }
}

/// Reservation Notification log page (80h; 64 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct ReservationNotification {
    /// Log page count: rises with each notification, lost ones too; 0 = no notification.
    pub count: U64,
    /// See [`NotificationType`].
    pub notification_type: u8,
    /// Pages that wait besides this one; 255 = as many or more.
    pub available: u8,
    /// Reserved.
    pub reserved_10: [u8; 2],
    /// NSID.
    pub nsid: U32,
    /// Reserved.
    pub reserved_16: [u8; 48],
}
assert_bytes!(ReservationNotification, 64);

/// Bits of RESCAP in Identify Namespace.
pub mod rescap {
    /// Reservations can survive the loss of power.
    pub const PERSIST_THROUGH_POWER_LOSS: u8 = 1 << 0;
    /// The six types.
    pub const ALL_TYPES: u8 = 0b0111_1110;
    /// IEKEY means what it means since revision 1.3.
    pub const IGNORE_EXISTING_KEY_1_3: u8 = 1 << 7;
}

/// Bits of Reservation Notification Mask (feature 82h): 1 = such a notification is not made.
pub mod notification_mask {
    /// REGPRE.
    pub const REGISTRATION_PREEMPTED: u32 = 1 << 1;
    /// RESREL.
    pub const RESERVATION_RELEASED: u32 = 1 << 2;
    /// RESPRE.
    pub const RESERVATION_PREEMPTED: u32 = 1 << 3;
    /// All of them.
    pub const ALL: u32 = REGISTRATION_PREEMPTED | RESERVATION_RELEASED | RESERVATION_PREEMPTED;
}
