//! A queue's way to its guest's memory.

use std::sync::Arc;

use guest_memory::{Area, Fault, Leases, Way, Windows};
use reactor::buf::IoBuf;
use virtio_ring::Memory;

/// Windows of a guest and a thread's leases of them.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) windows: Arc<Windows>,
    leases: Leases,
}

/// A run of it that a ring works on.
#[derive(Debug)]
pub(crate) struct RingArea(pub(crate) Area);

impl Guest {
    pub(crate) fn new(windows: Arc<Windows>) -> Self {
        Self {
            windows,
            leases: Leases::default(),
        }
    }

    /// The same guest with other windows: what nothing in flight lies in is let go of.
    pub(crate) fn change(&mut self, windows: Arc<Windows>) {
        self.windows = windows;
        self.leases.clear();
    }

    /// A buffer over pieces of it.
    pub(crate) fn view(&mut self, pieces: &[(u64, u32)], way: Way) -> Result<IoBuf, Fault> {
        self.leases.view(&self.windows, pieces.iter().copied(), way)
    }
}

impl Memory for Guest {
    type Area = RingArea;

    fn area(&self, address: u64, bytes: u64) -> Option<RingArea> {
        self.windows.area(address, bytes).ok().map(RingArea)
    }

    fn load64(&self, address: u64) -> Option<u64> {
        self.windows.load64(address).ok()
    }
}

impl virtio_ring::Area for RingArea {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn load8(&self, at: usize) -> u8 {
        self.0.load8(at)
    }

    fn load16(&self, at: usize) -> u16 {
        self.0.load16(at)
    }

    fn load32(&self, at: usize) -> u32 {
        self.0.load32(at)
    }

    fn load64(&self, at: usize) -> u64 {
        self.0.load64(at)
    }

    fn store8(&self, at: usize, value: u8) {
        self.0.store8(at, value);
    }

    fn store16(&self, at: usize, value: u16) {
        self.0.store16(at, value);
    }

    fn store32(&self, at: usize, value: u32) {
        self.0.store32(at, value);
    }

    fn store64(&self, at: usize, value: u64) {
        self.0.store64(at, value);
    }

    fn expect(&self, at: usize) {
        self.0.expect(at);
    }
}
