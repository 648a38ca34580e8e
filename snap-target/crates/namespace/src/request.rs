//! What is asked of a namespace, and the answer.

use std::time::Instant;

use reactor::buf::IoBuf;
use volume::ahead::ReaderId;

use crate::{NamespaceError, NamespaceKey};

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
    /// The same for this namespace and others: one answer for all.
    FlushAll {
        /// The others.
        others: Vec<NamespaceKey>,
    },
    /// A read that is answered only when what it presents is on stable storage (force unit access).
    ReadDurable {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
    /// Compares blocks with `data`, whole blocks; [`NamespaceError::Miscompare`] where they differ.
    Compare {
        /// First block.
        lba: u64,
        /// What is to be there; given back with the answer, where it is.
        data: IoBuf,
    },
    /// Reads and checks blocks, and hands none over.
    Verify {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
    /// Zeros in these blocks.
    WriteZeroes {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Give their room back, where zeros are read afterwards all the same.
        deallocate: bool,
        /// Force unit access.
        durable: bool,
    },
    /// These blocks are not needed any more: they read as before or as zeros afterwards.
    Deallocate {
        /// First block and number of blocks of each range.
        ranges: Vec<(u64, u32)>,
    },
    /// Reads of these blocks fail until they are written, also after a restart.
    WriteUncorrectable {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
    /// Writes what the sources hold, one behind the other, from `lba` on. Every source is read before anything is written; together they have at
    /// most [`TRANSFER_BYTES_MIN`](store::TRANSFER_BYTES_MIN) bytes.
    Copy {
        /// Where to.
        lba: u64,
        /// Where from; namespaces with blocks of the same size.
        sources: Vec<Source>,
        /// Force unit access.
        durable: bool,
    },
    /// Writes `data` if the blocks hold `expected`, with no other write to the namespace between, on any engine. An error of the write half is
    /// [`NamespaceError::InPart`].
    CompareAndWrite {
        /// First block.
        lba: u64,
        /// What is to be there, as long as `data`.
        expected: Box<IoBuf>,
        /// What is written then, whole blocks.
        data: IoBuf,
        /// Force unit access.
        durable: bool,
    },
}

/// Blocks that a copy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Which namespace.
    pub key: NamespaceKey,
    /// First block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

impl Io {
    /// Whether it changes the namespace, or what of it survives.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Read { .. }
                | Self::ReadDurable { .. }
                | Self::Compare { .. }
                | Self::Verify { .. }
        )
    }

    /// The first block that it names, and how many, in a namespace of `lba_bytes`; none where it names no range of its own.
    pub(crate) fn range(&self, lba_bytes: u32) -> Option<(u64, u64)> {
        let of = |data: &IoBuf| (data.len() as u64).div_ceil(u64::from(lba_bytes));
        Some(match self {
            Self::Read { lba, blocks, .. }
            | Self::ReadDurable { lba, blocks }
            | Self::Verify { lba, blocks }
            | Self::WriteZeroes { lba, blocks, .. }
            | Self::WriteUncorrectable { lba, blocks } => (*lba, u64::from(*blocks)),
            Self::Write { lba, data, .. }
            | Self::Compare { lba, data }
            | Self::CompareAndWrite { lba, data, .. } => (*lba, of(data)),
            Self::Copy { lba, sources, .. } => (
                *lba,
                sources.iter().map(|source| u64::from(source.blocks)).sum(),
            ),
            Self::Flush | Self::FlushAll { .. } | Self::Deallocate { .. } => return None,
        })
    }
}

/// How a request is asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Given back with the answer.
    pub token: u64,
    /// Whose reads this one may go on with.
    pub reader: ReaderId,
    /// When whoever asked gives up, where they do.
    pub deadline: Option<Instant>,
    /// The reader needs bytes that do not change after the call (it sends a digest ahead of them): memory that a writer may change is copied.
    pub snapshot: bool,
}

impl Asked {
    /// By nobody in particular, and without a deadline.
    #[must_use]
    pub fn with(token: u64) -> Self {
        Self {
            token,
            ..Self::default()
        }
    }
}

/// What became of a request that was asked for where it lies.
#[derive(Debug)]
pub enum Answer {
    /// Its answer comes from a poll.
    Later,
    /// All of it was carried out, and its buffer is where it was.
    Out,
    /// A read's bytes, where they lie.
    Lent(IoBuf),
    /// It ended at once: with an error, or it went the long way.
    Now(Done),
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
