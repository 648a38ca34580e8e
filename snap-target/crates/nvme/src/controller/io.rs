//! I/O commands, from a submission queue entry to something a namespace can carry out (NVM, "NVM Command Set Commands").
//!
//! What a command's data say (the ranges of Dataset Management and Copy) is read in `ranges`, once the data are there; the halves of a fused
//! operation find each other in `fused`.

mod fused;
mod ranges;

pub use fused::{Fused, Fusing, Taken};
pub use ranges::{
    COPY_FORMATS, COPY_RANGES_MAX, CopyCommand, CopyFormats, DatasetManagement, copy_blocks_max,
};

use super::NamespaceSet;
use super::subsystem::NAMESPACES_MAX;
use super::{BlockAt, NamespaceInfo, namespaces};
use crate::queue::Transfer;
use nvme_spec::{IoOpcode, Lba, Nsid, Sqe, Status};

/// ACWU + 1: blocks of any format. Both halves of a fused operation fit one staging buffer, whatever the block.
pub const FUSED_BLOCKS_MAX: u16 = 8;

/// A checked I/O command: the namespace is active, the blocks exist, the data fit them exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoCommand {
    /// Read these blocks.
    Read(BlockRange),
    /// Write these blocks.
    Write(BlockRange),
    /// Make durable what was written to this namespace, or with FFFFFFFFh to all that the host sees.
    Flush(Nsid),
    /// Compare these blocks with the data.
    Compare(BlockRange),
    /// Read and check these blocks; no data.
    Verify(Blocks),
    /// Zeros in these blocks; no data.
    WriteZeroes {
        /// Which.
        blocks: Blocks,
        /// DEAC: deallocate them where that reads as zeros.
        deallocate: bool,
        /// FUA.
        force_unit_access: bool,
    },
    /// Reads of these blocks fail until they are written.
    WriteUncorrectable(Blocks),
    /// Hints, or deallocation, for the ranges in the data.
    DatasetManagement(DatasetManagement),
    /// Copy the ranges in the data to these blocks.
    Copy(CopyCommand),
}

impl IoCommand {
    /// Bytes that the host sends or gets.
    #[must_use]
    pub fn data_bytes(&self) -> u32 {
        match self {
            Self::Read(range) | Self::Write(range) | Self::Compare(range) => range.bytes,
            Self::DatasetManagement(command) => command.data_bytes,
            Self::Copy(command) => command.data_bytes,
            Self::Flush(_)
            | Self::Verify(_)
            | Self::WriteZeroes { .. }
            | Self::WriteUncorrectable(_) => 0,
        }
    }

    /// Whether it only reads: what fails then is a read.
    #[must_use]
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read(_) | Self::Compare(_) | Self::Verify(_))
    }
}

/// Blocks of a namespace, all of them inside it, whose data travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Which namespace.
    pub nsid: Nsid,
    /// First block.
    pub lba: Lba,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// First byte, from the namespace's first.
    pub offset_bytes: u64,
    /// Bytes.
    pub bytes: u32,
    /// FUA: durable before it completes (writes), from durable media (reads).
    pub force_unit_access: bool,
}

/// Blocks of a namespace, all of them inside it, whose data do not travel: MDTS is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Which namespace.
    pub nsid: Nsid,
    /// First block.
    pub lba: Lba,
    /// Number of blocks, 1 to 65,536.
    pub blocks: u32,
}

/// Why a command is refused: what the host gets, and the block that it is about, where it is about one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// How the command ends.
    pub status: Status,
    /// For the Error Information log.
    pub at: Option<BlockAt>,
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self { status, at: None }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        refusal.status
    }
}

/// Checks an I/O command against the namespaces. `transfer_bytes_max` is MDTS in bytes. The status is what the host gets.
///
/// Inlined where it is called: what it finds goes to its place in registers. Returned through memory, it would be written in parts and read as a whole, which the
/// processor waits for.
///
/// LR (limited retry) is ignored: nothing here retries. PRINFO and the tags are, too: no namespace has protection information.
#[inline(always)]
pub fn parse_io(
    sqe: &Sqe,
    transfer: Transfer,
    namespaces: &NamespaceSet,
    transfer_bytes_max: u32,
) -> Result<IoCommand, Status> {
    let opcode = IoOpcode(sqe.opcode);
    if !is_supported(opcode) {
        return Err(Status::INVALID_OPCODE.dnr());
    }
    // FUSES: Compare and Write, in this order.
    match (sqe.fuse(), opcode) {
        (0, _) | (1, IoOpcode::COMPARE) | (2, IoOpcode::WRITE) => {}
        _ => return Err(Status::INVALID_FIELD.dnr()),
    }
    if let Transfer::Refused(status) = transfer {
        return Err(status);
    }
    // VWC 2:1 = 11b.
    if opcode == IoOpcode::FLUSH && sqe.nsid() == Nsid::BROADCAST {
        return Ok(IoCommand::Flush(Nsid::BROADCAST));
    }
    let info = namespaces.require(sqe.nsid())?;
    if changes_content(sqe) && info.is_protected() {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
    }
    // DTYPE: no directives.
    if has_directive(opcode) && sqe.directive_type() != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    let with_data = || data_range(sqe, transfer, info, transfer_bytes_max);
    Ok(match opcode {
        IoOpcode::FLUSH => IoCommand::Flush(info.nsid),
        IoOpcode::READ => IoCommand::Read(with_data()?),
        IoOpcode::WRITE => IoCommand::Write(with_data()?),
        IoOpcode::COMPARE => IoCommand::Compare(with_data()?),
        IoOpcode::VERIFY => IoCommand::Verify(blocks(sqe, info)?),
        IoOpcode::WRITE_UNCORRECTABLE => IoCommand::WriteUncorrectable(blocks(sqe, info)?),
        IoOpcode::WRITE_ZEROES => IoCommand::WriteZeroes {
            blocks: blocks(sqe, info)?,
            deallocate: sqe.deallocates(),
            force_unit_access: sqe.fua(),
        },
        IoOpcode::DATASET_MANAGEMENT => {
            IoCommand::DatasetManagement(DatasetManagement::parse(sqe, transfer, info)?)
        }
        _ => IoCommand::Copy(CopyCommand::parse(sqe, transfer, info)?),
    })
}

