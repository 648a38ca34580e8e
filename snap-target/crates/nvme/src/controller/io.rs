//! I/O commands, from a submission queue entry to something a namespace can carry out (NVM, "NVM Command Set Commands").

use super::NamespaceSet;
use super::subsystem::NAMESPACES_MAX;
use super::{NamespaceInfo, namespaces};
use crate::queue::Transfer;
use nvme_spec::{IoOpcode, Lba, Nsid, Sqe, Status};

/// A checked I/O command: the namespace is active, the blocks exist, the data fit them exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoCommand {
    /// Read these blocks.
    Read(BlockRange),
    /// Write these blocks.
    Write(BlockRange),
    /// Make durable what was written to this namespace.
    Flush(Nsid),
}

/// Blocks of a namespace, all of them inside it.
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

/// Checks an I/O command against the namespaces. `transfer_bytes_max` is MDTS in bytes. The status is what the host gets.
pub fn parse_io(
    sqe: &Sqe,
    transfer: Transfer,
    namespaces: &NamespaceSet,
    transfer_bytes_max: u32,
) -> Result<IoCommand, Status> {
    let opcode = IoOpcode(sqe.opcode);
    if !matches!(opcode, IoOpcode::READ | IoOpcode::WRITE | IoOpcode::FLUSH) {
        return Err(Status::INVALID_OPCODE.dnr());
    }
    // FUSES is 0: no fused operation.
    if sqe.fuse() != 0 {
        return Err(Status::INVALID_FIELD.dnr());
    }
    if let Transfer::Refused(status) = transfer {
        return Err(status);
    }
    let info = namespaces.require(sqe.nsid())?;
    match opcode {
        IoOpcode::FLUSH => Ok(IoCommand::Flush(info.nsid)),
        IoOpcode::READ => Ok(IoCommand::Read(block_range(
            sqe,
            transfer,
            info,
            transfer_bytes_max,
        )?)),
        _ => {
            if info.write_protected {
                return Err(Status::NAMESPACE_WRITE_PROTECTED.dnr());
            }
            // DTYPE, CDW12 23:20: no directives.
            if sqe.cdw12.get() >> 20 & 0xF != 0 {
                return Err(Status::INVALID_FIELD.dnr());
            }
            Ok(IoCommand::Write(block_range(
                sqe,
                transfer,
                info,
                transfer_bytes_max,
            )?))
        }
    }
}

fn block_range(
    sqe: &Sqe,
    transfer: Transfer,
    info: &NamespaceInfo,
    transfer_bytes_max: u32,
) -> Result<BlockRange, Status> {
    let lba = sqe.slba();
    let blocks = u32::from(sqe.nlb_z()) + 1;
    let end = lba
        .0
        .checked_add(u64::from(blocks))
        .ok_or(Status::LBA_OUT_OF_RANGE.dnr())?;
    if end > info.block_count {
        return Err(Status::LBA_OUT_OF_RANGE.dnr());
    }
    // MDTS (Base, "Identify Controller": Maximum Data Transfer Size).
    let bytes = blocks
        .checked_mul(info.lba_bytes)
        .filter(|&bytes| bytes <= transfer_bytes_max)
        .ok_or(Status::INVALID_FIELD.dnr())?;
    if !transfer.is_for(bytes) {
        return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
    }
    let offset_bytes = lba.0 * u64::from(info.lba_bytes);
    Ok(BlockRange {
        nsid: info.nsid,
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
