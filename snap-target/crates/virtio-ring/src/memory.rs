//! What a ring needs of guest memory.

/// A run of memory that others may change at any time. Each call is one load or store of its width, little-endian in memory, relaxed.
///
/// A place is given in bytes from the start, inside of the area and aligned to its width: the ring sees to it.
pub trait Area {
    /// Bytes.
    fn bytes(&self) -> usize;
    /// A byte.
    fn load8(&self, at: usize) -> u8;
    /// Two.
    fn load16(&self, at: usize) -> u16;
    /// Four.
    fn load32(&self, at: usize) -> u32;
    /// Eight.
    fn load64(&self, at: usize) -> u64;
    /// A byte.
    fn store8(&self, at: usize, value: u8);
    /// Two.
    fn store16(&self, at: usize, value: u16);
    /// Four.
    fn store32(&self, at: usize, value: u32);
    /// Eight.
    fn store64(&self, at: usize, value: u64);

    /// The bytes there are about to be loaded: a hint, which changes nothing.
    fn expect(&self, _at: usize) {}
}

/// A guest's memory by the guest's addresses.
pub trait Memory {
    /// A run of it.
    type Area: Area;

    /// So many bytes from an address on, as one run; none where they are not.
    fn area(&self, address: u64, bytes: u64) -> Option<Self::Area>;

    /// Eight bytes, little-endian, each read once; none where some are not there.
    fn load64(&self, address: u64) -> Option<u64>;
}