fn is_supported(opcode: IoOpcode) -> bool {
    matches!(
        opcode,
        IoOpcode::READ
            | IoOpcode::WRITE
            | IoOpcode::FLUSH
            | IoOpcode::COMPARE
            | IoOpcode::VERIFY
            | IoOpcode::WRITE_ZEROES
            | IoOpcode::WRITE_UNCORRECTABLE
            | IoOpcode::DATASET_MANAGEMENT
            | IoOpcode::COPY
    )
}

/// Whether it changes what is in the namespace: what write protection refuses (Base, "Namespace Write Protection"). Dataset Management without AD is
/// hints alone.
#[must_use]
pub fn changes_content(sqe: &Sqe) -> bool {
    match IoOpcode(sqe.opcode) {
        IoOpcode::WRITE
        | IoOpcode::WRITE_ZEROES
        | IoOpcode::WRITE_UNCORRECTABLE
        | IoOpcode::COPY => true,
        IoOpcode::DATASET_MANAGEMENT => DatasetManagement::deallocates(sqe),
        _ => false,
    }
}

fn has_directive(opcode: IoOpcode) -> bool {
    matches!(
        opcode,
        IoOpcode::WRITE | IoOpcode::WRITE_ZEROES | IoOpcode::WRITE_UNCORRECTABLE | IoOpcode::COPY
    )
}

/// SLBA and NLB of a command, inside of the namespace.
fn blocks(sqe: &Sqe, info: &NamespaceInfo) -> Result<Blocks, Status> {
    Ok(inside(info, sqe.slba(), u32::from(sqe.nlb_z()) + 1)?)
}

/// Checks a range against the namespace's end (NVM, "LBA Out of Range").
fn inside(info: &NamespaceInfo, lba: Lba, blocks: u32) -> Result<Blocks, Refusal> {
    lba.0
        .checked_add(u64::from(blocks))
        .filter(|&end| end <= info.block_count)
        .map(|_| Blocks {
            nsid: info.nsid,
            lba,
            blocks,
        })
        .ok_or(Refusal {
            status: Status::LBA_OUT_OF_RANGE.dnr(),
            at: Some(info.first_beyond(lba)),
        })
}

#[inline(always)]
fn data_range(
    sqe: &Sqe,
    transfer: Transfer,
    info: &NamespaceInfo,
    transfer_bytes_max: u32,
) -> Result<BlockRange, Status> {
    let Blocks { nsid, lba, blocks } = blocks(sqe, info)?;
    // MDTS (Base, "Identify Controller": Maximum Data Transfer Size).
    let bytes = blocks
        .checked_mul(info.lba_bytes)
        .filter(|&bytes| bytes <= transfer_bytes_max)
        .ok_or(Status::INVALID_FIELD.dnr())?;
    if !transfer.is_for(bytes) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    // ACWU.
    if sqe.fuse() != 0 && blocks > u32::from(FUSED_BLOCKS_MAX) {
        return Err(Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr());
    }
    let offset_bytes = lba.0 * u64::from(info.lba_bytes);
    Ok(BlockRange {
        nsid,
        lba,
        blocks,
        offset_bytes,
        bytes,
        force_unit_access: sqe.fua(),
    })
}

impl namespaces::NamespaceSet {
    /// The namespace of a command that needs an active one (Base, "Namespace Identifier": an invalid NSID is Invalid Namespace or
    /// Format, a valid one without a namespace is Invalid Field).
    pub(super) fn require(&self, nsid: Nsid) -> Result<&NamespaceInfo, Status> {
        match self.get(nsid) {
            Some(info) => Ok(info),
            None if (1..=NAMESPACES_MAX).contains(&nsid.0) => Err(Status::INVALID_FIELD.dnr()),
            None => Err(Status::INVALID_NAMESPACE.dnr()),
        }
    }
}
