//! Bytes in and out of guest memory.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use reactor::buf::{CACHE_LINE_BYTES, IoBuf, prefetch_line};

use crate::windows::{Fault, PAGE_BYTES, Way, Windows};

/// Copies all that `from` holds into a buffer over guest memory that is as long, with volatile stores. Returns how many bytes there were. The guest's memory stays as
/// it is where they are void ([`reactor::buf::Lease::void`]).
pub fn to_guest(guest: &IoBuf, from: &IoBuf) -> usize {
    let mut done = 0;
    for run in from.segments() {
        if run.is_void() {
            done += run.len();
            continue;
        }
        // SAFETY: a run of a live buffer is readable for its length.
        done += unsafe { guest.copy_from_raw(done, run.ptr().as_ptr(), run.len()) };
    }
    done
}

/// Copies all that a buffer over guest memory holds, whatever the guest does meanwhile, into one of ours that is as long. Returns how many bytes there
/// were.
pub fn from_guest(to: &IoBuf, guest: &IoBuf) -> usize {
    copy(to, guest)
}

fn copy(to: &IoBuf, from: &IoBuf) -> usize {
    let mut done = 0;
    for (ptr, len) in from.raw_segments(0, from.len()) {
        // SAFETY: a run of a live buffer is readable for its length. Where the guest writes it meanwhile, the copy has some of either content.
        done += unsafe { to.copy_from_raw(done, ptr.cast_const(), len) };
    }
    done
}

