//! Bytes that say where they belong: each 8-byte word is a function of its place in the namespace.

/// A data pattern over a whole namespace: no two of its 8-byte words are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Distinguishes one fill of a namespace from another.
    pub seed: u64,
}

const WORD_BYTES: usize = 8;
/// From one word to the next: 2^64 divided by the golden ratio, so that near words differ in their high bytes too.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

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
        let mut value = self.word(offset_bytes / WORD_BYTES as u64);
        let mut words = out.chunks_exact_mut(WORD_BYTES);
        for word in &mut words {
            word.copy_from_slice(&value.to_le_bytes());
            value = value.wrapping_add(STEP);
        }
        let tail = words.into_remainder();
        tail.copy_from_slice(&value.to_le_bytes()[..tail.len()]);
    }

    /// Compares bytes read at `offset_bytes`, a multiple of 8, with the pattern.
    pub fn check(self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        // Without a branch in the loop, so that the compiler makes vectors of it.
        let mut value = self.word(offset_bytes / WORD_BYTES as u64);
        let mut differences = 0u64;
        let (words, tail) = bytes.as_chunks::<WORD_BYTES>();
        for word in words {
            differences |= u64::from_le_bytes(*word) ^ value;
            value = value.wrapping_add(STEP);
        }
        if differences == 0 && tail == &value.to_le_bytes()[..tail.len()] {
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
        let word = self.word(offset_bytes / WORD_BYTES as u64);
        let [byte, ..] = (word >> (offset_bytes % WORD_BYTES as u64 * 8)).to_le_bytes();
        byte
    }

    /// A bijection of the index, since the step is odd: no two words of a namespace are equal.
    fn word(self, index: u64) -> u64 {
        index.wrapping_mul(STEP).wrapping_add(self.seed)
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
