//! What every store must be able to do, in numbers. Its callers rely on these and split nothing below them.

use crate::contract::Limits;

/// A store takes reads and writes of at least this many bytes: the largest command of a host (MDTS), and a staging buffer.
pub const TRANSFER_BYTES_MIN: u32 = 1 << 20;
/// Bytes of the smallest page that a guest's buffer is scattered over.
const PAGE_BYTES: u32 = 4096;
/// A store takes buffers of at least this many segments: [`TRANSFER_BYTES_MIN`] in scattered pages, the first and last of them in part.
pub const SEGMENTS_MIN: u32 = TRANSFER_BYTES_MIN / PAGE_BYTES + 1;
/// A store takes discards and zeroings of at least this many bytes.
pub const RANGE_BYTES_MIN: u32 = TRANSFER_BYTES_MIN;
/// A larger alignment would make a bounce buffer of every request.
const ALIGNMENT_BYTES_MAX: u32 = 1 << 16;

impl Limits {
    /// What is wrong with them, if anything: a store that declares less than every store must take is refused when a handle is opened.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.bytes == 0 {
            return Err("it has no bytes");
        }
        if !self.alignment_bytes.is_power_of_two() || self.alignment_bytes > ALIGNMENT_BYTES_MAX {
            return Err("its alignment is not a power of two up to 64 KiB");
        }
        if self.transfer_bytes_max < TRANSFER_BYTES_MIN {
            return Err(
                "it takes transfers of less than 1 MiB: it must split what its peer cannot take in one",
            );
        }
        if self.segments_max < SEGMENTS_MIN {
            return Err(
                "it takes buffers of less than 257 segments: it must split what its peer cannot take in one",
            );
        }
        if self.range_bytes_max < RANGE_BYTES_MIN {
            return Err("it zeroes less than 1 MiB at once: it must split what its peer cannot");
        }
        if self.queue_depth_max == 0 {
            return Err("it takes no operation");
        }
        Ok(())
    }
}
