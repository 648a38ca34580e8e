//! Bytes to streams of codes, most significant bit first, from the last byte of each stream's run to the first.

use super::code::Code;
use crate::kernels::huffman::{STREAMS, run};

/// The code of each byte, and its bits.
pub(super) struct Codes {
    codes: [(u16, u8); 256],
}

/// Bytes that are encoded between two stores: their codes, at most 11 bits each, fit beside 7 bits that wait.
const TOGETHER: usize = 4;

impl Codes {
    pub(super) fn new(code: &Code) -> Codes {
        let mut codes = [(0, 0); 256];
        let (mut next, mut bits) = (0u16, 0);
        for it in code.symbols() {
            next <<= it.bits - bits;
            bits = it.bits;
            codes[usize::from(it.symbol)] = (next, bits);
            next += 1;
        }
        Codes { codes }
    }

    /// Encodes the bytes of a group, its streams one behind the other, to the end of `to`; returns their lengths.
    pub(super) fn encode(&self, group: &[u8], to: &mut Vec<u8>) -> [u16; STREAMS] {
        std::array::from_fn(|i| self.stream(&group[run(i, group.len())], to))
    }

    fn stream(&self, bytes: &[u8], to: &mut Vec<u8>) -> u16 {
        let start = to.len();
        // Enough for the longest codes, and a word more.
        to.resize(start + bytes.len() * 11 / 8 + 9, 0);
        let out = &mut to[start..];
        // The bits that wait are the upper `waiting` ones.
        let (mut word, mut waiting, mut at) = (0u64, 0u32, 0);
        let (first, quads) = bytes.as_rchunks::<TOGETHER>();
        let parts = quads.iter().rev().map(|quad| &quad[..]).chain([first]);
        for some in parts {
            for byte in some.iter().rev() {
                let (code, bits) = self.codes[usize::from(*byte)];
                waiting += u32::from(bits);
                word |= u64::from(code) << (64 - waiting);
            }
            out[at..at + 8].copy_from_slice(&word.to_be_bytes());
            at += waiting as usize / 8;
            word <<= waiting & !7;
            waiting &= 7;
        }
        let len = at + usize::from(waiting > 0);
        to.truncate(start + len);
        u16::try_from(len).expect("a stream of a group is short")
    }
}
