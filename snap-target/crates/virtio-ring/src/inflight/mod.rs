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

/// What follows is stored after what came before. The record is read after this process has ended, so it is the compiler's order that counts.
fn then() {
    compiler_fence(Ordering::SeqCst);
}
