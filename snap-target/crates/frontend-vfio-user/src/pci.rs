//! Configuration space (PCI Local Bus 3.0; PCI Express Base 4.0, "PCI-compatible Configuration Registers").

use crate::limits::{BAR0_BYTES, MSIX_PENDING_AT, MSIX_TABLE_AT, VECTORS};

/// Bytes that have something in them.
const USED_BYTES: usize = 256;
/// The vendor of devices that have none: QEMU's and Bochs's.
const VENDOR_ID: u16 = 0x1234;
const DEVICE_ID: u16 = 0x4E56;
const REVISION: u8 = 1;
/// NVM Express controller: base class, sub class, programming interface.
const CLASS: [u8; 3] = [0x02, 0x08, 0x01];
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// A memory BAR of 64 bits.
const BAR_64: u32 = 0b100;

const POWER_AT: u8 = 0x40;
const MSIX_AT: u8 = 0x50;
const EXPRESS_AT: u8 = 0x60;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSpace {
    bytes: [u8; USED_BYTES],
    /// Bits that the client may write.
    writable: [u8; USED_BYTES],
}

impl ConfigSpace {
    /// As at power-on.
    pub(crate) fn new() -> Self {
        let mut space = Self {
            bytes: [0; USED_BYTES],
            writable: [0; USED_BYTES],
        };
        space.header();
        space.power_management();
        space.msix();
        space.express();
        space
    }

    fn header(&mut self) {
        self.put(0x00, &VENDOR_ID.to_le_bytes());
        self.put(0x02, &DEVICE_ID.to_le_bytes());
        // Command: memory space, bus master, parity, SERR, interrupt disable.
        self.allow(0x04, &0x0546_u16.to_le_bytes());
        self.put(0x06, &STATUS_CAPABILITIES.to_le_bytes());
        self.put(0x08, &[REVISION]);
        self.put(0x09, &CLASS);
        // Cache line size, latency timer.
        self.allow(0x0C, &[0xFF, 0xFF]);
        self.put(0x10, &BAR_64.to_le_bytes());
        // Its low bits read as zeros: so the client finds its size.
        let mask = !(BAR0_BYTES - 1);
        self.allow(0x10, &mask.to_le_bytes());
        self.put(0x2C, &VENDOR_ID.to_le_bytes());
        self.put(0x2E, &DEVICE_ID.to_le_bytes());
        self.put(0x34, &[POWER_AT]);
        self.allow(0x3C, &[0xFF]);
        // INTA.
        self.put(0x3D, &[1]);
    }

    fn power_management(&mut self) {
        self.put(POWER_AT, &[0x01, MSIX_AT]);
        // Version 3; no power states but D0 and D3hot, which change nothing here. No soft reset.
        self.put(POWER_AT + 2, &0x0003_u16.to_le_bytes());
        self.put(POWER_AT + 4, &0x0008_u16.to_le_bytes());
        self.allow(POWER_AT + 4, &0x0003_u16.to_le_bytes());
    }

    fn msix(&mut self) {
        self.put(MSIX_AT, &[0x11, EXPRESS_AT]);
        self.put(MSIX_AT + 2, &(VECTORS - 1).to_le_bytes());
        // Function mask, MSI-X enable.
        self.allow(MSIX_AT + 2, &0xC000_u16.to_le_bytes());
        // Both in BAR0.
        self.put(MSIX_AT + 4, &low(MSIX_TABLE_AT));
        self.put(MSIX_AT + 8, &low(MSIX_PENDING_AT));
    }

    fn express(&mut self) {
        self.put(EXPRESS_AT, &[0x10, 0]);
        // Version 2, an endpoint.
        self.put(EXPRESS_AT + 2, &0x0002_u16.to_le_bytes());
        // Role-based error reporting.
        self.put(EXPRESS_AT + 4, &0x0000_8000_u32.to_le_bytes());
        // Device control, but its function level reset.
        self.allow(EXPRESS_AT + 8, &0x7FFF_u16.to_le_bytes());
        // One lane of 2.5 GT/s, as able and as it is.
        self.put(EXPRESS_AT + 0x0C, &0x0000_0011_u32.to_le_bytes());
        self.allow(EXPRESS_AT + 0x10, &0x0FFB_u16.to_le_bytes());
        self.put(EXPRESS_AT + 0x12, &0x0011_u16.to_le_bytes());
        self.allow(EXPRESS_AT + 0x28, &0x001F_u16.to_le_bytes());
        self.put(EXPRESS_AT + 0x2C, &0x0000_0002_u32.to_le_bytes());
        self.put(EXPRESS_AT + 0x30, &0x0001_u16.to_le_bytes());
    }

