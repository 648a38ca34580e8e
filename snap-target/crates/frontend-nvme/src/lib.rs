//! The NVMe-oF frontend: controllers, queues and commands on reactors, whatever carries them to hosts.
//!
//! **What it is.** A [`Frontend`] is one reactor's share of a target. The first reactor is also the *front desk*: it accepts
//! connections at listeners of every transport, sees each through Connect, and keeps the controllers and their admin queues. An I/O queue then belongs to one
//! reactor for life: the desk hands its link over, and from there on no other thread touches it. What carries a queue fulfils [`link`]'s contract:
//! `frontend-nvme-tcp`, `frontend-nvme-rdma`. All of them stand on the same desk, so that CNTLIDs, namespaces and reservations are those of one target.
//!
//! **Its contract.** A queue's requests have ended before the queue counts as closed, and a controller's queues have closed before
//! the same host is let in again, and before a reset (CC.EN=0) is complete, so no write of a lost connection is applied behind a newer one's
//! back. A host holds no more memory than its share. An idle frontend sleeps.
//!
//! **What it does not do.** It opens no socket and no device, it knows nothing of volumes or transforms (the `namespace` crate does), and it does not authenticate.
//!
//! With the feature `inspection` tests of transports look at what a reactor keeps of its queues; with `conformance` they call what every target does for its
//! hosts, as a suite.

#![forbid(unsafe_code)]

mod acceptor;
mod admin;
mod clock;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod desk;
mod event;
mod farewells;
mod frontend;
mod host_share;
mod io_queue;
mod ledger;
mod life;
mod limits;
pub mod link;
mod lodger;
mod message;
mod meter;
mod table;

pub use acceptor::Acceptor;
pub use admin::{Admin, AdminError, Closed, Closing, ControllerReport};
pub use clock::Clock;
pub use config::{FrontendConfig, FrontendError, Service, ring_config, subsystem};
pub use event::{ConnectRefused, EventSink, Gone, Losses, TargetEvent};
#[cfg(feature = "inspection")]
pub use farewells::Farewells;
pub use frontend::Frontend;
#[cfg(feature = "inspection")]
pub use frontend::Inside;
pub use ledger::Ledger;
pub use life::{Life, LifeKeeper, LifeSaved};
pub use limits::{FUNCTIONS_MAX, LODGER_QUEUE_OPS_MAX, LODGER_QUEUES_MAX};
pub use lodger::{Lodger, lodger_token};
pub use message::Control;
