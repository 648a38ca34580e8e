//! Requests of the driver (virtio 1.3, 5.2.6).

use guest_memory::Windows;
use nvme_spec::IoOpcode;
use virtio_ring::Descriptor;

use crate::disk::{Disk, SECTOR_BYTES, SERIAL_BYTES};
use crate::limits::{DISCARD_SEGMENTS_MAX, RANGE_BLOCKS_MAX, REQUEST_BYTES_MAX};

const T_IN: u32 = 0;
const T_OUT: u32 = 1;
const T_FLUSH: u32 = 4;
const T_GET_ID: u32 = 8;
const T_DISCARD: u32 = 11;
const T_WRITE_ZEROES: u32 = 13;

const HEADER_BYTES: usize = 16;
const RANGE_BYTES: usize = 16;
const RANGES_BYTES_MAX: usize = RANGE_BYTES * DISCARD_SEGMENTS_MAX as usize;
/// VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP.
const FLAG_UNMAP: u32 = 1;

/// How a request ended, as its status byte says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// A request, checked against its disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Into the chain's writable memory.
    Read {
        lba: u64,
        bytes: u32,
    },
    /// Out of its readable memory.
    Write {
        lba: u64,
        bytes: u32,
    },
    Flush,
    GetId,
    Discard {
        ranges: Vec<(u64, u32)>,
    },
    WriteZeroes {
        lba: u64,
        blocks: u32,
        unmap: bool,
    },
}

impl Request {
    /// The NVMe command that does the same; None: it is not about the namespace's content.
    pub(crate) fn opcode(&self) -> Option<IoOpcode> {
        Some(match self {
            Self::Read { .. } => IoOpcode::READ,
            Self::Write { .. } => IoOpcode::WRITE,
            Self::Flush => IoOpcode::FLUSH,
            Self::Discard { .. } => IoOpcode::DATASET_MANAGEMENT,
            Self::WriteZeroes { .. } => IoOpcode::WRITE_ZEROES,
            Self::GetId => return None,
        })
    }
}

/// Where the parts of a chain lie; kept from request to request for its memory.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// What the device reads, behind the header.
    pub(crate) readable: Vec<(u64, u32)>,
    pub(crate) readable_bytes: u64,
    /// What it writes, before the status byte.
    pub(crate) writable: Vec<(u64, u32)>,
    pub(crate) writable_bytes: u64,
    header: [u8; HEADER_BYTES],
    /// The status byte.
    pub(crate) status: u64,
}

impl Parts {
    /// Takes a chain apart, whatever its framing (5.2.6: the driver may cut it anywhere). `None`: there is no place for a status; an error: one that
    /// can be told.
    pub(crate) fn take(
        &mut self,
        chain: &[Descriptor],
        windows: &Windows,
    ) -> Option<Result<(), Status>> {
        self.readable.clear();
        self.writable.clear();
        (self.readable_bytes, self.writable_bytes) = (0, 0);
        let mut header_bytes = 0;
        let mut is_outside = false;
        for descriptor in chain.iter().filter(|descriptor| descriptor.bytes > 0) {
            let Descriptor { address, bytes, .. } = *descriptor;
            if address.checked_add(bytes.into()).is_none() {
                // No window ends beyond the last address: it is looked up, and not found.
                is_outside = true;
            }
            if descriptor.writable {
                self.writable.push((address, bytes));
                self.writable_bytes += u64::from(bytes);
                continue;
            }
            let missing = HEADER_BYTES - header_bytes;
            let of_header = missing.min(bytes as usize);
            let place = self.header.get_mut(header_bytes..header_bytes + of_header);
            is_outside |= windows.read(address, place.unwrap_or_default()).is_err();
            header_bytes += of_header;
            // At most 16.
            let of_header = u32::try_from(of_header).unwrap_or(bytes);
            if bytes > of_header {
                let behind = address.wrapping_add(of_header.into());
                self.readable.push((behind, bytes - of_header));
                self.readable_bytes += u64::from(bytes - of_header);
            }
        }
        let (address, bytes) = self.writable.last_mut()?;
        *bytes -= 1;
        self.status = address.wrapping_add(u64::from(*bytes));
        if *bytes == 0 {
            self.writable.pop();
        }
        self.writable_bytes -= 1;
        match header_bytes == HEADER_BYTES && !is_outside {
            true => Some(Ok(())),
            false => Some(Err(Status::IoError)),
        }
    }

    /// What the request is.
    ///
    /// # Errors
    /// The status to answer with.
    pub(crate) fn parse(&self, disk: &Disk, windows: &Windows) -> Result<Request, Status> {
        let word = |at: usize| {
            self.header
                .get(at..at + 4)
                .and_then(|word| word.try_into().ok())
        };
        let kind = u32::from_le_bytes(word(0).unwrap_or_default());
        let low = u32::from_le_bytes(word(8).unwrap_or_default());
        let high = u32::from_le_bytes(word(12).unwrap_or_default());
        let sector = u64::from(low) | u64::from(high) << 32;
        let refused = disk.read_only && matches!(kind, T_OUT | T_DISCARD | T_WRITE_ZEROES);
        if refused {
            return Err(Status::IoError);
        }
        match kind {
            T_IN => {
                let (lba, bytes) = data(disk, sector, self.writable_bytes)?;
                Ok(Request::Read { lba, bytes })
            }
            T_OUT => {
                let (lba, bytes) = data(disk, sector, self.readable_bytes)?;
                Ok(Request::Write { lba, bytes })
            }
            T_FLUSH => Ok(Request::Flush),
            T_GET_ID if self.writable_bytes >= SERIAL_BYTES as u64 => Ok(Request::GetId),
            T_GET_ID => Err(Status::IoError),
            T_DISCARD => self.discard(disk, windows),
            T_WRITE_ZEROES => self.write_zeroes(disk, windows),
            _ => Err(Status::Unsupported),
        }
    }

