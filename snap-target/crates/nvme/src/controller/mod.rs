//! Controllers: what answers admin commands, and what an I/O command must satisfy before it reaches a namespace.
//!
//! ```text
//!  Connect ----> Registry ----> Controller (I/O or discovery), one per association; one per PCIe function
//!  admin command -------------> Controller::execute -> Outcome
//!  I/O command ---------------> parse_io(NamespaceSet) -> IoCommand
//! ```
//! A [`Registry`] and its controllers live where the admin queues live, on one thread. I/O queues elsewhere need nothing of
//! them but the [`NamespaceSet`], an immutable snapshot with an epoch.

mod admin;
mod association;
mod async_event;
mod connect;
mod counters;
mod discovery;
mod error_log;
mod feature;
mod identify;
mod io;
mod keep_alive;
mod log_page;
mod namespace_feature;
mod namespaces;
mod property;
mod registry;
pub mod reservation;
mod subsystem;
mod timestamp;
mod transport;

pub use admin::{AdminCommand, Effect, Outcome, buffer_bytes};
pub use association::{Controller, ControllerId, Registers};
pub use connect::{Admitted, ConnectRequest};
pub use counters::{ControllerCounters, Lifetime};
pub use discovery::{Listener, Referral};
pub use error_log::{BlockAt, CommandError};
pub use io::{
    BlockRange, Blocks, COPY_FORMATS, COPY_RANGES_MAX, CopyCommand, CopyFormats, DatasetManagement,
    FUSED_BLOCKS_MAX, Fused, Fusing, IoCommand, Refusal, Taken, changes_content, copy_blocks_max,
    parse_io,
};
pub use namespace_feature::{NamespaceAsk, Protection};
pub use namespaces::{NamespaceInfo, NamespaceSet};
pub use registry::{Closed, NotAdmitted, QueuePlaces, Registry};
pub use subsystem::{
    ConfigError, ControllerLimits, HostPolicy, NAMESPACES_MAX, Subsystem, Target, Visibility,
};
pub use transport::{ConnectContext, PeerIdentity, Transport};

#[cfg(test)]
mod tests;
