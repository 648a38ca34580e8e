//! Where the bytes come from.

use std::fmt;

/// The bytes of a disk. Reads come from several threads at once.
pub trait Medium: Send + Sync + 'static {
    /// How many there are.
    fn bytes(&self) -> u64;

    /// Reads `into.len()` bytes from byte `at` on. It ends: after a time of its own where nobody answers.
    ///
    /// # Errors
    /// Why they cannot be had.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), ReadFailure>;
}

/// Why bytes cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFailure {
    /// For a person.
    pub why: String,
    /// Some of the bytes are damaged: those around them may be read.
    pub is_damage: bool,
}

impl fmt::Display for ReadFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ReadFailure {}
