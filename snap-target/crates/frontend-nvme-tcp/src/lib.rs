//! NVMe/TCP for the frontend: sockets around the `nvme` state machine.
//!
//! **What it is.** [`bind`] makes a listening end that a target takes ([`frontend_nvme::link::Bound`]); each of its connections is one queue of one host.
//!
//! **Its contract** is [`frontend_nvme::link::Link`]'s. Payload is received into the command's own buffer and sent from where the store or the decoder left it; one gathered send
//! a turn and connection. A host that is asked for data and sends none, or takes none, is gone. A connection that ends here ends for its host without
//! a reset ([`farewell`]).
//!
//! **What it does not do.** It knows no controllers and no namespaces (`frontend-nvme` does), and it neither authenticates nor encrypts.

#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "computes digests over payload where it lies; the block says why"
)]
mod digest;
mod farewell;
mod limits;
mod link;
mod port;
mod socket;

pub use nvme::tcp::target::SuccessFlag;
pub use port::{TcpPort, bind};
