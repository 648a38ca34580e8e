//! The one way bytes get into guest memory: volatile stores.
//!
//! The guest may write the same bytes at any time. A volatile store happens once, as it is written here: no optimisation may split it, repeat it, or read
//! back what it wrote. Nothing here reads the destination.

use std::ptr;

/// Copies `len` bytes into guest memory, in words where the destination is aligned.
///
/// # Safety
/// `from` is readable and `to` is writable for `len` bytes; they do not overlap.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    let words = WordRuns::of(to, len);
    let mut at = 0;
    while at < len {
        if words.is_word(at) {
            // SAFETY: `at + 8 <= len`; the destination is aligned to a word at `at`, the source need not be.
            unsafe {
                let word = ptr::read_unaligned(from.add(at).cast::<u64>());
                ptr::write_volatile(to.add(at).cast::<u64>(), word);
            }
            at += WORD;
        } else {
            // SAFETY: `at < len`.
            unsafe { ptr::write_volatile(to.add(at), ptr::read(from.add(at))) };
            at += 1;
        }
    }
}

/// Writes `value` over `len` bytes of guest memory.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub(super) unsafe fn fill(to: *mut u8, value: u8, len: usize) {
    let word = u64::from_ne_bytes([value; WORD]);
    let words = WordRuns::of(to, len);
    let mut at = 0;
    while at < len {
        if words.is_word(at) {
            // SAFETY: `at + 8 <= len`, and the destination is aligned to a word at `at`.
            unsafe { ptr::write_volatile(to.add(at).cast::<u64>(), word) };
            at += WORD;
        } else {
            // SAFETY: `at < len`.
            unsafe { ptr::write_volatile(to.add(at), value) };
            at += 1;
        }
    }
}

const WORD: usize = size_of::<u64>();

/// Which part of a destination is whole aligned words.
struct WordRuns {
    start: usize,
    end: usize,
}

impl WordRuns {
    fn of(to: *mut u8, len: usize) -> Self {
        let start = to.addr().wrapping_neg() % WORD;
        let end = start + len.saturating_sub(start) / WORD * WORD;
        Self { start, end }
    }

    fn is_word(&self, at: usize) -> bool {
        at >= self.start && at < self.end
    }
}
