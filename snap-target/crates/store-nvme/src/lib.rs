//! A namespace of an NVMe-oF subsystem as a store.
//!
//! What carries the queues (TCP, RDMA) is another crate's: see [`queue`], the contract.

#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a rejection gives the buffer back by value: boxing it would allocate"
)]

mod backend;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod custodian;
mod discovery;
mod error;
mod handle;
mod message;
mod options;
pub mod queue;
mod report;
mod shared;
mod url;

pub use clock::Clock;
pub use custodian::{Custodian, NewError, OpenedRemote, Remote, open};
pub use discovery::{DiscoverError, discover};
pub use error::OptionsError;
pub use options::{DEADLINE_MAX, HANDLES_MAX, PATHS_MAX, Policy, RemoteOptions};
pub use queue::Transport;
pub use report::{PathReport, PathState};
pub use url::{Digests, RemoteUrl, ResolveError, UrlError};
