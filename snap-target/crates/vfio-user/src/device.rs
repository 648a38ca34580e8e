//! What a device says of itself: the questions that a description answers.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::errno::Errno;
use crate::wire::{self, device_flags, region_flags};

/// A PCI device: its regions and interrupts by index, as linux/vfio.h numbers them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// BAR0 to BAR5, ROM, configuration space, VGA.
    pub regions: Vec<Region>,
    /// INTx, MSI, MSI-X, ERR, REQ.
    pub interrupts: Vec<Interrupt>,
}

/// A region; the default one is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// Bytes; 0: it is not there.
    pub size: u64,
    /// REGION_READ.
    pub readable: bool,
    /// REGION_WRITE.
    pub writable: bool,
    /// Parts of it that the client may map. Where there are any, the reply to GET_REGION_INFO brings the region's descriptor
    /// ([`crate::Outgoing::region_fd`]).
    pub areas: Vec<Area>,
}

/// A part of a region, from its beginning; also where it is in the region's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A kind of interrupts; the default one is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interrupt {
    /// See [`irq_flags`].
    pub flags: u32,
    /// How many.
    pub count: u32,
}

/// Flags of [`Interrupt`].
pub mod irq_flags {
    /// By a descriptor.
    pub const EVENTFD: u32 = 1 << 0;
    /// Takes mask and unmask.
    pub const MASKABLE: u32 = 1 << 1;
    /// Masks itself when it is triggered.
    pub const AUTOMASKED: u32 = 1 << 2;
    /// Vectors are set up together.
    pub const NORESIZE: u32 = 1 << 3;
}

impl Region {
    /// Whether bytes `[offset, offset + count)` lie in it.
    pub(crate) fn has(&self, offset: u64, count: u32) -> bool {
        offset
            .checked_add(u64::from(count))
            .is_some_and(|end| end <= self.size)
    }

    fn flags(&self) -> u32 {
        let mappable = if self.areas.is_empty() {
            0
        } else {
            region_flags::MMAP | region_flags::CAPS
        };
        let readable = if self.readable { region_flags::READ } else { 0 };
        let writable = if self.writable {
            region_flags::WRITE
        } else {
            0
        };
        mappable | readable | writable
    }
}

impl Device {
    pub(crate) fn region(&self, index: u32) -> Result<&Region, Errno> {
        self.regions.get(index as usize).ok_or(Errno::EINVAL)
    }

    pub(crate) fn interrupt(&self, index: u32) -> Result<&Interrupt, Errno> {
        self.interrupts.get(index as usize).ok_or(Errno::EINVAL)
    }

    /// The reply to DEVICE_GET_INFO.
    pub(crate) fn info(&self, asked: &wire::DeviceInfo) -> Result<Vec<u8>, Errno> {
        if asked.argsz.get() < bytes_of::<wire::DeviceInfo>() {
            return Err(Errno::EINVAL);
        }
        let info = wire::DeviceInfo {
            argsz: U32::new(bytes_of::<wire::DeviceInfo>()),
            flags: U32::new(device_flags::PCI | device_flags::RESET),
            regions: U32::new(count(self.regions.len())),
            irqs: U32::new(count(self.interrupts.len())),
        };
        Ok(info.as_bytes().to_vec())
    }

    /// The reply to DEVICE_GET_REGION_INFO, and whether the region's descriptor goes with it. Where the client has no room for the capabilities it is told
    /// how much they need.
    pub(crate) fn region_info(&self, asked: &wire::RegionInfo) -> Result<(Vec<u8>, bool), Errno> {
        let room = asked.argsz.get();
        if room < bytes_of::<wire::RegionInfo>() {
            return Err(Errno::EINVAL);
        }
        let region = self.region(asked.index.get())?;
        let caps = capabilities(region);
        let whole = bytes_of::<wire::RegionInfo>() + count(caps.len());
        let has_room = whole <= room;
        // Where they would be, too: QEMU 11.1 takes a region with capabilities at 0 for an error, and asks again for more room then.
        let first = match caps.is_empty() {
            true => 0,
            false => bytes_of::<wire::RegionInfo>(),
        };
        let info = wire::RegionInfo {
            argsz: U32::new(whole),
            flags: U32::new(region.flags()),
            index: asked.index,
            cap_offset: U32::new(first),
            size: U64::new(region.size),
            offset: U64::ZERO,
        };
        let mut reply = info.as_bytes().to_vec();
        if has_room {
            reply.extend_from_slice(&caps);
        }
        Ok((reply, !region.areas.is_empty()))
    }

    /// The reply to DEVICE_GET_IRQ_INFO.
    pub(crate) fn irq_info(&self, asked: &wire::IrqInfo) -> Result<Vec<u8>, Errno> {
        if asked.argsz.get() < bytes_of::<wire::IrqInfo>() {
            return Err(Errno::EINVAL);
        }
        let interrupt = self.interrupt(asked.index.get())?;
        let info = wire::IrqInfo {
            argsz: U32::new(bytes_of::<wire::IrqInfo>()),
            flags: U32::new(interrupt.flags),
            index: asked.index,
            count: U32::new(interrupt.count),
        };
        Ok(info.as_bytes().to_vec())
    }
}

/// The one capability there is: areas that can be mapped.
fn capabilities(region: &Region) -> Vec<u8> {
    if region.areas.is_empty() {
        return Vec::new();
    }
    let header = wire::CapHeader {
        id: U16::new(wire::CAP_SPARSE_MMAP),
        version: U16::new(1),
        next: U32::ZERO,
    };
    let sparse = wire::SparseMmap {
        areas: U32::new(count(region.areas.len())),
        reserved_4: U32::ZERO,
    };
    let mut caps = header.as_bytes().to_vec();
    caps.extend_from_slice(sparse.as_bytes());
    for area in &region.areas {
        let area = wire::SparseArea {
            offset: U64::new(area.offset),
            size: U64::new(area.size),
        };
        caps.extend_from_slice(area.as_bytes());
    }
    caps
}

/// Bytes of a structure, as `argsz` counts them.
#[expect(clippy::cast_possible_truncation, reason = "a few bytes")]
pub(crate) const fn bytes_of<T>() -> u32 {
    size_of::<T>() as u32
}

/// A description has no more than a few of anything.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