    fn put(&mut self, at: u8, bytes: &[u8]) {
        for (place, byte) in self.bytes.iter_mut().skip(at.into()).zip(bytes) {
            *place = *byte;
        }
    }

    fn allow(&mut self, at: u8, bits: &[u8]) {
        for (place, bits) in self.writable.iter_mut().skip(at.into()).zip(bits) {
            *place = *bits;
        }
    }

    /// Whether some of these bytes of the guest's address space are where it has put BAR0.
    pub(crate) fn bar0_has(&self, address: u64, bytes: u64) -> bool {
        let mut base = [0; 8];
        self.read(0x10, &mut base);
        let base = u64::from_le_bytes(base) & !(BAR0_BYTES - 1);
        address < base.saturating_add(BAR0_BYTES) && base < address.saturating_add(bytes)
    }

    /// Bytes from `offset` on. There are no extended capabilities: zeros.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let there = self.bytes.get(offset..).unwrap_or_default();
        out.fill(0);
        for (place, byte) in out.iter_mut().zip(there) {
            *place = *byte;
        }
    }

    /// Writes what may be written of it.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let places = self.bytes.iter_mut().zip(&self.writable).skip(offset);
        for ((place, bits), byte) in places.zip(data) {
            *place = *place & !bits | byte & bits;
        }
    }
}

/// The low half of an offset in BAR0, whose number is 0.
fn low(offset: u64) -> [u8; 4] {
    let [a, b, c, d, ..] = offset.to_le_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at<const N: usize>(space: &ConfigSpace, offset: u64) -> [u8; N] {
        let mut out = [0; N];
        space.read(offset, &mut out);
        out
    }

    #[test]
    fn an_nvme_controller_with_three_capabilities() {
        let space = ConfigSpace::new();
        assert_eq!(at::<4>(&space, 0x08), [1, 0x02, 0x08, 0x01]);
        let mut capabilities = Vec::new();
        let [mut next] = at::<1>(&space, 0x34);
        while next != 0 {
            let [id, following] = at::<2>(&space, u64::from(next));
            capabilities.push((next, id));
            next = following;
            assert!(capabilities.len() < 8);
        }
        assert_eq!(capabilities, [(0x40, 0x01), (0x50, 0x11), (0x60, 0x10)]);
        assert_eq!(u16::from_le_bytes(at(&space, 0x52)), 64, "65 vectors");
        assert_eq!(u32::from_le_bytes(at(&space, 0x54)), 0x2000);
        assert_eq!(u32::from_le_bytes(at(&space, 0x58)), 0x3000);
    }

    /// PCI Local Bus, "Address Maps": all ones are written, and the size is what comes back.
    #[test]
    fn the_bar_tells_its_size() {
        let mut space = ConfigSpace::new();
        space.write(0x10, &[0xFF; 8]);
        assert_eq!(u64::from_le_bytes(at(&space, 0x10)), !0x3FFF | 0b100);
        space.write(0x10, &0xFEBF_0000_u32.to_le_bytes());
        space.write(0x14, &0_u32.to_le_bytes());
        assert_eq!(u64::from_le_bytes(at(&space, 0x10)), 0xFEBF_0004);
        // What follows BAR0 is not there.
        space.write(0x18, &[0xFF; 24]);
        assert_eq!(at::<20>(&space, 0x18), [0; 20]);
    }

    #[test]
    fn what_is_read_only_stays() {
        let mut space = ConfigSpace::new();
        let before: [u8; 4096] = at(&space, 0);
        space.write(0, &[0xFF; 4]);
        space.write(0x08, &[0; 4]);
        space.write(0x52, &[0; 2]);
        space.write(4094, &[1, 2, 3]);
        space.write(u64::MAX, &[1]);
        assert_eq!(at::<4096>(&space, 0), before);
        space.write(0x04, &0xFFFF_u16.to_le_bytes());
        assert_eq!(u16::from_le_bytes(at(&space, 0x04)), 0x0546);
        space.write(0x53, &[0x80]);
        assert_eq!(u16::from_le_bytes(at(&space, 0x52)), 0x8040);
    }
}
