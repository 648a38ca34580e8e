//! Status values (Base, "Status Field Definition" and "Status Code").

use core::fmt;

/// A completion's status, without the phase tag: SC in bits 7:0, SCT in bits 10:8, CRD in bits 12:11, M (more) in bit 13,
/// DNR (do not retry) in bit 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

const CRD_SHIFT: u16 = 11;
const CRD_MASK: u16 = 0b11 << CRD_SHIFT;
const MORE: u16 = 1 << 13;
const DNR: u16 = 1 << 14;
const CODE_MASK: u16 = 0x7FF;

impl Status {
    /// From status code type and status code.
    pub const fn new(sct: u8, sc: u8) -> Status {
        Status((sct as u16 & 0b111) << 8 | sc as u16)
    }

    /// From the completion's last word: drops the phase tag.
    pub const fn from_wire(word: u16) -> Status {
        Status(word >> 1)
    }

    /// The completion's last word, phase tag 0.
    pub const fn to_wire(self) -> u16 {
        self.0 << 1
    }

    /// Status code type: 0 generic, 1 command specific, 2 media and data integrity, 3 path related, 7 vendor specific.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8 & 0b111) as u8
    }

    /// Status code.
    pub const fn sc(self) -> u8 {
        (self.0 & 0xFF) as u8
    }

    /// Command retry delay: 0 = none, n = the time in CRDTn of Identify Controller.
    pub const fn retry_delay(self) -> u8 {
        ((self.0 & CRD_MASK) >> CRD_SHIFT) as u8
    }

    /// With the retry delay `crd` (1 to 3).
    pub const fn with_retry_delay(self, crd: u8) -> Status {
        Status(self.0 & !CRD_MASK | (crd as u16) << CRD_SHIFT & CRD_MASK)
    }

    /// DNR: the same command will fail again.
    pub const fn do_not_retry(self) -> bool {
        self.0 & DNR != 0
    }

    /// With DNR set.
    pub const fn dnr(self) -> Status {
        Status(self.0 | DNR)
    }

    /// M: the Error Information log has more.
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// With M set.
    pub const fn with_more(self) -> Status {
        Status(self.0 | MORE)
    }

    /// Type and code alone: for comparisons that ignore DNR, M and CRD.
    pub const fn code(self) -> Status {
        Status(self.0 & CODE_MASK)
    }

    /// Successful completion.
    pub const fn is_success(self) -> bool {
        self.0 & CODE_MASK == 0
    }
}

