//! A target without I/O, for simulations: controllers, disks in memory, connections driven by bytes, links that carry them, and a model of
//! what a disk must hold. Everything that is left to chance follows from a seed.
//!
//! It is what the tests of this crate hold the machines against, and tests of others a host's queues. No part of a product.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "tests alone use it, and one that panics has failed"
)]

mod admin;
pub mod conduct;
mod gather;
mod io;
pub mod link;
pub mod model;
pub mod random;
mod store;
pub mod target;

pub use gather::gather;
