//! The Error Information log (Base, "Error Information Log Page"): real entries, newest first.

use crate::queue::QueueId;
use nvme_spec::discovery::TransportType;
use nvme_spec::identify::CSI_NVM;
use nvme_spec::log::ErrorInformation;
use nvme_spec::{Cid, IoOpcode, Lba, Nsid, Sqe, Status, U16, U32, U64};
use std::collections::VecDeque;
use zerocopy::{FromZeros, IntoBytes};

/// A command that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// On which queue.
    pub queue: QueueId,
    /// Which command.
    pub cid: Cid,
    /// Its opcode.
    pub opcode: u8,
    /// Whose block failed; without one, the command's namespace.
    pub nsid: Nsid,
    /// How it ended.
    pub status: Status,
    /// The first block that failed, where the command has blocks.
    pub lba: Option<Lba>,
}

/// A block that a failure is about. A Copy may fail at one of another namespace than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// Whose.
    pub nsid: Nsid,
    /// Which.
    pub lba: Lba,
}

impl CommandError {
    /// From a command, its status and the block that failed.
    pub fn of(queue: QueueId, sqe: &Sqe, status: Status, at: Option<BlockAt>) -> CommandError {
        CommandError {
            queue,
            cid: sqe.cid(),
            opcode: sqe.opcode,
            nsid: at.map_or(sqe.nsid(), |at| at.nsid),
            status,
            lba: at.map(|at| at.lba),
        }
    }
}

/// Parameter error location: no parameter is named.
const NO_PARAMETER: u16 = 0xFFFF;

/// Parameter error location: the byte of the entry that a status is about, where it can be about one alone; bit 0 of it in 10:8.
fn parameter_error_location(opcode: u8, status: Status) -> u16 {
    match status.code() {
        Status::INVALID_OPCODE => 0,
        Status::INVALID_NAMESPACE | Status::FEATURE_NOT_NAMESPACE_SPECIFIC => 4,
        Status::DATA_SGL_LENGTH_INVALID => 32,
        Status::SGL_TYPE_INVALID => 39,
        // A range is in their data.
        Status::LBA_OUT_OF_RANGE
            if [IoOpcode::DATASET_MANAGEMENT, IoOpcode::COPY].contains(&IoOpcode(opcode)) =>
        {
            NO_PARAMETER
        }
        // SLBA, LID, FID: all begin CDW10.
        Status::LBA_OUT_OF_RANGE | Status::INVALID_LOG_PAGE | Status::FEATURE_NOT_CHANGEABLE => 40,
        // EDS.
        Status::HOST_ID_INCONSISTENT => 44,
        // SV: CDW10 bit 31.
        Status::FEATURE_NOT_SAVEABLE => 43 | 7 << 8,
        _ => NO_PARAMETER,
    }
}
/// Log page version 1: opcode and CSI are valid.
const VERSION: u8 = 1;

/// The newest entries, bounded.
#[derive(Debug)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorInformation>,
    entries_max: usize,
}

impl ErrorLog {
    pub fn new(entries_max: u8) -> ErrorLog {
        let entries_max = usize::from(entries_max);
        ErrorLog {
            entries: VecDeque::with_capacity(entries_max),
            entries_max,
        }
    }

    /// `count` is its number among all errors of the subsystem's life.
    pub fn record(&mut self, count: u64, error: &CommandError) {
        self.entries.truncate(self.entries_max.saturating_sub(1));
        let mut entry = ErrorInformation::new_zeroed();
        entry.error_count = U64::new(count);
        entry.sqid = U16::new(error.queue.0);
        entry.cid = U16::new(error.cid.0);
        entry.status_and_phase = U16::new(error.status.to_wire());
        entry.parameter_error_location =
            U16::new(parameter_error_location(error.opcode, error.status));
        entry.lba = U64::new(error.lba.map_or(0, |lba| lba.0));
        entry.nsid = U32::new(error.nsid.0);
        entry.trtype = TransportType::TCP.0;
        entry.csi = CSI_NVM;
        entry.opcode = error.opcode;
        entry.version = VERSION;
        self.entries.push_front(entry);
    }

    /// The page: newest first, then zeros.
    pub fn page(&self) -> Vec<u8> {
        let mut page: Vec<u8> = self
            .entries
            .iter()
            .flat_map(|entry| entry.as_bytes().to_vec())
            .collect();
        page.resize(self.entries_max * size_of::<ErrorInformation>(), 0);
        page
    }
}
