//! Requests of several parts: one token, one answer, and in between reads, writes, zeroing and discards like anybody's.
//!
//! A machine says what comes next and is told what came of it ([`Steps`]); one part is under way at a time. The engine carries the parts out
//! (`drive`): they wait for memory and for fences as other requests do, and a cancel ends the one under way and begins no more.
//!
//! **Memory.** A machine has at most one buffer of the answers' pool, taken before its first part; parts take staging alone. So a request waits
//! for a pool only while it holds buffers of pools before that: incoming, answers, staging.
//!
//! **Turns.** The next part begins with the next poll, not at once: a request of a thousand parts whose bytes lie in memory takes a thousand turns,
//! and others have theirs between.

mod clear;
mod compare;
mod compare_and_write;
mod copy;
mod drive;
mod flush;
mod mark;
mod pieces;
mod ranges;
mod saves;
mod verify;

use reactor::buf::IoBuf;

pub(crate) use drive::Compound;
pub(crate) use saves::Saves;

use crate::{Backing, Io, Namespace, NamespaceError, NamespaceKey};

/// A request of several parts, as a machine.
pub(crate) trait Steps {
    /// What is next, now that the last thing is there.
    fn next(&mut self, namespace: &Namespace, got: Got) -> Next;

    /// What the request ends with when a part ends with an error.
    fn failed(&mut self, error: NamespaceError) -> NamespaceError {
        error
    }
}

/// What a machine asked for, and has now.
#[derive(Debug, Default)]
pub(crate) enum Got {
    /// Nothing was asked for yet, or what was has nothing to hand over.
    #[default]
    Nothing,
    /// A buffer: memory, or a part's, back.
    Buffer(IoBuf),
}

/// What a machine asks for.
#[derive(Debug)]
pub(crate) enum Next {
    /// A buffer of so many bytes.
    Memory(usize),
    /// No write of others from now on until the request ends.
    Exclude,
    /// Carry this out.
    Part(Part),
    /// Mark these blocks uncorrectable, and have that saved.
    Mark { lba: u64, blocks: u64 },
    /// These blocks were written: where they are marked, make that durable, clear the marks and have that saved.
    Clear { lba: u64, blocks: u64 },
    /// The request has ended.
    Done(Result<Option<IoBuf>, NamespaceError>),
}

/// A part of a request.
#[derive(Debug)]
pub(crate) enum Part {
    /// Blocks of any namespace, into a buffer; where its bytes lie in memory, the answer may be that instead.
    Read {
        key: NamespaceKey,
        lba: u64,
        blocks: u32,
        into: IoBuf,
    },
    /// Of the request's namespace, or of a part of it; as the others below.
    Write {
        key: NamespaceKey,
        lba: u64,
        data: IoBuf,
        durable: bool,
    },
    /// At most [`Namespace::range_bytes_max`].
    Zero {
        key: NamespaceKey,
        lba: u64,
        blocks: u64,
    },
    /// As long.
    Discard {
        key: NamespaceKey,
        lba: u64,
        blocks: u64,
    },
    /// Of any namespace.
    Flush { key: NamespaceKey },
}

impl Part {
    fn is_write(&self) -> bool {
        !matches!(self, Self::Read { .. } | Self::Flush { .. })
    }

    fn key(&self) -> NamespaceKey {
        match self {
            Self::Read { key, .. }
            | Self::Write { key, .. }
            | Self::Zero { key, .. }
            | Self::Discard { key, .. }
            | Self::Flush { key } => *key,
        }
    }

    /// The blocks that it is about; none of a flush.
    fn range(&self, lba_bytes: u32) -> Option<(u64, u64)> {
        Some(match self {
            Self::Read { lba, blocks, .. } => (*lba, u64::from(*blocks)),
            Self::Write { lba, data, .. } => {
                (*lba, data.len() as u64 / u64::from(lba_bytes.max(1)))
            }
            Self::Zero { lba, blocks, .. } | Self::Discard { lba, blocks, .. } => (*lba, *blocks),
            Self::Flush { .. } => return None,
        })
    }
}

/// The machine of a request of several parts; the request itself where it is one of one part.
pub(crate) fn steps(namespace: &Namespace, io: Io) -> Result<Box<dyn Steps>, Io> {
    let lba_bytes = u64::from(namespace.lba_bytes);
    // What one part of it has alone went there.
    let is_across = matches!(namespace.backing, Backing::Mixed(_));
    Ok(match io {
        Io::Read { lba, blocks, into } if is_across => {
            Box::new(pieces::ReadAcross::new(lba, blocks, into))
        }
        Io::Flush if is_across => Box::new(flush::FlushAll::new(namespace.key, Vec::new())),
        Io::Write { lba, data, durable }
            if is_across
                || namespace
                    .marks
                    .first_of(lba, data.len() as u64 / lba_bytes.max(1))
                    .is_some() =>
        {
            Box::new(clear::WriteOver::new(lba, data, durable))
        }
        Io::Read { .. } | Io::Write { .. } | Io::Flush => return Err(io),
        Io::FlushAll { others } => Box::new(flush::FlushAll::new(namespace.key, others)),
        Io::ReadDurable { lba, blocks } => Box::new(flush::ReadDurable::new(lba, blocks)),
        Io::Compare { lba, data } => Box::new(compare::Compare::new(lba, data)),
        Io::Verify { lba, blocks } => Box::new(verify::Verify::new(lba, blocks)),
        Io::WriteZeroes {
            lba,
            blocks,
            deallocate,
            durable,
        } => Box::new(ranges::Ranges::zeroes(
            namespace, lba, blocks, deallocate, durable,
        )),
        Io::Deallocate { ranges } => Box::new(ranges::Ranges::deallocation(ranges)),
        Io::WriteUncorrectable { lba, blocks } => Box::new(mark::Mark::new(lba, blocks)),
        Io::Copy {
            lba,
            sources,
            durable,
        } => Box::new(copy::Copy::new(lba, sources, durable)),
        Io::CompareAndWrite {
            lba,
            expected,
            data,
            durable,
        } => Box::new(compare_and_write::CompareAndWrite::new(
            lba, *expected, data, durable,
        )),
    })
}

/// Blocks as a count of one transfer; none has more bytes than 32 bits count.
fn blocks_of(namespace: &Namespace, data: &IoBuf) -> u32 {
    u32::try_from(data.len() / namespace.lba_bytes.max(1) as usize).unwrap_or(u32::MAX)
}
