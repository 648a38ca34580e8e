//! Messages as they are on the wire.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Structures of alignment 1 with their sizes asserted.
macro_rules! structures {
    ($($(#[$meta:meta])* $name:ident: $bytes:literal { $($(#[$field_meta:meta])* $field:ident: $kind:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
            #[repr(C)]
            pub struct $name { $($(#[$field_meta])* pub $field: $kind,)* }
            const _: () = assert!(size_of::<$name>() == $bytes);
        )*
    };
}

structures! {
    /// What every message begins with.
    Header: 16 {
        /// The sender's name for the message; comes back in the reply.
        id: U16,
        /// See [`command`].
        command: U16,
        /// Bytes of the whole message.
        size: U32,
        /// See [`flags`].
        flags: U32,
        /// In a reply with [`flags::ERROR`]: a Unix errno.
        error: U32,
    }
    /// VERSION, before its JSON.
    Version: 4 {
        /// 0.
        major: U16,
        /// 0.
        minor: U16,
    }
    /// DMA_MAP.
    DmaMap: 32 {
        /// Bytes of this structure.
        argsz: U32,
        /// See [`dma_flags`].
        flags: U32,
        /// Where in the descriptor's file the window begins.
        offset: U64,
        /// Where in the client's address space.
        address: U64,
        /// Bytes.
        size: U64,
    }
    /// DMA_UNMAP and its reply.
    DmaUnmap: 24 {
        /// Bytes of the reply at most.
        argsz: U32,
        /// See [`unmap_flags`].
        flags: U32,
        /// As it was mapped.
        address: U64,
        /// As it was mapped.
        size: U64,
    }
    /// DEVICE_GET_INFO and its reply.
    DeviceInfo: 16 {
        /// Bytes of the reply.
        argsz: U32,
        /// See [`device_flags`].
        flags: U32,
        /// How many regions.
        regions: U32,
        /// How many kinds of interrupts.
        irqs: U32,
    }
    /// DEVICE_GET_REGION_INFO and its reply, before the capabilities.
    RegionInfo: 32 {
        /// Bytes of the reply with its capabilities.
        argsz: U32,
        /// See [`region_flags`].
        flags: U32,
        /// Which region.
        index: U32,
        /// Where in the reply the first capability is; 0: there is none.
        cap_offset: U32,
        /// Bytes of the region.
        size: U64,
        /// What mmap is told, where it can be mapped.
        offset: U64,
    }
    /// What a capability begins with.
    CapHeader: 8 {
        /// 1: areas that can be mapped.
        id: U16,
        /// 1.
        version: U16,
        /// Where in the reply the next is; 0: this is the last.
        next: U32,
    }
    /// The capability of areas, before the areas.
    SparseMmap: 8 {
        /// How many.
        areas: U32,
        /// Zero.
        reserved_4: U32,
    }
    /// One area.
    SparseArea: 16 {
        /// From the region's beginning.
        offset: U64,
        /// Bytes.
        size: U64,
    }
    /// DEVICE_GET_IRQ_INFO and its reply.
    IrqInfo: 16 {
        /// Bytes of the reply.
        argsz: U32,
        /// See [`crate::irq_flags`].
        flags: U32,
        /// Which kind.
        index: U32,
        /// How many of it.
        count: U32,
    }
    /// DEVICE_SET_IRQS, before its booleans.
    SetIrqs: 20 {
        /// Bytes of the request, without its header.
        argsz: U32,
        /// See [`irq_set_flags`].
        flags: U32,
        /// Which kind.
        index: U32,
        /// The first.
        start: U32,
        /// How many.
        count: U32,
    }
    /// REGION_READ, REGION_WRITE and their replies, before the data.
    RegionAccess: 16 {
        /// From the region's beginning.
        offset: U64,
        /// Which.
        region: U32,
        /// Bytes.
        count: U32,
    }
    /// DMA_READ, DMA_WRITE and their replies, before the data.
    DmaAccess: 16 {
        /// In the client's address space.
        address: U64,
        /// Bytes.
        count: U64,
    }
}

/// Commands.
#[allow(missing_docs)]
pub mod command {
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DMA_READ: u16 = 11;
    pub const DMA_WRITE: u16 = 12;
    pub const DEVICE_RESET: u16 = 13;
    pub const REGION_WRITE_MULTI: u16 = 15;
    pub const DEVICE_FEATURE: u16 = 16;
    pub const MIG_DATA_READ: u16 = 17;
    pub const MIG_DATA_WRITE: u16 = 18;
}

/// Flags of a header.
pub mod flags {
    /// Bits 3:0: what the message is.
    pub const TYPE_MASK: u32 = 0xF;
    /// A command.
    pub const COMMAND: u32 = 0;
    /// A reply.
    pub const REPLY: u32 = 1;
    /// The sender wants no reply.
    pub const NO_REPLY: u32 = 1 << 4;
    /// The command failed.
    pub const ERROR: u32 = 1 << 5;
}

/// Flags of DMA_MAP.
pub mod dma_flags {
    /// May be read.
    pub const READ: u32 = 1 << 0;
    /// May be written.
    pub const WRITE: u32 = 1 << 1;
}

/// Flags of DMA_UNMAP.
pub mod unmap_flags {
    /// Asks for the pages that were written; not offered.
    pub const GET_DIRTY_BITMAP: u32 = 1 << 0;
    /// Every window; address and size are 0.
    pub const ALL: u32 = 1 << 1;
}

/// Flags of DEVICE_GET_INFO's reply.
pub mod device_flags {
    /// DEVICE_RESET is there.
    pub const RESET: u32 = 1 << 0;
    /// A PCI device.
    pub const PCI: u32 = 1 << 1;
}

/// Flags of DEVICE_GET_REGION_INFO's reply.
pub mod region_flags {
    /// May be read.
    pub const READ: u32 = 1 << 0;
    /// May be written.
    pub const WRITE: u32 = 1 << 1;
    /// Can be mapped; a descriptor comes along.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities follow, or would, had they room.
    pub const CAPS: u32 = 1 << 3;
}

/// Flags of DEVICE_SET_IRQS: one of the first three, one of the last three.
pub mod irq_set_flags {
    /// For all that are named.
    pub const DATA_NONE: u32 = 1 << 0;
    /// For those whose byte is not 0.
    pub const DATA_BOOL: u32 = 1 << 1;
    /// By descriptors, one each; without any they are taken away.
    pub const DATA_EVENTFD: u32 = 1 << 2;
    /// Mask.
    pub const ACTION_MASK: u32 = 1 << 3;
    /// Unmask.
    pub const ACTION_UNMASK: u32 = 1 << 4;
    /// Trigger.
    pub const ACTION_TRIGGER: u32 = 1 << 5;
    /// All of them.
    pub const ALL: u32 = 0x3F;
}

/// VFIO_REGION_INFO_CAP_SPARSE_MMAP.
pub const CAP_SPARSE_MMAP: u16 = 1;
