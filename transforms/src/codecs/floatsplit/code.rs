//! A canonical prefix code over bytes, and how a frame describes it.
//!
//! Codes are given out in the order of their lengths, those of one length in the order of their symbols: the first is all zeros, and each is
//! the one before it plus one, with zeros behind it where it is longer (RFC 1951, 3.2.2). A code is written as the lengths of all symbols
//! between the first and the last one that it has, four bits each.

use super::corrupt;
use crate::TransformError;
use crate::kernels::huffman::{CODE_BITS_MAX, Symbol};

/// Symbols of a code at most: every byte.
pub(super) const SYMBOLS_MAX: usize = 256;

/// The nibble that stands for so many symbols in a row that the code does not have.
const GAP: u8 = 15;
const GAP_SYMBOLS: usize = 16;

const _: () = assert!(CODE_BITS_MAX < GAP as u32);

/// A code: complete, or of one symbol, which takes no bits.
#[derive(Clone)]
pub(super) struct Code {
    /// By length, those of one length ascending; the first `count`.
    symbols: [Symbol; SYMBOLS_MAX],
    count: usize,
}

/// The bits of each symbol's code; 0 of those that the code does not have.
pub(super) type Lengths = [u8; SYMBOLS_MAX];

/// Of no symbol.
impl Default for Code {
    fn default() -> Code {
        Code {
            symbols: [Symbol { symbol: 0, bits: 0 }; SYMBOLS_MAX],
            count: 0,
        }
    }
}

impl Code {
    /// The code with these lengths: of one symbol, any length; of more, at most [`CODE_BITS_MAX`] and complete, or there is none.
    pub(super) fn new(lengths: &Lengths) -> Option<Code> {
        let mut code = Code::default();
        code.set(0, lengths).map(|()| code)
    }

    /// Becomes the code with these lengths, of the symbols from `first` on. `None`: there is none, and what it is then is unspecified.
    fn set(&mut self, first: u8, lengths: &[u8]) -> Option<()> {
        let mut of_length = [0usize; CODE_BITS_MAX as usize + 1];
        for bits in lengths {
            *of_length.get_mut(usize::from(*bits))? += 1;
        }
        // Where those of each length go, and the share of all sequences of bits that they take.
        let mut next = [0; CODE_BITS_MAX as usize + 1];
        let (mut count, mut entries) = (0, 0);
        for bits in 1..next.len() {
            next[bits] = count;
            count += of_length[bits];
            entries += of_length[bits] << (CODE_BITS_MAX as usize - bits);
        }
        if count != 1 && entries != 1 << CODE_BITS_MAX {
            return None;
        }
        self.count = count;
        for (symbol, bits) in (first..=u8::MAX).zip(lengths) {
            if *bits > 0 {
                let next = &mut next[usize::from(*bits)];
                self.symbols[*next] = Symbol {
                    symbol,
                    bits: *bits,
                };
                *next += 1;
            }
        }
        Some(())
    }

    /// By length, those of one length ascending.
    pub(super) fn symbols(&self) -> &[Symbol] {
        &self.symbols[..self.count]
    }

    /// Its one symbol, where it has one.
    pub(super) fn constant(&self) -> Option<u8> {
        match self.symbols() {
            [only] => Some(only.symbol),
            _ => None,
        }
    }

    /// Becomes the code at the front of `src`, which moves on behind it. After an error it is unspecified which it is.
    pub(super) fn read(&mut self, src: &mut &[u8]) -> Result<(), TransformError> {
        let Some(([first, last], rest)) = src.split_first_chunk() else {
            return Err(corrupt("it ends in a code"));
        };
        *src = rest;
        let Some(behind) = last.checked_sub(*first) else {
            return Err(corrupt("a code of symbols from the last to the first"));
        };
        let mut lengths = [0; SYMBOLS_MAX];
        let lengths = &mut lengths[..=usize::from(behind)];
        if behind == 0 {
            lengths[0] = 1;
        } else {
            read_lengths(src, lengths)?;
            if lengths.first() == Some(&0) || lengths.last() == Some(&0) {
                return Err(corrupt("a code without its first or last symbol"));
            }
        }
        let set = self.set(*first, lengths);
        set.ok_or_else(|| corrupt("a code that is not complete"))
    }

    /// Writes it to the end of `to`.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let mut lengths = [0; SYMBOLS_MAX];
        let (mut first, mut last) = (u8::MAX, 0);
        for it in self.symbols() {
            lengths[usize::from(it.symbol)] = it.bits;
            first = first.min(it.symbol);
            last = last.max(it.symbol);
        }
        to.extend([first, last]);
        if first == last {
            return;
        }
        let mut low = None;
        let mut lengths = &lengths[usize::from(first)..=usize::from(last)];
        while let Some((length, rest)) = lengths.split_first() {
            let is_gap =
                lengths.len() > GAP_SYMBOLS && lengths[..GAP_SYMBOLS].iter().all(|it| *it == 0);
            let nibble = if is_gap { GAP } else { *length };
            lengths = if is_gap {
                &lengths[GAP_SYMBOLS..]
            } else {
                rest
            };
            low = match low {
                None => Some(nibble),
                Some(low) => {
                    to.push(nibble << 4 | low);
                    None
                }
            };
        }
        to.extend(low);
    }
}

/// Reads nibbles, the lower one of each byte first, until there is one for every symbol. The nibble that is left over is 0.
fn read_lengths(src: &mut &[u8], lengths: &mut [u8]) -> Result<(), TransformError> {
    let mut symbol = 0;
    while symbol < lengths.len() {
        let Some((byte, rest)) = src.split_first() else {
            return Err(corrupt("it ends in a code"));
        };
        *src = rest;
        for nibble in [byte & 15, byte >> 4] {
            match lengths.get_mut(symbol) {
                Some(_) if nibble == GAP => symbol += GAP_SYMBOLS,
                Some(length) => {
                    *length = nibble;
                    symbol += 1;
                }
                None if nibble == 0 => {}
                None => return Err(corrupt("a length of no symbol")),
            }
        }
    }
    Ok(())
}
