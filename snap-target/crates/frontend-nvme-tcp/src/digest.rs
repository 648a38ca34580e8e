//! CRC-32C over a buffer's segments: the one place of this crate that looks at payload, and so the one that needs `unsafe`.

use nvme::digest::crc32c_append;
use reactor::buf::IoBuf;

/// CRC-32C of bytes `[offset, offset+len)` behind others whose CRC-32C is `crc`; 0 without any.
pub(crate) fn of_buf(crc: u32, buf: &IoBuf, offset: usize, len: usize) -> u32 {
    // SAFETY: called for payload that is complete and about to be sent: the store that filled it has let go of it, and a reader that needs
    // a digest asked the engine for a snapshot, so no writer shares the memory. Or for payload that a receive has just brought: the kernel
    // gave its buffer back, and nothing else has it before the command's data are complete.
    let runs = unsafe { buf.as_slices(offset, len) };
    runs.fold(crc, crc32c_append)
}
