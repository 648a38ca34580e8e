//! One gathered send: headers and digests in a small arena, payload straight from where it lies.

use std::ops::Range;

use nix::libc;

use crate::buf::{Hold, IoBuf};

/// The pieces of one gathered send, owned until the kernel is done with them. Two per socket (one in flight, one being filled) and
/// nothing is allocated while they are recycled.
pub struct SendBatch {
    /// Headers and digests. Fixed capacity: the segment list points into it.
    arena: Vec<u8>,
    /// What sendmsg is given; entries before `first` are sent.
    iov: Vec<libc::iovec>,
    first: usize,
    /// Keeps payload memory alive.
    payload: Vec<Hold>,
    /// Bytes not yet sent.
    remaining: usize,
    /// Bytes pushed since the last clear.
    total: usize,
}

impl SendBatch {
    /// Room for `arena_bytes` of headers and digests and `segments` pieces of either kind (at most 1024, the kernel's limit).
    #[must_use]
    pub fn new(arena_bytes: usize, segments: usize) -> Self {
        let segments = segments.clamp(1, libc::UIO_MAXIOV as usize);
        Self {
            arena: Vec::with_capacity(arena_bytes),
            iov: Vec::with_capacity(segments),
            first: 0,
            payload: Vec::with_capacity(segments),
            remaining: 0,
            total: 0,
        }
    }

    /// Empties the batch and lets go of its payload; the room is kept.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.iov.clear();
        self.payload.clear();
        self.first = 0;
        self.remaining = 0;
        self.total = 0;
    }

    /// Bytes pushed since the last clear.
    #[must_use]
    pub fn len(&self) -> usize {
        self.total
    }

    /// Whether nothing was pushed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Whether `bytes` of arena and `segments` pieces more would fit.
    #[must_use]
    pub fn has_room(&self, bytes: usize, segments: usize) -> bool {
        self.arena.capacity() - self.arena.len() >= bytes
            && self.iov.capacity() - self.iov.len() >= segments
    }

    /// Pieces that still fit.
    #[must_use]
    pub fn segments_left(&self) -> usize {
        self.iov.capacity() - self.iov.len()
    }

    /// Copies a header or digest in; false (and nothing done) if it does not fit. Neighbours in the arena become one piece.
    #[must_use]
    pub fn push_bytes(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if self.arena.capacity() - self.arena.len() < bytes.len() {
            return false;
        }
        let end = self.arena.as_ptr().wrapping_add(self.arena.len());
        let joins = self.iov.last().is_some_and(|last| {
            last.iov_base
                .cast_const()
                .cast::<u8>()
                .wrapping_add(last.iov_len)
                == end
        });
        if !joins && self.iov.len() == self.iov.capacity() {
            return false;
        }
        // Within capacity: the arena does not move, and earlier pieces stay valid.
        self.arena.extend_from_slice(bytes);
        match self.iov.last_mut() {
            Some(last) if joins => last.iov_len += bytes.len(),
            _ => self.iov.push(libc::iovec {
                iov_base: end.cast_mut().cast(),
                iov_len: bytes.len(),
            }),
        }
        self.remaining += bytes.len();
        self.total += bytes.len();
        true
    }

    /// Adds bytes `range` of `buf`, not copied; false (and nothing done) if its segments do not fit or the range is beyond the end. The
    /// bytes must not change until the send is complete.
    #[must_use]
    pub fn push_payload(&mut self, buf: &IoBuf, range: Range<usize>) -> bool {
        if range.start > range.end || range.end > buf.len() {
            return false;
        }
        let len = range.len();
        if buf.raw_segments(range.start, len).len() > self.segments_left() {
            return false;
        }
        let view = buf.slice(range);
        for segment in view.segments() {
            self.iov.push(libc::iovec {
                iov_base: segment.ptr().as_ptr().cast(),
                iov_len: segment.len(),
            });
            self.payload.push(segment.hold());
        }
        self.remaining += len;
        self.total += len;
        true
    }

    /// Bytes that still have to leave.
    pub(super) fn remaining(&self) -> usize {
        self.remaining
    }

    /// Steps over `sent` bytes.
    pub(super) fn advance(&mut self, sent: usize) {
        let mut left = sent.min(self.remaining);
        self.remaining -= left;
        while left > 0 {
            let Some(piece) = self.iov.get_mut(self.first) else {
                break;
            };
            let take = left.min(piece.iov_len);
            piece.iov_base = piece.iov_base.cast::<u8>().wrapping_add(take).cast();
            piece.iov_len -= take;
            left -= take;
            if piece.iov_len == 0 {
                self.first += 1;
            }
        }
    }

    /// The pieces not yet sent, for the kernel. The pointer stays valid while the batch is neither changed nor dropped, moves included.
    pub(super) fn pieces(&mut self) -> (*mut libc::iovec, usize) {
        let left = &mut self.iov[self.first..];
        (left.as_mut_ptr(), left.len())
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch")
            .field("pieces", &self.iov.len())
            .field("bytes", &self.total)
            .field("remaining", &self.remaining)
            .finish()
    }
}