macro_rules! statuses {
    ($($(#[$meta:meta])* $name:ident = ($sct:expr, $sc:expr), $text:expr;)*) => {
        impl Status {
            $($(#[$meta])* #[doc = concat!($text, ".")] pub const $name: Status = Status::new($sct, $sc);)*

            /// The specification's name of the code, where it is one of those listed here.
            pub const fn name(self) -> Option<&'static str> {
                match (self.sct(), self.sc()) {
                    $(($sct, $sc) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

// Names are the specification's. Type 1 codes from 80h are shared: by fabrics commands and by the NVM command set; the
// fabrics ones come first, those of I/O commands have constants below without a name of their own.
statuses! {
    SUCCESS = (0, 0x00), "Successful Completion";
    INVALID_OPCODE = (0, 0x01), "Invalid Command Opcode";
    INVALID_FIELD = (0, 0x02), "Invalid Field in Command";
    COMMAND_ID_CONFLICT = (0, 0x03), "Command ID Conflict";
    DATA_TRANSFER_ERROR = (0, 0x04), "Data Transfer Error";
    ABORTED_POWER_LOSS = (0, 0x05), "Commands Aborted due to Power Loss Notification";
    INTERNAL_ERROR = (0, 0x06), "Internal Error";
    ABORT_REQUESTED = (0, 0x07), "Command Abort Requested";
    ABORTED_SQ_DELETION = (0, 0x08), "Command Aborted due to SQ Deletion";
    FUSED_FAILED = (0, 0x09), "Command Aborted due to Failed Fused Command";
    FUSED_MISSING = (0, 0x0A), "Command Aborted due to Missing Fused Command";
    INVALID_NAMESPACE = (0, 0x0B), "Invalid Namespace or Format";
    COMMAND_SEQUENCE_ERROR = (0, 0x0C), "Command Sequence Error";
    INVALID_SGL_SEGMENT = (0, 0x0D), "Invalid SGL Segment Descriptor";
    INVALID_SGL_COUNT = (0, 0x0E), "Invalid Number of SGL Descriptors";
    DATA_SGL_LENGTH_INVALID = (0, 0x0F), "Data SGL Length Invalid";
    METADATA_SGL_LENGTH_INVALID = (0, 0x10), "Metadata SGL Length Invalid";
    SGL_TYPE_INVALID = (0, 0x11), "SGL Descriptor Type Invalid";
    PRP_OFFSET_INVALID = (0, 0x13), "PRP Offset Invalid";
    ATOMIC_WRITE_UNIT_EXCEEDED = (0, 0x14), "Atomic Write Unit Exceeded";
    OPERATION_DENIED = (0, 0x15), "Operation Denied";
    SGL_OFFSET_INVALID = (0, 0x16), "SGL Offset Invalid";
    HOST_ID_INCONSISTENT = (0, 0x18), "Host Identifier Inconsistent Format";
    KEEP_ALIVE_EXPIRED = (0, 0x19), "Keep Alive Timer Expired";
    KEEP_ALIVE_INVALID = (0, 0x1A), "Keep Alive Timeout Invalid";
    PREEMPTED = (0, 0x1B), "Command Aborted due to Preempt and Abort";
    NAMESPACE_WRITE_PROTECTED = (0, 0x20), "Namespace is Write Protected";
    COMMAND_INTERRUPTED = (0, 0x21), "Command Interrupted";
    TRANSIENT_TRANSPORT_ERROR = (0, 0x22), "Transient Transport Error";
    MEDIA_NOT_READY = (0, 0x24), "Admin Command Media Not Ready";
    HOST_ID_NOT_INITIALIZED = (0, 0x27), "Host Identifier Not Initialized";
    LBA_OUT_OF_RANGE = (0, 0x80), "LBA Out of Range";
    CAPACITY_EXCEEDED = (0, 0x81), "Capacity Exceeded";
    NAMESPACE_NOT_READY = (0, 0x82), "Namespace Not Ready";
    RESERVATION_CONFLICT = (0, 0x83), "Reservation Conflict";
    COMPLETION_QUEUE_INVALID = (1, 0x00), "Completion Queue Invalid";
    INVALID_QUEUE_ID = (1, 0x01), "Invalid Queue Identifier";
    INVALID_QUEUE_SIZE = (1, 0x02), "Invalid Queue Size";
    ABORT_LIMIT_EXCEEDED = (1, 0x03), "Abort Command Limit Exceeded";
    ASYNC_EVENT_LIMIT_EXCEEDED = (1, 0x05), "Asynchronous Event Request Limit Exceeded";
    INVALID_INTERRUPT_VECTOR = (1, 0x08), "Invalid Interrupt Vector";
    INVALID_LOG_PAGE = (1, 0x09), "Invalid Log Page";
    INVALID_FORMAT = (1, 0x0A), "Invalid Format";
    INVALID_QUEUE_DELETION = (1, 0x0C), "Invalid Queue Deletion";
    FEATURE_NOT_SAVEABLE = (1, 0x0D), "Feature Identifier Not Saveable";
    FEATURE_NOT_CHANGEABLE = (1, 0x0E), "Feature Not Changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = (1, 0x0F), "Feature Not Namespace Specific";
    INVALID_CONTROLLER_ID = (1, 0x1F), "Invalid Controller Identifier";
    IO_COMMAND_SET_NOT_SUPPORTED = (1, 0x29), "I/O Command Set Not Supported";
    IO_COMMAND_SET_COMBINATION_REJECTED = (1, 0x2B), "I/O Command Set Combination Rejected";
    INVALID_IO_COMMAND_SET = (1, 0x2C), "Invalid I/O Command Set";
    CONNECT_INCOMPATIBLE_FORMAT = (1, 0x80), "Connect Incompatible Format";
    CONNECT_CONTROLLER_BUSY = (1, 0x81), "Connect Controller Busy";
    CONNECT_INVALID_PARAMETERS = (1, 0x82), "Connect Invalid Parameters";
    CONNECT_RESTART_DISCOVERY = (1, 0x83), "Connect Restart Discovery";
    CONNECT_INVALID_HOST = (1, 0x84), "Connect Invalid Host";
    INVALID_QUEUE_TYPE = (1, 0x85), "Invalid Queue Type";
    DISCOVER_RESTART = (1, 0x90), "Discover Restart";
    AUTHENTICATION_REQUIRED = (1, 0x91), "Authentication Required";
    WRITE_FAULT = (2, 0x80), "Write Fault";
    UNRECOVERED_READ_ERROR = (2, 0x81), "Unrecovered Read Error";
    GUARD_CHECK_ERROR = (2, 0x82), "End-to-end Guard Check Error";
    COMPARE_FAILURE = (2, 0x85), "Compare Failure";
    ACCESS_DENIED = (2, 0x86), "Access Denied";
    INTERNAL_PATH_ERROR = (3, 0x00), "Internal Path Error";
    ANA_PERSISTENT_LOSS = (3, 0x01), "Asymmetric Access Persistent Loss";
    ANA_INACCESSIBLE = (3, 0x02), "Asymmetric Access Inaccessible";
    ANA_TRANSITION = (3, 0x03), "Asymmetric Access Transition";
    CONTROLLER_PATHING_ERROR = (3, 0x60), "Controller Pathing Error";
    HOST_PATHING_ERROR = (3, 0x70), "Host Pathing Error";
    HOST_ABORTED = (3, 0x71), "Command Aborted By Host";
}

/// Command specific codes of the NVM command set (NVM, "Command Specific Status Values"); they share numbers with those of
/// Connect.
impl Status {
    /// Conflicting Attributes.
    pub const CONFLICTING_ATTRIBUTES: Status = Status::new(1, 0x80);
    /// Invalid Protection Information.
    pub const INVALID_PROTECTION_INFORMATION: Status = Status::new(1, 0x81);
    /// Attempted Write to Read Only Range.
    pub const WRITE_TO_READ_ONLY_RANGE: Status = Status::new(1, 0x82);
    /// Command Size Limit Exceeded.
    pub const COMMAND_SIZE_LIMIT_EXCEEDED: Status = Status::new(1, 0x83);
    /// Incompatible Namespace or Format: source and destination of a Copy differ in what has to be the same.
    pub const INCOMPATIBLE_NAMESPACE: Status = Status::new(1, 0x85);
    /// Overlapping I/O Range: a source of a Copy overlaps its destination.
    pub const OVERLAPPING_IO_RANGE: Status = Status::new(1, 0x87);
}

/// A status as the answer to a command of the NVM command set, in words: [`Status::of_io`].
pub struct IoStatus(Status);

impl Status {
    /// In words where it answers an I/O command: the numbers that the NVM command set shares with Connect mean something else there.
    pub const fn of_io(self) -> IoStatus {
        IoStatus(self)
    }

    fn write(self, f: &mut fmt::Formatter<'_>, name: Option<&str>) -> fmt::Result {
        write!(f, "{:x}h/{:02x}h", self.sct(), self.sc())?;
        if let Some(name) = name {
            write!(f, " {name}")?;
        }
        if self.retry_delay() != 0 {
            write!(f, ", CRD {}", self.retry_delay())?;
        }
        if self.do_not_retry() {
            f.write_str(", do not retry")?;
        }
        Ok(())
    }
}

impl fmt::Display for IoStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0.code() {
            Status::CONFLICTING_ATTRIBUTES => Some("Conflicting Attributes"),
            Status::INVALID_PROTECTION_INFORMATION => Some("Invalid Protection Information"),
            Status::WRITE_TO_READ_ONLY_RANGE => Some("Attempted Write to Read Only Range"),
            Status::COMMAND_SIZE_LIMIT_EXCEEDED => Some("Command Size Limit Exceeded"),
            Status::INCOMPATIBLE_NAMESPACE => Some("Incompatible Namespace or Format"),
            Status::OVERLAPPING_IO_RANGE => Some("Overlapping I/O Range"),
            other => other.name(),
        };
        self.0.write(f, name)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, self.name())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    /// Base, "Completion Queue Entry: Status Field": the bit positions in the last word.
    #[test]
    fn status_bits_stand_where_the_specification_puts_them() {
        let status = Status::NAMESPACE_NOT_READY
            .with_retry_delay(2)
            .with_more()
            .dnr();
        assert_eq!(status.to_wire(), 0x82 << 1 | 2 << 12 | 1 << 14 | 1 << 15);
        assert_eq!(Status::from_wire(status.to_wire() | 1), status);
        assert_eq!(status.code(), Status::NAMESPACE_NOT_READY);
        assert!(!status.is_success() && Status::SUCCESS.dnr().is_success());
        assert_eq!(Status::UNRECOVERED_READ_ERROR.to_wire(), 0x281 << 1);
    }

    #[test]
    fn a_number_that_connect_has_too_is_told_as_that_of_the_io_command() {
        let status = Status::WRITE_TO_READ_ONLY_RANGE.dnr();
        assert_eq!(
            status.of_io().to_string(),
            "1h/82h Attempted Write to Read Only Range, do not retry"
        );
        assert_eq!(
            status.to_string(),
            "1h/82h Connect Invalid Parameters, do not retry"
        );
        let other = Status::LBA_OUT_OF_RANGE.dnr();
        assert_eq!(other.of_io().to_string(), other.to_string());
    }
}
