//! The volume format: reader, writer, read planner, frame cache.
#![deny(unsafe_code)]

#[cfg(test)]
mod assemble;
pub mod blocking;
mod cache;
pub mod checksum;
pub mod error;
pub mod fetch;
pub mod format;
pub mod identity;
pub mod limits;
mod opening;
mod read;
#[cfg(test)]
mod tests;
pub mod verify;
mod volume;
pub mod write;

pub use cache::{Cache, CacheCounters};
pub use error::{ErrorKind, Item, Place, VolumeError};
pub use fetch::{Fetch, FetchId, Placement};
pub use format::{BlobIndex, SourceId, StreamIndex, ViewIndex};
pub use opening::Opening;
pub use read::{OutBuf, Progress, ReadCounters, ReadOp};
pub use volume::{Notice, Volume};
