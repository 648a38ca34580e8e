//! The NVM command set's commands besides Read, Write and Flush (NVM, "NVM Command Set Commands"), as a host sends them.

use nvme_spec::feature::{FeatureId, HostBehaviorSupport};
use nvme_spec::nvm::{CopyRange, DatasetRange, dataset_attribute};
use nvme_spec::{AdminOpcode, IoOpcode, Lba, Nsid, Sqe, U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::command::Blocks;
use crate::outstanding::{Command, Transfer};

/// Compare.
pub fn compare(nsid: Nsid, blocks: Blocks) -> Command {
    Command {
        sqe: range(IoOpcode::COMPARE, nsid, blocks.lba, blocks.count),
        transfer: Transfer::Out(blocks.bytes()),
    }
}

/// Verify of `blocks` blocks.
pub fn verify(nsid: Nsid, lba: Lba, blocks: u32) -> Command {
    without_data(range(IoOpcode::VERIFY, nsid, lba, blocks))
}

/// Write Zeroes; with DEAC where `deallocate`.
pub fn write_zeroes(nsid: Nsid, lba: Lba, blocks: u32, deallocate: bool) -> Command {
    let mut sqe = range(IoOpcode::WRITE_ZEROES, nsid, lba, blocks);
    if deallocate {
        sqe.set_deallocates();
    }
    without_data(sqe)
}

/// Write Uncorrectable.
pub fn write_uncorrectable(nsid: Nsid, lba: Lba, blocks: u32) -> Command {
    without_data(range(IoOpcode::WRITE_UNCORRECTABLE, nsid, lba, blocks))
}

/// Dataset Management with AD, and its data: first block and number of blocks of 1 to 256 ranges.
pub fn deallocate(nsid: Nsid, ranges: &[(Lba, u32)]) -> (Command, Vec<u8>) {
    let data: Vec<u8> = ranges
        .iter()
        .flat_map(|&(lba, blocks)| {
            let range = DatasetRange {
                context_attributes: U32::ZERO,
                blocks: U32::new(blocks),
                slba: U64::new(lba.0),
            };
            range.as_bytes().to_vec()
        })
        .collect();
    let sqe = Sqe {
        opcode: IoOpcode::DATASET_MANAGEMENT.0,
        nsid: U32::new(nsid.0),
        cdw10: U32::new(ranges_z(ranges.len())),
        cdw11: U32::new(dataset_attribute::DEALLOCATE),
        ..Sqe::ZERO
    };
    (with_list(sqe, &data), data)
}

/// Copy to `lba`, descriptor format 2h, and its data: namespace, first block and number of blocks of 1 to 128 sources.
pub fn copy(nsid: Nsid, lba: Lba, sources: &[(Nsid, Lba, u32)]) -> (Command, Vec<u8>) {
    const FORMAT: u32 = 2;
    let data: Vec<u8> = sources
        .iter()
        .flat_map(|&(nsid, lba, blocks)| CopyRange::new(nsid, lba, blocks).as_bytes().to_vec())
        .collect();
    let mut sqe = Sqe {
        opcode: IoOpcode::COPY.0,
        nsid: U32::new(nsid.0),
        cdw12: U32::new(ranges_z(sources.len()) | FORMAT << 8),
        ..Sqe::ZERO
    };
    sqe.set_slba(lba);
    (with_list(sqe, &data), data)
}

/// Set Features, Host Behavior Support, and its data: the Copy descriptor formats of `cdfe` enabled, everything else as after a reset.
pub fn enable_copy_formats(cdfe: u16) -> (Command, Vec<u8>) {
    let mut behavior = HostBehaviorSupport::new_zeroed();
    behavior.cdfe = U16::new(cdfe);
    let data = behavior.as_bytes().to_vec();
    let sqe = Sqe {
        opcode: AdminOpcode::SET_FEATURES.0,
        cdw10: U32::new(u32::from(FeatureId::HOST_BEHAVIOR_SUPPORT.0)),
        ..Sqe::ZERO
    };
    (with_list(sqe, &data), data)
}

/// Makes two commands the halves of a fused operation (Base, "Fused Operations").
pub fn fuse(first: &mut Command, second: &mut Command) {
    first.sqe.flags |= 0b01;
    second.sqe.flags |= 0b10;
}

fn range(opcode: IoOpcode, nsid: Nsid, lba: Lba, blocks: u32) -> Sqe {
    let mut sqe = Sqe {
        opcode: opcode.0,
        nsid: U32::new(nsid.0),
        cdw12: U32::new(blocks.saturating_sub(1) & 0xFFFF),
        ..Sqe::ZERO
    };
    sqe.set_slba(lba);
    sqe
}

fn ranges_z(ranges: usize) -> u32 {
    u32::try_from(ranges.saturating_sub(1)).unwrap_or(u32::MAX) & 0xFF
}

fn without_data(sqe: Sqe) -> Command {
    Command {
        sqe,
        transfer: Transfer::None,
    }
}

fn with_list(sqe: Sqe, data: &[u8]) -> Command {
    Command {
        sqe,
        transfer: Transfer::Out(u32::try_from(data.len()).unwrap_or(u32::MAX)),
    }
}
