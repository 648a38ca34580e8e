//! A namespace of an NVMe-oF subsystem as a store.
//!
//! What carries the queues (TCP, RDMA) is another crate's: see [`queue`], the contract.

#![forbid(unsafe_code)]

mod clock;
pub mod queue;

pub use clock::Clock;
