//! A host's NQN in a record: of a fixed size, so that an event needs no memory of its own and no table that could lose it.

use std::fmt;

use nvme_spec::NQN_BYTES_MAX;

/// Its length, then its bytes.
const BYTES: usize = 1 + NQN_BYTES_MAX;

/// Words of a name in a record.
pub(super) const WORDS: usize = BYTES / 8;

const _: () = assert!(BYTES == 8 * WORDS && NQN_BYTES_MAX <= u8::MAX as usize);

/// The NQN of a host; empty where an event is of none, or of one without a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HostName([u8; BYTES]);

impl HostName {
    /// Of no host.
    pub const NONE: Self = Self([0; BYTES]);

    /// A name; none where it is longer than an NQN can be.
    #[must_use]
    pub fn new(nqn: &str) -> Self {
        let mut name = Self::NONE;
        let Some(bytes) = name.0.get_mut(1..=nqn.len()) else {
            return name;
        };
        bytes.copy_from_slice(nqn.as_bytes());
        name.0[0] = u8::try_from(nqn.len()).unwrap_or(0);
        name
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.0.get(1..=usize::from(self.0[0])).unwrap_or(&[]);
        std::str::from_utf8(bytes).unwrap_or("")
    }

    pub(super) fn to_words(self) -> [u64; WORDS] {
        let (words, _) = self.0.as_chunks();
        std::array::from_fn(|index| words.get(index).copied().map_or(0, u64::from_le_bytes))
    }

    pub(super) fn of_words(words: [u64; WORDS]) -> Self {
        let mut name = Self::NONE;
        let (chunks, _) = name.0.as_chunks_mut();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            *chunk = word.to_le_bytes();
        }
        name
    }
}

impl fmt::Debug for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}
