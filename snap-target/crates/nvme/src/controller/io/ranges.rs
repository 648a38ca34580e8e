//! What the data of Dataset Management and Copy say: ranges, each checked before anything is done.

use super::{Blocks, Refusal, inside};
use crate::controller::{NamespaceInfo, NamespaceSet};
use crate::queue::Transfer;
use nvme_spec::nvm::{
    COPY_RANGE_BYTES, CopyRange, DATASET_RANGE_BYTES, DATASET_RANGES_MAX, DatasetRange,
    copy_format_bit, dataset_attribute,
};
use nvme_spec::{Lba, Nsid, Sqe, Status};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use zerocopy::FromBytes;

/// MSRC + 1: source ranges of one Copy; their list is one page.
pub const COPY_RANGES_MAX: u16 = 128;
/// MSSRL and MCL in bytes: all that one Copy moves lies in one staging buffer, so that every source is read before anything is written.
const COPY_BYTES_MAX: u32 = 1 << 20;
/// OCFS: source ranges in the destination's namespace (0h), and in any of the subsystem (2h).
pub const COPY_FORMATS: u16 = copy_format_bit(FORMAT_HERE) | copy_format_bit(FORMAT_ANYWHERE);

const FORMAT_HERE: u8 = 0;
const FORMAT_ANYWHERE: u8 = 2;

/// Most bytes of a list. Linux sends a whole page with Dataset Management, whatever the number of ranges in it.
const LIST_BYTES_MAX: u32 = 4096;
const _: () = assert!(COPY_RANGES_MAX as u32 * COPY_RANGE_BYTES <= LIST_BYTES_MAX);
const _: () = assert!(DATASET_RANGES_MAX * DATASET_RANGE_BYTES <= LIST_BYTES_MAX);

/// MSSRL and MCL: blocks of one source range, and of all.
#[must_use]
pub fn copy_blocks_max(lba_bytes: u32) -> u16 {
    u16::try_from(COPY_BYTES_MAX / lba_bytes.max(1)).unwrap_or(u16::MAX)
}

/// A checked Dataset Management command, its ranges still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatasetManagement {
    /// Which namespace.
    pub nsid: Nsid,
    /// Ranges in the data, 1 to 256.
    pub ranges: u16,
    /// AD; otherwise the ranges are hints.
    pub deallocate: bool,
    /// IDR: the ranges will be read as a whole.
    pub integral_read: bool,
    /// Bytes that the host sends; at least the ranges'.
    pub data_bytes: u32,
}

impl DatasetManagement {
    pub(super) fn deallocates(sqe: &Sqe) -> bool {
        sqe.cdw11.get() & dataset_attribute::DEALLOCATE != 0
    }

    pub(super) fn parse(
        sqe: &Sqe,
        transfer: Transfer,
        info: &NamespaceInfo,
    ) -> Result<Self, Status> {
        let ranges = sqe.dataset_ranges();
        Ok(Self {
            nsid: info.nsid,
            ranges,
            deallocate: Self::deallocates(sqe),
            integral_read: sqe.cdw11.get() & dataset_attribute::INTEGRAL_READ != 0,
            data_bytes: list_bytes(transfer, u32::from(ranges) * DATASET_RANGE_BYTES)?,
        })
    }

    /// The ranges: first block and number of blocks, none of them empty, all inside of the namespace.
    ///
    /// # Errors
    /// The status that the host gets, and the block that it is about; then nothing must be done.
    pub fn blocks(
        &self,
        data: &[u8],
        namespaces: &NamespaceSet,
    ) -> Result<Vec<(Lba, u32)>, Refusal> {
        let info = namespaces.require(self.nsid)?;
        let (list, _) =
            <[DatasetRange]>::ref_from_prefix_with_elems(data, usize::from(self.ranges))
                .map_err(|_| Status::DATA_SGL_LENGTH_INVALID.dnr())?;
        let mut ranges = Vec::with_capacity(list.len());
        for range in list {
            let (lba, blocks) = (Lba(range.slba.get()), range.blocks.get());
            inside(info, lba, blocks)?;
            if blocks > 0 {
                ranges.push((lba, blocks));
            }
        }
        Ok(ranges)
    }
}

