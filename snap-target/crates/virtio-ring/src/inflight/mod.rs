//! The record of what is in flight (QEMU's vhost-user.rst, "Inflight I/O tracking"): shared memory that outlives the device's process.
//!
//! Its layout and the order of its stores are those of the document, so that a process killed between any two of them leaves a record from which the
//! next one finds each chain that was taken and not given back, and no other.

mod packed;
mod split;

use std::sync::atomic::{Ordering, compiler_fence};

pub(crate) use packed::{Left, PackedRecord};
pub(crate) use split::SplitRecord;

use crate::layout::Format;
use crate::memory::Area;

/// The version of a record that is in use; 0: nobody has used it.
pub(crate) const VERSION: u16 = 1;
/// Each queue's record begins at a multiple of this.
const ALIGNMENT: u64 = 64;

/// Bytes of the record of one queue, with what aligns the next one.
#[must_use]
pub fn record_bytes(format: Format, size: u16) -> u64 {
    let bytes = match format {
        Format::Split => split::HEADER_BYTES + usize::from(size) * split::ENTRY_BYTES,
        Format::Packed => packed::HEADER_BYTES + usize::from(size) * packed::ENTRY_BYTES,
    };
    (bytes as u64).next_multiple_of(ALIGNMENT)
}

/// Whether a record has chains that were in flight. What was being given back when its process ended may be among them.
#[must_use]
pub fn has_in_flight(area: &impl Area, format: Format, size: u16) -> bool {
    let (header, entry) = match format {
        Format::Split => (split::HEADER_BYTES, split::ENTRY_BYTES),
        Format::Packed => (packed::HEADER_BYTES, packed::ENTRY_BYTES),
    };
    // In either format the flag is an entry's first byte.
    let mut places = (0..usize::from(size)).map(|number| header + number * entry);
    places.any(|at| at < area.bytes() && area.load8(at) != 0)
}

/// What follows is stored after what came before. The record is read after this process has ended, so it is the compiler's order that counts.
fn then() {
    compiler_fence(Ordering::SeqCst);
}
