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
    let (words_at, words_end) = words_of(to, len);
    for at in (0..words_at).chain(words_end..len) {
        // SAFETY: `at < len`.
        unsafe { ptr::write_volatile(to.add(at), ptr::read(from.add(at))) };
    }
    let mut at = words_at;
    while at < words_end {
        // SAFETY: `at + 8 <= len`; the destination is aligned to a word at `at`, the source need not be.
        unsafe {
            let word = ptr::read_unaligned(from.add(at).cast::<u64>());
            ptr::write_volatile(to.add(at).cast::<u64>(), word);
        }
        at += WORD;
    }
}

/// Writes `value` over `len` bytes of guest memory.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub(super) unsafe fn fill(to: *mut u8, value: u8, len: usize) {
    let word = u64::from_ne_bytes([value; WORD]);
    let (words_at, words_end) = words_of(to, len);
    for at in (0..words_at).chain(words_end..len) {
        // SAFETY: `at < len`.
        unsafe { ptr::write_volatile(to.add(at), value) };
    }
    let mut at = words_at;
    while at < words_end {
        // SAFETY: `at + 8 <= len`, and the destination is aligned to a word at `at`.
        unsafe { ptr::write_volatile(to.add(at).cast::<u64>(), word) };
        at += WORD;
    }
}

const WORD: usize = size_of::<u64>();

/// Where the whole aligned words of a destination begin and end; both are at most `len`.
fn words_of(to: *mut u8, len: usize) -> (usize, usize) {
    let start = (to.addr().wrapping_neg() % WORD).min(len);
    (start, start + (len - start) / WORD * WORD)
}
