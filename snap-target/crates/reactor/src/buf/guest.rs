//! The one way bytes get into guest memory: volatile stores.
//!
//! The guest may write the same bytes at any time. A volatile store happens once, as it is written here: no optimisation may split it, repeat it, or read
//! back what it wrote. Nothing here reads the destination.

use std::ptr;

/// What is stored at once: as much as every machine of its kind stores with one instruction.
#[cfg(target_arch = "x86_64")]
type Word = std::arch::x86_64::__m128i;
#[cfg(target_arch = "aarch64")]
type Word = std::arch::aarch64::uint8x16_t;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Word = u64;

const WORD: usize = size_of::<Word>();

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
        // SAFETY: `at + WORD <= len`; the destination is aligned to a word at `at`, the source need not be.
        unsafe {
            let word = ptr::read_unaligned(from.add(at).cast::<Word>());
            ptr::write_volatile(to.add(at).cast::<Word>(), word);
        }
        at += WORD;
    }
}

/// Writes `value` over `len` bytes of guest memory.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub(super) unsafe fn fill(to: *mut u8, value: u8, len: usize) {
    // SAFETY: as many bytes as a word has, of which all values are words.
    let word = unsafe { ptr::read_unaligned([value; WORD].as_ptr().cast::<Word>()) };
    let (words_at, words_end) = words_of(to, len);
    for at in (0..words_at).chain(words_end..len) {
        // SAFETY: `at < len`.
        unsafe { ptr::write_volatile(to.add(at), value) };
    }
    let mut at = words_at;
    while at < words_end {
        // SAFETY: `at + WORD <= len`, and the destination is aligned to a word at `at`.
        unsafe { ptr::write_volatile(to.add(at).cast::<Word>(), word) };
        at += WORD;
    }
}

/// Where the whole aligned words of a destination begin and end; both are at most `len`.
fn words_of(to: *mut u8, len: usize) -> (usize, usize) {
    let start = (to.addr().wrapping_neg() % WORD).min(len);
    (start, start + (len - start) / WORD * WORD)
}
