//! What is asked of a namespace, and the answer.

use reactor::buf::IoBuf;

use crate::NamespaceError;

/// One request. Block counts are counts, not zero-based.
#[derive(Debug)]
pub enum Io {
    /// Reads `blocks` logical blocks from `lba` on.
    Read {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Where the bytes are wanted, exactly as long; none: in memory of the engine's, or where the store keeps them.
        into: Option<IoBuf>,
    },
    /// Writes `data`, whole blocks, from `lba` on.
    Write {
        /// First block.
        lba: u64,
        /// The bytes; given back with the answer, where the write succeeded.
        data: IoBuf,
        /// Force unit access: answered only when the bytes are on stable storage.
        durable: bool,
    },
    /// Makes every write answered before this one durable.
    Flush,
}

impl Io {
    /// Whether it changes the namespace.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Read { .. })
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Done {
    /// What the request was given.
    pub token: u64,
    /// A read's bytes; a write's buffer, back. None where the request failed.
    pub buf: Option<IoBuf>,
    /// What came of it.
    pub result: Result<(), NamespaceError>,
}
