//! Bytes in a canonical prefix code: six streams decoded at a time, several symbols with each look-up.
//!
//! A look-up takes the next [`CODE_BITS_MAX`] bits of a stream and finds every symbol that lies in them whole, how many they are and how
//! many bits they have; the exponents of weights come at four a look-up. The streams do not depend on each other, so that a
//! processor works on all of them while each waits for its table (F. Giesen, "Entropy coding in Oodle Data: Huffman coding", 2021, has six
//! as well; RFC 8878, 4.2.2, four).

use std::ops::Range;

use crate::kernels::Isa;

/// The longest code.
pub(crate) const CODE_BITS_MAX: u32 = 11;

/// Streams that the bytes of a group are dealt out to, a run to each.
pub(crate) const STREAMS: usize = 6;

/// The most symbols of a look-up; an entry has six bytes for them.
const SYMBOLS_MAX: usize = 6;

/// Look-ups between two loads from a stream.
const LOOKUPS: usize = 5;

/// Bits in front of the next code after a load that starts at a whole byte, those of the look-ups, and the marker's: all of one word.
const _: () = assert!(7 + LOOKUPS * CODE_BITS_MAX as usize + 1 < 64);

/// Bytes of a stream that a turn of look-ups may use up.
const TURN_BYTES: usize = (LOOKUPS * CODE_BITS_MAX as usize).div_ceil(8);

/// Bytes that a turn may write: of each look-up its symbols, and the last one stores a whole word.
const TURN_OUT_BYTES: usize = (LOOKUPS - 1) * SYMBOLS_MAX + 8;

/// A symbol of a code, and the bits of its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) symbol: u8,
    pub(crate) bits: u8,
}

/// What look-ups find. An entry has the bits of all its symbols in byte 0, their number in byte 1, and the symbols in bytes 7 to 2, the first
/// one highest: bytes are decoded from the last to the first, so that an entry is stored as it is and shifts the stream as it is.
pub(crate) struct Table {
    /// At `2^r + v`: the symbols that lie whole in the `r` bits `v`. The last half is what is looked up in; each part is made from those
    /// before it, and is only there where a later one is made from it.
    levels: [u64; 2 << CODE_BITS_MAX],
    /// The bits of each symbol's code.
    bits: [u8; 256],
}

impl Table {
    pub(crate) fn new() -> Table {
        Table {
            levels: [0; 2 << CODE_BITS_MAX],
            bits: [0; 256],
        }
    }

    /// Takes a code: its symbols by the length of their codes, those of one length ascending.
    ///
    /// # Panics
    /// When the code is not complete: every sequence of bits has to be one of codes.
    pub(crate) fn set(&mut self, isa: Isa, code: &[Symbol]) {
        assert!(isa.is_available(), "kernels for another machine");
        let entries: u64 = code
            .iter()
            .map(|it| 1 << (CODE_BITS_MAX - u32::from(it.bits)))
            .sum();
        assert_eq!(entries, 1 << CODE_BITS_MAX, "a code that is not complete");
        for it in code {
            self.bits[usize::from(it.symbol)] = it.bits;
        }
        match isa {
            // SAFETY: the machine has the features (asserted).
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::Avx512 => unsafe { avx2::fill(self, code) },
            _ => fill(self, code),
        }
    }

    /// The symbols that a look-up of these bits finds, and how many of the bits are theirs.
    #[cfg(test)]
    pub(crate) fn lookup(&self, bits: u32) -> (Vec<u8>, usize) {
        let entry = self.lookups()[bits as usize].to_le_bytes();
        let symbols = entry.iter().rev().take(usize::from(entry[1]));
        (symbols.copied().collect(), usize::from(entry[0]))
    }

    fn lookups(&self) -> &[u64; 1 << CODE_BITS_MAX] {
        let (_, last) = self.levels.split_at(1 << CODE_BITS_MAX);
        last.try_into().expect("the last half")
    }
}

/// The levels that the last one is made from, and that one, as bits: behind a symbol come the bits that it leaves.
fn needed(code: &[Symbol]) -> u32 {
    let lengths = code.iter().fold(0, |all, it| all | 1u32 << it.bits);
    let mut needed = 1 << CODE_BITS_MAX;
    for level in (1..=CODE_BITS_MAX).rev() {
        if needed >> level & 1 == 1 {
            let left = (1..=level).filter(|bits| lengths >> bits & 1 == 1);
            needed |= left.fold(0, |all, bits| all | 1 << (level - bits));
        }
    }
    needed
}

