//! The destination of a read: memory segments that pieces are written into at their offsets.

#![allow(unsafe_code)]

use std::marker::PhantomData;

use transforms::{OutSegments, RawSegment};

/// Where the presented bytes of one request go. Written once, in any order, and never read.
#[derive(Debug)]
pub struct OutBuf<'a> {
    segments: Segments<'a>,
    len: usize,
    /// Exclusive for as long as this lives.
    memory: PhantomData<&'a mut [u8]>,
}

#[derive(Debug)]
enum Segments<'a> {
    One([RawSegment; 1]),
    Many(&'a [RawSegment]),
}

impl<'a> OutBuf<'a> {
    /// A destination of one slice.
    #[must_use]
    pub fn from_slice(slice: &'a mut [u8]) -> OutBuf<'a> {
        OutBuf {
            len: slice.len(),
            segments: Segments::One([RawSegment {
                ptr: slice.as_mut_ptr(),
                len: slice.len(),
            }]),
            memory: PhantomData,
        }
    }

    /// A destination of raw segments, one after the other.
    ///
    /// # Safety
    /// As [`OutSegments::from_raw`]: each segment is memory that is valid for writes of its length as long as `'a`, to which no Rust
    /// reference is used meanwhile; segments do not overlap each other, nor the bytes handed to [`ReadOp::fetched`](crate::ReadOp::fetched)
    /// except where those are the segments' own, placed there for a [`Direct`](crate::Placement::Direct) fetch.
    #[must_use]
    pub unsafe fn from_raw(segments: &'a [RawSegment]) -> OutBuf<'a> {
        OutBuf {
            len: segments.iter().map(|segment| segment.len).sum(),
            segments: Segments::Many(segments),
            memory: PhantomData,
        }
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is room for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A cursor over the bytes `[offset, offset + len)`; `None` when they are not all here.
    #[must_use]
    pub fn at(&self, offset: usize, len: usize) -> Option<OutSegments<'_>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        let mut segments = match &self.segments {
            Segments::One(segment) => &segment[..],
            Segments::Many(segments) => segments,
        };
        let mut within = offset;
        while let [first, rest @ ..] = segments
            && within >= first.len
            && !rest.is_empty()
        {
            within -= first.len;
            segments = rest;
        }
        // SAFETY: `from_raw`'s caller promised what this asks for, and `from_slice` borrows its memory exclusively. Cursors are used one
        // at a time, by this crate, and hold no references into the memory.
        let mut out = unsafe { OutSegments::from_raw(segments) };
        out.skip(within);
        Some(out.limited_to(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_lands_where_it_belongs() {
        let cuts = [0usize, 3, 3, 7, 12];
        for start in 0..=12 {
            for end in start..=12 {
                let mut memory = [0u8; 12];
                let base = memory.as_mut_ptr();
                let segments: Vec<_> = cuts
                    .windows(2)
                    .map(|cut| RawSegment {
                        // SAFETY: the cuts lie in the array.
                        ptr: unsafe { base.add(cut[0]) },
                        len: cut[1] - cut[0],
                    })
                    .collect();
                // SAFETY: the segments are disjoint parts of an array that is not used meanwhile.
                let out = unsafe { OutBuf::from_raw(&segments) };
                let data: Vec<u8> = (1..).take(end - start).collect();
                out.at(start, end - start).unwrap().write(&data);
                let mut expected = [0u8; 12];
                expected[start..end].copy_from_slice(&data);
                assert_eq!(memory, expected);
            }
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let mut memory = [0u8; 4];
        let out = OutBuf::from_slice(&mut memory);
        assert!(out.at(0, 5).is_none());
        assert!(out.at(5, 0).is_none());
        assert!(out.at(usize::MAX, 2).is_none());
        assert_eq!(out.at(4, 0).unwrap().remaining(), 0);
    }
}
