//! The Error Information log (Base, "Error Information Log Page"): real entries, newest first.

use crate::queue::QueueId;
use nvme_spec::discovery::TransportType;
use nvme_spec::identify::CSI_NVM;
use nvme_spec::log::ErrorInformation;
use nvme_spec::{Cid, Lba, Nsid, Sqe, Status, U16, U32, U64};
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
    /// Its namespace.
    pub nsid: Nsid,
    /// How it ended.
    pub status: Status,
    /// The first block that failed, where the command has blocks.
    pub lba: Option<Lba>,
}

impl CommandError {
    /// From a command and its status.
    pub fn of(queue: QueueId, sqe: &Sqe, status: Status, lba: Option<Lba>) -> CommandError {
        CommandError {
            queue,
            cid: sqe.cid(),
            opcode: sqe.opcode,
            nsid: sqe.nsid(),
            status,
            lba,
        }
    }
}

/// PEL: no parameter is named.
const NO_PARAMETER: u16 = 0xFFFF;
/// Log page version 1: opcode and CSI are valid.
const VERSION: u8 = 1;

/// The newest entries, bounded.
#[derive(Debug)]
pub(super) struct ErrorLog {
    entries: VecDeque<ErrorInformation>,
    entries_max: usize,
    /// Errors ever recorded.
    count: u64,
}

impl ErrorLog {
    pub fn new(entries_max: u8) -> ErrorLog {
        let entries_max = usize::from(entries_max);
        ErrorLog {
            entries: VecDeque::with_capacity(entries_max),
            entries_max,
            count: 0,
        }
    }

    pub fn record(&mut self, error: &CommandError) {
        self.count += 1;
        self.entries.truncate(self.entries_max.saturating_sub(1));
        let mut entry = ErrorInformation::new_zeroed();
        entry.error_count = U64::new(self.count);
        entry.sqid = U16::new(error.queue.0);
        entry.cid = U16::new(error.cid.0);
        entry.status_and_phase = U16::new(error.status.to_wire());
        entry.parameter_error_location = U16::new(NO_PARAMETER);
        entry.lba = U64::new(error.lba.map_or(0, |lba| lba.0));
        entry.nsid = U32::new(error.nsid.0);
        entry.trtype = TransportType::TCP.0;
        entry.csi = CSI_NVM;
        entry.opcode = error.opcode;
        entry.version = VERSION;
        self.entries.push_front(entry);
    }

    pub fn count(&self) -> u64 {
        self.count
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
