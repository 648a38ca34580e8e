//! CRC-32C over a buffer's segments: the one place of this crate that looks at payload, and so the one that needs `unsafe`.

use nvme::digest::{crc32c, crc32c_combine};
use reactor::buf::IoBuf;

/// CRC-32C of bytes `[offset, offset+len)`.
pub(crate) fn of_buf(buf: &IoBuf, offset: usize, len: usize) -> u32 {
    // SAFETY: called for payload that is complete and about to be sent: the store that filled it has let go of it, and a reader that needs
    // a digest asked the engine for a snapshot, so no writer shares the memory.
    let runs = unsafe { buf.as_slices(offset, len) };
    runs.fold(0, |crc, run| crc32c_combine(crc, crc32c(run), run.len()))
}
