//! Structures of the protocol: little-endian here, as on every machine that this runs on (the protocol has the byte order of the machine).

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;
/// The longest body that is taken: the longest configuration space, with room for a full table of memory regions.
pub const BODY_BYTES_MAX: u32 = 512;
/// Bytes of a configuration space.
pub const CONFIG_BYTES_MAX: u32 = 256;
/// File descriptors of a message: one a region of a memory table.
pub const FILES_MAX: usize = 8;
/// Regions of SET_MEM_TABLE.
pub const TABLE_REGIONS_MAX: usize = 8;

const _: () = assert!(
    12 + CONFIG_BYTES_MAX <= BODY_BYTES_MAX
        && 8 + 32 * TABLE_REGIONS_MAX <= BODY_BYTES_MAX as usize,
    "each body fits"
);
const _: () = assert!(TABLE_REGIONS_MAX <= FILES_MAX, "each region has its file");
const _: () = assert!(
    cfg!(target_endian = "little"),
    "the protocol has the machine's byte order; big-endian ones need another reading"
);

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const F_REPLY: u32 = 1 << 2;
const F_NEED_REPLY: u32 = 1 << 3;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which message.
    pub code: u32,
    /// Version and flags.
    pub flags: u32,
    /// Bytes of the body.
    pub bytes: u32,
}

impl Header {
    /// From its bytes.
    #[must_use]
    pub fn of_bytes(bytes: [u8; HEADER_BYTES]) -> Self {
        let mut words = Words(&bytes);
        Self {
            code: words.u32(),
            flags: words.u32(),
            bytes: words.u32(),
        }
    }

    /// As bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes
            .chunks_exact_mut(4)
            .zip([self.code, self.flags, self.bytes])
        {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Whether it begins a request of the version that there is.
    pub(crate) fn is_request(self) -> bool {
        self.flags & VERSION_MASK == VERSION && self.flags & F_REPLY == 0
    }

    /// Whether the sender wants an acknowledgement.
    pub(crate) fn wants_reply(self) -> bool {
        self.flags & F_NEED_REPLY != 0
    }

    pub(crate) fn reply(code: u32, bytes: u32) -> Self {
        let flags = VERSION | F_REPLY;
        Self { code, flags, bytes }
    }

    pub(crate) fn request(code: u32, bytes: u32) -> Self {
        let flags = VERSION;
        Self { code, flags, bytes }
    }
}

/// A queue and a number: its size, its base, or whether it is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringState {
    /// Which queue.
    pub index: u32,
    /// The number.
    pub value: u32,
}

/// Where a queue's areas lie, in the front-end's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringAddress {
    /// Which queue.
    pub index: u32,
    /// VHOST_VRING_F_LOG.
    pub flags: u32,
    /// The descriptor area.
    pub descriptors: u64,
    /// The device area.
    pub device: u64,
    /// The driver area.
    pub driver: u64,
    /// Where dirty pages are logged.
    pub log: u64,
}

/// A run of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// First byte, as the guest addresses it.
    pub guest_address: u64,
    /// Bytes.
    pub bytes: u64,
    /// First byte, as the front-end addresses it.
    pub user_address: u64,
    /// Where it begins in its file.
    pub file_offset: u64,
}

/// Memory for what is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflight {
    /// Bytes.
    pub bytes: u64,
    /// Where it begins in its file.
    pub file_offset: u64,
    /// Queues.
    pub queues: u16,
    /// Descriptors of each.
    pub queue_size: u16,
}

impl Inflight {
    /// As QEMU has it: with the padding of its structure.
    pub(crate) const BYTES: usize = 24;
    /// As the document has it.
    pub(crate) const BYTES_PACKED: usize = 20;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.file_offset.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.queues.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.queue_size.to_le_bytes());
        bytes
    }
}

/// Takes integers off the front of bytes whose number has been checked; what is missing reads as 0.
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

impl Words<'_> {
    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.0.split_first_chunk() else {
            debug_assert!(false, "the length was checked");
            return [0; N];
        };
        self.0 = rest;
        *first
    }

    pub(crate) fn state(&mut self) -> VringState {
        VringState {
            index: self.u32(),
            value: self.u32(),
        }
    }

    pub(crate) fn region(&mut self) -> MemoryRegion {
        MemoryRegion {
            guest_address: self.u64(),
            bytes: self.u64(),
            user_address: self.u64(),
            file_offset: self.u64(),
        }
    }

    pub(crate) fn address(&mut self) -> VringAddress {
        VringAddress {
            index: self.u32(),
            flags: self.u32(),
            descriptors: self.u64(),
            device: self.u64(),
            driver: self.u64(),
            log: self.u64(),
        }
    }

    pub(crate) fn inflight(&mut self) -> Inflight {
        Inflight {
            bytes: self.u64(),
            file_offset: self.u64(),
            queues: self.u16(),
            queue_size: self.u16(),
        }
    }
}
