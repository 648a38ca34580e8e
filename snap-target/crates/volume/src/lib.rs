//! Volumes: a self-describing layout of streams, extents and views on a store. docs/format.md is the specification of what lies there;
//! this crate reads, writes and verifies it.
//!
//! * [`Opening`] opens a volume, [`ReadOp`] reads presented bytes, both without doing I/O: they say what to fetch ([`Fetch`]) and take
//!   the bytes. A driver that keeps frames elsewhere is asked for frames instead ([`Want`]), and undoes them where it likes
//!   ([`StoredFrame::decode`]). [`Volume`] is the directory, in memory and immutable; tables that grow with the data stay on the store, and pass
//!   through a reactor's [`Cache`] block by block.
//! * [`mod@write`] packs sources into a new volume, on all cores, in bounded memory.
//! * [`mod@verify`] reads everything and reports each damaged place.
//! * [`blocking`] drives the readers by waiting: for tools and tests.
//!
//! Contract: what a store holds is hostile input. Every block and granule is checked before it is used, every field against its rule, and
//! every error says where it was met, by its field in docs/format.md. What is read is either the presented bytes or an error. Memory is
//! bounded by [`limits`] and the cache's budget; after warm-up a read allocates nothing.
//!
//! What it does not do: it opens no connections and waits for nothing (its driver does), it changes no volume that exists, it decodes no
//! elements (the transforms crate does), it does not choose a chain or a frame size. Two operations that are handed
//! stored bytes of the same frame both decode it; that each is decoded once is its driver's business. Features that docs/format.md reserves are refused by their names.

#![deny(unsafe_code)]

pub mod ahead;
#[cfg(test)]
mod assemble;
pub mod blocking;
mod cache;
mod chain_tables;
pub mod checksum;
mod density;
pub mod error;
pub mod fetch;
mod file_state;
pub mod format;
mod frame;
pub mod identity;
pub mod limits;
mod locator;
mod opening;
mod pieces;
mod read;
#[cfg(test)]
mod tests;
mod unchanged;
mod units;
pub mod verify;
mod volume;
pub mod write;

pub use cache::{Cache, CacheCounters, Frame, FrameBuf, Witness};
pub use error::{ErrorKind, Item, Place, VolumeError};
pub use fetch::{Fetch, FetchId, FrameWant, FrameWantId, Placement, TableBlock, Want};
pub use format::{BlobIndex, SourceId, StreamIndex, ViewIndex};
pub use frame::{FrameId, PLAIN_FRAME_BYTES, StoredFrame};
pub use locator::{Locator, SourcePolicy};
pub use opening::Opening;
pub use read::{ElementTime, OutBuf, Progress, Reach, ReadCounters, ReadOp};
pub use volume::{CopyState, Notice, SuperblockCopy, Volume, VolumeId};
