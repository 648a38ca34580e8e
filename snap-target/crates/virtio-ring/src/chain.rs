//! Descriptor chains: read once, in copies that are checked.

use crate::memory::{Area, Memory};

/// Descriptors of a chain, those of its indirect table among them.
pub const CHAIN_MAX: usize = 1024;
/// Bytes of a descriptor, in either format.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;

/// A run of guest memory that a chain names; whether it is there is for its user to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// First byte.
    pub address: u64,
    /// Bytes; may be 0.
    pub bytes: u32,
    /// Written by the device; else read by it.
    pub writable: bool,
}

/// A chain that breaks the rules of chains (virtio 1.3, 2.7.4 to 2.7.5 and 2.8.5 to 2.8.7). It was taken, and can be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// More than [`CHAIN_MAX`] descriptors, or a loop.
    #[error("the chain has no end within what is allowed")]
    TooLong,
    /// It goes on outside of its table.
    #[error("the chain goes on at descriptor {next} of {size}")]
    Next {
        /// Where.
        next: u16,
        /// Descriptors of the table.
        size: u16,
    },
    /// What the device reads stands behind what it writes.
    #[error("a descriptor that the device reads stands behind one that it writes")]
    Order,
    /// An indirect table in a chain without that feature.
    #[error("an indirect table, and the feature was not negotiated")]
    NotNegotiated,
    /// An indirect table in another.
    #[error("an indirect table in an indirect table")]
    Nested,
    /// An indirect descriptor that goes on.
    #[error("an indirect table, and the chain goes on behind it")]
    IndirectGoesOn,
    /// An indirect table of no, of half, or of too many descriptors.
    #[error("an indirect table of {bytes} bytes")]
    IndirectLength {
        /// Bytes.
        bytes: u32,
    },
    /// An indirect table that is not in the guest's memory.
    #[error("an indirect table at {address:#x}, which is not in the guest's memory")]
    IndirectOutside {
        /// Where.
        address: u64,
    },
}

pub(crate) const F_NEXT: u16 = 1;
pub(crate) const F_WRITE: u16 = 2;
pub(crate) const F_INDIRECT: u16 = 4;

/// A descriptor of a split ring, as it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Split {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

/// A descriptor of a packed ring, as it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packed {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) id: u16,
    pub(crate) flags: u16,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "takes a word of memory apart"
)]
impl Split {
    pub(crate) fn of_words(address: u64, rest: u64) -> Self {
        Self {
            address,
            bytes: rest as u32,
            flags: (rest >> 32) as u16,
            next: (rest >> 48) as u16,
        }
    }

    pub(crate) fn load(table: &impl Area, index: u16) -> Self {
        let at = usize::from(index) * DESCRIPTOR_BYTES;
        Self::of_words(table.load64(at), table.load64(at + 8))
    }

    /// It is about to be loaded.
    pub(crate) fn expect(table: &impl Area, index: u16) {
        table.expect(usize::from(index) * DESCRIPTOR_BYTES);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "takes a word of memory apart"
)]
impl Packed {
    pub(crate) fn of_words(address: u64, rest: u64) -> Self {
        Self {
            address,
            bytes: rest as u32,
            id: (rest >> 32) as u16,
            flags: (rest >> 48) as u16,
        }
    }
}

/// A chain in the making.
pub(crate) struct Builder<'a> {
    out: &'a mut Vec<Descriptor>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(out: &'a mut Vec<Descriptor>) -> Self {
        out.clear();
        Self { out }
    }

    pub(crate) fn push(&mut self, address: u64, bytes: u32, flags: u16) -> Result<(), ChainError> {
        let writable = flags & F_WRITE != 0;
        if self.out.len() >= CHAIN_MAX {
            return Err(ChainError::TooLong);
        }
        if !writable && self.out.last().is_some_and(|last| last.writable) {
            return Err(ChainError::Order);
        }
        self.out.push(Descriptor {
            address,
            bytes,
            writable,
        });
        Ok(())
    }

    /// How many descriptors an indirect table has.
    pub(crate) fn indirect_len(flags: u16, bytes: u32) -> Result<u16, ChainError> {
        if flags & F_NEXT != 0 {
            return Err(ChainError::IndirectGoesOn);
        }
        let whole = bytes as usize / DESCRIPTOR_BYTES;
        if bytes == 0 || !(bytes as usize).is_multiple_of(DESCRIPTOR_BYTES) || whole > CHAIN_MAX {
            return Err(ChainError::IndirectLength { bytes });
        }
        u16::try_from(whole).map_err(|_| ChainError::IndirectLength { bytes })
    }

    /// The chain of a split ring's indirect table, which begins at its first descriptor.
    pub(crate) fn split_table(
        &mut self,
        memory: &impl Memory,
        table: u64,
        len: u16,
    ) -> Result<(), ChainError> {
        let mut index = 0;
        for _ in 0..len {
            let (address, rest) = words(memory, table, index)?;
            let descriptor = Split::of_words(address, rest);
            if descriptor.flags & F_INDIRECT != 0 {
                return Err(ChainError::Nested);
            }
            self.push(descriptor.address, descriptor.bytes, descriptor.flags)?;
            if descriptor.flags & F_NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
            if index >= len {
                let (next, size) = (index, len);
                return Err(ChainError::Next { next, size });
            }
        }
        Err(ChainError::TooLong)
    }

    /// The descriptors of a packed ring's indirect table: all of them, in order; of their flags only WRITE counts.
    pub(crate) fn packed_table(
        &mut self,
        memory: &impl Memory,
        table: u64,
        len: u16,
    ) -> Result<(), ChainError> {
        for index in 0..len {
            let (address, rest) = words(memory, table, index)?;
            let descriptor = Packed::of_words(address, rest);
            if descriptor.flags & F_INDIRECT != 0 {
                return Err(ChainError::Nested);
            }
            self.push(descriptor.address, descriptor.bytes, descriptor.flags)?;
        }
        Ok(())
    }
}

/// The two words of a descriptor in a table outside of the ring.
fn words(memory: &impl Memory, table: u64, index: u16) -> Result<(u64, u64), ChainError> {
    let outside = ChainError::IndirectOutside { address: table };
    let at = table.checked_add(u64::from(index) * DESCRIPTOR_BYTES as u64);
    let at = at.ok_or(outside)?;
    let behind = at.checked_add(8).ok_or(outside)?;
    let address = memory.load64(at).ok_or(outside)?;
    Ok((address, memory.load64(behind).ok_or(outside)?))
}
