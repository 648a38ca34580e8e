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

/// What is stored at once where the machine has AVX.
#[cfg(target_arch = "x86_64")]
type WideWord = std::arch::x86_64::__m256i;

/// Words that are loaded, and then stored, in each round.
const UNROLLED: usize = 4;

/// Copies `len` bytes into guest memory, in words where the destination is aligned.
///
/// # Safety
/// `from` is readable and `to` is writable for `len` bytes; they do not overlap.
pub(super) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the machine has AVX; the rest is the caller's.
        return unsafe { copy_wide(to, from, len) };
    }
    // SAFETY: the caller's.
    unsafe { copy_in::<Word>(to, from, len) };
}

/// Writes `value` over `len` bytes of guest memory.
///
/// # Safety
/// `to` is writable for `len` bytes.
pub(super) unsafe fn fill(to: *mut u8, value: u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") {
        // SAFETY: the machine has AVX; the rest is the caller's.
        return unsafe { fill_wide(to, value, len) };
    }
    // SAFETY: the caller's.
    unsafe { fill_in::<Word>(to, value, len) };
}

/// # Safety
/// As [`copy`]; the machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn copy_wide(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { copy_in::<WideWord>(to, from, len) };
}

/// # Safety
/// As [`fill`]; the machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn fill_wide(to: *mut u8, value: u8, len: usize) {
    // SAFETY: the caller's.
    unsafe { fill_in::<WideWord>(to, value, len) };
}

/// In words of this kind, of which all values are valid.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_in<W: Copy>(to: *mut u8, from: *const u8, len: usize) {
    let word = size_of::<W>();
    let (words_at, words_end) = words_of(to, word, len);
    for at in (0..words_at).chain(words_end..len) {
        // SAFETY: `at < len`.
        unsafe { ptr::write_volatile(to.add(at), ptr::read(from.add(at))) };
    }
    let mut at = words_at;
    while words_end - at >= UNROLLED * word {
        // SAFETY: so many words from `at` on are inside; the destination is aligned to a word at `at`, the source need not be.
        unsafe {
            let (source, place) = (from.add(at).cast::<W>(), to.add(at).cast::<W>());
            let words: [W; UNROLLED] =
                std::array::from_fn(|index| ptr::read_unaligned(source.add(index)));
            for (index, value) in words.into_iter().enumerate() {
                ptr::write_volatile(place.add(index), value);
            }
        }
        at += UNROLLED * word;
    }
    while at < words_end {
        // SAFETY: one word from `at` on is inside; aligned as above.
        unsafe {
            let value = ptr::read_unaligned(from.add(at).cast::<W>());
            ptr::write_volatile(to.add(at).cast::<W>(), value);
        }
        at += word;
    }
}

/// In words of this kind, of which all values are valid.
///
/// # Safety
/// As [`fill`].
#[inline(always)]
unsafe fn fill_in<W: Copy>(to: *mut u8, value: u8, len: usize) {
    let bytes = [value; 64];
    debug_assert!(size_of::<W>() <= bytes.len());
    // SAFETY: the array has as many bytes as a word, of which all values are words.
    let word = unsafe { ptr::read_unaligned(bytes.as_ptr().cast::<W>()) };
    let (words_at, words_end) = words_of(to, size_of::<W>(), len);
    for at in (0..words_at).chain(words_end..len) {
        // SAFETY: `at < len`.
        unsafe { ptr::write_volatile(to.add(at), value) };
    }
    let mut at = words_at;
    while at < words_end {
        // SAFETY: one word from `at` on is inside, and the destination is aligned to a word at `at`.
        unsafe { ptr::write_volatile(to.add(at).cast::<W>(), word) };
        at += size_of::<W>();
    }
}

/// Where the whole aligned words of a destination begin and end; both are at most `len`.
fn words_of(to: *mut u8, word: usize, len: usize) -> (usize, usize) {
    let start = (to.addr().wrapping_neg() % word).min(len);
    (start, start + (len - start) / word * word)
}
