//! Where stored bytes live: the [`Store`] contract and its implementations `mem:`, `file:`, `null:` and `void:`.
//!
//! **What it is.** A [`SharedStore`] is opened once from a [`StoreSpec`] and is `Send + Sync`; each reactor opens a handle of its own
//! ([`SharedStore::open_handle`]), a [`Store`], which is neither. The duties of a handle and of its caller stand at [`Store`].
//!
//! Tools that have nothing else to do use a [`BlockingStore`]:
//!
//! ```
//! use store::{BlockingStore, OpenOptions, SharedStore, StoreSpec};
//!
//! let shared = SharedStore::open(&StoreSpec::parse("mem:1MiB")?, OpenOptions::read_write())?;
//! let mut store = BlockingStore::new(&shared)?;
//! store.write(1000, b"kept")?;
//! let mut back = [0; 4];
//! store.read(1000, &mut back)?;
//! assert_eq!(&back, b"kept");
//! # Ok::<(), store::StoreError>(())
//! ```
//!
//! For tests there are stores around stores ([`decorate`]: slow, failing) and, with the feature `conformance`, the suite that every
//! implementation passes.
//!
//! A store of another crate implements [`Backend`] and [`Store`], declares what it can from [`Limits::new`] on, begins each submit with [`check`], and
//! passes the suite: `conformance::run` over a store that it may fill, `conformance::run_read_only` over content that is given.
//!
//! **What it does not do.** No caching, no retry beyond short transfers, no checksums, no locking of ranges: two writes to the same
//! bytes at the same time leave either content, block by block.

#![deny(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a rejection gives the buffer back by value: boxing it would allocate"
)]

mod blocking;
#[cfg(feature = "conformance")]
pub mod conformance;
mod contract;
pub mod decorate;
mod error;
#[allow(
    unsafe_code,
    reason = "statx, open flags and block device ioctls; each block says why"
)]
mod file;
pub mod gate;
mod limits;
#[allow(
    unsafe_code,
    reason = "copies and leases over shared memory; each block says why"
)]
mod mem;
#[allow(unsafe_code, reason = "leases of the zero region; each block says why")]
mod null;
mod shared;
mod spec;

pub use blocking::BlockingStore;
pub use contract::{
    Completion, Durability, Limits, Op, Rejected, Store, Terms, Token, WireBytes, check,
};
pub use error::{ErrorKind, StoreError};
pub use file::{set_file_size, settle_file_size};
pub use limits::{RANGE_BYTES_MIN, SEGMENTS_MIN, TRANSFER_BYTES_MIN};
pub use shared::{Access, Backend, Caching, OpenOptions, Problem, SharedStore};
pub use spec::{BYTES_MAX, Exact, StoreSpec, parse_size};
