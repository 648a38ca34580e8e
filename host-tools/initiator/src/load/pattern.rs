//! Bytes that say where they belong: each 8-byte word is a function of its place in the namespace.

/// A data pattern over a whole namespace. Two places hold the same word with probability 2^-64 only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Distinguishes one fill of a namespace from another.
    pub seed: u64,
}

const WORD_BYTES: usize = 8;

/// Where a buffer first differs from the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Byte offset in the namespace, of the first differing byte.
    pub offset_bytes: u64,
    /// The byte that was found there.
    pub found: u8,
    /// The byte that belongs there.
    pub expected: u8,
}

impl Pattern {
    /// Writes the pattern of the namespace bytes from `offset_bytes`, which is a multiple of 8, on.
    pub fn fill(self, offset_bytes: u64, out: &mut [u8]) {
        let mut word_index = offset_bytes / WORD_BYTES as u64;
        let mut words = out.chunks_exact_mut(WORD_BYTES);
        for word in &mut words {
            word.copy_from_slice(&self.word(word_index));
            word_index += 1;
        }
        let tail = words.into_remainder();
        tail.copy_from_slice(&self.word(word_index)[..tail.len()]);
    }

    /// Compares bytes read at `offset_bytes`, a multiple of 8, with the pattern.
    pub fn check(self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let mut word_index = offset_bytes / WORD_BYTES as u64;
        let mut differences = 0u64;
        let mut words = bytes.chunks_exact(WORD_BYTES);
        for word in &mut words {
            let mut found = [0; WORD_BYTES];
            found.copy_from_slice(word);
            differences |= u64::from_le_bytes(found) ^ u64::from_le_bytes(self.word(word_index));
            word_index += 1;
        }
        let tail = words.remainder();
        if differences == 0 && tail == &self.word(word_index)[..tail.len()] {
            return Ok(());
        }
        self.first_mismatch(offset_bytes, bytes).map_or(Ok(()), Err)
    }

    fn first_mismatch(self, offset_bytes: u64, bytes: &[u8]) -> Option<Mismatch> {
        (offset_bytes..)
            .zip(bytes)
            .find_map(|(offset_bytes, &found)| {
                let expected = self.byte(offset_bytes);
                (found != expected).then_some(Mismatch {
                    offset_bytes,
                    found,
                    expected,
                })
            })
    }

    fn byte(self, offset_bytes: u64) -> u8 {
        let word = u64::from_le_bytes(self.word(offset_bytes / WORD_BYTES as u64));
        let [byte, ..] = (word >> (offset_bytes % WORD_BYTES as u64 * 8)).to_le_bytes();
        byte
    }

    /// A bijection of the index (odd multiplier, then a shift-xor), so no two words of a namespace are equal.
    fn word(self, index: u64) -> [u8; WORD_BYTES] {
        let mixed = (index ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 32)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: Pattern = Pattern { seed: 7 };

    #[test]
    fn what_was_filled_in_one_piece_checks_in_any_other() {
        let mut bytes = vec![0; 8192];
        PATTERN.fill(4096, &mut bytes);
        for (from, to) in [(0, 8192), (8, 17), (512, 1024), (8184, 8192), (0, 0)] {
            assert_eq!(PATTERN.check(4096 + from as u64, &bytes[from..to]), Ok(()));
        }
    }

    #[test]
    fn one_flipped_bit_is_reported_with_its_place() {
        let mut bytes = vec![0; 1003];
        PATTERN.fill(1 << 33, &mut bytes);
        for at in 0..bytes.len() {
            bytes[at] ^= 0x10;
            let found = bytes[at];
            assert_eq!(
                PATTERN.check(1 << 33, &bytes),
                Err(Mismatch {
                    offset_bytes: (1 << 33) + at as u64,
                    found,
                    expected: found ^ 0x10,
                })
            );
            bytes[at] ^= 0x10;
        }
    }

    #[test]
    fn neighbours_other_places_and_other_seeds_differ() {
        let mut bytes = vec![0; 4096];
        PATTERN.fill(0, &mut bytes);
        assert!(PATTERN.check(8, &bytes).is_err());
        assert!(PATTERN.check(4096, &bytes).is_err());
        assert!(Pattern { seed: 8 }.check(0, &bytes).is_err());
        assert!(PATTERN.check(0, &[0; 4096]).is_err());
    }
}
