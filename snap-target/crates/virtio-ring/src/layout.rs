//! Where a ring lies.

use crate::chain::DESCRIPTOR_BYTES;
use crate::error::RingError;
use crate::memory::{Area, Memory};

/// Descriptors of a ring: chains are no longer than that, and requests in flight are bounded by it.
pub const QUEUE_SIZE_MAX: u16 = 1024;

/// Which of the two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// virtio 1.3, 2.7.
    Split,
    /// virtio 1.3, 2.8 (VIRTIO_F_RING_PACKED).
    Packed,
}

/// Where a ring lies, in the guest's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Which format.
    pub format: Format,
    /// Descriptors.
    pub size: u16,
    /// Descriptor Area: the descriptor table, or the descriptor ring.
    pub descriptors: u64,
    /// Driver Area: the available ring, or the driver's event suppression.
    pub driver: u64,
    /// Device Area: the used ring, or the device's event suppression.
    pub device: u64,
}

/// The three areas.
#[derive(Debug)]
pub(crate) struct Areas<A> {
    pub(crate) descriptors: A,
    pub(crate) driver: A,
    pub(crate) device: A,
}

impl Format {
    /// Whether a ring may have so many descriptors.
    ///
    /// # Errors
    /// [`RingError::Size`].
    pub fn check_size(self, size: u32) -> Result<u16, RingError> {
        let wrong = |rule| RingError::Size { size, rule };
        let fits = u16::try_from(size).ok();
        let fits = fits.filter(|size| (1..=QUEUE_SIZE_MAX).contains(size));
        let fits = fits.ok_or(wrong("there are 1 to 1024"))?;
        if self == Self::Split && !fits.is_power_of_two() {
            return Err(wrong("of a split ring it is a power of two"));
        }
        Ok(fits)
    }
}

impl Layout {
    /// Bytes of the driver's area.
    #[must_use]
    pub fn driver_bytes(&self) -> u64 {
        match self.format {
            // flags, idx, ring, used_event.
            Format::Split => 6 + 2 * u64::from(self.size),
            Format::Packed => 4,
        }
    }

    /// Bytes of the device's area.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        match self.format {
            // flags, idx, ring, avail_event.
            Format::Split => 6 + 8 * u64::from(self.size),
            Format::Packed => 4,
        }
    }

    /// Bytes of the descriptors' area.
    #[must_use]
    pub fn descriptors_bytes(&self) -> u64 {
        DESCRIPTOR_BYTES as u64 * u64::from(self.size)
    }

    /// Looks the three areas up.
    pub(crate) fn areas<M: Memory>(&self, memory: &M) -> Result<Areas<M::Area>, RingError> {
        self.format.check_size(self.size.into())?;
        let (driver_alignment, device_alignment) = match self.format {
            Format::Split => (2, 4),
            Format::Packed => (4, 4),
        };
        let area = |area, address: u64, bytes, alignment| {
            if !address.is_multiple_of(alignment) {
                return Err(RingError::Unaligned {
                    area,
                    address,
                    alignment,
                });
            }
            let found = memory.area(address, bytes);
            found
                .filter(|found| found.bytes() as u64 == bytes)
                .ok_or(RingError::Outside {
                    area,
                    address,
                    bytes,
                })
        };
        Ok(Areas {
            descriptors: area("descriptor", self.descriptors, self.descriptors_bytes(), 16)?,
            driver: area("driver", self.driver, self.driver_bytes(), driver_alignment)?,
            device: area("device", self.device, self.device_bytes(), device_alignment)?,
        })
    }
}
