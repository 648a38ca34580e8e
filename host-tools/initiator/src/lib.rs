//! A host for NVMe/TCP in userspace: connects to a target, lists its namespaces, and reads and writes them by byte ranges.
//!
//! ```no_run
//! use initiator::{Initiator, Options, Url};
//! let url: Url = "nvme+tcp://127.0.0.1:4420/nqn.2026-11.io.xio:tokens?nsid=1".parse()?;
//! let mut disk = Initiator::connect(&url.address(), &url.subnqn, &Options::default())?;
//! let mut header = [0; 100];
//! let nsid = disk.namespace_of(&url)?.nsid.0;
//! disk.read(nsid, 4_000, &mut header)?;
//! disk.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The protocol is [`nvme::tcp::host`] and [`nvme::initiator`]; this crate adds the sockets and the buffers. Everything runs on the
//! caller's thread: a call returns when its commands are complete. Reads and writes keep the queues as full as the depth
//! allows, and payload goes between the socket and the caller's memory without a copy wherever a block or more is moved
//! and PDUs are large; small PDUs come through one shared buffer.
//!
//! [`load`] is the same machinery as a load generator: a closed loop of reads or writes on one queue, verified if asked. [`Pipeline`]
//! leaves to the caller what is outstanding, command by command.
//!
//! What it does not do: reconnect (an [`Error`] that ends the connection ends the [`Initiator`]; make a new one), multipath, TLS,
//! authentication, asynchronous events. Linux only.

#![forbid(unsafe_code)]

mod changes;
mod client;
mod commands;
mod discovery;
mod error;
pub mod load;
mod options;
mod pipeline;
mod queue;
mod sequence;
mod socket;
mod transfer;
mod url;

pub use client::Initiator;
pub use discovery::discover;
pub use error::Error;
pub use nvme::initiator::{ControllerInfo, DiscoveryRecord, NamespaceInfo};
pub use nvme::nqn::Nqn;
pub use options::Options;
pub use pipeline::{Done, Pipeline, Work};
pub use socket::WireBytes;
pub use url::{Url, UrlError};
