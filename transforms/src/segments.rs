//! The destination of a decode: a cursor over memory segments that is written once and never read.
//!
//! A request's data lie in several segments (a guest's scattered pages, the pool's buffers), and an element may straddle two of
//! them. Segments may be memory that somebody else writes at the same time (a guest's), so nothing here makes a reference to
//! it, and nothing reads it back.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr;

/// One run of destination memory.
#[derive(Debug, Clone, Copy)]
pub struct RawSegment {
    /// Its first byte.
    pub ptr: *mut u8,
    /// Its length in bytes.
    pub len: usize,
}

/// A cursor over destination segments.
#[derive(Debug)]
pub struct OutSegments<'a> {
    segments: Segments<'a>,
    /// The segment that the cursor stands in.
    index: usize,
    /// Bytes of it that are behind the cursor.
    offset: usize,
    /// Bytes that may still be written, over all segments.
    remaining: usize,
}

#[derive(Debug)]
enum Segments<'a> {
    One(RawSegment),
    Raw(&'a [RawSegment]),
    /// `*mut` to slices borrowed for `'a`: taken out one at a time, since each is exclusive.
    Slices {
        first: *mut &'a mut [u8],
        count: usize,
        borrow: PhantomData<&'a mut [u8]>,
    },
}

impl<'a> OutSegments<'a> {
    /// A destination of one slice.
    #[must_use]
    pub fn from_slice(slice: &'a mut [u8]) -> OutSegments<'a> {
        let segment = RawSegment {
            ptr: slice.as_mut_ptr(),
            len: slice.len(),
        };
        OutSegments {
            remaining: segment.len,
            segments: Segments::One(segment),
            index: 0,
            offset: 0,
        }
    }

    /// A destination of several slices, one after the other.
    #[must_use]
    pub fn from_slices<'b: 'a>(slices: &'a mut [&'b mut [u8]]) -> OutSegments<'a> {
        let remaining = slices.iter().map(|s| s.len()).sum();
        OutSegments {
            segments: Segments::Slices {
                // The inner lifetime is shortened; only pointers and lengths are taken through it.
                first: slices.as_mut_ptr().cast::<&'a mut [u8]>(),
                count: slices.len(),
                borrow: PhantomData,
            },
            index: 0,
            offset: 0,
            remaining,
        }
    }

    /// A destination of raw segments, one after the other.
    ///
    /// # Safety
    /// Each segment must be memory that is valid for writes of its length as long as `'a`, and to which no Rust reference is
    /// used meanwhile. Segments must not overlap each other nor the packed bytes that are decoded into them. Another agent (a
    /// guest, a device) may write to them at the same time.
    #[must_use]
    pub unsafe fn from_raw(segments: &'a [RawSegment]) -> OutSegments<'a> {
        OutSegments {
            remaining: segments.iter().map(|s| s.len).sum(),
            segments: Segments::Raw(segments),
            index: 0,
            offset: 0,
        }
    }

    /// Bytes that may still be written.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.remaining
    }

    /// Ends the destination `len` bytes from here, or where it ended already, whichever is first.
    #[must_use]
    pub fn limited_to(mut self, len: usize) -> OutSegments<'a> {
        self.remaining = self.remaining.min(len);
        self
    }

    /// Writes `bytes` and moves behind them.
    ///
    /// # Panics
    /// When `bytes` is longer than [`remaining`](Self::remaining): the caller sized the destination.
    pub fn write(&mut self, mut bytes: &[u8]) {
        assert!(bytes.len() <= self.remaining, "write past the destination");
        while !bytes.is_empty() {
            let run = self.run();
            let len = run.len.min(bytes.len());
            let (now, later) = bytes.split_at(len);
            // SAFETY: `run` is writable for `run.len >= len` bytes by the constructors' contracts, and does not overlap `bytes`.
            unsafe { ptr::copy_nonoverlapping(now.as_ptr(), run.ptr, len) };
            self.skip(len);
            bytes = later;
        }
    }

    /// Writes `len` zeros and moves behind them.
    ///
    /// # Panics
    /// When `len` is more than [`remaining`](Self::remaining).
    pub fn write_zeros(&mut self, mut len: usize) {
        assert!(len <= self.remaining, "write past the destination");
        while len > 0 {
            let run = self.run();
            let now = run.len.min(len);
            // SAFETY: `run` is writable for `run.len >= now` bytes by the constructors' contracts.
            unsafe { ptr::write_bytes(run.ptr, 0, now) };
            self.skip(now);
            len -= now;
        }
    }

    /// Moves on by `len` bytes, which stay as they are.
    ///
    /// # Panics
    /// When `len` is more than [`remaining`](Self::remaining).
    pub fn skip(&mut self, mut len: usize) {
        assert!(len <= self.remaining, "skip past the destination");
        self.remaining -= len;
        while len > 0 {
            let left = self.segment(self.index).len - self.offset;
            if len < left {
                self.offset += len;
                return;
            }
            len -= left;
            self.index += 1;
            self.offset = 0;
        }
    }

    /// The run of memory at the cursor: empty only when nothing remains.
    pub(crate) fn run(&mut self) -> RawSegment {
        if self.remaining == 0 {
            return RawSegment {
                ptr: ptr::null_mut(),
                len: 0,
            };
        }
        let mut segment = self.segment(self.index);
        while segment.len == self.offset {
            self.index += 1;
            self.offset = 0;
            segment = self.segment(self.index);
        }
        RawSegment {
            // SAFETY: `offset < segment.len`, so the pointer stays inside its segment.
            ptr: unsafe { segment.ptr.add(self.offset) },
            len: (segment.len - self.offset).min(self.remaining),
        }
    }

    fn segment(&mut self, index: usize) -> RawSegment {
        match &self.segments {
            Segments::One(segment) => {
                assert_eq!(index, 0, "cursor past the only segment");
                *segment
            }
            Segments::Raw(segments) => segments[index],
            Segments::Slices { first, count, .. } => {
                assert!(index < *count, "cursor past the last segment");
                // SAFETY: index < count, and the slices are exclusively borrowed by `self` for 'a.
                let slice = unsafe { &mut *first.add(index) };
                RawSegment {
                    ptr: slice.as_mut_ptr(),
                    len: slice.len(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_crosses_segments_and_passes_empty_ones() {
        let (mut a, mut b, mut c) = ([0u8; 3], [0u8; 0], [0u8; 4]);
        let mut slices: Vec<&mut [u8]> = vec![&mut a, &mut b, &mut c];
        let mut out = OutSegments::from_slices(&mut slices);
        out.skip(1);
        out.write(&[1, 2, 3, 4]);
        assert_eq!(out.remaining(), 2);
        out.write_zeros(1);
        out.write(&[9]);
        assert_eq!(out.remaining(), 0);
        assert_eq!((a, c), ([0, 1, 2], [3, 4, 0, 9]));
    }

    #[test]
    fn a_run_ends_where_the_destination_does() {
        let mut bytes = [0u8; 8];
        let mut out = OutSegments::from_slice(&mut bytes).limited_to(3);
        out.skip(1);
        assert_eq!(out.run().len, 2);
        out.skip(2);
        assert_eq!(out.run().len, 0);
    }

    #[test]
    #[should_panic(expected = "write past the destination")]
    fn a_limited_destination_takes_no_more() {
        let mut bytes = [0u8; 8];
        let mut out = OutSegments::from_slice(&mut bytes).limited_to(3);
        out.write(&[1, 2, 3, 4]);
    }
}
