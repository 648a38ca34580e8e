//! Registered memory of a queue, and copies between it and the buffers of commands.
//!
//! A peer that keeps the protocol reaches only what a key was given for; one that does not may write any of it at any time, where a device does not hold windows to
//! their ranges. So nothing here makes a reference to its bytes, and what came is looked at only after it was copied.

use std::sync::Arc;

use reactor::buf::{IoBuf, Mapping};
use verbs::{Access, Domain, HostMemory, Registration, ScatterEntry, VerbsError};

use crate::limits::STAGING_PAGE_BYTES;

/// Memory that the device knows.
#[derive(Debug)]
pub(crate) struct Memory {
    mapping: Arc<Mapping>,
    registration: Registration,
}

impl Memory {
    /// # Errors
    /// There is none, or it may not be locked.
    pub(crate) fn new(domain: &Domain, bytes: usize, access: Access) -> Result<Self, String> {
        let mapping = Mapping::new(bytes).map_err(|error| error.to_string())?;
        let mapping = Arc::new(mapping);
        let registration = domain.register(&HostMemory::of_mapping(&mapping), access);
        Ok(Self {
            registration: registration.map_err(|error| error.to_string())?,
            mapping,
        })
    }

    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    pub(crate) fn entry(&self, offset: usize, len: u32) -> Result<ScatterEntry, VerbsError> {
        self.registration.entry(offset, len)
    }

    /// Copies a buffer's first `len` bytes in; false where it has fewer, or they do not fit.
    pub(crate) fn take_from(&self, buf: &IoBuf, offset: usize, len: usize) -> bool {
        let Some(mut to) = self.start_of(buf, offset, len) else {
            return false;
        };
        for (from, run) in buf.raw_segments(0, len) {
            // SAFETY: the buffer keeps its runs alive and readable, and they sum up to `len`, which fits behind `to` in the mapping. Nobody has a reference to the
            // mapping's bytes. The two are different memory: buffers do not come from this mapping.
            unsafe {
                std::ptr::copy_nonoverlapping(from.cast_const(), to, run);
                to = to.add(run);
            }
        }
        true
    }

    /// Copies `len` bytes out into a buffer; false where it has no room, or they are not there.
    pub(crate) fn give_to(&self, buf: &IoBuf, offset: usize, len: usize) -> bool {
        let Some(from) = self.start_of(buf, offset, len) else {
            return false;
        };
        // SAFETY: `from` is readable for `len` bytes of the mapping, which may change meanwhile.
        unsafe { buf.copy_from_raw(0, from.cast_const(), len) == len }
    }

    /// The first byte of a range of the mapping, where it is inside and the buffer is as long.
    fn start_of(&self, buf: &IoBuf, offset: usize, len: usize) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        if end > self.mapping.len() || len > buf.len() {
            return None;
        }
        self.mapping.at(offset).map(std::ptr::NonNull::as_ptr)
    }
}

/// A part of the staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: usize,
    pages: usize,
}

/// Which pages of the staging are taken: a run of pages at a time.
#[derive(Debug)]
pub(crate) struct Pages {
    /// A bit for each.
    taken: Box<[u64]>,
}

impl Pages {
    /// For so many bytes, in whole words of pages.
    pub(crate) fn new(bytes: usize) -> Self {
        let words = bytes / STAGING_PAGE_BYTES / 64;
        Self {
            taken: vec![0; words.max(1)].into(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.taken.len() * 64 * STAGING_PAGE_BYTES
    }

    /// The first run that has room.
    pub(crate) fn take(&mut self, bytes: u32) -> Option<Part> {
        let pages = (bytes as usize).div_ceil(STAGING_PAGE_BYTES).max(1);
        let count = self.taken.len() * 64;
        let (mut page, mut run) = (0, 0);
        while page < count {
            if page % 64 == 0 && self.taken[page / 64] == u64::MAX {
                (page, run) = (page + 64, 0);
                continue;
            }
            run = if self.is_taken(page) { 0 } else { run + 1 };
            page += 1;
            if run == pages {
                let first = page - pages;
                self.mark(first, pages, true);
                let offset = first * STAGING_PAGE_BYTES;
                return Some(Part { offset, pages });
            }
        }
        None
    }

    pub(crate) fn give_back(&mut self, part: Part) {
        self.mark(part.offset / STAGING_PAGE_BYTES, part.pages, false);
    }

    fn is_taken(&self, page: usize) -> bool {
        self.taken[page / 64] >> (page % 64) & 1 == 1
    }

    fn mark(&mut self, first: usize, pages: usize, taken: bool) {
        for page in first..first + pages {
            let bit = 1 << (page % 64);
            if taken {
                self.taken[page / 64] |= bit;
            } else {
                self.taken[page / 64] &= !bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_come_back() {
        let mut pages = Pages::new(512 << 10);
        assert_eq!(pages.bytes(), 512 << 10);
        let offset = |part: Option<Part>| part.map(|part| part.offset);
        let first = pages.take(1);
        let second = pages.take(4097);
        let third = pages.take(500 << 10);
        assert_eq!(offset(first), Some(0));
        assert_eq!(offset(second), Some(4096));
        assert_eq!(offset(third), Some(12288));
        assert_eq!(pages.take(1), None, "it is full");
        pages.give_back(second.unwrap());
        assert_eq!(pages.take(8193), None, "two pages are there, not three");
        assert_eq!(offset(pages.take(8192)), Some(4096));
        pages.give_back(first.unwrap());
        pages.give_back(third.unwrap());
        assert_eq!(offset(pages.take(500 << 10)), Some(12288));
        assert_eq!(pages.take((512 << 10) + 1), None, "more than there is");
    }
}
