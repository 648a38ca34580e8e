//! What goes wrong between a command and its bytes; the wire status and its cause travel together.

use std::time::Duration;

use nvme_spec::status::Status;
use store::{ErrorKind, StoreError};
use volume::VolumeError;

use crate::{KeepError, NamespaceKey};

/// Why a request failed. It can be cloned: everyone who waits for one frame is told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The engine does not have this namespace, or no longer takes requests for it: it was detached.
    #[error("namespace {key} is not attached")]
    Detached {
        /// What was asked for.
        key: NamespaceKey,
    },
    /// A write or flush of a namespace that presents a view, or of a store opened read-only.
    #[error(
        "namespace {nsid} is write-protected: it presents a read-only view or a store opened for reading"
    )]
    WriteProtected {
        /// What was written to.
        nsid: u32,
    },
    /// A request that would change blocks of a mixed namespace which nobody may write. Nothing of it was done.
    #[error(
        "namespace {nsid}: block {lba} is in a part that nobody may write: a view, or a store opened for reading"
    )]
    ReadOnlyRange {
        /// The namespace.
        nsid: u32,
        /// The first such block.
        lba: u64,
    },
    /// Beyond the last logical block. The parser refuses such commands; this is the second check.
    #[error("namespace {nsid}: blocks {lba} to {end} are beyond its {blocks} blocks")]
    OutOfRange {
        /// What was asked for.
        nsid: u32,
        /// First block asked for.
        lba: u64,
        /// Block after the last asked for.
        end: u64,
        /// Blocks there are.
        blocks: u64,
    },
    /// A destination that is not as long as what is read into it.
    #[error("namespace {nsid}: the destination of a read of {bytes} bytes has another length")]
    Length {
        /// The namespace.
        nsid: u32,
        /// Bytes asked for.
        bytes: u64,
    },
    /// A request that was cancelled, and whose stores have let go of it.
    #[error("namespace {nsid}: the request was cancelled")]
    Cancelled {
        /// The namespace.
        nsid: u32,
    },
    /// A request whose time was over while it waited here: for memory, for room in a store's queue, or for others. Nothing of it is under way.
    #[error(
        "namespace {nsid}: the request waited for memory, for its store or for others until its time was over"
    )]
    NotInTime {
        /// The namespace.
        nsid: u32,
    },
    /// What Compare was given is not what is there.
    #[error("namespace {nsid}: block {lba} is not what it was compared with")]
    Miscompare {
        /// The namespace.
        nsid: u32,
        /// The first block that differs.
        lba: u64,
    },
    /// A read of a block that Write Uncorrectable marked, and that was not written since.
    #[error("namespace {nsid}: block {lba} is marked uncorrectable")]
    Uncorrectable {
        /// The namespace.
        nsid: u32,
        /// The first such block.
        lba: u64,
    },
    /// More ranges of marked blocks than are kept.
    #[error(
        "namespace {nsid}: its list of blocks that are marked uncorrectable is full; writing some of them makes room"
    )]
    MarksFull {
        /// The namespace.
        nsid: u32,
    },
    /// What must survive restarts could not be put on stable storage.
    #[error("namespace {nsid}: {cause}")]
    Unsaved {
        /// The namespace.
        nsid: u32,
        /// Which record, and why.
        cause: KeepError,
    },
    /// A part of a request of several parts failed: the read of a Copy's source, the write of a Compare and Write.
    #[error("{cause}")]
    InPart {
        /// Whether that part was a write.
        is_write: bool,
        /// What went wrong with it.
        cause: Box<NamespaceError>,
    },
    /// What went wrong in a part of a mixed namespace, and at which block of the whole.
    #[error("at block {lba}: {cause}")]
    AtBlock {
        /// The first block concerned, or the first that was asked of the part.
        lba: u64,
        /// What went wrong; places in it count from the start of the part.
        cause: Box<NamespaceError>,
    },
    /// The volume reported damage, or something it cannot read.
    #[error("namespace {nsid}: {cause}")]
    Volume {
        /// The namespace.
        nsid: u32,
        /// What the volume said: where, expected, found.
        cause: VolumeError,
    },
    /// The store reported an error.
    #[error("namespace {nsid}: {cause}")]
    Store {
        /// The namespace.
        nsid: u32,
        /// What the store said: path, offset, errno.
        cause: StoreError,
    },
    /// The store moved fewer bytes than it was asked to, and broke its contract by it: what is missing must not be presented.
    #[error(
        "namespace {nsid}: the store moved {got} of {wanted} bytes: was the file cut short while it was served?"
    )]
    Short {
        /// The namespace.
        nsid: u32,
        /// Bytes asked for.
        wanted: usize,
        /// Bytes moved.
        got: u32,
    },
}

/// The errors that are of one namespace, with its NSID.
macro_rules! of_one_namespace {
    ($nsid:ident) => {
        NamespaceError::WriteProtected { $nsid }
            | NamespaceError::ReadOnlyRange { $nsid, .. }
            | NamespaceError::OutOfRange { $nsid, .. }
            | NamespaceError::Cancelled { $nsid }
            | NamespaceError::NotInTime { $nsid }
            | NamespaceError::Length { $nsid, .. }
            | NamespaceError::Miscompare { $nsid, .. }
            | NamespaceError::Uncorrectable { $nsid, .. }
            | NamespaceError::MarksFull { $nsid }
            | NamespaceError::Unsaved { $nsid, .. }
            | NamespaceError::Volume { $nsid, .. }
            | NamespaceError::Store { $nsid, .. }
            | NamespaceError::Short { $nsid, .. }
    };
}

