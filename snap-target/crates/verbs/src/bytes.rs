//! Copies to and from memory that a device, a peer or another thread may change meanwhile: whole words where they are aligned, each loaded or stored once, and never a reference to
//! any of it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// Copies out of shared memory.
///
/// # Safety
/// `from` is mapped and readable for `out.len()` bytes, and nothing holds a `&mut` to them.
pub(crate) unsafe fn load(from: *mut u8, out: &mut [u8]) {
    let (words_at, words_end) = words_of(from, out.len());
    for at in (0..words_at).chain(words_end..out.len()) {
        // SAFETY: `at` is inside; an AtomicU8 has no alignment to keep.
        out[at] = unsafe { AtomicU8::from_ptr(from.add(at)) }.load(Ordering::Relaxed);
    }
    for at in (words_at..words_end).step_by(WORD) {
        // SAFETY: `at + 8` is inside, and the address is aligned to a word.
        let word = unsafe { AtomicU64::from_ptr(from.add(at).cast()) }.load(Ordering::Relaxed);
        out[at..at + WORD].copy_from_slice(&word.to_ne_bytes());
    }
}

/// Copies into shared memory.
///
/// # Safety
/// `to` is mapped and writable for `bytes.len()` bytes, and nothing holds a reference to them.
pub(crate) unsafe fn store(to: *mut u8, bytes: &[u8]) {
    let (words_at, words_end) = words_of(to, bytes.len());
    for at in (0..words_at).chain(words_end..bytes.len()) {
        // SAFETY: `at` is inside; an AtomicU8 has no alignment to keep.
        unsafe { AtomicU8::from_ptr(to.add(at)) }.store(bytes[at], Ordering::Relaxed);
    }
    for at in (words_at..words_end).step_by(WORD) {
        let mut word = [0; WORD];
        word.copy_from_slice(&bytes[at..at + WORD]);
        // SAFETY: `at + 8` is inside, and the address is aligned to a word.
        unsafe { AtomicU64::from_ptr(to.add(at).cast()) }
            .store(u64::from_ne_bytes(word), Ordering::Relaxed);
    }
}

/// Where the whole aligned words of a range begin and end; both are at most `len`.
fn words_of(at: *mut u8, len: usize) -> (usize, usize) {
    let start = (at.addr().wrapping_neg() % WORD).min(len);
    (start, start + (len - start) / WORD * WORD)
}
