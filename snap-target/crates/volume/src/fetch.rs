//! What the sans-I/O readers ask their driver for.

use crate::format::SourceId;
use crate::frame::StoredFrame;

/// Names a fetch toward the operation that asked for it. Never used twice by one operation, so that a late answer to an earlier use of a
/// recycled operation is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchId(pub u64);

/// Bytes to be read from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// To be handed back with the bytes.
    pub id: FetchId,
    /// Which store.
    pub source: SourceId,
    /// First byte there: a multiple of 4096.
    pub offset: u64,
    /// Bytes: from 1 to [`FETCH_BYTES_MAX`](crate::limits::FETCH_BYTES_MAX). A multiple of 4096, except where an external source ends.
    pub len: u32,
    /// Where they are wanted.
    pub placement: Placement,
}

/// Where fetched bytes are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// In memory of the driver's, until they are handed over.
    Staging,
    /// The bytes are the presented bytes `[out_offset, out_offset + len)` of the request: the driver reads them into the destination, or
    /// presents a lease of the store's memory in its place, and hands them over where they are, to be checked.
    Direct {
        /// From the start of the request; a multiple of 512.
        out_offset: u32,
    },
}

/// What an operation asks for, when its driver has a place of its own for frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Bytes: of a table, or of a stream without frames.
    Fetch(Fetch),
    /// A frame.
    Frame(FrameWant),
    /// Bytes of a stream without frames, named by a survey: not to be handed over.
    Stored(Fetch),
}

/// A frame that an operation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameWant {
    /// To be handed back with the packed bytes.
    pub id: FrameWantId,
    /// Which frame, and where its stored bytes are.
    pub frame: StoredFrame,
}

/// Names a wanted frame toward the operation that asked for it. As [`FetchId`], never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameWantId {
    pub(crate) fetch: FetchId,
    pub(crate) unit: u32,
}
