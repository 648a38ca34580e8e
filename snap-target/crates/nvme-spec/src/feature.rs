//! Features (Base, "Feature Identifiers").

use crate::open_enum::{assert_bytes, open_enum};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

open_enum! {
    /// FID: CDW10 7:0 of Get and Set Features.
    pub struct FeatureId(u8) {
        /// Arbitration.
        ARBITRATION = 0x01,
        /// Power Management.
        POWER_MANAGEMENT = 0x02,
        /// Temperature Threshold.
        TEMPERATURE_THRESHOLD = 0x04,
        /// Error Recovery (NVM command set; per namespace).
        ERROR_RECOVERY = 0x05,
        /// Volatile Write Cache.
        VOLATILE_WRITE_CACHE = 0x06,
        /// Number of Queues.
        NUMBER_OF_QUEUES = 0x07,
        /// Interrupt Coalescing (PCIe).
        INTERRUPT_COALESCING = 0x08,
        /// Interrupt Vector Configuration (PCIe).
        INTERRUPT_VECTOR_CONFIGURATION = 0x09,
        /// Write Atomicity Normal.
        WRITE_ATOMICITY = 0x0A,
        /// Asynchronous Event Configuration.
        ASYNC_EVENT_CONFIGURATION = 0x0B,
        /// Timestamp.
        TIMESTAMP = 0x0E,
        /// Keep Alive Timer.
        KEEP_ALIVE_TIMER = 0x0F,
        /// Host Behavior Support.
        HOST_BEHAVIOR_SUPPORT = 0x16,
        /// Host Identifier.
        HOST_IDENTIFIER = 0x81,
        /// Reservation Notification Mask (per namespace).
        RESERVATION_NOTIFICATION_MASK = 0x82,
        /// Reservation Persistence (per namespace).
        RESERVATION_PERSISTENCE = 0x83,
        /// Namespace Write Protection Config.
        NAMESPACE_WRITE_PROTECTION = 0x84,
    }
}

/// SEL: CDW10 10:8 of Get Features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// 0: the value in force.
    Current,
    /// 1: the value after a reset without saved values.
    Default,
    /// 2: the saved value; the default where nothing is saveable.
    Saved,
    /// 3: DW0 says what may be done with the feature: see the `CAPABILITY_` constants.
    Capabilities,
}

impl Select {
    /// Reads SEL from CDW10; 4 to 7 are reserved.
    pub fn of_cdw10(cdw10: u32) -> Option<Select> {
        match cdw10 >> 8 & 0b111 {
            0 => Some(Select::Current),
            1 => Some(Select::Default),
            2 => Some(Select::Saved),
            3 => Some(Select::Capabilities),
            _ => None,
        }
    }
}

/// SV: CDW10 bit 31 of Set Features: save the value.
pub const SET_SAVE: u32 = 1 << 31;

/// DW0 of Get Features with SEL = 3: the value can be saved.
pub const CAPABILITY_SAVEABLE: u32 = 1 << 0;
/// DW0 of Get Features with SEL = 3: the value is per namespace.
pub const CAPABILITY_NAMESPACE_SPECIFIC: u32 = 1 << 1;
/// DW0 of Get Features with SEL = 3: the value can be changed.
pub const CAPABILITY_CHANGEABLE: u32 = 1 << 2;

/// Bits of CDW11 of Asynchronous Event Configuration; the same positions stand in Identify Controller's OAES (31:8).
pub mod async_event_configuration {
    /// SMART / health critical warnings (7:0).
    pub const SMART_MASK: u32 = 0xFF;
    /// Attached Namespace Attribute Notices.
    pub const NAMESPACE_ATTRIBUTE_NOTICES: u32 = 1 << 8;
    /// Firmware Activation Notices.
    pub const FIRMWARE_ACTIVATION_NOTICES: u32 = 1 << 9;
    /// Asymmetric Namespace Access Change Notices.
    pub const ANA_CHANGE_NOTICES: u32 = 1 << 11;
    /// Discovery Log Page Change Notification.
    pub const DISCOVERY_LOG_CHANGE_NOTICES: u32 = 1 << 31;
}

/// Host Behavior Support, the data (512 bytes).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct HostBehaviorSupport {
    /// ACRE: the host honours the retry delay of Command Interrupted and others. 0 or 1.
    pub acre: u8,
    /// ETDAS: extended telemetry data area 4. 0 or 1.
    pub etdas: u8,
    /// LBAFEE: extended LBA formats. 0 or 1.
    pub lbafee: u8,
    /// HDISNS: host dispersed namespaces. 0 or 1.
    pub hdisns: u8,
    /// CDFE: copy descriptor formats enabled, a bit each.
    pub cdfe: zerocopy::little_endian::U16,
    /// Reserved.
    pub reserved_6: [u8; 506],
}
assert_bytes!(HostBehaviorSupport, 512);

/// State of Namespace Write Protection Config (CDW11 2:0, and DW0 of Get Features).
pub mod write_protection {
    /// No write protection.
    pub const NONE: u32 = 0;
    /// Write protect, until changed.
    pub const WRITE_PROTECT: u32 = 1;
    /// Write protect until power cycle.
    pub const UNTIL_POWER_CYCLE: u32 = 2;
    /// Permanent write protect.
    pub const PERMANENT: u32 = 3;
}

/// DW0 of an asynchronous event (Base, "Asynchronous Event Request").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent(pub u32);

impl AsyncEvent {
    /// Notice: the namespace attributes changed; the log is Changed Attached Namespace List (04h).
    pub const NAMESPACE_ATTRIBUTE_CHANGED: AsyncEvent = AsyncEvent::new(2, 0x00, 0x04);
    /// Notice: an asymmetric namespace access state changed; the log is 0Ch.
    pub const ANA_CHANGED: AsyncEvent = AsyncEvent::new(2, 0x03, 0x0C);
    /// Notice: the discovery log page changed (70h).
    pub const DISCOVERY_LOG_CHANGED: AsyncEvent = AsyncEvent::new(2, 0xF0, 0x70);
    /// I/O command set specific: a Reservation Notification is available (80h).
    pub const RESERVATION_LOG_AVAILABLE: AsyncEvent = AsyncEvent::new(6, 0x00, 0x80);

    /// From event type (2:0), information (15:8) and log page (23:16).
    pub const fn new(event_type: u8, information: u8, log_page: u8) -> AsyncEvent {
        AsyncEvent(event_type as u32 | (information as u32) << 8 | (log_page as u32) << 16)
    }
}

/// Number of Queues, CDW11 and DW0: submission queues in 15:0, completion queues in 31:16, both zero-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberOfQueues(pub u32);

impl NumberOfQueues {
    /// From both counts, zero-based.
    pub const fn new(submission_z: u16, completion_z: u16) -> NumberOfQueues {
        NumberOfQueues(submission_z as u32 | (completion_z as u32) << 16)
    }

    /// I/O submission queues, zero-based.
    pub const fn submission_z(self) -> u16 {
        (self.0 & 0xFFFF) as u16
    }

    /// I/O completion queues, zero-based.
    pub const fn completion_z(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// Timestamp, the data (8 bytes): milliseconds since 1970 in 48 bits, origin and synch bits above.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Timestamp {
    /// Low 32 bits of the milliseconds.
    pub milliseconds_low: U32,
    /// Next 16 bits.
    pub milliseconds_high: zerocopy::little_endian::U16,
    /// Origin in bits 3:1, synch in bit 0.
    pub attributes: u8,
    /// Reserved.
    pub reserved_7: u8,
}
assert_bytes!(Timestamp, 8);