/// A checked Copy command, its source ranges still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyCommand {
    /// The destination's namespace.
    pub nsid: Nsid,
    /// First block of the destination.
    pub lba: Lba,
    /// Source ranges in the data, 1 to [`COPY_RANGES_MAX`].
    pub ranges: u16,
    /// Format of their descriptors.
    format: u8,
    /// FUA: durable before it completes.
    pub force_unit_access: bool,
    /// Bytes that the host sends; at least the ranges'.
    pub data_bytes: u32,
}

impl CopyCommand {
    pub(super) fn parse(
        sqe: &Sqe,
        transfer: Transfer,
        info: &NamespaceInfo,
    ) -> Result<Self, Status> {
        let (format, ranges) = (sqe.copy_format(), sqe.copy_ranges());
        if COPY_FORMATS & copy_format_bit(format) == 0 {
            return Err(Status::INVALID_FIELD.dnr());
        }
        if ranges > COPY_RANGES_MAX {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr());
        }
        Ok(Self {
            nsid: info.nsid,
            lba: sqe.slba(),
            ranges,
            format,
            force_unit_access: sqe.fua(),
            data_bytes: list_bytes(transfer, u32::from(ranges) * COPY_RANGE_BYTES)?,
        })
    }

    /// The source ranges in their order. They, and the destination that is as long as all of them, are inside of their namespaces, have blocks
    /// of one size, and do not overlap. `enabled`: formats that the host has enabled, besides 0h.
    ///
    /// # Errors
    /// The status that the host gets, and the block that it is about; then nothing must be done.
    pub fn sources(
        &self,
        data: &[u8],
        namespaces: &NamespaceSet,
        enabled: &CopyFormats,
    ) -> Result<Vec<Blocks>, Refusal> {
        if self.format != FORMAT_HERE && !enabled.has(self.format) {
            return Err(Status::INVALID_FIELD.dnr().into());
        }
        let destination = namespaces.require(self.nsid)?;
        let (list, _) = <[CopyRange]>::ref_from_prefix_with_elems(data, usize::from(self.ranges))
            .map_err(|_| Status::DATA_SGL_LENGTH_INVALID.dnr())?;
        let mut sources = Vec::with_capacity(list.len());
        let mut total: u32 = 0;
        for range in list {
            let info = match self.format {
                FORMAT_HERE => destination,
                _ => namespaces.require(Nsid(range.snsid.get()))?,
            };
            // Copies across formats (conformance.md): nothing is converted.
            if info.lba_bytes != destination.lba_bytes {
                return Err(Status::INCOMPATIBLE_NAMESPACE.dnr().into());
            }
            total += range.blocks();
            if total > u32::from(copy_blocks_max(destination.lba_bytes)) {
                return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr().into());
            }
            sources.push(inside(info, Lba(range.slba.get()), range.blocks())?);
        }
        let written = inside(destination, self.lba, total)?;
        if sources.iter().any(|source| overlap(source, &written)) {
            return Err(Status::OVERLAPPING_IO_RANGE.dnr().into());
        }
        Ok(sources)
    }
}

/// Copy descriptor formats that a host has enabled with Host Behavior Support (CDFE); shared by a controller and its queues.
#[derive(Clone, Debug, Default)]
pub struct CopyFormats(Arc<AtomicU16>);

impl CopyFormats {
    pub(in crate::controller) fn enable(&self, cdfe: u16) {
        self.0.store(cdfe, Ordering::Relaxed);
    }

    fn has(&self, format: u8) -> bool {
        self.0.load(Ordering::Relaxed) & copy_format_bit(format) != 0
    }
}

fn overlap(a: &Blocks, b: &Blocks) -> bool {
    a.nsid == b.nsid
        && a.lba.0 < b.lba.0 + u64::from(b.blocks)
        && b.lba.0 < a.lba.0 + u64::from(a.blocks)
}

/// Bytes of a list: what the descriptor says, where that holds the ranges and is no more than a page.
fn list_bytes(transfer: Transfer, wanted: u32) -> Result<u32, Status> {
    match transfer {
        Transfer::InMemory => Ok(wanted),
        _ if (wanted..=LIST_BYTES_MAX).contains(&transfer.bytes()) => Ok(transfer.bytes()),
        _ => Err(Status::DATA_SGL_LENGTH_INVALID.dnr()),
    }
}
