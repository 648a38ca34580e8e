//! Blocks that vouch for themselves: a header with place, seed and generation, and data that follow from these.
//!
//! Little-endian, from the block's start: magic (8 bytes), offset in the target (8), seed (8), generation (4), length (4), CRC-32C
//! of the data (4), CRC-32C of the 36 bytes so far (4), data. Every 8-byte word of the data is a function of seed, offset, generation
//! and its place, so that of a damaged block the wrong byte can be named.

use std::fmt;

use crc_fast::CrcAlgorithm::Crc32Iscsi;

use crate::limits;
use crate::random::mix;

/// Begins every block that this program writes, verified or not: it knows its own files by it.
pub const MAGIC: [u8; 8] = *b"xio:blk\x01";

/// Marks what is written without verification: every sector of it, since what is trimmed later may end in the middle of a block.
pub fn mark(block: &mut [u8]) {
    for sector in block.chunks_mut(limits::BLOCK_BYTES_MIN as usize) {
        if let Some(magic) = sector.first_chunk_mut() {
            *magic = MAGIC;
        }
    }
}
/// Bytes before the data.
pub const HEADER_BYTES: usize = 40;
const HEADER_CRC_AT: usize = 36;
const _: () = assert!(HEADER_BYTES < limits::BLOCK_BYTES_MIN as usize);
/// From one word to the next, and from one generation to the next: odd, so that no two are equal.
const WORD_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
const GENERATION_STEP: u64 = 0xD1B5_4A32_D192_ED03;

/// What a block should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its place in the target.
    pub offset: u64,
    /// Of the run.
    pub seed: u64,
    /// How many times this place was written in the run, from 1.
    pub generation: u32,
}

/// A block that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mismatch {
    /// Where the block begins.
    pub offset: u64,
    /// Its length.
    pub len: u32,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not begin with [`MAGIC`] and nothing in it is as expected.
    Foreign,
    /// It is whole, but another one.
    Other(Found),
    /// It holds wrong bytes.
    Damaged {
        /// Place of the first one, in the target.
        at: u64,
        /// What it is.
        found: u8,
        /// What it should be.
        expected: u8,
        /// How many are wrong in this block.
        wrong_bytes: usize,
    },
}

/// What was found in place of a block, with the one that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// What its header says.
    pub found: Identity,
    /// Its length by its header.
    pub len: u32,
    /// What should be there; without a generation where that is not known.
    pub expected_seed: u64,
    /// The generation that should be there, where it is known.
    pub expected_generation: Option<u32>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "verify: block at offset {} ({} bytes): ",
            self.offset, self.len
        )?;
        match self.fault {
            Fault::Foreign => write!(f, "no verified write of this size was here"),
            Fault::Damaged {
                at,
                found,
                expected,
                wrong_bytes,
            } => write!(
                f,
                "byte at offset {at} is {found:#04x}, not {expected:#04x}; {wrong_bytes} bytes of the block are wrong"
            ),
            Fault::Other(other) if other.found.offset != self.offset => {
                write!(f, "it is the block of offset {}", other.found.offset)
            }
            Fault::Other(other) if other.found.seed != other.expected_seed => write!(
                f,
                "it was written with seed {}, not {}; was another seed meant?",
                other.found.seed, other.expected_seed
            ),
            Fault::Other(other) if other.len != self.len => {
                write!(f, "it was written with a block size of {} bytes", other.len)
            }
            Fault::Other(other) => write!(
                f,
                "it is of generation {}, not {}: a write was lost",
                other.found.generation,
                other.expected_generation.unwrap_or(0)
            ),
        }
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    u32::try_from(crc_fast::checksum(Crc32Iscsi, bytes) & u64::from(u32::MAX)).unwrap_or(0)
}

impl Identity {
    fn first_word(self) -> u64 {
        mix(self.seed ^ mix(self.offset))
            .wrapping_add(u64::from(self.generation).wrapping_mul(GENERATION_STEP))
    }

