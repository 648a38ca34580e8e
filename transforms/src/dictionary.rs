//! The dictionary of the step `zstd-dict`: a Zstandard dictionary (RFC 8878, section 5), kept by the volume. What its frames have in common:
//! content that matches are found in, and tables of codes which a small frame then need not have.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::OnceLock;

use zstd_safe::{CDict, DDict};

use crate::TransformError;
use crate::codecs::zstd::LEVELS;

/// What a dictionary begins with.
const MAGIC: [u8; 4] = 0xEC30_A437_u32.to_le_bytes();
/// Behind it: the id, little-endian.
const ID_BYTES: std::ops::Range<usize> = 4..8;

/// A dictionary, prepared: once for all readers, and for a writer once a level. Immutable, shared by the chains that use it.
pub struct Dictionary {
    bytes: Vec<u8>,
    id: NonZeroU32,
    decoding: DDict<'static>,
    /// By level, made when first asked for: readers need none.
    encoding: [OnceLock<Option<CDict<'static>>>; LEVEL_COUNT],
}

const LEVEL_COUNT: usize = (*LEVELS.end() - *LEVELS.start() + 1) as usize;

impl Dictionary {
    /// The least bytes of a dictionary: what its tables take, and some content.
    pub const STORED_BYTES_MIN: u64 = 256;
    /// The most: far above what small frames gain by.
    pub const STORED_BYTES_MAX: u64 = 1 << 20;

    /// What one takes in memory beside its bytes, which are there twice: its tables of codes, as a reader needs them.
    pub const PREPARED_BYTES_MAX: u64 = 28 << 10;

    /// Reads the bytes of a dictionary; hostile input.
    ///
    /// # Errors
    /// [`TransformError::Dictionary`], with the rule that they break.
    pub fn parse(bytes: &[u8]) -> Result<Dictionary, TransformError> {
        let possible = Self::STORED_BYTES_MIN..=Self::STORED_BYTES_MAX;
        if !possible.contains(&(bytes.len() as u64)) {
            return Err(broken(format!(
                "{} bytes; {} to {} are possible",
                bytes.len(),
                possible.start(),
                possible.end()
            )));
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(broken("it does not begin with the magic number".into()));
        }
        let id = zstd_safe::get_dict_id_from_dict(bytes)
            .ok_or_else(|| broken("its id is 0, which no dictionary has".into()))?;
        // It reads the tables of codes, and refuses what a decoder could not use. What remains is memory.
        let decoding = DDict::try_create(bytes)
            .ok_or_else(|| broken("its tables of codes are not right".into()))?;
        Ok(Dictionary {
            bytes: bytes.to_vec(),
            id,
            decoding,
            encoding: [const { OnceLock::new() }; LEVEL_COUNT],
        })
    }

    /// As [`parse`](Self::parse) reads them.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    /// How many bytes that is.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// What frames may name it by. Those of this crate do not: the volume says whose frames they are.
    #[must_use]
    pub fn id(&self) -> NonZeroU32 {
        self.id
    }

    /// Prepared for reading.
    pub(crate) fn decoding(&self) -> &DDict<'static> {
        &self.decoding
    }

    /// Prepared for writing by a level, without its id: four bytes a frame less. `None` where zstd has no memory for it, or can only read by it.
    pub(crate) fn encoding(&self, level: u32) -> Option<&CDict<'static>> {
        let index = usize::try_from(level.checked_sub(*LEVELS.start())?).ok()?;
        let prepare = || {
            let mut nameless = self.bytes.clone();
            nameless[ID_BYTES].fill(0);
            CDict::try_create(&nameless, i32::try_from(level).ok()?)
        };
        self.encoding.get(index)?.get_or_init(prepare).as_ref()
    }
}

fn broken(why: String) -> TransformError {
    TransformError::Dictionary { why }
}

impl PartialEq for Dictionary {
    fn eq(&self, other: &Dictionary) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Dictionary {}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary")
            .field("id", &self.id)
            .field("stored_bytes", &self.stored_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_no_more_memory_than_it_says() {
        let bytes = include_bytes!("../tests/hostile_bytes/dictionary.bin");
        let dictionary = Dictionary::parse(bytes).unwrap();
        let beside = dictionary.decoding().sizeof() - bytes.len();
        assert!(
            beside as u64 <= Dictionary::PREPARED_BYTES_MAX,
            "{beside} bytes"
        );
    }
}
