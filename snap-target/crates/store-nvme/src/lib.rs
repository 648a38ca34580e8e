//! A namespace of an NVMe-oF subsystem as a store.
//!
//! **What it is.** [`open`] starts a thread, the [`Custodian`], which keeps the paths to the namespace: it connects, keeps alive, hears of changes, and connects
//! again. Each handle of the store gets a queue on each path and sends its commands there. What carries the queues is another crate's: see [`queue`], the
//! contract.
//!
//! **Its contract** is [`store::Store`]'s. Reads fail over; a change that was sent and not answered is sent again only when the controller that may have it
//! is surely dead ([`nvme::initiator::path`]), or fails at its deadline and has its range fenced until then. A path that leads to another namespace is not used.
//!
//! **What it does not do.** No authentication, no TLS, no striping or mirroring, no caching, no resolving of names after the start. A process that ends
//! remembers nothing of the changes that it sent.

#![forbid(unsafe_code)]
#![allow(
    clippy::result_large_err,
    reason = "a rejection gives the buffer back by value: boxing it would allocate"
)]

mod backend;
mod clock;
pub mod commands;
#[cfg(feature = "conformance")]
pub mod conformance;
mod custodian;
mod discovery;
mod error;
mod handle;
mod lending;
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
pub use url::{Digests, RemoteUrl, ResolveError, Times, UrlError};