/// Makes the levels that are needed, from the one of no bits on.
#[inline(always)]
fn fill(table: &mut Table, code: &[Symbol]) {
    // Only codes of a single bit can fill an entry before its bits are used up.
    let overflows = CODE_BITS_MAX as usize / usize::from(code[0].bits) > SYMBOLS_MAX;
    table.levels[1] = 0;
    let needed = needed(code);
    for bits in (1..=CODE_BITS_MAX).filter(|bits| needed >> bits & 1 == 1) {
        let (shorter, level) = table.levels.split_at_mut(1 << bits);
        let mut level = &mut level[..1 << bits];
        for it in code.iter().take_while(|it| u32::from(it.bits) <= bits) {
            let run = 1 << (bits - u32::from(it.bits));
            let (to, rest) = level.split_at_mut(run);
            level = rest;
            let behind = &shorter[run..2 * run];
            for (to, behind) in to.iter_mut().zip(behind) {
                *to = in_front(*it, *behind);
            }
            if overflows {
                for (to, behind) in to.iter_mut().zip(behind) {
                    if number(*behind) == SYMBOLS_MAX {
                        let last = table.bits[usize::from(behind.to_le_bytes()[2])];
                        *to = in_front(*it, behind - (1 << 8) - u64::from(last));
                    }
                }
            }
        }
        level.fill(0);
    }
}

/// The entry of a symbol and those of `behind`, of which the last one goes if there are six.
#[inline(always)]
fn in_front(it: Symbol, behind: u64) -> u64 {
    const NUMBERS: u64 = 0xFFFF;
    let one = u64::from(it.symbol) << 56 | 1 << 8 | u64::from(it.bits);
    ((behind & !NUMBERS) >> 8 & !NUMBERS | behind & NUMBERS) + one
}

/// How many symbols an entry has.
#[inline(always)]
fn number(entry: u64) -> usize {
    (entry >> 8 & 0xFF) as usize
}

/// Why streams are no encoding of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongEnd {
    /// Which one.
    pub(crate) stream: usize,
}

/// The bytes of a run that stream `stream` has, of a group of `len`.
pub(crate) fn run(stream: usize, len: usize) -> Range<usize> {
    len * stream / STREAMS..len * (stream + 1) / STREAMS
}

/// Decodes streams that lie in `bytes` into `out`, to each its [`run`], from the last byte to the first. Every bit of a stream has to be used, but
/// for zeros that fill its last byte.
///
/// # Errors
/// [`WrongEnd`] of the first stream that ends elsewhere. What `out` holds then is unspecified.
///
/// # Panics
/// When a stream does not lie in `bytes`, or the machine lacks `isa`.
pub(crate) fn decode(
    isa: Isa,
    table: &Table,
    bytes: &[u8],
    streams: &[Range<usize>; STREAMS],
    out: &mut [u8],
) -> Result<(), WrongEnd> {
    assert!(isa.is_available(), "kernels for another machine");
    for stream in streams {
        assert!(stream.start <= stream.end && stream.end <= bytes.len());
    }
    let mut at = std::array::from_fn(|i| At {
        bit: 8 * streams[i].start,
        left: run(i, out.len()).len(),
    });
    match isa {
        // SAFETY: the machine has the features (asserted); the streams start in `bytes` and their runs are in `out`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => unsafe { avx2::together(table, bytes, &mut at, out) },
        // SAFETY: as above.
        _ => unsafe { together(table, bytes, &mut at, out) },
    }
    for (i, at) in at.iter_mut().enumerate() {
        let run = run(i, out.len());
        rest(table, bytes, at, &mut out[run]);
        let (used, padding) = (at.bit.div_ceil(8), at.bit.wrapping_neg() % 8);
        let zeros = padding == 0
            || bytes[..streams[i].end]
                .last()
                .is_some_and(|last| last << (8 - padding) == 0);
        if used != streams[i].end || !zeros {
            return Err(WrongEnd { stream: i });
        }
    }
    Ok(())
}

/// How far a stream is.
#[derive(Clone, Copy)]
struct At {
    /// Its next bit, counted from the first of all bytes.
    bit: usize,
    /// Bytes of its run that are not decoded; the last of them is next.
    left: usize,
}