impl Windows {
    /// Copies bytes out of guest memory: all of them, or none; some where memory is lost meanwhile ([`Fault::Lost`]).
    ///
    /// # Errors
    /// The first byte that cannot be read.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let bytes = out.len() as u64;
        self.check(address, bytes, Way::FromGuest)?;
        let mut done = 0;
        self.each(address, bytes, Way::FromGuest, |at, len| {
            let to = &mut out[done..done + len];
            let words = if at.cast::<u64>().is_aligned() {
                len / 8 * 8
            } else {
                0
            };
            let (whole, rest) = to.split_at_mut(words);
            for (word, offset) in whole.chunks_exact_mut(8).zip((0..).step_by(8)) {
                // SAFETY: eight bytes at `offset` are inside of `at`'s `len`, which are readable, and aligned; the guest may write them meanwhile, so each is read
                // once, as it is.
                let value = unsafe { ptr::read_volatile(at.add(offset).cast::<u64>()) };
                word.copy_from_slice(&value.to_ne_bytes());
            }
            for (byte, offset) in rest.iter_mut().zip(words..) {
                // SAFETY: `at` is readable for `len` bytes; the rest as above.
                *byte = unsafe { ptr::read_volatile(at.add(offset)) };
            }
            done += len;
        })
    }

    /// Copies `count` entries of `WORDS` words each out of guest memory, each word as it was once, and gives them to `take` in their order: all of them, or none;
    /// some where memory is lost meanwhile ([`Fault::Lost`]), and then what was given is not to be used: who asks for the loss afterwards knows.
    ///
    /// # Errors
    /// The first byte that cannot be read; [`Fault::Denied`] where the place is no multiple of an entry, so that one could lie in two windows.
    pub fn entries<const WORDS: usize>(
        &self,
        address: u64,
        count: usize,
        mut take: impl FnMut([u64; WORDS]),
    ) -> Result<(), Fault> {
        let entry_bytes = WORDS * 8;
        let is_whole = entry_bytes.is_power_of_two() && entry_bytes as u64 <= PAGE_BYTES;
        if !is_whole || !address.is_multiple_of(entry_bytes as u64) {
            return Err(Fault::Denied { address });
        }
        let bytes = (count as u64).saturating_mul(entry_bytes as u64);
        self.check(address, bytes, Way::FromGuest)?;
        self.each(address, bytes, Way::FromGuest, |at, len| {
            // Windows and their mappings begin at pages, and hold whole ones, so that a run has whole entries.
            debug_assert_eq!(len % entry_bytes, 0);
            for entry in 0..len / entry_bytes {
                let words = at.cast::<u64>().wrapping_add(entry * WORDS);
                // SAFETY: `words` and the `WORDS` from there are inside of `at`'s `len`, which are readable, and aligned; the guest may write them meanwhile, so each
                // is read once, as it is.
                take(std::array::from_fn(|word| unsafe {
                    ptr::read_volatile(words.add(word))
                }));
            }
        })
    }

    /// Copies bytes into guest memory: all of them, or none; some where memory is lost meanwhile ([`Fault::Lost`]).
    ///
    /// # Errors
    /// The first byte that cannot be written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.check(address, bytes.len() as u64, Way::ToGuest)?;
        let mut done = 0;
        self.each(address, bytes.len() as u64, Way::ToGuest, |at, len| {
            for (offset, byte) in bytes[done..done + len].iter().enumerate() {
                // SAFETY: `at` is writable for `len` bytes.
                unsafe { ptr::write_volatile(at.add(offset), *byte) };
            }
            done += len;
        })
    }

    /// Copies four words into guest memory, as they are in memory, so that whoever sees the last sees them all: an entry that its last word makes valid.
    ///
    /// # Errors
    /// The first byte that cannot be written; [`Fault::Denied`] where the place is no multiple of 16.
    pub fn publish(&self, address: u64, entry: [u32; 4], goes_on: bool) -> Result<(), Fault> {
        if !address.is_multiple_of(16) {
            return Err(Fault::Denied { address });
        }
        let [first @ .., last] = entry;
        self.each(address, 16, Way::ToGuest, |at, len| {
            // Windows and their mappings begin at pages, so that a multiple of 16 is one in memory, and 16 bytes from there are in one run.
            debug_assert_eq!(len, 16);
            let places = at.cast::<u32>();
            for (index, word) in first.iter().enumerate() {
                // SAFETY: `at` is writable for 16 bytes, and aligned.
                unsafe { ptr::write_volatile(places.add(index), *word) };
            }
            // SAFETY: the same of the last four bytes. The guest reads the word as a whole.
            unsafe { AtomicU32::from_ptr(places.add(3)) }.store(last, Ordering::Release);
            // A line is full: the guest's processor has the next one, which takes a while to come.
            let next = at.wrapping_add(16);
            if goes_on && next.addr().is_multiple_of(CACHE_LINE_BYTES) {
                prefetch_line(next, true);
            }
        })
    }

    /// One number of the guest's, as a whole, whatever it does meanwhile.
    ///
    /// # Errors
    /// The first byte that cannot be read; [`Fault::Denied`] where the place is no multiple of 4.
    pub fn load(&self, address: u64) -> Result<u32, Fault> {
        let mut value = 0;
        self.word(address, Way::FromGuest, |word| {
            value = word.load(Ordering::Acquire);
        })?;
        Ok(u32::from_le(value))
    }

    /// One number for the guest, which sees the old one or the new.
    ///
    /// # Errors
    /// The first byte that cannot be written; [`Fault::Denied`] where the place is no multiple of 4.
    pub fn store(&self, address: u64, value: u32) -> Result<(), Fault> {
        self.word(address, Way::ToGuest, |word| {
            word.store(value.to_le(), Ordering::Release);
        })
    }

    fn word(&self, address: u64, way: Way, mut visit: impl FnMut(&AtomicU32)) -> Result<(), Fault> {
        if !address.is_multiple_of(4) {
            return Err(Fault::Denied { address });
        }
        self.each(address, 4, way, |at, _| {
            // SAFETY: `at` is four bytes of a mapping that allows what the way asks for, and aligned: windows and their mappings begin at pages, so that a
            // multiple of four lies in one run. The guest accesses it as it likes, which is why it is an atomic.
            visit(unsafe { AtomicU32::from_ptr(at.cast()) });
        })
    }

    /// That every byte can be reached.
    ///
    /// # Errors
    /// The first that cannot.
    pub fn check(&self, address: u64, bytes: u64, way: Way) -> Result<(), Fault> {
        self.each(address, bytes, way, |_, _| {})
    }

    fn each(
        &self,
        address: u64,
        bytes: u64,
        way: Way,
        mut visit: impl FnMut(*mut u8, usize),
    ) -> Result<(), Fault> {
        self.mapped(address, bytes, way, |_, at, len| visit(at.as_ptr(), len))
    }
}
