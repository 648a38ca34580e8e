//! The NVMe-oF frontend: what all fabrics of a target share.
//!
//! **What it is.** The contract between a target and what carries its queues ([`link`]), which `frontend-nvme-tcp` and `frontend-nvme-rdma` fulfil.
//!
//! **What it does not do.** It opens no socket and no device, and knows nothing of volumes or transforms.

#![forbid(unsafe_code)]

mod clock;
mod ledger;
pub mod link;

pub use clock::Clock;
pub use ledger::Ledger;
