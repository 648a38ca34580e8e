//! The bridge between a reactor's buffers and the volume's slices and segments: the one place of this crate that needs `unsafe`.

use reactor::buf::IoBuf;
use transforms::RawSegment;
use volume::OutBuf;

/// The most segments of a buffer: a guest's pages for the largest transfer, which begins anywhere in its first page, and one to spare.
pub(crate) const SEGMENTS_MAX: usize = 258;

/// Runs `use_bytes` with the bytes of a staging buffer that a store has filled, one slice a segment.
pub(crate) fn with_filled<R>(buf: &IoBuf, len: usize, use_bytes: impl FnOnce(&[&[u8]]) -> R) -> R {
    let mut slices: [&[u8]; SEGMENTS_MAX] = [&[]; SEGMENTS_MAX];
    let mut count = 0;
    // SAFETY: the store has completed the operation that filled the buffer and gave it back, so neither it nor the kernel writes it;
    // the engine hands out no view of a staging buffer, and a lease is taken of read-only stores only. The slices end with this call.
    let runs = unsafe { buf.as_slices(0, len) };
    for (slot, run) in slices.iter_mut().zip(runs) {
        *slot = run;
        count += 1;
    }
    use_bytes(&slices[..count])
}

/// Runs `use_out` with a destination buffer, to be written once.
pub(crate) fn with_destination<R>(buf: &IoBuf, use_out: impl FnOnce(&OutBuf<'_>) -> R) -> R {
    let mut segments = [const {
        RawSegment {
            ptr: std::ptr::null_mut(),
            len: 0,
        }
    }; SEGMENTS_MAX];
    let mut count = 0;
    for (slot, (ptr, len)) in segments.iter_mut().zip(buf.raw_segments(0, buf.len())) {
        *slot = RawSegment { ptr, len };
        count += 1;
    }
    // SAFETY: the buffer's segments are alive as long as `buf` is borrowed, are writable (a lease becomes the destination only when every byte is
    // in place, and the volume writes none of a direct fetch), and do not overlap. Nobody makes references into an answer's memory before it
    // is answered; bytes under a direct fetch are checked where they lie, after the store let go of them.
    let out = unsafe { OutBuf::from_raw(&segments[..count]) };
    use_out(&out)
}