    /// Writes the whole block. Shorter than a header, it is left as it is.
    pub fn fill(self, block: &mut [u8]) {
        let len = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let Some((header, data)) = block.split_first_chunk_mut::<HEADER_BYTES>() else {
            return;
        };
        let mut value = self.first_word();
        let mut words = data.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&value.to_le_bytes());
            value = value.wrapping_add(WORD_STEP);
        }
        words.into_remainder().fill(0);
        *header = self.header(len, crc32c(data));
    }

    fn header(self, len: u32, data_crc: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let mut rest = &mut header[..];
        let mut put = |bytes: &[u8]| {
            if let Some((head, tail)) = std::mem::take(&mut rest).split_at_mut_checked(bytes.len())
            {
                head.copy_from_slice(bytes);
                rest = tail;
            }
        };
        put(&MAGIC);
        put(&self.offset.to_le_bytes());
        put(&self.seed.to_le_bytes());
        put(&self.generation.to_le_bytes());
        put(&len.to_le_bytes());
        put(&data_crc.to_le_bytes());
        let crc = crc32c(&header[..HEADER_CRC_AT]);
        header[HEADER_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// What a header says; `None` where magic or checksum are wrong.
struct Header {
    identity: Identity,
    len: u32,
    data_crc: u32,
}

impl Header {
    fn parse(block: &[u8]) -> Option<Header> {
        let (magic, rest) = block.get(..HEADER_BYTES)?.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let (seed, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (data_crc, rest) = rest.split_first_chunk()?;
        let (header_crc, _) = rest.split_first_chunk()?;
        let sound = *magic == MAGIC
            && u32::from_le_bytes(*header_crc) == crc32c(block.get(..HEADER_CRC_AT)?);
        sound.then(|| Header {
            identity: Identity {
                offset: u64::from_le_bytes(*offset),
                seed: u64::from_le_bytes(*seed),
                generation: u32::from_le_bytes(*generation),
            },
            len: u32::from_le_bytes(*len),
            data_crc: u32::from_le_bytes(*data_crc),
        })
    }
}

/// Checks a block that was read from `offset`. Without a generation, any will do: that of a former run is not known.
///
/// # Errors
/// What is there instead, with the place of the first wrong byte where bytes are wrong.
pub fn check(
    offset: u64,
    seed: u64,
    generation: Option<u32>,
    block: &[u8],
) -> Result<(), Mismatch> {
    let len = u32::try_from(block.len()).unwrap_or(u32::MAX);
    let fault = match Header::parse(block) {
        Some(header) => {
            let found = header.identity;
            let expected = Identity {
                offset,
                seed,
                generation: generation.unwrap_or(found.generation),
            };
            if found != expected || header.len != len {
                Fault::Other(Found {
                    found,
                    len: header.len,
                    expected_seed: seed,
                    expected_generation: generation,
                })
            } else if crc32c(block.get(HEADER_BYTES..).unwrap_or(&[])) == header.data_crc {
                return Ok(());
            } else {
                damage(expected, block)
            }
        }
        None => {
            let expected = Identity {
                offset,
                seed,
                generation: generation.unwrap_or_else(|| generation_of_data(offset, seed, block)),
            };
            damage(expected, block)
        }
    };
    Err(Mismatch { offset, len, fault })
}

/// The first data word gives the generation away, where the header does not: the step is odd, so it has an inverse.
fn generation_of_data(offset: u64, seed: u64, block: &[u8]) -> u32 {
    let Some((word, _)) = block
        .get(HEADER_BYTES..)
        .and_then(<[u8]>::split_first_chunk)
    else {
        return 0;
    };
    let zero = Identity {
        offset,
        seed,
        generation: 0,
    };
    let steps = u64::from_le_bytes(*word).wrapping_sub(zero.first_word());
    // Newton's iteration doubles the right bits of the inverse: 3, 6, 12, 24, 48, 96.
    let inverse = (0..5).fold(GENERATION_STEP, |inverse, _| {
        inverse.wrapping_mul(2u64.wrapping_sub(GENERATION_STEP.wrapping_mul(inverse)))
    });
    u32::try_from(steps.wrapping_mul(inverse)).unwrap_or(0)
}

fn damage(expected: Identity, block: &[u8]) -> Fault {
    let mut whole = vec![0; block.len()];
    expected.fill(&mut whole);
    let mut wrong = (expected.offset..)
        .zip(block.iter().zip(&whole))
        .filter(|(_, (found, expected))| found != expected)
        .map(|(at, (found, expected))| (at, *found, *expected));
    let Some((at, found, expected)) = wrong.next() else {
        return Fault::Foreign;
    };
    let wrong_bytes = 1 + wrong.count();
    // Of unrelated data, one byte in 256 is right by chance.
    if wrong_bytes > block.len() - block.len() / 16 {
        return Fault::Foreign;
    }
    Fault::Damaged {
        at,
        found,
        expected,
        wrong_bytes,
    }
}

/// What a run has written, by units of its smallest block: the generation that begins there, [`INSIDE`] a longer block, or 0.
#[derive(Debug)]
pub struct Written {
    offset: u64,
    unit: u64,
    units: Vec<u32>,
}

const INSIDE: u32 = u32::MAX;

impl Written {
    /// For a region of so many units. `None` where there are too many to remember.
    pub fn new(offset: u64, unit_bytes: u32, units: u64) -> Option<Written> {
        let units = usize::try_from(units).ok()?;
        (units as u64 <= limits::TRACKED_BLOCKS_MAX && unit_bytes > 0).then(|| Written {
            offset,
            unit: u64::from(unit_bytes),
            units: vec![0; units],
        })
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset.saturating_sub(self.offset) / self.unit).unwrap_or(usize::MAX)
    }

    /// Notes a block that was written. What is left of blocks that it covers in part can no longer be checked, and is forgotten.
    pub fn note(&mut self, offset: u64, len: u32, generation: u32) {
        let start = self.index(offset);
        let end = start + usize::try_from(u64::from(len) / self.unit).unwrap_or(0);
        if self.units.get(start) == Some(&INSIDE) {
            for unit in self.units.iter_mut().take(start).rev() {
                let head = std::mem::replace(unit, 0);
                if head != INSIDE {
                    break;
                }
            }
        }
        for unit in self.units.iter_mut().skip(end) {
            if *unit != INSIDE {
                break;
            }
            *unit = 0;
        }
        if let Some(covered) = self.units.get_mut(start..end) {
            covered.fill(INSIDE);
            if let Some(head) = covered.first_mut() {
                *head = generation;
            }
        }
    }

    /// The first block at or behind `offset`: its place, length and generation.
    pub fn next_from(&self, offset: u64) -> Option<(u64, u32, u32)> {
        let from = self.index(offset);
        let (start, generation) = (from..)
            .zip(self.units.get(from..)?)
            .find(|(_, unit)| **unit != 0 && **unit != INSIDE)?;
        let inside = self.units.get(start + 1..)?;
        let inside = inside.iter().take_while(|unit| **unit == INSIDE).count();
        let len = u32::try_from((1 + inside as u64) * self.unit).ok()?;
        Some((self.offset + start as u64 * self.unit, len, *generation))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: Identity = Identity {
        offset: 3 << 40,
        seed: 42,
        generation: 7,
    };

    fn block(identity: Identity, len: usize) -> Vec<u8> {
        let mut bytes = vec![0xAA; len];
        identity.fill(&mut bytes);
        bytes
    }

    #[test]
    fn a_flipped_byte_is_found_wherever_it_is() {
        let whole = block(BLOCK, 1024);
        for generation in [None, Some(7)] {
            assert_eq!(check(BLOCK.offset, 42, generation, &whole), Ok(()));
            for at in 0..whole.len() {
                let mut bytes = whole.clone();
                bytes[at] ^= 0x20;
                let error = check(BLOCK.offset, 42, generation, &bytes).unwrap_err();
                let expected = Fault::Damaged {
                    at: BLOCK.offset + at as u64,
                    found: bytes[at],
                    expected: whole[at],
                    wrong_bytes: 1,
                };
                assert_eq!(error.fault, expected, "byte {at}");
            }
        }
    }

    #[test]
    fn a_torn_block_says_where_it_tears() {
        let mut bytes = block(BLOCK, 4096);
        let older = block(
            Identity {
                generation: 6,
                ..BLOCK
            },
            4096,
        );
        bytes[512..].copy_from_slice(&older[512..]);
        let fault = check(BLOCK.offset, 42, Some(7), &bytes).unwrap_err().fault;
        let Fault::Damaged { at, .. } = fault else {
            panic!("{fault:?}")
        };
        assert_eq!(at, BLOCK.offset + 512);
    }

    #[test]
    fn another_block_is_said_to_be_one() {
        for (other, says) in [
            (
                Identity {
                    offset: 4096,
                    ..BLOCK
                },
                "the block of offset 4096",
            ),
            (Identity { seed: 9, ..BLOCK }, "written with seed 9, not 42"),
            (
                Identity {
                    generation: 6,
                    ..BLOCK
                },
                "of generation 6, not 7: a write was lost",
            ),
        ] {
            let error = check(BLOCK.offset, 42, Some(7), &block(other, 512)).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        let error = check(BLOCK.offset, 42, None, &block(BLOCK, 2048)[..1024]).unwrap_err();
        assert!(error.to_string().contains("block size of 2048"), "{error}");
        for foreign in [vec![0; 4096], vec![0x5A; 512]] {
            let error = check(BLOCK.offset, 42, None, &foreign).unwrap_err();
            assert_eq!(error.fault, Fault::Foreign, "{error}");
        }
    }

    proptest! {
        /// Against a plain list of what each byte was last written by: a block is offered if, and only if, all of it is still there.
        #[test]
        fn only_whole_blocks_are_read_back(writes in prop::collection::vec((0usize..20, 1usize..5), 0..40)) {
            let base = 1 << 20;
            let place = |start: usize, len: usize| (base + start as u64 * 512, u32::try_from(len * 512).unwrap());
            let mut written = Written::new(base, 512, 24).unwrap();
            let mut last = [0u32; 24];
            for (generation, (start, len)) in (1..).zip(&writes) {
                let (offset, bytes) = place(*start, *len);
                written.note(offset, bytes, generation);
                last[*start..start + len].fill(generation);
            }
            let mut offered = Vec::new();
            let mut from = base;
            while let Some((offset, len, generation)) = written.next_from(from) {
                offered.push((offset, len, generation));
                from = offset + u64::from(len);
            }
            let mut expected = Vec::new();
            for (generation, (start, len)) in (1..).zip(&writes) {
                if last[*start..start + len].iter().all(|by| *by == generation) {
                    let (offset, bytes) = place(*start, *len);
                    expected.push((offset, bytes, generation));
                }
            }
            expected.sort_unstable();
            prop_assert_eq!(offered, expected);
        }
    }
}