    fn discard(&self, disk: &Disk, windows: &Windows) -> Result<Request, Status> {
        let mut space = [0; RANGES_BYTES_MAX];
        let given = self.ranges(windows, &mut space)?;
        // "unmap" is reserved here, too.
        if given.iter().any(|range| range.flags != 0) {
            return Err(Status::Unsupported);
        }
        let mut ranges = Vec::with_capacity(given.len());
        for range in given {
            range.check(disk)?;
            // A hint: blocks that are not covered as a whole stay.
            let per_block = u64::from(disk.sectors_per_block());
            let first = range.sector.div_ceil(per_block);
            let behind = (range.sector + u64::from(range.sectors)) / per_block;
            let blocks = u32::try_from(behind.saturating_sub(first)).unwrap_or(0);
            if blocks > 0 {
                ranges.push((first, blocks));
            }
        }
        Ok(Request::Discard { ranges })
    }

    fn write_zeroes(&self, disk: &Disk, windows: &Windows) -> Result<Request, Status> {
        let mut space = [0; RANGES_BYTES_MAX];
        let given = self.ranges(windows, &mut space)?;
        let [range] = given.as_slice() else {
            return Err(Status::IoError);
        };
        if range.flags & !FLAG_UNMAP != 0 {
            return Err(Status::Unsupported);
        }
        range.check(disk)?;
        let per_block = disk.sectors_per_block();
        if range.sector % u64::from(per_block) != 0 || range.sectors % per_block != 0 {
            return Err(Status::IoError);
        }
        Ok(Request::WriteZeroes {
            lba: range.sector / u64::from(per_block),
            blocks: range.sectors / per_block,
            unmap: range.flags & FLAG_UNMAP != 0,
        })
    }

    /// The ranges in the data, read once.
    fn ranges(
        &self,
        windows: &Windows,
        space: &mut [u8; RANGES_BYTES_MAX],
    ) -> Result<Vec<Range>, Status> {
        let bytes = usize::try_from(self.readable_bytes).unwrap_or(usize::MAX);
        if bytes == 0 || bytes % RANGE_BYTES != 0 {
            return Err(Status::IoError);
        }
        let space = space.get_mut(..bytes).ok_or(Status::IoError)?;
        let mut rest = &mut *space;
        for (address, bytes) in &self.readable {
            let (part, behind) = rest
                .split_at_mut_checked(*bytes as usize)
                .ok_or(Status::IoError)?;
            windows.read(*address, part).map_err(|_| Status::IoError)?;
            rest = behind;
        }
        Ok(space
            .chunks_exact(RANGE_BYTES)
            .map(Range::of_bytes)
            .collect())
    }
}

/// `struct virtio_blk_discard_write_zeroes`.
#[derive(Clone, Copy, Debug)]
struct Range {
    sector: u64,
    sectors: u32,
    flags: u32,
}

impl Range {
    fn of_bytes(bytes: &[u8]) -> Self {
        let mut sector = [0; 8];
        let mut words = [[0; 4]; 2];
        sector.copy_from_slice(&bytes[..8]);
        words[0].copy_from_slice(&bytes[8..12]);
        words[1].copy_from_slice(&bytes[12..16]);
        Self {
            sector: u64::from_le_bytes(sector),
            sectors: u32::from_le_bytes(words[0]),
            flags: u32::from_le_bytes(words[1]),
        }
    }

    fn check(&self, disk: &Disk) -> Result<(), Status> {
        let end = self.sector.checked_add(self.sectors.into());
        let is_inside = end.is_some_and(|end| end <= disk.sectors());
        let sectors_max = RANGE_BLOCKS_MAX * disk.sectors_per_block();
        match is_inside && (1..=sectors_max).contains(&self.sectors) {
            true => Ok(()),
            false => Err(Status::IoError),
        }
    }
}

/// The blocks of a read or a write: whole ones, inside of the disk.
fn data(disk: &Disk, sector: u64, bytes: u64) -> Result<(u64, u32), Status> {
    let bytes = u32::try_from(bytes).map_err(|_| Status::IoError)?;
    let per_block = u64::from(disk.sectors_per_block());
    let sectors = u64::from(bytes / SECTOR_BYTES);
    let end = sector.checked_add(sectors);
    let is_right = bytes > 0
        && bytes <= REQUEST_BYTES_MAX
        && bytes % disk.block_bytes == 0
        && sector.is_multiple_of(per_block)
        && end.is_some_and(|end| end <= disk.sectors());
    match is_right {
        true => Ok((sector / per_block, bytes)),
        false => Err(Status::IoError),
    }
}
