//! Requests of the driver, checked against their disk.

use nvme_spec::IoOpcode;
use reactor::Errno;
use ublk::{Descriptor, Operation, SECTOR_BYTES};

use crate::disk::Disk;
use crate::limits::{RANGE_BLOCKS_MAX, REQUEST_BYTES_MAX};

/// A request, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Read {
        lba: u64,
        bytes: u32,
    },
    Write {
        lba: u64,
        bytes: u32,
        durable: bool,
    },
    Flush,
    /// None: no whole block is in it.
    Discard {
        range: Option<(u64, u32)>,
    },
    WriteZeroes {
        lba: u64,
        blocks: u32,
        unmap: bool,
        durable: bool,
    },
}

impl Request {
    /// What a descriptor asks.
    ///
    /// # Errors
    /// What the driver is told: it is not something that this disk can do. The driver is trusted, but a disk may have become smaller under it.
    pub(crate) fn of(descriptor: &Descriptor, disk: &Disk) -> Result<Self, Errno> {
        let operation = descriptor.operation();
        let changes = !matches!(operation, Operation::Read | Operation::Flush);
        if changes && disk.read_only {
            return Err(Errno::EIO);
        }
        let durable = descriptor.is_durable();
        match operation {
            Operation::Read => {
                let (lba, bytes) = data(descriptor, disk)?;
                Ok(Self::Read { lba, bytes })
            }
            Operation::Write => {
                let (lba, bytes) = data(descriptor, disk)?;
                Ok(Self::Write {
                    lba,
                    bytes,
                    durable,
                })
            }
            Operation::Flush => Ok(Self::Flush),
            Operation::Discard => {
                check_range(descriptor, disk)?;
                // A hint: blocks that are not covered as a whole stay.
                let per_block = u64::from(disk.sectors_per_block());
                let first = descriptor.sector.div_ceil(per_block);
                let behind = (descriptor.sector + u64::from(descriptor.sectors)) / per_block;
                let blocks = u32::try_from(behind.saturating_sub(first)).unwrap_or(0);
                Ok(Self::Discard {
                    range: (blocks > 0).then_some((first, blocks)),
                })
            }
            Operation::WriteZeroes => {
                check_range(descriptor, disk)?;
                let (lba, blocks) = whole_blocks(descriptor, disk)?;
                Ok(Self::WriteZeroes {
                    lba,
                    blocks,
                    unmap: descriptor.may_unmap(),
                    durable,
                })
            }
            Operation::Other(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The NVMe command that does the same.
    pub(crate) fn opcode(&self) -> IoOpcode {
        match self {
            Self::Read { .. } => IoOpcode::READ,
            Self::Write { .. } => IoOpcode::WRITE,
            Self::Flush => IoOpcode::FLUSH,
            Self::Discard { .. } => IoOpcode::DATASET_MANAGEMENT,
            Self::WriteZeroes { .. } => IoOpcode::WRITE_ZEROES,
        }
    }

    /// Bytes that are moved.
    pub(crate) fn bytes(&self) -> u32 {
        match self {
            Self::Read { bytes, .. } | Self::Write { bytes, .. } => *bytes,
            _ => 0,
        }
    }
}

fn data(descriptor: &Descriptor, disk: &Disk) -> Result<(u64, u32), Errno> {
    check_inside(descriptor, disk)?;
    let (lba, blocks) = whole_blocks(descriptor, disk)?;
    let bytes = u64::from(blocks) * u64::from(disk.block_bytes);
    let bytes = u32::try_from(bytes).map_err(|_| Errno::EIO)?;
    match bytes <= REQUEST_BYTES_MAX {
        true => Ok((lba, bytes)),
        false => Err(Errno::EIO),
    }
}

fn check_range(descriptor: &Descriptor, disk: &Disk) -> Result<(), Errno> {
    check_inside(descriptor, disk)?;
    match descriptor.sectors <= RANGE_BLOCKS_MAX * disk.sectors_per_block() {
        true => Ok(()),
        false => Err(Errno::EIO),
    }
}

fn check_inside(descriptor: &Descriptor, disk: &Disk) -> Result<(), Errno> {
    let end = descriptor.sector.checked_add(descriptor.sectors.into());
    match descriptor.sectors > 0 && end.is_some_and(|end| end <= disk.sectors()) {
        true => Ok(()),
        false => Err(Errno::EIO),
    }
}

fn whole_blocks(descriptor: &Descriptor, disk: &Disk) -> Result<(u64, u32), Errno> {
    debug_assert!(disk.block_bytes >= SECTOR_BYTES);
    let per_block = disk.sectors_per_block();
    let sector = descriptor.sector;
    if !sector.is_multiple_of(per_block.into()) || !descriptor.sectors.is_multiple_of(per_block) {
        return Err(Errno::EIO);
    }
    Ok((
        sector / u64::from(per_block),
        descriptor.sectors / per_block,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u8 = 0;
    const WRITE: u8 = 1;
    const FLUSH: u8 = 2;
    const DISCARD: u8 = 3;
    const WRITE_ZEROES: u8 = 5;
    const FUA: u32 = 1 << 13;
    const NO_UNMAP: u32 = 1 << 15;

    fn disk(block_bytes: u32, read_only: bool) -> Disk {
        Disk {
            block_bytes,
            read_only,
            ..crate::disk::tests::disk()
        }
    }

    fn of(operation: u8, flags: u32, sector: u64, sectors: u32) -> Result<Request, Errno> {
        Request::of(
            &Descriptor::new(operation, flags, sector, sectors),
            &disk(4096, false),
        )
    }

    #[test]
    fn requests_are_what_their_descriptors_say() {
        assert_eq!(
            of(READ, 0, 8, 16),
            Ok(Request::Read {
                lba: 1,
                bytes: 8192
            })
        );
        let write = |durable| {
            Ok(Request::Write {
                lba: 999,
                bytes: 4096,
                durable,
            })
        };
        assert_eq!(of(WRITE, 0, 7992, 8), write(false));
        assert_eq!(of(WRITE, FUA, 7992, 8), write(true));
        assert_eq!(of(FLUSH, 0, 0, 0), Ok(Request::Flush));
        let zeroes = |unmap, durable| {
            Ok(Request::WriteZeroes {
                lba: 0,
                blocks: 1000,
                unmap,
                durable,
            })
        };
        assert_eq!(of(WRITE_ZEROES, 0, 0, 8000), zeroes(true, false));
        assert_eq!(
            of(WRITE_ZEROES, NO_UNMAP | FUA, 0, 8000),
            zeroes(false, true)
        );
        let discard = |range| Ok(Request::Discard { range });
        assert_eq!(of(DISCARD, 0, 8, 16), discard(Some((1, 2))));
        assert_eq!(
            of(DISCARD, 0, 7, 17),
            discard(Some((1, 2))),
            "whole blocks alone"
        );
        assert_eq!(of(DISCARD, 0, 9, 14), discard(None));
        for operation in [4, 6, 10, 255] {
            assert_eq!(
                of(operation, 0, 0, 8),
                Err(Errno::EOPNOTSUPP),
                "{operation}"
            );
        }
    }

    #[test]
    fn what_is_outside_or_no_whole_block_is_refused() {
        for operation in [READ, WRITE, DISCARD, WRITE_ZEROES] {
            for (sector, sectors) in [
                (8000, 8),
                (7992, 16),
                (u64::MAX - 7, 8),
                (u64::MAX, 1),
                (0, 0),
            ] {
                let refused = of(operation, 0, sector, sectors);
                assert_eq!(refused, Err(Errno::EIO), "{operation} {sector} {sectors}");
            }
        }
        for operation in [READ, WRITE, WRITE_ZEROES] {
            for (sector, sectors) in [(1, 8), (0, 7), (4, 8)] {
                assert_eq!(of(operation, 0, sector, sectors), Err(Errno::EIO));
            }
        }
        // One MiB, and no more.
        assert!(of(READ, 0, 0, 2048).is_ok());
        assert_eq!(of(READ, 0, 0, 2056), Err(Errno::EIO));
    }

    #[test]
    fn a_read_only_disk_is_read() {
        let read_only = disk(512, true);
        let of = |operation| Request::of(&Descriptor::new(operation, 0, 3, 1), &read_only);
        assert_eq!(of(READ), Ok(Request::Read { lba: 3, bytes: 512 }));
        assert_eq!(of(FLUSH), Ok(Request::Flush));
        for operation in [WRITE, DISCARD, WRITE_ZEROES] {
            assert_eq!(of(operation), Err(Errno::EIO));
        }
    }
}
