//! What a command was, and how it ended, as far as counting goes.

use nvme_spec::{IoOpcode, Status};

/// What an I/O command was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Dataset Management.
    DatasetManagement,
    /// Write Zeroes.
    WriteZeroes,
    /// Compare.
    Compare,
    /// Verify.
    Verify,
    /// Copy.
    Copy,
    /// Write Uncorrectable.
    WriteUncorrectable,
    /// Reservation Register, Report, Acquire, Release.
    Reservation,
    /// Any other.
    Other,
}

impl CommandKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::DatasetManagement,
        Self::WriteZeroes,
        Self::Compare,
        Self::Verify,
        Self::Copy,
        Self::WriteUncorrectable,
        Self::Reservation,
        Self::Other,
    ];

    /// Of an I/O command's opcode.
    #[must_use]
    pub const fn of(opcode: IoOpcode) -> Self {
        match opcode {
            IoOpcode::READ => Self::Read,
            IoOpcode::WRITE => Self::Write,
            IoOpcode::FLUSH => Self::Flush,
            IoOpcode::DATASET_MANAGEMENT => Self::DatasetManagement,
            IoOpcode::WRITE_ZEROES => Self::WriteZeroes,
            IoOpcode::COMPARE => Self::Compare,
            IoOpcode::VERIFY => Self::Verify,
            IoOpcode::COPY => Self::Copy,
            IoOpcode::WRITE_UNCORRECTABLE => Self::WriteUncorrectable,
            IoOpcode::RESERVATION_REGISTER
            | IoOpcode::RESERVATION_REPORT
            | IoOpcode::RESERVATION_ACQUIRE
            | IoOpcode::RESERVATION_RELEASE => Self::Reservation,
            _ => Self::Other,
        }
    }

    /// Its name in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::DatasetManagement => "dsm",
            Self::WriteZeroes => "write_zeroes",
            Self::Compare => "compare",
            Self::Verify => "verify",
            Self::Copy => "copy",
            Self::WriteUncorrectable => "write_uncorrectable",
            Self::Reservation => "reservation",
            Self::Other => "other",
        }
    }
}

/// The class of an error status (Base, "Status Code Type").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StatusClass {
    /// Generic command status.
    Generic,
    /// Command specific status.
    CommandSpecific,
    /// Media and data integrity errors.
    Media,
    /// Path related status.
    Path,
    /// Vendor specific, and reserved types.
    Vendor,
}

impl StatusClass {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Generic,
        Self::CommandSpecific,
        Self::Media,
        Self::Path,
        Self::Vendor,
    ];

    /// Of a status; none for success.
    #[must_use]
    #[inline]
    pub const fn of(status: Status) -> Option<Self> {
        if status.is_success() {
            return None;
        }
        Some(match status.sct() {
            0 => Self::Generic,
            1 => Self::CommandSpecific,
            2 => Self::Media,
            3 => Self::Path,
            _ => Self::Vendor,
        })
    }

    /// Its name in tables and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::CommandSpecific => "command_specific",
            Self::Media => "media",
            Self::Path => "path",
            Self::Vendor => "vendor",
        }
    }
}

#[cfg(test)]
mod tests {
    use nvme_spec::{IoOpcode, Status};

    use super::{CommandKind, StatusClass};

    #[test]
    fn numbers_follow_the_order_of_all() {
        for (number, kind) in CommandKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
        for (number, class) in StatusClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, number);
        }
    }

    #[test]
    fn a_class_ignores_the_bits_beside_the_code() {
        assert_eq!(StatusClass::of(Status::SUCCESS.dnr()), None);
        assert_eq!(
            StatusClass::of(Status::new(2, 0x81).dnr()),
            Some(StatusClass::Media)
        );
        assert_eq!(CommandKind::of(IoOpcode(0x19)), CommandKind::Copy);
        assert_eq!(CommandKind::of(IoOpcode(0xC0)), CommandKind::Other);
    }
}