impl NamespaceError {
    /// The status that the host sees.
    ///
    /// DNR is set where the same command would fail again at once; a store's error may pass, so the host may retry it.
    #[must_use]
    pub fn status(&self, is_write: bool) -> Status {
        match self {
            Self::Detached { .. } => Status::INVALID_NAMESPACE.dnr(),
            Self::WriteProtected { .. } => Status::NAMESPACE_WRITE_PROTECTED.dnr(),
            Self::ReadOnlyRange { .. } => Status::WRITE_TO_READ_ONLY_RANGE.dnr(),
            Self::OutOfRange { .. } => Status::LBA_OUT_OF_RANGE.dnr(),
            Self::Length { .. } => Status::INVALID_FIELD.dnr(),
            Self::Cancelled { .. } => Status::ABORT_REQUESTED.dnr(),
            Self::NotInTime { .. } => Status::NAMESPACE_NOT_READY,
            Self::Miscompare { .. } => Status::COMPARE_FAILURE.dnr(),
            Self::Uncorrectable { .. } => Status::UNRECOVERED_READ_ERROR.dnr(),
            Self::MarksFull { .. } => Status::WRITE_FAULT.dnr(),
            Self::Unsaved { .. } => Status::WRITE_FAULT,
            Self::InPart { is_write, cause } => cause.status(*is_write),
            Self::AtBlock { cause, .. } => cause.status(is_write),
            Self::Store { cause, .. } if cause.kind() == ErrorKind::Cancelled => {
                Status::ABORT_REQUESTED.dnr()
            }
            Self::Volume { .. } => Status::UNRECOVERED_READ_ERROR.dnr(),
            // Worth trying again, as soon as the store is back; later with the delay that it names.
            Self::Store { cause, .. } if cause.kind() == ErrorKind::Unreachable => {
                Status::NAMESPACE_NOT_READY
            }
            // Trying again makes no room.
            Self::Store { cause, .. } if cause.kind() == ErrorKind::NoSpace => {
                Status::CAPACITY_EXCEEDED.dnr()
            }
            Self::Store { .. } | Self::Short { .. } if is_write => Status::WRITE_FAULT,
            Self::Store { .. } | Self::Short { .. } => Status::UNRECOVERED_READ_ERROR,
        }
    }

    /// The same for another namespace: two may present one frame.
    pub(crate) fn of(mut self, of: u32) -> Self {
        let of_one_namespace!(nsid) = &mut self else {
            return self;
        };
        *nsid = of;
        self
    }

    /// The first logical block that the error is about, where it is known.
    #[must_use]
    pub fn first_lba(&self, lba_bytes: u32) -> Option<u64> {
        match self {
            Self::Volume { cause, .. } => {
                Some(cause.presented_byte()? / u64::from(lba_bytes.max(1)))
            }
            Self::OutOfRange { lba, blocks, .. } => Some(*lba.max(blocks)),
            Self::ReadOnlyRange { lba, .. }
            | Self::AtBlock { lba, .. }
            | Self::Miscompare { lba, .. }
            | Self::Uncorrectable { lba, .. } => Some(*lba),
            Self::InPart { cause, .. } => cause.first_lba(lba_bytes),
            _ => None,
        }
    }

    /// The same with the namespace whose block it is: a Copy may fail at one that it reads of another.
    #[must_use]
    pub fn first_block(&self, lba_bytes: u32) -> Option<(u32, u64)> {
        Some((self.nsid()?, self.first_lba(lba_bytes)?))
    }

    fn nsid(&self) -> Option<u32> {
        match self {
            Self::Detached { .. } => None,
            Self::InPart { cause, .. } | Self::AtBlock { cause, .. } => cause.nsid(),
            of_one_namespace!(nsid) => Some(*nsid),
        }
    }

    /// The same at this block of the namespace, where no block is known.
    pub(crate) fn at_block(self, lba: u64, lba_bytes: u32) -> Self {
        match self.first_lba(lba_bytes) {
            Some(_) => self,
            None => self.beside(lba),
        }
    }

    /// The same of the whole: the blocks of the part that it is of begin at `first_lba`.
    pub(crate) fn behind(self, first_lba: u64, lba_bytes: u32) -> Self {
        match self.first_lba(lba_bytes).filter(|_| first_lba > 0) {
            Some(lba) => self.beside(first_lba + lba),
            None => self,
        }
    }

    fn beside(self, lba: u64) -> Self {
        let cause = Box::new(self);
        Self::AtBlock { lba, cause }
    }

    /// What went wrong, without where.
    fn cause(&self) -> &Self {
        match self {
            Self::InPart { cause, .. } | Self::AtBlock { cause, .. } => cause.cause(),
            cause => cause,
        }
    }

    /// Whether a store could not be reached in time, and nothing was done.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        match self.cause() {
            Self::NotInTime { .. } => true,
            Self::Store { cause, .. } => cause.kind() == ErrorKind::Unreachable,
            _ => false,
        }
    }

    /// How long to wait before trying again, where the store knows.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause() {
            Self::Store {
                cause:
                    StoreError::Unreachable {
                        retry_after_ms: Some(ms),
                        ..
                    },
                ..
            } => Some(Duration::from_millis((*ms).into())),
            _ => None,
        }
    }

    /// Whether stored bytes are not what was written: a checksum, a decoder or the proven range says so.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self.cause(), Self::Volume { cause, .. } if cause.kind() == volume::ErrorKind::Corrupt)
    }

    /// Whether stored bytes could not be read, or were not what was written.
    #[must_use]
    pub fn is_media(&self) -> bool {
        match self.cause() {
            Self::Volume { .. } | Self::Short { .. } => true,
            Self::Store { cause, .. } => {
                !matches!(cause.kind(), ErrorKind::Unreachable | ErrorKind::NoSpace)
            }
            _ => false,
        }
    }
}
