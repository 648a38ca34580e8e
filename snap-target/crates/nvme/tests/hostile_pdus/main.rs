//! Hostile peers: the known failures of other implementations, each a test that carries its name, and sequences of PDUs that nobody
//! thought of. The target is whole here: connection, controllers, a disk.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod against_host;
mod against_target;
mod bodies;
mod capsules;
mod given_up;
mod grids;
mod sequences;
#[path = "../support/mod.rs"]
mod support;
mod wire;

/// So that the bodies see what memory they take.
#[global_allocator]
static ALLOCATOR: support::memory::Counting = support::memory::Counting;
