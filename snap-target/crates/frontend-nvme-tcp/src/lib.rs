//! The NVMe/TCP frontend: sockets around the `nvme` state machines, on reactors.
//!
//! **What it is.** A [`Frontend`] is one reactor's share of an NVMe/TCP target. The first reactor is also the *front desk*: it accepts
//! connections, sees each through ICReq and Connect, and keeps the controllers and their admin queues. An I/O queue then belongs to one
//! reactor for life: the desk hands its socket and its machine over, and from there on no other thread touches them.
//!
//! **Its contract.** Payload is received into the command's own buffer and sent from where the store or the decoder left it; one gathered send
//! a turn and connection. A queue's requests have ended before the queue counts as closed, and a controller's queues have closed before
//! the same host is let in again, and before a reset (CC.EN=0) is complete, so no write of a lost connection is applied behind a newer one's
//! back. A host that is asked for data and sends none is gone. A connection that ends here ends for its host without a reset ([`farewell`]). An idle
//! frontend sleeps.
//!
//! **What it does not do.** It knows nothing of volumes or transforms (the `namespace` crate does), and it neither authenticates nor encrypts.

#![deny(unsafe_code)]

mod admin;
mod config;
mod desk;
#[allow(
    unsafe_code,
    reason = "computes digests over payload where it lies; the block says why"
)]
mod digest;
mod event;
mod farewell;
mod frontend;
mod host_share;
mod io_queue;
mod life;
mod limits;
mod link;
mod message;
mod meter;
mod table;

pub use admin::{Admin, AdminError, Closed, Closing, ControllerReport};
pub use config::{FrontendConfig, FrontendError, Service, bind, ring_config, subsystem};
pub use event::{ConnectRefused, EventSink, Gone, Losses, TargetEvent};
pub use frontend::Frontend;
pub use life::{Life, LifeKeeper, LifeSaved};
pub use message::Control;
pub use nvme::tcp::target::SuccessFlag;