/// Decodes all streams by turns, as long as none is near the end of its run or of `bytes`.
///
/// # Safety
/// The bits are in `bytes` and the runs in `out`.
#[inline(always)]
unsafe fn together(table: &Table, bytes: &[u8], at: &mut [At; STREAMS], out: &mut [u8]) {
    let len = out.len();
    let lookups = table.lookups().as_ptr();
    loop {
        let turns = at.iter().map(|at| {
            let ahead = bytes.len().saturating_sub(at.bit / 8).saturating_sub(8);
            (at.left / TURN_OUT_BYTES).min(ahead / TURN_BYTES)
        });
        let turns = turns.min().unwrap_or(0);
        if turns == 0 {
            return;
        }
        let mut from: [*const u8; STREAMS] = at.map(|at| bytes.as_ptr().wrapping_add(at.bit / 8));
        let mut to: [*mut u8; STREAMS] = std::array::from_fn(|i| {
            out.as_mut_ptr()
                .wrapping_add(run(i, len).start + at[i].left)
        });
        // SAFETY: each turn moves a stream by at most TURN_BYTES and TURN_OUT_BYTES, and a load is 8 bytes: all of them are there.
        unsafe {
            let mut words: [u64; STREAMS] =
                std::array::from_fn(|i| word(from[i]) << (at[i].bit % 8));
            for _ in 0..turns {
                for _ in 0..LOOKUPS {
                    for i in 0..STREAMS {
                        let entry = *lookups.add((words[i] >> (64 - CODE_BITS_MAX)) as usize);
                        to[i].sub(8).cast::<u64>().write_unaligned(entry.to_le());
                        words[i] <<= entry & 63;
                        to[i] = to[i].sub(number(entry));
                    }
                }
                for i in 0..STREAMS {
                    let used = words[i].trailing_zeros();
                    from[i] = from[i].add(used as usize / 8);
                    words[i] = word(from[i]) << (used % 8);
                }
            }
            for i in 0..STREAMS {
                let used = words[i].trailing_zeros() as usize;
                at[i] = At {
                    bit: 8 * from[i].offset_from_unsigned(bytes.as_ptr()) + used,
                    left: to[i].offset_from_unsigned(out.as_ptr()) - run(i, len).start,
                };
            }
        }
    }
}

/// The next 63 bits, and a marker that says how far they were shifted out.
///
/// # Safety
/// 8 bytes are there.
#[inline(always)]
unsafe fn word(from: *const u8) -> u64 {
    // SAFETY: passed on to the caller.
    u64::from_be(unsafe { from.cast::<u64>().read_unaligned() }) | 1
}

/// Decodes what is left of a stream's run.
#[inline(always)]
fn rest(table: &Table, bytes: &[u8], at: &mut At, run: &mut [u8]) {
    const PART: usize = 128;
    let lookups = table.lookups();
    let mut part = [0; PART + 8];
    while at.left > 0 {
        // The last look-up may find more than are left: they go to the front, where nobody looks, and their bits are given back.
        let wanted = at.left.min(PART);
        let mut from = part.len();
        while part.len() - from < wanted {
            let mut word = peek(bytes, at.bit);
            for _ in 0..LOOKUPS {
                let entry = lookups[(word >> (64 - CODE_BITS_MAX)) as usize];
                part[from - 8..from].copy_from_slice(&entry.to_le_bytes());
                from -= number(entry);
                at.bit += (entry & 63) as usize;
                word <<= entry & 63;
                if part.len() - from >= wanted {
                    break;
                }
            }
        }
        let (more, wanted) = part[from..].split_at(part.len() - from - wanted);
        for symbol in more {
            at.bit -= usize::from(table.bits[usize::from(*symbol)]);
        }
        run[at.left - wanted.len()..at.left].copy_from_slice(wanted);
        at.left -= wanted.len();
    }
}

/// At least the next 57 bits, those of [`LOOKUPS`]; behind the end are zeros.
fn peek(bytes: &[u8], bit: usize) -> u64 {
    let start = (bit / 8).min(bytes.len());
    let mut word = [0; 8];
    match bytes[start..].first_chunk() {
        Some(whole) => word = *whole,
        None => word[..bytes.len() - start].copy_from_slice(&bytes[start..]),
    }
    u64::from_be_bytes(word) << (bit % 8)
}

/// The plain loops, compiled for AVX2 and BMI2.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{At, STREAMS, Symbol, Table};

    #[target_feature(enable = "avx2,bmi2")]
    pub(super) fn fill(table: &mut Table, code: &[Symbol]) {
        super::fill(table, code);
    }

    /// # Safety
    /// As [`super::together`].
    #[target_feature(enable = "avx2,bmi2")]
    pub(super) unsafe fn together(
        table: &Table,
        bytes: &[u8],
        at: &mut [At; STREAMS],
        out: &mut [u8],
    ) {
        // SAFETY: passed on to the caller.
        unsafe { super::together(table, bytes, at, out) };
    }
}
