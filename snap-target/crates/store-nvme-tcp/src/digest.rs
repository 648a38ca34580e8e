//! CRC-32C over a buffer's segments: the one place of this crate that looks at payload, and so the one that needs `unsafe`.

use std::ops::Range;

use nvme::digest::crc32c_append;
use reactor::buf::IoBuf;

/// CRC-32C of a command's bytes while the queue has its buffer and no receive fills them.
pub(crate) fn of_buf(buf: &IoBuf, range: Range<usize>) -> u32 {
    // SAFETY: from submit to its end nobody but the queue touches a command's buffer, and with data digests it is no memory that others change
    // (the contract of `store_nvme::queue::Queue`). The queue looks at what it is about to send, or at what a receive has brought that has ended.
    let runs = unsafe { buf.as_slices(range.start, range.len()) };
    runs.fold(0, crc32c_append)
}
